/* Primary contexts, and streams. */
#include "driver/context_internal.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/private_fd.h"
#include "base/process_lock.h"

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

/* One more use of the primary context, which begins again where the program has reset the GPU. */
static tt_status retain(struct tt_context *context)
{
    CUcontext handle;
    tt_low_fd_hold();
    const CUresult result = context->cu->DevicePrimaryCtxRetain(&handle, context->device);
    (void)tt_low_fd_release(-1);
    if (result != CUDA_SUCCESS) return tt_cuda_fail(result, "cuDevicePrimaryCtxRetain");
    if (handle != context->handle) context->handle = handle; /* who holds it reads it */
    unsigned long long id = 0;
    if (context->cu->CtxGetId && context->cu->CtxGetId(handle, &id) != CUDA_SUCCESS) id = 0;
    context->id = id;
    return TT_OK;
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
    context->exports = tt_context_ask_exports(context->cu, device);
    const tt_status status = retain(context);
    if (status) {
        free(context);
        return status;
    }
    context->next = contexts;
    contexts = context;
    *out = context;
    return TT_OK;
}

static void unlist_locked(const struct tt_context *context)
{
    struct tt_context **link = &contexts;
    while (*link != context) link = &(*link)->next;
    *link = context->next;
}

/* Nobody uses the context: the GPU may have been reset since the last one did. */
static tt_status renew_locked(struct tt_context *context)
{
    TT_TRY(retain(context));
    context->cu->DevicePrimaryCtxRelease(context->device); /* it is held */
    atomic_store_explicit(&context->is_reset, false, memory_order_relaxed);
    return TT_OK;
}

static struct tt_context *find_locked(int gpu)
{
    struct tt_context *found = contexts;
    while (found && found->gpu != gpu) found = found->next;
    return found;
}

static tt_status open_one(int gpu, bool holds, struct tt_context **context)
{
    tt_process_lock(&lock);
    struct tt_context *found = find_locked(gpu);
    tt_status status = TT_OK;
    if (!found)
        status = open_locked(gpu, &found);
    else if (!found->nusers)
        status = renew_locked(found);
    if (!status && !holds && !found->nusers) status = create_stream(found, &found->stream);
    if (!status) {
        *(holds ? &found->nholders : &found->nusers) += 1;
    } else if (found && !found->nusers && !found->nholders) {
        unlist_locked(found);
        found->cu->DevicePrimaryCtxRelease(found->device);
        free(found);
    }
    tt_process_unlock(&lock);
    if (!status) *context = found;
    return status;
}

tt_status tt_context_open(int gpu, struct tt_context **context)
{
    return open_one(gpu, false, context);
}

tt_status tt_context_hold(int gpu, struct tt_context **context)
{
    return open_one(gpu, true, context);
}

bool tt_context_find(int gpu, struct tt_context **context)
{
    tt_process_lock(&lock);
    struct tt_context *found = find_locked(gpu);
    if (found) found->nholders++;
    tt_process_unlock(&lock);
    if (found) *context = found;
    return found;
}

/* What the users have had together. */
struct used {
    CUstream stream;
    int nevents;
    CUevent events[TT_MOST_EVENTS];
};

/* The next user makes its own. */
static void take_used_locked(struct tt_context *context, struct used *used)
{
    *used = (struct used){.stream = context->stream, .nevents = context->nevents};
    for (int i = 0; i < used->nevents; i++) used->events[i] = context->events[i];
    context->stream = NULL;
    context->nevents = 0;
}

void tt_context_close(struct tt_context *context)
{
    CUstreamCaptureMode mode; /* freeing spoils captures of mode global */
    struct used used;
    if (!context) return;
    /* Asked while this user counts: the next first user renews the context. */
    const bool is_reset = tt_context_is_reset(context);
    tt_process_lock(&lock);
    const bool last = --context->nusers == 0;
    context->nholders += last;
    if (last) take_used_locked(context, &used);
    if (last && is_reset) tt_context_forget_memory(context, false);
    tt_process_unlock(&lock);
    if (!last) return;
    if (is_reset) { /* what the context had is gone */
        tt_context_drop(context);
        return;
    }
    if (!tt_context_enter_aside(context, &mode)) {
        for (int i = 0; i < used.nevents; i++) context->cu->EventDestroy(used.events[i]);
        context->cu->StreamDestroy(used.stream);
        tt_context_release_memory(context, false);
        tt_context_leave_aside(context, mode);
    } else {
        tt_context_forget_memory(context, false);
    }
    tt_context_drop(context);
}

