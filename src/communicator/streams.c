/* The public face of host streams and events. tuttiStream_t is a struct tt_stream, tuttiEvent_t a
 * struct tt_event. */
#include "base/clock.h"
#include "base/thread.h"
#include "carrier/gpu_stream.h"
#include "communicator/group.h"
#include "communicator/handles.h"
#include "executor/event.h"

static struct tt_stream *stream_of(tuttiStream_t stream)
{
    return (struct tt_stream *)stream;
}

static struct tt_event *event_of(tuttiEvent_t event)
{
    return (struct tt_event *)event;
}

static tt_status need(const void *pointer, const char *function, const char *what)
{
    return pointer ? TT_OK : tt_fail(TT_ERR_ARGUMENT, "%s: %s is NULL", function, what);
}

static tt_status check_event(tuttiEvent_t event)
{
    TT_TRY(tt_handle_check(event, TT_HANDLE_EVENT));
    if (!tt_event_is_inherited(event_of(event))) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "the event was made by a parent of this process, which was made by "
                   "fork: it can only be destroyed here");
}

/* NULL is allowed. */
static tt_status check_stream(tuttiStream_t stream)
{
    return stream ? tt_handle_check(stream, TT_HANDLE_STREAM) : TT_OK;
}

/* Gives the user the stream that was made; frees it where its handle cannot be kept. */
static tt_status hand_out_stream(struct tt_stream *made, tuttiStream_t *stream)
{
    const tt_status status = tt_handle_add(made, TT_HANDLE_STREAM);
    if (status)
        tt_stream_destroy(made);
    else
        *stream = (tuttiStream_t)made;
    return status;
}

tuttiResult_t tuttiStreamCreate(tuttiStream_t *stream)
{
    TT_CANCELS_WAIT;
    tt_status status = need(stream, "tuttiStreamCreate", "stream");
    struct tt_stream *made;
    if (!status) status = tt_stream_create(&made);
    if (!status) status = hand_out_stream(made, stream);
    return tt_result(__func__, status);
}

tuttiResult_t tuttiStreamFromDevice(tuttiStream_t *stream, int device, void *deviceStream)
{
    TT_CANCELS_WAIT;
    tt_status status = need(stream, "tuttiStreamFromDevice", "stream");
    struct tt_stream *made;
    if (!status) status = tt_gpu_stream_create(&made, device, deviceStream);
    if (!status) status = hand_out_stream(made, stream);
    return tt_result(__func__, status);
}

static tt_status keep_handle(const void *stream)
{
    return tt_handle_add(stream, TT_HANDLE_STREAM);
}

/* device -1: of a communicator that takes memory of the host only. */
static tt_status find_stream(tuttiStream_t *stream, int device, void *deviceStream)
{
    struct tt_stream *found = NULL;
    TT_TRY(need(stream, "tuttiStreamOfDevice", "stream"));
    if (device == -1 && deviceStream)
        return tt_fail(TT_ERR_ARGUMENT,
                       "tuttiStreamOfDevice: device -1 is no GPU, so %p cannot be a stream of it: "
                       "give the stream's GPU, or NULL",
                       deviceStream);
    if (device != -1) TT_TRY(tt_gpu_stream_find(&found, device, deviceStream, keep_handle));
    *stream = (tuttiStream_t)found;
    return TT_OK;
}

tuttiResult_t tuttiStreamOfDevice(tuttiStream_t *stream, int device, void *deviceStream)
{
    TT_CANCELS_WAIT;
    return tt_result(__func__, find_stream(stream, device, deviceStream));
}

/* What only streams of the host can do. */
static tt_status need_host_stream(tuttiStream_t stream, const char *function, const char *instead)
{
    struct tt_stream *own = stream_of(stream);
    if (!own) return TT_OK;
    TT_TRY(check_stream(stream));
    TT_TRY(tt_stream_check(own));
    return own->ops->need_tasks(own, function, instead);
}

static tt_status check_not_kept(const struct tt_stream *stream)
{
    const struct tt_gpu_stream *gpus = tt_gpu_stream_of(stream);
    if (!gpus || !gpus->is_kept) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "tuttiStreamDestroy: the stream is one of tuttiStreamOfDevice, "
                                 "which keeps it: destroy the CUDA stream only");
}

tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream)
{
    TT_CANCELS_WAIT;
    if (!stream) return tuttiSuccess;
    tt_status status = check_stream(stream);
    if (!status) status = check_not_kept(stream_of(stream));
    if (!status) status = tt_stream_check_outside(stream_of(stream), "tuttiStreamDestroy");
    if (!status) status = tt_group_check_stream("tuttiStreamDestroy", stream);
    if (status) return tt_result(__func__, status);
    tt_handle_remove(stream, TT_HANDLE_STREAM);
    tt_stream_destroy(stream_of(stream));
    return tuttiSuccess;
}

/* Whether this thread may run what it waits for. The functions of a stream issue calls, which are
 * not calls of a group that the thread has open. */
static bool may_run(void)
{
    return !tt_in_group();
}

tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream)
{
    TT_CANCELS_WAIT;
    if (!stream) return tuttiSuccess;
    tt_status status = check_stream(stream);
    if (!status) status = tt_stream_check_outside(stream_of(stream), "tuttiStreamSynchronize");
    if (!status) status = tt_stream_synchronize(stream_of(stream), may_run());
    return tt_result(__func__, status);
}

