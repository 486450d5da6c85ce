/* Gives each layer, one after the other, to the stage that is the cheapest with that layer. */
#include "stages.h"

#include <math.h>

double tr_stage_cost(const struct tr_stage_costs *costs, int nstages, int stage, int nlayers)
{
    double cost = nlayers * costs->layer;
    if (stage == 0) cost += costs->embedding;
    if (stage == nstages - 1) cost += costs->head;
    return cost;
}

tr_status tr_stages_assign(int nlayers, int nstages, const struct tr_stage_costs *costs, int *first)
{
    if (nlayers < 1 || nstages < 1)
        return tr_fail("%d layers on %d pipeline stages: both must be at least 1", nlayers,
                       nstages);
    if (nstages > nlayers)
        return tr_fail("--pp=%d with --layers=%d: every pipeline stage needs at least one layer; "
                       "take --pp=%d or less, or --layers=%d or more",
                       nstages, nlayers, nlayers, nstages);
    if (!isfinite(costs->layer) || costs->layer <= 0 || !isfinite(costs->embedding) ||
        costs->embedding < 0 || !isfinite(costs->head) || costs->head < 0)
        return tr_fail(
            "costs of a layer %g, the embedding %g and the head %g: expected a layer above "
            "0 and the others at least 0",
            costs->layer, costs->embedding, costs->head);
    int *count = first + 1; /* turned into bounds at the end */
    for (int stage = 0; stage < nstages; ++stage) count[stage] = 1;
    for (int layer = nstages; layer < nlayers; ++layer) {
        int best = 0;
        for (int stage = 1; stage < nstages; ++stage)
            if (tr_stage_cost(costs, nstages, stage, count[stage] + 1) <=
                tr_stage_cost(costs, nstages, best, count[best] + 1))
                best = stage;
        ++count[best];
    }
    first[0] = 0;
    for (int stage = 0; stage < nstages; ++stage) first[stage + 1] += first[stage];
    return TR_OK;
}
