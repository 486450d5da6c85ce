/* Calls on GPU memory that go through memory of the host: how much pinned memory they take, and
 * errors. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "communicator/communicator.h"
#include "driver/cuda.h"
#include "graphs.h"
#include "on_streams.h"
#include "shim.h"

/* ---- Pinned memory -------------------------------------------------------------------------- */

enum { SLACK = 1 << 20 };

static size_t held(const struct gpu_rank *rank)
{
    tuttiCounters_t counters;
    check_success(rank, tuttiCommCounters(rank->comm, &counters), "counters");
    return (size_t)counters.memoryBytes;
}

/* Through memory for all of it, with the bits of the same call on the host. */
static void large_call(struct gpu_rank *rank)
{
    enum { N = 3 << 20, NBYTES = N * (int)sizeof(float) };
    float *data = malloc(NBYTES), *sum = malloc(NBYTES), *got = malloc(NBYTES);
    for (int i = 0; i < N; i++) data[i] = (float)(i % 1013 + 1) / (float)(7 + rank->rank);
    check_success(rank, tuttiAllReduce(data, sum, N, tuttiFloat32, tuttiSum, rank->comm, NULL),
                  "all-reduce on the host");
    struct streams streams = make_streams(rank);
    float *in = (float *)gpu_memory(rank->gpu, NBYTES + sizeof *in) + 1; /* unaligned */
    gpu_write(rank->gpu, in, data, NBYTES);
    for (int on_stream = 0; on_stream < 2; on_stream++) {
        const size_t before = held(rank), most = on_stream ? 0 : NBYTES;
        check_success(rank,
                      tuttiAllReduce(in, in, N, tuttiFloat32, tuttiSum, rank->comm,
                                     on_stream ? streams.stream : NULL),
                      "all-reduce");
        check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
        gpu_read(rank->gpu, got, in, NBYTES);
        CHECK_MESSAGE(!memcmp(got, sum, NBYTES), "rank %d: other bits than on the host",
                      rank->rank);
        gpu_write(rank->gpu, in, data, NBYTES);
        const size_t more = held(rank) - before;
        CHECK_MESSAGE(more <= most + SLACK, "rank %d holds %zu bytes for a call of %d", rank->rank,
                      more, NBYTES);
        CHECK_MESSAGE(on_stream || more >= NBYTES, "rank %d: pinned memory is not counted",
                      rank->rank);
    }
    destroy_streams(rank, &streams);
    gpu_free(in - 1);
    free(data);
    free(sum);
    free(got);
}

TEST(staged_memory, large_calls_share_memory_and_have_the_bits_of_the_host)
{
    on_devices(3, (const int[]){0, 1, 0}, NULL, large_call, NULL);
}

/* Each call takes what the one before gave; the stream comes to them when all are issued. */
static void many_calls(struct gpu_rank *rank)
{
    enum { NCALLS = 48, N = 1 << 18, NSMALL = 300 };
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, N), *few = make_ints(rank, 1, 1);
    const size_t before = held(rank);
    if (rank->rank == 0) gpu_block(rank->gpu, streams.cuda);
    for (int i = 0; i < NCALLS + NSMALL; i++) {
        const bool large = i < NCALLS;
        check_success(rank,
                      tuttiAllReduce(large ? memory : few, large ? memory : few, large ? N : 1,
                                     tuttiInt32, tuttiMax, rank->comm, streams.stream),
                      "all-reduce");
    }
    const size_t more = held(rank) - before;
    CHECK_MESSAGE(more <= N * sizeof *memory + SLACK, "rank %d holds %zu bytes for %d calls",
                  rank->rank, more, NCALLS + NSMALL);
    if (rank->rank == 0) gpu_unblock();
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    check_ints(rank, memory, 1, N);
    check_ints(rank, few, 1, 1);
    destroy_streams(rank, &streams);
    gpu_free(memory);
    gpu_free(few);
}

