/* Copies and fills. */
#include "runtime.h"

cudaError_t vr_copy_kind(enum cudaMemcpyKind kind)
{
    return (unsigned)kind <= cudaMemcpyDefault ? cudaSuccess : cudaErrorInvalidMemcpyDirection;
}

/* ---- of bytes ---- */

/* A side that the kind calls the device's must be memory that a device addresses; the driver's
 * functions check that. */
static CUresult copy(void *to, const void *from, size_t nbytes, enum cudaMemcpyKind kind)
{
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return cuMemcpyHtoD(vr_address(to), from, nbytes);
    case cudaMemcpyDeviceToHost:
        return cuMemcpyDtoH(to, vr_address(from), nbytes);
    case cudaMemcpyDeviceToDevice:
        return cuMemcpyDtoD(vr_address(to), vr_address(from), nbytes);
    default:
        return cuMemcpy(vr_address(to), vr_address(from), nbytes);
    }
}

static CUresult copy_async(void *to, const void *from, size_t nbytes, enum cudaMemcpyKind kind,
                           cudaStream_t stream)
{
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return cuMemcpyHtoDAsync(vr_address(to), from, nbytes, stream);
    case cudaMemcpyDeviceToHost:
        return cuMemcpyDtoHAsync(to, vr_address(from), nbytes, stream);
    case cudaMemcpyDeviceToDevice:
        return cuMemcpyDtoDAsync(vr_address(to), vr_address(from), nbytes, stream);
    default:
        return cuMemcpyAsync(vr_address(to), vr_address(from), nbytes, stream);
    }
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t nbytes, enum cudaMemcpyKind kind)
{
    VR_ENTER();
    const cudaError_t error = vr_copy_kind(kind);
    if (error != cudaSuccess || nbytes == 0) return vr_done(error);
    return vr_driver_done(copy(to, from, nbytes, kind));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t nbytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    VR_ENTER();
    const cudaError_t error = vr_copy_kind(kind);
    if (error != cudaSuccess || nbytes == 0) return vr_done(error);
    return vr_driver_done(copy_async(to, from, nbytes, kind, stream));
}

/* ---- from device to device ---- */

static cudaError_t contexts_of(int to_device, int from_device, CUcontext *to, CUcontext *from)
{
    const cudaError_t error = vr_primary(to_device, to);
    return error != cudaSuccess ? error : vr_primary(from_device, from);
}

cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device,
                           size_t nbytes)
{
    CUcontext to_context, from_context;
    VR_ENTER();
    const cudaError_t error = contexts_of(to_device, from_device, &to_context, &from_context);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(
        cuMemcpyPeer(vr_address(to), to_context, vr_address(from), from_context, nbytes));
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t nbytes, cudaStream_t stream)
{
    CUcontext to_context, from_context;
    VR_ENTER();
    const cudaError_t error = contexts_of(to_device, from_device, &to_context, &from_context);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(cuMemcpyPeerAsync(vr_address(to), to_context, vr_address(from),
                                            from_context, nbytes, stream));
}

/* ---- of variables ---- */

/* Where the variable's byte `offset` lies; nbytes from there must be in it. */
static cudaError_t in_variable(const void *symbol, size_t offset, size_t nbytes, void **at)
{
    CUdeviceptr address;
    size_t size;
    const cudaError_t error = vr_variable(symbol, &address, &size);
    if (error != cudaSuccess) return error;
    if (offset > size || nbytes > size - offset) return cudaErrorInvalidValue;
    *at = vr_pointer(address + offset);
    return cudaSuccess;
}

/* The kinds whose one side is the device's, or is found by its address. */
static cudaError_t variable_kind(enum cudaMemcpyKind kind, enum cudaMemcpyKind host)
{
    return kind == host || kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault
               ? cudaSuccess
               : cudaErrorInvalidMemcpyDirection;
}

static cudaError_t to_variable(const void *symbol, size_t nbytes, size_t offset,
                               enum cudaMemcpyKind kind, void **at)
{
    const cudaError_t error = variable_kind(kind, cudaMemcpyHostToDevice);
    return error != cudaSuccess ? error : in_variable(symbol, offset, nbytes, at);
}

