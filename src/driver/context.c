/* Primary contexts: memory, copies, streams.
 *
 * Memory is filled and copied on a stream of the context's own, which waits for no other stream. */
#include "driver/context.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/process_lock.h"
#include "driver/cuda.h"

enum { MOST_EVENTS = 16 };

/* Freed with its last user. */
struct tt_context {
    /* immutable once listed */
    const struct tt_cuda *cu;
    int gpu;
    CUdevice device;
    CUcontext handle;
    CUstream stream; /* for fills and copies */
    /* guarded by `lock` */
    int nusers;
    struct tt_context *next;
    int nevents; /* that nobody uses at present */
    CUevent events[MOST_EVENTS];
};

/* The contexts that this process has open. */
static struct tt_process_lock lock = TT_PROCESS_LOCK;
static struct tt_context *contexts;

static tt_status create_stream(struct tt_context *context, CUstream *stream)
{
    TT_TRY(tt_context_enter(context));
    const CUresult result = context->cu->StreamCreate(stream, CU_STREAM_NON_BLOCKING);
    tt_context_leave(context);
    return result == CUDA_SUCCESS ? TT_OK : tt_cuda_fail(result, "cuStreamCreate");
}

static tt_status open_locked(int gpu, struct tt_context **out)
{
    CUdevice device;
    TT_TRY(tt_cuda_device(gpu, &device));
    struct tt_context *context = calloc(1, sizeof *context);
    if (!context) return tt_fail(TT_ERR_SYSTEM, "out of memory for the context of GPU %d", gpu);
    context->cu = tt_cuda_load();
    context->gpu = gpu;
    context->device = device;
    const CUresult result = context->cu->DevicePrimaryCtxRetain(&context->handle, device);
    tt_status status =
        result == CUDA_SUCCESS ? TT_OK : tt_cuda_fail(result, "cuDevicePrimaryCtxRetain");
    if (status) goto free_context;
    status = create_stream(context, &context->stream);
    if (status) goto release;
    context->next = contexts;
    contexts = context;
    *out = context;
    return TT_OK;

release:
    context->cu->DevicePrimaryCtxRelease(device);
free_context:
    free(context);
    return status;
}

tt_status tt_context_open(int gpu, struct tt_context **context)
{
    tt_process_lock(&lock);
    struct tt_context *found = contexts;
    while (found && found->gpu != gpu) found = found->next;
    const tt_status status = found ? TT_OK : open_locked(gpu, &found);
    if (!status) found->nusers++;
    tt_process_unlock(&lock);
    if (!status) *context = found;
    return status;
}

void tt_context_close(struct tt_context *context)
{
    if (!context) return;
    tt_process_lock(&lock);
    const bool last = --context->nusers == 0;
    if (last) {
        struct tt_context **link = &contexts;
        while (*link != context) link = &(*link)->next;
        *link = context->next;
    }
    tt_process_unlock(&lock);
    if (!last) return;
    const struct tt_cuda *cu = context->cu;
    if (cu->CtxPushCurrent(context->handle) == CUDA_SUCCESS) {
        for (int i = 0; i < context->nevents; i++) cu->EventDestroy(context->events[i]);
        cu->StreamDestroy(context->stream);
        tt_context_leave(context);
    }
    cu->DevicePrimaryCtxRelease(context->device);
    free(context);
}

int tt_context_gpu(const struct tt_context *context)
{
    return context->gpu;
}

tt_status tt_context_enter(struct tt_context *context)
{
    const CUresult result = context->cu->CtxPushCurrent(context->handle);
    return result == CUDA_SUCCESS ? TT_OK : tt_cuda_fail(result, "cuCtxPushCurrent");
}

void tt_context_leave(struct tt_context *context)
{
    CUcontext left;
    context->cu->CtxPopCurrent(&left);
}

/* As tt_context_enter, and the calls that follow do not spoil the capture of a stream, which the
 * driver would otherwise prevent by an error. */
static tt_status enter_aside(struct tt_context *context, CUstreamCaptureMode *mode)
{
    TT_TRY(tt_context_enter(context));
    *mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    context->cu->ThreadExchangeStreamCaptureMode(mode);
    return TT_OK;
}

static void leave_aside(struct tt_context *context, CUstreamCaptureMode mode)
{
    context->cu->ThreadExchangeStreamCaptureMode(&mode);
    tt_context_leave(context);
}

/* In the context. */
static tt_status fail_allocation(struct tt_context *context, CUresult result, size_t nbytes)
{
    size_t available = 0, total = 0;
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return tt_cuda_fail(result, "cuMemAlloc");
    context->cu->MemGetInfo(&available, &total);
    return tt_fail(TT_ERR_SYSTEM,
                   "GPU %d is out of memory: %zu bytes were asked for, %zu of %zu are free",
                   context->gpu, nbytes, available, total);
}

/* In the context. */
static tt_status allocate_zeroed(struct tt_context *context, size_t nbytes, CUdeviceptr *memory)
{
    const struct tt_cuda *cu = context->cu;
    CUdeviceptr made;
    CUresult result = cu->MemAlloc(&made, nbytes);
    if (result != CUDA_SUCCESS) return fail_allocation(context, result, nbytes);
    const char *call = "cuMemsetD8Async";
    result = cu->MemsetD8Async(made, 0, nbytes, context->stream);
    if (result == CUDA_SUCCESS) {
        call = "cuStreamSynchronize";
        result = cu->StreamSynchronize(context->stream);
    }
    if (result != CUDA_SUCCESS) {
        cu->MemFree(made);
        return tt_cuda_fail(result, call);
    }
    *memory = made;
    return TT_OK;
}

