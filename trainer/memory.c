/* Carves arenas out of one allocation. */
#include "memory.h"

#include <assert.h>
#include <limits.h>
#include <malloc.h>

#include "tutti.h"

enum { CACHE_LINE = 64 };

tr_status tr_arena_create(struct tr_arena *arena, const struct tr_backend *backend, const char *tag,
                          size_t nbytes, bool shared)
{
    const size_t units = (nbytes + TR_MEMORY_UNIT - 1) / TR_MEMORY_UNIT;
    const size_t rounded = (units ? units : 1) * TR_MEMORY_UNIT;
    void *base = backend->take(rounded, shared);
    if (!base && shared)
        return tr_fail("no memory for %zu bytes of %s: %s", rounded, tag, tuttiGetLastError(NULL));
    if (!base) return tr_fail("no memory for %zu bytes of %s", rounded, tag);
    *arena = (struct tr_arena){
        .backend = backend, .tag = tag, .base = base, .nbytes = rounded, .shared = shared};
    return TR_OK;
}

void tr_arena_fini(struct tr_arena *arena)
{
    if (arena->base) arena->backend->give(arena->base, arena->shared);
    *arena = (struct tr_arena){0};
}

void *tr_arena_take(struct tr_arena *arena, size_t count, size_t size)
{
    const size_t at = arena->used;
    arena->used += (count * size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    assert(!arena->base || arena->used <= arena->nbytes);
    return arena->base ? (char *)arena->base + at : NULL;
}

void tr_process_tune(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
}
