/* Symbolic values of blocks: a set of ranks whose contributions to a block have been combined. */
#ifndef TT_SCHEDULE_VALUE_H
#define TT_SCHEDULE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The set of contributors. For 64 ranks or fewer `set[0]` is its exact mask. For more, `set` is the
 * sum of one random 128-bit number for each contribution: two different collections of
 * contributions have equal sums with a probability of 2^-128, and a contribution that is counted
 * twice is found at the latest when the value should be complete. number = 0: no contribution. */
struct tt_value {
    uint64_t set[2];
    uint32_t number; /* contributions */
    int32_t block;   /* global name; of an all-to-all the receiver */
    bool finished;
};

/* One rank's own contribution. */
struct tt_value tt_value_own(int nranks, int rank, int block);
/* Adds the contributions of `other`. Returns NULL, or why the two cannot be reduced: `text`. */
const char *tt_value_fold(struct tt_value *value, const struct tt_value *other, int nranks,
                          char *text, size_t size);
/* All ranks' contributions, each once. */
struct tt_value tt_value_full(int nranks);
/* Returns NULL when the contributions are those of `full`; else the difference: `text`. */
const char *tt_value_incomplete(const struct tt_value *value, const struct tt_value *full,
                                int nranks, char *text, size_t size);
bool tt_value_equal(const struct tt_value *a, const struct tt_value *b);
/* "block 3 of rank 1". */
void tt_value_describe(const struct tt_value *value, int nranks, char *text, size_t size);

#endif
