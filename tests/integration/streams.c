/* Streams and events: order, waits across streams, overlap, queries, times, errors. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "ranks.h"
#include "shim.h"

enum { NRANKS = 2, PATIENCE_S = 30 };

/* Waits for at most PATIENCE_S; false when nobody posted. */
static bool take(sem_t *semaphore)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    int result;
    while ((result = sem_timedwait(semaphore, &until)) && errno == EINTR) continue;
    return result == 0;
}

/* A gate in a stream: says that it was reached, then waits to be opened. */
struct gate {
    sem_t reached, open;
};

static void gate_init(struct gate *gate)
{
    sem_init(&gate->reached, 0, 0);
    sem_init(&gate->open, 0, 0);
}

static void pass_gate(void *argument)
{
    struct gate *gate = argument;
    sem_post(&gate->reached);
    CHECK(take(&gate->open));
}

static void post(void *argument)
{
    sem_post(argument);
}

/* Work that remembers its turn. */
static _Atomic int clock_hand;
static void note_turn(void *argument)
{
    *(int *)argument = atomic_fetch_add(&clock_hand, 1);
}

TEST(streams, work_runs_in_the_order_of_issue)
{
    enum { N = 200 };
    tuttiStream_t stream;
    int turns[N];
    atomic_store(&clock_hand, 0);
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    for (int i = 0; i < N; i++)
        CHECK_EQ(tuttiStreamLaunch(stream, note_turn, &turns[i]), tuttiSuccess);
    CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
    for (int i = 0; i < N; i++) CHECK_EQ(turns[i], i);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
}

TEST(streams, a_stream_waits_for_an_event_of_another)
{
    tuttiStream_t first, second;
    tuttiEvent_t event;
    struct gate gate;
    int early = -1, late = -1;
    gate_init(&gate);
    atomic_store(&clock_hand, 0);
    REQUIRE(tuttiStreamCreate(&first) == tuttiSuccess &&
            tuttiStreamCreate(&second) == tuttiSuccess);
    REQUIRE(tuttiEventCreate(&event) == tuttiSuccess);
    CHECK_EQ(tuttiEventQuery(event), tuttiSuccess); /* never recorded: has happened, as in CUDA */
    CHECK_EQ(tuttiStreamLaunch(first, pass_gate, &gate), tuttiSuccess);
    CHECK_EQ(tuttiStreamLaunch(first, note_turn, &early), tuttiSuccess);
    CHECK_EQ(tuttiEventRecord(event, first), tuttiSuccess);
    CHECK_EQ(tuttiStreamWaitEvent(second, event), tuttiSuccess);
    CHECK_EQ(tuttiStreamLaunch(second, note_turn, &late), tuttiSuccess);
    CHECK(take(&gate.reached));
    CHECK_EQ(tuttiStreamQuery(first), tuttiInProgress);
    CHECK_EQ(tuttiStreamQuery(second), tuttiInProgress);
    CHECK_EQ(tuttiEventQuery(event), tuttiInProgress);
    CHECK_EQ(atomic_load(&clock_hand), 0);
    sem_post(&gate.open);
    CHECK_EQ(tuttiStreamSynchronize(second), tuttiSuccess);
    CHECK_EQ(early, 0);
    CHECK_EQ(late, 1);
    CHECK_EQ(tuttiEventSynchronize(event), tuttiSuccess);
    CHECK_EQ(tuttiEventQuery(event), tuttiSuccess);
    CHECK_EQ(tuttiStreamSynchronize(first), tuttiSuccess);
    CHECK_EQ(tuttiStreamQuery(first), tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(event), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(first), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(second), tuttiSuccess);
}

