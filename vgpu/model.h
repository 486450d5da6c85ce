/* PTX's memory model, run: who may read what, and which accesses race.
 * Source: PTX ISA 9.0, chapter 8 (Memory Consistency Model).
 *
 * The model knows threads, blocks, grids and orders between grids, not instructions. One host
 * thread calls it. A seed decides everything that the model leaves open. With model.off it only
 * moves bytes. */
#ifndef VGPU_MODEL_H
#define VGPU_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <vgpu/code.h>
#include <vgpu/memory.h>

enum vg_reads { VG_READ_RANDOM, VG_READ_NEWEST, VG_READ_OLDEST };

struct vg_how {     /* an access, as its instruction says it; constant for the instruction */
    uint8_t nbytes; /* 1, 2, 4, 8, 16: one scalar access */
    uint8_t order;  /* enum vg_order: WEAK, RELAXED, ACQUIRE, RELEASE, ACQ_REL */
    uint8_t scope;  /* enum vg_scope */
    bool nc;        /* ld.global.nc */
    bool red;       /* red: what it reads is part of no acquire pattern (8.8) */
    bool engine;    /* of a copy or fill of the driver's: weak, but no race with a strong access of
                     * scope .sys, so that a copy may set or read a flag; who reads one acquires it.
                     * The manual says nothing about copies. */
    uint64_t where; /* given back in reports: the machine's name for the instruction */
};

struct vg_party {
    uint64_t grid; /* number of the grid, as given to vg_model_grid_begin */
    uint64_t block;
    uint32_t thread;
    uint64_t where;
    bool write, atomic, nc;
    bool copy; /* of a copy that runs beside the thread: cp.async */
    uint8_t order, scope, nbytes;
    uint64_t address;
};

struct vg_race {
    struct vg_party first,
        second; /* in the order in which they ran; second is the one that is running */
    const struct vg_region *region;
    bool alias;       /* first used another address of the same memory */
    const char *mend; /* what would order them, a sentence */
    bool polled; /* second waits by plain loads for memory that others write: there is no first */
};

struct vg_model_settings {
    uint64_t seed;
    enum vg_reads reads;
    bool off;       /* no races, no histories, no buffers: bytes only */
    uint32_t depth; /* writes of a word that are kept, 2 to 16; 0: 8 */
    uint32_t late; /* a write is seen by everybody after so many accesses at the latest; 0: 10000 */
    void (*race)(void *arg, const struct vg_race *race); /* each pair of places once */
    void *arg;
};

struct vg_model;
struct vg_past; /* what has happened before: grids and copies that have ended. Streams and events
                   have one each. */
struct vg_grid_clock;
struct vg_block_clock;

struct vg_model *vg_model_create(const struct vg_model_settings *settings);
void vg_model_destroy(struct vg_model *model);

struct vg_past *vg_past_create(void);
void vg_past_destroy(struct vg_past *past);
void vg_past_join(struct vg_past *past, const struct vg_past *other);

/* A grid begins after all of `before` and, when it ends, is added to `after`. number is given back
 * in reports. The driver's own copies and fills are grids of one block of one thread. NULL: no
 * memory. */
struct vg_grid_clock *vg_model_grid_begin(struct vg_model *model, uint64_t number, int device,
                                          uint64_t nblocks, uint32_t nthreads,
                                          const struct vg_past *before);
/* To be called at each launch with what the launch follows. The host may have read all that was
 * released at scope .sys to reachable memory and has left the buffers, and may launch because of
 * it: the grid begins after these releases. That orders more than a host did that has not looked.
 */
void vg_model_published(const struct vg_model *model, struct vg_past *past);
/* The host knows what `past` knows: it may tell kernels that run, by a word of memory that both can
 * reach. Who acquires what the host writes from now on knows it too. */
void vg_model_host_knows(struct vg_model *model, const struct vg_past *past);
void vg_model_grid_end(struct vg_grid_clock *grid, struct vg_past *after);
struct vg_block_clock *vg_model_block_begin(struct vg_grid_clock *grid, uint64_t block);
void vg_model_block_end(struct vg_block_clock *block);

/* One thread's scalar access of how->nbytes bytes at region->bytes + offset, which lies in the
 * region and is aligned. */
void vg_model_load(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                   uint64_t offset, const struct vg_how *how, void *value);
void vg_model_store(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                    uint64_t offset, const struct vg_how *how, const void *value);
/* Counts as weak loads or stores of all these bytes, but only noted: the caller moves them, from
 * or to region->bytes. For copies and fills of any length and alignment. */
