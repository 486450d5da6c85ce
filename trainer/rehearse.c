/* Runs the engine on a dry mesh. */
#include "rehearse.h"

#include "ops/dry.h"

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

static struct tr_memory memory_of(const struct tr_engine *e)
{
    const struct tr_store *store = &e->store;
    return (struct tr_memory){store->weights.used, store->gradients.used, store->optimizer.used,
                              store->gathered.used, e->activations.used};
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

/* A step of `fewer` micro-batches less. */
static tr_status rehearse(const int size[TR_NUM_AXES], const struct tr_engine_options *options,
                          int rank, long fewer, struct tr_tally tallies[TR_NUM_PARTNERS])
{
    struct stage_play p;
    struct tr_engine_options shorter = *options;
    shorter.batch -= fewer * options->micro_batch * size[TR_DP] * size[TR_FSDP];
    tr_status status = begin(&p, size, &shorter, rank);
    if (status == TR_OK) status = step(&p, tallies);
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

/* What an engine says before its step, and how many micro-batches it has. */
static tr_status look(const int size[TR_NUM_AXES], const struct tr_engine_options *options,
                      int rank, struct tr_rehearsal *r, long *nbatches)
{
    struct stage_play p;
    *r = (struct tr_rehearsal){0};
    const tr_status status = begin(&p, size, options, rank);
    r->memory = memory_of(&p.engine);
    r->parameters = p.engine.model.params.count;
    *nbatches = p.engine.schedule.nbatches;
    end(&p);
    return status;
}

tr_status tr_rehearse_memory(const int size[TR_NUM_AXES], const struct tr_engine_options *options,
                             int rank, struct tr_rehearsal *rehearsal)
{
    long nbatches;
    return look(size, options, rank, rehearsal, &nbatches);
}

tr_status tr_rehearse(const int size[TR_NUM_AXES], const struct tr_engine_options *options,
                      int rank, struct tr_rehearsal *rehearsal)
{
    struct tr_tally more[TR_NUM_PARTNERS];
    long nbatches;
    TR_TRY(look(size, options, rank, rehearsal, &nbatches));
    const long fewer = nbatches > TR_MOST_REHEARSED ? nbatches - TR_MOST_REHEARSED : 0;
    TR_TRY(rehearse(size, options, rank, fewer, rehearsal->step));
    if (!fewer) return TR_OK;
    TR_TRY(rehearse(size, options, rank, fewer - 1, more));
    extend(rehearsal->step, more, (uint64_t)fewer);
    return TR_OK;
}
