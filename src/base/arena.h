/* Arena: many allocations, one free. Not thread-safe. */
#ifndef TT_BASE_ARENA_H
#define TT_BASE_ARENA_H

#include <stddef.h>

struct tt_arena_block;

/* Owned by its embedding struct; zero-initialised is empty; tt_arena_fini frees everything. */
struct tt_arena {
    struct tt_arena_block *blocks;
    size_t nbytes; /* handed out so far */
};

/* Zeroed memory aligned to 64 bytes, NULL when there is none left. Freed by tt_arena_fini. */
void *tt_arena_get(struct tt_arena *arena, size_t nbytes);
void tt_arena_fini(struct tt_arena *arena);

#endif
