/* Bruck: ranks send round a circle instead of exchanging with partners, so any number of ranks
 * takes ceil(log2 n) rounds, and no rank receives a block twice.
 *
 * All-gather: a rank that has s blocks, its own and the following ones, receives the next blocks
 * from the rank s places ahead: as many as it has, or as are missing. s is 1, ceil(n/2^(L-1)), ...,
 * ceil(n/2), n. Reduce-scatter runs the same messages backwards and adds. Blocks have global names,
 * so no final rotation is needed.
 *
 *   all_gather, 4 ranks:  s = 1:  r0 <-[1]- r1     r1 <-[2]- r2     r2 <-[3]- r3     r3 ...
 *                         s = 2:  r0 <-[2,3]- r2   r1 <-[3,0]- r3   r2 <-[0,1]- r0   r3 ...
 *
 * All-to-all: a block for the rank j places ahead is sent 2^k places ahead in round k, for every
 * bit k of j. It lies in SCRATCH slot j; each rank holds one block for each j at any time.
 *
 *   4 ranks:  [r+j] to slot j;  slots 1, 3 go 1 ahead;  slots 2, 3 go 2 ahead;  slot j is [r-j]
 *
 * With L = ceil(log2 n), b(k) = how many j < n have bit k:
 *                    steps          depth   sent       reduced   scratch            message
 *   all_gather       2L             L       n-1        0         0                  floor(n/2)
 *   reduce_scatter   2L (n odd: +1) L       n-1        2(n-1)    ceil(n/2) (n=2: 0) floor(n/2)
 *   all_to_all       2L+2           L       sum b(k)   0         n                  max b(k)
 *   (blocks: one rank's; for all_to_all what one rank has for another)
 *
 * Order of folding: a rank's own partial sum, then that of the rank behind, farthest first.
 *
 * Sources: Bruck et al.: Efficient algorithms for all-to-all communications in multiport
 * message-passing systems, IEEE TPDS 1997; Traeff: Optimal, non-pipelined reduce-scatter and
 * allreduce algorithms, arXiv 2410.14234. */
#include "algorithms/forms.h"
#include "algorithms/list.h"

/* ceil(n / 2^k) */
static int part(int n, int k)
{
    return (n + (1 << k) - 1) >> k;
}

/* Reduce-scatter of an odd number of ranks: one block is not part of the first fold, so a step of
 * its own copies it to SCRATCH. */
static bool odd_one_out(int n)
{
    return n % 2 == 1 && n > 1;
}

static int all_gather_nsteps(const struct tt_algorithm *self, const struct tt_shape *shape,
                             int rank, int channel)
{
    return shape->nranks > 1 ? 2 * ceil_log2(shape->nranks) : 1;
}

static int reduce_scatter_nsteps(const struct tt_algorithm *self, const struct tt_shape *shape,
                                 int rank, int channel)
{
    const int n = shape->nranks;
    return n > 1 ? 2 * ceil_log2(n) + odd_one_out(n) : 1;
}

static int all_to_all_nsteps(const struct tt_algorithm *self, const struct tt_shape *shape,
                             int rank, int channel)
{
    const int n = shape->nranks;
    return n > 1 ? 2 * ceil_log2(n) + 2 : 1;
}

static void all_gather_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                            int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    const int n = shape->nranks, left = ceil_log2(n) - index / 2;
    const int have = part(n, left), number = part(n, left - 1) - have;
    if (index % 2 == 1) {
        step->recv = ahead(shape, rank, have);
        step->dst = circle(shape, TT_OUTPUT, (int64_t)rank + have, number);
        return;
    }
    step->local = circle(shape, index == 0 ? TT_INPUT : TT_OUTPUT, rank, number);
    if (index == 0) step->dst = tt_range(TT_OUTPUT, rank, 1);
    step->send = ahead(shape, rank, -have);
}

static void reduce_scatter_step(const struct tt_algorithm *self, const struct tt_shape *shape,
                                int rank, int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    const int n = shape->nranks;
    const bool odd = odd_one_out(n);
    if (odd && index == 1) {
        const int slot = part(n, 1) - 1;
        step->local = circle(shape, TT_INPUT, (int64_t)rank + slot, 1);
        step->dst = circle_at(shape, (int64_t)rank + slot, 1, slot);
        return;
    }
    const int inner = odd && index > 1 ? index - 1 : index, round = inner / 2;
    const int keep = part(n, round + 1), number = part(n, round) - keep;
    const int64_t first = (int64_t)rank + (inner % 2 == 0 ? keep : 0);
    step->local = round == 0 ? circle(shape, TT_INPUT, first, number)
                             : circle_at(shape, first, number, inner % 2 == 0 ? keep : 0);
    if (inner % 2 == 0) {
        step->send = ahead(shape, rank, keep);
        return;
    }
    step->op = TT_FOLD;
    step->recv = ahead(shape, rank, -keep);
    step->finish = keep == 1;
    step->dst = keep == 1 ? tt_range(TT_OUTPUT, rank, 1) : circle_at(shape, rank, number, 0);
}

