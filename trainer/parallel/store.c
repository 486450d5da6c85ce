/* What every sharding has in common: memory, initial values, the order of calls, and the reductions
 * that do not belong to the data axes.
 *
 * Collectives  finish, after those of the data axes: one all-reduce over tp of the part of each
 *              unit's section TR_REPLICATED that lies in the shard, one over mesh.share of that of
 *              TR_SHARED, all in one group; then one over mesh.tie of the shard of each tied unit.
 *              Init none: every rank draws its own values from the seed.
 * Volume       2 (t-1)/t * 4 R bytes sent a rank and step for R such gradients on t ranks.
 * Memory       in four arenas taken once: weights, gradients, optimizer, gathered. Those that other
 *              ranks read come from tuttiMemAlloc.
 * Limits       a unit completes once in a pass, in the reverse order of the registry: a tied unit
 *              last, also on the stage of the head. Where ring or ulysses is the only data axis,
 *              attention's exchanges have the same communicator, and wait for reductions that were
 *              issued before them; one apart was slower (docs/trainer.md, Speed).
 * Order        that of the calls, the same on every rank. The tie comes last, so both stages add
 *              sums that are complete, and get the same bits.
 * Test         tests/trainer/store_test.c. */
#include <assert.h>
#include <stdlib.h>

#include "../calls.h"
#include "../watch/clock.h"
#include "store_ops.h"
#include "whole.h"

static const char *unit_name(const struct tr_store *store, int unit)
{
    return store->params->units[unit].name;
}

/* ---- Memory ------------------------------------------------------------------------------- */

/* This stage's units, in the order of the registry. */
static tr_status list_units(struct tr_store *store)
{
    const struct tr_params *params = store->params;
    const int stage = store->mesh->coord[TR_PP];
    store->units = calloc((size_t)params->nunits + 1, sizeof *store->units);
    if (!store->units) return tr_fail("out of memory for %d units", params->nunits);
    for (int u = 0; u < params->nunits; ++u) {
        const struct tr_unit *unit = &params->units[u];
        if (unit->stage != stage && unit->tied_stage != stage) continue;
        const struct tr_group *shard = store->shard;
        const size_t count = unit->total / (size_t)shard->n;
        store->units[store->nunits++] =
            (struct tr_unit_state){.unit = u,
                                   .shard = shard,
                                   .replica = store->replica,
                                   .count = count,
                                   .first = count * (size_t)shard->rank};
    }
    return TR_OK;
}

bool tr_store_is_first_of_tp(const struct tr_store *store, enum tr_section section)
{
    return section == TR_REPLICATED ? store->params->tp_rank == 0
           : section == TR_SHARED   ? store->mesh->share.rank == 0
                                    : true;
}

size_t tr_held_count(const struct tr_params *params, const struct tr_held *held, int param,
                     int state)
{
    const struct tr_param *row = &params->items[param];
    switch (held->shapes[state]) {
    case TR_STATE_TENSOR:
        return held->count;
    case TR_STATE_ROWS:
        return (size_t)row->shape[0];
    case TR_STATE_COLUMNS:
        return (size_t)row->shape[1];
    case TR_STATE_SCALAR:
        return 1;
    }
    return 0;
}

