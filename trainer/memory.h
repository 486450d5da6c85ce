/* One allocation for each class of memory. An arena without memory counts, so the code that carves
 * it up runs twice: once to learn the size, once for real. */
#ifndef TR_MEMORY_H
#define TR_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "ops/backend.h"
#include "status.h"

/* Owned by whoever called tr_arena_create; tr_arena_fini frees. */
struct tr_arena {
    const struct tr_backend *backend;
    const char *tag; /* weights, gradients, ...: shown in the table */
    void *base;      /* NULL while counting */
    size_t nbytes;   /* of the allocation */
    size_t used;     /* handed out so far */
    bool shared;     /* from tuttiMemAlloc: other ranks of the host can read it in place */
};

/* Room for `nbytes` of a backend, zeroed; `shared` as above. */
TR_NODISCARD tr_status tr_arena_create(struct tr_arena *arena, const struct tr_backend *backend,
                                       const char *tag, size_t nbytes, bool shared);
void tr_arena_fini(struct tr_arena *arena);

/* `count` items of `size` bytes, aligned to a cache line; NULL while counting. */
void *tr_arena_take(struct tr_arena *arena, size_t count, size_t size);

/* Once, before the first matrix product: lets malloc keep what oneDNN frees after every product
 * instead of asking the system for fresh pages (a tenth of the time of a large model). */
void tr_process_tune(void);

#endif
