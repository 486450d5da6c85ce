/* Recursive doubling all-gather and recursive halving reduce-scatter: partners exchange all the
 * blocks of their groups. As many bytes as a ring, in a logarithmic number of messages.
 *
 *   all_gather   1 apart:  r0 <-[1] [0]-> r1        r2 <-[3] [2]-> r3
 *                2 apart:  r0 <-[2,3] [0,1]-> r2    r1 <-[2,3] [0,1]-> r3
 *   reduce_scatter: the same backwards, adding: first 2 apart half of the blocks, then 1 apart
 *
 * Any n: of the n = p + x ranks (p the largest power of two) rank p + e exchanges with rank e only,
 * whose group holds the blocks of both. It sends its data to rank e first, and receives from rank e
 * at the end.
 *
 * With L = log2 p, m = 2 if x > p/2 else 1, and X the sum over d = 1, 2, 4, ..., p/2 of min(x, d):
 *                            steps   depth   sent      reduced      scratch        message
 *   all_gather       x = 0   2L      L       n-1       0            0              n/2
 *                    x > 0   2L+3    L+m     n+p-2+X   0            0              n-1
 *   reduce_scatter   x = 0   2L      L       n-1       2(n-1)       n (n = 2: 0)   n/2
 *                    x > 0   2L+3    L+m     n         2(n+p-1+X)   n              n
 *   (blocks: one rank's)
 *
 * Order of folding: a rank's own partial sum, then its partner's, nearest partner last.
 *
 * Source: Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in
 * MPICH, IJHPCA 2005. */
#include "algorithms/forms.h"
#include "algorithms/list.h"

/* n = p + x, and whether there is a rank p + e for this rank e. */
struct cut {
    int levels, p, x;
    bool twice;
};

static struct cut cut_of(const struct tt_shape *shape, int rank)
{
    const int levels = floor_log2(shape->nranks), p = 1 << levels, x = shape->nranks - p;
    return (struct cut){.levels = levels, .p = p, .x = x, .twice = rank < x};
}

static int nsteps(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                  int channel)
{
    const struct cut cut = cut_of(shape, rank);
    if (shape->nranks == 1) return 1;
    if (rank >= cut.p) return 2;
    return 2 * cut.levels + (cut.twice ? 3 : 0);
}

/* Ranks below x among the `distance` ranks from `base` on: for each there is a rank p + e. */
static int extras(const struct cut *cut, int base, int distance)
{
    return cut->x <= base ? 0 : least(cut->x - base, distance);
}

/* The blocks of rank's group of `distance` ranks: first the group's own, then those p further on.
 */
static struct tt_span group(const struct cut *cut, enum tt_buffer buffer, int rank, int distance)
{
    const int base = rank & ~(distance - 1);
    return (struct tt_span){.buffer = buffer,
                            .first = base,
                            .number = distance + extras(cut, base, distance),
                            .run = distance,
                            .stride = cut->p};
}

static void all_gather_extra(const struct tt_shape *shape, int p, int rank, int index,
                             struct tt_step *step)
{
    if (index == 0) {
        step->local = tt_range(TT_INPUT, rank, 1);
        step->dst = tt_range(TT_OUTPUT, rank, 1);
        step->send = tt_peer(rank - p);
    } else {
        step->recv = tt_peer(rank - p);
        step->dst = circle(shape, TT_OUTPUT, (int64_t)rank + 1, shape->nranks - 1);
    }
}

static void all_gather_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                            int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    const struct cut cut = cut_of(shape, rank);
    if (rank >= cut.p) {
        all_gather_extra(shape, cut.p, rank, index, step);
        return;
    }
    /* With an extra rank: own block, the extra's block, the exchanges, all to the extra rank. */
    const int inner = cut.twice ? index - 2 : index;
    const int distance = 1 << (inner < 0 ? 0 : inner / 2), partner = rank ^ distance;
    if (index == 0) {
        step->local = tt_range(TT_INPUT, rank, 1);
        step->dst = tt_range(TT_OUTPUT, rank, 1);
        if (!cut.twice) step->send = tt_peer(partner);
    } else if (inner < 0) {
        step->recv = tt_peer(rank + cut.p);
        step->dst = tt_range(TT_OUTPUT, rank + cut.p, 1);
    } else if (inner == 2 * cut.levels) {
        step->local = circle(shape, TT_OUTPUT, (int64_t)rank + cut.p + 1, shape->nranks - 1);
        step->send = tt_peer(rank + cut.p);
    } else if (inner % 2 == 0) {
        step->local = group(&cut, TT_OUTPUT, rank, distance);
        step->send = tt_peer(partner);
    } else {
        step->recv = tt_peer(partner);
        step->dst = group(&cut, TT_OUTPUT, partner, distance);
    }
}

static void reduce_scatter_extra(const struct tt_shape *shape, int p, int rank, int index,
                                 struct tt_step *step)
{
    if (index == 0) {
        step->local = tt_range(TT_INPUT, 0, shape->nranks);
        step->send = tt_peer(rank - p);
    } else {
        step->recv = tt_peer(rank - p);
        step->dst = tt_range(TT_OUTPUT, rank, 1);
    }
}

