/* PAT, parallel aggregated trees: every rank's block is sent along a binomial tree of its own, all
 * trees at once, and blocks that a rank sends to the same rank in the same round form one message.
 *
 * In the tree of block b, rank b + o sends the block to b + o + d for each d that is a power of two
 * below the lowest bit of o: far ranks first, so long distances carry the fewest blocks. A rank's
 * message over distance d holds its own block and every 2d-th block behind. Reduce-scatter runs the
 * same messages backwards and adds. All-reduce is a reduce-scatter, then an all-gather; the step
 * that completes a block also sends it. Executors cut messages into rounds, which bounds the memory
 * as the paper's aggregation factor does.
 *
 *   all_gather, 4 ranks    d = 2:  r0 -[0]-> r2       r1 -[1]-> r3       r2 -[2]-> r0       r3 ...
 *                          d = 1:  r0 -[0,2]-> r1     r1 -[1,3]-> r2     r2 -[2,0]-> r3     r3 ...
 *   the tree of [0]:       r0 --+--> r2 ---> r3
 *                                \-> r1
 *
 * With L = ceil(log2 n):
 *                    steps             depth   sent     reduced   scratch        message
 *   all_gather       2L                L       n-1      0         0              floor(n/2)
 *   reduce_scatter   2L (n odd: +1)    L       n-1      2(n-1)    n (n = 2: 0)   floor(n/2)
 *   all_reduce       4L-1 (n odd: +1)  2L      2(n-1)   2(n-1)    0              floor(n/2)
 *   (blocks: 1/n of the data)
 *
 * Order of folding: a rank's own share, then its children in the tree, nearest first.
 *
 * Source: Jeaugey: PAT: a new algorithm for all-gather and reduce-scatter operations at scale,
 * arXiv 2506.20252. */
#include "algorithms/forms.h"
#include "algorithms/list.h"

/* Reduce-scatter of an odd number of ranks: no child sends the farthest block, so a step of its own
 * copies it to SCRATCH. */
static int odd_one_out(const struct tt_shape *shape)
{
    return shape->nranks > 1 && shape->nranks % 2 == 1 ? 1 : 0;
}

static int all_gather_nsteps(const struct tt_algorithm *self, const struct tt_shape *shape,
                             int rank, int channel)
{
    return shape->nranks > 1 ? 2 * ceil_log2(shape->nranks) : 1;
}

static int reduce_scatter_nsteps(const struct tt_algorithm *self, const struct tt_shape *shape,
                                 int rank, int channel)
{
    return all_gather_nsteps(self, shape, rank, channel) + odd_one_out(shape);
}

static int all_reduce_nsteps(const struct tt_algorithm *self, const struct tt_shape *shape,
                             int rank, int channel)
{
    const int half = all_gather_nsteps(self, shape, rank, channel);
    return shape->nranks > 1 ? 2 * half - 1 + odd_one_out(shape) : 1;
}

/* The blocks that `rank` sends over `distance`: its own and every 2 * distance-th block behind, as
 * long as the trees of these blocks reach the target. */
static struct tt_span passed_on(const struct tt_shape *shape, enum tt_buffer buffer, int64_t rank,
                                int distance)
{
    const int n = shape->nranks;
    return (struct tt_span){.buffer = buffer,
                            .first = tt_mod(rank, n),
                            .number = (n - 1 - distance) / (2 * distance) + 1,
                            .run = 1,
                            .stride = -2 * distance};
}

static void all_gather_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                            int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    const int distance = 1 << (ceil_log2(shape->nranks) - 1 - index / 2);
    if (index % 2 == 1) {
        step->recv = ahead(shape, rank, -distance);
        step->dst = passed_on(shape, TT_OUTPUT, (int64_t)rank - distance, distance);
        return;
    }
    step->local = passed_on(shape, index == 0 ? TT_INPUT : TT_OUTPUT, rank, distance);
    if (index == 0) step->dst = tt_range(TT_OUTPUT, rank, 1);
    step->send = ahead(shape, rank, distance);
}

