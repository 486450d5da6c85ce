/* Events: an event and its records, of which each lives as long as a task, a thread or the event
 * needs it. A record that nobody needs any more is kept for the next one. */
#include "executor/event.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"

/* One record. Owned by the event while it is the event's last one, and by the tasks that make it
 * happen or wait for it. */
struct record {
    struct tt_event *event;
    struct tt_stream *stream; /* may be gone when this has happened; NULL: it has happened */
    uint64_t ticket;          /* of the record's task */
    /* guarded by the event's lock */
    int users;
    bool happened;
    int64_t time_ns;
    struct record *next; /* of the unused ones */
};

/* Freed when the creator has destroyed it and no record is used. */
struct tt_event {
    pid_t process; /* that made it */
    pthread_mutex_t lock;
    /* guarded by lock */
    struct record *last;   /* NULL: never recorded */
    struct record *unused; /* memory for the next ones */
    int users;             /* the creator, and the records that are used */
};

tt_status tt_event_create(struct tt_event **out)
{
    struct tt_event *event = calloc(1, sizeof *event);
    if (!event) return tt_fail(TT_ERR_SYSTEM, "out of memory for an event");
    pthread_mutex_init(&event->lock, NULL);
    event->users = 1;
    event->process = getpid();
    *out = event;
    return TT_OK;
}

static void free_event(struct tt_event *event)
{
    while (event->unused) {
        struct record *record = event->unused;
        event->unused = record->next;
        free(record);
    }
    pthread_mutex_destroy(&event->lock);
    free(event);
}

/* One user of the record less; record may be NULL. True: the event is to be freed. */
static bool put_locked(struct tt_event *event, struct record *record)
{
    if (!record || --record->users) return false;
    record->next = event->unused;
    event->unused = record;
    return --event->users == 0;
}

static void put(struct record *record)
{
    struct tt_event *event = record->event;
    pthread_mutex_lock(&event->lock);
    const bool ends = put_locked(event, record);
    pthread_mutex_unlock(&event->lock);
    if (ends) free_event(event);
}

bool tt_event_is_inherited(const struct tt_event *event)
{
    return event->process != getpid();
}

void tt_event_destroy(struct tt_event *event)
{
    if (!event) return;
    if (tt_event_is_inherited(event)) { /* its records may be in use for good */
        free(event);
        return;
    }
    pthread_mutex_lock(&event->lock);
    (void)put_locked(event, event->last); /* the creator is still counted */
    event->last = NULL;
    const bool ends = --event->users == 0;
    pthread_mutex_unlock(&event->lock);
    if (ends) free_event(event);
}

/* With one user, the caller. NULL: out of memory. */
static struct record *new_record(struct tt_event *event, struct tt_stream *stream)
{
    pthread_mutex_lock(&event->lock);
    struct record *record = event->unused;
    if (record) event->unused = record->next;
    event->users++;
    pthread_mutex_unlock(&event->lock);
    if (!record) record = malloc(sizeof *record);
    if (record)
        *record = (struct record){.event = event, .stream = stream, .users = 1};
    else {
        pthread_mutex_lock(&event->lock);
        event->users--;
        pthread_mutex_unlock(&event->lock);
    }
    return record;
}

/* The event's last record, to be put; NULL: there is none. */
static struct record *last_record(struct tt_event *event)
{
    pthread_mutex_lock(&event->lock);
    struct record *last = event->last;
    if (last) last->users++;
    pthread_mutex_unlock(&event->lock);
    return last;
}

static void happen(struct record *record)
{
    struct tt_event *event = record->event;
    pthread_mutex_lock(&event->lock);
    record->happened = true;
    record->time_ns = tt_now_ns();
    pthread_mutex_unlock(&event->lock);
}

/* The stream of a record that has not happened is there: its task holds the event's lock when it
 * makes the record happen. */
static void await(const struct record *record, bool may_run)
{
    struct tt_event *event = record->event;
    pthread_mutex_lock(&event->lock);
    if (record->happened)
        pthread_mutex_unlock(&event->lock);
    else
        tt_stream_await_task(record->stream, record->ticket, may_run, &event->lock);
}

/* ---- In streams ----------------------------------------------------------------------------- */

