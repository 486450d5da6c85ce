/* Streams of the host: a FIFO of tasks. A task is run by a thread that waits for it, if one comes
 * before the stream's own thread has begun: handing a task over costs more than a short call. The
 * stream's own thread runs what nobody waits for. The memory of a task that has run is kept for the
 * next one, so that calls on a stream take none of the heap. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/process_lock.h"
#include "base/thread.h"
#include "executor/stream.h"
#include "executor/work.h"

enum { LEAST_CLASS = 6, NCLASSES = 40 }; /* the memory of a task has 2^class bytes */
enum { MOST_PAUSE_NS = 8 * TT_LAZY_NS }; /* between two looks of a lazy stream's thread */

enum sleeping {
    AWAKE,
    ASLEEP_FOR_A_WHILE, /* of a lazy stream: a task may wait until the thread wakes */
    ASLEEP,             /* a task must wake the thread */
};

/* Owned by its creator. */
struct host_stream {
    struct tt_stream base;
    /* immutable after create */
    pthread_t thread;
    /* guarded by base.lock */
    struct tt_task *first, **last;
    struct tt_task *unused[NCLASSES]; /* memory of tasks that have run, by class */
    pthread_cond_t work;              /* for the stream's thread; uses CLOCK_MONOTONIC */
    enum sleeping is_asleep;          /* the stream's thread */
    bool running;                     /* some thread runs a task */
    int nwaiting;                     /* threads in `await` */
    bool stop;
    int64_t (*idle)(void *arg); /* NULL: none */
    void *idle_arg;
    /* owner: the stream's thread, of a lazy stream */
    int64_t pause_ns; /* until it looks for tasks again */
    uint64_t seen;    /* how many had been queued when it last looked */
    /* the rest */
    _Atomic bool lazy;        /* tt_stream_set_lazy */
    struct host_stream *next; /* of all, guarded by `listing` */
};

static struct host_stream *host(struct tt_stream *stream)
{
    return (struct host_stream *)stream;
}

