/* Contexts: primary ones and those of cuCtxCreate, and each thread's stack of current ones. */
#include "objects.h"

#include <stdlib.h>

enum { STACK = 256 };

static _Thread_local struct {
    struct CUctx_st *at[STACK];
    unsigned n;
} current;

struct CUctx_st *vd_context_top(void)
{
    return current.n != 0 ? current.at[current.n - 1] : NULL;
}

CUresult vd_context(struct CUctx_st **context)
{
    struct CUctx_st *top = vd_context_top();
    *context = NULL;
    if (top == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (top->destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (top->sticky != CUDA_SUCCESS) return top->sticky;
    *context = top;
    return CUDA_SUCCESS;
}

CUresult vd_context_of(CUcontext handle, struct CUctx_st **context)
{
    if (handle == NULL) return vd_context(context);
    if (!vd_object_is(handle, VD_CONTEXT)) return CUDA_ERROR_INVALID_CONTEXT;
    if (handle->destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *context = handle;
    return handle->sticky;
}

static CUresult push(struct CUctx_st *context)
{
    if (current.n == STACK) return CUDA_ERROR_OUT_OF_MEMORY;
    current.at[current.n++] = context;
    return CUDA_SUCCESS;
}

/* A context begins, or a primary one that was released begins again. */
static CUresult begin(struct CUctx_st *context, unsigned flags)
{
    static unsigned long long nbegun;
    CUresult result = vd_device_enter(context->device);
    if (result != CUDA_SUCCESS) return result;
    result = vd_streams_init(context);
    if (result != CUDA_SUCCESS) {
        vd_device_exit(context->device);
        return result;
    }
    context->destroyed = false;
    context->id = ++nbegun;
    context->flags = flags;
    context->limits[CU_LIMIT_STACK_SIZE] = 1024;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 7 << 20;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    context->cache = CU_FUNC_CACHE_PREFER_NONE;
    context->shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return CUDA_SUCCESS;
}

/* Waits for the context's work, then frees what it owns. The context itself is kept. */
static void end(struct CUctx_st *context)
{
    if (context->destroyed) return;
    if (vd_context_wait(context) != CUDA_SUCCESS) { /* the work is over all the same */
    }
    if (context->destroyed) return; /* another thread ended it meanwhile */
    while (context->modules != NULL) vd_module_destroy(context->modules);
    vd_context_memory_free(context);
    vd_streams_fini(context);
    for (int i = 0; i < VD_DEVICES; i++) context->peers[i] = false;
    context->destroyed = true;
    vd_device_exit(context->device);
}

static struct CUctx_st *contexts;

struct CUctx_st *vd_contexts(void)
{
    return contexts;
}

static struct CUctx_st *create(struct vd_device *device, bool primary)
{
    struct CUctx_st *context = calloc(1, sizeof *context);
    if (context == NULL) return NULL;
    context->device = device;
    context->primary = primary;
    context->destroyed = true;
    context->next = contexts;
    contexts = context;
    vd_object_add(context, VD_CONTEXT);
    return context;
}

/* ---- primary contexts ---- */

static CUresult retain(CUcontext *context, CUdevice number)
{
    struct vd_device *device = vd_device_of(number);
    if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
    if (context == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (device->primary == NULL) device->primary = create(device, true);
    if (device->primary == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    if (device->primary->sticky != CUDA_SUCCESS) return device->primary->sticky;
    if (device->primary->destroyed) {
        const CUresult result = begin(device->primary, device->flags);
        if (result != CUDA_SUCCESS) return result;
    }
    device->retained++;
    *context = device->primary;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    VD_ENTER();
    return vd_leave(retain(context, device));
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice number)
{
    VD_ENTER();
    struct vd_device *device = vd_device_of(number);
    if (device == NULL) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    if (device->retained == 0) return vd_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (--device->retained == 0) end(device->primary);
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice number)
{
    VD_ENTER();
    struct vd_device *device = vd_device_of(number);
    if (device == NULL) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    if (device->primary != NULL) end(device->primary);
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice number, unsigned *flags, int *active)
{
    VD_ENTER();
    struct vd_device *device = vd_device_of(number);
    if (device == NULL) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    if (flags == NULL || active == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *flags = device->flags;
    *active = device->primary != NULL && !device->primary->destroyed;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice number, unsigned flags)
{
    VD_ENTER();
    struct vd_device *device = vd_device_of(number);
    if (device == NULL) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    if ((flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    device->flags = flags;
    if (device->primary != NULL) device->primary->flags = flags;
    return vd_leave(CUDA_SUCCESS);
}

/* ---- contexts of their own ---- */

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned flags,
                        CUdevice number)
{
    VD_ENTER();
    struct vd_device *device = vd_device_of(number);
    if (device == NULL) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    if (context == NULL || (flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (params != NULL && (params->numExecAffinityParams != 0 || params->cigParams != NULL))
        return vd_leave(vd_unsupported("cuCtxCreate", "an affinity to multiprocessors, or CIG"));
    struct CUctx_st *made = create(device, false);
    if (made == NULL) return vd_leave(CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = begin(made, flags);
    if (result == CUDA_SUCCESS) result = push(made);
    if (result == CUDA_SUCCESS) *context = made;
    return vd_leave(result);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    VD_ENTER();
    if (!vd_object_is(context, VD_CONTEXT)) return vd_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (context->primary) return vd_leave(CUDA_ERROR_INVALID_CONTEXT);
    end(context);
    if (!vd_object_is(context, VD_CONTEXT)) return vd_leave(CUDA_ERROR_INVALID_CONTEXT);
    vd_object_remove(context);
    if (vd_context_top() == context) current.n--;
    return vd_leave(CUDA_SUCCESS);
}

/* ---- the current context ---- */

CUresult cuCtxGetCurrent(CUcontext *context)
{
    VD_ENTER();
    if (context == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *context = vd_context_top();
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    VD_ENTER();
    if (context == NULL) {
        if (current.n != 0) current.n--;
        return vd_leave(CUDA_SUCCESS);
    }
    if (!vd_object_is(context, VD_CONTEXT)) return vd_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (current.n == 0) return vd_leave(push(context));
    current.at[current.n - 1] = context;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    VD_ENTER();
    if (context == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (!vd_object_is(context, VD_CONTEXT)) return vd_leave(CUDA_ERROR_INVALID_CONTEXT);
    return vd_leave(push(context));
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    VD_ENTER();
    if (current.n == 0) return vd_leave(CUDA_ERROR_INVALID_CONTEXT);
    current.n--;
    if (context != NULL) *context = current.at[current.n];
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    VD_ENTER();
    const struct CUctx_st *of = context != NULL ? context : vd_context_top();
    if (of == NULL) return vd_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (context != NULL && !vd_object_is(context, VD_CONTEXT))
        return vd_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (device == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *device = of->device->gpu.number;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    return cuCtxGetDevice_v2(device, NULL);
}

CUresult cuCtxSynchronize_v2(CUcontext handle)
{
    VD_ENTER();
    struct CUctx_st *context;
    CUresult result = vd_context_of(handle, &context);
    if (result == CUDA_SUCCESS) result = vd_capture_synchronize(context);
    if (result == CUDA_SUCCESS) result = vd_context_wait_alone(context);
    return vd_leave(result);
}

CUresult cuCtxSynchronize(void)
{
    return cuCtxSynchronize_v2(NULL);
}
