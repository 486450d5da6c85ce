/* Peers, spans and numbers of steps that many algorithms share. */
#ifndef TT_ALGORITHMS_FORMS_H
#define TT_ALGORITHMS_FORMS_H

#include "schedule/schedule.h"

/* All algorithms' functions have the same parameters, and few functions use every one. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Largest k with 2^k <= n, n >= 1. */
static inline int floor_log2(int n)
{
    return 31 - __builtin_clz((unsigned)n);
}

/* Smallest k with 2^k >= n, n >= 1. */
static inline int ceil_log2(int n)
{
    return n > 1 ? floor_log2(n - 1) + 1 : 0;
}

static inline int least(int a, int b)
{
    return a < b ? a : b;
}

static inline uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The rank `distance` places further round the circle of all ranks. */
static inline struct tt_peers ahead(const struct tt_shape *shape, int rank, int distance)
{
    return tt_peer(tt_mod((int64_t)rank + distance, shape->nranks));
}

/* All ranks in rank order, this one included. */
static inline struct tt_peers everyone(const struct tt_shape *shape)
{
    return (struct tt_peers){.first = 0, .number = shape->nranks, .stride = 1};
}

/* All ranks but this one, in rank order. */
static inline struct tt_peers others_in_order(const struct tt_shape *shape, int rank)
{
    return (struct tt_peers){
        .first = 0, .number = shape->nranks - 1, .stride = 1, .has_gap = true, .gap = rank};
}

/* All ranks but this one, the next rank first, so that ranks do not all send to one rank first. */
static inline struct tt_peers others(const struct tt_shape *shape, int rank)
{
    const int n = shape->nranks;
    return (struct tt_peers){.first = tt_mod((int64_t)rank + 1, n), .number = n - 1, .stride = 1};
}

/* `number` blocks from `first` on, round the circle of nranks blocks. */
static inline struct tt_span circle(const struct tt_shape *shape, enum tt_buffer buffer,
                                    int64_t first, int number)
{
    return tt_range(buffer, tt_mod(first, shape->nranks), number);
}

/* `number` blocks round the circle in SCRATCH, in the slots from `slot` on. */
static inline struct tt_span circle_at(const struct tt_shape *shape, int64_t first, int number,
                                       int slot)
{
    struct tt_span span = circle(shape, TT_SCRATCH, first, number);
    span.slot_rule = TT_SLOT_IN_ORDER;
    span.slot = slot;
    return span;
}

/* Fills the only step of a single rank, which copies its input to its output. False, and nothing
 * filled, when there are several ranks. */
static inline bool alone(const struct tt_shape *shape, struct tt_step *step)
{
    if (shape->nranks > 1) return false;
    step->local = tt_range(TT_INPUT, 0, 1);
    step->dst = tt_range(TT_OUTPUT, 0, 1);
    step->finish = tt_collective_reduces(shape->collective);
    return true;
}

/* Receives from all other ranks and folds with the own data, all in rank order, to the complete
 * result. */
static inline void fold_all(const struct tt_shape *shape, int rank, struct tt_step *step)
{
    step->op = TT_FOLD;
    step->finish = true;
    step->recv = others_in_order(shape, rank);
    step->own_at = rank;
}

/* Of the step of alone(). */
static const struct tt_formula formula_alone = {.steps = 1};

/* Numbers of steps: one for each rank, as once round a ring; and twice that, where the last step of
 * the first half is the first of the second half. */
static inline int step_each(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                            int channel)
{
    return shape->nranks;
}

static inline int step_each_twice(const struct tt_algorithm *self, const struct tt_shape *shape,
                                  int rank, int channel)
{
    return 2 * shape->nranks - 1;
}

/* One block for each rank. */
static inline int one_block_each(const struct tt_algorithm *self, const struct tt_shape *shape)
{
    return shape->nranks;
}

#endif