tt_status tt_context_allocate(struct tt_context *context, size_t nbytes, void **memory)
{
    CUstreamCaptureMode mode;
    CUdeviceptr made = 0;
    TT_TRY(enter_aside(context, &mode));
    const tt_status status = allocate_zeroed(context, nbytes, &made);
    leave_aside(context, mode);
    if (!status) *memory = (void *)(uintptr_t)made;
    return status;
}

void tt_context_free(struct tt_context *context, void *memory)
{
    CUstreamCaptureMode mode;
    if (!memory || enter_aside(context, &mode)) return;
    const CUresult result = context->cu->MemFree((CUdeviceptr)(uintptr_t)memory);
    leave_aside(context, mode);
    if (result != CUDA_SUCCESS) tt_ignore(tt_cuda_fail(result, "cuMemFree"));
}

tt_status tt_context_allocate_host(struct tt_context *context, size_t nbytes, void **memory)
{
    CUstreamCaptureMode mode;
    void *made = NULL;
    TT_TRY(enter_aside(context, &mode));
    const CUresult result = context->cu->MemHostAlloc(
        &made, nbytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    leave_aside(context, mode);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu bytes of pinned host memory", nbytes);
    if (result != CUDA_SUCCESS) return tt_cuda_fail(result, "cuMemHostAlloc");
    memset(made, 0, nbytes);
    *memory = made;
    return TT_OK;
}

void tt_context_free_host(struct tt_context *context, void *memory)
{
    CUstreamCaptureMode mode;
    if (!memory || enter_aside(context, &mode)) return;
    const CUresult result = context->cu->MemFreeHost(memory);
    leave_aside(context, mode);
    if (result != CUDA_SUCCESS) tt_ignore(tt_cuda_fail(result, "cuMemFreeHost"));
}

tt_status tt_context_upload(struct tt_context *context, void *to, const void *from, size_t nbytes)
{
    CUstreamCaptureMode mode;
    if (nbytes == 0) return TT_OK;
    TT_TRY(enter_aside(context, &mode));
    const char *call = "cuMemcpyHtoDAsync";
    CUresult result =
        context->cu->MemcpyHtoDAsync((CUdeviceptr)(uintptr_t)to, from, nbytes, context->stream);
    if (result == CUDA_SUCCESS) {
        call = "cuStreamSynchronize";
        result = context->cu->StreamSynchronize(context->stream);
    }
    leave_aside(context, mode);
    return result == CUDA_SUCCESS ? TT_OK : tt_cuda_fail(result, call);
}

tt_status tt_context_stream_create(struct tt_context *context, void **stream)
{
    CUstream made;
    TT_TRY(create_stream(context, &made));
    *stream = made;
    return TT_OK;
}

void tt_context_stream_destroy(struct tt_context *context, void *stream)
{
    if (!stream || tt_context_enter(context)) return;
    const CUresult result = context->cu->StreamDestroy(stream);
    tt_context_leave(context);
    if (result != CUDA_SUCCESS) tt_ignore(tt_cuda_fail(result, "cuStreamDestroy"));
}

tt_status tt_context_stream_synchronize(struct tt_context *context, void *stream)
{
    TT_TRY(tt_context_enter(context));
    const CUresult result = context->cu->StreamSynchronize(stream);
    tt_context_leave(context);
    return result == CUDA_SUCCESS ? TT_OK : tt_cuda_fail(result, "cuStreamSynchronize");
}

/* In the context. Events are used again: what waits for one waits for what was recorded then. */
static tt_status take_event(struct tt_context *context, CUevent *event)
{
    tt_process_lock(&lock);
    const bool found = context->nevents > 0;
    if (found) *event = context->events[--context->nevents];
    tt_process_unlock(&lock);
    if (!found) TT_CUDA_TRY(context->cu->EventCreate(event, CU_EVENT_DISABLE_TIMING));
    return TT_OK;
}

static void give_event(struct tt_context *context, CUevent event)
{
    tt_process_lock(&lock);
    const bool kept = context->nevents < MOST_EVENTS;
    if (kept) context->events[context->nevents++] = event;
    tt_process_unlock(&lock);
    if (!kept) context->cu->EventDestroy(event);
}

/* In the context. */
static tt_status follow(struct tt_context *context, CUstream after, CUstream before)
{
    const struct tt_cuda *cu = context->cu;
    CUevent event;
    TT_TRY(take_event(context, &event));
    const char *call = "cuEventRecord";
    CUresult result = cu->EventRecord(event, before);
    if (result == CUDA_SUCCESS) {
        call = "cuStreamWaitEvent";
        result = cu->StreamWaitEvent(after, event, CU_EVENT_WAIT_DEFAULT);
    }
    give_event(context, event);
    return result == CUDA_SUCCESS ? TT_OK : tt_cuda_fail(result, call);
}

tt_status tt_context_stream_follow(struct tt_context *context, void *after, void *before)
{
    TT_TRY(tt_context_enter(context));
    const tt_status status = follow(context, after, before);
    tt_context_leave(context);
    return status;
}