/* What the optimizer keeps of each parameter, and will have of those of this stage. */
static tr_status list_held(struct tr_store *store)
{
    const struct tr_params *params = store->params;
    const struct tr_optimizer *how = &store->options.optimizer;
    const struct tr_rule *rule = tr_optimizer_rule(how);
    store->held = calloc((size_t)params->n + 1, sizeof *store->held);
    if (!store->held) return tr_fail("out of memory for %d parameters", params->n);
    for (int p = 0; p < params->n && !store->options.inference; ++p) {
        const struct tr_subject subject = tr_param_subject(&params->items[p]);
        store->held[p].nstates = rule->states(how, &subject, store->held[p].shapes);
        store->held[p].nsums = rule->nsums ? rule->nsums(how, &subject) : 0;
    }
    for (int u = 0; u < store->nunits; ++u) {
        const struct tr_unit_state *s = &store->units[u];
        const struct tr_unit *unit = &params->units[s->unit];
        for (int p = unit->first_param; p < unit->first_param + unit->nparams; ++p) {
            const struct tr_extract part = tr_param_within(&params->items[p], s->first, s->count);
            struct tr_held *held = &store->held[p];
            held->first = part.first;
            held->count = part.count;
            held->sums = store->nsums;
            store->nsums += (size_t)held->nsums;
        }
    }
    return TR_OK;
}

static void carve_states(struct tr_store *store, const struct tr_unit_state *s)
{
    const struct tr_unit *unit = &store->params->units[s->unit];
    for (int p = unit->first_param; p < unit->first_param + unit->nparams; ++p)
        for (int i = 0; i < store->held[p].nstates; ++i)
            store->held[p].states[i] =
                tr_arena_take(&store->optimizer,
                              tr_held_count(store->params, &store->held[p], p, i), sizeof(float));
}

/* Weights of TR_FP32 are their own masters; others have them beside the optimizer's states. */
static float *carve_masters(struct tr_store *store, const struct tr_unit_state *s)
{
    void *const shard = s->weight_shard;
    if (tr_store_weight_type(store) == TR_FP32) return shard;
    return tr_arena_take(&store->optimizer, s->count, sizeof(float));
}

static void carve_gradients(struct tr_store *store, struct tr_unit_state *s)
{
    const enum tr_type gradient = tr_store_gradient_type(store);
    const size_t total = store->params->units[s->unit].total, size = tr_type_bytes(gradient);
    if (store->options.inference) return;
    if (store->whole_gradients)
        s->gradients = tr_arena_take(&store->gradients, total, size);
    else
        s->gradient_shard = tr_arena_take(&store->gradients, s->count, size);
    if (s->gradients) s->gradient_shard = tr_at(s->gradients, gradient, s->first);
}

/* Hands out the memory of every unit; counts while the arenas have none. */
static void carve(struct tr_store *store)
{
    const enum tr_type weight = tr_store_weight_type(store),
                       gradient = tr_store_gradient_type(store);
    for (int u = 0; u < store->nunits; ++u) {
        struct tr_unit_state *s = &store->units[u];
        const size_t total = store->params->units[s->unit].total;
        if (store->whole_weights)
            s->weights = tr_arena_take(&store->weights, total, tr_type_bytes(weight));
        else
            s->weight_shard = tr_arena_take(&store->weights, s->count, tr_type_bytes(weight));
        if (s->weights) s->weight_shard = tr_at(s->weights, weight, s->first);
        carve_gradients(store, s);
        s->masters = carve_masters(store, s);
        carve_states(store, s);
    }
    store->sums = tr_arena_take(&store->optimizer, store->nsums, sizeof(double));
    tr_whole_carve(store->whole, &store->optimizer);
    if (!store->whole_weights)
        tr_slots_take_memory(&store->weight_slots, store, &store->gathered, weight);
    if (!store->whole_gradients && !store->options.inference)
        tr_slots_take_memory(&store->gradient_slots, store, &store->gradients, gradient);
}

/* Memory for what an arena has counted. */
static tr_status create(const struct tr_store *store, struct tr_arena *arena, const char *tag,
                        bool shared)
{
    return tr_arena_create(arena, tr_store_backend(store), tag, arena->used, shared);
}

