/* Gradients that are known for each rank, micro-batch and element, and a step as the trainer does
 * it. */
#include "floats.h"
#include "trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../shim.h"

/* ---- A model without a model: units of all sections, with odd sizes ---- */

static void add(struct tr_params *params, const char *name, long rows, long cols,
                struct tr_layout layout)
{
    tr_param_add(params, name, rows, cols, layout, 0, 1);
}

static void make_registry(struct tr_params *params, const struct grid *grid, int tp_rank,
                          int shards)
{
    static const struct tr_layout whole = {-1, 0, 0};
    const int pp = grid->size[TR_PP];
    char name[TR_NAME_BYTES];
    tr_params_init(params, tr_backend_choose(""), grid->size[TR_TP], tp_rank, shards);
    tr_params_begin_unit(params, "embedding");
    add(params, "token", 257, 19, (struct tr_layout){0, 1, 257});
    tr_params_begin_unit(params, "place");
    add(params, "place", 9, 5, whole);
    for (int b = 0; b < BLOCKS; ++b) {
        snprintf(name, sizeof name, "block%d", b);
        tr_params_begin_unit(params, name);
        params->units[params->nunits - 1].stage = b * pp / BLOCKS;
        const char *const tensors[] = {"norm", "q", "k", "down", "bias"};
        const struct tr_layout layouts[] = {
            whole, {0, 3, 16}, {0, 6, grid->size[TR_TP] / grid->share}, {1, 1, 13}, whole};
        const long shapes[][2] = {
            {11, 0}, {48, 37}, {6 * grid->size[TR_TP] / grid->share, 7}, {7, 13}, {1100, 0}};
        for (int t = 0; t < 5; ++t) {
            snprintf(name, sizeof name, "block%d.%s", b, tensors[t]);
            add(params, name, shapes[t][0], shapes[t][1], layouts[t]);
        }
    }
    tr_params_begin_unit(params, "final");
    params->units[params->nunits - 1].stage = pp - 1;
    add(params, "norm", 11, 0, whole);
    if (!grid->tied) {
        tr_params_begin_unit(params, "head");
        params->units[params->nunits - 1].stage = pp - 1;
        add(params, "head", 257, 19, (struct tr_layout){0, 1, 257});
    } else if (pp > 1) {
        params->units[0].tied_stage = pp - 1;
    }
    tr_params_place(params);
}

/* ---- What each rank's backward adds, and what comes of it ---- */
const struct mode trial_modes[NMODES] = {
    {"DDP", TR_DDP, .bucket_bytes = 1 << 30},
    {"DDP, a bucket a tensor", TR_DDP, .bucket_bytes = 0},
    {"DDP, middling buckets", TR_DDP, .bucket_bytes = 12000},
    {"ZeRO-1", TR_ZERO1, .bucket_bytes = 0},
    {"ZeRO-2", TR_ZERO2, .bucket_bytes = 0},
    {"ZeRO-2, reduced last", TR_ZERO2, .reduce_last = true},
    {"FSDP", TR_ZERO3, .bucket_bytes = 0},
    {"FSDP, prefetch", TR_ZERO3, .prefetch = true},
    {"FSDP, prefetch, kept", TR_ZERO3, .prefetch = true, .keep_gathered = true},
    {"FSDP, prefetch, reduced last", TR_ZERO3, .prefetch = true, .reduce_last = true},
    {"FSDP, kept, reduced last", TR_ZERO3, .keep_gathered = true, .reduce_last = true},
};

tr_axes trial_shard_axes(enum tr_sharding sharding)
{
    return sharding == TR_DDP     ? 0
           : sharding == TR_ZERO3 ? TR_AXES_SEQUENCE | 1u << TR_FSDP
                                  : TR_AXES_SEQUENCE | 1u << TR_DP;
}

/* Rank 1 has an empty second micro-batch. Nobody touches the units `place` and `block1` in the
 * first. */
static bool touches(int rank, int micro, int unit)
{
    return !(rank == 1 && micro == 1) && !(micro == 0 && (unit == 1 || unit == 3));
}

