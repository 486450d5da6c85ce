/* NCCL_ALGO in the words of TUTTI_ALGORITHM. */
#ifndef TT_BASE_NCCL_ALGORITHMS_H
#define TT_BASE_NCCL_ALGORITHMS_H

#include <stdbool.h>
#include <stddef.h>

/* Converts "ring,tree;allreduce:tree;broadcast:^ring" (words in any case): a collective that is
 * left one algorithm that tutti has gets it ("all_reduce:tree;..."); the cost model chooses for the
 * others. False: for all of them. Words that tutti does not know, or has no algorithm for, are
 * noted (tt_nccl_note). */
bool tt_nccl_parse_algorithms(const char *text, char *converted, size_t size);

#endif
