/* An abort by another thread while a call of several steps is under way. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "communicator/communicator.h"
#include "shim.h"

enum { PATIENCE_MS = 20000, ROUNDS = 20, QUEUEING_MS = 2000 };

static void *finalize(void *argument)
{
    CHECK_EQ(tuttiCommFinalize(argument), tuttiRemoteError);
    return NULL;
}

static void *split(void *argument)
{
    tuttiComm_t child = NULL;
    CHECK_EQ(tuttiCommSplit(argument, 0, 0, &child, NULL), tuttiRemoteError);
    return NULL;
}

static void *all_reduce(void *argument)
{
    int32_t value = 1;
    CHECK_EQ(tuttiAllReduce(&value, &value, 1, tuttiInt32, tuttiSum, argument, NULL),
             tuttiRemoteError);
    return NULL;
}

static void *all_gather_v(void *argument)
{
    const size_t counts[] = {1, 0};
    int32_t value = 1;
    CHECK_EQ(tuttiAllGatherV(&value, &value, counts, NULL, tuttiInt32, argument, NULL),
             tuttiRemoteError);
    return NULL;
}

static void *all_to_all_v(void *argument)
{
    const size_t counts[] = {0, 1};
    int32_t in = 1, out = 0;
    CHECK_EQ(tuttiAlltoAllV(&in, counts, NULL, &out, counts, NULL, tuttiInt32, argument, NULL),
             tuttiRemoteError);
    return NULL;
}

/* Longer than rank 1's slots hold. */
static void *send_to_1(void *argument)
{
    static const char data[64 << 20];
    CHECK_EQ(tuttiSend(data, sizeof data, tuttiInt8, 1, argument, NULL), tuttiRemoteError);
    return NULL;
}

static void *receive_from_1(void *argument)
{
    int32_t value = 0;
    CHECK_EQ(tuttiRecv(&value, 1, tuttiInt32, 1, argument, NULL), tuttiRemoteError);
    return NULL;
}

static void *synchronize(void *argument)
{
    int32_t value = 1;
    tuttiStream_t stream;
    CHECK_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(&value, &value, 1, tuttiInt32, tuttiSum, argument, stream),
             tuttiSuccess);
    CHECK_EQ(tuttiStreamSynchronize(stream), tuttiRemoteError);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    return NULL;
}

static bool is_in_use(tuttiComm_t comm)
{
    return atomic_load(&comm->core.calls) || atomic_load(&comm->calling);
}

/* Rank 0 makes the call, for which rank 1 never comes, and is aborted as soon as it is under way:
 * perhaps before it has a turn. */
static void abort_during(void *(*call)(void *))
{
    tuttiComm_t comms[2];
    pthread_t thread;
    REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
    REQUIRE(pthread_create(&thread, NULL, call, comms[0]) == 0);
    const int64_t deadline = tt_deadline_ns(PATIENCE_MS);
    while (!is_in_use(comms[0]) && !tt_expired(deadline)) sched_yield();
    CHECK(!tt_expired(deadline));
    CHECK_EQ(tuttiCommAbort(comms[0]), tuttiSuccess);
    pthread_join(thread, NULL);
    CHECK_EQ(tuttiCommDestroy(comms[1]), tuttiSuccess);
}

/* A thread that is cancelled while it waits in the library ends its call first, so that it keeps
 * neither a lock nor the communicator. */
static void cancel_during(void *(*call)(void *))
{
    enum { WAITS_US = 20000 };
    tuttiComm_t comms[2];
    pthread_t thread;
    void *result = PTHREAD_CANCELED;
    REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
    REQUIRE(pthread_create(&thread, NULL, call, comms[0]) == 0);
    usleep(WAITS_US);
    CHECK_EQ(pthread_cancel(thread), 0);
    usleep(WAITS_US);
    CHECK_EQ(tuttiCommAbort(comms[1]), tuttiSuccess);
    pthread_join(thread, &result);
    CHECK(result == NULL); /* it has not been cancelled in the call */
    CHECK_EQ(tuttiCommAbort(comms[0]), tuttiSuccess);
}

