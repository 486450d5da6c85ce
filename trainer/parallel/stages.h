/* Which layers each pipeline stage has: contiguous ranges, balanced by cost.
 *
 * The embedding belongs to the first stage, the last norm and the head to the last stage, and their
 * costs count there. The largest cost of a stage is as small as possible, given that every stage
 * has a layer. Of equal choices the later stage gets the layer: later stages hold fewer
 * micro-batches in flight (schedule.h). 5 layers on 2 stages: 2 + 3 when embedding and head are
 * free; 3 + 2 when the head costs as much as a layer.
 *
 * Collectives, volume, memory  none; pure.
 * Limits  stages <= layers.
 * Test    tests/trainer/stages_test.c: every cut of up to 12 layers against all cuts there are.
 */
#ifndef TR_STAGES_H
#define TR_STAGES_H

#include "../status.h"

/* Time of forward and backward of a micro-batch, in any one unit, such as floating-point operations
 * a token. A layer costs more than 0, the others at least 0. */
struct tr_stage_costs {
    double layer, embedding, head;
};

/* Stage s gets the layers first[s] to first[s + 1] - 1; first has nstages + 1 places. Errors: more
 * stages than layers, numbers below 1, costs out of range. */
TR_NODISCARD tr_status tr_stages_assign(int nlayers, int nstages,
                                        const struct tr_stage_costs *costs, int *first);

/* The cost of a stage with `nlayers` layers. */
double tr_stage_cost(const struct tr_stage_costs *costs, int nstages, int stage, int nlayers);

#endif
