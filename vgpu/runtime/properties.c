/* cudaGetDeviceProperties: a struct of attributes. */
#include "runtime.h"

#include <stddef.h>
#include <string.h>

/* A member of type int or unsigned, and the attribute that it is. */
static const struct {
    CUdevice_attribute attribute;
    size_t offset;
} numbers[] = {
#define NUMBER(member, attribute)                                                                  \
    {                                                                                              \
        CU_DEVICE_ATTRIBUTE_##attribute, offsetof(struct cudaDeviceProp, member)                   \
    }
    NUMBER(regsPerBlock, MAX_REGISTERS_PER_BLOCK),
    NUMBER(warpSize, WARP_SIZE),
    NUMBER(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK),
    NUMBER(maxThreadsDim[0], MAX_BLOCK_DIM_X),
    NUMBER(maxThreadsDim[1], MAX_BLOCK_DIM_Y),
    NUMBER(maxThreadsDim[2], MAX_BLOCK_DIM_Z),
    NUMBER(maxGridSize[0], MAX_GRID_DIM_X),
    NUMBER(maxGridSize[1], MAX_GRID_DIM_Y),
    NUMBER(maxGridSize[2], MAX_GRID_DIM_Z),
    NUMBER(major, COMPUTE_CAPABILITY_MAJOR),
    NUMBER(minor, COMPUTE_CAPABILITY_MINOR),
    NUMBER(multiProcessorCount, MULTIPROCESSOR_COUNT),
    NUMBER(integrated, INTEGRATED),
    NUMBER(canMapHostMemory, CAN_MAP_HOST_MEMORY),
    NUMBER(maxTexture1D, MAXIMUM_TEXTURE1D_WIDTH),
    NUMBER(maxTexture1DMipmap, MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH),
    NUMBER(maxTexture2D[0], MAXIMUM_TEXTURE2D_WIDTH),
    NUMBER(maxTexture2D[1], MAXIMUM_TEXTURE2D_HEIGHT),
    NUMBER(maxTexture2DMipmap[0], MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH),
    NUMBER(maxTexture2DMipmap[1], MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT),
    NUMBER(maxTexture2DLinear[0], MAXIMUM_TEXTURE2D_LINEAR_WIDTH),
    NUMBER(maxTexture2DLinear[1], MAXIMUM_TEXTURE2D_LINEAR_HEIGHT),
    NUMBER(maxTexture2DLinear[2], MAXIMUM_TEXTURE2D_LINEAR_PITCH),
    NUMBER(maxTexture2DGather[0], MAXIMUM_TEXTURE2D_GATHER_WIDTH),
    NUMBER(maxTexture2DGather[1], MAXIMUM_TEXTURE2D_GATHER_HEIGHT),
    NUMBER(maxTexture3D[0], MAXIMUM_TEXTURE3D_WIDTH),
    NUMBER(maxTexture3D[1], MAXIMUM_TEXTURE3D_HEIGHT),
    NUMBER(maxTexture3D[2], MAXIMUM_TEXTURE3D_DEPTH),
    NUMBER(maxTexture3DAlt[0], MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE),
    NUMBER(maxTexture3DAlt[1], MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE),
    NUMBER(maxTexture3DAlt[2], MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE),
    NUMBER(maxTextureCubemap, MAXIMUM_TEXTURECUBEMAP_WIDTH),
    NUMBER(maxTexture1DLayered[0], MAXIMUM_TEXTURE1D_LAYERED_WIDTH),
    NUMBER(maxTexture1DLayered[1], MAXIMUM_TEXTURE1D_LAYERED_LAYERS),
    NUMBER(maxTexture2DLayered[0], MAXIMUM_TEXTURE2D_LAYERED_WIDTH),
    NUMBER(maxTexture2DLayered[1], MAXIMUM_TEXTURE2D_LAYERED_HEIGHT),
    NUMBER(maxTexture2DLayered[2], MAXIMUM_TEXTURE2D_LAYERED_LAYERS),
    NUMBER(maxTextureCubemapLayered[0], MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH),
    NUMBER(maxTextureCubemapLayered[1], MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS),
    NUMBER(maxSurface1D, MAXIMUM_SURFACE1D_WIDTH),
    NUMBER(maxSurface2D[0], MAXIMUM_SURFACE2D_WIDTH),
    NUMBER(maxSurface2D[1], MAXIMUM_SURFACE2D_HEIGHT),
    NUMBER(maxSurface3D[0], MAXIMUM_SURFACE3D_WIDTH),
    NUMBER(maxSurface3D[1], MAXIMUM_SURFACE3D_HEIGHT),
    NUMBER(maxSurface3D[2], MAXIMUM_SURFACE3D_DEPTH),
    NUMBER(maxSurface1DLayered[0], MAXIMUM_SURFACE1D_LAYERED_WIDTH),
    NUMBER(maxSurface1DLayered[1], MAXIMUM_SURFACE1D_LAYERED_LAYERS),
    NUMBER(maxSurface2DLayered[0], MAXIMUM_SURFACE2D_LAYERED_WIDTH),
    NUMBER(maxSurface2DLayered[1], MAXIMUM_SURFACE2D_LAYERED_HEIGHT),
    NUMBER(maxSurface2DLayered[2], MAXIMUM_SURFACE2D_LAYERED_LAYERS),
    NUMBER(maxSurfaceCubemap, MAXIMUM_SURFACECUBEMAP_WIDTH),
    NUMBER(maxSurfaceCubemapLayered[0], MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH),
    NUMBER(maxSurfaceCubemapLayered[1], MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS),
    NUMBER(concurrentKernels, CONCURRENT_KERNELS),
    NUMBER(ECCEnabled, ECC_ENABLED),
    NUMBER(pciBusID, PCI_BUS_ID),
    NUMBER(pciDeviceID, PCI_DEVICE_ID),
    NUMBER(pciDomainID, PCI_DOMAIN_ID),
    NUMBER(tccDriver, TCC_DRIVER),
    NUMBER(asyncEngineCount, ASYNC_ENGINE_COUNT),
    NUMBER(unifiedAddressing, UNIFIED_ADDRESSING),
    NUMBER(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH),
    NUMBER(l2CacheSize, L2_CACHE_SIZE),
    NUMBER(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE),
    NUMBER(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR),
    NUMBER(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED),
    NUMBER(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED),
    NUMBER(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED),
    NUMBER(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR),
    NUMBER(managedMemory, MANAGED_MEMORY),
    NUMBER(isMultiGpuBoard, MULTI_GPU_BOARD),
    NUMBER(multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID),
    NUMBER(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED),
    NUMBER(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS),
    NUMBER(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS),
    NUMBER(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED),
    NUMBER(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM),
    NUMBER(cooperativeLaunch, COOPERATIVE_LAUNCH),
    NUMBER(pageableMemoryAccessUsesHostPageTables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES),
    NUMBER(directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST),
    NUMBER(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR),
    NUMBER(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE),
    NUMBER(hostRegisterSupported, HOST_REGISTER_SUPPORTED),
    NUMBER(sparseCudaArraySupported, SPARSE_CUDA_ARRAY_SUPPORTED),
    NUMBER(hostRegisterReadOnlySupported, READ_ONLY_HOST_REGISTER_SUPPORTED),
    NUMBER(timelineSemaphoreInteropSupported, TIMELINE_SEMAPHORE_INTEROP_SUPPORTED),
    NUMBER(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED),
    NUMBER(gpuDirectRDMASupported, GPU_DIRECT_RDMA_SUPPORTED),
    NUMBER(gpuDirectRDMAFlushWritesOptions, GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS),
    NUMBER(gpuDirectRDMAWritesOrdering, GPU_DIRECT_RDMA_WRITES_ORDERING),
    NUMBER(memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES),
    NUMBER(deferredMappingCudaArraySupported, DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED),
    NUMBER(ipcEventSupported, IPC_EVENT_SUPPORTED),
    NUMBER(clusterLaunch, CLUSTER_LAUNCH),
    NUMBER(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS),
    NUMBER(deviceNumaConfig, NUMA_CONFIG),
    NUMBER(deviceNumaId, NUMA_ID),
    NUMBER(mpsEnabled, MPS_ENABLED),
    NUMBER(hostNumaId, HOST_NUMA_ID),
    NUMBER(gpuPciDeviceID, GPU_PCI_DEVICE_ID),
    NUMBER(gpuPciSubsystemID, GPU_PCI_SUBSYSTEM_ID),
    NUMBER(hostNumaMultinodeIpcSupported, HOST_NUMA_MULTINODE_IPC_SUPPORTED),
};

