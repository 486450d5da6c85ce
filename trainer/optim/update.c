/* The optimizer's step over this rank's shards. */
#include <math.h>

#include "optim.h"

/* One tensor's part of a shard. */
struct part {
    size_t count;
    float *w;
    const float *g;
    float *states[TR_MOST_STATES];
    double decay, scale; /* 0 for tensors that do not decay; of the gradient */
};

static int adamw_states(const struct tr_optimizer *how)
{
    (void)how;
    return 2;
}

static void adamw(const struct tr_optimizer *how, const struct tr_backend *backend,
                  const struct part *part)
{
    const struct tr_adamw_step step = {
        .gradient_scale = part->scale,
        .lr = how->lr,
        .beta1 = how->beta1,
        .beta2 = how->beta2,
        .eps = how->eps,
        .decay = part->decay,
        .correct1 = 1 / (1 - pow(how->beta1, (double)how->t)),
        .correct2 = 1 / (1 - pow(how->beta2, (double)how->t)),
    };
    backend->adamw(part->w, part->g, part->states[0], part->states[1], part->count, &step);
}

static int sgd_states(const struct tr_optimizer *how)
{
    return how->momentum != 0;
}

static void sgd(const struct tr_optimizer *how, const struct tr_backend *backend,
                const struct part *part)
{
    const struct tr_sgd_step step = {.gradient_scale = part->scale,
                                     .lr = how->lr,
                                     .momentum = how->momentum,
                                     .decay = part->decay};
    backend->sgd(part->w, part->g, part->states[0], part->count, &step);
}

/* What the optimizers keep, and how they change a part. */
static const struct {
    int (*states)(const struct tr_optimizer *how);
    void (*update)(const struct tr_optimizer *how, const struct tr_backend *backend,
                   const struct part *part);
} optimizers[] = {[TR_ADAMW] = {adamw_states, adamw}, [TR_SGD] = {sgd_states, sgd}};

int tr_optimizer_states(const struct tr_optimizer *how)
{
    return optimizers[how->kind].states(how);
}

/* The part of a parameter that lies in this rank's shard; count is 0 when there is none. */
static struct part part_of(const struct tr_unit_state *state, const struct tr_param *param)
{
    const size_t stop = param->offset + (size_t)(param->local[0] * param->local[1]);
    const size_t last = state->first + state->count;
    const size_t first = param->offset > state->first ? param->offset : state->first;
    const size_t end = stop < last ? stop : last;
    if (first >= end) return (struct part){0};
    const size_t at = first - state->first;
    struct part part = {
        .count = end - first, .w = state->weight_shard + at, .g = state->gradient_shard + at};
    for (int i = 0; i < TR_MOST_STATES; ++i)
        if (state->states[i]) part.states[i] = state->states[i] + at;
    return part;
}

void tr_optimizer_step(const struct tr_optimizer *how, const struct tr_store *store, double scale)
{
    for (int u = 0; u < store->nunits; ++u) {
        const struct tr_unit_state *state = &store->units[u];
        const struct tr_unit *unit = &store->params->units[state->unit];
        for (int p = unit->first_param; p < unit->first_param + unit->nparams; ++p) {
            const struct tr_param *param = &store->params->items[p];
            struct part part = part_of(state, param);
            part.decay = param->decay ? how->decay : 0;
            part.scale = scale;
            if (part.count) optimizers[how->kind].update(how, tr_store_backend(store), &part);
        }
    }
}