tuttiResult_t tuttiStreamQuery(tuttiStream_t stream)
{
    TT_CANCELS_WAIT;
    tt_status status = check_stream(stream);
    if (stream && !status) status = tt_stream_query(stream_of(stream));
    return tt_result(__func__, status);
}

/* A user's function on its way through a stream. */
struct host_function {
    struct tt_task task; /* first: the task's address is the struct's */
    void (*function)(void *);
    void *argument;
};

static tt_status run_host_function(struct tt_task *task, bool awaited)
{
    (void)awaited;
    const struct host_function *call = (struct host_function *)task;
    call->function(call->argument);
    return TT_OK;
}

tuttiResult_t tuttiStreamLaunch(tuttiStream_t stream, void (*function)(void *), void *argument)
{
    TT_CANCELS_WAIT;
    if (!function)
        return tt_result(__func__, tt_fail(TT_ERR_ARGUMENT, "tuttiStreamLaunch: function is NULL"));
    if (!stream) {
        function(argument);
        return tuttiSuccess;
    }
    const tt_status status = need_host_stream(stream, "tuttiStreamLaunch", "cuLaunchHostFunc");
    if (status) return tt_result(__func__, status);
    struct host_function *call =
        (struct host_function *)tt_task_take(stream_of(stream), sizeof *call);
    if (!call)
        return tt_result(__func__, tt_fail(TT_ERR_SYSTEM, "out of memory for a stream's function"));
    call->task.run = run_host_function;
    call->function = function;
    call->argument = argument;
    tt_stream_push_function(stream_of(stream), &call->task);
    return tuttiSuccess;
}

tuttiResult_t tuttiEventCreate(tuttiEvent_t *event)
{
    TT_CANCELS_WAIT;
    tt_status status = need(event, "tuttiEventCreate", "event");
    struct tt_event *made = NULL;
    if (!status) status = tt_event_create(&made);
    if (!status) status = tt_handle_add(made, TT_HANDLE_EVENT);
    if (!status)
        *event = (tuttiEvent_t)made;
    else
        tt_event_destroy(made);
    return tt_result(__func__, status);
}

tuttiResult_t tuttiEventDestroy(tuttiEvent_t event)
{
    TT_CANCELS_WAIT;
    if (!event) return tuttiSuccess;
    const tt_status status = tt_handle_check(event, TT_HANDLE_EVENT);
    if (status) return tt_result(__func__, status);
    tt_handle_remove(event, TT_HANDLE_EVENT);
    tt_event_destroy(event_of(event));
    return tuttiSuccess;
}

tuttiResult_t tuttiEventRecord(tuttiEvent_t event, tuttiStream_t stream)
{
    TT_CANCELS_WAIT;
    tt_status status = check_event(event);
    if (!status) status = need_host_stream(stream, "tuttiEventRecord", "cuEventRecord");
    if (!status) status = tt_event_record(event_of(event), stream_of(stream));
    return tt_result(__func__, status);
}

tuttiResult_t tuttiEventSynchronize(tuttiEvent_t event)
{
    TT_CANCELS_WAIT;
    tt_status status = check_event(event);
    if (!status) status = tt_event_check_outside(event_of(event), "tuttiEventSynchronize");
    if (!status) tt_event_synchronize(event_of(event), may_run());
    return tt_result(__func__, status);
}

tuttiResult_t tuttiEventSynchronizeFor(tuttiEvent_t event, int timeoutMs)
{
    TT_CANCELS_WAIT;
    tt_status status = check_event(event);
    if (!status && timeoutMs < 0)
        status = tt_fail(TT_ERR_ARGUMENT,
                         "tuttiEventSynchronizeFor: timeoutMs is %d: give 0 or more", timeoutMs);
    if (!status) status = tt_event_check_outside(event_of(event), "tuttiEventSynchronizeFor");
    if (!status)
        status =
            tt_event_synchronize_until(event_of(event), tt_now_ns() + (int64_t)timeoutMs * 1000000);
    return tt_result(__func__, status);
}

tuttiResult_t tuttiEventQuery(tuttiEvent_t event)
{
    TT_CANCELS_WAIT;
    tt_status status = check_event(event);
    if (!status) status = tt_event_query(event_of(event));
    return tt_result(__func__, status);
}

tuttiResult_t tuttiStreamWaitEvent(tuttiStream_t stream, tuttiEvent_t event)
{
    TT_CANCELS_WAIT;
    tt_status status = check_event(event);
    if (!status) status = check_stream(stream);
    if (!status && !stream)
        status = tt_event_check_outside(event_of(event), "tuttiStreamWaitEvent with stream NULL");
    if (status) return tt_result(__func__, status);
    if (!stream) {
        tt_event_synchronize(event_of(event), may_run());
        return tuttiSuccess;
    }
    status = need_host_stream(stream, "tuttiStreamWaitEvent", "cuStreamWaitEvent");
    if (!status) status = tt_stream_wait_event(stream_of(stream), event_of(event));
    return tt_result(__func__, status);
}

tuttiResult_t tuttiEventElapsedTime(float *ms, tuttiEvent_t start, tuttiEvent_t end)
{
    TT_CANCELS_WAIT;
    int64_t from, to;
    tt_status status = need(ms, "tuttiEventElapsedTime", "ms");
    if (!status) status = check_event(start);
    if (!status) status = check_event(end);
    if (!status) status = tt_event_time(event_of(start), &from);
    if (!status) status = tt_event_time(event_of(end), &to);
    if (!status) *ms = (float)((double)(to - from) * 1e-6);
    return tt_result(__func__, status);
}
