/* What a GPU can address: regions of memory, each with its bytes and the model's notes about them.
 *
 * A device address is a number that the host cannot read: the regions' bytes lie elsewhere. Shared
 * and local memory have windows in the generic address space; a global address is its own generic
 * address. */
#ifndef VGPU_MEMORY_H
#define VGPU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VG_SHARED_WINDOW (UINT64_C(1) << 56)
#define VG_LOCAL_WINDOW (UINT64_C(2) << 56)
#define VG_WINDOW_MASK (UINT64_C(3) << 56)
/* Shared memory that the system keeps of each block, for cooperative groups: an offset in the
 * window of shared memory, behind all that a block may have. */
#define VG_RESERVED_SHARED UINT64_C(0x1000000)
enum { VG_RESERVED_BYTES = 1024 };

struct vg_notes; /* the model's, a region's: races, histories */

struct vg_region {
    uint64_t address; /* a multiple of 16 */
    uint64_t nbytes;
    unsigned char *bytes;    /* owner: who made the region */
    unsigned char *defined;  /* a bit a byte that was written, or NULL: not asked for */
    struct vg_notes *notes;  /* NULL until the model needs it; vg_model_forget frees it */
    int device;              /* the GPU that it lies on; -1: the host */
    struct vg_region *alias; /* the next region of the same bytes: a ring; NULL: there is none */
    bool reachable;   /* the host or another process can address the bytes: item 3 of the model */
    bool readonly;    /* kernels may not write: constants, memory of the host */
    uint32_t readers; /* a bit each GPU whose kernels may only read */
    uint32_t lost;    /* a bit each GPU whose kernels' stores are lost, and loads give ones */
    bool freed;       /* kept for a while, for errors that name it */
    const char *what; /* "cuMemAlloc", "variable table of module 2", ... */
    uint64_t number;  /* of the allocation, for errors */
};

/* Sorted by address; regions do not overlap. */
struct vg_regions {
    struct vg_region **at;
    uint32_t n, room;
};

int vg_regions_add(struct vg_regions *regions,
                   struct vg_region *region); /* -1: no memory, or overlaps */
void vg_regions_remove(struct vg_regions *regions, struct vg_region *region);
/* The region that holds the address, or NULL. */
struct vg_region *vg_regions_find(const struct vg_regions *regions, uint64_t address);
/* The region that ends last before the address, or begins first behind it: for errors. NULL: there
 * is none. */
struct vg_region *vg_regions_nearest(const struct vg_regions *regions, uint64_t address);

#endif
