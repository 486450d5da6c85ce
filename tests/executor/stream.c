/* Tests of streams and events. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sanitizers.h"
#include "executor/event.h"
#include "shim.h"
#include "tutti.h"

#ifdef TT_THREAD_SANITIZER
enum { IS_SLOW = 1, HAS_THREADS_AFTER_FORK = 0 };
#else
enum { IS_SLOW = 0, HAS_THREADS_AFTER_FORK = 1 };
#endif

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
    tuttiStream_t stream, own;
    tuttiEvent_t event, pending;
    REQUIRE(trio_open(&trio));
    REQUIRE(tt_stream_create(&idle) == TT_OK);
    REQUIRE(!tuttiStreamCreate(&stream) && !tuttiEventCreate(&event));
    REQUIRE(!tuttiEventCreate(&pending));
    CHECK_EQ(tt_event_record((struct tt_event *)pending, trio.held), TT_OK);
    CHECK_EQ(tt_stream_synchronize(idle, true), TT_OK);
    /* AddressSanitizer has locks while a thread begins, which a child made meanwhile never gets. */
    usleep(200000);
    const pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_S);
        bool are_refused = tt_stream_synchronize(trio.held, true) == TT_ERR_USAGE &&
                           tt_stream_query(trio.held) == TT_ERR_USAGE;
        own = NULL;
        if (HAS_THREADS_AFTER_FORK) are_refused = are_refused && !tuttiStreamCreate(&own);
        are_refused = are_refused && tuttiStreamWaitEvent(own, pending) == tuttiInvalidUsage &&
                      tuttiEventSynchronize(pending) == tuttiInvalidUsage;
        are_refused = are_refused && tuttiStreamLaunch(stream, never, NULL) == tuttiInvalidUsage &&
                      tuttiEventRecord(event, stream) == tuttiInvalidUsage &&
                      tuttiStreamDestroy(stream) == tuttiSuccess;
        tt_stream_destroy(trio.held);
        tt_stream_destroy(idle);
        are_refused = are_refused && tuttiStreamWaitEvent(own, pending) == tuttiInvalidUsage &&
                      tuttiEventSynchronize(pending) == tuttiInvalidUsage &&
                      tuttiStreamDestroy(own) == tuttiSuccess;
        _exit(are_refused ? 0 : 1);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(event), tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(pending), tuttiSuccess);
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

/* ---- Who runs a task ---------------------------------------------------------------------------
 */

static tt_status note_thread(void *argument)
{
    *(pthread_t *)argument = pthread_self();
    return TT_OK;
}

TEST(stream, a_thread_that_waits_runs_what_a_lazy_stream_has_not_begun)
{
    enum { NCALLS = 100 };
    struct tt_stream *stream;
    struct tt_event *event;
    pthread_t by[NCALLS];
    int nhere = 0;
    REQUIRE(tt_stream_create(&stream) == TT_OK && tt_event_create(&event) == TT_OK);
    tt_stream_set_lazy(stream, true);
    for (int i = 0; i < NCALLS; i++) {
        push(stream, note_thread, &by[i]);
        if (i % 2) {
            CHECK_EQ(tt_event_record(event, stream), TT_OK);
            tt_event_synchronize(event, true);
        } else {
            CHECK_EQ(tt_stream_synchronize(stream, true), TT_OK);
        }
        nhere += pthread_equal(by[i], pthread_self()) != 0;
    }
    CHECK(nhere > NCALLS / 2); /* the stream's thread may come first where this one is delayed */
    push(stream, note_thread, &by[0]);
    CHECK_EQ(tt_stream_synchronize(stream, false), TT_OK);
    CHECK(!pthread_equal(by[0], pthread_self()));
    tt_event_destroy(event);
    tt_stream_destroy(stream);
}

TEST(stream, a_lazy_streams_thread_runs_what_nobody_waits_for)
{
    struct tt_stream *stream;
    pthread_t by = pthread_self();
    REQUIRE(tt_stream_create(&stream) == TT_OK);
    tt_stream_set_lazy(stream, true);
    for (int i = 0; i < 20; i++) {
        const int64_t begin_ns = tt_now_ns();
        push(stream, note_thread, &by);
        while (tt_stream_query(stream) == TT_IN_PROGRESS) usleep(50);
        CHECK(!pthread_equal(by, pthread_self()));
        CHECK(tt_now_ns() - begin_ns >= TT_LAZY_NS);
        if (i % 2) CHECK_EQ(tt_stream_synchronize(stream, true), TT_OK);
    }
    tt_stream_destroy(stream);
}

