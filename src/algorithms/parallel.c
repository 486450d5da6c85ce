/* Parallel: every rank exchanges messages with every other rank at once, so the longest chain of
 * dependences has one or two messages.
 *
 * In all-reduce "parallel" every rank sends all of its data to every rank, and each rank folds all
 * data in one pass. "two_shot" is a reduce-scatter and an all-gather (reduce: a gather) of the same
 * kind: each rank folds only its own block, and sends the result to every rank (reduce: to root).
 * Each rank sends to the next rank first, so the first messages have different targets.
 *
 *   parallel        reduce_scatter                all_gather                two_shot
 *   r0 <--> r1      r0 sends [1] to r1,           r0 sends [0] to           reduce_scatter, and the
 *    | \  / |                [2] to r2,                r1, r2, r3           step that completes a
 *    |  \/  |                [3] to r3;                                     block sends it on
 *    |  /\  |       r0 folds [0] of all
 *   r3 <--> r2
 *
 *                           steps   depth   sent     reduced   scratch   message
 *   all_reduce (parallel)   2       1       n-1      n         0         1     (the whole data)
 *   reduce_scatter          n       1       n-1      n         0         1     (1/n of it)
 *   all_gather              n       1       n-1      0         0         1     (1/n of it)
 *   all_reduce (two_shot)   2n-1    2       2(n-1)   n         0         1     (1/n of it)
 *   reduce (two_shot)       2n-1    2       n        n         0         1     (1/n of it)
 *
 * Order of folding: rank order on every rank, so all ranks get the same bits. */
#include "algorithms/forms.h"
#include "algorithms/list.h"

static int all_reduce_nsteps(const struct tt_algorithm *self, const struct tt_shape *shape,
                             int rank, int channel)
{
    return shape->nranks > 1 ? 2 : 1;
}

static void all_reduce_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                            int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    step->local = tt_range(TT_INPUT, 0, 1);
    if (index == 0) {
        step->send = others(shape, rank);
        return;
    }
    fold_all(shape, rank, step);
    step->dst = tt_range(TT_OUTPUT, 0, 1);
}

static void reduce_scatter_step(const struct tt_algorithm *self, const struct tt_shape *shape,
                                int rank, int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    if (index < shape->nranks - 1) {
        step->send = ahead(shape, rank, index + 1);
        step->local = tt_range(TT_INPUT, step->send.first, 1);
        return;
    }
    fold_all(shape, rank, step);
    step->local = tt_range(TT_INPUT, rank, 1);
    step->dst = tt_range(TT_OUTPUT, rank, 1);
}

/* Receives from the nearest rank behind first: that rank sent to this one first. */
static void all_gather_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                            int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    if (index == 0) {
        step->local = tt_range(TT_INPUT, rank, 1);
        step->dst = tt_range(TT_OUTPUT, rank, 1);
        step->send = others(shape, rank);
        return;
    }
    step->recv = ahead(shape, rank, -index);
    step->dst = tt_range(TT_OUTPUT, step->recv.first, 1);
}

static void two_shot_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                          int channel, int index, struct tt_step *step)
{
    const int middle = shape->nranks - 1;
    if (index > middle) {
        all_gather_step(self, shape, rank, channel, index - middle, step);
        return;
    }
    reduce_scatter_step(self, shape, rank, channel, index, step);
    if (index == middle && middle > 0) step->send = others(shape, rank);
}

/* At the root one step for each of the others' results besides. */
static int reduce_nsteps(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                         int channel)
{
    return rank == shape->root ? 2 * shape->nranks - 1 : shape->nranks;
}

static void reduce_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                        int channel, int index, struct tt_step *step)
{
    const int middle = shape->nranks - 1;
    if (index > middle) {
        all_gather_step(self, shape, rank, channel, index - middle, step);
        return;
    }
    reduce_scatter_step(self, shape, rank, channel, index, step);
    if (index < middle || rank == shape->root) return;
    step->dst = tt_range(TT_OUTPUT, 0, 0);
    step->send = tt_peer(shape->root);
}

static struct tt_formula all_reduce_formula(const struct tt_algorithm *self,
                                            const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){.steps = 2, .depth = 1, .sent = n - 1, .reduced = n, .message = 1};
}

static struct tt_formula reduce_scatter_formula(const struct tt_algorithm *self,
                                                const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){.steps = n, .depth = 1, .sent = n - 1, .reduced = n, .message = 1};
}

static struct tt_formula all_gather_formula(const struct tt_algorithm *self,
                                            const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){.steps = n, .depth = 1, .sent = n - 1, .message = 1};
}

static struct tt_formula two_shot_formula(const struct tt_algorithm *self,
                                          const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){
        .steps = 2 * n - 1, .depth = 2, .sent = 2 * (n - 1), .reduced = n, .message = 1};
}

static struct tt_formula reduce_formula(const struct tt_algorithm *self,
                                        const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){
        .steps = 2 * n - 1, .depth = 2, .sent = n, .reduced = n, .message = 1};
}

/* Not direct_safe: in place, the fold overwrites data that slower ranks still read. */
const struct tt_algorithm tt_all_reduce_parallel = {
    .name = "parallel",
    .summary = "every rank sends all its data to every rank, each folds all in one pass",
    .collective = TT_ALL_REDUCE,
    .in_rank_order = true,
    .nsteps = all_reduce_nsteps,
    .step = all_reduce_step,
    .formula = all_reduce_formula,
};

const struct tt_algorithm tt_all_reduce_two_shot = {
    .name = "two_shot",
    .summary = "each rank folds its block of all in one pass and sends it to all",
    .collective = TT_ALL_REDUCE,
    .direct_safe = true,
    .in_rank_order = true,
    .nblocks = one_block_each,
    .nsteps = step_each_twice,
    .step = two_shot_step,
    .formula = two_shot_formula,
};

const struct tt_algorithm tt_reduce_two_shot = {
    .name = "two_shot",
    .summary = "each rank folds its block of all in one pass and sends it to root",
    .collective = TT_REDUCE,
    .direct_safe = true,
    .in_rank_order = true,
    .nblocks = one_block_each,
    .nsteps = reduce_nsteps,
    .step = reduce_step,
    .formula = reduce_formula,
};

const struct tt_algorithm tt_reduce_scatter_parallel = {
    .name = "parallel",
    .summary = "each rank gets its block from all and folds it in one pass",
    .collective = TT_REDUCE_SCATTER,
    .direct_safe = true,
    .in_rank_order = true,
    .uneven = true,
    .nsteps = step_each,
    .step = reduce_scatter_step,
    .formula = reduce_scatter_formula,
};

const struct tt_algorithm tt_all_gather_parallel = {
    .name = "parallel",
    .summary = "each rank sends its block to all",
    .collective = TT_ALL_GATHER,
    .direct_safe = true,
    .uneven = true,
    .nsteps = step_each,
    .step = all_gather_step,
    .formula = all_gather_formula,
};