void tt_context_drop(struct tt_context *context)
{
    CUstreamCaptureMode mode;
    tt_process_lock(&lock);
    const bool last = --context->nholders == 0 && context->nusers == 0;
    if (last) unlist_locked(context);
    tt_process_unlock(&lock);
    if (!last) return;
    const struct tt_cuda *cu = context->cu;
    if (!tt_context_enter_aside(context, &mode)) {
        tt_context_release_memory(context, true);
        tt_context_leave_aside(context, mode);
    } else {
        (void)tt_context_is_reset(context); /* notes a reset that nobody has seen */
        tt_context_forget_memory(context, true);
    }
    cu->DevicePrimaryCtxRelease(context->device);
    free(context);
}

int tt_context_gpu(const struct tt_context *context)
{
    return context->gpu;
}

static const char reset_text[] =
    "the program has reset the GPU (cudaDeviceReset, cuDevicePrimaryCtxReset) while a communicator "
    "used it: destroy the communicators of a GPU first";

/* What this thread has entered: the driver is called for the outermost of equal ones only. */
enum { MOST_ENTERED = 8 };
static _Thread_local struct {
    const struct tt_context *context;
    unsigned depth;
} entered[MOST_ENTERED];
static _Thread_local int nentered;

/* Whether the context is there no more; another one of the GPU may be, since the program has used
 * the GPU again. */
static bool is_gone(const struct tt_context *context)
{
    unsigned flags;
    unsigned long long id;
    int active;
    CUresult result = context->cu->DevicePrimaryCtxGetState(context->device, &flags, &active);
    if (result == CUDA_SUCCESS && !active) return true;
    if (result != CUDA_SUCCESS || !context->id) return false;
    result = context->cu->CtxGetId(context->handle, &id);
    return result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
           (result == CUDA_SUCCESS && id != context->id);
}

bool tt_context_is_reset(struct tt_context *context)
{
    if (atomic_load_explicit(&context->is_reset, memory_order_relaxed)) return true;
    if (!is_gone(context)) return false;
    if (!atomic_exchange_explicit(&context->is_reset, true, memory_order_relaxed))
        TT_WARN("GPU %d: %s", context->gpu, reset_text);
    return true;
}

tt_status tt_context_enter(struct tt_context *context)
{
    if (atomic_load_explicit(&context->is_reset, memory_order_relaxed)) {
        tt_set_last_error(reset_text); /* the log has it */
        return TT_ERR_USAGE;
    }
    if (nentered && entered[nentered - 1].context == context) {
        entered[nentered - 1].depth++;
        return TT_OK;
    }
    if (nentered == MOST_ENTERED)
        return tt_fail(TT_ERR_INTERNAL, "%d contexts of GPUs are entered at once", MOST_ENTERED);
    const CUresult result = context->cu->CtxPushCurrent(context->handle);
    if (result != CUDA_SUCCESS) return tt_cuda_fail(result, "cuCtxPushCurrent");
    entered[nentered].context = context;
    entered[nentered++].depth = 1;
    return TT_OK;
}

void tt_context_leave(struct tt_context *context)
{
    CUcontext left;
    if (--entered[nentered - 1].depth) return;
    nentered--;
    context->cu->CtxPopCurrent(&left);
}

tt_status tt_context_enter_aside(struct tt_context *context, CUstreamCaptureMode *mode)
{
    TT_TRY(tt_context_enter(context));
    *mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    context->cu->ThreadExchangeStreamCaptureMode(mode);
    return TT_OK;
}

void tt_context_leave_aside(struct tt_context *context, CUstreamCaptureMode mode)
{
    context->cu->ThreadExchangeStreamCaptureMode(&mode);
    tt_context_leave(context);
}

/* ---- Streams -------------------------------------------------------------------------------- */

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
    CUstreamCaptureMode mode;
    TT_TRY(tt_context_enter_aside(context, &mode));
    const CUresult result = context->cu->StreamSynchronize(stream);
    tt_context_leave_aside(context, mode);
    return result == CUDA_SUCCESS ? TT_OK : tt_cuda_fail(result, "cuStreamSynchronize");
}

