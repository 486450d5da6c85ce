/* What kernels are and need: attributes, preferences, occupancy. */
#include "runtime.h"

static CUresult attribute(CUfunction handle, CUfunction_attribute which, int *value)
{
    return cuFuncGetAttribute(value, which, handle);
}

static cudaError_t attributes(CUfunction handle, struct cudaFuncAttributes *made)
{
    int shared = 0, constant = 0, local = 0;
    const struct {
        CUfunction_attribute which;
        int *value;
    } all[] = {
        {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &shared},
        {CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, &constant},
        {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &local},
        {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &made->maxThreadsPerBlock},
        {CU_FUNC_ATTRIBUTE_NUM_REGS, &made->numRegs},
        {CU_FUNC_ATTRIBUTE_PTX_VERSION, &made->ptxVersion},
        {CU_FUNC_ATTRIBUTE_BINARY_VERSION, &made->binaryVersion},
        {CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, &made->cacheModeCA},
        {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &made->maxDynamicSharedSizeBytes},
        {CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, &made->preferredShmemCarveout},
        {CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, &made->clusterDimMustBeSet},
        {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, &made->requiredClusterWidth},
        {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, &made->requiredClusterHeight},
        {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, &made->requiredClusterDepth},
        {CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
         &made->clusterSchedulingPolicyPreference},
        {CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, &made->nonPortableClusterSizeAllowed},
    };
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < sizeof all / sizeof *all && result == CUDA_SUCCESS; i++)
        result = attribute(handle, all[i].which, all[i].value);
    made->sharedSizeBytes = (size_t)shared;
    made->constSizeBytes = (size_t)constant;
    made->localSizeBytes = (size_t)local;
    return (cudaError_t)result;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *to, const void *function)
{
    CUfunction handle;
    struct cudaFuncAttributes made = {.numRegs = 0};
    VR_ENTER();
    if (to == NULL) return vr_done(cudaErrorInvalidValue);
    cudaError_t error = vr_function(function, &handle);
    if (error == cudaSuccess) error = attributes(handle, &made);
    if (error == cudaSuccess) *to = made;
    return vr_done(error);
}

static cudaError_t find(const void *function, CUfunction *handle)
{
    const cudaError_t error = vr_enter();
    return error != cudaSuccess ? error : vr_function(function, handle);
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute which, int value)
{
    CUfunction handle;
    const cudaError_t error = find(function, &handle);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(cuFuncSetAttribute(handle, (CUfunction_attribute)which, value));
}

VR_SAME(cudaKernelSetAttributeForDevice,
        (cudaKernel_t kernel, enum cudaFuncAttribute which, int value, int device),
        cuKernelSetAttribute((CUfunction_attribute)which, value, kernel, device))

cudaError_t cudaFuncSetCacheConfig(const void *function, enum cudaFuncCache cache)
{
    CUfunction handle;
    const cudaError_t error = find(function, &handle);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(cuFuncSetCacheConfig(handle, (CUfunc_cache)cache));
}

cudaError_t cudaFuncSetSharedMemConfig(const void *function, enum cudaSharedMemConfig config)
{
    CUfunction handle;
    const cudaError_t error = find(function, &handle);
    if (error != cudaSuccess) return vr_done(error);
    (void)config; /* banks have one width */
    return cudaSuccess;
}

cudaError_t cudaFuncGetName(const char **name, const void *function)
{
    CUfunction handle;
    const cudaError_t error = find(function, &handle);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(cuFuncGetName(name, handle));
}

cudaError_t cudaFuncGetParamInfo(const void *function, size_t index, size_t *offset, size_t *nbytes)
{
    CUfunction handle;
    const cudaError_t error = find(function, &handle);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(cuFuncGetParamInfo(handle, index, offset, nbytes));
}

/* ---- occupancy ---- */

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *nblocks,
                                                                   const void *function,
                                                                   int block_size, size_t shared,
                                                                   unsigned int flags)
{
    CUfunction handle;
    const cudaError_t error = find(function, &handle);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        nblocks, handle, block_size, shared, flags));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *nblocks, const void *function,
                                                          int block_size, size_t shared)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(nblocks, function, block_size,
                                                                  shared, 0);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *shared, const void *function,
                                                      int nblocks, int block_size)
{
    CUfunction handle;
    const cudaError_t error = find(function, &handle);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(
        cuOccupancyAvailableDynamicSMemPerBlock(shared, handle, nblocks, block_size));
}