TEST(abort, ends_a_call_whose_thread_is_cancelled)
{
    cancel_during(all_reduce);
    cancel_during(split);
    cancel_during(synchronize);
}

/* A program's watchdog asks without pause, and is ended by a cancel. */
static void *ask_for_errors(void *argument)
{
    tuttiResult_t result;
    while (tuttiCommGetAsyncError(argument, &result) == tuttiSuccess) pthread_testcancel();
    CHECK_MESSAGE(false, "an error: %s", tuttiGetLastError(argument));
    return NULL;
}

TEST(abort, of_a_communicator_whose_watchdog_was_cancelled)
{
    for (int i = 0; i < ROUNDS && !tt_test_failed(); i++) {
        tuttiComm_t comms[2];
        pthread_t thread;
        REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
        REQUIRE(pthread_create(&thread, NULL, ask_for_errors, comms[0]) == 0);
        usleep(1000 + 37 * (unsigned)i);
        CHECK_EQ(pthread_cancel(thread), 0);
        pthread_join(thread, NULL);
        for (int r = 0; r < 2; r++) CHECK_EQ(tuttiCommAbort(comms[r]), tuttiSuccess);
    }
}

/* Functions that take locks of the process, or open or close a descriptor. */
static void *use_memory(void *argument)
{
    enum { NBYTES = 1 << 20 };
    tuttiUniqueId id;
    void *memory = NULL, *handle = NULL;
    pthread_cancel(pthread_self());
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    CHECK_EQ(tuttiDropUniqueId(&id), tuttiSuccess);
    CHECK_EQ(tuttiMemAlloc(&memory, NBYTES), tuttiSuccess);
    CHECK_EQ(tuttiMemFree(memory), tuttiSuccess);
    memory = calloc(2, NBYTES);
    CHECK_EQ(tuttiCommRegister(argument, memory, 2 * (size_t)NBYTES, &handle), tuttiSuccess);
    CHECK_EQ(tuttiCommDeregister(argument, handle), tuttiSuccess);
    free(memory);
    pthread_testcancel();
    return NULL;
}

static int count_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* An id that is dropped ends in another thread of the library, which may have to wait for a core.
 */
static int await_descriptors(int most)
{
    const int64_t deadline_ns = tt_deadline_ns(PATIENCE_MS);
    int n;
    while ((n = count_descriptors()) > most && !tt_expired(deadline_ns)) tt_test_pause();
    return n;
}

TEST(abort, of_a_communicator_whose_thread_was_cancelled_in_other_functions)
{
    enum { THREADS = 20, SPARE = 4 };
    tuttiComm_t comms[2];
    REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
    const int before = count_descriptors();
    for (int i = 0; i < THREADS && !tt_test_failed(); i++) {
        pthread_t thread;
        void *ended = NULL;
        REQUIRE(pthread_create(&thread, NULL, use_memory, comms[0]) == 0);
        pthread_join(thread, &ended);
        CHECK(ended == PTHREAD_CANCELED);
    }
    const int after = await_descriptors(before + SPARE);
    CHECK_MESSAGE(after <= before + SPARE, "%d descriptors, %d before", after, before);
    for (int r = 0; r < 2; r++) CHECK_EQ(tuttiCommAbort(comms[r]), tuttiSuccess);
}

TEST(abort, waits_until_finalize_has_returned)
{
    for (int i = 0; i < ROUNDS && !tt_test_failed(); i++) abort_during(finalize);
}

/* Two threads end one communicator, as a program and its watchdog may. */
struct ended_twice {
    tuttiComm_t comm;
    pthread_barrier_t begin;
    int delay; /* of the abort */
};