/* In the context. Events are used again: what waits for one waits for what was recorded then. */
static tt_status take_event(struct tt_context *context, CUevent *event)
{
    tt_process_lock(&lock);
    const bool found = context->nevents > 0;
    if (found) *event = context->events[--context->nevents];
    tt_process_unlock(&lock);
    if (!found) TT_CUDA_TRY(context->cu, EventCreate, event, CU_EVENT_DISABLE_TIMING);
    return TT_OK;
}

static void give_event(struct tt_context *context, CUevent event)
{
    tt_process_lock(&lock);
    const bool kept = context->nevents < TT_MOST_EVENTS;
    if (kept) context->events[context->nevents++] = event;
    tt_process_unlock(&lock);
    if (!kept) context->cu->EventDestroy(event);
}

/* In the context. waits: for the end of captures. */
static tt_status follow(struct tt_context *context, CUstream after, CUstream before, bool waits)
{
    const struct tt_cuda *cu = context->cu;
    int64_t deadline_ns = 0;
    CUevent event;
    CUresult result;
    TT_TRY(take_event(context, &event));
    const char *call = "cuEventRecord";
    do result = cu->EventRecord(event, before);
    while (waits && tt_cuda_is_to_repeat(cu, result, &deadline_ns));
    if (result == CUDA_SUCCESS) {
        call = "cuStreamWaitEvent";
        do result = cu->StreamWaitEvent(after, event, CU_EVENT_WAIT_DEFAULT);
        while (waits && tt_cuda_is_to_repeat(cu, result, &deadline_ns));
    }
    give_event(context, event);
    return result == CUDA_SUCCESS ? TT_OK : tt_cuda_fail(result, call);
}

tt_status tt_context_stream_query(struct tt_context *context, void *stream)
{
    CUstreamCaptureMode mode; /* a query spoils captures of mode global */
    TT_TRY(tt_context_enter_aside(context, &mode));
    const CUresult result = context->cu->StreamQuery(stream);
    tt_context_leave_aside(context, mode);
    if (result == CUDA_ERROR_NOT_READY) return TT_IN_PROGRESS;
    return result == CUDA_SUCCESS ? TT_OK : tt_cuda_fail(result, "cuStreamQuery");
}

tt_status tt_context_stream_capturing(struct tt_context *context, void *stream, bool *capturing)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    TT_TRY(tt_context_enter(context));
    const CUresult result = context->cu->StreamIsCapturing(stream, &status);
    tt_context_leave(context);
    *capturing =
        result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || status != CU_STREAM_CAPTURE_STATUS_NONE;
    return result == CUDA_SUCCESS || *capturing ? TT_OK
                                                : tt_cuda_fail(result, "cuStreamIsCapturing");
}

bool tt_context_is_legacy(const void *stream)
{
    return !stream || stream == CU_STREAM_LEGACY;
}

bool tt_context_is_default(const void *stream)
{
    return tt_context_is_legacy(stream) || stream == CU_STREAM_PER_THREAD;
}

/* In the GPU's context. */
static tt_status find_id_in(int gpu, CUstream stream, unsigned long long *id)
{
    struct tt_context *context;
    TT_TRY(tt_context_hold(gpu, &context));
    tt_status status = tt_context_enter(context);
    if (!status) {
        const CUresult result = context->cu->StreamGetId(stream, id);
        tt_context_leave(context);
        if (result != CUDA_SUCCESS) status = tt_cuda_fail(result, "cuStreamGetId");
    }
    tt_context_drop(context);
    return status;
}

tt_status tt_stream_find_id(int gpu, void *stream, uint64_t *id)
{
    const struct tt_cuda *cu = tt_cuda_load();
    unsigned long long found = 0;
    CUdevice device;
    if (!cu) return tt_cuda_device(gpu, &device); /* which fails */
    const CUresult result = cu->StreamGetId(stream, &found);
    if (result == CUDA_ERROR_INVALID_HANDLE)
        return tt_fail(TT_ERR_ARGUMENT, "%p is no CUDA stream: never made, or destroyed already",
                       stream);
    if (result == CUDA_ERROR_INVALID_CONTEXT) /* the thread has no current one */
        TT_TRY(find_id_in(gpu, stream, &found));
    else if (result != CUDA_SUCCESS)
        return tt_cuda_fail(result, "cuStreamGetId");
    *id = found;
    return TT_OK;
}