static tr_status take_memory(struct tr_store *store)
{
    const struct tr_mesh *mesh = store->mesh;
    const bool sharded = store->shard->n > 1;
    const bool reduced =
        sharded || store->replica->n > 1 || mesh->size[TR_TP] > 1 || mesh->tie.n > 1;
    carve(store);
    TR_TRY(create(store, &store->weights, "weights", sharded));
    TR_TRY(create(store, &store->gradients, "gradients", reduced));
    TR_TRY(create(store, &store->optimizer, "optimizer", false));
    if (!store->whole_weights) TR_TRY(create(store, &store->gathered, "gathered", true));
    carve(store);
    return TR_OK;
}

/* ---- Init, fini ----------------------------------------------------------------------------- */

/* The group along `axes`, which must have been connected. */
static tr_status find_group(const struct tr_mesh *mesh, tr_axes axes, const struct tr_group **group)
{
    *group = tr_mesh_group(mesh, axes);
    const int extent = tr_mesh_extent(mesh->size, axes);
    if ((*group)->n == extent) return TR_OK;
    return tr_fail("the mesh has no communicator for the %d ranks along the set of axes %#x; give "
                   "the set to tr_mesh_connect",
                   extent, axes);
}

static tr_status choose(struct tr_store *store)
{
    const struct tr_store_options *options = &store->options;
    TR_TRY(find_group(store->mesh, options->shard_axes, &store->shard));
    TR_TRY(find_group(store->mesh, TR_AXES_DATA & ~options->shard_axes, &store->replica));
    if (store->params->shards != store->shard->n)
        return tr_fail("the units are cut into %d shards, but %d ranks lie along the shard axes",
                       store->params->shards, store->shard->n);
    const bool alone = store->shard->n == 1;
    store->ops = alone || options->sharding == TR_DDP ? &tr_ddp_ops
                 : options->sharding == TR_ZERO3      ? &tr_fsdp_ops
                                                      : &tr_zero_ops;
    store->whole_weights = store->ops != &tr_fsdp_ops || options->keep_gathered;
    store->whole_gradients = alone || options->sharding <= TR_ZERO1 || options->reduce_last;
    if (store->ops == &tr_ddp_ops && !alone)
        return tr_fail("DDP has one shard, but %d ranks lie along the shard axes; give it none",
                       store->shard->n);
    return TR_OK;
}

/* What each rank does alone. */
static tr_status prepare(struct tr_store *store, uint64_t seed)
{
    TR_TRY(choose(store));
    TR_TRY(list_units(store));
    TR_TRY(list_held(store));
    if (!store->options.inference) TR_TRY(tr_whole_create(&store->whole, store));
    TR_TRY(take_memory(store));
    for (int u = 0; u < store->nunits; ++u) {
        struct tr_unit_state *s = &store->units[u];
        TR_TRY(tr_flight_init(&s->gather));
        TR_TRY(tr_flight_init(&s->reduce));
        TR_TRY(tr_flight_init(&s->replicate));
        if (!store->options.inference)
            tr_params_initialize(store->params, s->unit, s->masters, s->first, s->count, seed);
    }
    if (store->options.inference || !store->ops->init) return TR_OK;
    return store->ops->init(store);
}

tr_status tr_store_init(struct tr_store *store, const struct tr_mesh *mesh,
                        const struct tr_params *params, const struct tr_store_options *options,
                        uint64_t seed)
{
    *store = (struct tr_store){.mesh = mesh, .params = params, .options = *options};
    /* Nothing is gathered from a rank that has failed. */
    TR_TRY(tr_mesh_agree(mesh, prepare(store, seed)));
    tr_store_begin(store);
    TR_TRY(tr_store_publish(store));
    return tr_store_settle(store);
}

tr_status tr_store_settle(struct tr_store *store)
{
    for (int u = 0; u < store->nunits; ++u) TR_TRY(tr_flight_wait(store, &store->units[u].gather));
    return TR_OK;
}

