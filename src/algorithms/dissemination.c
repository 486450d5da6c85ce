/* Dissemination barrier: in round k every rank sends an empty message to the rank 2^k places ahead,
 * after it has received that of round k - 1. A message says that its sender, and all ranks whose
 * messages reached the sender, have entered. After L = ceil(log2 n) rounds every rank knows this of
 * all ranks, for any n. The receive of one round and the send of the next are one step.
 *
 *   round 0: r0 -> r1, r1 -> r2, r2 -> r3, r3 -> r0     a rank knows of itself and the rank behind
 *   round 1: r0 -> r2, r1 -> r3, r2 -> r0, r3 -> r1     a rank knows of all four
 *
 *             steps   depth   sent   reduced   scratch   message
 *   barrier   L+1     L       0      0         0         0         (n = 1: no steps)
 *
 * Source: Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, IJPP 1988. */
#include "algorithms/forms.h"
#include "algorithms/list.h"

static int nsteps(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                  int channel)
{
    return shape->nranks > 1 ? ceil_log2(shape->nranks) + 1 : 0;
}

static void barrier_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                         int channel, int index, struct tt_step *step)
{
    if (index > 0) step->recv = ahead(shape, rank, -(1 << (index - 1)));
    if (index < ceil_log2(shape->nranks)) step->send = ahead(shape, rank, 1 << index);
}

static struct tt_formula formula(const struct tt_algorithm *self, const struct tt_shape *shape)
{
    const uint64_t rounds = (uint64_t)ceil_log2(shape->nranks);
    return (struct tt_formula){.steps = rounds > 0 ? rounds + 1 : 0, .depth = rounds};
}

const struct tt_algorithm tt_barrier_dissemination = {
    .name = "dissemination",
    .summary = "log n rounds, each rank tells the one 2^k ahead",
    .collective = TT_BARRIER,
    .direct_safe = true,
    .nsteps = nsteps,
    .step = barrier_step,
    .formula = formula,
};