static float gradient(const struct trial *t, int rank, int micro, int unit, size_t i)
{
    if (!touches(rank, micro, unit)) return 0;
    const unsigned key = (((unsigned)rank * 8 + (unsigned)micro) * 16 + (unsigned)unit) * 8;
    const uint64_t hash = (i + 1) * (key + (unsigned)t->step + 1) * 0x9E3779B97F4A7C15u >> 32;
    return t->fractions ? (float)(hash % 100003) * 0x1p-15f : (float)(hash % 17) - 8;
}

static bool holds(const struct tr_unit *unit, int stage)
{
    return unit->stage == stage || unit->tied_stage == stage;
}

enum tr_section trial_section_at(const struct tr_unit *unit, size_t i)
{
    for (int s = TR_NUM_SECTIONS - 1; s > 0; --s)
        if (i >= unit->section[s] && i < unit->section[s + 1]) return (enum tr_section)s;
    return TR_CUT;
}

/* The sum over all ranks that hold an equal slice, from the definition. */
static float whole_sum(const struct trial *t, int unit, size_t i)
{
    const struct tr_mesh *mesh = t->mesh;
    const struct tr_unit *u = &t->params.units[unit];
    const enum tr_section section = trial_section_at(u, i);
    float sum = 0;
    for (int rank = 0; rank < mesh->nranks; ++rank) {
        const int *at = t->at[rank];
        const int tp = at[TR_TP], mine = mesh->coord[TR_TP], share = t->grid->share;
        const bool same = section == TR_CUT      ? tp == mine
                          : section == TR_SHARED ? tp / share == mine / share
                                                 : true;
        if (!same || !holds(u, at[TR_PP])) continue;
        for (int micro = 0; micro < t->micros; ++micro) sum += gradient(t, rank, micro, unit, i);
    }
    return sum;
}

/* ---- A step as the trainer does it ---- */

static tr_status use_weights(struct trial *t, int unit, int next, const char *when)
{
    TR_TRY(tr_store_acquire(&t->store, unit, next));
    const struct tr_unit_state *s = tr_store_unit(&t->store, unit);
    if (memcmp(s->weights, t->expected[unit], t->params.units[unit].total * sizeof(float)))
        tt_test_fail(__FILE__, __LINE__, "%s, step %d, rank %d: wrong weights of unit %s in %s",
                     t->mode->name, t->step, t->mesh->rank, t->params.units[unit].name, when);
    return TR_OK;
}

int trial_unit_at(const struct trial *t, int place)
{
    return place >= 0 && place < t->store.nunits ? t->store.units[place].unit : -1;
}

bool trial_tied_here(const struct trial *t)
{
    return t->grid->tied && t->grid->size[TR_PP] == 1;
}

tr_status trial_forward(struct trial *t)
{
    const int n = t->store.nunits;
    if (trial_tied_here(t)) { /* the embedding is used at both ends, together with others */
        TR_TRY(use_weights(t, 0, 1, "forward"));
        TR_TRY(use_weights(t, 1, 2, "forward"));
        tr_store_release(&t->store, 0);
        tr_store_release(&t->store, 1);
    }
    for (int place = trial_tied_here(t) ? 2 : 0; place < n; ++place) {
        /* The last unit is the first of backward. */
        const int unit = trial_unit_at(t, place),
                  next = trial_unit_at(t, place + 1 < n ? place + 1 : place);
        if (trial_tied_here(t) && place == n - 1) TR_TRY(use_weights(t, 0, 0, "the head"));
        TR_TRY(use_weights(t, unit, next, "forward"));
        if (trial_tied_here(t) && place == n - 1) tr_store_release(&t->store, 0);
        tr_store_release(&t->store, unit);
    }
    return TR_OK;
}

/* Adds a part of a micro-batch's gradient: half of the tied unit's comes from the head. */
static tr_status add_gradients(struct trial *t, int unit, int micro, int half)
{
    if (!touches(t->mesh->rank, micro, unit)) return TR_OK;
    TR_TRY(tr_store_gradients(&t->store, unit));
    float *g = floats_of(tr_store_unit(&t->store, unit)->gradients);
    for (size_t i = 0; i < t->params.units[unit].total; ++i)
        if (half < 0 || (int)(i % 2) == half) g[i] += gradient(t, t->mesh->rank, micro, unit, i);
    return TR_OK;
}

