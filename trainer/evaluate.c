/* Passes without gradients: the loss of samples, and the logits of what follows some tokens. */
#include <math.h>
#include <string.h>

#include "calls.h"
#include "engine.h"

/* One forward pass through all stages; the last stage goes on with the head. */
static tr_status forward_only(struct tr_engine *e, struct tr_micro *micro)
{
    static const char what[] = "passing activations between stages";
    const struct tr_group *pp = tr_mesh_group(e->mesh, 1u << TR_PP);
    const size_t count = (size_t)(micro->tokens.own * e->model.size.width);
    if (!e->first_stage)
        TR_TRY(tr_receive(pp, e->backend->stream, micro->acts.blocks[0].input, count, tuttiFloat32,
                          pp->rank - 1, what));
    TR_TRY(tr_pass_forward(e, micro, true));
    if (e->last_stage) return TR_OK;
    return tr_send(pp, e->backend->stream, micro->acts.output, count, tuttiFloat32, pp->rank + 1,
                   what);
}

tr_status tr_engine_loss(struct tr_engine *e, const struct tr_feed *feed, uint64_t first,
                         long count, double *loss)
{
    long mine;
    struct tr_samples samples = {.feed = feed};
    const long most = tr_engine_share(e->mesh, count, &mine, &samples.count);
    const bool answers = tr_engine_answers(e);
    double host[TR_NUM_SUMS] = {0};
    samples.first = first + (uint64_t)mine;
    e->backend->clear(e->sums, sizeof host);
    for (int pass = 0; pass * e->options.micro_batch < most; ++pass) {
        struct tr_micro *micro = tr_pass_take_set(e, &samples, 0, pass);
        TR_TRY(forward_only(e, micro));
        if (e->last_stage) TR_TRY(tr_pass_loss(e, micro, answers ? &e->sums[TR_LOSS] : NULL));
        if (answers) host[TR_TOKENS] += micro->count;
    }
    e->backend->write(e->sums + TR_TOKENS, host + TR_TOKENS, sizeof *host);
    const struct tr_group *all = tr_mesh_group(e->mesh, TR_AXES_ALL);
    if (all->n > 1)
        TR_TRY(tr_all_reduce(all, e->backend->stream, e->sums + TR_LOSS, 2, tuttiFloat64, tuttiSum,
                             "summing the held-out loss"));
    e->backend->read(host, e->sums, sizeof host);
    *loss = host[TR_TOKENS] > 0 ? host[TR_LOSS] / host[TR_TOKENS] : NAN;
    return TR_OK;
}

struct given {
    const int32_t *ids;
    long count;
};

static void give(void *arg, uint64_t number, long context, int32_t *ids, int32_t *targets,
                 float *weights)
{
    const struct given *given = arg;
    (void)number;
    for (long i = 0; i < context; ++i) {
        ids[i] = given->ids[i];
        targets[i] = 0;
        weights[i] = 0;
    }
}

/* The row of this rank that has place `position`, or -1. */
static long row_of(const struct tr_engine *e, long position)
{
    for (long i = 0; i < e->sequence.local; ++i)
        if (tr_sequence_position(&e->sequence, i) == position) return i;
    return -1;
}

/* A forward pass over the sequence at hand, and the logits of its last row. */
static tr_status pass_for_logits(struct tr_engine *e, const int32_t *ids, float *logits)
{
    struct given given = {ids, e->sequence.length};
    const struct tr_feed feed = {e->mesh->tallies ? NULL : give, &given};
    const struct tr_samples one = {&feed, 0, 1};
    const long row = row_of(e, e->sequence.length - 1), n = e->model.vocabulary_count;
    const int *coord = e->mesh->coord;
    struct tr_micro *micro = tr_pass_take_set(e, &one, 0, 0);
    TR_TRY(forward_only(e, micro));
    if (e->last_stage) TR_TRY(tr_pass_logits(e, micro));
    memset(logits, 0, (size_t)e->model.size.vocabulary * sizeof *logits);
    if (e->last_stage && row >= 0 && coord[TR_DP] == 0 && coord[TR_FSDP] == 0)
        e->backend->read(logits + e->model.vocabulary_first, micro->acts.logits + row * n,
                         (size_t)n * sizeof *logits);
    /* As integers: one rank has each logit, the others zero bits. */
    const struct tr_group *all = tr_mesh_group(e->mesh, TR_AXES_ALL);
    if (all->n == 1) return TR_OK;
    return tr_all_reduce(all, NULL, logits, (size_t)e->model.size.vocabulary, tuttiUint32, tuttiSum,
                         "sharing the logits");
}

static tr_status check_count(const struct tr_engine *e, long count, long most)
{
    const long context = e->options.model.context;
    if (count >= 1 && count <= most) return TR_OK;
    return tr_mesh_alike(e->mesh, tr_fail("logits of what follows %ld tokens: the model takes 1 "
                                          "to %ld; give it the last %ld of them",
                                          count, context, context));
}

tr_status tr_engine_logits(struct tr_engine *e, const int32_t *ids, long count, float *logits)
{
    TR_TRY(check_count(e, count, e->options.model.context));
    const struct tr_sequence trained = e->sequence;
    e->sequence = tr_sequence_of(count, trained.ring, trained.ring_rank, trained.ulysses,
                                 trained.ulysses_rank, e->mesh->size[TR_TP], trained.zigzag);
    const tr_status status = pass_for_logits(e, ids, logits);
    e->sequence = trained;
    return status;
}

tr_status tr_engine_cache(struct tr_engine *e, struct tr_cache *cache)
{
    const struct tr_attend shape = tr_model_attend(&e->model, 1, e->sequence.local);
    *cache = (struct tr_cache){0};
    if (e->parallel.ring->n > 1 || e->parallel.ulysses->n > 1)
        return tr_mesh_alike(e->mesh, tr_fail("a cache of keys and values needs whole sequences on "
                                              "each rank; take --ring=1 --ulysses=1"));
    /* Passes are padded to a multiple of 2 x tp tokens. */
    const long tokens = e->options.model.context + 2 * e->mesh->size[TR_TP];
    return tr_mesh_agree(e->mesh, tr_cache_init(cache, e->backend, &shape, e->nlayers, tokens));
}

tr_status tr_engine_next(struct tr_engine *e, struct tr_cache *cache, const int32_t *ids,
                         long count, float *logits)
{
    TR_TRY(check_count(e, count, e->options.model.context - cache->count));
    const struct tr_sequence trained = e->sequence;
    e->sequence = tr_sequence_of(count, 1, 0, 1, 0, e->mesh->size[TR_TP], false);
    e->sequence.before = cache->count;
    e->parallel.cache = cache;
    cache->layer = 0;
    const tr_status status = pass_for_logits(e, ids, logits);
    cache->count += count;
    e->parallel.cache = NULL;
    e->sequence = trained;
    return status;
}