TEST(streams, an_event_may_be_recorded_anew_and_destroyed_before_it_happens)
{
    tuttiStream_t first, second;
    tuttiEvent_t event;
    struct gate gate;
    int turn = -1;
    gate_init(&gate);
    atomic_store(&clock_hand, 7);
    REQUIRE(tuttiStreamCreate(&first) == tuttiSuccess &&
            tuttiStreamCreate(&second) == tuttiSuccess);
    REQUIRE(tuttiEventCreate(&event) == tuttiSuccess);
    CHECK_EQ(tuttiEventRecord(event, NULL), tuttiSuccess); /* happens at once */
    CHECK_EQ(tuttiEventQuery(event), tuttiSuccess);
    CHECK_EQ(tuttiStreamLaunch(first, pass_gate, &gate), tuttiSuccess);
    CHECK_EQ(tuttiEventRecord(event, first), tuttiSuccess);
    CHECK_EQ(tuttiStreamWaitEvent(second, event), tuttiSuccess);
    CHECK_EQ(tuttiStreamLaunch(second, note_turn, &turn), tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(event), tuttiSuccess);
    CHECK_EQ(turn, -1);
    sem_post(&gate.open);
    CHECK_EQ(tuttiStreamDestroy(first), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(second), tuttiSuccess); /* completes what was issued */
    CHECK_EQ(turn, 7);
}

static void hold_20_ms(void *argument)
{
    (void)argument;
    const struct timespec time = {.tv_nsec = 20000000};
    nanosleep(&time, NULL); /* the length of the work that is measured */
}