TEST(staged_memory, many_calls_that_wait_take_the_memory_of_one)
{
    on_devices(2, (const int[]){0, 1}, NULL, many_calls, NULL);
}

/* Both directions at once, and a message of nothing. */
static void large_messages(struct gpu_rank *rank)
{
    enum { N = 3 << 19 };
    const int peer = 1 - rank->rank;
    int *mine = make_ints(rank, rank->rank + 1, N + 5), *theirs = make_ints(rank, 0, N + 5);
    const size_t before = held(rank);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < 2; i++) {
        const size_t count = i ? 0 : N + 5;
        check_success(rank, tuttiSend(mine, count, tuttiInt32, peer, rank->comm, NULL), "send");
        check_success(rank, tuttiRecv(theirs, count, tuttiInt32, peer, rank->comm, NULL),
                      "receive");
    }
    check_success(rank, tuttiGroupEnd(), "group");
    check_ints(rank, theirs, peer + 1, N + 5);
    const size_t more = held(rank) - before;
    CHECK_MESSAGE(more <= 6 * N * sizeof *mine + SLACK, "rank %d holds %zu bytes", rank->rank,
                  more);
    gpu_free(mine);
    gpu_free(theirs);
}

TEST(staged_memory, large_messages_take_bounded_memory)
{
    on_devices(2, (const int[]){0, 1}, NULL, large_messages, NULL);
    on_devices(2, (const int[]){0, -1}, NULL, large_messages, NULL);
}

/* ---- Errors --------------------------------------------------------------------------------- */

static void bad_arguments(struct gpu_rank *rank)
{
    tuttiComm_t comm = rank->comm;
    struct streams streams = make_streams(rank);
    if (rank->gpu >= 0) {
        static int on_host[4];
        int *here = make_ints(rank, 1, 4), *there = (int *)gpu_memory(1, 64);
        tuttiStream_t hosts, others;
        void *device_stream = gpu_stream(1);
        CUdeviceptr freed = 0;
        gpu_use(0);
        CALL(cuMemAlloc, &freed, 64);
        CALL(cuMemFree, freed);
        CHECK_EQ(tuttiStreamCreate(&hosts), tuttiSuccess);
        CHECK_EQ(tuttiStreamFromDevice(&others, 1, device_stream), tuttiSuccess);
        check_error(rank, tuttiAllReduce(here, on_host, 4, tuttiInt32, tuttiSum, comm, NULL),
                    tuttiInvalidArgument, "is memory of the host that GPU 0 cannot use");
        check_error(
            rank,
            tuttiAllReduce(here, (void *)(uintptr_t)freed, 4, tuttiInt32, tuttiSum, comm, NULL),
            tuttiInvalidArgument, "or has been freed");
        check_error(rank, tuttiSend(on_host, 4, tuttiInt32, 1, comm, streams.stream),
                    tuttiInvalidArgument, "is memory of the host that GPU 0 cannot use");
        check_error(rank, tuttiRecv(there, 4, tuttiInt32, 1, comm, NULL), tuttiInvalidArgument,
                    "is memory of GPU 1, but rank 0");
        check_error(rank, tuttiSend(here, 4, tuttiInt32, 1, comm, hosts), tuttiInvalidUsage,
                    "a stream of the host cannot run");
        check_error(rank, tuttiBarrier(comm, others), tuttiInvalidUsage, "the stream is of GPU 1");
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        check_success(rank, tuttiSend(here, 4, tuttiInt32, 1, comm, streams.stream), "send");
        gpu_capture(0, streams.cuda);
        check_error(rank, tuttiGroupEnd(), tuttiInvalidUsage, "cannot be captured");
        gpu_end_capture(0, streams.cuda);
        CHECK_EQ(tuttiStreamDestroy(hosts), tuttiSuccess);
        CHECK_EQ(tuttiStreamDestroy(others), tuttiSuccess);
        gpu_stream_destroy(1, device_stream);
        gpu_free(here);
        gpu_free(there);
    }
    check_success(rank, tuttiBarrier(comm, streams.stream), "barrier");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    destroy_streams(rank, &streams);
}

