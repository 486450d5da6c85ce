/* The data that perf tests send, and what must come out, both made from (seed, rank, index) alone.
 *
 * Reductions get inputs whose result does not depend on the order: integers wrap; floating-point
 * sums are of small integers times one power of two, few enough to fit the mantissa in every
 * partial sum; products are of powers of two and a few factors of 1.5. So results are compared bit
 * by bit; only averages of floating-point types, which divide, may be 2 steps off. */
#ifndef TT_PERF_VERIFY_H
#define TT_PERF_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/types.h"

#define PERF_UNTOUCHED 0xa5 /* every byte of a receive buffer before a check */

/* How blocks differ in length. */
enum perf_spread {
    PERF_EVEN,   /* `count` elements each */
    PERF_LINEAR, /* growing from 0 to 2 * count */
    PERF_ONE,    /* all elements in one block */
};

/* The blocks of a collective in which each rank has a count of its own. */
struct perf_blocks {
    enum perf_spread spread;
    bool pairwise; /* a block for every pair of ranks, instead of one for every rank */
    size_t count;  /* elements of a block on average */
    int nranks;
};

/* Elements of block `block`; pairwise: of what rank `from` sends to rank `block`. Together they are
 * at most nranks * count. */
size_t perf_block_count(const struct perf_blocks *blocks, int from, int block);
/* Elements of the blocks before it. */
size_t perf_block_begin(const struct perf_blocks *blocks, int from, int block);

/* What one rank's buffers hold in one check. Borrowed pointers to the static tables. */
struct perf_data {
    const struct perf_type *type;
    const struct perf_op *op; /* NULL: nothing is reduced, inputs are any bits */
    uint64_t seed;
    int rank;
    int nranks;
    int root;
    size_t count; /* the call's count argument */
    struct perf_blocks blocks;
    bool in_place;
};

/* Elements [first, first + count) of what `rank` sends. */
void perf_fill_input(const struct perf_data *data, int rank, size_t first, size_t count, void *to);

/* Elements [first, first + count) of the reduction over all ranks. */
void perf_fill_reduced(const struct perf_data *data, size_t first, size_t count, void *to);

/* What receive buffers hold before a check: a result that was not written shows. */
void perf_fill_untouched(const struct perf_data *data, size_t count, void *to);

/* Splits [first, first + count) of a receive buffer of blocks at the blocks' ends; `fill` gets the
 * block's number and the range within it. */
typedef void (*perf_block_fill)(const struct perf_data *data, int block, size_t first, size_t count,
                                void *to);
void perf_fill_blocks(const struct perf_data *data, size_t first, size_t count, void *to,
                      perf_block_fill fill);

/* Elements [first, first + count) of what the rank's receive buffer must hold: every rank's block;
 * the same on root only; the own block of root's data; the own block of the reduction; the own
 * block of every rank's data. */
void perf_expect_gathered(const struct perf_data *data, size_t first, size_t count, void *want);
void perf_expect_gathered_at_root(const struct perf_data *data, size_t first, size_t count,
                                  void *want);
void perf_expect_scattered(const struct perf_data *data, size_t first, size_t count, void *want);
void perf_expect_reduced_block(const struct perf_data *data, size_t first, size_t count,
                               void *want);
void perf_expect_exchanged(const struct perf_data *data, size_t first, size_t count, void *want);

/* Elements of `got` that differ from `want`. */
int64_t perf_count_wrong(const struct perf_data *data, const void *got, const void *want,
                         size_t count);

/* The scalar of rank's pre-multiplied sum, as an element of the type. */
void perf_mulsum_scalar(const struct perf_type *type, int rank, void *to);

#endif
