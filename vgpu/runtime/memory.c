/* Memory of devices and of the host: allocated, registered, asked about, shared with processes. */
#include "runtime.h"

#include <string.h>

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle) &&
                   sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle),
               "handles of other processes are passed on as they are");

/* ---- of the device ---- */

cudaError_t cudaMalloc(void **memory, size_t nbytes)
{
    CUdeviceptr address = 0;
    VR_ENTER();
    if (memory == NULL) return vr_done(cudaErrorInvalidValue);
    const CUresult result = nbytes != 0 ? cuMemAlloc(&address, nbytes) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) *memory = vr_pointer(address);
    return vr_driver_done(result);
}

VR_SAME(cudaFree, (void *memory), cuMemFree(vr_address(memory)))
VR_SAME(cudaMemGetInfo, (size_t * free, size_t *total), cuMemGetInfo(free, total))

static cudaError_t allocate_rows(void **memory, size_t *pitch, size_t width, size_t height)
{
    CUdeviceptr address = 0;
    CUresult result = CUDA_SUCCESS;
    *pitch = 0;
    if (width != 0 && height != 0) result = cuMemAllocPitch(&address, pitch, width, height, 4);
    if (result == CUDA_SUCCESS) *memory = vr_pointer(address);
    return (cudaError_t)result;
}

cudaError_t cudaMallocPitch(void **memory, size_t *pitch, size_t width, size_t height)
{
    VR_ENTER();
    if (memory == NULL || pitch == NULL) return vr_done(cudaErrorInvalidValue);
    return vr_done(allocate_rows(memory, pitch, width, height));
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *memory, struct cudaExtent extent)
{
    struct cudaPitchedPtr made = {.xsize = extent.width, .ysize = extent.height};
    size_t rows;
    VR_ENTER();
    if (memory == NULL || __builtin_mul_overflow(extent.height, extent.depth, &rows))
        return vr_done(cudaErrorInvalidValue);
    const cudaError_t error = allocate_rows(&made.ptr, &made.pitch, extent.width, rows);
    if (error == cudaSuccess) *memory = made;
    return vr_done(error);
}

/* ---- of the host ---- */

cudaError_t cudaHostAlloc(void **memory, size_t nbytes, unsigned int flags)
{
    VR_ENTER();
    if (memory == NULL) return vr_done(cudaErrorInvalidValue);
    if (nbytes == 0) *memory = NULL;
    return vr_driver_done(nbytes != 0 ? cuMemHostAlloc(memory, nbytes, flags) : CUDA_SUCCESS);
}

cudaError_t cudaMallocHost(void **memory, size_t nbytes)
{
    return cudaHostAlloc(memory, nbytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *memory)
{
    VR_ENTER();
    return vr_driver_done(memory != NULL ? cuMemFreeHost(memory) : CUDA_SUCCESS);
}

cudaError_t cudaMallocManaged(void **memory, size_t nbytes, unsigned int flags)
{
    CUdeviceptr address = 0;
    VR_ENTER();
    if (memory == NULL) return vr_done(cudaErrorInvalidValue);
    const CUresult result = cuMemAllocManaged(&address, nbytes, flags);
    if (result == CUDA_SUCCESS) *memory = vr_pointer(address);
    return vr_driver_done(result);
}

VR_SAME(cudaHostRegister, (void *memory, size_t nbytes, unsigned int flags),
        cuMemHostRegister(memory, nbytes, flags))
VR_SAME(cudaHostUnregister, (void *memory), cuMemHostUnregister(memory))
VR_SAME(cudaHostGetFlags, (unsigned int *flags, void *memory), cuMemHostGetFlags(flags, memory))

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned int flags)
{
    CUdeviceptr address = 0;
    VR_ENTER();
    if (device == NULL) return vr_done(cudaErrorInvalidValue);
    const CUresult result = cuMemHostGetDevicePointer(&address, host, flags);
    if (result == CUDA_SUCCESS) *device = vr_pointer(address);
    return vr_driver_done(result);
}

static CUmemLocation location_of(struct cudaMemLocation location)
{
    return (CUmemLocation){.type = (CUmemLocationType)location.type, .id = location.id};
}

VR_SAME(cudaMemPrefetchAsync,
        (const void *memory, size_t nbytes, struct cudaMemLocation location, unsigned int flags,
         cudaStream_t stream),
        cuMemPrefetchAsync(vr_address(memory), nbytes, location_of(location), flags, stream))
VR_SAME(cudaMemAdvise,
        (const void *memory, size_t nbytes, enum cudaMemoryAdvise advice,
         struct cudaMemLocation location),
        cuMemAdvise(vr_address(memory), nbytes, (CUmem_advise)advice, location_of(location)))
VR_SAME(cudaStreamAttachMemAsync,
        (cudaStream_t stream, void *memory, size_t nbytes, unsigned int flags),
        cuStreamAttachMemAsync(stream, vr_address(memory), nbytes, flags))

/* ---- what a pointer is ---- */

static enum cudaMemoryType type_of(CUmemorytype type, bool managed)
{
    if (managed) return cudaMemoryTypeManaged;
    return type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
}

/* The driver leaves 0 where the memory is not CUDA's: then only the host can have it. */
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    CUmemorytype type = (CUmemorytype)0;
    unsigned managed = 0;
    int device = cudaInvalidDeviceId;
    CUdeviceptr on_device = 0;
    void *on_host = NULL;
    VR_ENTER();
    if (attributes == NULL) return vr_done(cudaErrorInvalidValue);
    CUpointer_attribute which[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *values[] = {&type, &managed, &device, &on_device, &on_host};
    const CUresult result = cuPointerGetAttributes(5, which, values, vr_address(pointer));
    if (result != CUDA_SUCCESS) return vr_driver_done(result);
    memset(attributes, 0, sizeof *attributes);
    attributes->device = cudaInvalidDeviceId;
    attributes->hostPointer = (void *)(uintptr_t)pointer;
    if (type == 0) return cudaSuccess; /* cudaMemoryTypeUnregistered */
    attributes->type = type_of(type, managed != 0);
    attributes->device = device;
    attributes->devicePointer = vr_pointer(on_device);
    attributes->hostPointer = on_host;
    return cudaSuccess;
}

/* A description of the elements of an array, though there are no arrays. */
struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                                   enum cudaChannelFormatKind kind)
{
    return (struct cudaChannelFormatDesc){.x = x, .y = y, .z = z, .w = w, .f = kind};
}

/* ---- of other processes ---- */

VR_SAME(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void *memory),
        cuIpcGetMemHandle((CUipcMemHandle *)(void *)handle, vr_address(memory)))
VR_SAME(cudaIpcCloseMemHandle, (void *memory), cuIpcCloseMemHandle(vr_address(memory)))
VR_SAME(cudaIpcGetEventHandle, (cudaIpcEventHandle_t * handle, cudaEvent_t event),
        cuIpcGetEventHandle((CUipcEventHandle *)(void *)handle, event))

cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned int flags)
{
    CUipcMemHandle made;
    CUdeviceptr address = 0;
    VR_ENTER();
    if (memory == NULL) return vr_done(cudaErrorInvalidValue);
    memcpy(&made, &handle, sizeof made);
    const CUresult result = cuIpcOpenMemHandle(&address, made, flags);
    if (result == CUDA_SUCCESS) *memory = vr_pointer(address);
    return vr_driver_done(result);
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    CUipcEventHandle made;
    VR_ENTER();
    memcpy(&made, &handle, sizeof made);
    return vr_driver_done(cuIpcOpenEventHandle(event, made));
}