static tt_status take_long(void *argument)
{
    (void)argument;
    usleep(10000);
    return TT_OK;
}

/* The stream's thread has gone to sleep while another one ran a task. */
TEST(stream, a_task_behind_the_one_that_a_thread_waited_for_is_run)
{
    struct tt_stream *stream;
    struct tt_event *event;
    REQUIRE(tt_stream_create(&stream) == TT_OK && tt_event_create(&event) == TT_OK);
    for (int i = 0; i < 20; i++) {
        pthread_t by;
        tt_stream_set_lazy(stream, i % 4 != 0);
        push(stream, take_long, NULL);
        CHECK_EQ(tt_event_record(event, stream), TT_OK);
        push(stream, note_thread, &by);
        tt_event_synchronize(event, true);
        while (tt_stream_query(stream) == TT_IN_PROGRESS) usleep(50); /* else the test hangs */
        CHECK(!pthread_equal(by, pthread_self()));
    }
    tt_event_destroy(event);
    tt_stream_destroy(stream);
}

TEST(stream, a_task_that_came_before_the_stream_was_lazy_is_run)
{
    for (int i = 0; i < 100; i++) {
        struct tt_stream *stream;
        pthread_t by[2];
        REQUIRE(tt_stream_create(&stream) == TT_OK);
        push(stream, note_thread, &by[0]);
        tt_stream_set_lazy(stream, true);
        push(stream, note_thread, &by[1]);
        while (tt_stream_query(stream) == TT_IN_PROGRESS) usleep(50); /* else the test hangs */
        CHECK(pthread_equal(by[0], by[1]));
        tt_stream_destroy(stream);
    }
}

/* Both ways: the thread that waits goes from stream to stream, further than it may nest, or each
 * stream's own thread runs its part. */
TEST(stream, a_chain_of_streams_that_wait_for_one_another_is_run)
{
    enum { NSTREAMS = 20, ROUNDS = 50 };
    struct tt_stream *streams[NSTREAMS];
    struct tt_event *events[NSTREAMS];
    for (int i = 0; i < NSTREAMS; i++) {
        REQUIRE(tt_stream_create(&streams[i]) == TT_OK && tt_event_create(&events[i]) == TT_OK);
        tt_stream_set_lazy(streams[i], true);
    }
    for (int round = 0; round < ROUNDS; round++) {
        atomic_store(&order, 0);
        for (int i = 0; i < NSTREAMS; i++) {
            if (i) CHECK_EQ(tt_stream_wait_event(streams[i], events[i - 1]), TT_OK);
            push(streams[i], note, (void *)(long)i);
            CHECK_EQ(tt_event_record(events[i], streams[i]), TT_OK);
        }
        if (round % 2)
            CHECK_EQ(tt_stream_synchronize(streams[NSTREAMS - 1], round % 4 == 1), TT_OK);
        else
            tt_event_synchronize(events[NSTREAMS - 1], true);
        CHECK_EQ(atomic_load(&order), NSTREAMS);
        for (int i = 0; i < NSTREAMS; i++) CHECK_EQ(seen[i], i);
    }
    for (int i = 0; i < NSTREAMS; i++) {
        tt_event_destroy(events[i]);
        tt_stream_destroy(streams[i]);
    }
}

/* A thread may wait for an event whose stream is destroyed meanwhile: that runs what is queued. */
TEST(stream, a_stream_is_freed_when_no_thread_waits_for_its_events)
{
    for (int i = 0; i < 50; i++) {
        struct trio trio;
        pthread_t thread;
        REQUIRE(trio_open(&trio));
        tt_stream_set_lazy(trio.free, i % 2);
        CHECK_EQ(tt_event_record(trio.event, trio.held), TT_OK);
        CHECK_EQ(tt_stream_wait_event(trio.free, trio.event), TT_OK);
        CHECK_EQ(tt_event_record(trio.event, trio.free), TT_OK);
        REQUIRE(pthread_create(&thread, NULL, synchronize, &trio) == 0);
        if (i % 3) let_others_run();
        pthread_mutex_unlock(&trio.hold);
        tt_stream_destroy(trio.free);
        REQUIRE(tt_stream_create(&trio.free) == TT_OK);
        pthread_join(thread, NULL);
        CHECK_EQ(atomic_load(&order), 1);
        trio_close(&trio);
    }
}

/* A call without a stream comes after those of the communicator that lazy streams have not begun;
 * a thread that waits for one stream may need what another one has not begun. */
