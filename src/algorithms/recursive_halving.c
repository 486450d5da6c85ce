/* Recursive halving and doubling: partners that are n/2 ranks apart exchange half of the data and
 * reduce it, then partners n/4 apart a quarter, and so on until each rank has one complete block.
 * Then the exchanges run backwards and gather the blocks. As many bytes as a ring, in a logarithmic
 * number of messages.
 *
 *   halving            r0 <-[2,3] [0,1]-> r2     r1 <-[2,3] [0,1]-> r3     2 apart, half the data
 *                      r0 <-[1]   [0]->   r1     r2 <-[3]   [2]->   r3     1 apart, a quarter
 *   complete           r0: [0]    r1: [1]        r2: [2]    r3: [3]
 *   doubling           r0 <-[0]   [1]->   r1     r2 <-[2]   [3]->   r3
 *                      r0 <-[0,1] [2,3]-> r2     r1 <-[0,1] [2,3]-> r3
 *
 * Any n: of the n = p + x ranks (p the largest power of two) rank p + e first sends its data to
 * rank e, and receives the result from rank e at the end.
 *
 * With L = log2 p; where x > 0 the second line adds to the first:
 *                steps   depth   sent     reduced   scratch   message
 *   all_reduce   4L-1    2L      2(p-1)   2(p-1)    0         p/2      (blocks: 1/p of the data)
 *   if x > 0     +2      +2      +p       +2p                 p
 *
 * Order of folding: a rank's own partial sum, then its partner's, nearest partner last.
 *
 * Source: Rabenseifner: Optimization of collective reduction operations, ICCS 2004. */
#include "algorithms/forms.h"
#include "algorithms/list.h"

static int power(const struct tt_algorithm *self, const struct tt_shape *shape)
{
    return 1 << floor_log2(shape->nranks);
}

static int nsteps(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                  int channel)
{
    const int p = power(self, shape), extra = shape->nranks - p;
    if (p == 1) return 1;
    if (rank >= p) return 2;
    return 4 * floor_log2(p) - 1 + (rank < extra ? 2 : 0);
}

/* The blocks that rank's group of `distance` ranks still reduces. */
static struct tt_span group(enum tt_buffer buffer, int rank, int distance)
{
    return tt_range(buffer, rank & ~(distance - 1), distance);
}

/* A step of a rank p + e. */
static void extra_step(int p, int rank, int index, struct tt_step *step)
{
    if (index == 0) {
        step->local = tt_range(TT_INPUT, 0, p);
        step->send = tt_peer(rank - p);
    } else {
        step->recv = tt_peer(rank - p);
        step->dst = tt_range(TT_OUTPUT, 0, p);
    }
}

/* Step 2k sends the partner's half, step 2k + 1 folds the own half; the last one also sends the
 * complete block. */
static void halve(int p, int rank, int index, enum tt_buffer source, struct tt_step *step)
{
    const int distance = p >> (index / 2 + 1), partner = rank ^ distance;
    if (index % 2 == 0) {
        step->local = group(source, partner, distance);
        step->send = tt_peer(partner);
        return;
    }
    step->op = TT_FOLD;
    step->recv = tt_peer(partner);
    step->local = group(source, rank, distance);
    step->dst = group(TT_OUTPUT, rank, distance);
    if (distance > 1) return;
    step->finish = true;
    step->send = tt_peer(partner);
}

/* Step 2k receives the partner's blocks, step 2k + 1 sends all blocks of the group. */
static void redouble(int rank, int index, struct tt_step *step)
{
    const int distance = 1 << ((index + 1) / 2), partner = rank ^ distance;
    if (index % 2 == 0) {
        step->recv = tt_peer(partner);
        step->dst = group(TT_OUTPUT, partner, distance);
    } else {
        step->local = group(TT_OUTPUT, rank, distance);
        step->send = tt_peer(partner);
    }
}

static void all_reduce_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                            int channel, int index, struct tt_step *step)
{
    const int p = power(self, shape), levels = floor_log2(p);
    const bool twice = rank < shape->nranks - p;
    if (alone(shape, step)) return;
    if (rank >= p) {
        extra_step(p, rank, index, step);
        return;
    }
    if (twice && index == 0) {
        step->op = TT_FOLD;
        step->recv = tt_peer(rank + p);
        step->local = tt_range(TT_INPUT, 0, p);
        step->dst = tt_range(TT_OUTPUT, 0, p);
        return;
    }
    const int inner = index - twice;
    if (inner < 2 * levels) {
        halve(p, rank, inner, inner < 2 && !twice ? TT_INPUT : TT_OUTPUT, step);
    } else if (inner < 4 * levels - 1) {
        redouble(rank, inner - 2 * levels, step);
    } else {
        step->local = tt_range(TT_OUTPUT, 0, p);
        step->send = tt_peer(rank + p);
    }
}

static struct tt_formula formula(const struct tt_algorithm *self, const struct tt_shape *shape)
{
    if (shape->nranks == 1) return formula_alone;
    const uint64_t p = (uint64_t)power(self, shape), levels = (uint64_t)ceil_log2((int)p);
    const bool extra = (uint64_t)shape->nranks > p;
    return (struct tt_formula){
        .steps = 4 * levels - 1 + (extra ? 2 : 0),
        .depth = 2 * levels + (extra ? 2 : 0),
        .sent = 2 * (p - 1) + (extra ? p : 0),
        .reduced = 2 * (p - 1) + (extra ? 2 * p : 0),
        .message = extra ? p : p / 2,
    };
}

const struct tt_algorithm tt_all_reduce_recursive_halving = {
    .name = "recursive_halving",
    .summary = "halving reduce-scatter, doubling all-gather: a ring's bytes in log n messages",
    .collective = TT_ALL_REDUCE,
    .direct_safe = true,
    .nblocks = power,
    .nsteps = nsteps,
    .step = all_reduce_step,
    .formula = formula,
};