static void *abort_later(void *argument)
{
    struct ended_twice *twice = argument;
    pthread_barrier_wait(&twice->begin);
    for (volatile int i = 0; i < twice->delay; i++) continue;
    (void)tuttiCommAbort(twice->comm); /* fails where the destroy has ended it */
    return NULL;
}

TEST(abort, of_a_communicator_that_another_thread_destroys)
{
    enum { ENDS = 1000, MOST_DELAY = 400000 };
    struct ended_twice twice;
    pthread_barrier_init(&twice.begin, NULL, 2);
    for (int i = 0; i < ENDS && !tt_test_failed(); i++) {
        pthread_t thread;
        twice.delay = (int)((unsigned)i * 7919u % MOST_DELAY);
        REQUIRE(tuttiCommInitAll(&twice.comm, 1, NULL) == tuttiSuccess);
        REQUIRE(pthread_create(&thread, NULL, abort_later, &twice) == 0);
        pthread_barrier_wait(&twice.begin);
        (void)tuttiCommDestroy(twice.comm);
        pthread_join(thread, NULL);
        int count;
        CHECK_EQ(tuttiCommCount(twice.comm, &count), tuttiInvalidArgument);
    }
    pthread_barrier_destroy(&twice.begin);
}

TEST(abort, waits_until_split_has_returned)
{
    for (int i = 0; i < ROUNDS && !tt_test_failed(); i++) abort_during(split);
}

TEST(abort, waits_until_a_first_collective_has_returned)
{
    for (int i = 0; i < ROUNDS && !tt_test_failed(); i++) abort_during(all_reduce);
}

TEST(abort, waits_until_a_collective_with_counts_has_returned)
{
    for (int i = 0; i < ROUNDS && !tt_test_failed(); i++) abort_during(all_gather_v);
}

TEST(abort, waits_until_an_exchange_with_counts_has_returned)
{
    for (int i = 0; i < ROUNDS && !tt_test_failed(); i++) abort_during(all_to_all_v);
}

TEST(abort, waits_until_a_send_has_returned)
{
    for (int i = 0; i < ROUNDS && !tt_test_failed(); i++) abort_during(send_to_1);
}

TEST(abort, waits_until_a_receive_has_returned)
{
    for (int i = 0; i < ROUNDS && !tt_test_failed(); i++) abort_during(receive_from_1);
}

struct watched {
    tuttiComm_t comm;
    _Atomic bool is_over; /* what uses it */
};

static void *abort_when_it_is_used(void *argument)
{
    struct watched *watched = argument;
    while (!is_in_use(watched->comm) && !atomic_load(&watched->is_over)) sched_yield();
    CHECK_EQ(tuttiCommAbort(watched->comm), tuttiSuccess);
    return NULL;
}

/* The group's end takes hold of its first call's communicator, then of many others, and comes to
 * the first one's again, which is being aborted now. */
TEST(abort, waits_for_a_group_that_comes_to_the_communicator_again)
{
    enum { NBETWEEN = 5000 };
    for (int round = 0; round < ROUNDS && !tt_test_failed(); round++) {
        struct watched aborted = {.is_over = false};
        tuttiComm_t other;
        pthread_t thread;
        int32_t value = 1;
        REQUIRE(tuttiCommInitAll(&aborted.comm, 1, NULL) == tuttiSuccess);
        REQUIRE(tuttiCommInitAll(&other, 1, NULL) == tuttiSuccess);
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        for (int i = 0; i < NBETWEEN + 2; i++)
            CHECK_EQ(tuttiAllReduce(&value, &value, 1, tuttiInt32, tuttiSum,
                                    i % (NBETWEEN + 1) ? other : aborted.comm, NULL),
                     tuttiSuccess);
        REQUIRE(pthread_create(&thread, NULL, abort_when_it_is_used, &aborted) == 0);
        const tuttiResult_t result = tuttiGroupEnd();
        CHECK(result == tuttiSuccess || result == tuttiRemoteError);
        atomic_store(&aborted.is_over, true);
        pthread_join(thread, NULL);
        CHECK_EQ(tuttiCommDestroy(other), tuttiSuccess);
    }
}

