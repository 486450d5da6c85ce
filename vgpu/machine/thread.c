/* Single accesses of one thread by an address: for copies, mbarriers and printf; local memory; the
 * fault of an address that no region holds. */
#include "machine_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

unsigned char *vg_local(struct vg_warp *warp, uint32_t lane)
{
    const struct vg_run *run = warp->block->run;
    if (warp->local == NULL) warp->local = calloc(VG_LANES, run->local_room);
    return warp->local == NULL ? NULL : warp->local + (size_t)lane * run->local_room;
}

enum vg_step vg_outside(struct vg_warp *warp, uint32_t lane, const struct vg_instr *in,
                        uint64_t address, uint32_t nbytes, bool write)
{
    const struct vg_run *run = warp->block->run;
    const struct vg_region *near = vg_regions_find(run->launch.gpu->regions, address);
    const char *verb = write ? "writes" : "reads";
    if (near == NULL) near = vg_regions_nearest(run->launch.gpu->regions, address);
    if (near == NULL)
        return vg_fail(warp, lane, in, VG_FAULT_ADDRESS,
                       "%s %u bytes at 0x%" PRIx64 ", GPU %d has no memory", verb, nbytes, address,
                       run->launch.gpu->number);
    if (near->freed && address - near->address < near->nbytes)
        return vg_fail(warp, lane, in, VG_FAULT_ADDRESS,
                       "%s %u bytes at 0x%" PRIx64 " after they were freed: offset %" PRIu64
                       " of %s (allocation %" PRIu64 ", %" PRIu64 " bytes)",
                       verb, nbytes, address, address - near->address, near->what, near->number,
                       near->nbytes);
    const bool before = address < near->address;
    const uint64_t by =
        before ? near->address - address : address + nbytes - (near->address + near->nbytes);
    return vg_fail(warp, lane, in, VG_FAULT_ADDRESS,
                   "%s %u bytes at 0x%" PRIx64 ", %" PRIu64 " bytes %s of %s (allocation %" PRIu64
                   ", %" PRIu64 " bytes at 0x%" PRIx64 ")",
                   verb, nbytes, address, by, before ? "before the begin" : "beyond the end",
                   near->what, near->number, near->nbytes, near->address);
}

struct vg_region *vg_thread_find(struct vg_warp *warp, uint32_t lane, const struct vg_instr *in,
                                 enum vg_space space, uint64_t address, uint32_t nbytes, bool write,
                                 uint64_t *offset)
{
    struct vg_run *run = warp->block->run;
    if (address % nbytes != 0) {
        vg_fail(warp, lane, in, VG_FAULT_MISALIGNED,
                "%s %u bytes at 0x%" PRIx64 ", which is not a multiple of %u",
                write ? "writes" : "reads", nbytes, address, nbytes);
        return NULL;
    }
    const bool shared =
        space == VG_SHARED || (space == VG_GENERIC && (address >> 56) == (VG_SHARED_WINDOW >> 56));
    if (shared) {
        *offset = address & ~VG_WINDOW_MASK;
        if (*offset + nbytes <= warp->block->shared.nbytes) return &warp->block->shared;
        vg_fail(warp, lane, in, VG_FAULT_ADDRESS,
                "%s %u bytes at 0x%" PRIx64 " of shared memory, the block has %" PRIu64 " bytes",
                write ? "writes" : "reads", nbytes, *offset, warp->block->shared.nbytes);
        return NULL;
    }
    struct vg_region *region = vg_regions_find(run->launch.gpu->regions, address);
    if (region == NULL || region->freed || region->nbytes < nbytes ||
        address - region->address > region->nbytes - nbytes) {
        vg_outside(warp, lane, in, address, nbytes, write);
        return NULL;
    }
    *offset = address - region->address;
    return region;
}

bool vg_thread_load(struct vg_warp *warp, uint32_t lane, const struct vg_instr *in,
                    enum vg_space space, uint64_t address, const struct vg_how *how, void *value)
{
    uint64_t offset;
    struct vg_region *region =
        vg_thread_find(warp, lane, in, space, address, how->nbytes, false, &offset);
    if (region == NULL) return false;
    if (region->defined != NULL && !vg_defined(region, offset, how->nbytes)) {
        vg_undefined(warp, lane, in, region, address, how->nbytes);
        return false;
    }
    vg_model_load(warp->block->clock, warp->number * VG_LANES + lane, region, offset, how, value);
    return true;
}

bool vg_thread_store(struct vg_warp *warp, uint32_t lane, const struct vg_instr *in,
                     enum vg_space space, uint64_t address, const struct vg_how *how,
                     const void *value)
{
    uint64_t offset;
    struct vg_region *region =
        vg_thread_find(warp, lane, in, space, address, how->nbytes, true, &offset);
    if (region == NULL) return false;
    if (region->defined != NULL) vg_define(region, offset, how->nbytes);
    vg_model_store(warp->block->clock, warp->number * VG_LANES + lane, region, offset, how, value);
    return true;
}

bool vg_peek(struct vg_warp *warp, uint32_t lane, uint64_t address, void *bytes, uint64_t nbytes)
{
    const struct vg_run *run = warp->block->run;
    const uint64_t window = address & VG_WINDOW_MASK;
    const unsigned char *from = NULL;
    uint64_t offset = address & ~VG_WINDOW_MASK, room = 0;
    if (window == VG_SHARED_WINDOW) {
        from = warp->block->shared.bytes;
        room = warp->block->shared.nbytes;
    } else if (window == VG_LOCAL_WINDOW) {
        from = vg_local(warp, lane);
        room = run->local_room;
    } else if (window == VG_PARAM_WINDOW) {
        from = run->params;
        room = run->launch.kernel->param_bytes;
    } else {
        const struct vg_region *region = vg_regions_find(run->launch.gpu->regions, address);
        if (region == NULL || region->freed) return false;
        from = region->bytes;
        offset = address - region->address;
        room = region->nbytes;
    }
    if (from == NULL || offset > room || nbytes > room - offset) return false;
    memcpy(bytes, from + offset, nbytes);
    return true;
}
