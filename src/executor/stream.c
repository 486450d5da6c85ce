/* What all streams do: they count their calls, and keep the first error. */
#include "executor/stream.h"

#include "base/condition.h"
#include "base/thread.h"

#include <stdio.h>
#include <unistd.h>

void tt_stream_init(struct tt_stream *stream, const struct tt_stream_ops *ops)
{
    *stream = (struct tt_stream){.ops = ops, .process = getpid()};
    pthread_mutex_init(&stream->lock, NULL);
    tt_condition_init(&stream->changed);
}

void tt_stream_fini(struct tt_stream *stream)
{
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
}

void tt_stream_begin(struct tt_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    stream->queued++;
    pthread_mutex_unlock(&stream->lock);
}

static void keep_error(struct tt_stream *stream, tt_status status)
{
    if (status >= 0 || stream->error) return;
    stream->error = status;
    snprintf(stream->error_text, sizeof stream->error_text, "%s", tt_last_error());
}

void tt_stream_end_locked(struct tt_stream *stream, tt_status status)
{
    stream->done++;
    keep_error(stream, status);
    pthread_cond_broadcast(&stream->changed);
}

void tt_stream_fail(struct tt_stream *stream, tt_status status)
{
    pthread_mutex_lock(&stream->lock);
    keep_error(stream, status);
    pthread_mutex_unlock(&stream->lock);
}

void tt_stream_end(struct tt_stream *stream, tt_status status)
{
    pthread_mutex_lock(&stream->lock);
    tt_stream_end_locked(stream, status);
    pthread_mutex_unlock(&stream->lock);
}

void tt_stream_await_end(struct tt_stream *stream, uint64_t ticket, bool may_run)
{
    (void)may_run;
    TT_CANCELS_WAIT;
    while (stream->done < ticket) pthread_cond_wait(&stream->changed, &stream->lock);
}

/* In a child made by fork: the stream's thread does not exist, its locks may be held for good, and
 * pthread would wait for it where it waited. */
static bool is_inherited(const struct tt_stream *stream)
{
    return stream->process != getpid();
}

tt_status tt_stream_check(const struct tt_stream *stream)
{
    return is_inherited(stream)
               ? tt_fail(TT_ERR_USAGE, "the stream was made by the parent of this process, which "
                                       "was made by fork: make another one")
               : TT_OK;
}

tt_status tt_stream_synchronize(struct tt_stream *stream, bool may_run)
{
    TT_TRY(tt_stream_check(stream));
    pthread_mutex_lock(&stream->lock);
    stream->ops->await(stream, stream->queued, may_run);
    const tt_status status = stream->error;
    stream->error = TT_OK;
    if (status) tt_set_last_error(stream->error_text);
    pthread_mutex_unlock(&stream->lock);
    return status ? status : stream->ops->synchronize(stream);
}

tt_status tt_stream_query(struct tt_stream *stream)
{
    TT_TRY(tt_stream_check(stream));
    pthread_mutex_lock(&stream->lock);
    const tt_status status = stream->error                    ? stream->error
                             : stream->done == stream->queued ? TT_OK
                                                              : TT_IN_PROGRESS;
    if (stream->error) tt_set_last_error(stream->error_text);
    pthread_mutex_unlock(&stream->lock);
    return status ? status : stream->ops->query(stream);
}

void tt_stream_destroy(struct tt_stream *stream)
{
    if (stream) stream->ops->destroy(stream, is_inherited(stream));
}