/* A watchdog aborts the communicator while the thread that makes calls goes on. */
TEST(abort, of_a_failed_communicator_leaves_its_failure_to_other_threads)
{
    static const char failure[] = "it had failed: rank 7 has died";
    tuttiComm_t comms[2];
    tuttiResult_t found;
    REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
    tt_ignore(tt_fabric_fail(comms[1]->core.fabric, TT_ERR_REMOTE, "rank 7 has died"));
    for (int had_failed = 0; had_failed < 2; had_failed++) {
        atomic_store(&comms[0]->failed_before_abort, had_failed);
        const unsigned ends = atomic_fetch_or(&comms[0]->ends, TT_COMM_ENDS | TT_COMM_ABORTED);
        CHECK_EQ(tuttiBarrier(comms[0], NULL), tuttiRemoteError);
        CHECK(strstr(tuttiGetLastError(NULL), "in another thread"));
        CHECK(!strstr(tuttiGetLastError(NULL), failure) == !had_failed);
        atomic_store(&comms[0]->ends, ends);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(tuttiCommAbort(comms[i]), tuttiSuccess);
        CHECK_EQ(tuttiCommGetAsyncError(comms[i], &found), tuttiInvalidArgument);
        CHECK(strstr(tuttiGetLastError(NULL), "destroyed already"));
        CHECK(strstr(tuttiGetLastError(NULL), failure));
    }
}

/* ---- Between calls -------------------------------------------------------------------------- */

struct caller {
    tuttiComm_t comm;
    tuttiStream_t stream;
    _Atomic int ncalls;
    tuttiResult_t result; /* of the last call */
};

static void *call_again_and_again(void *argument)
{
    struct caller *caller = argument;
    double in = 1, out;
    while (!(caller->result =
                 tuttiAllReduce(&in, &out, 1, tuttiFloat64, tuttiSum, caller->comm, NULL)))
        atomic_fetch_add_explicit(&caller->ncalls, 1, memory_order_relaxed);
    return NULL;
}

static void sleep_briefly(void *argument)
{
    (void)argument;
    usleep(300); /* the calls behind it are queued meanwhile */
}

static void *abort_it(void *argument)
{
    CHECK_EQ(tuttiCommAbort(argument), tuttiSuccess);
    return NULL;
}

/* Two ranks make small calls without end, and other threads abort both after some of them. */
static void abort_while_calling(int after)
{
    tuttiComm_t comms[2];
    pthread_t callers[2], aborters[2];
    struct caller of[2] = {{.result = tuttiSuccess}, {.result = tuttiSuccess}};
    REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
    for (int r = 0; r < 2; r++) {
        of[r].comm = comms[r];
        REQUIRE(pthread_create(&callers[r], NULL, call_again_and_again, &of[r]) == 0);
    }
    const int64_t deadline = tt_deadline_ns(PATIENCE_MS);
    while (atomic_load(&of[0].ncalls) < after && !tt_expired(deadline)) sched_yield();
    for (int r = 0; r < 2; r++)
        REQUIRE(pthread_create(&aborters[r], NULL, abort_it, comms[r]) == 0);
    for (int r = 0; r < 2; r++) pthread_join(aborters[r], NULL);
    for (int r = 0; r < 2; r++) pthread_join(callers[r], NULL);
    for (int r = 0; r < 2; r++)
        CHECK(of[r].result == tuttiRemoteError || of[r].result == tuttiInvalidArgument);
}

TEST(abort, may_come_at_any_moment_of_small_calls)
{
    for (int i = 0; i < ROUNDS && !tt_test_failed(); i++) abort_while_calling(500 + i);
}