/* Step 2k sends the partner's half of the blocks, step 2k + 1 folds the own half. */
static void halve(const struct cut *cut, int rank, int index, struct tt_step *step)
{
    const int distance = cut->p >> (index / 2 + 1), partner = rank ^ distance;
    const enum tt_buffer source = index < 2 && !cut->twice ? TT_INPUT : TT_SCRATCH;
    if (index % 2 == 0) {
        step->local = group(cut, source, partner, distance);
        step->send = tt_peer(partner);
        return;
    }
    const bool last = distance == 1;
    step->op = TT_FOLD;
    step->recv = tt_peer(partner);
    step->local = group(cut, source, rank, distance);
    step->dst = group(cut, last && !cut->twice ? TT_OUTPUT : TT_SCRATCH, rank, distance);
    step->finish = last;
}

static void reduce_scatter_step(const struct tt_algorithm *self, const struct tt_shape *shape,
                                int rank, int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    const struct cut cut = cut_of(shape, rank);
    const int inner = cut.twice ? index - 1 : index;
    if (rank >= cut.p) {
        reduce_scatter_extra(shape, cut.p, rank, index, step);
    } else if (inner < 0) {
        step->op = TT_FOLD;
        step->recv = tt_peer(rank + cut.p);
        step->local = tt_range(TT_INPUT, 0, shape->nranks);
        step->dst = tt_range(TT_SCRATCH, 0, shape->nranks);
    } else if (inner < 2 * cut.levels) {
        halve(&cut, rank, inner, step);
    } else if (inner == 2 * cut.levels) {
        step->local = tt_range(TT_SCRATCH, rank + cut.p, 1);
        step->send = tt_peer(rank + cut.p);
    } else {
        step->local = tt_range(TT_SCRATCH, rank, 1);
        step->dst = tt_range(TT_OUTPUT, rank, 1);
    }
}

static int reduce_scatter_nscratch(const struct tt_algorithm *self, const struct tt_shape *shape,
                                   int rank)
{
    const struct cut cut = cut_of(shape, rank);
    if (rank >= cut.p || (cut.levels < 2 && !cut.twice)) return 0;
    return shape->nranks;
}

/* X of the table above. */
static uint64_t extra_blocks(const struct cut *cut)
{
    uint64_t sum = 0;
    for (int distance = 1; distance < cut->p; distance *= 2)
        sum += (uint64_t)least(cut->x, distance);
    return sum;
}

static struct tt_formula all_gather_formula(const struct tt_algorithm *self,
                                            const struct tt_shape *shape)
{
    if (shape->nranks == 1) return formula_alone;
    const struct cut cut = cut_of(shape, 0);
    const uint64_t n = (uint64_t)shape->nranks, p = (uint64_t)cut.p, levels = (uint64_t)cut.levels;
    if (cut.x == 0)
        return (struct tt_formula){
            .steps = 2 * levels, .depth = levels, .sent = n - 1, .message = n / 2};
    return (struct tt_formula){.steps = 2 * levels + 3,
                               .depth = levels + (2 * cut.x > cut.p ? 2 : 1),
                               .sent = n + p - 2 + extra_blocks(&cut),
                               .message = n - 1};
}

static struct tt_formula reduce_scatter_formula(const struct tt_algorithm *self,
                                                const struct tt_shape *shape)
{
    if (shape->nranks == 1) return formula_alone;
    const struct cut cut = cut_of(shape, 0);
    const uint64_t n = (uint64_t)shape->nranks, p = (uint64_t)cut.p, levels = (uint64_t)cut.levels;
    if (cut.x == 0)
        return (struct tt_formula){.steps = 2 * levels,
                                   .depth = levels,
                                   .sent = n - 1,
                                   .reduced = 2 * (n - 1),
                                   .scratch = n == 2 ? 0 : n,
                                   .message = n / 2};
    return (struct tt_formula){.steps = 2 * levels + 3,
                               .depth = levels + (2 * cut.x > cut.p ? 2 : 1),
                               .sent = n,
                               .reduced = 2 * (n + p - 1 + extra_blocks(&cut)),
                               .scratch = n,
                               .message = n};
}

const struct tt_algorithm tt_all_gather_recursive = {
    .name = "recursive",
    .summary = "recursive doubling: log n messages, each of all blocks so far",
    .collective = TT_ALL_GATHER,
    .direct_safe = true,
    .uneven = true,
    .nsteps = nsteps,
    .step = all_gather_step,
    .formula = all_gather_formula,
};

const struct tt_algorithm tt_reduce_scatter_recursive = {
    .name = "recursive",
    .summary = "recursive halving: log n messages, each of half of the blocks left",
    .collective = TT_REDUCE_SCATTER,
    .direct_safe = true,
    .uneven = true,
    .nscratch = reduce_scatter_nscratch,
    .nsteps = nsteps,
    .step = reduce_scatter_step,
    .formula = reduce_scatter_formula,
};