tr_status trial_backward(struct trial *t, int micro)
{
    tr_store_micro(&t->store, micro == t->micros - 1);
    if (trial_tied_here(t)) {
        TR_TRY(use_weights(t, 0, -1, "backward of the head"));
        TR_TRY(add_gradients(t, 0, micro, 0));
        tr_store_release(&t->store, 0);
    }
    for (int place = t->store.nunits - 1; place >= 0; --place) {
        const int unit = trial_unit_at(t, place);
        TR_TRY(use_weights(t, unit, trial_unit_at(t, place - 1), "backward"));
        TR_TRY(add_gradients(t, unit, micro, trial_tied_here(t) && unit == 0 ? 1 : -1));
        const struct tr_unit *u = &t->params.units[unit];
        /* Not in the order of memory, and not all of them. */
        for (int p = 0; p + 1 < u->nparams; ++p)
            tr_store_ready(&t->store, u->first_param + (p + 2) % u->nparams);
        tr_store_release(&t->store, unit);
        TR_TRY(tr_store_complete(&t->store, unit));
    }
    return TR_OK;
}

void trial_update(struct trial *t)
{
    for (int place = 0; place < t->store.nunits; ++place) {
        const struct tr_unit_state *s = &t->store.units[place];
        const size_t total = t->params.units[s->unit].total;
        const float *g = floats_of(s->gradient_shard);
        for (size_t i = 0; i < total; ++i) {
            const float sum = whole_sum(t, s->unit, i);
            t->expected[s->unit][i] -= sum;
            if (i < s->first || i >= s->first + s->count) continue;
            if (g[i - s->first] != sum && !t->fractions) {
                tt_test_fail(__FILE__, __LINE__,
                             "%s, step %d, rank %d: gradient %zu of unit %s is %g, expected %g",
                             t->mode->name, t->step, t->mesh->rank, i,
                             t->params.units[s->unit].name, (double)g[i - s->first], (double)sum);
                return;
            }
            s->masters[i - s->first] -= sum;
        }
    }
}

/* ---- Trials ---- */

tr_status trial_open(struct trial *t)
{
    const struct mode *mode = t->mode;
    struct tr_store_options options = {.sharding = mode->sharding,
                                       .reduce_last = mode->reduce_last,
                                       .keep_gathered = mode->keep_gathered,
                                       .prefetch = mode->prefetch,
                                       .bucket_bytes = mode->bucket_bytes,
                                       .shard_axes = trial_shard_axes(mode->sharding),
                                       .apart = {0, t->grid->tied ? -1 : BLOCKS + 3}};
    for (int rank = 0; rank < t->mesh->nranks; ++rank)
        tr_mesh_coords(t->mesh->size, rank, t->at[rank]);
    make_registry(&t->params, t->grid, t->mesh->coord[TR_TP],
                  tr_mesh_extent(t->mesh->size, options.shard_axes));
    for (int u = 0; u < t->params.nunits; ++u) {
        const size_t total = t->params.units[u].total;
        t->expected[u] = calloc(total, sizeof(float));
        tr_params_initialize(&t->params, u, t->expected[u], 0, total, SEED);
    }
    return tr_store_init(&t->store, t->mesh, &t->params, &options, SEED);
}

void trial_close(struct trial *t)
{
    tr_store_fini(&t->store);
    for (int u = 0; u < t->params.nunits; ++u) free(t->expected[u]);
    tr_params_fini(&t->params);
}

bool trial_fits(const struct mode *mode, const struct grid *grid)
{
    return (mode->sharding != TR_ZERO1 && mode->sharding != TR_ZERO2) || grid->size[TR_FSDP] == 1;
}

tr_status trial_connect(struct tr_mesh *mesh, struct rank *self, const struct grid *grid)
{
    tr_axes sets[] = {TR_AXES_DATA, 0, 0, 0, 0};
    for (int z = TR_ZERO2, n = 1; z <= TR_ZERO3; ++z) {
        sets[n++] = trial_shard_axes((enum tr_sharding)z);
        sets[n++] = TR_AXES_DATA & ~trial_shard_axes((enum tr_sharding)z);
    }
    TR_TRY(tr_mesh_init(mesh, self->world));
    TR_TRY(tr_mesh_shape(mesh, grid->size));
    return tr_mesh_connect(mesh, sets, 5, grid->share, false);
}