static cudaError_t from_variable(const void *symbol, size_t nbytes, size_t offset,
                                 enum cudaMemcpyKind kind, void **at)
{
    const cudaError_t error = variable_kind(kind, cudaMemcpyDeviceToHost);
    return error != cudaSuccess ? error : in_variable(symbol, offset, nbytes, at);
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t nbytes, size_t offset,
                               enum cudaMemcpyKind kind)
{
    void *to;
    VR_ENTER();
    const cudaError_t error = to_variable(symbol, nbytes, offset, kind, &to);
    return error != cudaSuccess ? vr_done(error) : cudaMemcpy(to, from, nbytes, kind);
}

cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t nbytes, size_t offset,
                                 enum cudaMemcpyKind kind)
{
    void *from;
    VR_ENTER();
    const cudaError_t error = from_variable(symbol, nbytes, offset, kind, &from);
    return error != cudaSuccess ? vr_done(error) : cudaMemcpy(to, from, nbytes, kind);
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t nbytes,
                                    size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    void *to;
    VR_ENTER();
    const cudaError_t error = to_variable(symbol, nbytes, offset, kind, &to);
    return error != cudaSuccess ? vr_done(error) : cudaMemcpyAsync(to, from, nbytes, kind, stream);
}

cudaError_t cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t nbytes, size_t offset,
                                      enum cudaMemcpyKind kind, cudaStream_t stream)
{
    void *from;
    VR_ENTER();
    const cudaError_t error = from_variable(symbol, nbytes, offset, kind, &from);
    return error != cudaSuccess ? vr_done(error) : cudaMemcpyAsync(to, from, nbytes, kind, stream);
}

/* ---- of rows and slices ---- */

CUDA_MEMCPY3D vr_copy_line(void *to, const void *from, size_t nbytes)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = vr_address(from),
                           .srcPitch = nbytes,
                           .srcHeight = 1,
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = vr_address(to),
                           .dstPitch = nbytes,
                           .dstHeight = 1,
                           .WidthInBytes = nbytes,
                           .Height = 1,
                           .Depth = 1};
}

cudaError_t vr_copy_3d(const struct cudaMemcpy3DParms *copy, CUDA_MEMCPY3D *made)
{
    if (copy == NULL) return cudaErrorInvalidValue;
    if (copy->srcArray != NULL || copy->dstArray != NULL) return cudaErrorNotSupported;
    *made = vr_copy_line(copy->dstPtr.ptr, copy->srcPtr.ptr, copy->extent.width);
    made->srcXInBytes = copy->srcPos.x;
    made->srcY = copy->srcPos.y;
    made->srcZ = copy->srcPos.z;
    made->srcPitch = copy->srcPtr.pitch;
    made->srcHeight = copy->srcPtr.ysize;
    made->dstXInBytes = copy->dstPos.x;
    made->dstY = copy->dstPos.y;
    made->dstZ = copy->dstPos.z;
    made->dstPitch = copy->dstPtr.pitch;
    made->dstHeight = copy->dstPtr.ysize;
    made->Height = copy->extent.height;
    made->Depth = copy->extent.depth;
    return vr_copy_kind(copy->kind);
}

/* Rows as a copy of one slice. */
static cudaError_t rows(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                        size_t width, size_t height, enum cudaMemcpyKind kind, CUDA_MEMCPY3D *made)
{
    if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
    *made = vr_copy_line(to, from, width);
    made->srcPitch = from_pitch;
    made->srcHeight = height;
    made->dstPitch = to_pitch;
    made->dstHeight = height;
    made->Height = height;
    return vr_copy_kind(kind);
}

static bool is_empty(const CUDA_MEMCPY3D *copy)
{
    return copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0;
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY3D made;
    VR_ENTER();
    const cudaError_t error = rows(to, to_pitch, from, from_pitch, width, height, kind, &made);
    if (error != cudaSuccess || is_empty(&made)) return vr_done(error);
    return vr_driver_done(cuMemcpy3D(&made));
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    CUDA_MEMCPY3D made;
    VR_ENTER();
    const cudaError_t error = rows(to, to_pitch, from, from_pitch, width, height, kind, &made);
    if (error != cudaSuccess || is_empty(&made)) return vr_done(error);
    return vr_driver_done(cuMemcpy3DAsync(&made, stream));
}

cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *copy)
{
    CUDA_MEMCPY3D made;
    VR_ENTER();
    const cudaError_t error = vr_copy_3d(copy, &made);
    if (error != cudaSuccess || is_empty(&made)) return vr_done(error);
    return vr_driver_done(cuMemcpy3D(&made));
}

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *copy, cudaStream_t stream)
{
    CUDA_MEMCPY3D made;
    VR_ENTER();
    const cudaError_t error = vr_copy_3d(copy, &made);
    if (error != cudaSuccess || is_empty(&made)) return vr_done(error);
    return vr_driver_done(cuMemcpy3DAsync(&made, stream));
}

