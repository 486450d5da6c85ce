/* clang-format off */
/* Which tokens of a sequence each rank has: the order of a sequence cut along the ring and ulysses
 * axes.
 *
 * Definition   a sequence of `length` tokens is padded to a multiple of 2 x ring x ulysses x tp
 *              (not at all where these are 1). Contiguous: ring rank r has the r-th of `ring` parts.
 *              Zigzag: the sequence is cut into 2 x ring chunks, and ring rank r has chunks r and
 *              2 x ring - 1 - r, so that under a causal mask all have the same work. Either way the
 *              part of a ring rank is cut once more, into `ulysses` contiguous parts.
 * Collectives  none.
 * Padding      lies at the end of the sequence, with weight 0: no token that counts sees it.
 * Test         tests/trainer/seqlayout_test.c. */
/* clang-format on */
#ifndef TR_SEQLAYOUT_H
#define TR_SEQLAYOUT_H

#include <stdbool.h>

struct tr_sequence {
    long length, padded; /* tokens of the whole sequence */
    long before;         /* tokens before it, which a cache holds; 0: it is a text's beginning */
    long local;          /* tokens of each rank: padded / (ring x ulysses) */
    int ring, ring_rank, ulysses, ulysses_rank;
    bool zigzag;
};

/* tp cuts the rows of the residual stream once more. */
struct tr_sequence tr_sequence_of(long length, int ring, int ring_rank, int ulysses,
                                  int ulysses_rank, int tp, bool zigzag);

/* The place in the whole sequence of this rank's token i (0 .. local-1). */
long tr_sequence_position(const struct tr_sequence *sequence, long i);

/* The first place in the whole sequence, and the number of tokens, of chunk `chunk` (0, 1) of what
 * ring rank `ring_rank` has (of all ulysses ranks together); contiguous parts have one chunk of
 * padded / ring tokens, and an empty second one. */
void tr_sequence_chunk(const struct tr_sequence *sequence, int ring_rank, int chunk, long *first,
                       long *count);

#endif
