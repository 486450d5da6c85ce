/* Clocks: which accesses of which threads are known, as immutable trees that share their parts.
 *
 * A thread counts epochs; an access carries the thread's epoch. A clock says for each thread up to
 * which epoch its accesses are known. Blocks have serial numbers, counted over all grids of a
 * model, so a thread is the number block * 1024 + thread. A clock is a tree over these numbers,
 * five bits a level:
 *
 *   level 0   a warp: an epoch for each of 32 lanes
 *   level 1   a block: 32 warps
 *   level 2   32 blocks, level 3 1024 blocks, ...
 *
 * Each node has a floor: all threads under the node are known up to that epoch. A barrier of a
 * whole block raises the floor of the block's node, the end of a grid sets the floors of its blocks
 * to VG_ENDED; children that say no more than the floor are dropped, and so clocks stay small. A
 * node is never changed once it is made; NULL is the clock that knows nothing.
 *
 * This is base causality order (8.9.5): access X precedes what a thread does next if and only if
 * the thread's clock knows X. */
#ifndef VGPU_MODEL_CLOCK_H
#define VGPU_MODEL_CLOCK_H

#include <stddef.h>
#include <stdint.h>

enum { VG_BLOCK_THREADS = 1024 };
#define VG_ENDED UINT32_MAX

struct vg_clock {
    uint32_t refs;
    uint32_t floor;
    uint32_t top;     /* the highest epoch under the node, floor included */
    uint32_t present; /* a bit a child; level 0 has all 32 epochs, or none with present == 0 */
    uint32_t level;
    uint32_t number; /* another one for each node that was at the address */
};

struct vg_clock *vg_clock_get(struct vg_clock *clock);
void vg_clock_put(struct vg_clock *clock);
/* *into takes the place of its own reference. */
void vg_clock_join(struct vg_clock **into, struct vg_clock *other);
void vg_clock_replace(struct vg_clock **into, struct vg_clock *other);

enum vg_part { VG_PART_THREAD, VG_PART_WARP, VG_PART_BLOCK };
/* The thread, its warp or its block is known up to the epoch. */
void vg_clock_learn(struct vg_clock **into, uint32_t block, uint32_t thread, enum vg_part part,
                    uint32_t epoch);
/* The blocks first to first + n - 1 have ended, and are known. */
void vg_clock_end(struct vg_clock **into, uint32_t first, uint32_t n);

/* Up to which epoch the thread is known; 0: not at all. */
uint32_t vg_clock_epoch(const struct vg_clock *clock, uint32_t block, uint32_t thread);

/* A warp that was looked up in a clock. The lanes of a warp ask for those of another one, most of
 * them in the same clock. */
struct vg_looked_up {
    const struct vg_clock *clock; /* NULL: nothing was looked up */
    const struct vg_clock *lanes; /* the warp's node; NULL: all are known up to `known` */
    uint32_t number, known;       /* number: the clock's */
    uint64_t warp;
};
enum { VG_LOOKED_UP = 64 };
void vg_clock_look_up(struct vg_looked_up *into, const struct vg_clock *clock, uint64_t warp);

/* Up to which epoch a thread of the warp that was looked up is known. */
static inline uint32_t vg_looked_up_epoch(const struct vg_looked_up *found, uint32_t thread)
{
    if (found->lanes == NULL) return found->known;
    const uint32_t own = ((const uint32_t *)(const void *)(found->lanes + 1))[thread % 32];
    return own > found->known ? own : found->known;
}

/* As vg_clock_epoch, with what was looked up before. */
static inline uint32_t vg_clock_epoch_again(struct vg_looked_up before[VG_LOOKED_UP],
                                            const struct vg_clock *clock, uint32_t block,
                                            uint32_t thread)
{
    if (clock == NULL) return 0;
    const uint64_t warp = ((uint64_t)block * VG_BLOCK_THREADS + thread) / 32;
    const uint64_t hash = ((uint64_t)(uintptr_t)clock ^ warp) * UINT64_C(0x9e3779b97f4a7c15);
    struct vg_looked_up *at = &before[(hash >> 32) % VG_LOOKED_UP];
    if (at->clock != clock || at->warp != warp || at->number != clock->number)
        vg_clock_look_up(at, clock, warp);
    return vg_looked_up_epoch(at, thread);
}
/* All blocks with lower serial numbers have ended and are known. */
uint32_t vg_clock_ended_below(const struct vg_clock *clock);
/* How many nodes exist: for tests. */
uint64_t vg_clock_nodes(void);

/* calloc, or the end of the process with a message: the virtual GPU cannot go on without. */
void *vg_need(size_t nbytes);

#endif
