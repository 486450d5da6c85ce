/* Ranks on GPUs that abort: what they have done their part of the others finish, and an abort waits
 * for nobody who does without the rank. Ranks that are destroyed wait for the others. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "carrier/kernel/kernel.h"
#include "communicator/communicator.h"
#include "driven.h"
#include "graphs.h"
#include "shim.h"

enum { ROUNDS = 100, MOST = 30000 };

/* Lines, slots, and several rounds of slots. */
static const size_t counts[] = {2, 3000, MOST};

static void check_sums(const struct gpu_rank *rank, const float *memory, size_t count)
{
    static _Thread_local float data[MOST];
    const float sum = (float)(rank->nranks * (rank->nranks + 1) / 2);
    gpu_read(rank->gpu, data, memory, count * sizeof *data);
    for (size_t i = 0; i < count && !tt_test_failed(); i++) CHECK_EQ(data[i], sum);
}

static void reduce_and_abort(struct gpu_rank *rank)
{
    static _Thread_local float data[MOST];
    void *device_stream = gpu_stream(rank->gpu);
    float *memory = (float *)gpu_memory(rank->gpu, sizeof data);
    tuttiStream_t stream;
    CHECK_EQ(tuttiStreamFromDevice(&stream, rank->gpu, device_stream), tuttiSuccess);
    for (size_t i = 0; i < MOST; i++) data[i] = (float)(rank->rank + 1);
    const int nrounds = tt_test_sanitized() ? ROUNDS / 4 : ROUNDS;
    for (int i = 0; i < nrounds && !tt_test_failed(); i++) {
        tuttiComm_t part = NULL;
        tuttiResult_t async = tuttiNumResults;
        const size_t count = counts[i % 3];
        CHECK_MESSAGE(tuttiCommSplit(rank->comm, 0, 0, &part, NULL) == tuttiSuccess, "split: %s",
                      tuttiGetLastError(NULL));
        gpu_write(rank->gpu, memory, data, count * sizeof *data);
        CHECK_EQ(tuttiAllReduce(memory, memory, count, tuttiFloat, tuttiSum, part, stream),
                 tuttiSuccess);
        CHECK_MESSAGE(tuttiStreamSynchronize(stream) == tuttiSuccess, "rank %d, round %d: %s",
                      rank->rank, i, tuttiGetLastError(part));
        CHECK_EQ(tuttiCommGetAsyncError(part, &async), tuttiSuccess);
        CHECK_EQ(async, tuttiSuccess);
        CHECK_EQ(tuttiCommAbort(part), tuttiSuccess);
        check_sums(rank, memory, count);
    }
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    gpu_stream_destroy(rank->gpu, device_stream);
    gpu_free(memory);
}

TEST(device_abort, two_ranks_abort_as_soon_as_they_have_reduced)
{
    on_gpus(2, 2, NULL, reduce_and_abort, NULL);
}

TEST(device_abort, four_ranks_on_two_gpus_abort_as_soon_as_they_have_reduced)
{
    on_gpus(4, 2, NULL, reduce_and_abort, NULL);
}

/* ---- Rooted calls ---------------------------------------------------------------------------- */

enum { LONG_MS = 60000, SHORT_COUNT = 1000 };

/* The rank whose part of the call ends whether or not the others have come. */
static int first_of(int call)
{
    return call %
           2; /* the root of a broadcast and a scatter, the leaf of a reduction and a gather */
}

static tuttiResult_t issue_rooted(int call, const float *input, float *output, size_t count,
                                  tuttiComm_t comm, tuttiStream_t stream)
{
    switch (call) {
    case 0:
        return tuttiBroadcast(input, output, count, tuttiFloat, 0, comm, stream);
    case 1:
        return tuttiReduce(input, output, count, tuttiFloat, tuttiSum, 0, comm, stream);
    case 2:
        return tuttiScatter(input, output, count, tuttiFloat, 0, comm, stream);
    default:
        return tuttiGather(input, output, count, tuttiFloat, 0, comm, stream);
    }
}

/* What the rank that comes last has after the call: ranks give 1, and 2. */
static void check_rooted(int gpu, int call, const float *output, size_t count)
{
    float data[2 * SHORT_COUNT];
    const size_t n = call == 3 ? 2 * count : count;
    gpu_read(gpu, data, output, n * sizeof *data);
    for (size_t i = 0; i < n && !tt_test_failed(); i++)
        CHECK_EQ(data[i], call == 1 ? 3.0F : call == 3 && i >= count ? 2.0F : 1.0F);
}

static void await_abort(const struct gpu_rank *rank, tuttiComm_t comm)
{
    const struct tt_rank_record *record = tt_fabric_record(comm->core.fabric, 1 - rank->rank);
    while (atomic_load(&record->state) == TT_RANK_HERE) tt_test_pause();
}

