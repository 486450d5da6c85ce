/* Ring: every rank receives from the rank before it and sends to the rank after it, in every step.
 *
 * The data is cut into n blocks; block r belongs to rank r. In the reduce-scatter the partial sum
 * of block b starts at rank b + 1 and is sent once round the ring; each rank adds its share, and
 * the sum is complete at rank b. In the all-gather each complete block is sent once round the ring.
 * An all-reduce is a reduce-scatter, then an all-gather; its middle step completes a block, stores
 * it and sends it. Partial sums are not stored: each step sends the sum that it computes.
 *
 *        step 0     step 1     step 2     step 3: complete    all-gather, 3 more steps
 *   r0   [3] -->    [2] -->    [1] -->    [0] --> r1          [3] -->   [2] -->   [1]
 *   r1   [0] -->    [3] -->    [2] -->    [1] --> r2          [0] -->   [3] -->   [2]
 *   r2   [1] -->    [0] -->    [3] -->    [2] --> r3          [1] -->   [0] -->   [3]
 *   r3   [2] -->    [1] -->    [0] -->    [3] --> r0          [2] -->   [1] -->   [0]
 *
 *                    steps   depth    sent     reduced   scratch   message
 *   reduce_scatter   n       n-1      n-1      2(n-1)    0         1
 *   all_gather       n       n-1      n-1      0         0         1
 *   all_reduce       2n-1    2(n-1)   2(n-1)   2(n-1)    0         1
 *   (blocks: 1/n of the data)
 *
 * Order of folding: block b is x[b] + (x[b-1] + (... + (x[b+2] + x[b+1]))), indices modulo n.
 *
 * Where the ranks are groups of one host that are far from one another (GPUs below several PCIe
 * roots), the ring goes round group by group, and so leaves each group once; block b is that of the
 * rank at place b.
 *
 * Source: Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations,
 * JPDC 2009. */
#include "algorithms/forms.h"
#include "algorithms/list.h"

/* The rank that is `distance` places further round the ring. */
static int32_t around(const struct tt_shape *shape, int rank, int64_t distance)
{
    const struct tt_hosts *hosts = shape->hosts;
    if (!hosts || !hosts->one_host) return tt_mod(rank + distance, shape->nranks);
    const int place = hosts->begin[hosts->host_of[rank]] + hosts->local_of[rank];
    return hosts->ranks[tt_mod(place + distance, shape->nranks)];
}

static void reduce_scatter_step(const struct tt_algorithm *self, const struct tt_shape *shape,
                                int rank, int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    step->local = tt_range(TT_INPUT, around(shape, rank, -1 - (int64_t)index), 1);
    if (index > 0) {
        step->recv = tt_peer(around(shape, rank, -1));
        step->op = TT_FOLD;
    }
    if (index < shape->nranks - 1) {
        step->send = tt_peer(around(shape, rank, 1));
    } else {
        step->dst = tt_range(TT_OUTPUT, rank, 1);
        step->finish = true;
    }
}

static void all_gather_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                            int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    if (index == 0)
        step->local = tt_range(TT_INPUT, rank, 1);
    else
        step->recv = tt_peer(around(shape, rank, -1));
    step->dst = tt_range(TT_OUTPUT, around(shape, rank, -(int64_t)index), 1);
    if (index < shape->nranks - 1) step->send = tt_peer(around(shape, rank, 1));
}

static void all_reduce_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                            int channel, int index, struct tt_step *step)
{
    const int middle = shape->nranks - 1;
    if (index > middle) {
        all_gather_step(self, shape, rank, channel, index - middle, step);
        return;
    }
    reduce_scatter_step(self, shape, rank, channel, index, step);
    if (index == middle && middle > 0) step->send = tt_peer(around(shape, rank, 1));
}

static struct tt_formula reduce_scatter_formula(const struct tt_algorithm *self,
                                                const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){
        .steps = n, .depth = n - 1, .sent = n - 1, .reduced = 2 * (n - 1), .message = 1};
}

static struct tt_formula all_gather_formula(const struct tt_algorithm *self,
                                            const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){.steps = n, .depth = n - 1, .sent = n - 1, .message = 1};
}

static struct tt_formula all_reduce_formula(const struct tt_algorithm *self,
                                            const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){.steps = 2 * n - 1,
                               .depth = 2 * (n - 1),
                               .sent = 2 * (n - 1),
                               .reduced = 2 * (n - 1),
                               .message = 1};
}

const struct tt_algorithm tt_all_reduce_ring = {
    .name = "ring",
    .summary = "reduce-scatter, then all-gather, round a ring: fewest bytes",
    .collective = TT_ALL_REDUCE,
    .direct_safe = true,
    .nblocks = one_block_each,
    .nsteps = step_each_twice,
    .step = all_reduce_step,
    .formula = all_reduce_formula,
};

const struct tt_algorithm tt_all_gather_ring = {
    .name = "ring",
    .summary = "every block is sent once round a ring",
    .collective = TT_ALL_GATHER,
    .direct_safe = true,
    .uneven = true,
    .nsteps = step_each,
    .step = all_gather_step,
    .formula = all_gather_formula,
};

const struct tt_algorithm tt_reduce_scatter_ring = {
    .name = "ring",
    .summary = "every block's sum is sent once round a ring to its owner",
    .collective = TT_REDUCE_SCATTER,
    .direct_safe = true,
    .uneven = true,
    .nsteps = step_each,
    .step = reduce_scatter_step,
    .formula = reduce_scatter_formula,
};
