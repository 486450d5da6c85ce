/* Memory in the order of streams, and its pools. */
#include "runtime.h"

_Static_assert(sizeof(struct cudaMemPoolProps) == sizeof(CUmemPoolProps) &&
                   sizeof(struct cudaMemAccessDesc) == sizeof(CUmemAccessDesc) &&
                   sizeof(struct cudaMemLocation) == sizeof(CUmemLocation),
               "descriptions of pools are passed on as they are");

cudaError_t cudaMallocAsync(void **memory, size_t nbytes, cudaStream_t stream)
{
    CUdeviceptr address = 0;
    VR_ENTER();
    if (memory == NULL) return vr_done(cudaErrorInvalidValue);
    const CUresult result = nbytes != 0 ? cuMemAllocAsync(&address, nbytes, stream) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) *memory = vr_pointer(address);
    return vr_driver_done(result);
}

cudaError_t cudaMallocFromPoolAsync(void **memory, size_t nbytes, cudaMemPool_t pool,
                                    cudaStream_t stream)
{
    CUdeviceptr address = 0;
    VR_ENTER();
    if (memory == NULL) return vr_done(cudaErrorInvalidValue);
    const CUresult result =
        nbytes != 0 ? cuMemAllocFromPoolAsync(&address, nbytes, pool, stream) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) *memory = vr_pointer(address);
    return vr_driver_done(result);
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
    VR_ENTER();
    if (memory == NULL) return cudaSuccess;
    return vr_driver_done(cuMemFreeAsync(vr_address(memory), stream));
}

VR_SAME(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * pool, int device),
        cuDeviceGetDefaultMemPool(pool, device))
VR_SAME(cudaDeviceGetMemPool, (cudaMemPool_t * pool, int device), cuDeviceGetMemPool(pool, device))
VR_SAME(cudaDeviceSetMemPool, (int device, cudaMemPool_t pool), cuDeviceSetMemPool(device, pool))
VR_SAME(cudaMemPoolCreate, (cudaMemPool_t * pool, const struct cudaMemPoolProps *properties),
        cuMemPoolCreate(pool, (const CUmemPoolProps *)(const void *)properties))
VR_SAME(cudaMemPoolDestroy, (cudaMemPool_t pool), cuMemPoolDestroy(pool))
VR_SAME(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t nbytes), cuMemPoolTrimTo(pool, nbytes))
VR_SAME(cudaMemPoolSetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value),
        cuMemPoolSetAttribute(pool, (CUmemPool_attribute)attribute, value))
VR_SAME(cudaMemPoolGetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value),
        cuMemPoolGetAttribute(pool, (CUmemPool_attribute)attribute, value))
VR_SAME(cudaMemPoolSetAccess,
        (cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t count),
        cuMemPoolSetAccess(pool, (const CUmemAccessDesc *)(const void *)list, count))
VR_SAME(cudaMemPoolGetAccess,
        (enum cudaMemAccessFlags * flags, cudaMemPool_t pool, struct cudaMemLocation *location),
        cuMemPoolGetAccess((CUmemAccess_flags *)flags, pool, (CUmemLocation *)(void *)location))
VR_SAME(cudaMemGetDefaultMemPool,
        (cudaMemPool_t * pool, struct cudaMemLocation *location, enum cudaMemAllocationType type),
        cuMemGetDefaultMemPool(pool, (CUmemLocation *)(void *)location, (CUmemAllocationType)type))
VR_SAME(cudaMemGetMemPool,
        (cudaMemPool_t * pool, struct cudaMemLocation *location, enum cudaMemAllocationType type),
        cuMemGetMemPool(pool, (CUmemLocation *)(void *)location, (CUmemAllocationType)type))
VR_SAME(cudaMemSetMemPool,
        (struct cudaMemLocation * location, enum cudaMemAllocationType type, cudaMemPool_t pool),
        cuMemSetMemPool((CUmemLocation *)(void *)location, (CUmemAllocationType)type, pool))
VR_SAME(cudaDeviceGraphMemTrim, (int device), cuDeviceGraphMemTrim(device))
VR_SAME(cudaDeviceGetGraphMemAttribute,
        (int device, enum cudaGraphMemAttributeType attribute, void *value),
        cuDeviceGetGraphMemAttribute(device, (CUgraphMem_attribute)attribute, value))
VR_SAME(cudaDeviceSetGraphMemAttribute,
        (int device, enum cudaGraphMemAttributeType attribute, void *value),
        cuDeviceSetGraphMemAttribute(device, (CUgraphMem_attribute)attribute, value))