static bool is_lazy(const struct host_stream *own)
{
    return atomic_load_explicit(&own->lazy, memory_order_relaxed);
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
    if (!task) return NULL;
    task->class = class;
    task->works = NULL;
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

/* ---- Running tasks -------------------------------------------------------------------------- */

/* The tasks that a thread runs, one inside the other: a task may wait for another stream, and the
 * thread then runs that stream's tasks. */
struct serving {
    struct host_stream *stream;
    bool awaited; /* by a thread that has nothing else to do; false: the stream's own runs it */
    const struct serving *outer;
};

static _Thread_local const struct serving *serving_here;

enum { MOST_SERVING = 8 }; /* a thread's stack holds so many tasks for certain */

static bool may_serve_another(void)
{
    int n = 0;
    for (const struct serving *at = serving_here; at; at = at->outer) n++;
    return n < MOST_SERVING;
}

/* Runs the first task, which no thread has begun. */
static void run_first_locked(struct host_stream *own, bool awaited)
{
    struct tt_stream *stream = &own->base;
    const struct serving here = {own, awaited, serving_here};
    struct tt_task *task = own->first;
    if (!(own->first = task->next)) own->last = &own->first;
    own->running = true;
    pthread_mutex_unlock(&stream->lock);
    serving_here = &here;
    const tt_status status = task->run(task, awaited);
    serving_here = here.outer;
    pthread_mutex_lock(&stream->lock);
    own->running = false;
    keep_locked(own, task); /* before anybody learns that the task is done */
    tt_stream_end_locked(stream, status);
    /* This thread may not need the next task, and the stream's thread waited for this one's end. */
    if (own->first && own->is_asleep == ASLEEP) pthread_cond_signal(&own->work);
}

/* ---- Threads that wait ---------------------------------------------------------------------- */

static void await(struct tt_stream *stream, uint64_t ticket, bool may_run)
{
    struct host_stream *own = host(stream);
    TT_CANCELS_WAIT;
    may_run = may_run && may_serve_another();
    own->nwaiting++;
    while (stream->done < ticket) {
        if (may_run && own->first && !own->running)
            run_first_locked(own, !serving_here || serving_here->awaited);
        else
            pthread_cond_wait(&stream->changed, &stream->lock);
    }
    own->nwaiting--;
    if (own->stop) pthread_cond_broadcast(&stream->changed);
}

static void hurry_locked(struct host_stream *own)
{
    for (struct tt_task *task = own->first; task; task = task->next) task->due_ns = 0;
    if (own->first && own->is_asleep) pthread_cond_signal(&own->work);
}

static bool await_until(struct host_stream *own, uint64_t ticket, int64_t until_ns)
{
    struct tt_stream *stream = &own->base;
    TT_CANCELS_WAIT;
    own->nwaiting++;
    hurry_locked(own);
    while (stream->done < ticket && !tt_condition_wait(&stream->changed, &stream->lock, until_ns)) {
    }
    own->nwaiting--;
    if (own->stop) pthread_cond_broadcast(&stream->changed);
    return stream->done >= ticket;
}

bool tt_stream_await_task_until(struct tt_stream *stream, uint64_t ticket, int64_t until_ns,
                                pthread_mutex_t *held)
{
    pthread_mutex_lock(&stream->lock);
    pthread_mutex_unlock(held);
    const bool done = await_until(host(stream), ticket, until_ns);
    pthread_mutex_unlock(&stream->lock);
    return done;
}

void tt_stream_await_task(struct tt_stream *stream, uint64_t ticket, bool may_run,
                          pthread_mutex_t *held)
{
    pthread_mutex_lock(&stream->lock);
    pthread_mutex_unlock(held);
    await(stream, ticket, may_run);
    pthread_mutex_unlock(&stream->lock);
}

/* ---- The stream's thread -------------------------------------------------------------------- */

static void sleep_until_locked(struct host_stream *own, int64_t until_ns)
{
    own->is_asleep = is_lazy(own) ? ASLEEP_FOR_A_WHILE : ASLEEP;
    tt_condition_wait(&own->work, &own->base.lock, until_ns);
    own->is_asleep = AWAKE;
}

/* Nothing is queued, and the stream's creator wants to look at something meanwhile. */
static void idle_locked(struct host_stream *own)
{
    int64_t (*const idle)(void *arg) = own->idle;
    void *const arg = own->idle_arg;
    pthread_mutex_unlock(&own->base.lock);
    const int64_t pause_ns = idle(arg);
    if (!pause_ns) sched_yield();
    pthread_mutex_lock(&own->base.lock);
    if (pause_ns && !own->first && !own->stop) sleep_until_locked(own, tt_now_ns() + pause_ns);
}

/* No task is due. Where tasks follow one another, nobody wakes the thread of a lazy stream: the
 * thread looks for tasks now and then, less often while threads that wait run all of them. */
static void wait_locked(struct host_stream *own, bool lazy)
{
    if (lazy && own->first && !own->running) {
        sleep_until_locked(own, own->first->due_ns);
    } else if (own->idle && !own->first) {
        idle_locked(own);
    } else if (lazy && own->seen != own->base.queued) {
        own->seen = own->base.queued;
        sleep_until_locked(own, tt_now_ns() + own->pause_ns);
        if (own->pause_ns < MOST_PAUSE_NS) own->pause_ns *= 2;
    } else {
        own->is_asleep = ASLEEP;
        pthread_cond_wait(&own->work, &own->base.lock);
        own->is_asleep = AWAKE;
    }
}

static bool is_due_locked(const struct host_stream *own, bool lazy)
{
    if (!own->first || own->running) return false;
    return !lazy || tt_now_ns() >= own->first->due_ns;
}

static void *serve(void *argument)
{
    struct host_stream *own = argument;
    pthread_mutex_lock(&own->base.lock);
    for (;;) {
        const bool lazy = is_lazy(own);
        if (!is_due_locked(own, lazy)) {
            if (own->stop && !own->first) break;
            wait_locked(own, lazy);
            continue;
        }
        own->pause_ns = TT_LAZY_NS;
        run_first_locked(own, false);
    }
    pthread_mutex_unlock(&own->base.lock);
    return NULL;
}

/* ---- All streams of the process ------------------------------------------------------------- */

static struct tt_process_lock listing = TT_PROCESS_LOCK;
static struct host_stream *streams; /* guarded by listing; each change is one store */

static void list(struct host_stream *own)
{
    tt_process_lock(&listing);
    own->next = streams;
    streams = own;
    tt_process_unlock(&listing);
}

static void unlist(struct host_stream *own)
{
    tt_process_lock(&listing);
    struct host_stream **at = &streams;
    while (*at != own) at = &(*at)->next;
    *at = own->next;
    tt_process_unlock(&listing);
}

void tt_streams_hurry(void)
{
    const pid_t process = getpid();
    tt_process_lock(&listing);
    for (struct host_stream *own = streams; own; own = own->next) {
        if (own->base.process != process) continue; /* its lock may be held for good */
        pthread_mutex_lock(&own->base.lock);
        hurry_locked(own);
        pthread_mutex_unlock(&own->base.lock);
    }
    tt_process_unlock(&listing);
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
    unlist(own);
    if (inherited) {
        free(own);
        return;
    }
    const int cancels = tt_cancel_put_off();
    pthread_mutex_lock(&stream->lock);
    tt_stream_set_lazy(stream, false);
    pthread_cond_signal(&own->work);
    await(stream, stream->queued, false);
    own->stop = true;
    while (own->nwaiting) pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_cond_signal(&own->work);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(own->thread, NULL);
    tt_cancel_allow(cancels);
    for (int class = LEAST_CLASS; class < NCLASSES; class ++)
        while (own->unused[class]) {
            struct tt_task *task = own->unused[class];
            own->unused[class] = task->next;
            free(task);
        }
    pthread_cond_destroy(&own->work);
    tt_stream_fini(stream);
    free(own);
}

static tt_status need_tasks(const struct tt_stream *stream, const char *function,
                            const char *instead)
{
    (void)stream, (void)function, (void)instead;
    return TT_OK;
}

static const struct tt_stream_ops ops = {.await = await,
                                         .synchronize = nothing_else,
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
    tt_condition_init(&own->work);
    own->last = &own->first;
    own->pause_ns = TT_LAZY_NS;
    const int error = tt_thread_start(&own->thread, serve, own);
    if (error) {
        pthread_cond_destroy(&own->work);
        tt_stream_fini(&own->base);
        free(own);
        return tt_fail_errno(error, "cannot start a stream's worker thread%s",
                             tt_thread_hint(error));
    }
    list(own);
    *out = &own->base;
    return TT_OK;
}

void tt_stream_set_lazy(struct tt_stream *stream, bool lazy)
{
    struct host_stream *own = host(stream);
    if (is_lazy(own) != lazy) atomic_store_explicit(&own->lazy, lazy, memory_order_relaxed);
}

uint64_t tt_stream_push(struct tt_stream *stream, struct tt_task *task)
{
    struct host_stream *own = host(stream);
    const bool lazy = is_lazy(own);
    task->next = NULL;
    pthread_mutex_lock(&stream->lock);
    task->due_ns = lazy ? tt_now_ns() + TT_LAZY_NS : 0;
    *own->last = task;
    own->last = &task->next;
    const uint64_t ticket = ++stream->queued;
    if (own->is_asleep >= (lazy ? ASLEEP : ASLEEP_FOR_A_WHILE)) pthread_cond_signal(&own->work);
    pthread_mutex_unlock(&stream->lock);
    return ticket;
}

static _Atomic int nlacking; /* communicators without a core for streams */

void tt_streams_count_lacking(int change)
{
    atomic_fetch_add_explicit(&nlacking, change, memory_order_relaxed);
}

void tt_stream_push_function(struct tt_stream *stream, struct tt_task *task)
{
    tt_stream_set_lazy(stream, atomic_load_explicit(&nlacking, memory_order_relaxed) > 0);
    tt_stream_push(stream, task);
}

void tt_stream_watch(struct tt_stream *stream, int64_t (*idle)(void *arg), void *arg)
{
    struct host_stream *own = host(stream);
    pthread_mutex_lock(&stream->lock);
    own->idle = idle;
    own->idle_arg = arg;
    pthread_cond_signal(&own->work);
    pthread_mutex_unlock(&stream->lock);
}

bool tt_stream_is_here(const struct tt_stream *stream)
{
    const struct serving *at = serving_here;
    while (at && &at->stream->base != stream) at = at->outer;
    return at;
}

bool tt_stream_is_served_here(void)
{
    return serving_here;
}

static bool has_turn(const struct tt_task *task, const _Atomic uint64_t *turns, uint64_t turn)
{
    const struct tt_work *work = task->works;
    while (work && (work->turns != turns || work->turn >= turn)) work = work->next;
    return work;
}

bool tt_stream_holds_turn(const _Atomic uint64_t *turns, uint64_t turn)
{
    bool holds = false;
    for (const struct serving *at = serving_here; at && !holds; at = at->outer) {
        struct host_stream *own = at->stream;
        if (own->base.process != getpid()) continue; /* its lock may be held for good */
        pthread_mutex_lock(&own->base.lock);
        for (const struct tt_task *task = own->first; task && !holds; task = task->next)
            holds = has_turn(task, turns, turn);
        pthread_mutex_unlock(&own->base.lock);
    }
    return holds;
}

tt_status tt_stream_check_outside(const struct tt_stream *stream, const char *function)
{
    if (!tt_stream_is_here(stream)) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "%s in a function that the stream runs: it would wait for itself; call it in "
                   "another thread, or when the function has returned",
                   function);
}
