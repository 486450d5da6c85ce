#include "executor/stream.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

struct task {
    tt_status (*run)(void *argument);
    void *argument;
    struct task *next;
};

/* Owned by its creator. Lock order: a stream's lock before an event's. */
struct tt_stream {
    pthread_t worker; /* immutable after create */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    struct task *first, **last;
    bool stop;
    uint64_t queued, done;
    tt_status error; /* the first since the last synchronize */
    char error_text[TT_ERROR_TEXT];
};

/* Owned by its creator and by the tasks that will touch it. */
struct tt_event {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    int users;
    uint64_t recorded, happened; /* numbers of records */
    int64_t time_ns;
};

static void finish_task(struct tt_stream *stream, tt_status status)
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

static void *serve(void *argument)
{
    struct tt_stream *stream = argument;
    for (;;) {
        pthread_mutex_lock(&stream->lock);
        while (!stream->first && !stream->stop) pthread_cond_wait(&stream->changed, &stream->lock);
        struct task *task = stream->first;
        if (task && !(stream->first = task->next)) stream->last = &stream->first;
        pthread_mutex_unlock(&stream->lock);
        if (!task) return NULL;
        const tt_status status = task->run(task->argument);
        free(task);
        finish_task(stream, status);
    }
}

/* The process's signals are for its own threads. */
static int start_worker(struct tt_stream *stream)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&stream->worker, NULL, serve, stream);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

tt_status tt_stream_create(struct tt_stream **out)
{
    struct tt_stream *stream = calloc(1, sizeof *stream);
    if (!stream) return tt_fail(TT_ERR_SYSTEM, "out of memory for a stream");
    stream->last = &stream->first;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    const int error = start_worker(stream);
    if (error) {
        pthread_cond_destroy(&stream->changed);
        pthread_mutex_destroy(&stream->lock);
        free(stream);
        return tt_fail_errno(error, "cannot start a stream's worker thread (ulimit -u?)");
    }
    *out = stream;
    return TT_OK;
}

void tt_stream_destroy(struct tt_stream *stream)
{
    if (!stream) return;
    pthread_mutex_lock(&stream->lock);
    stream->stop = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->worker, NULL);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

tt_status tt_stream_push(struct tt_stream *stream, tt_status (*run)(void *), void *argument)
{
    struct task *task = malloc(sizeof *task);
    if (!task) return tt_fail(TT_ERR_SYSTEM, "out of memory for a task of a stream");
    *task = (struct task){.run = run, .argument = argument};
    pthread_mutex_lock(&stream->lock);
    *stream->last = task;
    stream->last = &task->next;
    stream->queued++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return TT_OK;
}

tt_status tt_stream_synchronize(struct tt_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    const uint64_t target = stream->queued;
    while (stream->done < target) pthread_cond_wait(&stream->changed, &stream->lock);
    const tt_status status = stream->error;
    stream->error = TT_OK;
    if (status) tt_set_last_error(stream->error_text);
    pthread_mutex_unlock(&stream->lock);
    return status;
}

tt_status tt_stream_query(struct tt_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    const tt_status status = stream->error                    ? stream->error
                             : stream->done == stream->queued ? TT_OK
                                                              : TT_IN_PROGRESS;
    if (stream->error) tt_set_last_error(stream->error_text);
    pthread_mutex_unlock(&stream->lock);
    return status;
}

tt_status tt_event_create(struct tt_event **out)
{
    struct tt_event *event = calloc(1, sizeof *event);
    if (!event) return tt_fail(TT_ERR_SYSTEM, "out of memory for an event");
    event->users = 1;
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->changed, NULL);
    *out = event;
    return TT_OK;
}

static void put_event(struct tt_event *event)
{
    pthread_mutex_lock(&event->lock);
    const bool last = --event->users == 0;
    pthread_mutex_unlock(&event->lock);
    if (!last) return;
    pthread_cond_destroy(&event->changed);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

void tt_event_destroy(struct tt_event *event)
{
    if (event) put_event(event);
}

/* One record or one wait of an event, queued in a stream. Owns a share of the event. */
struct mark {
    struct tt_event *event;
    uint64_t number;
};

static void happen(struct tt_event *event, uint64_t number)
{
    pthread_mutex_lock(&event->lock);
    if (number > event->happened) {
        event->happened = number;
        event->time_ns = tt_now_ns();
    }
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->lock);
}

static void await(struct tt_event *event, uint64_t number)
{
    pthread_mutex_lock(&event->lock);
    while (event->happened < number) pthread_cond_wait(&event->changed, &event->lock);
    pthread_mutex_unlock(&event->lock);
}

static tt_status run_record(void *argument)
{
    struct mark *mark = argument;
    happen(mark->event, mark->number);
    put_event(mark->event);
    free(mark);
    return TT_OK;
}

static tt_status run_wait(void *argument)
{
    struct mark *mark = argument;
    await(mark->event, mark->number);
    put_event(mark->event);
    free(mark);
    return TT_OK;
}

static tt_status push_mark(struct tt_event *event, struct tt_stream *stream, uint64_t number,
                           tt_status (*run)(void *))
{
    struct mark *mark = malloc(sizeof *mark);
    if (!mark) return tt_fail(TT_ERR_SYSTEM, "out of memory for an event's mark");
    *mark = (struct mark){event, number};
    pthread_mutex_lock(&event->lock);
    event->users++;
    pthread_mutex_unlock(&event->lock);
    const tt_status status = tt_stream_push(stream, run, mark);
    if (status) {
        put_event(event);
        free(mark);
    }
    return status;
}

tt_status tt_event_record(struct tt_event *event, struct tt_stream *stream)
{
    pthread_mutex_lock(&event->lock);
    const uint64_t number = ++event->recorded;
    pthread_mutex_unlock(&event->lock);
    if (stream) {
        const tt_status status = push_mark(event, stream, number, run_record);
        if (status) happen(event, number); /* nobody else would */
        return status;
    }
    happen(event, number);
    return TT_OK;
}

static uint64_t last_record(struct tt_event *event)
{
    pthread_mutex_lock(&event->lock);
    const uint64_t number = event->recorded;
    pthread_mutex_unlock(&event->lock);
    return number;
}

void tt_event_synchronize(struct tt_event *event)
{
    await(event, last_record(event));
}

tt_status tt_event_query(struct tt_event *event)
{
    pthread_mutex_lock(&event->lock);
    const bool happened = event->happened >= event->recorded;
    pthread_mutex_unlock(&event->lock);
    return happened ? TT_OK : TT_IN_PROGRESS;
}

tt_status tt_stream_wait_event(struct tt_stream *stream, struct tt_event *event)
{
    return push_mark(event, stream, last_record(event), run_wait);
}

tt_status tt_event_time(struct tt_event *event, int64_t *time_ns)
{
    pthread_mutex_lock(&event->lock);
    const uint64_t recorded = event->recorded;
    const bool happened = event->happened >= recorded;
    const int64_t at = event->time_ns;
    pthread_mutex_unlock(&event->lock);
    if (!recorded) return tt_fail(TT_ERR_USAGE, "the event has never been recorded");
    if (!happened) return TT_IN_PROGRESS;
    *time_ns = at;
    return TT_OK;
}
