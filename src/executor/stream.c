/* Host streams and events: one worker thread a stream; each record of an event has a completion of
 * its own, which tasks and threads wait for. */
#include "executor/stream.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

/* Owned by its creator. Lock order: an event's lock before a completion's. */
struct tt_stream {
    /* immutable after create */
    pid_t process;              /* that made it */
    pthread_t worker;           /* of the host's */
    struct tt_context *context; /* NULL: the stream is the host's */
    void *device_stream;
    int priority; /* of the device stream, as CUDA has it */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    struct tt_task *first, **last;
    bool stop;
    int64_t (*idle)(void *arg); /* NULL: none */
    void *idle_arg;
    uint64_t queued, done;
    tt_status error; /* the first since the last synchronize */
    char error_text[TT_ERROR_TEXT];
};

/* What one record of an event waits for. Owned by the event while this is its last record, and by
 * the tasks that complete it or wait for it. */
struct completion {
    const struct tt_stream *stream; /* to be compared; it may be gone when this has happened */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    int users;
    bool happened;
    int64_t time_ns;
};

/* Owned by its creator. */
struct tt_event {
    pthread_mutex_t lock;
    /* guarded by lock */
    struct completion *last; /* NULL: never recorded */
};

static _Thread_local const struct tt_stream *served_here; /* by this worker thread */

bool tt_stream_is_served_here(void)
{
    return served_here != NULL;
}

static tt_status fail_inside(const char *function)
{
    return tt_fail(TT_ERR_USAGE,
                   "%s in a function that the stream runs: it would wait for itself; call it in "
                   "another thread, or when the function has returned",
                   function);
}

tt_status tt_stream_check_outside(const struct tt_stream *stream, const char *function)
{
    return stream && stream == served_here ? fail_inside(function) : TT_OK;
}

