/* Hints about managed memory, which is pinned host memory here: they are checked and change
 * nothing. Pools by location. */
#include "memory_internal.h"

#include <string.h>

static bool is_location(const CUmemLocation *location)
{
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return location->type == CU_MEM_LOCATION_TYPE_HOST ||
               location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
               location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    return location->id >= 0 && location->id < vd.ndevices;
}

static bool is_managed(CUdeviceptr address, size_t nbytes)
{
    const struct vd_memory *memory = vd_memory_find(address);
    return memory != NULL && memory->kind == VD_MEMORY_MANAGED && nbytes > 0 &&
           nbytes <= memory->address + memory->nbytes - address;
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location)
{
    VD_ENTER();
    if (!is_managed(devPtr, count) || advice < CU_MEM_ADVISE_SET_READ_MOSTLY ||
        advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    return vd_leave(is_location(&location) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

static CUresult prefetch(CUdeviceptr address, size_t nbytes, const CUmemLocation *location,
                         unsigned flags, CUstream handle, bool per_thread)
{
    struct CUstream_st *stream;
    const CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (!is_managed(address, nbytes) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return is_location(location) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

VD_PER_THREAD(cuMemPrefetchAsync_v2_ptsz, cuMemPrefetchAsync_v2);
VD_PER_THREAD(cuStreamAttachMemAsync_ptsz, cuStreamAttachMemAsync);

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream)
{
    VD_ENTER();
    return vd_leave(prefetch(devPtr, count, &location, flags, hStream, false));
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                    unsigned int flags, CUstream hStream)
{
    VD_ENTER();
    return vd_leave(prefetch(devPtr, count, &location, flags, hStream, true));
}

static CUresult attach(CUstream handle, CUdeviceptr address, unsigned flags, bool per_thread)
{
    struct CUstream_st *stream;
    const CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (!is_managed(address, 1) || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
                                    flags != CU_MEM_ATTACH_SINGLE))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                unsigned int flags)
{
    (void)length;
    VD_ENTER();
    return vd_leave(attach(hStream, dptr, flags, false));
}

CUresult cuStreamAttachMemAsync_ptsz(CUstream hStream, CUdeviceptr dptr, size_t length,
                                     unsigned int flags)
{
    (void)length;
    VD_ENTER();
    return vd_leave(attach(hStream, dptr, flags, true));
}

/* ---- pools by location: those of devices ---- */

static bool is_device_pool(const void *out, const CUmemLocation *location, CUmemAllocationType type)
{
    return out != NULL && location != NULL && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
           type == CU_MEM_ALLOCATION_TYPE_PINNED;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                CUmemAllocationType type)
{
    if (!is_device_pool(pool_out, location, type)) return CUDA_ERROR_INVALID_VALUE;
    return cuDeviceGetDefaultMemPool(pool_out, location->id);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    if (!is_device_pool(pool, location, type)) return CUDA_ERROR_INVALID_VALUE;
    return cuDeviceGetMemPool(pool, location->id);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    if (!is_device_pool(location, location, type)) return CUDA_ERROR_INVALID_VALUE;
    return cuDeviceSetMemPool(location->id, pool);
}
