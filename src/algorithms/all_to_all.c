/* All-to-all, direct and pairwise: each rank sends each block to its receiver in one message.
 *
 * Direct sends everything, then receives everything. Pairwise takes turns: in turn i every rank
 * sends to the rank i places ahead and receives from the rank i places behind, so no rank receives
 * from two ranks in one turn.
 *
 *   turn 1: r0 -> r1 -> r2 -> r3 -> r0
 *   turn 2: r0 <-> r2, r1 <-> r3
 *   turn 3: r0 <- r1 <- r2 <- r3 <- r0
 *
 *              steps   depth   sent   reduced   scratch   message
 *   direct     2n-1    1       n-1    0         0         1
 *   pairwise   2n-1    n-1     n-1    0         0         1
 *   (blocks: what one rank has for another)
 *
 * Source: Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in
 * MPICH, IJHPCA 2005. */
#include "algorithms/forms.h"
#include "algorithms/list.h"

static void send_turn(const struct tt_shape *shape, int rank, int turn, struct tt_step *step)
{
    step->send = ahead(shape, rank, turn);
    step->local = tt_range(TT_INPUT, step->send.first, 1);
}

static void receive_turn(const struct tt_shape *shape, int rank, int turn, struct tt_step *step)
{
    step->recv = ahead(shape, rank, -turn);
    step->dst = tt_range(TT_OUTPUT, step->recv.first, 1);
}

static void keep_own(int rank, struct tt_step *step)
{
    step->local = tt_range(TT_INPUT, rank, 1);
    step->dst = tt_range(TT_OUTPUT, rank, 1);
}

/* Sends to all, copies the own block, then receives from all. */
static void direct_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                        int channel, int index, struct tt_step *step)
{
    const int n = shape->nranks;
    if (index < n - 1)
        send_turn(shape, rank, index + 1, step);
    else if (index == n - 1)
        keep_own(rank, step);
    else
        receive_turn(shape, rank, index - (n - 1), step);
}

static void pairwise_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                          int channel, int index, struct tt_step *step)
{
    const int turn = index / 2 + 1;
    if (turn == shape->nranks)
        keep_own(rank, step);
    else if (index % 2 == 0)
        send_turn(shape, rank, turn, step);
    else
        receive_turn(shape, rank, turn, step);
}

static struct tt_formula direct_formula(const struct tt_algorithm *self,
                                        const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){.steps = 2 * n - 1, .depth = 1, .sent = n - 1, .message = 1};
}

static struct tt_formula pairwise_formula(const struct tt_algorithm *self,
                                          const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){.steps = 2 * n - 1, .depth = n - 1, .sent = n - 1, .message = 1};
}

const struct tt_algorithm tt_all_to_all_direct = {
    .name = "direct",
    .summary = "each rank sends to all, then receives from all",
    .collective = TT_ALL_TO_ALL,
    .direct_safe = true,
    .nsteps = step_each_twice,
    .step = direct_step,
    .formula = direct_formula,
};

const struct tt_algorithm tt_all_to_all_pairwise = {
    .name = "pairwise",
    .summary = "n-1 turns, in each of which every rank sends to one and receives from one",
    .collective = TT_ALL_TO_ALL,
    .direct_safe = true,
    .nsteps = step_each_twice,
    .step = pairwise_step,
    .formula = pairwise_formula,
};