TEST(staged_errors, bad_arguments_are_named_and_leave_the_communicator_as_it_was)
{
    on_devices(2, (const int[]){0, -1}, NULL, bad_arguments, NULL);
}

/* What a captured call says, alone and in a group; the communicator stays as it was. */
static void is_captured(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, 10);
    gpu_use(rank->gpu);
    /* While a thread captures no other one may wait for a stream, as make_ints does. */
    check_success(rank, tuttiBarrier(rank->comm, NULL), "barrier");
    for (int grouped = 0; grouped < 2; grouped++) {
        gpu_capture(rank->gpu, streams.cuda);
        if (grouped) check_success(rank, tuttiGroupStart(), "group start");
        tuttiResult_t result =
            tuttiAllReduce(memory, memory, 10, tuttiInt32, tuttiSum, rank->comm, streams.stream);
        if (grouped) result = tuttiGroupEnd();
        check_error(rank, result, tuttiInvalidUsage, "cannot be captured into a CUDA graph");
        check_error(rank, result, tuttiInvalidUsage, "TUTTI_DEVICE_KERNELS is off on rank ");
        check_error(rank, result, tuttiInvalidUsage, "what brings kernels: TUTTI_DEVICE_KERNELS=1");
        gpu_end_capture(rank->gpu, streams.cuda);
    }
    check_success(
        rank, tuttiAllReduce(memory, memory, 10, tuttiInt32, tuttiSum, rank->comm, streams.stream),
        "sum");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    check_ints(rank, memory, 2, 10);
    destroy_streams(rank, &streams);
    gpu_free(memory);
}

TEST(staged_errors, a_captured_call_is_refused_and_the_error_says_what_brings_kernels)
{
    on_devices(2, (const int[]){0, 1}, NULL, is_captured, NULL);
}

enum { LONG = 3000 };

/* The root sends on what it has reduced. Only the root's reduce writes its output, so the other
 * rank's group begins, and ends when the root has made the calls apart. */
static void reduce_and_send(struct gpu_rank *rank)
{
    enum { N = 100 };
    struct streams streams = make_streams(rank);
    int *in = make_ints(rank, rank->rank + 1, N), *out = make_ints(rank, 0, N);
    for (int grouped = 1; grouped >= rank->rank; grouped--) {
        if (grouped) check_success(rank, tuttiGroupStart(), "group start");
        check_success(rank,
                      tuttiReduce(in, out, N, tuttiInt32, tuttiSum, 0, rank->comm, streams.stream),
                      "reduce");
        if (rank->rank)
            check_success(rank, tuttiRecv(out, N, tuttiInt32, 0, rank->comm, streams.stream),
                          "receive");
        else
            check_success(rank, tuttiSend(out, N, tuttiInt32, 1, rank->comm, streams.stream),
                          "send");
        if (grouped && !rank->rank)
            check_error(rank, tuttiGroupEnd(), tuttiInvalidUsage, "put them into two groups");
        else if (grouped)
            check_success(rank, tuttiGroupEnd(), "group end");
    }
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    check_ints(rank, out, 3, N);
    destroy_streams(rank, &streams);
    gpu_free(in);
    gpu_free(out);
}

TEST(staged_errors, a_send_of_what_a_reduce_of_its_group_writes_is_refused_on_the_root_only)
{
    on_devices(2, (const int[]){0, 1}, NULL, reduce_and_send, NULL);
}

/* ---- Failures ------------------------------------------------------------------------------- */

static void different_counts(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, LONG);
    tuttiResult_t result = tuttiAllReduce(memory, memory, rank->rank ? LONG : LONG - 1, tuttiInt32,
                                          tuttiSum, rank->comm, streams.stream);
    if (!result) result = tuttiStreamSynchronize(streams.stream);
    check_error(rank, result, tuttiInvalidUsage, "ranks disagree");
    destroy_streams(rank, &streams); /* the CUDA stream is released */
    gpu_free(memory);
}