/* Partial sums are kept in `sums`. */
static void reduce_step(const struct tt_shape *shape, int rank, int index, enum tt_buffer sums,
                        struct tt_step *step)
{
    const int odd = odd_one_out(shape);
    if (odd && index == 1) {
        step->local = circle(shape, TT_INPUT, (int64_t)rank + 1, 1);
        step->dst = circle(shape, sums, (int64_t)rank + 1, 1);
        return;
    }
    const int inner = index > 1 ? index - odd : index, level = inner / 2, distance = 1 << level;
    const enum tt_buffer source = level == 0 ? TT_INPUT : sums;
    if (inner % 2 == 0) {
        step->local = passed_on(shape, source, (int64_t)rank - distance, distance);
        step->send = ahead(shape, rank, -distance);
        return;
    }
    step->op = TT_FOLD;
    step->recv = ahead(shape, rank, distance);
    step->local = passed_on(shape, source, rank, distance);
    step->finish = level == ceil_log2(shape->nranks) - 1;
    step->dst = passed_on(shape, step->finish ? TT_OUTPUT : sums, rank, distance);
}

static void reduce_scatter_step(const struct tt_algorithm *self, const struct tt_shape *shape,
                                int rank, int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    reduce_step(shape, rank, index, TT_SCRATCH, step);
}

/* The last fold comes from the rank to which the first complete block goes. */
static void all_reduce_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                            int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    const int half = reduce_scatter_nsteps(self, shape, rank, channel);
    if (index >= half) {
        all_gather_step(self, shape, rank, channel, index - half + 1, step);
        return;
    }
    reduce_step(shape, rank, index, TT_OUTPUT, step);
    if (index == half - 1) step->send = step->recv;
}

static int reduce_scatter_nscratch(const struct tt_algorithm *self, const struct tt_shape *shape,
                                   int rank)
{
    return shape->nranks > 2 ? shape->nranks : 0;
}

static struct tt_formula formula(const struct tt_algorithm *self, const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks, rounds = (uint64_t)ceil_log2(shape->nranks);
    const uint64_t odd = (uint64_t)odd_one_out(shape);
    if (n == 1) return formula_alone;
    switch (shape->collective) {
    case TT_ALL_GATHER:
        return (struct tt_formula){
            .steps = 2 * rounds, .depth = rounds, .sent = n - 1, .message = n / 2};
    case TT_REDUCE_SCATTER:
        return (struct tt_formula){.steps = 2 * rounds + odd,
                                   .depth = rounds,
                                   .sent = n - 1,
                                   .reduced = 2 * (n - 1),
                                   .scratch = n > 2 ? n : 0,
                                   .message = n / 2};
    default:
        return (struct tt_formula){.steps = 4 * rounds - 1 + odd,
                                   .depth = 2 * rounds,
                                   .sent = 2 * (n - 1),
                                   .reduced = 2 * (n - 1),
                                   .message = n / 2};
    }
}

const struct tt_algorithm tt_all_reduce_pat = {
    .name = "pat",
    .summary = "PAT reduce-scatter, then PAT all-gather: a ring's bytes in log n messages",
    .collective = TT_ALL_REDUCE,
    .direct_safe = true,
    .nblocks = one_block_each,
    .nsteps = all_reduce_nsteps,
    .step = all_reduce_step,
    .formula = formula,
};

const struct tt_algorithm tt_all_gather_pat = {
    .name = "pat",
    .summary = "a binomial tree from every rank, all at once, far ranks first",
    .collective = TT_ALL_GATHER,
    .direct_safe = true,
    .uneven = true,
    .nsteps = all_gather_nsteps,
    .step = all_gather_step,
    .formula = formula,
};

const struct tt_algorithm tt_reduce_scatter_pat = {
    .name = "pat",
    .summary = "a binomial tree to every rank, all at once, near ranks first",
    .collective = TT_REDUCE_SCATTER,
    .direct_safe = true,
    .uneven = true,
    .nscratch = reduce_scatter_nscratch,
    .nsteps = reduce_scatter_nsteps,
    .step = reduce_scatter_step,
    .formula = formula,
};