/* Calls on a stream, which wait there behind a function. */
static void *queue_again_and_again(void *argument)
{
    struct caller *caller = argument;
    static float data[4];
    for (unsigned i = 0;; i++) {
        if (i % 4 == 0) tt_ignore((int)tuttiStreamLaunch(caller->stream, sleep_briefly, NULL));
        caller->result =
            tuttiAllReduce(data, data, 4, tuttiFloat32, tuttiProd, caller->comm, caller->stream);
        if (caller->result) return NULL;
        usleep(i % 7);
    }
}

static void end_while_queueing(tuttiResult_t (*end)(tuttiComm_t), unsigned after_us)
{
    struct caller of = {.result = tuttiSuccess};
    pthread_t caller;
    REQUIRE(tuttiCommInitAll(&of.comm, 1, NULL) == tuttiSuccess);
    REQUIRE(tuttiStreamCreate(&of.stream) == tuttiSuccess);
    REQUIRE(pthread_create(&caller, NULL, queue_again_and_again, &of) == 0);
    usleep(after_us); /* any moment of the other thread's calls */
    CHECK_EQ(end(of.comm), tuttiSuccess);
    pthread_join(caller, NULL);
    CHECK(of.result == tuttiRemoteError || of.result == tuttiInvalidArgument ||
          of.result == tuttiInvalidUsage);
    CHECK_EQ(tuttiStreamDestroy(of.stream), tuttiSuccess);
}

/* Long enough to meet, in each of six runs, the moment in which a destroy freed what a stream had
 * yet to use. */
TEST(abort, and_destroy_may_come_while_another_thread_queues_calls_in_a_stream)
{
    const int64_t until = tt_deadline_ns(QUEUEING_MS);
    for (unsigned i = 0; !tt_expired(until) && !tt_test_failed(); i++)
        end_while_queueing(i % 4 ? tuttiCommDestroy : tuttiCommAbort, i * 37 % 400);
}

TEST(abort, a_check_says_what_a_call_would_return)
{
    tuttiComm_t comms[2];
    REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
    CHECK_EQ(tuttiCommCheck(comms[0]), tuttiSuccess);
    CHECK_EQ(tuttiCommFinalizeLocal(comms[0]), tuttiSuccess);
    CHECK_EQ(tuttiCommCheck(comms[0]), tuttiInvalidUsage);
    CHECK_EQ(tuttiCommAbort(comms[1]), tuttiSuccess);
    CHECK_EQ(tuttiCommCheck(comms[1]), tuttiInvalidArgument);
    CHECK_EQ(tuttiCommDestroy(comms[0]), tuttiSuccess);
}

TEST(abort, a_rank_that_is_gone_can_be_asked_for_and_fails_no_communicator)
{
    tuttiComm_t comms[3];
    REQUIRE(tuttiCommInitAll(comms, 3, NULL) == tuttiSuccess);
    for (int r = 0; r < 3; r++) CHECK_EQ(tuttiCommCheckRank(comms[0], r), tuttiSuccess);
    CHECK_EQ(tuttiCommCheckRank(comms[0], -1), tuttiInvalidArgument);
    CHECK_EQ(tuttiCommCheckRank(comms[0], 3), tuttiInvalidArgument);
    CHECK_EQ(tuttiCommAbort(comms[1]), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comms[2]), tuttiSuccess);
    CHECK_EQ(tuttiCommCheckRank(comms[0], 1), tuttiRemoteError);
    CHECK(strstr(tuttiGetLastError(NULL), "rank 1 (host ") &&
          strstr(tuttiGetLastError(NULL), "aborted"));
    CHECK_EQ(tuttiCommCheckRank(comms[0], 2), tuttiRemoteError);
    CHECK(strstr(tuttiGetLastError(NULL), "rank 2 (host ") &&
          strstr(tuttiGetLastError(NULL), "left"));
    CHECK_EQ(tuttiCommCheckRank(comms[0], 0), tuttiSuccess);
    CHECK_EQ(tuttiCommCheck(comms[0]), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comms[0]), tuttiSuccess);
}
