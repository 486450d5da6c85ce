/* Streams of the host: a FIFO of tasks, and the thread that runs them. The memory of a task that
 * has run is kept for the next one, so that calls on a stream take none of the heap. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "executor/stream.h"

enum { LEAST_CLASS = 6, NCLASSES = 40 }; /* the memory of a task has 2^class bytes */

/* Owned by its creator. */
struct host_stream {
    struct tt_stream base;
    /* immutable after create */
    pthread_t thread;
    /* guarded by base.lock */
    struct tt_task *first, **last;
    struct tt_task *unused[NCLASSES]; /* memory of tasks that have run, by class */
    bool stop;
    int64_t (*idle)(void *arg); /* NULL: none */
    void *idle_arg;
};

static struct host_stream *host(struct tt_stream *stream)
{
    return (struct host_stream *)stream;
}

/* ---- The memory of tasks -------------------------------------------------------------------- */

static uint8_t class_of(size_t nbytes)
{
    uint8_t class = LEAST_CLASS;
    while ((size_t)1 << class < nbytes) class ++;
    return class;
}

struct tt_task *tt_task_take(struct tt_stream *stream, size_t nbytes)
{
    struct host_stream *own = host(stream);
    if (nbytes > (size_t)1 << (NCLASSES - 1)) return NULL;
    const uint8_t class = class_of(nbytes);
    pthread_mutex_lock(&stream->lock);
    struct tt_task *task = own->unused[class];
    if (task) own->unused[class] = task->next;
    pthread_mutex_unlock(&stream->lock);
    if (!task) task = malloc((size_t)1 << class);
    if (task) task->class = class;
    return task;
}

static void keep_locked(struct host_stream *own, struct tt_task *task)
{
    task->next = own->unused[task->class];
    own->unused[task->class] = task;
}

void tt_task_drop(struct tt_stream *stream, struct tt_task *task)
{
    pthread_mutex_lock(&stream->lock);
    keep_locked(host(stream), task);
    pthread_mutex_unlock(&stream->lock);
}

/* ---- The thread ----------------------------------------------------------------------------- */

/* Nothing is queued. */
static void wait_locked(struct host_stream *own)
{
    struct tt_stream *stream = &own->base;
    int64_t (*const idle)(void *arg) = own->idle;
    void *const arg = own->idle_arg;
    if (!idle) {
        pthread_cond_wait(&stream->changed, &stream->lock);
        return;
    }
    pthread_mutex_unlock(&stream->lock);
    const int64_t pause_ns = idle(arg);
    if (!pause_ns) sched_yield();
    pthread_mutex_lock(&stream->lock);
    if (!pause_ns || own->first || own->stop) return;
    const int64_t until_ns = tt_now_ns() + pause_ns;
    const struct timespec until = {.tv_sec = until_ns / 1000000000,
                                   .tv_nsec = until_ns % 1000000000};
    pthread_cond_timedwait(&stream->changed, &stream->lock, &until);
}

static _Thread_local const struct host_stream *served_here; /* by this thread */

static void *serve(void *argument)
{
    struct host_stream *own = argument;
    served_here = own;
    pthread_mutex_lock(&own->base.lock);
    for (;;) {
        while (!own->first && !own->stop) wait_locked(own);
        struct tt_task *task = own->first;
        if (!task) break;
        if (!(own->first = task->next)) own->last = &own->first;
        pthread_mutex_unlock(&own->base.lock);
        const tt_status status = task->run(task);
        tt_task_drop(&own->base, task); /* before anybody learns that the task is done */
        tt_stream_end(&own->base, status);
        pthread_mutex_lock(&own->base.lock);
    }
    pthread_mutex_unlock(&own->base.lock);
    return NULL;
}

/* ---- The kind ------------------------------------------------------------------------------- */

/* There is nothing but calls. */
static tt_status nothing_else(struct tt_stream *stream)
{
    (void)stream;
    return TT_OK;
}

static void destroy(struct tt_stream *stream, bool inherited)
{
    struct host_stream *own = host(stream);
    if (inherited) {
        free(own);
        return;
    }
    pthread_mutex_lock(&stream->lock);
    own->stop = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(own->thread, NULL);
    for (int class = LEAST_CLASS; class < NCLASSES; class ++)
        while (own->unused[class]) {
            struct tt_task *task = own->unused[class];
            own->unused[class] = task->next;
            free(task);
        }
    tt_stream_fini(stream);
    free(own);
}

static tt_status need_tasks(const struct tt_stream *stream, const char *function,
                            const char *instead)
{
    (void)stream, (void)function, (void)instead;
    return TT_OK;
}

static const struct tt_stream_ops ops = {.synchronize = nothing_else,
                                         .query = nothing_else,
                                         .destroy = destroy,
                                         .need_tasks = need_tasks};

bool tt_stream_is_hosts(const struct tt_stream *stream)
{
    return stream->ops == &ops;
}

tt_status tt_stream_create(struct tt_stream **out)
{
    struct host_stream *own = calloc(1, sizeof *own);
    if (!own) return tt_fail(TT_ERR_SYSTEM, "out of memory for a stream");
    tt_stream_init(&own->base, &ops);
    own->last = &own->first;
    const int error = tt_thread_start(&own->thread, NULL, serve, own);
    if (error) {
        tt_stream_fini(&own->base);
        free(own);
        return tt_fail_errno(error, "cannot start a stream's worker thread (ulimit -u?)");
    }
    *out = &own->base;
    return TT_OK;
}

void tt_stream_push(struct tt_stream *stream, struct tt_task *task)
{
    struct host_stream *own = host(stream);
    pthread_mutex_lock(&stream->lock);
    task->next = NULL;
    *own->last = task;
    own->last = &task->next;
    stream->queued++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

void tt_stream_watch(struct tt_stream *stream, int64_t (*idle)(void *arg), void *arg)
{
    struct host_stream *own = host(stream);
    pthread_mutex_lock(&stream->lock);
    own->idle = idle;
    own->idle_arg = arg;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

bool tt_stream_is_here(const struct tt_stream *stream)
{
    return served_here && &served_here->base == stream;
}

bool tt_stream_is_served_here(void)
{
    return served_here != NULL;
}

tt_status tt_stream_check_outside(const struct tt_stream *stream, const char *function)
{
    if (!tt_stream_is_here(stream)) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "%s in a function that the stream runs: it would wait for itself; call it in "
                   "another thread, or when the function has returned",
                   function);
}