void tt_stream_end(struct tt_stream *stream, tt_status status)
{
    pthread_mutex_lock(&stream->lock);
    stream->done++;
    if (status < 0 && !stream->error) {
        stream->error = status;
        snprintf(stream->error_text, sizeof stream->error_text, "%s", tt_last_error());
    }
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

static void wait_until_locked(struct tt_stream *stream, int64_t until_ns)
{
    const struct timespec until = {.tv_sec = until_ns / 1000000000,
                                   .tv_nsec = until_ns % 1000000000};
    pthread_cond_timedwait(&stream->changed, &stream->lock, &until);
}

/* Nothing is queued. */
static void wait_locked(struct tt_stream *stream)
{
    int64_t (*const idle)(void *arg) = stream->idle;
    void *const arg = stream->idle_arg;
    if (!idle) {
        pthread_cond_wait(&stream->changed, &stream->lock);
        return;
    }
    pthread_mutex_unlock(&stream->lock);
    const int64_t pause_ns = idle(arg);
    if (!pause_ns) sched_yield();
    pthread_mutex_lock(&stream->lock);
    if (!pause_ns || stream->first || stream->stop) return;
    wait_until_locked(stream, tt_now_ns() + pause_ns);
}

static void *serve(void *argument)
{
    struct tt_stream *stream = argument;
    served_here = stream;
    for (;;) {
        pthread_mutex_lock(&stream->lock);
        while (!stream->first && !stream->stop) wait_locked(stream);
        struct tt_task *task = stream->first;
        if (task && !(stream->first = task->next)) stream->last = &stream->first;
        pthread_mutex_unlock(&stream->lock);
        if (!task) return NULL;
        tt_stream_end(stream, task->run(task));
    }
}

static struct tt_stream *allocate_stream(void)
{
    struct tt_stream *stream = calloc(1, sizeof *stream);
    if (!stream) return NULL;
    stream->process = getpid();
    stream->last = &stream->first;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&stream->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return stream;
}

static void free_stream(struct tt_stream *stream)
{
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

tt_status tt_stream_create(struct tt_stream **out)
{
    struct tt_stream *stream = allocate_stream();
    if (!stream) return tt_fail(TT_ERR_SYSTEM, "out of memory for a stream");
    const int error = tt_thread_start(&stream->worker, NULL, serve, stream);
    if (error) {
        free_stream(stream);
        return tt_fail_errno(error, "cannot start a stream's worker thread (ulimit -u?)");
    }
    *out = stream;
    return TT_OK;
}

tt_status tt_stream_from_device(struct tt_stream **out, int gpu, void *device_stream)
{
    struct tt_context *context;
    TT_TRY(tt_context_open(gpu, &context));
    int priority;
    const tt_status status = tt_context_check_stream(context, device_stream, &priority);
    struct tt_stream *stream = status ? NULL : allocate_stream();
    if (!stream) {
        tt_context_close(context);
        return status ? status : tt_fail(TT_ERR_SYSTEM, "out of memory for a stream");
    }
    stream->context = context;
    stream->device_stream = device_stream;
    stream->priority = priority;
    *out = stream;
    return TT_OK;
}

struct tt_context *tt_stream_context(const struct tt_stream *stream)
{
    return stream ? stream->context : NULL;
}

void *tt_stream_device_stream(const struct tt_stream *stream)
{
    return stream->device_stream;
}

int tt_stream_priority(const struct tt_stream *stream)
{
    return stream ? stream->priority : 0;
}

void tt_stream_begin(struct tt_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    stream->queued++;
    pthread_mutex_unlock(&stream->lock);
}

/* In a child made by fork: the worker does not exist, its locks may be held for good, and pthread
 * would wait for it where it waited. */
static bool is_inherited(const struct tt_stream *stream)
{
    return stream->process != getpid();
}

void tt_stream_destroy(struct tt_stream *stream)
{
    if (!stream) return;
    if (is_inherited(stream)) {
        free(stream);
        return;
    }
    pthread_mutex_lock(&stream->lock);
    stream->stop = true;
    pthread_cond_broadcast(&stream->changed);
    while (stream->context && stream->done < stream->queued)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
    if (!stream->context) pthread_join(stream->worker, NULL);
    tt_context_close(stream->context);
    free_stream(stream);
}

void tt_stream_push(struct tt_stream *stream, struct tt_task *task)
{
    pthread_mutex_lock(&stream->lock);
    task->next = NULL;
    *stream->last = task;
    stream->last = &task->next;
    stream->queued++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

void tt_stream_watch(struct tt_stream *stream, int64_t (*idle)(void *arg), void *arg)
{
    pthread_mutex_lock(&stream->lock);
    stream->idle = idle;
    stream->idle_arg = arg;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

tt_status tt_stream_check(const struct tt_stream *stream)
{
    return is_inherited(stream)
               ? tt_fail(TT_ERR_USAGE, "the stream was made by the parent of this process, which "
                                       "was made by fork: make another one")
               : TT_OK;
}

tt_status tt_stream_synchronize(struct tt_stream *stream)
{
    TT_TRY(tt_stream_check(stream));
    pthread_mutex_lock(&stream->lock);
    const uint64_t target = stream->queued;
    while (stream->done < target) pthread_cond_wait(&stream->changed, &stream->lock);
    const tt_status status = stream->error;
    stream->error = TT_OK;
    if (status) tt_set_last_error(stream->error_text);
    pthread_mutex_unlock(&stream->lock);
    if (status || !stream->context) return status;
    return tt_context_stream_synchronize(stream->context, stream->device_stream);
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
    if (status || !stream->context) return status;
    return tt_context_stream_query(stream->context, stream->device_stream);
}

/* ---- Events ------------------------------------------------------------------------------------
 */

static struct completion *new_completion(const struct tt_stream *stream)
{
    struct completion *completion = calloc(1, sizeof *completion);
    if (!completion) return NULL;
    completion->stream = stream;
    completion->users = 1;
    pthread_mutex_init(&completion->lock, NULL);
    pthread_cond_init(&completion->changed, NULL);
    return completion;
}

static struct completion *get_completion(struct completion *completion)
{
    pthread_mutex_lock(&completion->lock);
    completion->users++;
    pthread_mutex_unlock(&completion->lock);
    return completion;
}

/* NULL is allowed. */
static void put_completion(struct completion *completion)
{
    if (!completion) return;
    pthread_mutex_lock(&completion->lock);
    const bool last = --completion->users == 0;
    pthread_mutex_unlock(&completion->lock);
    if (!last) return;
    pthread_cond_destroy(&completion->changed);
    pthread_mutex_destroy(&completion->lock);
    free(completion);
}

static void complete(struct completion *completion)
{
    pthread_mutex_lock(&completion->lock);
    completion->happened = true;
    completion->time_ns = tt_now_ns();
    pthread_cond_broadcast(&completion->changed);
    pthread_mutex_unlock(&completion->lock);
}

static void await(struct completion *completion)
{
    pthread_mutex_lock(&completion->lock);
    while (!completion->happened) pthread_cond_wait(&completion->changed, &completion->lock);
    pthread_mutex_unlock(&completion->lock);
}

/* TT_IN_PROGRESS, or TT_OK and when it happened. */
static tt_status look_at(struct completion *completion, int64_t *time_ns)
{
    pthread_mutex_lock(&completion->lock);
    const bool happened = completion->happened;
    *time_ns = completion->time_ns;
    pthread_mutex_unlock(&completion->lock);
    return happened ? TT_OK : TT_IN_PROGRESS;
}

tt_status tt_event_create(struct tt_event **out)
{
    struct tt_event *event = calloc(1, sizeof *event);
    if (!event) return tt_fail(TT_ERR_SYSTEM, "out of memory for an event");
    pthread_mutex_init(&event->lock, NULL);
    *out = event;
    return TT_OK;
}

void tt_event_destroy(struct tt_event *event)
{
    if (!event) return;
    put_completion(event->last);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

/* The event's last record, to be put; NULL: there is none. */
static struct completion *last_record(struct tt_event *event)
{
    pthread_mutex_lock(&event->lock);
    struct completion *last = event->last ? get_completion(event->last) : NULL;
    pthread_mutex_unlock(&event->lock);
    return last;
}

static void set_last_record(struct tt_event *event, struct completion *completion)
{
    pthread_mutex_lock(&event->lock);
    struct completion *before = event->last;
    event->last = completion;
    pthread_mutex_unlock(&event->lock);
    put_completion(before);
}

/* One record or one wait, queued in a stream. Owns a share of the completion. */
struct mark {
    struct tt_task task; /* first: the task's address is the mark's */
    struct completion *completion;
};

static void end_mark(struct mark *mark)
{
    put_completion(mark->completion);
    free(mark);
}

static tt_status run_record(struct tt_task *task)
{
    struct mark *mark = (struct mark *)task;
    complete(mark->completion);
    end_mark(mark);
    return TT_OK;
}

static tt_status run_wait(struct tt_task *task)
{
    struct mark *mark = (struct mark *)task;
    await(mark->completion);
    end_mark(mark);
    return TT_OK;
}

/* Takes a share of the completion. */
static tt_status push_mark(struct tt_stream *stream, struct completion *completion,
                           tt_status (*run)(struct tt_task *task))
{
    struct mark *mark = malloc(sizeof *mark);
    if (!mark) return tt_fail(TT_ERR_SYSTEM, "out of memory for an event's mark");
    *mark = (struct mark){.task.run = run, .completion = get_completion(completion)};
    tt_stream_push(stream, &mark->task);
    return TT_OK;
}

/* The record is queued before it becomes the event's last: nobody can wait for one that is not. */
tt_status tt_event_record(struct tt_event *event, struct tt_stream *stream)
{
    struct completion *completion = new_completion(stream);
    if (!completion) return tt_fail(TT_ERR_SYSTEM, "out of memory for the record of an event");
    const tt_status status = stream ? push_mark(stream, completion, run_record) : TT_OK;
    if (status) {
        put_completion(completion);
        return status;
    }
    if (!stream) complete(completion);
    set_last_record(event, completion);
    return TT_OK;
}

tt_status tt_event_check_outside(struct tt_event *event, const char *function)
{
    int64_t time_ns;
    struct completion *last = served_here ? last_record(event) : NULL;
    const bool waits = last && last->stream == served_here && look_at(last, &time_ns) != TT_OK;
    put_completion(last);
    return waits ? fail_inside(function) : TT_OK;
}

void tt_event_synchronize(struct tt_event *event)
{
    struct completion *last = last_record(event);
    if (!last) return;
    await(last);
    put_completion(last);
}

tt_status tt_event_query(struct tt_event *event)
{
    int64_t time_ns;
    struct completion *last = last_record(event);
    if (!last) return TT_OK;
    const tt_status status = look_at(last, &time_ns);
    put_completion(last);
    return status;
}

tt_status tt_stream_wait_event(struct tt_stream *stream, struct tt_event *event)
{
    struct completion *last = last_record(event);
    if (!last) return TT_OK;
    const tt_status status = push_mark(stream, last, run_wait);
    put_completion(last);
    return status;
}

tt_status tt_event_time(struct tt_event *event, int64_t *time_ns)
{
    int64_t happened_ns;
    struct completion *last = last_record(event);
    if (!last) return tt_fail(TT_ERR_USAGE, "the event has never been recorded");
    const tt_status status = look_at(last, &happened_ns);
    put_completion(last);
    if (!status) *time_ns = happened_ns;
    return status;
}
