/* Host memory that devices can address: allocated, registered, managed. Its address on a device is
 * its address on the host. Managed memory is host memory that says that it is a device's. */
#include "memory_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

void vd_host_unmap(void *bytes, uint64_t nbytes)
{
    munmap(bytes, vd_round_up(nbytes, VD_PAGE));
}

static CUresult publish(struct CUctx_st *context, struct vd_memory *memory, unsigned flags)
{
    memory->context = context;
    memory->device = context->device->gpu.number;
    memory->flags = flags;
    memory->region.bytes = (unsigned char *)(uintptr_t)memory->region.address;
    memory->region.reachable = true;
    const CUresult result = vd_memory_publish(memory);
    if (result != CUDA_SUCCESS) vd_memory_drop(memory);
    return result;
}

/* New pages. */
static CUresult host_alloc(enum vd_memory_kind kind, void **pp, size_t nbytes, unsigned flags,
                           const char *what)
{
    struct CUctx_st *context;
    CUresult result = vd_context(&context);
    if (result == CUDA_SUCCESS) result = vd_capture_unsafe();
    if (result != CUDA_SUCCESS) return result;
    if (nbytes > UINT64_C(1) << 46) return CUDA_ERROR_OUT_OF_MEMORY;
    void *bytes = mmap(NULL, vd_round_up(nbytes, VD_PAGE), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED) {
        vd_say("%s: no host memory for %zu bytes: %s", what, nbytes, strerror(errno));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct vd_memory *memory = vd_memory_new(kind, (uintptr_t)bytes, nbytes, what);
    result = memory == NULL ? CUDA_ERROR_OUT_OF_MEMORY : publish(context, memory, flags);
    if (result != CUDA_SUCCESS)
        vd_host_unmap(bytes, nbytes);
    else
        *pp = bytes;
    return result;
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    const unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    struct CUctx_st *context;
    VD_ENTER();
    CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (pp == NULL || (Flags & ~known) != 0) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (bytesize == 0) {
        *pp = NULL;
        return vd_leave(CUDA_SUCCESS);
    }
    return vd_leave(host_alloc(VD_MEMORY_HOST, pp, bytesize, Flags, "cuMemHostAlloc"));
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    return cuMemHostAlloc(pp, bytesize, 0);
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    void *bytes = NULL;
    VD_ENTER();
    if (dptr == NULL || bytesize == 0 ||
        (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUresult result =
        host_alloc(VD_MEMORY_MANAGED, &bytes, bytesize, flags, "cuMemAllocManaged");
    if (result == CUDA_SUCCESS) *dptr = (uintptr_t)bytes;
    return vd_leave(result);
}

/* Frees or unregisters when all work of the context has ended. */
static CUresult end(struct CUctx_st *context, struct vd_memory *memory)
{
    const uint64_t address = memory->address;
    memory->freeing = true;
    const CUresult result = vd_context_wait(memory->context != NULL ? memory->context : context);
    if (vd_memory_find(address) != memory) return result; /* freed with its context meanwhile */
    vd_memory_release(memory);
    return result;
}

CUresult cuMemFreeHost(void *p)
{
    struct CUctx_st *context;
    VD_ENTER();
    CUresult result = vd_context(&context);
    if (result == CUDA_SUCCESS) result = vd_capture_unsafe();
    if (result != CUDA_SUCCESS || p == NULL) return vd_leave(result);
    struct vd_memory *memory = vd_memory_find((uintptr_t)p);
    if (memory == NULL || memory->kind != VD_MEMORY_HOST || memory->address != (uintptr_t)p ||
        memory->freeing)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    return vd_leave(end(context, memory));
}

/* Whether the process has mapped all of the range, readable and, if asked for, writable. */
static bool is_mapped(uint64_t begin, uint64_t end, bool writable)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    if (maps == NULL) return true; /* without /proc nobody knows */
    while (begin < end && fgets(line, sizeof line, maps) != NULL) {
        uint64_t low, high;
        char mode[5];
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &low, &high, mode) != 3) continue;
        if (high <= begin) continue;
        if (low > begin || mode[0] != 'r' || (writable && mode[1] != 'w')) break;
        begin = high;
    }
    fclose(maps);
    return begin >= end;
}

static bool is_known(uint64_t begin, uint64_t end)
{
    for (const struct vd_memory *m = vd.memories; m != NULL; m = m->next)
        if (m->region.address < end && begin < m->region.address + m->region.nbytes) return true;
    return false;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    const unsigned known =
        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
    const uint64_t begin = (uintptr_t)p;
    struct CUctx_st *context;
    VD_ENTER();
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if ((Flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return vd_leave(CUDA_ERROR_NOT_SUPPORTED);
    if (p == NULL || bytesize == 0 || begin + bytesize < begin || (Flags & ~known) != 0)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (is_known(begin & ~UINT64_C(15), vd_round_up(begin + bytesize, 16)))
        return vd_leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    const bool readonly = (Flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
    if (!is_mapped(begin, begin + bytesize, !readonly)) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    struct vd_memory *memory =
        vd_memory_new(VD_MEMORY_REGISTERED, begin, bytesize, "cuMemHostRegister");
    if (memory == NULL) return vd_leave(CUDA_ERROR_OUT_OF_MEMORY);
    memory->region.readonly = readonly;
    return vd_leave(publish(context, memory, Flags));
}

CUresult cuMemHostUnregister(void *p)
{
    struct CUctx_st *context;
    VD_ENTER();
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    struct vd_memory *memory = vd_memory_find((uintptr_t)p);
    if (memory == NULL || memory->kind != VD_MEMORY_REGISTERED)
        return vd_leave(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    if (memory->address != (uintptr_t)p || memory->freeing)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    return vd_leave(end(context, memory));
}

static const struct vd_memory *find_host(const void *p)
{
    const struct vd_memory *memory = vd_memory_find((uintptr_t)p);
    return memory != NULL && memory->kind >= VD_MEMORY_HOST ? memory : NULL;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    struct CUctx_st *context;
    VD_ENTER();
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (pdptr == NULL || Flags != 0 || find_host(p) == NULL)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *pdptr = (uintptr_t)p;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    struct CUctx_st *context;
    VD_ENTER();
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    const struct vd_memory *memory = find_host(p);
    if (pFlags == NULL || memory == NULL || memory->kind == VD_MEMORY_MANAGED)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *pFlags = memory->flags;
    return vd_leave(CUDA_SUCCESS);
}