/* A member of type size_t. */
static const struct {
    CUdevice_attribute attribute;
    size_t offset;
} sizes[] = {
    NUMBER(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK),
    NUMBER(memPitch, MAX_PITCH),
    NUMBER(totalConstMem, TOTAL_CONSTANT_MEMORY),
    NUMBER(textureAlignment, TEXTURE_ALIGNMENT),
    NUMBER(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT),
    NUMBER(surfaceAlignment, SURFACE_ALIGNMENT),
    NUMBER(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
    NUMBER(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
    NUMBER(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK),
#undef NUMBER
};

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    struct cudaDeviceProp made;
    CUuuid uuid;
    VR_START();
    if (properties == NULL) return vr_done(cudaErrorInvalidValue);
    memset(&made, 0, sizeof made);
    CUresult result = cuDeviceGetName(made.name, sizeof made.name, device);
    if (result == CUDA_SUCCESS) result = cuDeviceTotalMem(&made.totalGlobalMem, device);
    if (result == CUDA_SUCCESS) result = cuDeviceGetUuid(&uuid, device);
    if (result != CUDA_SUCCESS) return vr_driver_done(result);
    memcpy(&made.uuid, &uuid, sizeof made.uuid);
    /* an attribute that the driver does not know is 0 */
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int value = 0;
        if (cuDeviceGetAttribute(&value, numbers[i].attribute, device) == CUDA_SUCCESS)
            memcpy((char *)&made + numbers[i].offset, &value, sizeof value);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int value = 0;
        if (cuDeviceGetAttribute(&value, sizes[i].attribute, device) != CUDA_SUCCESS) continue;
        const size_t wide = (size_t)value;
        memcpy((char *)&made + sizes[i].offset, &wide, sizeof wide);
    }
    *properties = made;
    return cudaSuccess;
}