static cudaError_t peer_3d(const struct cudaMemcpy3DPeerParms *copy, CUDA_MEMCPY3D_PEER *made)
{
    CUDA_MEMCPY3D plain;
    CUcontext to, from;
    if (copy == NULL) return cudaErrorInvalidValue;
    const struct cudaMemcpy3DParms same = {.srcArray = copy->srcArray,
                                           .srcPos = copy->srcPos,
                                           .srcPtr = copy->srcPtr,
                                           .dstArray = copy->dstArray,
                                           .dstPos = copy->dstPos,
                                           .dstPtr = copy->dstPtr,
                                           .extent = copy->extent,
                                           .kind = cudaMemcpyDefault};
    cudaError_t error = vr_copy_3d(&same, &plain);
    if (error == cudaSuccess) error = contexts_of(copy->dstDevice, copy->srcDevice, &to, &from);
    if (error != cudaSuccess) return error;
    *made = (CUDA_MEMCPY3D_PEER){.srcXInBytes = plain.srcXInBytes,
                                 .srcY = plain.srcY,
                                 .srcZ = plain.srcZ,
                                 .srcMemoryType = plain.srcMemoryType,
                                 .srcDevice = plain.srcDevice,
                                 .srcContext = from,
                                 .srcPitch = plain.srcPitch,
                                 .srcHeight = plain.srcHeight,
                                 .dstXInBytes = plain.dstXInBytes,
                                 .dstY = plain.dstY,
                                 .dstZ = plain.dstZ,
                                 .dstMemoryType = plain.dstMemoryType,
                                 .dstDevice = plain.dstDevice,
                                 .dstContext = to,
                                 .dstPitch = plain.dstPitch,
                                 .dstHeight = plain.dstHeight,
                                 .WidthInBytes = plain.WidthInBytes,
                                 .Height = plain.Height,
                                 .Depth = plain.Depth};
    return cudaSuccess;
}

cudaError_t cudaMemcpy3DPeer(const struct cudaMemcpy3DPeerParms *copy)
{
    CUDA_MEMCPY3D_PEER made;
    VR_ENTER();
    const cudaError_t error = peer_3d(copy, &made);
    return error != cudaSuccess ? vr_done(error) : vr_driver_done(cuMemcpy3DPeer(&made));
}

cudaError_t cudaMemcpy3DPeerAsync(const struct cudaMemcpy3DPeerParms *copy, cudaStream_t stream)
{
    CUDA_MEMCPY3D_PEER made;
    VR_ENTER();
    const cudaError_t error = peer_3d(copy, &made);
    return error != cudaSuccess ? vr_done(error)
                                : vr_driver_done(cuMemcpy3DPeerAsync(&made, stream));
}

/* ---- fills ---- */

VR_SAME(cudaMemset, (void *to, int value, size_t nbytes),
        cuMemsetD8(vr_address(to), (unsigned char)value, nbytes))
VR_SAME(cudaMemsetAsync, (void *to, int value, size_t nbytes, cudaStream_t stream),
        cuMemsetD8Async(vr_address(to), (unsigned char)value, nbytes, stream))
VR_SAME(cudaMemset2D, (void *to, size_t pitch, int value, size_t width, size_t height),
        cuMemsetD2D8(vr_address(to), pitch, (unsigned char)value, width, height))
VR_SAME(cudaMemset2DAsync,
        (void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
        cuMemsetD2D8Async(vr_address(to), pitch, (unsigned char)value, width, height, stream))

/* A slice is ysize rows, of which the extent's are filled. */
cudaError_t cudaMemset3DAsync(struct cudaPitchedPtr to, int value, struct cudaExtent extent,
                              cudaStream_t stream)
{
    VR_ENTER();
    CUresult result = CUDA_SUCCESS;
    for (size_t z = 0; z < extent.depth && result == CUDA_SUCCESS; z++)
        result = cuMemsetD2D8Async(vr_address(to.ptr) + z * to.ysize * to.pitch, to.pitch,
                                   (unsigned char)value, extent.width, extent.height, stream);
    return vr_driver_done(result);
}

cudaError_t cudaMemset3D(struct cudaPitchedPtr to, int value, struct cudaExtent extent)
{
    return cudaMemset3DAsync(to, value, extent, cudaStreamLegacy);
}