TEST(staged_errors, ranks_with_different_counts_get_an_error_that_shows_both)
{
    on_devices(3, (const int[]){0, -1, 1}, NULL, different_counts, NULL);
}

/* Rank 1 does not come; the others' streams go on after the deadline. */
static void one_stays_away(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, LONG), *more = make_ints(rank, 1, 100);
    if (rank->rank != 1) {
        const tuttiStream_t stream = rank->rank ? NULL : streams.stream;
        tuttiResult_t result =
            tuttiAllReduce(memory, memory, LONG, tuttiInt32, tuttiSum, rank->comm, stream);
        if (stream) /* behind the call, if it was not refused already */
            gpu_fill(rank->gpu, streams.cuda, more, 7, 100);
        if (!result) result = tuttiStreamSynchronize(streams.stream);
        check_error(rank, result, tuttiTimeout, "rank 1");
        if (stream) check_success(rank, tuttiStreamSynchronize(stream), "second synchronize");
        if (stream) check_ints(rank, more, 7, 100);
    }
    pthread_barrier_wait(rank->arg);
    destroy_streams(rank, &streams);
    gpu_free(memory);
    gpu_free(more);
}

TEST(staged_errors, a_rank_that_does_not_come_is_named_at_the_deadline_and_streams_go_on)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 700;
    pthread_barrier_t all_are_done;
    pthread_barrier_init(&all_are_done, NULL, 3);
    on_devices(3, (const int[]){0, -1, 1}, &config, one_stays_away, &all_are_done);
    pthread_barrier_destroy(&all_are_done);
}

static void one_aborts(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, LONG);
    if (rank->rank == 1) {
        CHECK_EQ(tuttiCommAbort(rank->comm), tuttiSuccess);
        rank->comm = NULL;
    } else {
        tuttiResult_t result = tuttiSuccess;
        for (int i = 0; i < 3 && !result; i++)
            result = tuttiAllReduce(memory, memory, LONG, tuttiInt32, tuttiSum, rank->comm,
                                    rank->rank ? NULL : streams.stream);
        if (!result) result = tuttiStreamSynchronize(streams.stream);
        check_error(rank, result, tuttiRemoteError, "rank 1");
    }
    destroy_streams(rank, &streams);
    gpu_free(memory);
}

TEST(staged_errors, an_abort_releases_the_streams_of_all_ranks)
{
    on_devices(3, (const int[]){0, 1, -1}, NULL, one_aborts, NULL);
}

/* The communicator goes while the stream has not come to its call; the staging memory stays until
 * the stream has passed. */
TEST(staged_errors, an_abort_before_the_stream_has_come_to_the_call_leaves_it_nothing_to_wait_for)
{
    struct gpu_rank rank = {.nranks = 1};
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiUniqueId id;
    config.device = 0;
    int *memory = make_ints(&rank, 1, 3000), *more = make_ints(&rank, 1, 100);
    struct streams streams = make_streams(&rank);
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    REQUIRE(tuttiCommInitRankConfig(&rank.comm, 1, id, 0, &config) == tuttiSuccess);
    gpu_block(0, streams.cuda);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(
            tuttiAllReduce(memory, memory, 3000, tuttiInt32, tuttiSum, rank.comm, streams.stream),
            tuttiSuccess);
    gpu_fill(0, streams.cuda, more, 7, 100);
    CHECK_EQ(tuttiCommAbort(rank.comm), tuttiSuccess);
    gpu_unblock();
    CHECK_EQ(tuttiStreamSynchronize(streams.stream), tuttiRemoteError);
    CHECK_EQ(tuttiStreamSynchronize(streams.stream), tuttiSuccess);
    check_ints(&rank, more, 7, 100);
    /* The next communicator frees what the stream has left. */
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    REQUIRE(tuttiCommInitRankConfig(&rank.comm, 1, id, 0, &config) == tuttiSuccess);
    check_success(&rank,
                  tuttiAllReduce(memory, memory, 3000, tuttiInt32, tuttiSum, rank.comm, NULL),
                  "all-reduce");
    CHECK_EQ(tuttiCommDestroy(rank.comm), tuttiSuccess);
    destroy_streams(&rank, &streams);
    gpu_free(memory);
    gpu_free(more);
    gpu_free_all();
}