/* In the context. Its kernels run on a part of the GPU only, and may so wait for one another for
 * ever. */
static bool is_green(const struct tt_context *context, CUstream stream)
{
    CUgreenCtx green = NULL;
    return context->cu->StreamGetGreenCtx &&
           context->cu->StreamGetGreenCtx(stream, &green) == CUDA_SUCCESS && green;
}

tt_status tt_context_check_stream(struct tt_context *context, void *stream,
                                  struct tt_stream_facts *facts)
{
    CUcontext owner = NULL;
    unsigned flags = 0;
    *facts = (struct tt_stream_facts){.is_legacy = tt_context_is_legacy(stream),
                                      .is_each_threads = stream == CU_STREAM_PER_THREAD,
                                      .blocks = true};
    if (tt_context_is_default(stream)) return TT_OK;
    TT_TRY(tt_context_enter(context));
    CUresult result = context->cu->StreamGetCtx(stream, &owner);
    if (result == CUDA_SUCCESS) result = context->cu->StreamGetPriority(stream, &facts->priority);
    if (result == CUDA_SUCCESS) result = context->cu->StreamGetFlags(stream, &flags);
    const bool green = is_green(context, stream);
    tt_context_leave(context);
    if (green)
        return tt_fail(
            TT_ERR_ARGUMENT,
            "%p is a stream of a green context (cuGreenCtxStreamCreate), expected one of "
            "GPU %d's primary context: make that, and let each of the two wait for the "
            "other's events",
            stream, context->gpu);
    facts->blocks = !(flags & CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS && owner == context->handle) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT,
                   "%p is no stream of GPU %d's primary context: give the GPU on which it was made",
                   stream, context->gpu);
}

tt_status tt_context_stream_follow(struct tt_context *context, void *after, void *before)
{
    TT_TRY(tt_context_enter(context));
    const tt_status status = follow(context, after, before, true);
    tt_context_leave(context);
    return status;
}

tt_status tt_context_stream_follow_now(struct tt_context *context, void *after, void *before)
{
    TT_TRY(tt_context_enter(context));
    const tt_status status = follow(context, after, before, false);
    tt_context_leave(context);
    return status;
}

tt_status tt_context_stream_copy(struct tt_context *context, void *stream, void *to,
                                 const void *from, size_t nbytes)
{
    if (nbytes == 0) return TT_OK;
    int64_t deadline_ns = 0;
    CUresult result;
    TT_TRY(tt_context_enter(context));
    do
        result = context->cu->MemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
                                          nbytes, stream);
    while (tt_cuda_is_to_repeat(context->cu, result, &deadline_ns));
    tt_context_leave(context);
    return result == CUDA_SUCCESS ? TT_OK : tt_cuda_fail(result, "cuMemcpyAsync");
}

tt_status tt_context_stream_store(struct tt_context *context, void *stream, uint32_t *word,
                                  uint32_t value)
{
    int64_t deadline_ns = 0;
    CUresult result;
    TT_TRY(tt_context_enter(context));
    do
        result = context->cu->StreamWriteValue32(stream, (CUdeviceptr)(uintptr_t)word, value,
                                                 CU_STREAM_WRITE_VALUE_DEFAULT);
    while (tt_cuda_is_to_repeat(context->cu, result, &deadline_ns));
    tt_context_leave(context);
    return result == CUDA_SUCCESS ? TT_OK : tt_cuda_fail(result, "cuStreamWriteValue32");
}

tt_status tt_context_stream_await(struct tt_context *context, void *stream, const uint32_t *word,
                                  uint32_t value)
{
    int64_t deadline_ns = 0;
    CUresult result;
    TT_TRY(tt_context_enter(context));
    do
        result = context->cu->StreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)word, value,
                                                CU_STREAM_WAIT_VALUE_GEQ);
    while (tt_cuda_is_to_repeat(context->cu, result, &deadline_ns));
    tt_context_leave(context);
    return result == CUDA_SUCCESS ? TT_OK : tt_cuda_fail(result, "cuStreamWaitValue32");
}
