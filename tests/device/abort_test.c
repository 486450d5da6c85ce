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

/* ---- Calls that lack a rank -------------------------------------------------------------------
 */

static void abort_rank(struct driven *d, int rank)
{
    CHECK_EQ(tuttiCommAbort(d->comms[rank]), tuttiSuccess);
    d->comms[rank] = NULL;
}

static tuttiResult_t sum_of(struct driven *d, int rank, tuttiStream_t stream)
{
    return tuttiAllReduce(d->memory[rank], d->memory[rank], DRIVEN_N, tuttiInt32, tuttiSum,
                          d->comms[rank], stream);
}

static tuttiResult_t receive_from_2(struct driven *d)
{
    return tuttiRecv(d->memory[1], DRIVEN_N, tuttiInt32, 2, d->comms[1], d->streams[1]);
}

static tuttiResult_t send_to_1(struct driven *d)
{
    return tuttiSend(d->memory[2], DRIVEN_N, tuttiInt32, 1, d->comms[2], d->streams[2]);
}

static void check_success_of(struct driven *d, int rank)
{
    CHECK_MESSAGE(tuttiStreamSynchronize(d->streams[rank]) == tuttiSuccess, "rank %d: %s", rank,
                  tuttiGetLastError(d->comms[rank]));
}

static void check_refused(tuttiResult_t result)
{
    CHECK_EQ(result, tuttiRemoteError);
    CHECK_MESSAGE(strstr(tuttiGetLastError(NULL), "rank 0") &&
                      strstr(tuttiGetLastError(NULL), "aborted"),
                  "%s", tuttiGetLastError(NULL));
}

/* The communicator fails when its calls before have ended. */
static void await_error(tuttiComm_t comm)
{
    tuttiResult_t result = tuttiSuccess;
    while (!result && !tt_test_failed())
        CHECK_EQ(tuttiCommGetAsyncError(comm, &result), tuttiSuccess);
    CHECK_EQ(result, tuttiRemoteError);
}

/* Rank 1 receives from rank 2, which sends later. */
TEST(device_abort, a_call_that_lacks_the_rank_ends_no_call_before_it)
{
    struct driven d;
    int data[DRIVEN_N];
    if (!driven_begin(&d, 3, 1)) return;
    CHECK_EQ(receive_from_2(&d), tuttiSuccess);
    abort_rank(&d, 0);
    for (int i = 0; i < 2; i++) check_refused(sum_of(&d, 1, d.streams[1]));
    CHECK_EQ(send_to_1(&d), tuttiSuccess);
    for (int r = 1; r < 3; r++) check_success_of(&d, r);
    gpu_read(0, data, d.memory[1], sizeof data);
    for (int i = 0; i < DRIVEN_N && !tt_test_failed(); i++) CHECK_EQ(data[i], 2 + i);
    await_error(d.comms[1]);
    driven_finish(&d);
}

TEST(device_abort, a_call_without_a_stream_that_lacks_the_rank_ends_no_call_before_it)
{
    struct driven d;
    if (!driven_begin(&d, 3, 1)) return;
    CHECK_EQ(receive_from_2(&d), tuttiSuccess);
    CHECK_EQ(send_to_1(&d), tuttiSuccess);
    abort_rank(&d, 0);
    check_refused(sum_of(&d, 1, NULL));
    check_success_of(&d, 1);
    driven_finish(&d);
}

static void group_lacks_rank_of_one(driven_choice stream)
{
    struct driven whole, lacking;
    tuttiResult_t async = tuttiNumResults;
    if (!driven_begin(&whole, 2, 1) || !driven_begin(&lacking, 2, 1)) return;
    abort_rank(&lacking, 0);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < 2; r++) CHECK_EQ(sum_of(&whole, r, stream(&whole, r)), tuttiSuccess);
    CHECK_EQ(sum_of(&lacking, 1, stream(&lacking, 1)), tuttiSuccess);
    check_refused(tuttiGroupEnd());
    driven_synchronize(&whole);
    driven_check_sums(&whole, 1);
    CHECK_EQ(tuttiCommGetAsyncError(whole.comms[0], &async), tuttiSuccess);
    CHECK_EQ(async, tuttiSuccess);
    await_error(lacking.comms[1]);
    driven_finish(&lacking);
    driven_finish(&whole);
}

