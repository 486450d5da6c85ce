/* Access of one GPU to the memory of another. */
#include "memory_internal.h"

/* How many contexts of the first device have enabled access to the second. */
static uint32_t enabled[VD_DEVICES][VD_DEVICES];

bool vd_peer_sees(int device, int other)
{
    return enabled[device][other] > 0;
}

bool vd_peer_is_broken(int device, const struct vd_memory *memory)
{
    const int identity = memory->backing != NULL ? memory->backing->identity : -1;
    const bool is_own = memory->device == device && memory->kind != VD_MEMORY_IPC;
    return identity >= 0 && !is_own && (vd.devices[device].broken >> identity & 1) != 0;
}

static bool is_device(int device)
{
    return device >= 0 && device < vd.ndevices;
}

static bool can_access(int device, int other)
{
    return device != other && vd.devices[device].peers[other];
}

static bool is_shared_with_peers(const struct vd_memory *m, int device)
{
    return m->kind == VD_MEMORY_DEVICE && !m->async && m->device == device;
}

void vd_peer_enabled(struct CUctx_st *context, struct vd_device *peer)
{
    const int device = context->device->gpu.number, other = peer->gpu.number;
    if (enabled[device][other]++ > 0) return;
    vd_modules_peer(device, other, true);
    for (struct vd_memory *m = vd.memories; m != NULL; m = m->next)
        if (is_shared_with_peers(m, other)) (void)vd_memory_add_device(m, device);
}

void vd_peer_disabled(struct CUctx_st *context, struct vd_device *peer)
{
    const int device = context->device->gpu.number, other = peer->gpu.number;
    if (--enabled[device][other] > 0) return;
    vd_modules_peer(device, other, false);
    for (struct vd_memory *m = vd.memories; m != NULL; m = m->next)
        if (is_shared_with_peers(m, other)) vd_memory_remove_device(m, device);
}

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    VD_ENTER();
    if (canAccessPeer == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (!is_device(dev) || !is_device(peerDev)) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    *canAccessPeer = can_access(dev, peerDev);
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    struct CUctx_st *context;
    VD_ENTER();
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (Flags != 0) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (!vd_object_is(peerContext, VD_CONTEXT)) return vd_leave(CUDA_ERROR_INVALID_CONTEXT);
    const int other = peerContext->device->gpu.number;
    if (!can_access(context->device->gpu.number, other))
        return vd_leave(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    if (context->peers[other]) return vd_leave(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    context->peers[other] = true;
    vd_peer_enabled(context, peerContext->device);
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
    struct CUctx_st *context;
    VD_ENTER();
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (!vd_object_is(peerContext, VD_CONTEXT)) return vd_leave(CUDA_ERROR_INVALID_CONTEXT);
    const int other = peerContext->device->gpu.number;
    if (!context->peers[other]) return vd_leave(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    context->peers[other] = false;
    vd_peer_disabled(context, peerContext->device);
    return vd_leave(CUDA_SUCCESS);
}