TEST(streams, elapsed_time_is_that_of_the_work_between)
{
    tuttiStream_t stream;
    tuttiEvent_t start, end, never;
    float ms = -1;
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    REQUIRE(tuttiEventCreate(&start) == tuttiSuccess && tuttiEventCreate(&end) == tuttiSuccess);
    REQUIRE(tuttiEventCreate(&never) == tuttiSuccess);
    CHECK_EQ(tuttiEventRecord(start, stream), tuttiSuccess);
    CHECK_EQ(tuttiStreamLaunch(stream, hold_20_ms, NULL), tuttiSuccess);
    CHECK_EQ(tuttiEventRecord(end, stream), tuttiSuccess);
    CHECK_EQ(tuttiEventSynchronize(end), tuttiSuccess);
    CHECK_EQ(tuttiEventElapsedTime(&ms, start, end), tuttiSuccess);
    CHECK_MESSAGE(ms >= 19 && ms < 2000, "20 ms of work measured as %g ms", (double)ms);
    CHECK(tuttiEventElapsedTime(&ms, start, never) != tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(start), tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(end), tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(never), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
}

/* The caller is stuck until work behind the collective has run: only a stream that moves by itself
 * gets there. */
static void overlap(int rank, tuttiComm_t comm, void *arg)
{
    (void)arg;
    enum { COUNT = 200000 };
    tuttiStream_t stream;
    sem_t done;
    sem_init(&done, 0, 0);
    int *data = malloc(COUNT * sizeof *data);
    REQUIRE(data && tuttiStreamCreate(&stream) == tuttiSuccess);
    for (int i = 0; i < COUNT; i++) data[i] = rank + 1;
    CHECK_EQ(tuttiAllReduce(data, data, COUNT, tuttiInt32, tuttiSum, comm, stream), tuttiSuccess);
    CHECK_EQ(tuttiStreamLaunch(stream, post, &done), tuttiSuccess);
    CHECK(take(&done));
    CHECK_EQ(data[0], 3);
    CHECK_EQ(data[COUNT - 1], 3);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    free(data);
}

static void note_thread(void *argument)
{
    *(pthread_t *)argument = pthread_self();
}

/* A communicator whose threads compute on all cores. */
TEST(streams, a_function_waits_for_who_needs_it_where_the_stream_has_no_core)
{
    enum { MOST_TRIES = 2000, LEAD = 20, HEAD_START_NS = 50000 };
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiUniqueId id;
    tuttiComm_t comm;
    tuttiStream_t stream;
    config.computeThreads = 4096;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    REQUIRE(tuttiCommInitRankConfig(&comm, 1, id, 0, &config) == tuttiSuccess);
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    int lead = 0; /* functions that this thread has run, less those that the stream's has */
    for (int i = 0; i < MOST_TRIES && lead < LEAD; i++) {
        pthread_t thread;
        REQUIRE(tuttiStreamLaunch(stream, note_thread, &thread) == tuttiSuccess);
        const int64_t until_ns = tt_now_ns() + HEAD_START_NS;
        while (tt_now_ns() < until_ns) continue;
        CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
        lead += pthread_equal(thread, pthread_self()) ? 1 : -1;
    }
    CHECK_EQ(lead, LEAD);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(streams, a_collective_on_a_stream_needs_no_help_of_the_caller)
{
    as_threads(NRANKS, NULL, overlap, NULL);
}

/* The collective starts after the work before it on its stream, and not before. */
static void after_work(int rank, tuttiComm_t comm, void *arg)
{
    (void)arg;
    tuttiStream_t stream;
    struct gate gate;
    int data = 0;
    gate_init(&gate);
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    CHECK_EQ(tuttiStreamLaunch(stream, pass_gate, &gate), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(&data, &data, 1, tuttiInt32, tuttiSum, comm, stream), tuttiSuccess);
    CHECK(take(&gate.reached));
    data = 10 + rank; /* the gate is shut: the collective has not read it */
    sem_post(&gate.open);
    CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
    CHECK_EQ(data, 21);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
}

TEST(streams, a_collective_waits_for_the_work_before_it)
{
    as_threads(NRANKS, NULL, after_work, NULL);
}

/* ---- Calls of functions ---------------------------------------------------------------------- */

/* What a stream's function calls while other calls are queued behind that function. */
struct calls_inside {
    tuttiComm_t comm;
    int rank, one, many[5], apart[2];
    tuttiStream_t stream; /* that runs the function */
    tuttiResult_t alone, group, split, pairs, mixed, exchange;
    bool says_why;
    sem_t queued;
};

static void call_inside(void *argument)
{
    struct calls_inside *own = argument;
    const int peer = 1 - own->rank;
    int received = -1;
    CHECK(take(&own->queued));
    own->alone = tuttiAllReduce(&own->one, &own->one, 1, tuttiInt32, tuttiSum, own->comm, NULL);
    own->says_why =
        strstr(tuttiGetLastError(own->comm), "queued in the stream behind that function");
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < 5; i++) {
        int *data = &own->many[i];
        CHECK_EQ(tuttiAllReduce(data, data, 1, tuttiInt32, tuttiSum, own->comm, NULL),
                 tuttiSuccess);
    }
    own->group = tuttiGroupEnd();
    /* The messages to itself that are queued would follow the function, which waits for them. */
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiRecv(&own->many[0], 1, tuttiInt32, own->rank, own->comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiSend(&own->rank, 1, tuttiInt32, own->rank, own->comm, own->stream), tuttiSuccess);
    own->split = tuttiGroupEnd();
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < 2; i++) {
        tuttiStream_t stream = i ? own->stream : NULL;
        CHECK_EQ(tuttiSend(&own->rank, 1, tuttiInt32, own->rank, own->comm, stream), tuttiSuccess);
        CHECK_EQ(tuttiRecv(&own->apart[i], 1, tuttiInt32, own->rank, own->comm, stream),
                 tuttiSuccess);
    }
    own->pairs = tuttiGroupEnd();
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(tuttiSend(&own->rank, 1, tuttiInt32, peer, own->comm, i ? NULL : own->stream),
                 tuttiSuccess);
    own->mixed = tuttiGroupEnd();
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiSend(&own->rank, 1, tuttiInt32, peer, own->comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiRecv(&received, 1, tuttiInt32, peer, own->comm, NULL), tuttiSuccess);
    own->exchange = tuttiGroupEnd();
    CHECK_EQ(received, peer);
}