void tr_store_fini(struct tr_store *store)
{
    /* No call may use the memory any more, whether it succeeds or not. */
    if (store->shard) tuttiStreamSynchronize(store->shard->stream);
    if (store->replica) tuttiStreamSynchronize(store->replica->stream);
    if (store->ops && store->ops->fini) store->ops->fini(store);
    for (int u = 0; u < store->nunits; ++u) {
        tr_flight_fini(&store->units[u].gather);
        tr_flight_fini(&store->units[u].reduce);
        tr_flight_fini(&store->units[u].replicate);
    }
    free(store->units);
    free(store->held);
    tr_whole_destroy(store->whole);
    tr_arena_fini(&store->weights);
    tr_arena_fini(&store->gradients);
    tr_arena_fini(&store->optimizer);
    tr_arena_fini(&store->gathered);
    *store = (struct tr_store){0};
}

/* ---- A step --------------------------------------------------------------------------------- */

struct tr_unit_state *tr_store_unit(const struct tr_store *store, int unit)
{
    for (int u = 0; u < store->nunits; ++u)
        if (store->units[u].unit == unit) return &store->units[u];
    return NULL;
}

static tr_status find(const struct tr_store *store, int unit, struct tr_unit_state **state)
{
    *state = tr_store_unit(store, unit);
    if (*state) return TR_OK;
    return tr_fail("unit %s is of stage %d; this is stage %d", unit_name(store, unit),
                   store->params->units[unit].stage, store->mesh->coord[TR_PP]);
}

void tr_store_begin(struct tr_store *store)
{
    store->last_micro = false;
    store->completed = 0;
    for (int u = 0; u < store->nunits; ++u) store->units[u].added = store->units[u].summed = false;
}

void tr_store_micro(struct tr_store *store, bool last)
{
    store->last_micro = last;
    store->completed = 0;
    if (store->ops->micro) store->ops->micro(store);
}

tr_status tr_store_acquire(struct tr_store *store, int unit, int next)
{
    struct tr_unit_state *state;
    TR_TRY(find(store, unit, &state));
    if (store->ops->acquire)
        TR_TRY(store->ops->acquire(store, state, next < 0 ? NULL : tr_store_unit(store, next)));
    state->open++;
    return TR_OK;
}

void tr_store_release(struct tr_store *store, int unit)
{
    struct tr_unit_state *state = tr_store_unit(store, unit);
    assert(state && state->open > 0);
    state->open--;
    if (store->ops->release) store->ops->release(store, state);
}

static tr_status open_gradients(struct tr_store *store, struct tr_unit_state *state)
{
    if (state->added) return TR_OK;
    if (!store->whole_gradients) {
        TR_TRY(tr_slots_take(&store->gradient_slots, store, state, &state->gradient_slot));
        if (!state->gradient_slot)
            return tr_slots_missing(&store->gradient_slots, store, state, "gradients");
        state->gradients = state->gradient_slot->base;
    }
    tr_store_backend(store)->clear(state->gradients,
                                   store->params->units[state->unit].total *
                                       tr_type_bytes(tr_store_gradient_type(store)));
    state->added = true;
    return TR_OK;
}

tr_status tr_store_gradients(struct tr_store *store, int unit)
{
    struct tr_unit_state *state;
    TR_TRY(find(store, unit, &state));
    return open_gradients(store, state);
}

static tr_status ready(struct tr_store *store, int param)
{
    struct tr_unit_state *state;
    TR_TRY(find(store, store->params->items[param].unit, &state));
    TR_TRY(open_gradients(store, state)); /* zeros, when nothing was added */
    return store->ops->ready(store, param);
}

void tr_store_ready(void *arg, int param)
{
    struct tr_store *store = arg;
    if (!store->ops->ready) return;
    const tr_status status = ready(store, param);
    if (store->status == TR_OK) store->status = status;
}

