/* Tests of streams and events. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/event.h"
#include "shim.h"
#include "tutti.h"

static _Atomic int order;
static int seen[100];

/* One call of function(argument), queued in a stream. */
struct call {
    struct tt_task task; /* first: the task's address is the call's */
    tt_status (*function)(void *argument);
    void *argument;
};

static tt_status run_call(struct tt_task *task, bool awaited)
{
    (void)awaited;
    struct call *call = (struct call *)task;
    return call->function(call->argument);
}

static void push(struct tt_stream *stream, tt_status (*function)(void *argument), void *argument)
{
    struct call *call = (struct call *)tt_task_take(stream, sizeof *call);
    call->task.run = run_call;
    call->function = function;
    call->argument = argument;
    tt_stream_push(stream, &call->task);
}

static tt_status note(void *argument)
{
    seen[atomic_fetch_add(&order, 1)] = (int)(long)argument;
    return TT_OK;
}

static tt_status fail_with(void *argument)
{
    return tt_fail(TT_ERR_USAGE, "task %ld", (long)argument);
}

TEST(stream, runs_tasks_in_order)
{
    struct tt_stream *stream;
    REQUIRE(tt_stream_create(&stream) == TT_OK);
    atomic_store(&order, 0);
    for (long i = 0; i < 100; i++) push(stream, note, (void *)i);
    CHECK_EQ(tt_stream_synchronize(stream, true), TT_OK);
    for (int i = 0; i < 100; i++) CHECK_EQ(seen[i], i);
    CHECK_EQ(tt_stream_query(stream), TT_OK);
    tt_stream_destroy(stream);
}

TEST(stream, reports_its_first_error_once)
{
    struct tt_stream *stream;
    REQUIRE(tt_stream_create(&stream) == TT_OK);
    push(stream, fail_with, (void *)1L);
    push(stream, fail_with, (void *)2L);
    tt_set_last_error("");
    CHECK_EQ(tt_stream_synchronize(stream, true), TT_ERR_USAGE);
    CHECK_STR(tt_last_error(), "task 1");
    CHECK_EQ(tt_stream_synchronize(stream, true), TT_OK);
    tt_stream_destroy(stream);
}

static tt_status wait_for(void *argument)
{
    pthread_mutex_lock(argument);
    pthread_mutex_unlock(argument);
    return TT_OK;
}

TEST(stream, waits_for_another_streams_event)
{
    struct tt_stream *first, *second;
    struct tt_event *gate, *event;
    REQUIRE(tt_stream_create(&first) == TT_OK && tt_stream_create(&second) == TT_OK);
    REQUIRE(tt_event_create(&gate) == TT_OK && tt_event_create(&event) == TT_OK);
    atomic_store(&order, 0);
    pthread_mutex_t hold = PTHREAD_MUTEX_INITIALIZER;
    struct tt_stream *third;
    REQUIRE(tt_stream_create(&third) == TT_OK);
    pthread_mutex_lock(&hold);
    push(third, wait_for, &hold);
    CHECK_EQ(tt_event_record(gate, third), TT_OK);
    CHECK_EQ(tt_event_query(gate), TT_IN_PROGRESS);
    CHECK_EQ(tt_stream_wait_event(first, gate), TT_OK);
    push(first, note, (void *)1L);
    CHECK_EQ(tt_event_record(event, first), TT_OK);
    CHECK_EQ(tt_stream_wait_event(second, event), TT_OK);
    push(second, note, (void *)2L);
    pthread_mutex_unlock(&hold);
    CHECK_EQ(tt_stream_synchronize(second, true), TT_OK);
    CHECK_EQ(seen[0], 1);
    CHECK_EQ(seen[1], 2);
    CHECK_EQ(tt_event_query(event), TT_OK);
    int64_t early, late;
    CHECK_EQ(tt_event_time(gate, &early), TT_OK);
    CHECK_EQ(tt_event_time(event, &late), TT_OK);
    CHECK(early <= late);
    tt_event_destroy(gate);
    tt_event_destroy(event);
    tt_stream_destroy(first);
    tt_stream_destroy(second);
    tt_stream_destroy(third);
}

TEST(stream, events_may_be_destroyed_before_they_happen)
{
    struct tt_stream *stream;
    struct tt_event *event;
    int64_t time;
    REQUIRE(tt_stream_create(&stream) == TT_OK && tt_event_create(&event) == TT_OK);
    CHECK_EQ(tt_event_query(event), TT_OK);
    CHECK_EQ(tt_event_time(event, &time), TT_ERR_USAGE);
    CHECK_EQ(tt_event_record(event, stream), TT_OK);
    tt_event_destroy(event);
    tt_stream_destroy(stream);
}