TEST(device_abort, a_group_says_that_a_call_of_it_lacks_a_rank_and_runs_those_of_others)
{
    group_lacks_rank_of_one(driven_stream_of_rank);
    group_lacks_rank_of_one(driven_no_stream);
}

/* The calls of a communicator in a group have kernels, or none of them has: the stream of the first
 * one tells of its error. */
static void group_lacks_rank_0(bool sum_first)
{
    struct driven d;
    if (!driven_begin(&d, 3, 1)) return;
    abort_rank(&d, 0);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    if (sum_first) CHECK_EQ(sum_of(&d, 1, d.streams[1]), tuttiSuccess);
    CHECK_EQ(receive_from_2(&d), tuttiSuccess);
    if (!sum_first)
        CHECK_EQ(tuttiSend(d.memory[1], 1, tuttiInt32, 0, d.comms[1], d.streams[1]), tuttiSuccess);
    check_refused(tuttiGroupEnd());
    await_error(d.comms[1]);
    driven_finish(&d);
}

TEST(device_abort, a_group_fails_whose_collective_lacks_a_rank)
{
    group_lacks_rank_0(true);
}

TEST(device_abort, a_group_fails_whose_messages_lack_a_rank)
{
    group_lacks_rank_0(false);
}

static void *abort_in_thread(void *argument)
{
    gpu_use(0);
    CHECK_EQ(tuttiCommAbort(argument), tuttiSuccess);
    return NULL;
}

TEST(device_abort, the_first_of_two_collectives_of_a_group_that_lacks_a_rank_fails_with_it)
{
    struct driven d;
    if (!driven_begin(&d, 2, 1)) return;
    begin_broadcast(&d);
    d.comms[0]->core.kernel->held_ms = d.comms[0]->core.kernel->abort_ms = LONG_MS;
    tuttiComm_t comm = d.comms[0];
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, abort_in_thread, comm) == 0);
    d.comms[0] = NULL;
    const struct gpu_rank rank = {.rank = 1};
    await_abort(&rank, d.comms[1]);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiBroadcast(d.memory[1], d.memory[1], 4, tuttiInt32, 0, d.comms[1], d.streams[1]),
             tuttiSuccess);
    CHECK_EQ(sum_of(&d, 1, d.streams[1]), tuttiSuccess);
    check_refused(tuttiGroupEnd());
    CHECK_EQ(tuttiStreamSynchronize(d.streams[1]), tuttiRemoteError);
    pthread_join(thread, NULL);
    driven_finish(&d);
}

/* One that waits for more than its peers' looks waits for the deadline, or still longer. */
enum { DEADLINE_MS = 30000, SOON_MS = 10000 };

static void check_soon(int64_t began_ns, const char *what)
{
    const int64_t ms = (tt_now_ns() - began_ns) / 1000000;
    CHECK_MESSAGE(ms < SOON_MS, "%s took %lld ms", what, (long long)ms);
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

/* Rank 1 never broadcasts in memory of the host, where nothing of rank 0 is needed any more. */
TEST(device_destroy, waits_for_no_call_of_the_host)
{
    struct driven d;
    int data = 1;
    if (!driven_begin(&d, 2, 1)) return;
    driven_issue_sums(&d, 1, driven_stream_of_rank);
    driven_synchronize(&d);
    CHECK_EQ(tuttiBroadcast(&data, &data, 1, tuttiInt32, 0, d.comms[0], NULL), tuttiSuccess);
    CHECK_EQ(tuttiCommSetTimeout(d.comms[0], 0), tuttiSuccess);
    d.comms[0]->core.kernel->held_ms = LONG_MS;
    const int64_t began_ns = tt_now_ns();
    CHECK_EQ(tuttiCommDestroy(d.comms[0]), tuttiSuccess);
    d.comms[0] = NULL;
    check_soon(began_ns, "the destroy");
    driven_finish(&d);
}

TEST(device_destroy, waits_for_a_rank_that_has_not_made_a_call_yet)
{
    on_gpus_together(2, 2, NULL, broadcast_and_destroy);
}

/* ---- Who does without the rank --------------------------------------------------------------- */

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