static void call_and_abort(struct gpu_rank *rank)
{
    float data[2 * SHORT_COUNT];
    void *device_stream = gpu_stream(rank->gpu);
    float *input = (float *)gpu_memory(rank->gpu, sizeof data);
    float *output = (float *)gpu_memory(rank->gpu, sizeof data);
    tuttiStream_t stream;
    CHECK_EQ(tuttiStreamFromDevice(&stream, rank->gpu, device_stream), tuttiSuccess);
    for (size_t i = 0; i < 2 * SHORT_COUNT; i++) data[i] = (float)(rank->rank + 1);
    gpu_write(rank->gpu, input, data, sizeof data);
    const int nrounds = tt_test_sanitized() ? ROUNDS / 4 : ROUNDS;
    for (int i = 0; i < nrounds && !tt_test_failed(); i++) {
        tuttiComm_t part = NULL;
        const int call = i % 4;
        const size_t count = i / 4 % 2 ? 2 : SHORT_COUNT;
        CHECK_EQ(tuttiCommSplit(rank->comm, 0, 0, &part, NULL), tuttiSuccess);
        REQUIRE(part);
        part->core.kernel->abort_ms = LONG_MS;
        if (first_of(call) != rank->rank) await_abort(rank, part);
        CHECK_MESSAGE(issue_rooted(call, input, output, count, part, stream) == tuttiSuccess,
                      "rank %d, round %d: %s", rank->rank, i, tuttiGetLastError(part));
        CHECK_MESSAGE(tuttiStreamSynchronize(stream) == tuttiSuccess, "rank %d, round %d: %s",
                      rank->rank, i, tuttiGetLastError(part));
        if (first_of(call) != rank->rank) check_rooted(rank->gpu, call, output, count);
        CHECK_EQ(tuttiCommAbort(part), tuttiSuccess);
    }
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    gpu_stream_destroy(rank->gpu, device_stream);
    gpu_free(input);
    gpu_free(output);
}

TEST(device_abort, a_rank_gets_what_one_that_has_aborted_did_its_part_of)
{
    on_gpus(2, 2, NULL, call_and_abort, NULL);
}

/* The other rank of the thread broadcasts, and its communicator has ended. */
static void broadcast_too_late(struct driven *d)
{
    CHECK_EQ(
        tuttiBroadcast(d->memory[1], d->memory[1], 4, tuttiInt32, 0, d->comms[1], d->streams[1]),
        tuttiRemoteError);
    CHECK(strstr(tuttiGetLastError(d->comms[1]), "rank 0"));
}

static void begin_broadcast(struct driven *d)
{
    driven_issue_sums(d, 1, driven_stream_of_rank);
    driven_synchronize(d);
    CHECK_EQ(
        tuttiBroadcast(d->memory[0], d->memory[0], 4, tuttiInt32, 0, d->comms[0], d->streams[0]),
        tuttiSuccess);
    CHECK_EQ(tuttiStreamSynchronize(d->streams[0]), tuttiSuccess);
    CHECK_EQ(tuttiCommSetTimeout(d->comms[0], 0), tuttiSuccess);
    d->comms[0]->core.kernel->held_ms = d->comms[0]->core.kernel->abort_ms = 1;
}

/* Rank 0 broadcasts and ends its communicator; then the other rank of the thread broadcasts. */
static void broadcast_after(tuttiResult_t (*end)(tuttiComm_t comm))
{
    struct driven d;
    if (!driven_begin(&d, 2, 1)) return;
    begin_broadcast(&d);
    CHECK_EQ(end(d.comms[0]), tuttiSuccess);
    d.comms[0] = NULL;
    broadcast_too_late(&d);
    driven_finish(&d);
}

TEST(device_abort, a_call_after_it_returns_the_error_itself)
{
    broadcast_after(tuttiCommAbort);
}

/* ---- Destroys -------------------------------------------------------------------------------- */

TEST(device_destroy, does_not_wait_for_ever_for_ranks_of_its_own_process)
{
    broadcast_after(tuttiCommDestroy);
}

static void broadcast_and_destroy(struct gpu_rank *rank)
{
    int data[4] = {rank->rank + 7};
    pthread_barrier_t *both = rank->arg;
    int *memory = (int *)gpu_memory(rank->gpu, sizeof data);
    tuttiComm_t part = NULL;
    CHECK_EQ(tuttiCommSplit(rank->comm, 0, 0, &part, NULL), tuttiSuccess);
    gpu_write(rank->gpu, memory, data, sizeof data);
    CHECK_EQ(tuttiAllReduce(memory, memory, 4, tuttiInt32, tuttiMax, part, NULL), tuttiSuccess);
    CHECK_EQ(tuttiCommSetTimeout(part, 0), tuttiSuccess);
    gpu_write(rank->gpu, memory, data, sizeof data);
    if (rank->rank) pthread_barrier_wait(both);
    if (rank->rank) usleep(100000);
    CHECK_MESSAGE(tuttiBroadcast(memory, memory, 4, tuttiInt32, 0, part, NULL) == tuttiSuccess,
                  "rank %d: %s", rank->rank, tuttiGetLastError(part));
    if (!rank->rank) pthread_barrier_wait(both);
    CHECK_EQ(tuttiCommDestroy(part), tuttiSuccess);
    gpu_read(rank->gpu, data, memory, sizeof data);
    CHECK_EQ(data[0], 7);
    gpu_free(memory);
}

