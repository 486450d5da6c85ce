/* Which part of a tensor each rank holds: a list of slices of the global tensor. Ranks with equal
 * lists are replicas; the gradient that a replica's backward pass leaves is a partial sum over all
 * of them. What is reduced over whom, who counts in the norm and who saves follow from the lists;
 * nothing is flagged by hand. */
#ifndef TR_LAYOUT_H
#define TR_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

/* A rectangle of a global tensor; a vector is one column wide. */
struct tr_slice {
    long row, rows, col, cols;
};

/* How the ranks of the tp axis cut a tensor: dimension `dim` consists of `granules` groups of
 * `granule` rows or columns that stay together (a head, a row of the vocabulary). */
struct tr_layout {
    int dim; /* 0 rows, 1 columns, -1: every rank of tp holds the whole tensor */
    long granule, granules;
};

/* What rank `rank` of `n` holds along the cut dimension: `count` rows or columns from `first` on,
 * and the `stored` ones that memory is kept for, the same on every rank. The `count` lie without
 * gaps at the beginning of that memory; the rest of it is padding and stays zero. Fewer granules
 * than ranks: n / granules ranks in a row share a granule. */
struct tr_part {
    long first, count, stored;
};
struct tr_part tr_layout_part(const struct tr_layout *layout, long extent, int n, int rank);

/* Rank `rank` of `n`'s slices of the elements [first, first + count) of its stored tensor of
 * `shape` (global), in the order in which they are stored; elements of padding are left out. Gives
 * how many (at most 3). */
enum { TR_MOST_SLICES = 3 };
int tr_layout_slices(const struct tr_layout *layout, const long shape[2], int n, int rank,
                     size_t first, size_t count, struct tr_slice slices[TR_MOST_SLICES]);

/* How many ranks of tp in a row hold what `rank` holds, itself included, and the first of them: by
 * comparing their lists. */
struct tr_replicas {
    int first, count;
};
struct tr_replicas tr_layout_replicas(const struct tr_layout *layout, const long shape[2], int n,
                                      int rank);

/* The balanced cut of n items over `parts`: the first n % parts get one more. */
void tr_layout_slice(long n, int parts, int part, long *first, long *count);

#endif
