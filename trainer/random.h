/* Counter-based random numbers: each depends only on (seed, purpose, index), never on how many were
 * drawn before or by whom, so the same weights, order of data and samples come out of any layout.
 * Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
 * 2011. */
#ifndef TR_RANDOM_H
#define TR_RANDOM_H

#include <stdint.h>

/* What a number is for; the high half tells uses apart, the low half is the user's (a parameter, an
 * epoch). */
enum tr_purpose {
    TR_RANDOM_WEIGHTS = 1,
    TR_RANDOM_ORDER = 2,
    TR_RANDOM_PHASE = 3,
    TR_RANDOM_SAMPLE = 4
};

/* Four words for counter `index` of stream (purpose, stream). */
void tr_random_words(uint64_t seed, enum tr_purpose purpose, uint32_t stream, uint64_t index,
                     uint32_t out[4]);

/* In [0, 1). */
double tr_random_uniform(uint64_t seed, enum tr_purpose purpose, uint32_t stream, uint64_t index);

/* The place of `index` in a permutation of 0..n-1 chosen by (seed, stream): a Feistel network over
 * the next power of four, walked until it lands inside. No memory. */
uint64_t tr_random_permute(uint64_t seed, uint32_t stream, uint64_t index, uint64_t n);

#endif
