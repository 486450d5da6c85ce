/* Memory of one reading: blocks of 256 KiB or of the size asked for, in a list.
 *
 * Blocks are pages of their own, not malloc's: who looks for leaks in a process (LeakSanitizer)
 * would read all of them each time, and a library's kernels take tens of megabytes. Where the
 * virtual GPU itself is built with AddressSanitizer, that must see their ends. */
#include <vgpu/ptx/arena.h>

#include <stdalign.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

struct vg_arena_block {
    struct vg_arena_block *next;
    size_t room;
    alignas(16) unsigned char bytes[];
};

struct vg_arena {
    struct vg_arena_block *blocks; /* the arena lies in one of them */
    size_t used;                   /* of the first block */
};

enum { BLOCK_BYTES = 256 << 10 };

#ifdef __SANITIZE_ADDRESS__
static void *zeros_get(size_t nbytes)
{
    return calloc(1, nbytes);
}

static void zeros_put(void *memory, size_t nbytes)
{
    (void)nbytes;
    free(memory);
}
#else
static void *zeros_get(size_t nbytes)
{
    void *memory = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void zeros_put(void *memory, size_t nbytes)
{
    munmap(memory, nbytes);
}
#endif

static struct vg_arena_block *block_create(size_t room)
{
    struct vg_arena_block *block = zeros_get(sizeof *block + room);
    if (block) block->room = room;
    return block;
}

struct vg_arena *vg_ptx_arena_create(void)
{
    const size_t nbytes = (sizeof(struct vg_arena) + 15) & ~(size_t)15;
    struct vg_arena_block *block = block_create(BLOCK_BYTES - sizeof *block);
    if (!block) return NULL;
    struct vg_arena *arena = (struct vg_arena *)(void *)block->bytes;
    *arena = (struct vg_arena){.blocks = block, .used = nbytes};
    return arena;
}

void *vg_ptx_arena_alloc(struct vg_arena *arena, size_t nbytes)
{
    if (nbytes > SIZE_MAX / 2) return NULL;
    nbytes = (nbytes + 15) & ~(size_t)15;
    if (arena->blocks->room - arena->used < nbytes) {
        const bool own = nbytes > BLOCK_BYTES / 4;
        struct vg_arena_block *block = block_create(own ? nbytes : BLOCK_BYTES - sizeof *block);
        if (!block) return NULL;
        if (own) { /* the first block keeps its free bytes */
            block->next = arena->blocks->next;
            arena->blocks->next = block;
            return block->bytes;
        }
        block->next = arena->blocks;
        arena->blocks = block;
        arena->used = 0;
    }
    void *at = arena->blocks->bytes + arena->used;
    arena->used += nbytes;
    return at;
}

void vg_ptx_arena_destroy(struct vg_arena *arena)
{
    struct vg_arena_block *next = arena ? arena->blocks : NULL;
    while (next) {
        struct vg_arena_block *block = next;
        next = block->next;
        zeros_put(block, sizeof *block + block->room);
    }
}
