/* Memory of one reading: blocks that are freed together. */
#ifndef VGPU_PTX_ARENA_H
#define VGPU_PTX_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct vg_arena;
struct vg_arena *vg_ptx_arena_create(void); /* NULL: there is no memory */
/* Zeroed memory, aligned to 16; NULL: there is none. */
void *vg_ptx_arena_alloc(struct vg_arena *arena, size_t nbytes);
void vg_ptx_arena_destroy(struct vg_arena *arena);

#endif
