/* Host functions and callbacks of streams: run one after another on a thread of their own, without
 * the lock. */
#include "run.h"

#include <semaphore.h>
#include <stdlib.h>

VD_PER_THREAD(cuLaunchHostFunc_ptsz, cuLaunchHostFunc);
VD_PER_THREAD(cuStreamAddCallback_ptsz, cuStreamAddCallback);

static struct {
    struct vd_item **at; /* that have begun, in order */
    size_t n, room, first;
    sem_t come; /* one for each that has not been taken from the queue */
    size_t running;
    pthread_t thread;
    bool stop;
} queue;

static _Thread_local bool inside;

bool vd_hostfunc_inside(void)
{
    return inside;
}

bool vd_hostfunc_running(void)
{
    return queue.running > 0;
}

/* What cuStreamAddCallback was given; the operation owns it until the function is called. */
struct callback {
    CUstreamCallback function;
    CUstream stream;
    struct CUctx_st *context;
    void *arg;
};

static void CUDA_CB call_back(void *arg)
{
    const struct callback callback = *(struct callback *)arg;
    free(arg);
    callback.function(callback.stream, callback.context->failed, callback.arg);
}

void vd_hostfunc_drop(struct vd_op *op)
{
    if (op->host.function == call_back) free(op->host.arg);
}

static void *run(void *arg)
{
    (void)arg;
    inside = true;
    for (;;) {
        while (sem_wait(&queue.come) != 0) {
        }
        if (queue.stop) return NULL;
        vd_lock(); /* not by a condition variable: the executor gives way to vd_lock only */
        struct vd_item *item = queue.at[queue.first++];
        if (queue.first == queue.n) queue.first = queue.n = 0;
        const CUhostFn function = item->op.host.function;
        void *const data = item->op.host.arg;
        item->op.host.function = NULL; /* called: it owns its argument */
        vd_host_knows(item->past);
        pthread_mutex_unlock(&vd.lock);
        function(data);
        vd_lock();
        vd_item_learn(item); /* it may have waited for a kernel's word, or for another thread */
        item->done = 1;
        queue.running--;
        vd_item_put(item);
        vd_executor_changed();
        pthread_mutex_unlock(&vd.lock);
    }
    return NULL;
}

CUresult vd_hostfunc_start(void)
{
    queue.stop = false;
    if (sem_init(&queue.come, 0, 0) != 0 || pthread_create(&queue.thread, NULL, run, NULL) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    return CUDA_SUCCESS;
}

void vd_hostfunc_stop(void)
{
    queue.stop = true;
    sem_post(&queue.come);
    pthread_join(queue.thread, NULL);
}

static CUresult begin(struct vd_item *item, char error[512])
{
    (void)error;
    if (queue.n == queue.room) {
        const size_t room = queue.room == 0 ? 16 : 2 * queue.room;
        void *at = realloc(queue.at, room * sizeof(struct vd_item *));
        if (at == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
        queue.at = at;
        queue.room = room;
    }
    queue.at[queue.n++] = vd_item_get(item);
    queue.running++;
    item->outside = true;
    sem_post(&queue.come);
    return CUDA_SUCCESS;
}

static enum vg_progress step(struct vd_item *item, CUresult *fault, const char **text)
{
    (void)fault;
    (void)text;
    return item->done != 0 ? VG_DONE : VG_WAITING;
}

static void end(struct vd_item *item)
{
    (void)item;
}

const struct vd_runner vd_host_runner = {begin, step, end};

static CUresult launch(CUstream handle, CUhostFn function, void *arg, bool per_thread)
{
    struct CUstream_st *stream;
    if (function == NULL) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    struct vd_op op = {.what = VD_HOST, .host = {function, arg, false}};
    return vd_stream_enqueue(stream, &op, NULL);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *arg)
{
    VD_ENTER();
    return vd_leave(launch(stream, function, arg, false));
}

CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *arg)
{
    VD_ENTER();
    return vd_leave(launch(stream, function, arg, true));
}

static CUresult add(CUstream handle, CUstreamCallback function, void *arg, unsigned flags,
                    bool per_thread)
{
    struct CUstream_st *stream;
    if (function == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (stream->capture != NULL) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct callback *callback = malloc(sizeof *callback);
    if (callback == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *callback = (struct callback){function, handle, stream->context, arg};
    struct vd_op op = {.what = VD_HOST, .host = {call_back, callback, true}};
    return vd_stream_enqueue(stream, &op, NULL);
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function, void *arg, unsigned flags)
{
    VD_ENTER();
    return vd_leave(add(stream, function, arg, flags, false));
}

CUresult cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback function, void *arg,
                                  unsigned flags)
{
    VD_ENTER();
    return vd_leave(add(stream, function, arg, flags, true));
}