static void call_behind_a_function(int rank, tuttiComm_t comm, void *arg)
{
    (void)arg;
    struct calls_inside inside = {
        .comm = comm, .rank = rank, .one = 7, .many = {7, 7, 7, 7, 7}, .apart = {-1, -1}};
    int data = rank;
    tuttiStream_t stream;
    sem_init(&inside.queued, 0, 0);
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    inside.stream = stream;
    CHECK_EQ(tuttiStreamLaunch(stream, call_inside, &inside), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(&data, &data, 1, tuttiInt32, tuttiSum, comm, stream), tuttiSuccess);
    sem_post(&inside.queued);
    CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
    CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess); /* what the function queued, too */
    CHECK_EQ(inside.alone, tuttiInvalidUsage);
    CHECK(inside.says_why);
    CHECK_EQ(inside.group, tuttiInvalidUsage);
    CHECK_EQ(inside.split, tuttiInvalidUsage);
    CHECK_EQ(inside.pairs, tuttiSuccess); /* the second pair follows, and nobody waits for it */
    CHECK_EQ(inside.apart[0], rank);
    CHECK_EQ(inside.apart[1], rank);
    CHECK_EQ(inside.mixed, tuttiInvalidUsage);
    CHECK_EQ(inside.exchange, tuttiSuccess); /* messages are not ordered with collectives */
    CHECK_EQ(data, 1);
    CHECK_EQ(inside.one, 7);
    CHECK_EQ(inside.many[0], 7);
    CHECK_EQ(inside.many[4], 7);
    CHECK_EQ(tuttiAllReduce(&data, &data, 1, tuttiInt32, tuttiSum, comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
}

/* Such a call and the one behind the function would wait for each other for ever. */
TEST(streams, a_function_cannot_wait_for_a_call_that_has_to_follow_one_behind_it)
{
    const tuttiConfig_t config = CONFIG_WITHIN(20000, 20000);
    as_threads(NRANKS, &config, call_behind_a_function, NULL);
}

/* ---- Time ----------------------------------------------------------------------------------- */

enum { SHORT_MS = 200, LATER_MS = 600, ENOUGH_MS = 20000 };

static void sleep_ms(int ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL); /* rank 1 is late on purpose */
}

/* Rank 1 comes to the first call after the time that rank 0 gives the second one, to which rank 1
 * does not come before rank 0's deadline. */
static void second_call_has_less_time(int rank, tuttiComm_t comm, void *arg)
{
    struct gate *gate = arg;
    int first = rank, second = rank;
    tuttiStream_t stream;
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    if (rank) sleep_ms(LATER_MS);
    CHECK_EQ(tuttiAllReduce(&first, &first, 1, tuttiInt32, tuttiSum, comm, stream), tuttiSuccess);
    if (!rank) {
        CHECK_EQ(tuttiCommSetTimeout(comm, SHORT_MS), tuttiSuccess);
        CHECK_EQ(tuttiAllReduce(&second, &second, 1, tuttiInt32, tuttiSum, comm, stream),
                 tuttiSuccess);
        CHECK_EQ(tuttiStreamSynchronize(stream), tuttiTimeout);
        CHECK_MESSAGE(strstr(tuttiGetLastError(comm), "waited 200 ms in all_reduce number 2") &&
                          strstr(tuttiGetLastError(comm), " (set by the program)"),
                      "%s", tuttiGetLastError(comm));
        sem_post(&gate->open);
    } else {
        CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
        CHECK(take(&gate->open));
        CHECK_EQ(tuttiAllReduce(&second, &second, 1, tuttiInt32, tuttiSum, comm, NULL),
                 tuttiTimeout);
    }
    CHECK_EQ(first, 1);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
}

TEST(streams, a_call_has_the_deadline_that_was_set_when_it_was_issued)
{
    const tuttiConfig_t config = CONFIG_WITHIN(ENOUGH_MS, ENOUGH_MS);
    struct gate gate;
    gate_init(&gate);
    as_threads(NRANKS, &config, second_call_has_less_time, &gate);
}

