/* Parameter server: every rank is the server of one block and a worker for all others. Workers send
 * ("push") their share of a block to its server; the server adds the pushes one after another, and
 * then sends the result to one worker after another. The literature compares with this baseline: as
 * many bytes as a ring, but every push is a pass over the server's memory and every answer is a
 * step of its own.
 *
 *   push: r1 --[0]--> r0 (add)        answer: r0 --[0]--> r1
 *         r2 --[0]--> r0 (add)                r0 --[0]--> r2       and so for [1], [2], [3]
 *         r3 --[0]--> r0 (add)                r0 --[0]--> r3       at r1, r2, r3 at the same time
 *
 *                steps    depth   sent     reduced   scratch   message
 *   all_reduce   4(n-1)   2       2(n-1)   2(n-1)    0         1       (blocks: 1/n of the data)
 *
 * Order of folding: the server's own share, then those of the ranks behind, nearest first.
 *
 * Source: Li et al.: Scaling distributed machine learning with the parameter server, OSDI 2014. */
#include "algorithms/forms.h"
#include "algorithms/list.h"

static int nsteps(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                  int channel)
{
    return shape->nranks > 1 ? 4 * (shape->nranks - 1) : 1;
}

static void push(const struct tt_shape *shape, int rank, int turn, struct tt_step *step)
{
    step->send = ahead(shape, rank, turn);
    step->local = tt_range(TT_INPUT, step->send.first, 1);
}

static void add(const struct tt_shape *shape, int rank, int turn, struct tt_step *step)
{
    step->op = TT_FOLD;
    step->recv = ahead(shape, rank, -turn);
    step->local = tt_range(turn == 1 ? TT_INPUT : TT_OUTPUT, rank, 1);
    step->dst = tt_range(TT_OUTPUT, rank, 1);
    step->finish = turn == shape->nranks - 1;
}

static void answer(const struct tt_shape *shape, int rank, int turn, struct tt_step *step)
{
    step->local = tt_range(TT_OUTPUT, rank, 1);
    step->send = ahead(shape, rank, turn);
}

static void pull(const struct tt_shape *shape, int rank, int turn, struct tt_step *step)
{
    step->recv = ahead(shape, rank, -turn);
    step->dst = tt_range(TT_OUTPUT, step->recv.first, 1);
}

static void all_reduce_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                            int channel, int index, struct tt_step *step)
{
    static void (*const phases[])(const struct tt_shape *, int, int,
                                  struct tt_step *) = {push, add, answer, pull};
    if (alone(shape, step)) return;
    const int turns = shape->nranks - 1;
    phases[index / turns](shape, rank, index % turns + 1, step);
}

static struct tt_formula formula(const struct tt_algorithm *self, const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){.steps = 4 * (n - 1),
                               .depth = 2,
                               .sent = 2 * (n - 1),
                               .reduced = 2 * (n - 1),
                               .message = 1};
}

const struct tt_algorithm tt_all_reduce_parameter_server = {
    .name = "parameter_server",
    .summary = "every rank serves a block: pushes are added one by one, then answered",
    .collective = TT_ALL_REDUCE,
    .direct_safe = true,
    .nblocks = one_block_each,
    .nsteps = nsteps,
    .step = all_reduce_step,
    .formula = formula,
};
