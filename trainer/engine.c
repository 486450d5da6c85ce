/* Makes an engine: model, communicators, stages, store, memory. */
#include "engine.h"

#include <limits.h>
#include <stdlib.h>

#include "parallel/norm.h"

static long larger(long a, long b)
{
    return a > b ? a : b;
}

tr_axes tr_engine_shard_axes(enum tr_sharding sharding)
{
    if (sharding == TR_DDP) return 0;
    return (sharding == TR_ZERO3 ? 1u << TR_FSDP : 1u << TR_DP) | TR_AXES_SEQUENCE;
}

tr_status tr_engine_stages(const struct tr_model_size *size, int nstages, int **first)
{
    const double head = (double)(size->vocabulary * size->width);
    const double rest = tr_model_flops_per_token(size) / 6 - head;
    const struct tr_stage_costs costs = {
        .layer = rest / (double)size->layers, .embedding = 0, .head = head};
    *first = calloc((size_t)nstages + 1, sizeof **first);
    if (!*first) return tr_fail("out of memory for %d stages", nstages);
    const tr_status status = tr_stages_assign((int)size->layers, nstages, &costs, *first);
    if (status == TR_OK) return TR_OK;
    free(*first);
    *first = NULL;
    return status;
}

/* Which stage holds which unit. */
static tr_status take_stages(struct tr_engine *e)
{
    const struct tr_model *m = &e->model;
    const struct tr_model_size *size = &m->size;
    const int stages = e->mesh->size[TR_PP], stage = e->mesh->coord[TR_PP];
    int *first;
    TR_TRY(tr_engine_stages(size, stages, &first));
    for (int s = 0; s < stages; ++s)
        for (int layer = first[s]; layer < first[s + 1]; ++layer)
            m->params.units[m->blocks[layer].unit].stage = s;
    e->first_layer = first[stage];
    e->nlayers = first[stage + 1] - first[stage];
    free(first);
    m->params.units[m->final_unit].stage = stages - 1;
    if (size->tied && stages > 1) m->params.units[m->token_unit].tied_stage = stages - 1;
    e->first_stage = stage == 0;
    e->last_stage = stage == stages - 1;
    return TR_OK;
}

static tr_status connect(struct tr_engine *e)
{
    const tr_axes shards = tr_engine_shard_axes(e->options.sharding);
    const bool whole = tr_optimizer_rule(&e->options.optimizer)->whole != NULL;
    const tr_axes sets[] = {TR_AXES_DATA, shards, TR_AXES_DATA & ~shards,
                            TR_AXES_DATA | 1u << TR_TP}; /* the ranks of a stage */
    const struct tr_model_size *size = &e->options.model;
    const int tp = e->mesh->size[TR_TP];
    const int share = size->kv_heads < tp ? tp / (int)size->kv_heads : 1;
    e->mesh->nthreads = e->options.nthreads;
    return tr_mesh_connect(e->mesh, sets, whole ? 4 : 3, share, e->options.deterministic);
}

long tr_engine_share(const struct tr_mesh *mesh, long count, long *first, long *samples)
{
    const int *size = mesh->size, *coord = mesh->coord;
    const int parts = size[TR_DP] * size[TR_FSDP];
    long begin, most;
    tr_layout_slice(count, parts, coord[TR_DP] * size[TR_FSDP] + coord[TR_FSDP], first, samples);
    tr_layout_slice(count, parts, 0, &begin, &most);
    return most;
}

/* Sequences of a full pass, where the rank with the most sequences has `most`. */
static long micro_batch_of(const struct tr_engine_options *options, long most)
{
    return options->micro_batch < most ? options->micro_batch : larger(most, 1);
}

long tr_engine_micro_batches(const struct tr_engine_options *options, const int size[TR_NUM_AXES])
{
    long first, most;
    tr_layout_slice(options->batch, size[TR_DP] * size[TR_FSDP], 0, &first, &most);
    const long micro = micro_batch_of(options, most);
    return larger((most + micro - 1) / micro, 1);
}

