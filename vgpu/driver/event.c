/* Events: the place in a stream's work where they were recorded last. */
#include "run.h"

#include <stdlib.h>

/* Guarded by the lock, as all of a driver's state. An event that other processes share
 * (ipc_event.c) is recorded both here and in what they share. */
VD_PER_THREAD(cuEventRecord_ptsz, cuEventRecord);
VD_PER_THREAD(cuEventRecordWithFlags_ptsz, cuEventRecordWithFlags);
VD_PER_THREAD(cuStreamWaitEvent_ptsz, cuStreamWaitEvent);

static CUresult create(CUevent *event, unsigned flags)
{
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    struct CUctx_st *context;
    if (event == NULL || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return result;
    struct CUevent_st *made = calloc(1, sizeof *made);
    if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (struct CUevent_st){.context = context, .flags = flags};
    if ((flags & CU_EVENT_INTERPROCESS) != 0) {
        const CUresult shared = vd_shared_event_create(made);
        if (shared != CUDA_SUCCESS) {
            free(made);
            return shared;
        }
    }
    vd_object_add(made, VD_EVENT);
    *event = made;
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    VD_ENTER();
    return vd_leave(create(event, flags));
}

static CUresult find(CUevent event)
{
    struct CUctx_st *context;
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (!vd_object_is(event, VD_EVENT)) return CUDA_ERROR_INVALID_HANDLE;
    return event->context->sticky;
}

static CUresult destroy(CUevent event)
{
    const CUresult result = find(event);
    if (result != CUDA_SUCCESS) return result;
    vd_capture_forget(event);
    vd_object_remove(event);
    if (event->shared != NULL) vd_shared_event_destroy(event);
    vd_item_put(event->record);
    free(event);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    VD_ENTER();
    return vd_leave(destroy(event));
}

CUresult vd_event_record(CUevent event, CUstream handle, unsigned flags, bool per_thread)
{
    struct CUstream_st *stream;
    struct vd_op nothing = {.what = VD_NOTHING};
    struct vd_item *item;
    CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result == CUDA_SUCCESS) result = find(event);
    if (result != CUDA_SUCCESS) return result;
    if ((flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture != NULL)
        return flags != 0 ? vd_capture_external(stream, event, false)
                          : vd_capture_record(stream, event);
    if (event->shared != NULL) vd_shared_event_record(event, &nothing);
    result = vd_stream_enqueue(stream, &nothing, &item);
    if (result != CUDA_SUCCESS) return result;
    vd_capture_forget(event);
    vd_item_put(event->record);
    event->record = item;
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    VD_ENTER();
    return vd_leave(vd_event_record(event, stream, 0, false));
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
    VD_ENTER();
    return vd_leave(vd_event_record(event, stream, 0, true));
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    VD_ENTER();
    return vd_leave(vd_event_record(event, stream, flags, false));
}

CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags)
{
    VD_ENTER();
    return vd_leave(vd_event_record(event, stream, flags, true));
}

/* The host asks about the event: an error when it was recorded last in a capture. */
static CUresult find_for_host(CUevent event)
{
    const CUresult result = find(event);
    return result != CUDA_SUCCESS ? result : vd_capture_event(event);
}

static CUresult query(CUevent event)
{
    const CUresult result = find_for_host(event);
    if (result != CUDA_SUCCESS) return result;
    if (event->shared != NULL && !vd_shared_event_ended(event)) return CUDA_ERROR_NOT_READY;
    if (event->record == NULL) return CUDA_SUCCESS;
    if (event->record->state != VD_ENDED) return CUDA_ERROR_NOT_READY;
    vd_host_knows(event->record->past);
    return event->record->result;
}

CUresult cuEventQuery(CUevent event)
{
    VD_ENTER();
    return vd_leave(query(event));
}

static CUresult synchronize(CUevent event)
{
    const CUresult result = find_for_host(event);
    if (result != CUDA_SUCCESS) return result;
    struct vd_item *record = vd_item_get(event->record);
    if (event->shared != NULL) vd_shared_event_sleep(event); /* it may be destroyed meanwhile */
    const CUresult waited = record == NULL ? CUDA_SUCCESS : vd_item_wait(record);
    vd_item_put(record);
    return waited;
}

CUresult cuEventSynchronize(CUevent event)
{
    VD_ENTER();
    return vd_leave(synchronize(event));
}

static CUresult elapsed(float *ms, CUevent begin, CUevent end)
{
    if (ms == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = find_for_host(begin);
    if (result == CUDA_SUCCESS) result = find_for_host(end);
    if (result != CUDA_SUCCESS) return result;
    if (((begin->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0 || begin->record == NULL ||
        end->record == NULL || begin->context != end->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (begin->record->state != VD_ENDED || end->record->state != VD_ENDED)
        return CUDA_ERROR_NOT_READY;
    vd_host_knows(begin->record->past);
    vd_host_knows(end->record->past);
    *ms = (float)((double)end->record->ended_ns - (double)begin->record->ended_ns) * 1e-6f;
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent begin, CUevent end)
{
    VD_ENTER();
    return vd_leave(elapsed(ms, begin, end));
}

static CUresult wait_event(CUstream handle, CUevent event, unsigned flags, bool per_thread)
{
    struct CUstream_st *stream;
    CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result == CUDA_SUCCESS) result = find(event);
    if (result != CUDA_SUCCESS) return result;
    if ((flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture != NULL && flags != 0) return vd_capture_external(stream, event, true);
    if (stream->capture != NULL || event->capture != NULL) return vd_capture_wait(stream, event);
    struct vd_op nothing = {.what = VD_NOTHING};
    if (event->shared != NULL) {
        vd_shared_event_wait(event, &nothing);
        return vd_stream_enqueue(stream, &nothing, NULL);
    }
    if (event->record == NULL) return CUDA_SUCCESS;
    struct vd_item *item = vd_item_new(stream->context, &nothing);
    if (item == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    result = CUDA_ERROR_OUT_OF_MEMORY;
    if (vd_item_after(item, event->record) == 0) result = vd_stream_append(stream, item, item);
    vd_item_put(item);
    return result;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    VD_ENTER();
    return vd_leave(wait_event(stream, event, flags, false));
}

CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags)
{
    VD_ENTER();
    return vd_leave(wait_event(stream, event, flags, true));
}

#undef cuEventElapsedTime
VD_ALIAS(cuEventElapsedTime, cuEventElapsedTime_v2);