TEST(device_destroy, waits_for_a_rank_that_has_not_made_a_call_yet)
{
    on_gpus_together(2, 2, NULL, broadcast_and_destroy);
}

/* ---- Who does without the rank --------------------------------------------------------------- */

/* An abort that waits for more than its peers' looks waits for the deadline. */
enum { DEADLINE_MS = 30000, SOON_MS = 10000 };

struct waiter {
    tuttiComm_t comm;
    tuttiResult_t result;
};

/* In memory of the host: a message to rank 1, and one from it that never comes. */
static void *send_and_receive(void *argument)
{
    struct waiter *waiter = argument;
    int begun = 1, never = 0;
    gpu_use(0);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiSend(&begun, 1, tuttiInt32, 1, waiter->comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiRecv(&never, 1, tuttiInt32, 1, waiter->comm, NULL), tuttiSuccess);
    waiter->result = tuttiGroupEnd();
    return NULL;
}

static void check_soon(int64_t began_ns, const char *what)
{
    const int64_t ms = (tt_now_ns() - began_ns) / 1000000;
    CHECK_MESSAGE(ms < SOON_MS, "%s took %lld ms", what, (long long)ms);
}

/* While it has a call that cannot end. */
static void abort_first(struct driven *d)
{
    struct waiter waiter = {.comm = d->comms[0]};
    pthread_t thread;
    int begun = 0;
    REQUIRE(pthread_create(&thread, NULL, send_and_receive, &waiter) == 0);
    CHECK_EQ(tuttiRecv(&begun, 1, tuttiInt32, 0, d->comms[1], NULL), tuttiSuccess);
    const int64_t began_ns = tt_now_ns();
    CHECK_EQ(tuttiCommAbort(d->comms[0]), tuttiSuccess);
    d->comms[0] = NULL;
    pthread_join(thread, NULL);
    check_soon(began_ns, "the abort");
    CHECK_EQ(waiter.result, tuttiRemoteError);
}

TEST(device_abort, waits_for_no_rank_that_has_captured_calls)
{
    struct driven d;
    if (!driven_begin_with(&d, 2, 1, DEADLINE_MS)) return;
    const struct gpu_rank rank = {.rank = 1, .nranks = 2, .comm = d.comms[1]};
    const struct both stream = {d.device_streams[1], d.streams[1]};
    gpu_use(0);
    CUgraphExec graph = capture_sum(&rank, &stream, (float *)d.memory[1], 100);
    abort_first(&d);
    CALL(cuGraphExecDestroy, graph);
    driven_finish(&d);
}

TEST(device_abort, waits_for_no_kernel_that_does_without_the_rank)
{
    struct driven d;
    if (!driven_begin_with(&d, 3, 1, DEADLINE_MS)) return;
    CHECK_EQ(tuttiRecv(d.memory[1], DRIVEN_N, tuttiInt32, 2, d.comms[1], d.streams[1]),
             tuttiSuccess);
    abort_first(&d);
    CHECK_EQ(tuttiSend(d.memory[2], DRIVEN_N, tuttiInt32, 1, d.comms[2], d.streams[2]),
             tuttiSuccess);
    for (int r = 1; r < 3; r++)
        CHECK_MESSAGE(tuttiStreamSynchronize(d.streams[r]) == tuttiSuccess, "rank %d: %s", r,
                      tuttiGetLastError(d.comms[r]));
    driven_finish(&d);
}

static void *destroy(void *argument)
{
    struct waiter *waiter = argument;
    gpu_use(0);
    waiter->result = tuttiCommDestroy(waiter->comm);
    return NULL;
}

/* Rank 1 stays away from a broadcast of which rank 0 has done its part. */
TEST(device_abort, ends_a_destroy_that_waits_for_the_other_ranks)
{
    struct driven d;
    pthread_t thread;
    if (!driven_begin_with(&d, 2, 1, DEADLINE_MS)) return;
    CHECK_EQ(tuttiBroadcast(d.memory[0], d.memory[0], 4, tuttiInt32, 0, d.comms[0], d.streams[0]),
             tuttiSuccess);
    CHECK_EQ(tuttiStreamSynchronize(d.streams[0]), tuttiSuccess);
    struct waiter waiter = {.comm = d.comms[0]};
    REQUIRE(pthread_create(&thread, NULL, destroy, &waiter) == 0);
    while (!atomic_load(&waiter.comm->ends)) tt_test_pause();
    const int64_t began_ns = tt_now_ns();
    CHECK_EQ(tuttiCommAbort(d.comms[0]), tuttiSuccess);
    d.comms[0] = NULL;
    pthread_join(thread, NULL);
    check_soon(began_ns, "the destroy");
    CHECK_EQ(waiter.result, tuttiSuccess);
    driven_finish(&d);
}