void vg_model_bulk(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                   uint64_t offset, uint64_t nbytes, bool write);
/* Reads the newest value, writes change(old). Returns the old value in old. change returns false:
 * nothing is written (a compare and swap that failed). */
typedef bool vg_change(void *arg, const void *old, void *value);
void vg_model_rmw(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                  uint64_t offset, const struct vg_how *how, vg_change *change, void *arg,
                  void *old);
/* An acquire operation there that reads what the thread's strong reads there have read: a thread
 * that knows only when it has read a value that it acquires it (mbarrier.test_wait). */
void vg_model_acquire(struct vg_block_clock *block, uint32_t thread, const struct vg_region *region,
                      uint64_t offset, enum vg_scope scope);
void vg_model_fence(struct vg_block_clock *block, uint32_t thread, enum vg_order order,
                    enum vg_scope scope);

/* fence.proxy.alias: orders what the thread knows before what knows the fence, also at other
 * addresses of the same memory. */
void vg_model_fence_alias(struct vg_block_clock *block, uint32_t thread);

/* Copies that run beside their thread (cp.async). A thread's copies carry numbers from 1 on, which
 * never decrease; copies of one number are waited for together.
 * note: the copy reads or writes these bytes (a weak access of how->nbytes) at any time from now
 * on. It follows what the thread has done so far. Who does not know that the number is complete is
 * not ordered after it, the thread itself included.
 * read, write: the bytes move now; nothing is noted.
 * complete: the thread knows all its copies up to the number.
 * arrive: as vg_model_rmw by the thread's copies, a release that gives away their completion up to
 * the number, and nothing else of what the thread did (8.9.1.1). */
void vg_model_copy_note(struct vg_block_clock *block, uint32_t thread, uint32_t number,
                        struct vg_region *region, uint64_t offset, const struct vg_how *how,
                        bool write);
void vg_model_copy_read(struct vg_block_clock *block, struct vg_region *region, uint64_t offset,
                        uint32_t nbytes, void *value);
void vg_model_copy_write(struct vg_block_clock *block, struct vg_region *region, uint64_t offset,
                         uint32_t nbytes, const void *value);
void vg_model_copy_complete(struct vg_block_clock *block, uint32_t thread, uint32_t number);
void vg_model_copy_arrive(struct vg_block_clock *block, uint32_t thread, uint32_t number,
                          struct vg_region *region, uint64_t offset, const struct vg_how *how,
                          vg_change *change, void *arg, void *old);

/* These threads of the block have come to barrier `number` (0 to 15) by bar.arrive: what they did
 * up to here is known to those who meet there, and what they do from here on is not. A bit a
 * thread. */
void vg_model_arrive(struct vg_block_clock *block, uint32_t number, const uint64_t *threads);
/* These threads of the block met at barrier `number`: each knows afterwards all that each knew
 * before, and all of those that arrived. A bit a thread. */
void vg_model_barrier(struct vg_block_clock *block, uint32_t number, const uint64_t *threads);
/* The thread waited by weak loads, as how says, for reachable memory, and the value changed while
 * it did: somebody writes there at the same time. Reported once a place. */
void vg_model_polled(struct vg_block_clock *block, uint32_t thread, const struct vg_region *region,
                     uint64_t offset, const struct vg_how *how);
/* Lanes of one warp met at bar.warp.sync: as a barrier of those lanes. The .sync of shuffles,
 * votes, match and redux orders no memory accesses: the machine does not call this for them. */
void vg_model_warp(struct vg_block_clock *block, uint32_t warp, uint32_t lanes);

/* The region has the same bytes as the other one, at another address. Both are reachable. */
void vg_model_alias(struct vg_region *region, struct vg_region *other);
/* The region is about to be freed or reused. */
void vg_model_forget(struct vg_model *model, struct vg_region *region);
/* The host or another process can address the region from now on. Accesses up to now race with
 * nothing any more; what strong writes there have released may still be acquired. */
void vg_model_share(struct vg_model *model, struct vg_region *region);
/* Everything that is held back in buffers of a reachable region becomes visible. */
void vg_model_flush(struct vg_model *model, int device);
/* How many relaxed loads have returned an older value, how many races were found, ...: for tests
 * and --stats. */
struct vg_model_counts {
    uint64_t loads, stores, rmws, fences, older, races;
};
void vg_model_count(const struct vg_model *model, struct vg_model_counts *counts);

#endif