/* Three streams, of which the first is held until `hold` is unlocked. */
struct trio {
    struct tt_stream *held, *free, *waiter;
    struct tt_event *event;
    pthread_mutex_t hold;
};

static bool trio_open(struct trio *trio)
{
    atomic_store(&order, 0);
    pthread_mutex_init(&trio->hold, NULL);
    if (tt_stream_create(&trio->held) || tt_stream_create(&trio->free) ||
        tt_stream_create(&trio->waiter) || tt_event_create(&trio->event))
        return false;
    pthread_mutex_lock(&trio->hold);
    push(trio->held, wait_for, &trio->hold);
    return true;
}

static void trio_close(struct trio *trio)
{
    tt_event_destroy(trio->event);
    tt_stream_destroy(trio->held);
    tt_stream_destroy(trio->free);
    tt_stream_destroy(trio->waiter);
    pthread_mutex_destroy(&trio->hold);
}

/* Gives a stream that must not go on the opportunity to do so. */
static void let_others_run(void)
{
    for (int i = 0; i < 1000; i++) sched_yield();
}

TEST(stream, a_record_elsewhere_does_not_release_those_who_wait_for_an_earlier_one)
{
    struct trio trio;
    REQUIRE(trio_open(&trio));
    push(trio.held, note, (void *)1L);
    CHECK_EQ(tt_event_record(trio.event, trio.held), TT_OK);
    CHECK_EQ(tt_stream_wait_event(trio.waiter, trio.event), TT_OK);
    push(trio.waiter, note, (void *)2L);
    CHECK_EQ(tt_event_record(trio.event, trio.free), TT_OK);
    CHECK_EQ(tt_stream_synchronize(trio.free, true), TT_OK);
    CHECK_EQ(tt_event_query(trio.event), TT_OK); /* the last record has happened */
    let_others_run();
    CHECK_EQ(tt_stream_query(trio.waiter), TT_IN_PROGRESS);
    pthread_mutex_unlock(&trio.hold);
    CHECK_EQ(tt_stream_synchronize(trio.waiter, true), TT_OK);
    CHECK_EQ(seen[0], 1);
    CHECK_EQ(seen[1], 2);
    trio_close(&trio);
}

static void *synchronize(void *argument)
{
    struct trio *trio = argument;
    tt_event_synchronize(trio->event, true);
    (void)note((void *)2L);
    return NULL;
}

/* A thread that synchronizes waits for the record that was the last when it began: here either. */
TEST(stream, a_later_record_is_not_waited_for_by_those_who_wait_for_an_earlier_one)
{
    struct trio trio;
    pthread_t thread;
    REQUIRE(trio_open(&trio));
    CHECK_EQ(tt_event_record(trio.event, trio.free), TT_OK);
    CHECK_EQ(tt_stream_wait_event(trio.waiter, trio.event), TT_OK);
    CHECK_EQ(tt_event_record(trio.event, trio.held), TT_OK);
    CHECK_EQ(tt_stream_synchronize(trio.waiter, true), TT_OK); /* else the test hangs */
    CHECK_EQ(tt_event_query(trio.event), TT_IN_PROGRESS);
    REQUIRE(pthread_create(&thread, NULL, synchronize, &trio) == 0);
    let_others_run();
    CHECK_EQ(atomic_load(&order), 0);
    pthread_mutex_unlock(&trio.hold);
    pthread_join(thread, NULL);
    CHECK_EQ(atomic_load(&order), 1);
    trio_close(&trio);
}

TEST(stream, an_event_keeps_the_time_of_its_last_record)
{
    struct trio trio;
    int64_t time, later;
    REQUIRE(trio_open(&trio));
    CHECK_EQ(tt_event_record(trio.event, trio.held), TT_OK);
    CHECK_EQ(tt_event_time(trio.event, &time), TT_IN_PROGRESS);
    CHECK_EQ(tt_event_record(trio.event, NULL), TT_OK);
    CHECK_EQ(tt_event_time(trio.event, &time), TT_OK);
    pthread_mutex_unlock(&trio.hold);
    CHECK_EQ(tt_stream_synchronize(trio.held, true), TT_OK); /* the earlier record happens now */
    CHECK_EQ(tt_event_time(trio.event, &later), TT_OK);
    CHECK_EQ(later, time);
    trio_close(&trio);
}

