/* Attention of a rank that has the next tokens of one sequence: their keys and values are kept
 * behind those of the tokens before, and their queries see all of these.
 *
 * Collectives  none.
 * Memory       2 x layers x tokens x kv_heads x d activations, for the heads of this rank.
 * Limits       one sequence, whole on each rank (no ring, no ulysses); forward only.
 * Test         tests/trainer/generate_test.c, against passes over whole sequences. */
#include <stdlib.h>

#include "parallel.h"

tr_status tr_cached_attention(struct tr_parallel *parallel, const struct tr_attend *call,
                              void *scratch)
{
    struct tr_cache *cache = parallel->cache;
    const long width = call->kv_heads * call->d, first = cache->count, n = call->context;
    const enum tr_type type = parallel->backend->types.activations;
    const size_t at = (size_t)(first * width);
    struct tr_data *keys = cache->keys[cache->layer], *values = cache->values[cache->layer];
    cache->layer++;
    parallel->backend->copy_rows(tr_at(keys, type, at), width, call->k, call->kv_stride, n, width,
                                 type);
    parallel->backend->copy_rows(tr_at(values, type, at), width, call->v, call->kv_stride, n, width,
                                 type);
    const struct tr_attention shape = {.batch = 1,
                                       .queries = n,
                                       .keys = first + n,
                                       .heads = call->heads,
                                       .size = call->d,
                                       .group = call->group,
                                       .phase = call->phase,
                                       .q_stride = call->q_stride,
                                       .kv_stride = width,
                                       .out_stride = call->heads * call->d,
                                       .offset = first};
    parallel->backend->attention_forward(call->out, call->room, call->q, keys, values, scratch,
                                         &shape);
    return TR_OK;
}

/* Counts while the cache has no memory. */
static void carve(struct tr_cache *cache, size_t n, enum tr_type type)
{
    for (int i = 0; i < cache->nlayers; ++i) {
        cache->keys[i] = tr_arena_take(&cache->memory, n, tr_type_bytes(type));
        cache->values[i] = tr_arena_take(&cache->memory, n, tr_type_bytes(type));
    }
}

tr_status tr_cache_init(struct tr_cache *cache, const struct tr_backend *backend,
                        const struct tr_attend *shape, int nlayers, long tokens)
{
    const enum tr_type type = backend->types.activations;
    const size_t n = (size_t)(tokens * shape->kv_heads * shape->d);
    *cache = (struct tr_cache){.keys = calloc((size_t)nlayers, sizeof *cache->keys),
                               .values = calloc((size_t)nlayers, sizeof *cache->values),
                               .nlayers = nlayers};
    if (!cache->keys || !cache->values)
        return tr_fail("out of memory for a cache of %d layers", nlayers);
    carve(cache, n, type);
    const size_t nbytes = cache->memory.used;
    cache->memory = (struct tr_arena){0};
    TR_TRY(tr_arena_create(&cache->memory, backend, "keys and values", nbytes, false));
    carve(cache, n, type);
    return TR_OK;
}

void tr_cache_fini(struct tr_cache *cache)
{
    tr_arena_fini(&cache->memory);
    free(cache->keys);
    free(cache->values);
    *cache = (struct tr_cache){0};
}