/* One record or one wait, queued in a stream. Is a user of the record. */
struct mark {
    struct tt_task task; /* first: the task's address is the mark's */
    struct record *record;
};

static tt_status run_record(struct tt_task *task, bool awaited)
{
    (void)awaited;
    struct record *record = ((struct mark *)task)->record;
    happen(record);
    put(record);
    return TT_OK;
}

static tt_status run_wait(struct tt_task *task, bool awaited)
{
    struct record *record = ((struct mark *)task)->record;
    (void)awaited;
    await(record, true);
    put(record);
    return TT_OK;
}

/* The mark becomes a user of the record in place of the caller, also after a failure. */
static tt_status push_mark(struct tt_stream *stream, struct record *record,
                           tt_status (*run)(struct tt_task *task, bool awaited), uint64_t *ticket)
{
    struct mark *mark = (struct mark *)tt_task_take(stream, sizeof *mark);
    if (!mark) {
        put(record);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for an event's mark");
    }
    mark->task.run = run;
    mark->record = record;
    *ticket = tt_stream_push(stream, &mark->task);
    return TT_OK;
}

/* Takes the place of the last record. It is queued before that: nobody can wait for a record that
 * is not queued. */
static void set_last(struct tt_event *event, struct record *record)
{
    pthread_mutex_lock(&event->lock);
    (void)put_locked(event, event->last); /* the creator is still counted */
    event->last = record;
    pthread_mutex_unlock(&event->lock);
}

tt_status tt_event_record(struct tt_event *event, struct tt_stream *stream)
{
    struct record *record = new_record(event, stream);
    if (!record) return tt_fail(TT_ERR_SYSTEM, "out of memory for the record of an event");
    if (!stream) {
        happen(record);
    } else {
        record->users++; /* nobody else has the record yet */
        const tt_status status = push_mark(stream, record, run_record, &record->ticket);
        if (status) {
            put(record);
            return status;
        }
    }
    set_last(event, record);
    return TT_OK;
}

tt_status tt_stream_wait_event(struct tt_stream *stream, struct tt_event *event)
{
    struct record *last = last_record(event);
    uint64_t ticket;
    return last ? push_mark(stream, last, run_wait, &ticket) : TT_OK;
}

/* ---- In threads ----------------------------------------------------------------------------- */

tt_status tt_event_check_outside(struct tt_event *event, const char *function)
{
    pthread_mutex_lock(&event->lock);
    const struct record *last = event->last;
    tt_status status = TT_OK;
    if (last && !last->happened) status = tt_stream_check_outside(last->stream, function);
    pthread_mutex_unlock(&event->lock);
    return status;
}

void tt_event_synchronize(struct tt_event *event, bool may_run)
{
    struct record *last = last_record(event);
    if (!last) return;
    await(last, may_run);
    put(last);
}

tt_status tt_event_synchronize_until(struct tt_event *event, int64_t until_ns)
{
    struct record *last = last_record(event);
    if (!last) return TT_OK;
    pthread_mutex_lock(&event->lock);
    bool happened = last->happened;
    if (happened)
        pthread_mutex_unlock(&event->lock);
    else
        happened = tt_stream_await_task_until(last->stream, last->ticket, until_ns, &event->lock);
    put(last);
    return happened ? TT_OK : TT_IN_PROGRESS;
}

/* Of the last record, if there is one: TT_IN_PROGRESS, or TT_OK and when it happened. */
static tt_status look(struct tt_event *event, bool *recorded, int64_t *time_ns)
{
    pthread_mutex_lock(&event->lock);
    const struct record *last = event->last;
    const bool happened = !last || last->happened;
    *recorded = last;
    *time_ns = last ? last->time_ns : 0;
    pthread_mutex_unlock(&event->lock);
    return happened ? TT_OK : TT_IN_PROGRESS;
}

tt_status tt_event_query(struct tt_event *event)
{
    bool recorded;
    int64_t time_ns;
    return look(event, &recorded, &time_ns);
}

tt_status tt_event_time(struct tt_event *event, int64_t *time_ns)
{
    bool recorded;
    int64_t happened_ns;
    const tt_status status = look(event, &recorded, &happened_ns);
    if (!recorded) return tt_fail(TT_ERR_USAGE, "the event has never been recorded");
    if (!status) *time_ns = happened_ns;
    return status;
}
