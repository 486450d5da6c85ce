/* Memory of one reading: blocks of 64 KiB or of the size asked for, in a list. */
#include <vgpu/ptx/arena.h>

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

struct vg_arena_block {
    struct vg_arena_block *next;
    size_t room;
    alignas(16) unsigned char bytes[];
};

enum { BLOCK_BYTES = 64 << 10 };

void *vg_ptx_arena_alloc(struct vg_arena *arena, size_t nbytes)
{
    if (nbytes > SIZE_MAX / 2) return NULL;
    nbytes = (nbytes + 15) & ~(size_t)15;
    if (!arena->blocks || arena->blocks->room - arena->used < nbytes) {
        const size_t room = nbytes > BLOCK_BYTES / 4 ? nbytes : BLOCK_BYTES;
        struct vg_arena_block *block = malloc(sizeof *block + room);
        if (!block) return NULL;
        block->room = room;
        if (room != BLOCK_BYTES && arena->blocks) { /* the first block keeps its free bytes */
            block->next = arena->blocks->next;
            arena->blocks->next = block;
            memset(block->bytes, 0, nbytes);
            return block->bytes;
        }
        block->next = arena->blocks;
        arena->blocks = block;
        arena->used = 0;
    }
    void *at = arena->blocks->bytes + arena->used;
    arena->used += nbytes;
    memset(at, 0, nbytes);
    return at;
}

void vg_ptx_arena_fini(struct vg_arena *arena)
{
    while (arena->blocks) {
        struct vg_arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
}
