/* The optimizer's step over this rank's shards. */
#include <math.h>

#include "optim.h"

/* One tensor's part of a shard: floats [from, from + count) of the shard. */
static void update(const struct tr_optimizer *how, const struct tr_backend *backend,
                   const struct tr_unit_state *state, size_t from, size_t count, bool decays,
                   double scale)
{
    float *w = state->weight_shard + from;
    const float *g = state->gradient_shard + from;
    const double decay = decays ? how->decay : 0;
    if (how->kind == TR_SGD) {
        const struct tr_sgd_step step = {
            .gradient_scale = scale, .lr = how->lr, .momentum = how->momentum, .decay = decay};
        backend->sgd(w, g, state->m + from, count, &step);
        return;
    }
    const struct tr_adamw_step step = {
        .gradient_scale = scale,
        .lr = how->lr,
        .beta1 = how->beta1,
        .beta2 = how->beta2,
        .eps = how->eps,
        .decay = decay,
        .correct1 = 1 / (1 - pow(how->beta1, (double)how->t)),
        .correct2 = 1 / (1 - pow(how->beta2, (double)how->t)),
    };
    backend->adamw(w, g, state->m + from, state->v + from, count, &step);
}

void tr_optimizer_step(const struct tr_optimizer *how, const struct tr_store *store, double scale)
{
    for (int u = 0; u < store->nunits; ++u) {
        const struct tr_unit_state *state = &store->units[u];
        const struct tr_unit *unit = &store->params->units[state->unit];
        for (int p = unit->first_param; p < unit->first_param + unit->nparams; ++p) {
            const struct tr_param *param = &store->params->items[p];
            const size_t stop = param->offset + (size_t)(param->local[0] * param->local[1]);
            const size_t first = param->offset > state->first ? param->offset : state->first;
            const size_t end =
                stop < state->first + state->count ? stop : state->first + state->count;
            if (first < end)
                update(how, tr_store_backend(store), state, first - state->first, end - first,
                       param->decay, scale);
        }
    }
}
