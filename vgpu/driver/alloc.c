/* cuMemAlloc, cuMemFree and what asks about device memory. */
#include "memory_internal.h"

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    struct CUctx_st *context;
    struct vd_memory *memory;
    VD_ENTER();
    CUresult result = vd_context(&context);
    if (result == CUDA_SUCCESS) result = vd_capture_unsafe();
    if (result == CUDA_SUCCESS && (dptr == NULL || bytesize == 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) result = vd_memory_make(context, bytesize, "cuMemAlloc", &memory);
    if (result == CUDA_SUCCESS) *dptr = memory->address;
    return vd_leave(result);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes)
{
    const size_t pitch = vd_round_up(WidthInBytes, 512);
    if (pPitch == NULL || WidthInBytes == 0 || Height == 0 || pitch < WidthInBytes ||
        pitch > SIZE_MAX / Height ||
        (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16))
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = cuMemAlloc_v2(dptr, pitch * Height);
    if (result == CUDA_SUCCESS) *pPitch = pitch;
    return result;
}

/* Memory that cuMemFree frees and that begins at the address. */
static struct vd_memory *freeable(CUdeviceptr address)
{
    struct vd_memory *memory = vd_memory_find(address);
    if (memory == NULL || memory->address != address || memory->freeing) return NULL;
    if (memory->kind == VD_MEMORY_MANAGED) /* no variable */
        return vd_address_reserved(address) ? NULL : memory;
    return memory->kind == VD_MEMORY_DEVICE && memory->backing != NULL ? memory : NULL;
}

/* As a real driver: returns only when all work of the context has ended. */
static CUresult free_memory(CUdeviceptr address)
{
    struct CUctx_st *context;
    CUresult result = vd_context(&context);
    if (result == CUDA_SUCCESS) result = vd_capture_unsafe();
    if (result != CUDA_SUCCESS) return result;
    struct vd_memory *memory = freeable(address);
    if (memory == NULL || (memory->graph && !vd_graph_memory_free(address)))
        return CUDA_ERROR_INVALID_VALUE;
    memory->freeing = !memory->graph; /* another thread may not free it while this one waits */
    struct CUctx_st *owner = memory->context != NULL ? memory->context : context;
    result = vd_context_wait(owner);
    if (owner != context && result == CUDA_SUCCESS) result = vd_context_wait(context);
    if (vd_memory_find(address) != memory) return result; /* freed with its context meanwhile */
    if (memory->graph)
        vd_memory_rest(memory);
    else
        vd_memory_release(memory);
    return result;
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    VD_ENTER();
    return vd_leave(dptr == 0 ? CUDA_SUCCESS : free_memory(dptr));
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    struct CUctx_st *context;
    VD_ENTER();
    CUresult result = vd_context(&context);
    if (result == CUDA_SUCCESS && free == NULL && total == NULL) result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        const struct vd_device *device = context->device;
        if (free != NULL) *free = device->memory - device->used;
        if (total != NULL) *total = device->memory;
    }
    return vd_leave(result);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    VD_ENTER();
    const struct vd_memory *memory = vd_memory_find(dptr);
    if (memory == NULL) return vd_leave(CUDA_ERROR_NOT_FOUND);
    if (pbase != NULL) *pbase = memory->address;
    if (psize != NULL) *psize = memory->nbytes;
    return vd_leave(CUDA_SUCCESS);
}
