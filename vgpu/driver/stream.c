/* Streams: handles, order of work, waiting. */
#include "run.h"

#include <stdlib.h>

VD_PER_THREAD(cuStreamQuery_ptsz, cuStreamQuery);
VD_PER_THREAD(cuStreamSynchronize_ptsz, cuStreamSynchronize);

static bool ended(const struct vd_item *item)
{
    return item == NULL || item->state == VD_ENDED;
}

static bool blocking(const struct CUstream_st *stream)
{
    return (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
}

static bool legacy(const struct CUstream_st *stream)
{
    return stream == &stream->context->legacy;
}

/* A destroyed stream stays in its context's list until its work has ended. */
static bool destroyed(const struct CUstream_st *stream)
{
    return !vd_object_is(stream, VD_STREAM);
}

static void remove_ended(struct CUctx_st *context)
{
    for (struct CUstream_st **at = &context->streams; *at != NULL;) {
        struct CUstream_st *stream = *at;
        if (!destroyed(stream) || !ended(stream->last)) {
            at = &stream->next;
            continue;
        }
        *at = stream->next;
        if (stream->last != NULL)
            vg_past_join(blocking(stream) ? context->gone : context->gone_apart,
                         stream->last->past);
        vd_item_put(stream->last);
        free(stream);
    }
}

CUresult vd_streams_init(struct CUctx_st *context)
{
    context->gone = vg_past_create();
    context->gone_apart = vg_past_create();
    if (context->gone == NULL || context->gone_apart == NULL) {
        vg_past_destroy(context->gone);
        vg_past_destroy(context->gone_apart);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context->legacy = (struct CUstream_st){.context = context};
    vd_object_add(&context->legacy, VD_STREAM);
    return CUDA_SUCCESS;
}

void vd_streams_fini(struct CUctx_st *context)
{
    while (context->streams != NULL) {
        struct CUstream_st *stream = context->streams;
        context->streams = stream->next;
        vd_capture_leave(stream);
        vd_object_remove(stream);
        vd_item_put(stream->last);
        free(stream);
    }
    vd_object_remove(&context->legacy);
    vd_item_put(context->legacy.last);
    context->legacy.last = NULL;
    vd_item_put(context->alone);
    context->alone = NULL;
    vg_past_destroy(context->gone);
    vg_past_destroy(context->gone_apart);
}

/* The stream CU_STREAM_PER_THREAD of the calling thread in a context. */
struct per_thread {
    uint64_t thread;
    struct CUctx_st *context;
    struct CUstream_st *stream;
    uint64_t number; /* the stream's: another one may have its address later */
    struct per_thread *next;
};
static struct per_thread *per_threads;
static pthread_key_t thread_ends;
static bool ends_are_told;

static struct CUstream_st *create(struct CUctx_st *context, unsigned flags, int priority)
{
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (stream == NULL) return NULL;
    remove_ended(context);
    *stream = (struct CUstream_st){.context = context,
                                   .flags = flags,
                                   .priority = priority,
                                   .last = vd_item_get(context->alone)};
    vd_object_add(stream, VD_STREAM);
    stream->next = context->streams;
    context->streams = stream;
    return stream;
}

static bool is_there(const struct per_thread *at)
{
    return vd_object_is(at->stream, VD_STREAM) && at->stream->object.number == at->number &&
           at->stream->context == at->context;
}

static void leave(struct CUstream_st *stream)
{
    vd_capture_leave(stream);
    vd_object_remove(stream);
    remove_ended(stream->context);
}

/* A thread ends: its streams go when their work has ended. */
static void drop_per_thread(void *thread)
{
    vd_lock();
    for (struct per_thread **link = &per_threads; vd.initialized && *link != NULL;) {
        struct per_thread *at = *link;
        if (at->thread != (uintptr_t)thread) {
            link = &at->next;
            continue;
        }
        *link = at->next;
        if (is_there(at)) leave(at->stream);
        free(at);
    }
    pthread_mutex_unlock(&vd.lock);
}

static CUresult resolve_per_thread(struct CUctx_st *context, struct CUstream_st **stream)
{
    const uint64_t self = vd_this_thread();
    struct per_thread *at = per_threads;
    while (at != NULL && (at->thread != self || at->context != context)) at = at->next;
    if (at == NULL) {
        if (!ends_are_told && pthread_key_create(&thread_ends, drop_per_thread) != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
        ends_are_told = true;
        at = calloc(1, sizeof *at);
        if (at == NULL || pthread_setspecific(thread_ends, (void *)(uintptr_t)self) != 0) {
            free(at);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        *at = (struct per_thread){.thread = self, .context = context, .next = per_threads};
        per_threads = at;
    }
    /* The context may have been destroyed, and another one made in its place. */
    if (!is_there(at)) {
        at->stream = create(context, CU_STREAM_DEFAULT, 0);
        at->number = at->stream != NULL ? at->stream->object.number : 0;
    }
    *stream = at->stream;
    return at->stream != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vd_stream_resolve(CUstream handle, bool per_thread, struct CUstream_st **stream)
{
    struct CUctx_st *context;
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (handle == CU_STREAM_PER_THREAD || (handle == NULL && per_thread))
        return resolve_per_thread(context, stream);
    if (handle == NULL || handle == CU_STREAM_LEGACY)
        *stream = &context->legacy;
    else if (vd_object_is(handle, VD_STREAM))
        *stream = handle;
    else
        return CUDA_ERROR_INVALID_HANDLE;
    return (*stream)->context->sticky;
}

/* Orders the item behind what the stream, and for the legacy stream all blocking streams, hold. */
static int order(struct CUstream_st *stream, struct vd_item *item)
{
    struct CUctx_st *context = stream->context;
    if (vd_item_after(item, stream->last) != 0) return -1;
    if (!legacy(stream)) return blocking(stream) ? vd_item_after(item, context->legacy.last) : 0;
    vg_past_join(item->past, context->gone);
    for (struct CUstream_st *other = context->streams; other != NULL; other = other->next)
        if (blocking(other) && vd_item_after(item, other->last) != 0) return -1;
    return 0;
}

CUresult vd_stream_append(struct CUstream_st *stream, struct vd_item *first, struct vd_item *last)
{
    if (order(stream, first) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    vd_item_put(stream->last);
    stream->last = vd_item_get(last);
    if (first != last) vd_item_submit(last);
    vd_item_submit(first);
    return CUDA_SUCCESS;
}

/* Orders the item behind all work of the context. */
static int order_behind(struct CUctx_st *context, struct vd_item *item)
{
    vg_past_join(item->past, context->gone);
    vg_past_join(item->past, context->gone_apart);
    if (vd_item_after(item, context->legacy.last) != 0) return -1;
    for (struct CUstream_st *s = context->streams; s != NULL; s = s->next)
        if (vd_item_after(item, s->last) != 0) return -1;
    return 0;
}

static void set_last(struct CUstream_st *stream, struct vd_item *item)
{
    vd_item_put(stream->last);
    stream->last = vd_item_get(item);
}

CUresult vd_stream_enqueue_alone(struct CUstream_st *stream, struct vd_op *op,
                                 struct CUctx_st *const contexts[2])
{
    struct CUctx_st *const all[] = {stream->context, contexts[0], contexts[1]};
    struct vd_item *item = NULL;
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < 3 && result == CUDA_SUCCESS; i++) result = vd_capture_implicit(all[i]);
    if (result != CUDA_SUCCESS)
        vd_op_clear(op);
    else if ((item = vd_item_new(stream->context, op)) == NULL)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < 3 && result == CUDA_SUCCESS; i++)
        if (order_behind(all[i], item) != 0) result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        vd_item_put(item);
        return result;
    }
    for (int i = 0; i < 3; i++) {
        vd_item_put(all[i]->alone);
        all[i]->alone = vd_item_get(item);
        set_last(&all[i]->legacy, item);
        for (struct CUstream_st *s = all[i]->streams; s != NULL; s = s->next) set_last(s, item);
    }
    vd_item_submit(item);
    vd_item_put(item);
    return CUDA_SUCCESS;
}

CUresult vd_stream_enqueue(struct CUstream_st *stream, struct vd_op *op, struct vd_item **item)
{
    if (item != NULL) *item = NULL;
    if (stream->capture != NULL) return vd_capture_add(stream, op);
    if (legacy(stream)) {
        const CUresult result = vd_capture_implicit(stream->context);
        if (result != CUDA_SUCCESS) {
            vd_op_clear(op);
            return result;
        }
    }
    struct vd_item *made = vd_item_new(stream->context, op);
    if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = vd_stream_append(stream, made, made);
    if (result == CUDA_SUCCESS && item != NULL) *item = vd_item_get(made);
    vd_item_put(made);
    return result;
}

/* The result of work that has ended or is waited for here: the context's error counts. */
static CUresult wait_for(struct vd_item *item)
{
    return item == NULL ? CUDA_SUCCESS : vd_item_wait(item);
}

/* Waits for the work of all streams that `stream` waits for; all: of the whole context. The list
 * may change while the lock is given back, so an item joins them. */
static CUresult wait_for_many(struct CUctx_st *context, bool all)
{
    struct vd_op nothing = {.what = VD_NOTHING};
    struct vd_item *item = vd_item_new(context, &nothing);
    if (item == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    int status = vd_item_after(item, context->legacy.last);
    for (struct CUstream_st *s = context->streams; s != NULL && status == 0; s = s->next)
        if (all || blocking(s)) status = vd_item_after(item, s->last);
    vg_past_join(item->past, context->gone);
    if (all) vg_past_join(item->past, context->gone_apart);
    vd_item_submit(item);
    const CUresult result = vd_item_wait(item);
    vd_item_put(item);
    return status != 0 ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

CUresult vd_context_wait(struct CUctx_st *context)
{
    const CUresult result = wait_for_many(context, true);
    remove_ended(context);
    return context->failed != CUDA_SUCCESS ? context->failed : result;
}

static CUresult synchronize(CUstream handle, bool per_thread)
{
    struct CUstream_st *stream;
    CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    struct CUctx_st *context = stream->context;
    result = vd_capture_waited(stream);
    if (result != CUDA_SUCCESS) return result;
    result = legacy(stream) ? wait_for_many(context, false) : wait_for(stream->last);
    return context->failed != CUDA_SUCCESS ? context->failed : result;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    VD_ENTER();
    return vd_leave(synchronize(stream, false));
}

CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    VD_ENTER();
    return vd_leave(synchronize(stream, true));
}

static CUresult query_one(const struct CUstream_st *stream)
{
    if (!ended(stream->last)) return CUDA_ERROR_NOT_READY;
    if (stream->last != NULL) vd_host_knows(stream->last->past);
    return stream->context->failed;
}

static CUresult query(CUstream handle, bool per_thread)
{
    struct CUstream_st *stream;
    CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result == CUDA_SUCCESS) result = vd_capture_waited(stream);
    if (result != CUDA_SUCCESS) return result;
    result = query_one(stream);
    if (!legacy(stream)) return result;
    for (struct CUstream_st *s = stream->context->streams; s != NULL; s = s->next)
        if (blocking(s) && result == CUDA_SUCCESS) result = query_one(s);
    if (result == CUDA_SUCCESS) vd_host_knows(stream->context->gone);
    return result;
}

CUresult cuStreamQuery(CUstream stream)
{
    VD_ENTER();
    return vd_leave(query(stream, false));
}

CUresult cuStreamQuery_ptsz(CUstream stream)
{
    VD_ENTER();
    return vd_leave(query(stream, true));
}

static CUresult create_for_caller(CUstream *stream, unsigned flags, int priority)
{
    struct CUctx_st *context;
    if (stream == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return result;
    struct CUstream_st *made = create(context, flags, priority);
    if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *stream = made;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    VD_ENTER();
    return vd_leave(create_for_caller(stream, flags, 0));
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    VD_ENTER();
    return vd_leave(create_for_caller(stream, flags, priority));
}

static CUresult destroy(CUstream handle)
{
    struct CUstream_st *stream;
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_HANDLE;
    const CUresult result = vd_stream_resolve(handle, false, &stream);
    if (result != CUDA_SUCCESS) return result;
    leave(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream)
{
    VD_ENTER();
    return vd_leave(destroy(stream));
}
