/* Direct: the root exchanges messages with every other rank, without a rank between them.
 *
 *   broadcast, scatter        reduce, gather
 *         /--> r1             r1 --\
 *   r0 --+---> r2             r2 ---+--> r0
 *         \--> r3             r3 --/
 *
 *               steps   depth   sent   reduced   scratch   message
 *   broadcast   1       1       n-1    0         0         1          (blocks: the whole data)
 *   reduce      1       1       1      n         0         1          (the same)
 *   scatter     n       1       n-1    0         0         1          (blocks: one rank's)
 *   gather      n       1       1      0         0         1          (the same)
 *
 * Least latency for few ranks, and for scatter and gather the fewest bytes for any number of ranks.
 * The root's link is the limit. The reduction is in rank order, whichever rank is the root. */
#include "algorithms/forms.h"
#include "algorithms/list.h"

static int one_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                    int channel)
{
    return 1;
}

/* At the root one step for each rank; its own block is last, for no other rank waits for it. */
static int step_each_at_root(const struct tt_algorithm *self, const struct tt_shape *shape,
                             int rank, int channel)
{
    return rank == shape->root ? shape->nranks : 1;
}

static void broadcast_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                           int channel, int index, struct tt_step *step)
{
    step->dst = tt_range(TT_OUTPUT, 0, 1);
    if (rank == shape->root) {
        step->local = tt_range(TT_INPUT, 0, 1);
        step->send = others(shape, rank);
    } else {
        step->recv = tt_peer(shape->root);
    }
}

static void reduce_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                        int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    step->local = tt_range(TT_INPUT, 0, 1);
    if (rank != shape->root) {
        step->send = tt_peer(shape->root);
        return;
    }
    fold_all(shape, rank, step);
    step->dst = tt_range(TT_OUTPUT, 0, 1);
}

static void scatter_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                         int channel, int index, struct tt_step *step)
{
    if (rank != shape->root) {
        step->recv = tt_peer(shape->root);
        step->dst = tt_range(TT_OUTPUT, rank, 1);
        return;
    }
    const int to = tt_mod((int64_t)rank + 1 + index, shape->nranks);
    step->local = tt_range(TT_INPUT, to, 1);
    if (to == rank)
        step->dst = tt_range(TT_OUTPUT, rank, 1);
    else
        step->send = tt_peer(to);
}

static void gather_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                        int channel, int index, struct tt_step *step)
{
    const int from = rank == shape->root ? tt_mod((int64_t)rank + 1 + index, shape->nranks) : rank;
    if (from == rank)
        step->local = tt_range(TT_INPUT, rank, 1);
    else
        step->recv = tt_peer(from);
    if (rank == shape->root)
        step->dst = tt_range(TT_OUTPUT, from, 1);
    else
        step->send = tt_peer(shape->root);
}

static struct tt_formula broadcast_formula(const struct tt_algorithm *self,
                                           const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){.steps = 1, .depth = 1, .sent = n - 1, .message = 1};
}

static struct tt_formula reduce_formula(const struct tt_algorithm *self,
                                        const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){.steps = 1, .depth = 1, .sent = 1, .reduced = n, .message = 1};
}

static struct tt_formula scatter_formula(const struct tt_algorithm *self,
                                         const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){.steps = n, .depth = 1, .sent = n - 1, .message = 1};
}

static struct tt_formula gather_formula(const struct tt_algorithm *self,
                                        const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){.steps = n, .depth = 1, .sent = 1, .message = 1};
}

const struct tt_algorithm tt_broadcast_direct = {
    .name = "direct",
    .summary = "root sends to every rank",
    .collective = TT_BROADCAST,
    .direct_safe = true,
    .nsteps = one_step,
    .step = broadcast_step,
    .formula = broadcast_formula,
};

const struct tt_algorithm tt_reduce_direct = {
    .name = "direct",
    .summary = "every rank sends to root, which folds all in one pass",
    .collective = TT_REDUCE,
    .direct_safe = true,
    .in_rank_order = true,
    .nsteps = one_step,
    .step = reduce_step,
    .formula = reduce_formula,
};

const struct tt_algorithm tt_scatter_direct = {
    .name = "direct",
    .summary = "root sends each rank its block",
    .collective = TT_SCATTER,
    .direct_safe = true,
    .uneven = true,
    .nsteps = step_each_at_root,
    .step = scatter_step,
    .formula = scatter_formula,
};

const struct tt_algorithm tt_gather_direct = {
    .name = "direct",
    .summary = "each rank sends root its block",
    .collective = TT_GATHER,
    .direct_safe = true,
    .uneven = true,
    .nsteps = step_each_at_root,
    .step = gather_step,
    .formula = gather_formula,
};
