/* Contexts. (Minimal: its owner replaces it.) */
#include "driver.h"

#include <stdlib.h>

static _Thread_local struct CUctx_st *current;

CUresult vd_context(struct CUctx_st **context)
{
    if (!vd_object_is(current, VD_CONTEXT)) return CUDA_ERROR_INVALID_CONTEXT;
    *context = current;
    return current->sticky;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice number)
{
    VD_ENTER();
    struct vd_device *device = &vd.devices[number];
    if (device->primary == NULL) {
        struct CUctx_st *made = calloc(1, sizeof *made);
        if (made == NULL || vd_streams_init(made) != CUDA_SUCCESS)
            return vd_leave(CUDA_ERROR_OUT_OF_MEMORY);
        made->device = device;
        vd_object_add(made, VD_CONTEXT);
        device->primary = made;
    }
    device->retained++;
    *context = device->primary;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice number)
{
    VD_ENTER();
    if (vd.devices[number].retained > 0) vd.devices[number].retained--;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    VD_ENTER();
    current = context;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuCtxSynchronize(void)
{
    VD_ENTER();
    struct CUctx_st *context;
    const CUresult result = vd_context(&context);
    return vd_leave(result != CUDA_SUCCESS ? result : vd_context_wait(context));
}