/* A group ends while another thread aborts its communicator, on which nothing is in flight yet. */
static struct {
    __typeof__(cuStreamIsCapturing)
        *real; /* a function of the driver that the end of a group calls */
    tuttiComm_t comm;
    pthread_t thread;
    bool armed, goes_on;
    _Atomic bool aborted;
} beside;

static void *abort_beside(void *argument)
{
    (void)argument;
    CHECK_EQ(tuttiCommAbort(beside.comm), tuttiSuccess);
    beside.aborted = true;
    return NULL;
}

static CUresult CUDAAPI abort_and_ask(CUstream stream, CUstreamCaptureStatus *status)
{
    if (beside.armed) {
        beside.armed = false;
        CHECK(pthread_create(&beside.thread, NULL, abort_beside, NULL) == 0);
        for (int i = 0; i < 10 && !beside.aborted; i++)
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        beside.goes_on = !beside.aborted;
    }
    return beside.real(stream, status);
}

TEST(staged_errors, an_abort_waits_until_a_group_that_ends_has_issued_its_calls)
{
    struct gpu_rank rank = {.nranks = 1};
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiUniqueId id;
    config.device = 0;
    int *memory = make_ints(&rank, 1, 100);
    struct streams streams = make_streams(&rank);
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    REQUIRE(tuttiCommInitRankConfig(&rank.comm, 1, id, 0, &config) == tuttiSuccess);
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    beside.real = driver->StreamIsCapturing;
    beside.comm = rank.comm;
    driver->StreamIsCapturing = abort_and_ask;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < 5; i++)
        check_success(&rank,
                      tuttiAllReduce(memory, memory + 50, 50, tuttiInt32, tuttiSum, rank.comm,
                                     streams.stream),
                      "all-reduce");
    beside.armed = true;
    const tuttiResult_t result = tuttiGroupEnd();
    CHECK(beside.goes_on);
    CHECK(result == tuttiSuccess || result == tuttiRemoteError);
    pthread_join(beside.thread, NULL);
    driver->StreamIsCapturing = beside.real;
    const tuttiResult_t synchronized = tuttiStreamSynchronize(streams.stream);
    CHECK(synchronized == tuttiSuccess || synchronized == tuttiRemoteError);
    destroy_streams(&rank, &streams);
    gpu_free(memory);
    gpu_free_all();
}

/* Of two communicators with a GPU in a group: the first one's call may have ended already, the
 * second one's rank 1 never comes. */
struct pair {
    tuttiComm_t first[2], second[2];
    int *memory;
    tuttiResult_t result;
};

static void make_comms(tuttiComm_t *comms, int nranks)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiUniqueId id;
    config.device = 0;
    config.timeoutMs = 4000;
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < nranks; r++)
        CHECK_EQ(tuttiCommInitRankConfig(&comms[r], nranks, id, r, &config), tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
}

static void *call_both(void *argument)
{
    struct pair *pair = argument;
    int *memory = pair->memory;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(memory, memory, 10, tuttiInt32, tuttiSum, pair->first[0], NULL),
             tuttiSuccess);
    CHECK_EQ(
        tuttiAllReduce(memory + 10, memory + 10, 10, tuttiInt32, tuttiSum, pair->second[0], NULL),
        tuttiSuccess);
    pair->result = tuttiGroupEnd();
    return NULL;
}

/* The driver may hold up who calls it, and so who watches the other calls of the group. */
static __typeof__(cuStreamWriteValue32) *real_write;
static _Atomic int nwrites;

