/* Streams of GPUs. */
#include "carrier/gpu_stream.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver/capture.h"
#include "driver/context.h"

static struct tt_gpu_stream *own(struct tt_stream *stream)
{
    return (struct tt_gpu_stream *)stream;
}

/* After the calls on the stream have ended: a fault is another kernel's than theirs. */
static tt_status passed_on(const struct tt_gpu_stream *stream, tt_status status)
{
    char cause[TT_ERROR_TEXT];
    if (status >= 0) return status;
    snprintf(cause, sizeof cause, "%s", tt_last_error());
    return tt_fail(status, "GPU %d: all calls of tutti on the stream have ended, but %s",
                   tt_context_gpu(stream->context), cause);
}

static tt_status synchronize(struct tt_stream *stream)
{
    const struct tt_gpu_stream *mine = own(stream);
    return passed_on(mine, tt_context_stream_synchronize(mine->context, mine->handle));
}

static tt_status query(struct tt_stream *stream)
{
    const struct tt_gpu_stream *mine = own(stream);
    return passed_on(mine, tt_context_stream_query(mine->context, mine->handle));
}

static void destroy(struct tt_stream *stream, bool inherited)
{
    if (inherited) {
        free(own(stream));
        return;
    }
    pthread_mutex_lock(&stream->lock);
    while (stream->done < stream->queued) pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
    tt_context_close(own(stream)->context);
    tt_stream_fini(stream);
    free(own(stream));
}

static tt_status need_tasks(const struct tt_stream *stream, const char *function,
                            const char *instead)
{
    return tt_fail(TT_ERR_USAGE, "%s: the stream is of GPU %d: use %s on the CUDA stream", function,
                   tt_context_gpu(((const struct tt_gpu_stream *)stream)->context), instead);
}

static const struct tt_stream_ops ops = {
    .synchronize = synchronize, .query = query, .destroy = destroy, .need_tasks = need_tasks};

tt_status tt_gpu_stream_create(struct tt_stream **out, int gpu, void *device_stream)
{
    static _Atomic uint64_t ncreated;
    struct tt_context *context;
    TT_TRY(tt_context_open(gpu, &context));
    struct tt_stream_facts facts;
    const tt_status status = tt_context_check_stream(context, device_stream, &facts);
    struct tt_gpu_stream *stream = status ? NULL : calloc(1, sizeof *stream);
    if (!stream) {
        tt_context_close(context);
        return status ? status : tt_fail(TT_ERR_SYSTEM, "out of memory for a stream");
    }
    tt_stream_init(&stream->base, &ops);
    stream->context = context;
    stream->handle = device_stream;
    stream->facts = facts;
    stream->number = 1 + atomic_fetch_add_explicit(&ncreated, 1, memory_order_relaxed);
    *out = &stream->base;
    return TT_OK;
}

const struct tt_gpu_stream *tt_gpu_stream_of(const struct tt_stream *stream)
{
    return stream && stream->ops == &ops ? (const struct tt_gpu_stream *)stream : NULL;
}

tt_status tt_gpu_stream_find_capture(struct tt_context *context, const struct tt_stream *stream,
                                     uint64_t *capture)
{
    bool is = false;
    void *handle = tt_gpu_stream_handle(stream);
    TT_TRY(tt_context_stream_capturing(context, handle, &is));
    return is ? tt_capture_find(context, handle, capture) : TT_OK;
}

bool tt_gpu_streams_wait(const struct tt_stream *a, const struct tt_stream *b)
{
    static const struct tt_stream_facts legacy = {.is_legacy = true, .blocks = true};
    const struct tt_stream_facts *one = a ? &((const struct tt_gpu_stream *)a)->facts : &legacy;
    const struct tt_stream_facts *two = b ? &((const struct tt_gpu_stream *)b)->facts : &legacy;
    return tt_gpu_stream_handle(a) == tt_gpu_stream_handle(b) || (one->is_legacy && two->blocks) ||
           (two->is_legacy && one->blocks);
}
