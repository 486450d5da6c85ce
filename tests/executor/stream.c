#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "executor/stream.h"
#include "shim.h"

static _Atomic int order;
static int seen[100];

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
    for (long i = 0; i < 100; i++) CHECK_EQ(tt_stream_push(stream, note, (void *)i), TT_OK);
    CHECK_EQ(tt_stream_synchronize(stream), TT_OK);
    for (int i = 0; i < 100; i++) CHECK_EQ(seen[i], i);
    CHECK_EQ(tt_stream_query(stream), TT_OK);
    tt_stream_destroy(stream);
}

TEST(stream, reports_its_first_error_once)
{
    struct tt_stream *stream;
    REQUIRE(tt_stream_create(&stream) == TT_OK);
    CHECK_EQ(tt_stream_push(stream, fail_with, (void *)1L), TT_OK);
    CHECK_EQ(tt_stream_push(stream, fail_with, (void *)2L), TT_OK);
    tt_set_last_error("");
    CHECK_EQ(tt_stream_synchronize(stream), TT_ERR_USAGE);
    CHECK_STR(tt_last_error(), "task 1");
    CHECK_EQ(tt_stream_synchronize(stream), TT_OK);
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
    CHECK_EQ(tt_stream_push(third, wait_for, &hold), TT_OK);
    CHECK_EQ(tt_event_record(gate, third), TT_OK);
    CHECK_EQ(tt_event_query(gate), TT_IN_PROGRESS);
    CHECK_EQ(tt_stream_wait_event(first, gate), TT_OK);
    CHECK_EQ(tt_stream_push(first, note, (void *)1L), TT_OK);
    CHECK_EQ(tt_event_record(event, first), TT_OK);
    CHECK_EQ(tt_stream_wait_event(second, event), TT_OK);
    CHECK_EQ(tt_stream_push(second, note, (void *)2L), TT_OK);
    pthread_mutex_unlock(&hold);
    CHECK_EQ(tt_stream_synchronize(second), TT_OK);
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
