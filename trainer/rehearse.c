/* Runs the engine on a dry mesh. */
#include "rehearse.h"

#include "ckpt/ckpt.h"
#include "ops/dry.h"

const char *const tr_partner_names[TR_NUM_PARTNERS] = {
    "shards",  "replicas", "tp",   "tp, shared heads", "tied stages",
    "a stage", "pp",       "ring", "ulysses",          "all"};
const char *const tr_traffic_names[TR_NUM_TRAFFIC] = {"all-reduce", "reduce-scatter", "all-gather",
                                                      "all-to-all", "send",           "receive"};

struct stage_play {
    struct tr_mesh mesh;
    struct tr_dry dry;
    struct tr_engine engine;
};

static tr_status begin(struct stage_play *p, const int size[TR_NUM_AXES],
                       const struct tr_engine_options *options, int rank)
{
    *p = (struct stage_play){0};
    tr_dry_backend(&p->dry, &options->types);
    TR_TRY(tr_mesh_dry(&p->mesh, size, rank));
    return tr_engine_init(&p->engine, &p->mesh, &p->dry.backend, options);
}

static void end(struct stage_play *p)
{
    tr_engine_fini(&p->engine);
    tr_mesh_fini(&p->mesh);
}

static const struct tr_group *group_of(const struct tr_engine *e, enum tr_partners partners)
{
    const struct tr_mesh *mesh = e->mesh;
    switch (partners) {
    case TR_WITH_SHARDS:
        return e->store.shard;
    case TR_WITH_REPLICAS:
        return e->store.replica;
    case TR_WITH_TP:
        return tr_mesh_group(mesh, 1u << TR_TP);
    case TR_WITH_SHARE:
        return &mesh->share;
    case TR_WITH_TIE:
        return &mesh->tie;
    case TR_WITH_STAGE:
        return tr_mesh_group(mesh, TR_AXES_DATA | 1u << TR_TP);
    case TR_WITH_PP:
        return tr_mesh_group(mesh, 1u << TR_PP);
    case TR_WITH_RING:
        return tr_mesh_group(mesh, 1u << TR_RING);
    case TR_WITH_ULYSSES:
        return tr_mesh_group(mesh, 1u << TR_ULYSSES);
    case TR_WITH_ALL:
    case TR_NUM_PARTNERS:
        break;
    }
    return tr_mesh_group(mesh, TR_AXES_ALL);
}

uint64_t tr_memory_sum(const struct tr_memory *m)
{
    return m->weights + m->gradients + m->optimizer + m->gathered + m->activations + m->snapshot;
}

/* A step after the gathers of init, and the next step's gathers of kept weights. */
static tr_status step(struct stage_play *p, struct tr_tally tallies[TR_NUM_PARTNERS])
{
    struct tr_engine *e = &p->engine;
    const struct tr_feed feed = {0};
    struct tr_step_sums sums;
    for (int set = 0; set < (1 << TR_NUM_AXES) + 2; ++set)
        p->mesh.tallies[set] = (struct tr_tally){0};
    TR_TRY(tr_engine_gradients(e, &feed, 0, NULL, &sums));
    TR_TRY(tr_engine_update(e, &e->options.optimizer, 1));
    for (int i = 0; i < TR_NUM_PARTNERS; ++i) {
        const struct tr_group *group = group_of(e, (enum tr_partners)i);
        tallies[i] = group->tally ? *group->tally : (struct tr_tally){0};
    }
    return TR_OK;
}

/* The options of a step that has at most TR_MOST_REHEARSED micro-batches, or `more` of them: the
 * ranks of the mesh have as many full ones less. */
static struct tr_engine_options shorten(const int size[TR_NUM_AXES],
                                        const struct tr_engine_options *options, long more)
{
    struct tr_engine_options shorter = *options;
    const long fewer = tr_engine_micro_batches(options, size) - TR_MOST_REHEARSED - more;
    if (fewer > 0) shorter.batch -= fewer * options->micro_batch * size[TR_DP] * size[TR_FSDP];
    return shorter;
}

/* What an engine of `nbatches` micro-batches, of which this one has perhaps fewer, says before its
 * step. */