tr_status tr_store_complete(struct tr_store *store, int unit)
{
    struct tr_unit_state *state;
    TR_TRY(find(store, unit, &state));
    if (store->completed == store->nunits)
        return tr_fail("unit %s is completed after all units of the pass; call tr_store_micro "
                       "before each pass",
                       unit_name(store, unit));
    const int due = store->units[store->nunits - 1 - store->completed].unit;
    if (unit != due)
        return tr_fail(
            "unit %s is completed before unit %s; units complete in the reverse order of "
            "forward",
            unit_name(store, unit), unit_name(store, due));
    store->completed++;
    TR_TRY(open_gradients(store, state));
    return store->ops->complete(store, state);
}

/* ---- The reductions of finish --------------------------------------------------------------- */

/* Sums the part of a unit's section that lies in the shard over the ranks of `group`, which hold
 * the same tensors there. */
static tr_status reduce_section(struct tr_store *store, const struct tr_unit_state *state,
                                enum tr_section section, const struct tr_group *group)
{
    const struct tr_unit *unit = &store->params->units[state->unit];
    size_t first = unit->section[section], end = unit->section[section + 1];
    if (group->n == 1) return TR_OK;
    if (first < state->first) first = state->first;
    if (end > state->first + state->count) end = state->first + state->count;
    if (first >= end) return TR_OK;
    return tr_store_all_reduce(
        store, group, tr_store_backend(store)->stream,
        tr_at(state->gradient_shard, tr_store_gradient_type(store), first - state->first),
        end - first, "summing gradients over tp");
}

static tr_status reduce_sections(struct tr_store *store)
{
    const struct tr_mesh *mesh = store->mesh;
    const struct tr_group *tp = tr_mesh_group(mesh, 1u << TR_TP);
    static const char what[] = "summing gradients over tp";
    if (tp->n == 1) return TR_OK;
    TR_TRY(tr_calls_begin(tp, what));
    tr_status status = TR_OK;
    for (int u = store->nunits - 1; u >= 0 && status == TR_OK; --u) {
        status = reduce_section(store, &store->units[u], TR_REPLICATED, tp);
        if (status == TR_OK)
            status = reduce_section(store, &store->units[u], TR_SHARED, &mesh->share);
    }
    const tr_status ended = tr_calls_end(tp, what);
    return status == TR_OK ? ended : status;
}

static tr_status reduce_ties(struct tr_store *store)
{
    for (int u = 0; u < store->nunits; ++u) {
        const struct tr_unit_state *state = &store->units[u];
        if (store->params->units[state->unit].tied_stage >= 0)
            TR_TRY(tr_store_all_reduce(store, &store->mesh->tie, tr_store_backend(store)->stream,
                                       state->gradient_shard, state->count,
                                       "summing the gradients of a tied unit"));
    }
    return TR_OK;
}

tr_status tr_store_finish(struct tr_store *store)
{
    TR_TRY(store->status);
    if (!store->last_micro || store->completed < store->nunits)
        return tr_fail("the step ends after %d of %d units of its last backward pass%s",
                       store->completed, store->nunits,
                       store->last_micro ? "" : ", which was not said to be the last");
    TR_TRY(store->ops->finish(store));
    const double before = tr_clock_seconds();
    TR_TRY(reduce_sections(store));
    TR_TRY(reduce_ties(store));
    store->waited_seconds += tr_clock_seconds() - before;
    return TR_OK;
}

static void round_masters(const struct tr_store *store)
{
    const struct tr_backend *backend = tr_store_backend(store);
    if (tr_store_weight_type(store) == TR_FP32) return;
    for (int u = 0; u < store->nunits; ++u) {
        const struct tr_unit_state *s = &store->units[u];
        backend->round_masters(s->weight_shard, s->masters, s->count);
    }
}

tr_status tr_store_publish(struct tr_store *store)
{
    for (int u = 0; u < store->nunits; ++u)
        if (store->units[u].open)
            return tr_fail("unit %s is in use while its weights change; release it first",
                           unit_name(store, store->units[u].unit));
    round_masters(store);
    return store->ops->publish ? store->ops->publish(store) : TR_OK;
}
