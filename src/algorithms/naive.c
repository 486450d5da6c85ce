/* Naive: every rank sends its data to rank 0, which folds all in one pass and sends the result to
 * every rank. The simplest all-reduce, for comparison: rank 0 moves and reduces all data while the
 * other ranks wait.
 *
 *   r1 --\                /--> r1
 *   r2 ---+--> r0 (fold) +---> r2
 *   r3 --/                \--> r3
 *
 *                steps   depth   sent   reduced   scratch   message
 *   all_reduce   2       2       n-1    n         0         1         (blocks: the whole data)
 *
 * Order of folding: rank order. */
#include "algorithms/forms.h"
#include "algorithms/list.h"

static int nsteps(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                  int channel)
{
    return rank == 0 ? 1 : 2;
}

static void all_reduce_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                            int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    if (rank == 0) {
        step->op = TT_FOLD;
        step->finish = true;
        step->recv = others(shape, 0);
        step->local = tt_range(TT_INPUT, 0, 1);
        step->dst = tt_range(TT_OUTPUT, 0, 1);
        step->send = others(shape, 0);
    } else if (index == 0) {
        step->local = tt_range(TT_INPUT, 0, 1);
        step->send = tt_peer(0);
    } else {
        step->recv = tt_peer(0);
        step->dst = tt_range(TT_OUTPUT, 0, 1);
    }
}

static struct tt_formula formula(const struct tt_algorithm *self, const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){.steps = 2, .depth = 2, .sent = n - 1, .reduced = n, .message = 1};
}

const struct tt_algorithm tt_all_reduce_naive = {
    .name = "naive",
    .summary = "gather to rank 0, reduce there, broadcast back",
    .collective = TT_ALL_REDUCE,
    .direct_safe = true,
    .in_rank_order = true,
    .nsteps = nsteps,
    .step = all_reduce_step,
    .formula = formula,
};