/* How many j < n have bit k. */
static int with_bit(int n, int k)
{
    const int run = 1 << k, rest = n % (2 * run);
    return n / (2 * run) * run + (rest > run ? rest - run : 0);
}

/* The slots j that have bit k. */
static struct tt_span moving(int n, int k)
{
    return (struct tt_span){.buffer = TT_SCRATCH,
                            .first = 1 << k,
                            .number = with_bit(n, k),
                            .run = 1 << k,
                            .stride = 2 << k};
}

static void all_to_all_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                            int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    const int n = shape->nranks, last = 2 * ceil_log2(n) + 1, round = (index - 1) / 2;
    if (index == 0) {
        step->local = circle(shape, TT_INPUT, rank, n);
        step->dst = tt_range(TT_SCRATCH, 0, n);
    } else if (index == last) {
        step->local = tt_range(TT_SCRATCH, 0, n);
        step->dst = (struct tt_span){
            .buffer = TT_OUTPUT, .first = rank, .number = n, .run = 1, .stride = -1};
    } else if (index % 2 == 1) {
        step->local = moving(n, round);
        step->send = ahead(shape, rank, 1 << round);
    } else {
        step->recv = ahead(shape, rank, -(1 << round));
        step->dst = moving(n, round);
    }
}

static int reduce_scatter_nscratch(const struct tt_algorithm *self, const struct tt_shape *shape,
                                   int rank)
{
    return shape->nranks > 2 ? part(shape->nranks, 1) : 0;
}

static int all_to_all_nscratch(const struct tt_algorithm *self, const struct tt_shape *shape,
                               int rank)
{
    return shape->nranks > 1 ? shape->nranks : 0;
}

static struct tt_formula all_gather_formula(const struct tt_algorithm *self,
                                            const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks, rounds = (uint64_t)ceil_log2(shape->nranks);
    if (n == 1) return formula_alone;
    return (struct tt_formula){
        .steps = 2 * rounds, .depth = rounds, .sent = n - 1, .message = n / 2};
}

static struct tt_formula reduce_scatter_formula(const struct tt_algorithm *self,
                                                const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks, rounds = (uint64_t)ceil_log2(shape->nranks);
    if (n == 1) return formula_alone;
    return (struct tt_formula){.steps = 2 * rounds + n % 2,
                               .depth = rounds,
                               .sent = n - 1,
                               .reduced = 2 * (n - 1),
                               .scratch = n > 2 ? (n + 1) / 2 : 0,
                               .message = n / 2};
}

static struct tt_formula all_to_all_formula(const struct tt_algorithm *self,
                                            const struct tt_shape *shape)
{
    const int n = shape->nranks, rounds = ceil_log2(n);
    if (n == 1) return formula_alone;
    struct tt_formula formula = {
        .steps = 2 * (uint64_t)rounds + 2, .depth = (uint64_t)rounds, .scratch = (uint64_t)n};
    for (int k = 0; k < rounds; k++) {
        const uint64_t number = (uint64_t)with_bit(n, k);
        formula.sent += number;
        formula.message = most(formula.message, number);
    }
    return formula;
}

const struct tt_algorithm tt_all_gather_bruck = {
    .name = "bruck",
    .summary = "blocks double round a circle: log n messages for any n",
    .collective = TT_ALL_GATHER,
    .direct_safe = true,
    .uneven = true,
    .nsteps = all_gather_nsteps,
    .step = all_gather_step,
    .formula = all_gather_formula,
};

const struct tt_algorithm tt_reduce_scatter_bruck = {
    .name = "bruck",
    .summary = "blocks halve round a circle: log n messages for any n",
    .collective = TT_REDUCE_SCATTER,
    .direct_safe = true,
    .uneven = true,
    .nscratch = reduce_scatter_nscratch,
    .nsteps = reduce_scatter_nsteps,
    .step = reduce_scatter_step,
    .formula = reduce_scatter_formula,
};

const struct tt_algorithm tt_all_to_all_bruck = {
    .name = "bruck",
    .summary = "blocks move by powers of two: log n messages, more bytes",
    .collective = TT_ALL_TO_ALL,
    .direct_safe = true,
    .nscratch = all_to_all_nscratch,
    .nsteps = all_to_all_nsteps,
    .step = all_to_all_step,
    .formula = all_to_all_formula,
};
