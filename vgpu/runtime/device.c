/* Devices: how many, their attributes and limits, and access from one to another. */
#include "runtime.h"

cudaError_t cudaGetDeviceCount(int *count)
{
    if (count == NULL) return vr_done(cudaErrorInvalidValue);
    *count = 0;
    VR_START();
    const CUresult result = cuDeviceGetCount(count);
    return vr_done(result == CUDA_SUCCESS && *count == 0 ? cudaErrorNoDevice : (cudaError_t)result);
}

/* Attributes have the driver's numbers. */
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    VR_START();
    return vr_driver_done(cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device));
}

cudaError_t cudaDriverGetVersion(int *version)
{
    return vr_driver_done(cuDriverGetVersion(version));
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    if (version == NULL) return vr_done(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int room, int device)
{
    VR_START();
    return vr_driver_done(cuDeviceGetPCIBusId(id, room, device));
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *id)
{
    VR_START();
    return vr_driver_done(cuDeviceGetByPCIBusId(device, id));
}

/* All virtual GPUs are alike: the first one that is as capable as asked, or just the first one. */
cudaError_t cudaChooseDevice(int *device, const struct cudaDeviceProp *asked)
{
    int ndevices;
    const cudaError_t error = cudaGetDeviceCount(&ndevices);
    if (error != cudaSuccess) return error;
    if (device == NULL || asked == NULL) return vr_done(cudaErrorInvalidValue);
    *device = 0;
    return cudaSuccess;
}

/* ---- of the current device ---- */

VR_SAME(cudaDeviceSynchronize, (void), cuCtxSynchronize())
VR_SAME(cudaDeviceSetLimit, (enum cudaLimit limit, size_t value),
        cuCtxSetLimit((CUlimit)limit, value))
VR_SAME(cudaDeviceGetLimit, (size_t * value, enum cudaLimit limit),
        cuCtxGetLimit(value, (CUlimit)limit))
VR_SAME(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest),
        cuCtxGetStreamPriorityRange(least, greatest))
VR_SAME(cudaDeviceSetCacheConfig, (enum cudaFuncCache cache),
        cuCtxSetCacheConfig((CUfunc_cache)cache))
VR_SAME(cudaDeviceGetCacheConfig, (enum cudaFuncCache * cache),
        cuCtxGetCacheConfig((CUfunc_cache *)cache))
VR_SAME(cudaCtxResetPersistingL2Cache, (void), cuCtxResetPersistingL2Cache())
VR_SAME(cudaDeviceFlushGPUDirectRDMAWrites,
        (enum cudaFlushGPUDirectRDMAWritesTarget target,
         enum cudaFlushGPUDirectRDMAWritesScope scope),
        cuFlushGPUDirectRDMAWrites((CUflushGPUDirectRDMAWritesTarget)target,
                                   (CUflushGPUDirectRDMAWritesScope)scope))

/* Banks of shared memory have one width since compute capability 5.0. */
cudaError_t cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig config)
{
    VR_ENTER();
    (void)config;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetSharedMemConfig(enum cudaSharedMemConfig *config)
{
    VR_ENTER();
    if (config == NULL) return vr_done(cudaErrorInvalidValue);
    *config = cudaSharedMemBankSizeFourByte;
    return cudaSuccess;
}

/* ---- two devices ---- */

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    VR_START();
    return vr_driver_done(cuDeviceCanAccessPeer(can, device, peer));
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int device,
                                      int peer)
{
    VR_START();
    return vr_driver_done(
        cuDeviceGetP2PAttribute(value, (CUdevice_P2PAttribute)attribute, device, peer));
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    CUcontext context;
    VR_ENTER();
    const cudaError_t error = vr_primary(peer, &context);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(cuCtxEnablePeerAccess(context, flags));
}

cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    CUcontext context;
    VR_ENTER();
    const cudaError_t error = vr_primary(peer, &context);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(cuCtxDisablePeerAccess(context));
}

/* ---- functions of the driver ---- */

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function,
                                             unsigned int version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    VR_START();
    const CUresult result = cuGetProcAddress(name, function, (int)version, flags, &found);
    if (status != NULL) *status = (enum cudaDriverEntryPointQueryResult)found;
    return vr_driver_done(result);
}

cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status)
{
    return cudaGetDriverEntryPointByVersion(name, function, CUDART_VERSION, flags, status);
}

__attribute__((visibility("default"))) cudaError_t
cudaGetDriverEntryPoint_ptsz(const char *name, void **function, unsigned long long flags,
                             enum cudaDriverEntryPointQueryResult *status);
cudaError_t cudaGetDriverEntryPoint_ptsz(const char *name, void **function,
                                         unsigned long long flags,
                                         enum cudaDriverEntryPointQueryResult *status)
{
    flags |= cudaEnablePerThreadDefaultStream;
    return cudaGetDriverEntryPointByVersion(name, function, CUDART_VERSION, flags, status);
}

/* ---- profilers: there is none that could be turned on ---- */

VR_SAME(cudaProfilerStart, (void), CUDA_SUCCESS)
VR_SAME(cudaProfilerStop, (void), CUDA_SUCCESS)