/* The call goes on after waits that end before the event has happened. */
static void waits_with_an_end(int rank, tuttiComm_t comm, void *arg)
{
    struct gate *gate = arg;
    tuttiStream_t stream;
    tuttiEvent_t event;
    tuttiResult_t state = tuttiInternalError;
    int data = rank + 1;
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    REQUIRE(tuttiEventCreate(&event) == tuttiSuccess);
    CHECK_EQ(tuttiEventSynchronizeFor(event, 0), tuttiSuccess); /* never recorded */
    if (rank) CHECK(take(&gate->open));
    CHECK_EQ(tuttiAllReduce(&data, &data, 1, tuttiInt32, tuttiSum, comm, stream), tuttiSuccess);
    CHECK_EQ(tuttiEventRecord(event, stream), tuttiSuccess);
    if (!rank) {
        const int64_t start_ms = now_ms();
        CHECK_EQ(tuttiEventSynchronizeFor(event, -1), tuttiInvalidArgument);
        CHECK_EQ(tuttiEventSynchronizeFor(event, 0), tuttiInProgress);
        CHECK_EQ(tuttiEventSynchronizeFor(event, SHORT_MS), tuttiInProgress);
        CHECK(now_ms() - start_ms >= SHORT_MS);
        CHECK_EQ(tuttiCommGetAsyncError(comm, &state), tuttiSuccess);
        CHECK_EQ(state, tuttiSuccess);
        sem_post(&gate->open);
    }
    CHECK_EQ(tuttiEventSynchronizeFor(event, ENOUGH_MS), tuttiSuccess);
    CHECK_EQ(data, 3);
    CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(event), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
}

TEST(streams, a_wait_for_an_event_may_end_before_it_has_happened)
{
    struct gate gate;
    gate_init(&gate);
    as_threads(NRANKS, NULL, waits_with_an_end, &gate);
}

/* ---- Threads -------------------------------------------------------------------------------- */

/* One thread drives both ranks, each on a stream. */
TEST(streams, one_thread_drives_two_ranks_on_two_streams)
{
    enum { COUNT = 70000 };
    static float data[2][COUNT];
    tuttiComm_t comms[2];
    tuttiStream_t streams[2];
    REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
    for (int r = 0; r < 2; r++) {
        REQUIRE(tuttiStreamCreate(&streams[r]) == tuttiSuccess);
        for (int i = 0; i < COUNT; i++) data[r][i] = (float)(r + i % 5);
    }
    for (int r = 0; r < 2; r++)
        CHECK_EQ(
            tuttiAllReduce(data[r], data[r], COUNT, tuttiFloat32, tuttiSum, comms[r], streams[r]),
            tuttiSuccess);
    for (int r = 0; r < 2; r++) CHECK_EQ(tuttiStreamSynchronize(streams[r]), tuttiSuccess);
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < COUNT; i++) REQUIRE(data[r][i] == (float)(1 + 2 * (i % 5)));
    for (int r = 0; r < 2; r++) {
        CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
        CHECK_EQ(tuttiStreamDestroy(streams[r]), tuttiSuccess);
    }
}

static void fail_on_stream(int rank, tuttiComm_t comm, void *arg)
{
    (void)arg;
    tuttiStream_t stream;
    int in[4] = {0}, out[4] = {0};
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(in, out, 4, tuttiInt32, rank ? tuttiMax : tuttiSum, comm, stream),
             tuttiSuccess);
    /* A barrier, because a rank may have been through before the other came. */
    const tuttiResult_t later = tuttiBarrier(comm, stream);
    CHECK(later == tuttiSuccess || later == tuttiInvalidUsage);
    CHECK_EQ(tuttiStreamSynchronize(stream), tuttiInvalidUsage);
    CHECK_MESSAGE(strstr(tuttiGetLastError(comm), "max"), "rank %d: %s", rank,
                  tuttiGetLastError(comm));
    CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess); /* the error was reported */
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
}

TEST(streams, the_error_of_a_collective_comes_out_at_synchronize)
{
    const tuttiConfig_t config = CONFIG_WITHIN(20000, 20000);
    as_threads(NRANKS, &config, fail_on_stream, NULL);
}