static tr_status look(const struct tr_engine *e, long nbatches, struct tr_rehearsal *r)
{
    const struct tr_schedule *s = &e->schedule;
    const struct tr_store *store = &e->store;
    r->set_bytes = e->set_bytes;
    r->nsets = tr_schedule_in_flight(s->kind, s->nstages, (int)nbatches, s->stage);
    size_t snapshot;
    TR_TRY(tr_ckpt_snapshot_bytes(e, &snapshot));
    r->memory =
        (struct tr_memory){store->weights.used,  store->gradients.used, store->optimizer.used,
                           store->gathered.used, e->activations.used,   snapshot};
    r->memory.activations += (uint64_t)(r->nsets - s->nsets) * e->set_bytes;
    r->parameters = e->model.params.count;
    return TR_OK;
}

static tr_status rehearse(const int size[TR_NUM_AXES], const struct tr_engine_options *options,
                          int rank, long more, bool steps, struct tr_rehearsal *r)
{
    struct stage_play p;
    const struct tr_engine_options shorter = shorten(size, options, more);
    *r = (struct tr_rehearsal){0};
    tr_status status = begin(&p, size, &shorter, rank);
    if (status == TR_OK) status = look(&p.engine, tr_engine_micro_batches(options, size), r);
    if (status == TR_OK && steps) status = step(&p, r->step);
    end(&p);
    return status;
}

/* tallies += times * (more - tallies) */
static void extend(struct tr_tally tallies[TR_NUM_PARTNERS],
                   const struct tr_tally more[TR_NUM_PARTNERS], uint64_t times)
{
    for (int i = 0; i < TR_NUM_PARTNERS; ++i)
        for (int kind = 0; kind < TR_NUM_TRAFFIC; ++kind) {
            struct tr_traffic *t = &tallies[i].traffic[kind];
            t->calls += times * (more[i].traffic[kind].calls - t->calls);
            t->bytes += times * (more[i].traffic[kind].bytes - t->bytes);
        }
}

tr_status tr_rehearse_memory(const int size[TR_NUM_AXES], const struct tr_engine_options *options,
                             int rank, struct tr_rehearsal *rehearsal)
{
    return rehearse(size, options, rank, 0, false, rehearsal);
}

tr_status tr_rehearse(const int size[TR_NUM_AXES], const struct tr_engine_options *options,
                      int rank, struct tr_rehearsal *rehearsal)
{
    const long fewer = tr_engine_micro_batches(options, size) - TR_MOST_REHEARSED;
    struct tr_rehearsal more;
    TR_TRY(rehearse(size, options, rank, 0, true, rehearsal));
    if (fewer <= 0) return TR_OK;
    TR_TRY(rehearse(size, options, rank, 1, true, &more));
    extend(rehearsal->step, more.step, (uint64_t)fewer);
    return TR_OK;
}

/* ---- Stages ------------------------------------------------------------------------------------
 */

/* Whether two stages are of one kind: as many layers, and the same units beside them. */
static bool are_alike(const int *first, int nstages, int a, int b)
{
    const int last = nstages - 1;
    return (a == 0) == (b == 0) && (a == last) == (b == last) &&
           first[a + 1] - first[a] == first[b + 1] - first[b];
}

/* The first stage of the kind of `stage`. */
static int model_of(const int *first, int nstages, int stage)
{
    int model = 0;
    while (!are_alike(first, nstages, model, stage)) ++model;
    return model;
}

tr_status tr_rehearse_stages(const int size[TR_NUM_AXES], const struct tr_engine_options *options,
                             const int *first, struct tr_rehearsal *stages, int *nkinds)
{
    const int nstages = size[TR_PP], each = tr_mesh_extent(size, TR_AXES_ALL) / nstages;
    const int nbatches = (int)tr_engine_micro_batches(options, size);
    *nkinds = 0;
    for (int s = 0; s < nstages; ++s) {
        const int model = model_of(first, nstages, s);
        if (model == s) {
            TR_TRY(tr_rehearse(size, options, s * each, &stages[s]));
            ++*nkinds;
            continue;
        }
        struct tr_rehearsal *r = &stages[s];
        *r = stages[model];
        r->nsets = tr_schedule_in_flight(options->schedule, nstages, nbatches, s);
        r->memory.activations -= (uint64_t)(stages[model].nsets - r->nsets) * r->set_bytes;
    }
    return TR_OK;
}
