/* The device of each thread, and the primary contexts that the runtime has retained. */
#include "runtime.h"

#include <pthread.h>
#include <stdatomic.h>

enum { DEVICES = 64 };

static _Thread_local int chosen; /* by cudaSetDevice; counts while no context is current */

/* Guarded by lock; context is also read without it. */
static struct {
    _Atomic(CUcontext) context; /* NULL: never retained; kept after a reset */
    atomic_bool retained;
} primaries[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

cudaError_t vr_start(void)
{
    static atomic_bool started;
    if (atomic_load_explicit(&started, memory_order_relaxed)) return cudaSuccess;
    const CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS) atomic_store_explicit(&started, true, memory_order_relaxed);
    return (cudaError_t)result;
}

static cudaError_t check_device(int device)
{
    int ndevices = 0;
    const CUresult result = cuDeviceGetCount(&ndevices);
    if (result != CUDA_SUCCESS) return (cudaError_t)result;
    if (ndevices == 0) return cudaErrorNoDevice;
    return device >= 0 && device < ndevices && device < DEVICES ? cudaSuccess
                                                                : cudaErrorInvalidDevice;
}

static CUresult retain_locked(int device)
{
    CUcontext context;
    const CUresult result = cuDevicePrimaryCtxRetain(&context, device);
    if (result != CUDA_SUCCESS) return result;
    atomic_store(&primaries[device].context, context);
    atomic_store(&primaries[device].retained, true);
    return CUDA_SUCCESS;
}

cudaError_t vr_primary(int device, CUcontext *context)
{
    const cudaError_t error = check_device(device);
    CUresult result = CUDA_SUCCESS;
    if (error != cudaSuccess) return error;
    pthread_mutex_lock(&lock);
    if (!atomic_load(&primaries[device].retained)) result = retain_locked(device);
    *context = atomic_load(&primaries[device].context);
    pthread_mutex_unlock(&lock);
    return (cudaError_t)result;
}

static cudaError_t use(int device)
{
    CUcontext context;
    const cudaError_t error = vr_primary(device, &context);
    return error != cudaSuccess ? error : (cudaError_t)cuCtxSetCurrent(context);
}

/* The context is a primary one that cudaDeviceReset has ended: the next call begins it again. */
static int device_of_ended(CUcontext context)
{
    for (int d = 0; d < DEVICES; d++)
        if (atomic_load(&primaries[d].context) == context)
            return atomic_load(&primaries[d].retained) ? -1 : d;
    return -1; /* one that the program made, or retained itself */
}

cudaError_t vr_enter(void)
{
    CUcontext context;
    const cudaError_t error = vr_start();
    if (error != cudaSuccess) return error;
    const CUresult result = cuCtxGetCurrent(&context);
    if (result != CUDA_SUCCESS) return (cudaError_t)result;
    if (context == NULL) return use(chosen);
    const int ended = device_of_ended(context);
    return ended < 0 ? cudaSuccess : use(ended);
}

cudaError_t cudaSetDevice(int device)
{
    VR_START();
    const cudaError_t error = use(device);
    if (error == cudaSuccess) chosen = device;
    return vr_done(error);
}

cudaError_t cudaGetDevice(int *device)
{
    CUcontext context;
    VR_START();
    if (device == NULL) return vr_done(cudaErrorInvalidValue);
    const CUresult result = cuCtxGetCurrent(&context);
    if (result == CUDA_SUCCESS && context != NULL) return vr_driver_done(cuCtxGetDevice(device));
    *device = chosen;
    return vr_driver_done(result);
}

cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags)
{
    CUcontext context;
    VR_START();
    cudaError_t error = (flags & ~(unsigned)cudaInitDeviceFlagsAreValid) != 0
                            ? cudaErrorInvalidValue
                            : check_device(device);
    if (error == cudaSuccess && (flags & cudaInitDeviceFlagsAreValid) != 0)
        error = (cudaError_t)cuDevicePrimaryCtxSetFlags(device, device_flags);
    return vr_done(error == cudaSuccess ? vr_primary(device, &context) : error);
}

/* The device whose context is current, or that would be. */
static cudaError_t current_device(int *device)
{
    const cudaError_t error = cudaGetDevice(device);
    return error == cudaSuccess ? check_device(*device) : error;
}

cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
    int device;
    const cudaError_t error = current_device(&device);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(cuDevicePrimaryCtxSetFlags(device, flags & ~(unsigned)cudaDeviceMapHost));
}

cudaError_t cudaGetDeviceFlags(unsigned int *flags)
{
    int device, active;
    const cudaError_t error = current_device(&device);
    if (error != cudaSuccess) return vr_done(error);
    const CUresult result = cuDevicePrimaryCtxGetState(device, flags, &active);
    if (result == CUDA_SUCCESS) *flags |= cudaDeviceMapHost;
    return vr_driver_done(result);
}

/* Ends the primary context, whoever else has retained it, and gives up the runtime's own part. */
cudaError_t cudaDeviceReset(void)
{
    int device;
    const cudaError_t error = current_device(&device);
    if (error != cudaSuccess) return vr_done(error);
    pthread_mutex_lock(&lock);
    CUresult result = cuDevicePrimaryCtxReset(device);
    if (atomic_exchange(&primaries[device].retained, false) && result == CUDA_SUCCESS)
        result = cuDevicePrimaryCtxRelease(device);
    pthread_mutex_unlock(&lock);
    return vr_driver_done(result);
}