double tr_engine_bound(const struct tr_engine_options *options, const int size[TR_NUM_AXES])
{
    const struct tr_model_size *m = &options->model;
    const double layers = (double)m->layers, parameters = tr_model_parameters(m);
    const double parts = size[TR_DP] * (double)size[TR_FSDP];
    const double sequence = size[TR_RING] * (double)size[TR_ULYSSES] * size[TR_TP];
    const double shards = tr_mesh_extent(size, tr_engine_shard_axes(options->sharding));
    /* Twice: the last micro-batch has room as a full one, and sequences are padded. */
    const double tokens =
        2 * ((double)options->batch / parts + 1) * ((double)m->context + 2 * sequence);
    const double passes = tokens * (layers * (64 * (double)m->width + 8 * (double)m->hidden) +
                                    4 * (double)m->vocabulary);
    /* Weights, gradients, buffers of both and the optimizer's states are kept, and a copy of what
     * is saved; ZeRO-2 reduces and FSDP gathers in each micro-batch. */
    const double batches = (double)tr_engine_micro_batches(options, size);
    const double uses = 5 + 2 * TR_MOST_STATES + (options->sharding < TR_ZERO2 ? 0 : 2 * batches);
    const double store = uses * (parameters + (layers + 3) * (shards + TR_NUM_SECTIONS) * TR_BLOCK);
    /* What an owner of matrices sends at most. */
    const bool whole = tr_optimizer_rule(&options->optimizer)->whole != NULL;
    const double owned = whole ? parts * sequence * parameters : 0;
    return 4 * ((passes > store ? passes : store) + owned);
}

bool tr_engine_answers(const struct tr_engine *e)
{
    return e->last_stage && e->parallel.tp->rank == 0;
}

static tr_status make_store(struct tr_engine *e)
{
    const struct tr_model *m = &e->model;
    const struct tr_store_options options = {
        .sharding = e->options.sharding,
        .optimizer = e->options.optimizer,
        .reduce_last = e->options.reduce_last,
        .keep_gathered = e->mesh->size[TR_PP] > 1 && !e->options.reshard_always,
        .prefetch = true,
        .inference = e->options.inference,
        .bucket_bytes = e->options.bucket_bytes,
        .shard_axes = tr_engine_shard_axes(e->options.sharding),
        .apart = {m->token_unit, m->size.tied ? -1 : m->final_unit},
    };
    return tr_store_init(&e->store, e->mesh, &m->params, &options, e->options.seed);
}

/* Memory of all that passes use; counts while the arenas have none. */
static void carve(struct tr_engine *e)
{
    const long batch = e->options.micro_batch, local = e->sequence.local, rows = batch * local,
               own = rows / e->seams.tp, h = e->model.size.width;
    const size_t activation = tr_type_bytes(e->backend->types.activations);
    struct tr_arena *a = &e->activations;
    for (int s = 0; s < e->schedule.nsets; ++s) {
        struct tr_micro *micro = &e->sets[s];
        const size_t before = a->used;
        micro->ids = tr_arena_take(a, (size_t)rows, sizeof(int32_t));
        micro->targets = tr_arena_take(a, (size_t)rows, sizeof(int32_t));
        micro->positions = tr_arena_take(a, (size_t)rows, sizeof(int32_t));
        micro->own_positions = tr_arena_take(a, (size_t)own, sizeof(int32_t));
        micro->weights = tr_arena_take(a, (size_t)rows, sizeof(float));
        tr_model_take_acts(&e->model, &e->seams, a, e->nlayers, batch, local, &micro->acts);
        e->set_bytes = a->used - before;
    }
    /* The head runs forward and backward in one go: one set of its activations is enough. */
    struct tr_acts head = {0};
    if (e->last_stage) tr_model_take_head(&e->model, &e->seams, a, batch, local, &head);
    for (int s = 0; s < e->schedule.nsets; ++s) {
        struct tr_acts *acts = &e->sets[s].acts;
        acts->norm = head.norm;
        acts->mean = head.mean;
        acts->rstd = head.rstd;
        acts->logits = head.logits;
    }
    tr_model_take_scratch(&e->model, a, batch, local, &e->scratch);
    const struct tr_attend shape = tr_model_attend(&e->model, batch, local);
    e->parallel.scratch = tr_arena_take(a, tr_parallel_scratch(&e->parallel, &shape, rows), 1);
    e->d_stream = tr_arena_take(a, (size_t)(own * h), activation);
    e->d_received = tr_arena_take(a, (size_t)(own * h), activation);
    e->sums = tr_arena_take(a, TR_NUM_SUMS, sizeof(double));
}

