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
    int32_t first; /* contributions of the ranks first, first + 1, ..., folded left to right in one
                    * step; -1: folded otherwise */
    bool finished;
};

/* One rank's own contribution. */
struct tt_value tt_value_own(int nranks, int rank, int block);
/* Adds the contributions of `other`. Returns NULL, or why the two cannot be reduced: `text`. */
const char *tt_value_fold(struct tt_value *value, const struct tt_value *other, int nranks,
                          char *text, size_t size);
/* The end of the step that made the value: a later step that folds more contributions into it folds
 * in two steps. */
void tt_value_leave_step(struct tt_value *value);
/* Whether all ranks' contributions were folded in one step, in rank order from rank 0 on. */
bool tt_value_in_rank_order(const struct tt_value *value, int nranks);
/* All ranks' contributions, each once. */
struct tt_value tt_value_full(int nranks);
/* Returns NULL when the contributions are those of `full`; else the difference: `text`. */
const char *tt_value_incomplete(const struct tt_value *value, const struct tt_value *full,
                                int nranks, char *text, size_t size);
bool tt_value_equal(const struct tt_value *a, const struct tt_value *b);
/* "block 3 of rank 1". */
void tt_value_describe(const struct tt_value *value, int nranks, char *text, size_t size);

#endif