static void never(void *argument)
{
    (void)argument;
    abort();
}

/* Whose worker waits, for a call or in one. */
TEST(stream, a_child_made_by_fork_may_only_destroy_its_parents_streams)
{
    enum { PATIENCE_S = 60 };
    struct trio trio;
    struct tt_stream *idle;
    tuttiStream_t stream;
    tuttiEvent_t event;
    REQUIRE(trio_open(&trio));
    REQUIRE(tt_stream_create(&idle) == TT_OK);
    REQUIRE(!tuttiStreamCreate(&stream) && !tuttiEventCreate(&event));
    CHECK_EQ(tt_stream_synchronize(idle, true), TT_OK);
    usleep(1000);
    const pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_S);
        bool are_refused = tt_stream_synchronize(trio.held, true) == TT_ERR_USAGE &&
                           tt_stream_query(trio.held) == TT_ERR_USAGE;
        are_refused = are_refused && tuttiStreamLaunch(stream, never, NULL) == tuttiInvalidUsage &&
                      tuttiEventRecord(event, stream) == tuttiInvalidUsage &&
                      tuttiStreamDestroy(stream) == tuttiSuccess;
        tt_stream_destroy(trio.held);
        tt_stream_destroy(idle);
        _exit(are_refused ? 0 : 1);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(event), tuttiSuccess);
    tt_stream_destroy(idle);
    pthread_mutex_unlock(&trio.hold);
    trio_close(&trio);
}

/* ---- Functions of a stream that wait for it ---------------------------------------------------
 */

/* What a function of the stream got. */
struct inside {
    tuttiStream_t stream, other;
    tuttiEvent_t before, after, others;
    tuttiComm_t comm;
    pthread_mutex_t hold; /* until all is queued */
    tuttiResult_t results[8];
    char text[256];
};

static void wait_inside(void *argument)
{
    struct inside *inside = argument;
    pthread_mutex_lock(&inside->hold);
    pthread_mutex_unlock(&inside->hold);
    inside->results[0] = tuttiStreamSynchronize(inside->stream);
    snprintf(inside->text, sizeof inside->text, "%s", tuttiGetLastError(NULL));
    inside->results[1] = tuttiStreamDestroy(inside->stream);
    inside->results[2] = tuttiEventSynchronize(inside->after);
    inside->results[3] = tuttiStreamWaitEvent(NULL, inside->after);
    inside->results[4] = tuttiCommDestroy(inside->comm); /* a call on it is queued behind */
    inside->results[5] = tuttiEventSynchronize(inside->before);
    inside->results[6] = tuttiEventSynchronize(inside->others);
    inside->results[7] = tuttiStreamSynchronize(inside->other);
}

TEST(stream, a_function_that_would_wait_for_its_own_stream_gets_an_error)
{
    struct inside inside = {.hold = PTHREAD_MUTEX_INITIALIZER};
    REQUIRE(!tuttiStreamCreate(&inside.stream) && !tuttiStreamCreate(&inside.other));
    REQUIRE(!tuttiEventCreate(&inside.before) && !tuttiEventCreate(&inside.after) &&
            !tuttiEventCreate(&inside.others));
    REQUIRE(!tuttiCommInitAll(&inside.comm, 1, NULL));
    pthread_mutex_lock(&inside.hold);
    CHECK_EQ(tuttiEventRecord(inside.before, inside.stream), tuttiSuccess);
    CHECK_EQ(tuttiStreamLaunch(inside.stream, wait_inside, &inside), tuttiSuccess);
    CHECK_EQ(tuttiEventRecord(inside.after, inside.stream), tuttiSuccess);
    CHECK_EQ(tuttiBarrier(inside.comm, inside.stream), tuttiSuccess);
    CHECK_EQ(tuttiEventRecord(inside.others, inside.other), tuttiSuccess);
    pthread_mutex_unlock(&inside.hold);
    CHECK_EQ(tuttiStreamSynchronize(inside.stream), tuttiSuccess);
    for (int i = 0; i < 8; i++)
        CHECK_EQ(inside.results[i], i < 5 ? tuttiInvalidUsage : tuttiSuccess);
    CHECK_MESSAGE(strstr(inside.text, "tuttiStreamSynchronize") && strstr(inside.text, "itself"),
                  "%s", inside.text);
    CHECK_EQ(tuttiCommDestroy(inside.comm), tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(inside.before), tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(inside.after), tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(inside.others), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(inside.stream), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(inside.other), tuttiSuccess);
}
