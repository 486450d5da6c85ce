/* Streams of GPUs. */
#include "carrier/gpu_stream.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/process_lock.h"
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
    tt_stream_await_end(stream, stream->queued, false);
    pthread_mutex_unlock(&stream->lock);
    tt_context_drop(own(stream)->context);
    tt_stream_fini(stream);
    free(own(stream));
}

static tt_status need_tasks(const struct tt_stream *stream, const char *function,
                            const char *instead)
{
    return tt_fail(TT_ERR_USAGE, "%s: the stream is of GPU %d: use %s on the CUDA stream", function,
                   tt_context_gpu(((const struct tt_gpu_stream *)stream)->context), instead);
}

static const struct tt_stream_ops ops = {.await = tt_stream_await_end,
                                         .synchronize = synchronize,
                                         .query = query,
                                         .destroy = destroy,
                                         .need_tasks = need_tasks};

/* What only the CUDA stream decides. */
static void describe(struct tt_gpu_stream *stream, const struct tt_stream_facts *facts, uint64_t id)
{
    static _Atomic uint64_t ncreated;
    stream->facts = *facts;
    stream->id = id;
    stream->number = 1 + atomic_fetch_add_explicit(&ncreated, 1, memory_order_relaxed);
}

/* context: taken over. */
static struct tt_gpu_stream *make(struct tt_context *context, void *handle,
                                  const struct tt_stream_facts *facts, uint64_t id)
{
    struct tt_gpu_stream *stream = calloc(1, sizeof *stream);
    if (!stream) {
        tt_ignore(tt_fail(TT_ERR_SYSTEM, "out of memory for a stream"));
        return NULL;
    }
    tt_stream_init(&stream->base, &ops);
    stream->context = context;
    stream->handle = handle;
    describe(stream, facts, id);
    return stream;
}

tt_status tt_gpu_stream_create(struct tt_stream **out, int gpu, void *device_stream)
{
    struct tt_context *context;
    struct tt_stream_facts facts;
    TT_TRY(tt_context_hold(gpu, &context));
    const tt_status status = tt_context_check_stream(context, device_stream, &facts);
    struct tt_gpu_stream *stream = status ? NULL : make(context, device_stream, &facts, 0);
    if (!stream) {
        tt_context_drop(context);
        return status ? status : TT_ERR_SYSTEM;
    }
    *out = &stream->base;
    return TT_OK;
}

/* ---- Streams that are kept ------------------------------------------------------------------- */

enum { BUCKETS = 256, RECENT = 16 };

/* Which CUDA stream. */
struct key {
    void *handle;
    uint64_t id;
    int gpu;
};

/* The streams that are kept, by a hash of handle and GPU. Several have one handle where calls on a
 * CUDA stream that had it before have not ended. */
static struct tt_process_lock lock = TT_PROCESS_LOCK;
static struct tt_gpu_stream *kept[BUCKETS]; /* guarded by lock */

/* What this thread has used. An entry holds for ever: no other CUDA stream ever has the id. */
static _Thread_local struct recent {
    struct key key;
    struct tt_gpu_stream *stream; /* NULL: nothing yet */
} recent[RECENT];

static bool are_equal(const struct key *a, const struct key *b)
{
    return a->handle == b->handle && a->id == b->id && a->gpu == b->gpu;
}

static size_t hash_of(const struct key *key)
{
    const uint64_t word = ((uint64_t)(uintptr_t)key->handle >> 3) + ((uint64_t)key->gpu << 48);
    return (size_t)(word * 0x9e3779b97f4a7c15u >> 32);
}

static struct tt_gpu_stream *find_locked(const struct key *key)
{
    struct tt_gpu_stream *stream = kept[hash_of(key) % BUCKETS];
    while (stream && !are_equal(key, &(struct key){stream->handle, stream->id,
                                                   tt_context_gpu(stream->context)}))
        stream = stream->next;
    return stream;
}

/* No call on it is outstanding. */
static bool is_idle(struct tt_gpu_stream *stream)
{
    pthread_mutex_lock(&stream->base.lock);
    const bool idle = stream->base.done == stream->base.queued;
    pthread_mutex_unlock(&stream->base.lock);
    return idle;
}

/* One of a CUDA stream that was at the address before; NULL: there is none that can be used. */
static struct tt_gpu_stream *find_gone_locked(const struct key *key)
{
    struct tt_gpu_stream *stream = kept[hash_of(key) % BUCKETS];
    while (stream && (stream->handle != key->handle ||
                      tt_context_gpu(stream->context) != key->gpu || !is_idle(stream)))
        stream = stream->next;
    return stream;
}

/* The stream stands for another CUDA stream from now on, which has had no failure. It is idle. */
static void reuse_locked(struct tt_gpu_stream *stream, const struct tt_stream_facts *facts,
                         uint64_t id)
{
    pthread_mutex_lock(&stream->base.lock);
    stream->base.error = TT_OK;
    pthread_mutex_unlock(&stream->base.lock);
    describe(stream, facts, id);
}

/* context: taken over where the stream is new. */
static tt_status keep_locked(const struct key *key, struct tt_context **context,
                             const struct tt_stream_facts *facts,
                             tt_status (*made)(const void *stream), struct tt_gpu_stream **out)
{
    struct tt_gpu_stream *stream = find_locked(key); /* another thread was here first */
    if (!stream && (stream = find_gone_locked(key))) reuse_locked(stream, facts, key->id);
    if (!stream) {
        stream = make(*context, key->handle, facts, key->id);
        if (!stream) return TT_ERR_SYSTEM;
        stream->is_kept = true;
        const tt_status status = made(stream);
        if (status) {
            tt_stream_fini(&stream->base);
            free(stream);
            return status;
        }
        *context = NULL;
        struct tt_gpu_stream **bucket = &kept[hash_of(key) % BUCKETS];
        stream->next = *bucket;
        *bucket = stream;
    }
    *out = stream;
    return TT_OK;
}

static tt_status look_up(const struct key *key, tt_status (*made)(const void *stream),
                         struct tt_gpu_stream **stream)
{
    struct tt_context *context;
    struct tt_stream_facts facts;
    tt_process_lock_shared(&lock);
    struct tt_gpu_stream *found = find_locked(key);
    tt_process_unlock(&lock);
    if (found) {
        *stream = found;
        return TT_OK;
    }
    TT_TRY(tt_context_hold(key->gpu, &context));
    tt_status status = tt_context_check_stream(context, key->handle, &facts);
    if (!status) {
        tt_process_lock(&lock);
        status = keep_locked(key, &context, &facts, made, stream);
        tt_process_unlock(&lock);
    }
    if (context) tt_context_drop(context);
    return status;
}

tt_status tt_gpu_stream_find(struct tt_stream **out, int gpu, void *device_stream,
                             tt_status (*made)(const void *stream))
{
    struct key key = {.handle = device_stream, .gpu = gpu};
    if (!tt_context_is_default(device_stream))
        TT_TRY(tt_stream_find_id(gpu, device_stream, &key.id));
    struct recent *mine = &recent[hash_of(&key) % RECENT];
    if (!mine->stream || !are_equal(&mine->key, &key)) {
        TT_TRY(look_up(&key, made, &mine->stream));
        mine->key = key;
    }
    *out = &mine->stream->base;
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