TEST(stream, a_call_that_waits_for_its_turn_has_lazy_streams_begin)
{
    tuttiStream_t first, second;
    tuttiComm_t comm;
    int values[3] = {1, 2, 3};
    int64_t least_ns = INT64_MAX;
    REQUIRE(!tuttiStreamCreate(&first) && !tuttiStreamCreate(&second));
    setenv("TUTTI_COMPUTE_THREADS", "1000", 1);
    REQUIRE(!tuttiCommInitAll(&comm, 1, NULL));
    unsetenv("TUTTI_COMPUTE_THREADS");
    for (int i = 0; i < 100; i++) {
        const int64_t begin_ns = tt_now_ns();
        CHECK_EQ(tuttiAllReduce(&values[0], &values[0], 1, tuttiInt, tuttiSum, comm, first),
                 tuttiSuccess);
        CHECK_EQ(tuttiAllReduce(&values[1], &values[1], 1, tuttiInt, tuttiSum, comm, second),
                 tuttiSuccess);
        if (i % 2)
            CHECK_EQ(tuttiStreamSynchronize(second), tuttiSuccess);
        else
            CHECK_EQ(tuttiAllReduce(&values[2], &values[2], 1, tuttiInt, tuttiSum, comm, NULL),
                     tuttiSuccess);
        if (tt_now_ns() - begin_ns < least_ns) least_ns = tt_now_ns() - begin_ns;
    }
    CHECK(least_ns < TT_LAZY_NS || IS_SLOW); /* else the streams began by themselves each time */
    CHECK_EQ(tuttiStreamDestroy(first), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(second), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

/* The call of the other rank lies in another stream. */
TEST(stream, one_thread_with_several_ranks_does_not_wait_until_lazy_streams_begin)
{
    tuttiStream_t streams[2];
    tuttiComm_t comms[2];
    int values[2] = {1, 2};
    int64_t least_ns = INT64_MAX;
    REQUIRE(!tuttiStreamCreate(&streams[0]) && !tuttiStreamCreate(&streams[1]));
    setenv("TUTTI_COMPUTE_THREADS", "1000", 1);
    REQUIRE(!tuttiCommInitAll(comms, 2, NULL));
    unsetenv("TUTTI_COMPUTE_THREADS");
    for (int i = 0; i < 200; i++) {
        const int64_t begin_ns = tt_now_ns();
        for (int r = 0; r < 2; r++)
            CHECK_EQ(
                tuttiAllReduce(&values[r], &values[r], 1, tuttiInt, tuttiMax, comms[r], streams[r]),
                tuttiSuccess);
        for (int r = 0; r < 2; r++) CHECK_EQ(tuttiStreamSynchronize(streams[r]), tuttiSuccess);
        if (tt_now_ns() - begin_ns < least_ns) least_ns = tt_now_ns() - begin_ns;
    }
    CHECK(values[0] == 2 && values[1] == 2);
    CHECK(least_ns < TT_LAZY_NS || IS_SLOW);
    for (int r = 0; r < 2; r++) {
        CHECK_EQ(tuttiStreamDestroy(streams[r]), tuttiSuccess);
        CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
    }
}

struct grouped {
    tuttiComm_t comm;
    int from, to;
    tuttiResult_t result;
    pthread_t by;
};

static void call_inside(void *argument)
{
    struct grouped *grouped = argument;
    grouped->by = pthread_self();
    grouped->result =
        tuttiAllReduce(&grouped->from, &grouped->to, 1, tuttiInt, tuttiSum, grouped->comm, NULL);
}

/* Else the function's call would be one of the group, and would not be done when it returns. */
TEST(stream, a_thread_in_a_group_leaves_functions_to_the_stream)
{
    struct grouped grouped = {.from = 5};
    tuttiStream_t stream;
    tuttiComm_t other;
    int value = 7;
    REQUIRE(!tuttiStreamCreate(&stream));
    REQUIRE(!tuttiCommInitAll(&grouped.comm, 1, NULL) && !tuttiCommInitAll(&other, 1, NULL));
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(&value, &value, 1, tuttiInt, tuttiSum, other, NULL), tuttiSuccess);
    CHECK_EQ(tuttiStreamLaunch(stream, call_inside, &grouped), tuttiSuccess);
    CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
    CHECK_EQ(grouped.result, tuttiSuccess);
    CHECK_EQ(grouped.to, 5);
    CHECK(!pthread_equal(grouped.by, pthread_self()));
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(grouped.comm), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(other), tuttiSuccess);
}
