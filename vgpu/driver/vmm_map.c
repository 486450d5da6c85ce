/* Virtual memory management: ranges of addresses, and what is mapped there for whom. */
#include "vmm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct reservation {
    uint64_t address, nbytes;
    struct reservation *next;
};
static struct reservation *reservations;

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags)
{
    VD_ENTER();
    if (ptr == NULL || size == 0 || size % VD_GRANULE != 0 || (alignment & (alignment - 1)) != 0 ||
        flags != 0)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    struct reservation *made = calloc(1, sizeof *made);
    if (made == NULL) return vd_leave(CUDA_ERROR_OUT_OF_MEMORY);
    const uint64_t align = alignment < VD_GRANULE ? VD_GRANULE : alignment;
    if (addr != 0 && addr % align == 0 && vd_address_take_at(addr, size))
        made->address = addr;
    else
        made->address = vd_address_take(size, align);
    if (made->address == 0) {
        free(made);
        return vd_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    made->nbytes = size;
    made->next = reservations;
    reservations = made;
    *ptr = made->address;
    return vd_leave(CUDA_SUCCESS);
}

/* The first mapping that touches the range. */
static struct vd_memory *mapped_in(uint64_t address, uint64_t nbytes)
{
    struct vd_memory *first = NULL;
    for (struct vd_memory *m = vd.memories; m != NULL; m = m->next)
        if (m->kind == VD_MEMORY_VMM && m->address < address + nbytes &&
            address < m->address + m->nbytes && (first == NULL || m->address < first->address))
            first = m;
    return first;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    VD_ENTER();
    for (struct reservation **at = &reservations; *at != NULL; at = &(*at)->next) {
        struct reservation *one = *at;
        if (one->address != ptr) continue;
        if (one->nbytes != size || mapped_in(ptr, size) != NULL) break;
        *at = one->next;
        vd_address_give(ptr, size);
        free(one);
        return vd_leave(CUDA_SUCCESS);
    }
    return vd_leave(CUDA_ERROR_INVALID_VALUE);
}

static bool is_reserved(uint64_t address, uint64_t nbytes)
{
    for (const struct reservation *r = reservations; r != NULL; r = r->next)
        if (address >= r->address && nbytes <= r->nbytes &&
            address - r->address <= r->nbytes - nbytes)
            return true;
    return false;
}

static CUresult map(CUdeviceptr ptr, size_t size, struct vd_vmm *vmm)
{
    struct vd_memory *memory = vd_memory_new(VD_MEMORY_VMM, ptr, size, "a VMM mapping");
    if (memory == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    memory->device = memory->region.device = vmm->backing->device;
    memory->backing = vd_backing_get(vmm->backing);
    memory->region.bytes = vmm->backing->bytes;
    memory->region.reachable = vmm->backing->fd >= 0 || vmm->backing->device < 0;
    memory->owner = vmm;
    const CUresult result = vd_memory_publish(memory);
    if (result != CUDA_SUCCESS) {
        vd_memory_drop(memory);
        return result;
    }
    if (++vmm->mappings == 1) return CUDA_SUCCESS;
    /* The model knows bytes by their region: two of them are like two processes. */
    vd_vmm_reachable(vmm);
    for (struct vd_memory *other = vd.memories; other != NULL; other = other->next) {
        if (other == memory || other->kind != VD_MEMORY_VMM || other->owner != vmm) continue;
        vg_model_alias(&memory->region, &other->region);
        break;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    VD_ENTER();
    struct vd_vmm *vmm = vd_vmm_find(handle);
    if (vmm == NULL || size == 0 || offset != 0 || flags != 0 || ptr % VD_GRANULE != 0 ||
        size > vmm->backing->nbytes || !is_reserved(ptr, size))
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (size != vmm->backing->nbytes) return vd_leave(CUDA_ERROR_NOT_SUPPORTED);
    if (mapped_in(ptr, size) != NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    return vd_leave(map(ptr, size, vmm));
}

/* Takes the host's access away. */
static void hide(const struct vd_memory *memory)
{
    if (memory->host_access != PROT_NONE)
        mmap((void *)(uintptr_t)memory->address, memory->nbytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* A kernel may run meanwhile, as with a real driver: it fails when it touches the memory. */
CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    VD_ENTER();
    if (size == 0 || !is_reserved(ptr, size)) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    for (const struct vd_memory *m = vd.memories; m != NULL; m = m->next)
        if (m->kind == VD_MEMORY_VMM && m->address < ptr + size && ptr < m->address + m->nbytes &&
            (m->address < ptr || m->address + m->nbytes > ptr + size))
            return vd_leave(CUDA_ERROR_INVALID_VALUE); /* a part of a mapping */
    struct vd_memory *memory;
    while ((memory = mapped_in(ptr, size)) != NULL) {
        struct vd_vmm *vmm = memory->owner;
        hide(memory);
        vd_memory_retire(memory);
        vmm->mappings--;
        vd_vmm_put(vmm);
    }
    return vd_leave(CUDA_SUCCESS);
}

/* The host reads, or reads and writes, host memory at the mapping's own address. */
static CUresult show(struct vd_memory *memory, int access)
{
    if (memory->backing->device >= 0) return CUDA_ERROR_INVALID_VALUE;
    if (memory->host_access == access) return CUDA_SUCCESS;
    const CUresult result = vd_backing_share(memory->backing, VD_SHARE_VMM);
    if (result != CUDA_SUCCESS) return result;
    if (mmap((void *)(uintptr_t)memory->address, memory->nbytes, access, MAP_SHARED | MAP_FIXED,
             memory->backing->fd, 0) == MAP_FAILED) {
        vd_say("cuMemSetAccess for the host: mmap of %llu bytes failed: %s",
               (unsigned long long)memory->nbytes, strerror(errno));
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    memory->host_access = access;
    return CUDA_SUCCESS;
}

static CUresult check(const CUmemAccessDesc *desc, const struct vd_memory *memory)
{
    const int id = desc->location.id;
    if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return memory->backing->device < 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (id < 0 || id >= vd.ndevices) return CUDA_ERROR_INVALID_DEVICE;
    const int on = memory->backing->device;
    return on < 0 || on == id || vd.devices[id].peers[on] ? CUDA_SUCCESS
                                                          : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult set_access(struct vd_memory *memory, const CUmemAccessDesc *desc)
{
    const bool on = desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    const bool writes = desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        if (on) return show(memory, writes ? PROT_READ | PROT_WRITE : PROT_READ);
        hide(memory);
        memory->host_access = PROT_NONE;
        return CUDA_SUCCESS;
    }
    const uint32_t gpu = 1u << desc->location.id;
    if (on && !writes)
        memory->region.readers |= gpu;
    else
        memory->region.readers &= ~gpu;
    if (on) return vd_memory_add_device(memory, desc->location.id);
    vd_memory_remove_device(memory, desc->location.id);
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    VD_ENTER();
    if (desc == NULL || count == 0 || size == 0 || !is_reserved(ptr, size))
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    for (uint64_t at = ptr; at < ptr + size;) { /* whole mappings, without holes */
        const struct vd_memory *memory = vd_memory_find(at);
        if (memory == NULL || memory->address != at || memory->nbytes > ptr + size - at)
            return vd_leave(CUDA_ERROR_INVALID_VALUE);
        for (size_t i = 0; i < count; i++) {
            const CUresult result = check(&desc[i], memory);
            if (result != CUDA_SUCCESS) return vd_leave(result);
        }
        at += memory->nbytes;
    }
    for (uint64_t at = ptr; at < ptr + size;) {
        struct vd_memory *memory = vd_memory_find(at);
        for (size_t i = 0; i < count; i++) {
            const CUresult result = set_access(memory, &desc[i]);
            if (result != CUDA_SUCCESS) return vd_leave(result);
        }
        at += memory->nbytes;
    }
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    VD_ENTER();
    const struct vd_memory *memory = vd_memory_find(ptr);
    if (flags == NULL || location == NULL || memory == NULL || memory->kind != VD_MEMORY_VMM)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    bool on = memory->host_access != PROT_NONE, writes = (memory->host_access & PROT_WRITE) != 0;
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        if (location->id < 0 || location->id >= vd.ndevices)
            return vd_leave(CUDA_ERROR_INVALID_DEVICE);
        on = (memory->devices >> location->id & 1) != 0;
        writes = (memory->region.readers >> location->id & 1) == 0;
    }
    *flags = !on      ? CU_MEM_ACCESS_FLAGS_PROT_NONE
             : writes ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                      : CU_MEM_ACCESS_FLAGS_PROT_READ;
    return vd_leave(CUDA_SUCCESS);
}
