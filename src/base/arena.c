/* The arena: a list of blocks, each at least as large as the last allocation needs. */
#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, BLOCK_BYTES = 16384 };

struct tt_arena_block {
    struct tt_arena_block *next;
    size_t used, size; /* of the payload, which starts ALIGN bytes in */
};

void *tt_arena_get(struct tt_arena *arena, size_t nbytes)
{
    if (nbytes > (size_t)-1 / 2) return NULL;
    const size_t need = (nbytes + ALIGN - 1) / ALIGN * ALIGN;
    struct tt_arena_block *block = arena->blocks;
    if (!block || block->size - block->used < need) {
        const size_t size = need > BLOCK_BYTES ? need : BLOCK_BYTES;
        block = aligned_alloc(ALIGN, ALIGN + size);
        if (!block) return NULL;
        *block = (struct tt_arena_block){.next = arena->blocks, .size = size};
        arena->blocks = block;
    }
    char *memory = (char *)block + ALIGN + block->used;
    block->used += need;
    arena->nbytes += need;
    return memset(memory, 0, need);
}

void tt_arena_fini(struct tt_arena *arena)
{
    while (arena->blocks) {
        struct tt_arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
    arena->nbytes = 0;
}