static tr_status take_memory(struct tr_engine *e)
{
    e->sets = calloc((size_t)e->schedule.nsets, sizeof *e->sets);
    if (!e->sets) return tr_fail("out of memory for %d activation sets", e->schedule.nsets);
    for (int s = 0; s < e->schedule.nsets; ++s) {
        struct tr_acts *acts = &e->sets[s].acts;
        acts->blocks = calloc((size_t)e->nlayers, sizeof *acts->blocks);
        if (!acts->blocks) return tr_fail("out of memory for %d layers", e->nlayers);
    }
    carve(e);
    const size_t nbytes = e->activations.used;
    e->activations = (struct tr_arena){0};
    TR_TRY(tr_arena_create(&e->activations, e->backend, "activations", nbytes, false));
    carve(e);
    e->parallel.counts = calloc(4 * (size_t)e->parallel.ulysses->n, sizeof *e->parallel.counts);
    if (!e->parallel.counts) return tr_fail("out of memory for the ranks along ulysses");
    if (e->mesh->tallies) return TR_OK; /* no tokens pass */
    return tr_staging_init(&e->staging, e->options.model.context,
                           e->options.micro_batch * e->sequence.local);
}

static tr_status check_types(const struct tr_backend *backend, const struct tr_types *types)
{
    const struct tr_types *has = &backend->types;
    if (has->weights == types->weights && has->activations == types->activations &&
        has->gradients == types->gradients)
        return TR_OK;
    return tr_fail("weights, activations and gradients have the types %d, %d and %d, but the "
                   "backend %s has operations for %d, %d and %d",
                   types->weights, types->activations, types->gradients, backend->name,
                   has->weights, has->activations, has->gradients);
}

/* What each rank can do alone. */
static tr_status prepare(struct tr_engine *e)
{
    const int *size = e->mesh->size, *coord = e->mesh->coord;
    const struct tr_engine_options *o = &e->options;
    TR_TRY(check_types(e->backend, &o->types));
    TR_TRY(tr_model_init(&e->model, &o->model, e->backend, size[TR_TP], coord[TR_TP],
                         tr_mesh_extent(size, tr_engine_shard_axes(o->sharding))));
    TR_TRY(take_stages(e));
    e->sequence = tr_sequence_of(o->model.context, size[TR_RING], coord[TR_RING], size[TR_ULYSSES],
                                 coord[TR_ULYSSES], size[TR_TP], o->zigzag);
    const long most = tr_engine_share(e->mesh, o->batch, &e->first_sample, &e->samples);
    e->options.micro_batch = micro_batch_of(o, most);
    const long passes = tr_engine_micro_batches(o, size);
    const int nbatches = passes < INT_MAX ? (int)passes : INT_MAX; /* refused below */
    TR_TRY(tr_schedule_init(&e->schedule, o->schedule, size[TR_PP], nbatches, coord[TR_PP]));
    return TR_OK;
}

tr_status tr_engine_init(struct tr_engine *e, struct tr_mesh *mesh,
                         const struct tr_backend *backend, const struct tr_engine_options *options)
{
    *e = (struct tr_engine){.options = *options, .mesh = mesh, .backend = backend};
    TR_TRY(tr_mesh_agree(mesh, prepare(e)));
    TR_TRY(connect(e));
    e->parallel = (struct tr_parallel){.backend = backend,
                                       .tp = tr_mesh_group(mesh, 1u << TR_TP),
                                       .ring = tr_mesh_group(mesh, 1u << TR_RING),
                                       .ulysses = tr_mesh_group(mesh, 1u << TR_ULYSSES),
                                       .sequence = &e->sequence};
    tr_parallel_seams(&e->seams, &e->parallel);
    TR_TRY(tr_mesh_agree(mesh, take_memory(e)));
    return make_store(e);
}

void tr_engine_fini(struct tr_engine *e)
{
    tr_store_fini(&e->store);
    tr_model_fini(&e->model);
    tr_arena_fini(&e->activations);
    tr_staging_fini(&e->staging);
    free(e->parallel.counts);
    for (int s = 0; e->sets && s < e->schedule.nsets; ++s) free(e->sets[s].acts.blocks);
    free(e->sets);
    tr_schedule_fini(&e->schedule);
    *e = (struct tr_engine){0};
}