static CUresult CUDAAPI count_write(CUstream stream, CUdeviceptr word, cuuint32_t value,
                                    unsigned flags)
{
    nwrites++;
    return real_write(stream, word, value, flags);
}

static void abort_both(int nfirst)
{
    struct gpu_rank rank = {.nranks = 1};
    struct pair pair = {.memory = make_ints(&rank, 1, 20)};
    pthread_t thread;
    tuttiResult_t error;
    make_comms(pair.first, nfirst);
    make_comms(pair.second, 2);
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    real_write = driver->StreamWriteValue32;
    nwrites = 0;
    driver->StreamWriteValue32 = count_write;
    REQUIRE(pthread_create(&thread, NULL, call_both, &pair) == 0);
    /* Each input is copied, each output is queued, and the calls wait. */
    while (nwrites < 4 || !pair.second[0]->core.engine.outstanding ||
           pair.first[0]->core.engine.outstanding != nfirst - 1)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    CHECK_EQ(tuttiCommAbort(pair.first[0]), tuttiSuccess);
    CHECK_EQ(tuttiCommAbort(pair.second[0]), tuttiSuccess);
    pthread_join(thread, NULL);
    driver->StreamWriteValue32 = real_write;
    CHECK_EQ(nwrites, 4);
    CHECK_EQ(pair.result, tuttiRemoteError);
    CHECK_EQ(tuttiCommGetAsyncError(pair.second[1], &error), tuttiSuccess);
    CHECK_MESSAGE(error == tuttiSuccess, "the second abort came after the deadline: %s",
                  tuttiGetLastError(pair.second[1]));
    for (int r = 1; r < nfirst; r++) CHECK_EQ(tuttiCommDestroy(pair.first[r]), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(pair.second[1]), tuttiSuccess);
    gpu_free(pair.memory);
    gpu_free_all();
}

TEST(staged_errors, an_abort_does_not_wait_for_another_communicator_of_the_group)
{
    abort_both(2);
    abort_both(1);
}

/* ---- Ends ----------------------------------------------------------------------------------- */

/* The legacy stream of rank 0 is held up until its call has failed. */
static void fails_without_stream(struct gpu_rank *rank)
{
    enum { N = 100000 };
    int *out = make_ints(rank, 1, N);
    check_success(rank, tuttiCommSetTimeout(rank->comm, 300), "deadline");
    if (rank->rank == 0) gpu_block(rank->gpu, NULL);
    CHECK(tuttiAllReduce(out, out, N, tuttiInt32, tuttiSum, rank->comm, NULL) != tuttiSuccess);
    if (rank->rank == 0) gpu_unblock();
    check_success(rank, tuttiCommAbort(rank->comm), "abort"); /* waits for the stream */
    rank->comm = NULL;
    check_ints(rank, out, 1, N);
    gpu_free(out);
}

TEST(staged_ends, a_call_without_a_stream_that_has_failed_writes_nothing_later)
{
    on_devices(2, (const int[]){0, 1}, NULL, fails_without_stream, NULL);
}

/* No other stream waits for that of the call. */
static void finalized(struct gpu_rank *rank)
{
    enum { N = 2 << 20 };
    const bool alone = *(const bool *)rank->arg;
    struct streams streams = make_streams(rank);
    int *out = make_ints(rank, 1, N);
    check_success(rank,
                  tuttiAllReduce(out, out, N, tuttiInt32, tuttiSum, rank->comm, streams.stream),
                  "all-reduce");
    check_success(rank, alone ? tuttiCommFinalizeLocal(rank->comm) : tuttiCommFinalize(rank->comm),
                  "finalize");
    check_ints(rank, out, 2, N);
    destroy_streams(rank, &streams);
    gpu_free(out);
}

TEST(staged_ends, outputs_are_there_when_finalize_returns)
{
    for (int alone = 0; alone < 2; alone++)
        on_devices(2, (const int[]){0, 1}, NULL, finalized, &(bool){alone});
}
