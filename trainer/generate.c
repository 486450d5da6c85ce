/* Writes on: a cache of keys and values, so that each token passes the model once. */
#include "generate.h"

#include <stdlib.h>
#include <string.h>

#include "random.h"

tr_status tr_generator_init(struct tr_generator *g, struct tr_engine *engine,
                            const struct tr_choice *choice, bool cached)
{
    const struct tr_model_size *size = &engine->model.size;
    const int *axes = engine->mesh->size;
    *g = (struct tr_generator){.engine = engine,
                               .choice = *choice,
                               .is_cached = cached && axes[TR_RING] == 1 && axes[TR_ULYSSES] == 1,
                               .window = calloc((size_t)size->context, sizeof *g->window),
                               .logits = calloc((size_t)size->vocabulary, sizeof *g->logits)};
    const bool there = g->window && g->logits;
    TR_TRY(tr_mesh_agree(engine->mesh,
                         there ? TR_OK : tr_fail("out of memory for %ld tokens", size->context)));
    return g->is_cached ? tr_engine_cache(engine, &g->cache) : TR_OK;
}

void tr_generator_fini(struct tr_generator *g)
{
    tr_cache_fini(&g->cache);
    free(g->window);
    free(g->logits);
    *g = (struct tr_generator){0};
}

/* A full window keeps its last half, which has other places then: no key of the cache is right. */
static void append(struct tr_generator *g, unsigned char byte)
{
    const long context = g->engine->model.size.context;
    if (g->count == context) {
        const long kept = context / 2;
        memmove(g->window, g->window + context - kept, (size_t)kept * sizeof *g->window);
        g->count = kept;
        g->cache.count = 0;
    }
    g->window[g->count++] = byte;
}

void tr_generator_give(struct tr_generator *g, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; ++i) append(g, bytes[i]);
}

tr_status tr_generator_draw(struct tr_generator *g, unsigned char *byte)
{
    if (!g->count) append(g, '\n');
    if (g->is_cached)
        TR_TRY(tr_engine_next(g->engine, &g->cache, g->window + g->cache.count,
                              g->count - g->cache.count, g->logits));
    else
        TR_TRY(tr_engine_logits(g->engine, g->window, g->count, g->logits));
    const double uniform = tr_random_uniform(g->choice.seed, TR_RANDOM_SAMPLE, 0, g->drawn++);
    const long vocabulary = g->engine->model.size.vocabulary,
               n = vocabulary < TR_BYTES ? vocabulary : TR_BYTES;
    *byte = (unsigned char)tr_choice_draw(&g->choice, g->logits, n, uniform);
    append(g, *byte);
    return TR_OK;
}
