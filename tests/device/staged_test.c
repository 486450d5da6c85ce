/* Calls on GPU memory that go through memory of the host: where some ranks have no GPU, and where
 * TUTTI_DEVICE_KERNELS is off, as in all of these tests. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../integration/random_calls.h"
#include "calls_on_gpu.h"
#include "shim.h"

static void check_error(const struct gpu_rank *rank, tuttiResult_t result, tuttiResult_t expected,
                        const char *text)
{
    const char *error = tuttiGetLastError(rank->comm);
    CHECK_MESSAGE(result == expected, "rank %d: result %d, expected %d: %s", rank->rank,
                  (int)result, (int)expected, error);
    CHECK_MESSAGE(strstr(error, text), "rank %d: '%s' is not in '%s'", rank->rank, text, error);
}

static void check_success(const struct gpu_rank *rank, tuttiResult_t result, const char *what)
{
    CHECK_MESSAGE(result == tuttiSuccess, "rank %d: %s: %s", rank->rank, what,
                  tuttiGetLastError(rank->comm));
}

/* The rank's CUDA stream, and the stream made of it; of ranks without a GPU a stream of the host.
 */
struct streams {
    void *cuda;
    tuttiStream_t stream;
};

static struct streams make_streams(const struct gpu_rank *rank)
{
    struct streams made = {.cuda = gpu_stream(rank->gpu)};
    const tuttiResult_t result = rank->gpu < 0
                                     ? tuttiStreamCreate(&made.stream)
                                     : tuttiStreamFromDevice(&made.stream, rank->gpu, made.cuda);
    CHECK_EQ(result, tuttiSuccess);
    return made;
}

static void destroy_streams(const struct gpu_rank *rank, struct streams *streams)
{
    CHECK_EQ(tuttiStreamDestroy(streams->stream), tuttiSuccess);
    gpu_stream_destroy(rank->gpu, streams->cuda);
}

static int *make_ints(const struct gpu_rank *rank, int value, int n)
{
    int *memory = (int *)gpu_memory(rank->gpu, (size_t)n * sizeof *memory);
    int *data = malloc((size_t)n * sizeof *data);
    for (int i = 0; i < n; i++) data[i] = value;
    gpu_write(rank->gpu, memory, data, (size_t)n * sizeof *data);
    free(data);
    return memory;
}

static void check_ints(const struct gpu_rank *rank, const int *memory, int expected, int n)
{
    int *data = malloc((size_t)n * sizeof *data), wrong = 0;
    gpu_read(rank->gpu, data, memory, (size_t)n * sizeof *data);
    for (int i = 0; i < n; i++) wrong += data[i] != expected;
    CHECK_MESSAGE(!wrong, "rank %d: %d of %d are not %d; the last is %d", rank->rank, wrong, n,
                  expected, data[n - 1]);
    free(data);
}

/* ---- Results -------------------------------------------------------------------------------- */

static void random_run(struct gpu_rank *rank)
{
    enum { NCALLS = 40 };
    CHECK_EQ(random_calls_on_gpu(rank, *(const uint64_t *)rank->arg, NCALLS), 0);
}

TEST(staged, ranks_with_and_without_a_gpu_get_the_same_results)
{
    uint64_t seed = 21;
    on_devices(3, (const int[]){0, -1, 1}, NULL, random_run, &seed);
    seed = 22;
    on_devices(5, (const int[]){-1, 0, 0, -1, 1}, NULL, random_run, &seed);
}

/* Every kind of call, in and out of place, in groups and alone, on streams and without, also on
 * communicators that are split from this one. */
static void run_everything(struct gpu_rank *rank)
{
    enum { NCALLS = 60 };
    const struct call_memory on_gpu = {rank->gpu, gpu_memory, gpu_free,          gpu_write,
                                       gpu_read,  gpu_stream, gpu_stream_destroy};
    const struct call_memory *elsewhere = rank->gpu < 0 ? NULL : &on_gpu;
    CHECK_EQ(random_calls_in(elsewhere, rank->comm, *(const uint64_t *)rank->arg, NCALLS), 0);
}

TEST(staged, every_kind_of_call_is_right_on_two_gpus)
{
    uint64_t seed = 31;
    on_devices(4, (const int[]){0, 1, 0, 1}, NULL, run_everything, &seed);
}

TEST(staged, every_kind_of_call_is_right_among_ranks_with_and_without_a_gpu)
{
    for (uint64_t seed = 32; seed <= 33; seed++)
        on_devices(4, (const int[]){0, -1, 1, 0}, NULL, run_everything, &seed);
}

/* Calls that follow one another on a CUDA stream, each on the result of the last. */
static void chain(struct gpu_rank *rank)
{
    enum { NCALLS = 12, N = 5000 };
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, N);
    for (int i = 0; i < NCALLS; i++)
        check_success(
            rank,
            tuttiAllReduce(memory, memory, N, tuttiInt32, tuttiSum, rank->comm, streams.stream),
            "chain");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    check_ints(rank, memory, 4096, N); /* 2 to the 12th */
    CHECK_EQ(tuttiStreamQuery(streams.stream), tuttiSuccess);
    destroy_streams(rank, &streams);
    gpu_free(memory);
}

TEST(staged, calls_on_a_stream_use_the_results_of_earlier_ones)
{
    on_devices(2, (const int[]){0, -1}, NULL, chain, NULL);
}

/* Both ranks send on one stream and receive on another. */
static void exchange_on_two_streams(struct gpu_rank *rank)
{
    enum { N = 1 << 20 };
    const int peer = 1 - rank->rank;
    struct streams streams[2] = {make_streams(rank), make_streams(rank)};
    int *mine = make_ints(rank, rank->rank + 1, N), *theirs = make_ints(rank, 0, N);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    check_success(rank, tuttiSend(mine, N, tuttiInt32, peer, rank->comm, streams[0].stream),
                  "send");
    check_success(rank, tuttiRecv(theirs, N, tuttiInt32, peer, rank->comm, streams[1].stream),
                  "receive");
    check_success(rank, tuttiGroupEnd(), "group");
    for (int s = 0; s < 2; s++)
        check_success(rank, tuttiStreamSynchronize(streams[s].stream), "synchronize");
    check_ints(rank, theirs, peer + 1, N);
    for (int s = 0; s < 2; s++) destroy_streams(rank, &streams[s]);
    gpu_free(mine);
    gpu_free(theirs);
}

TEST(staged, a_group_on_two_streams_progresses_together)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 20000;
    on_devices(2, (const int[]){0, 1}, &config, exchange_on_two_streams, NULL);
}

/* The host returns while the stream has not come to the call. */
static void behind_other_work(struct gpu_rank *rank)
{
    enum { N = 3000 };
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, N);
    if (rank->gpu >= 0) {
        gpu_block(rank->gpu, streams.cuda);
        gpu_fill(rank->gpu, streams.cuda, memory, 5, N);
    }
    for (int i = 0; i < 2; i++)
        check_success(
            rank,
            tuttiAllReduce(memory, memory, N, tuttiInt32, tuttiSum, rank->comm, streams.stream),
            "all-reduce");
    if (rank->gpu >= 0) {
        CHECK_EQ(tuttiStreamQuery(streams.stream), tuttiInProgress);
        gpu_unblock();
    }
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    check_ints(rank, memory, 12, N);
    destroy_streams(rank, &streams);
    gpu_free(memory);
}

TEST(staged, a_call_waits_for_what_the_stream_does_before_and_its_caller_does_not)
{
    on_devices(2, (const int[]){0, -1}, NULL, behind_other_work, NULL);
}

/* The message is there, and its sender gone, before the receiver's stream has come to the receive.
 */
static void send_and_leave(struct gpu_rank *rank)
{
    enum { N = 500 };
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, rank->rank + 1, N);
    if (rank->rank == 0) {
        check_success(rank, tuttiSend(memory, N, tuttiInt32, 1, rank->comm, streams.stream),
                      "send");
        check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
        CHECK_EQ(tuttiCommDestroy(rank->comm), tuttiSuccess);
        rank->comm = NULL;
        pthread_barrier_wait(rank->arg);
    } else {
        gpu_block(rank->gpu, streams.cuda);
        check_success(rank, tuttiRecv(memory, N, tuttiInt32, 0, rank->comm, streams.stream),
                      "receive");
        pthread_barrier_wait(rank->arg);
        usleep(20000); /* some looks at who has left */
        gpu_unblock();
        check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
        check_ints(rank, memory, 1, N);
    }
    destroy_streams(rank, &streams);
    gpu_free(memory);
}

TEST(staged, a_sender_may_leave_before_the_stream_of_the_receiver_has_come)
{
    pthread_barrier_t has_left;
    pthread_barrier_init(&has_left, NULL, 2);
    on_devices(2, (const int[]){0, 1}, NULL, send_and_leave, &has_left);
    on_devices(2, (const int[]){-1, 0}, NULL, send_and_leave, &has_left);
    pthread_barrier_destroy(&has_left);
}

/* A call whose stream is busy keeps its staging memory from the next one's, on another stream. */
static void on_two_streams(struct gpu_rank *rank)
{
    enum { N = 3000 };
    struct streams busy = make_streams(rank), idle = make_streams(rank);
    int *first = make_ints(rank, 1, N), *second = make_ints(rank, 10, N);
    if (rank->gpu >= 0) gpu_block(rank->gpu, busy.cuda);
    check_success(rank,
                  tuttiAllReduce(first, first, N, tuttiInt32, tuttiSum, rank->comm, busy.stream),
                  "first");
    check_success(rank,
                  tuttiAllReduce(second, second, N, tuttiInt32, tuttiSum, rank->comm, idle.stream),
                  "second");
    if (rank->gpu >= 0) {
        /* Its input is in staging memory now. */
        gpu_read(rank->gpu, (int[1]){0}, second, sizeof(int));
        gpu_unblock();
    }
    check_success(rank, tuttiStreamSynchronize(busy.stream), "synchronize the first");
    check_success(rank, tuttiStreamSynchronize(idle.stream), "synchronize the second");
    check_ints(rank, first, 2, N);
    check_ints(rank, second, 20, N);
    destroy_streams(rank, &busy);
    destroy_streams(rank, &idle);
    gpu_free(first);
    gpu_free(second);
}

TEST(staged, calls_on_two_streams_do_not_share_staging_memory)
{
    on_devices(2, (const int[]){0, -1}, NULL, on_two_streams, NULL);
}

/* In a group, what is on one stream does not wait for the end of what is on the other. */
static void group_on_two_streams(struct gpu_rank *rank)
{
    enum { N = 300000 }; /* the send ends when the other rank has begun its receive */
    struct streams first = make_streams(rank), second = make_streams(rank);
    int *sums[3], *sent = make_ints(rank, 1 + rank->rank, N), *got = make_ints(rank, 9, N);
    const int peer = 1 - rank->rank;
    for (int i = 0; i < 3; i++) sums[i] = make_ints(rank, i, 100);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < 3; i++)
        check_success(rank,
                      tuttiAllReduce(sums[i], sums[i], 100, tuttiInt32, tuttiSum, rank->comm,
                                     i % 2 ? second.stream : first.stream),
                      "all-reduce");
    check_success(rank, tuttiSend(sent, N, tuttiInt32, peer, rank->comm, second.stream), "send");
    check_success(rank, tuttiRecv(got, N, tuttiInt32, peer, rank->comm, first.stream), "receive");
    check_success(rank, tuttiGroupEnd(), "group");
    check_success(rank, tuttiStreamSynchronize(first.stream), "synchronize the first");
    check_success(rank, tuttiStreamSynchronize(second.stream), "synchronize the second");
    for (int i = 0; i < 3; i++) check_ints(rank, sums[i], 2 * i, 100);
    check_ints(rank, got, 1 + peer, N);
    destroy_streams(rank, &first);
    destroy_streams(rank, &second);
    for (int i = 0; i < 3; i++) gpu_free(sums[i]);
    gpu_free(sent);
    gpu_free(got);
}

TEST(staged, calls_of_a_group_on_two_streams_run_side_by_side)
{
    on_devices(2, (const int[]){0, 1}, NULL, group_on_two_streams, NULL);
}

/* The second call takes the result of the first, which is on another stream; a group's two too. */
static void in_order_on_two_streams(struct gpu_rank *rank)
{
    enum { N = 3000 };
    struct streams first = make_streams(rank), second = make_streams(rank);
    int *memory = make_ints(rank, 1, N);
    for (int i = 0; i < 6; i++) {
        if (i == 2) CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        check_success(rank,
                      tuttiAllReduce(memory, memory, N, tuttiInt32, tuttiSum, rank->comm,
                                     i % 2 ? second.stream : first.stream),
                      "all-reduce");
        if (i == 3) check_success(rank, tuttiGroupEnd(), "group");
    }
    check_success(rank, tuttiStreamSynchronize(second.stream), "synchronize the second");
    check_success(rank, tuttiStreamSynchronize(first.stream), "synchronize the first");
    check_ints(rank, memory, 64, N);
    destroy_streams(rank, &first);
    destroy_streams(rank, &second);
    gpu_free(memory);
}

TEST(staged, calls_on_two_streams_run_in_the_order_in_which_they_were_issued)
{
    on_devices(2, (const int[]){0, 1}, NULL, in_order_on_two_streams, NULL);
}

/* Root's buffer of a broadcast in place is not written, not even with what it holds: here something
 * else is stored there before the call's copy of the output would be made, which stands on the
 * stream behind a barrier for which the other rank comes late. */
static void broadcast_in_place(struct gpu_rank *rank)
{
    enum { N = 1000 };
    const bool is_root = rank->rank == 0;
    tuttiComm_t late;
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, is_root ? 3 : 0, N), *other = make_ints(rank, 9, N);
    check_success(rank, tuttiCommSplit(rank->comm, 0, rank->rank, &late, NULL), "split");
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    if (is_root) check_success(rank, tuttiBarrier(late, streams.stream), "barrier");
    check_success(rank,
                  tuttiBroadcast(memory, memory, N, tuttiInt32, 0, rank->comm, streams.stream),
                  "broadcast");
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    if (!is_root) check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    pthread_barrier_wait(rank->arg);
    if (is_root) {
        int nines[N];
        gpu_read(rank->gpu, nines, other, sizeof nines);
        gpu_write(rank->gpu, memory, nines, sizeof nines);
    }
    pthread_barrier_wait(rank->arg);
    if (!is_root) check_success(rank, tuttiBarrier(late, NULL), "barrier");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    check_ints(rank, memory, is_root ? 9 : 3, N);
    CHECK_EQ(tuttiCommDestroy(late), tuttiSuccess);
    destroy_streams(rank, &streams);
    gpu_free(memory);
    gpu_free(other);
}

TEST(staged, what_a_call_in_place_does_not_change_is_not_written)
{
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    on_devices(2, (const int[]){0, -1}, NULL, broadcast_in_place, &barrier);
    pthread_barrier_destroy(&barrier);
}

/* All ranks' calls on one CUDA stream: no rank's wait may stand before another's copy. */
TEST(staged, one_thread_drives_three_ranks_on_one_stream)
{
    enum { NRANKS = 3, N = 2000 };
    const int devices[NRANKS] = {0, 0, 0};
    tuttiComm_t comms[NRANKS] = {NULL};
    struct gpu_rank ranks[NRANKS];
    int *memory[NRANKS];
    REQUIRE(tuttiCommInitAll(comms, NRANKS, devices) == tuttiSuccess);
    for (int r = 0; r < NRANKS; r++) {
        ranks[r] = (struct gpu_rank){.rank = r, .nranks = NRANKS, .comm = comms[r]};
        memory[r] = make_ints(&ranks[r], 1 + r, N);
    }
    struct streams streams = make_streams(&ranks[0]);
    for (int on_stream = 0; on_stream < 2; on_stream++) {
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        for (int twice = 0; twice < 2; twice++)
            for (int r = 0; r < NRANKS; r++)
                check_success(&ranks[r],
                              tuttiAllReduce(memory[r], memory[r], N, tuttiInt32, tuttiSum,
                                             comms[r], on_stream ? streams.stream : NULL),
                              "all-reduce");
        CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
        check_success(&ranks[0], tuttiStreamSynchronize(streams.stream), "synchronize");
        /* The second call of the group takes the result of the first. */
        for (int r = 0; r < NRANKS; r++) check_ints(&ranks[r], memory[r], on_stream ? 162 : 18, N);
    }
    for (int r = 0; r < NRANKS; r++) {
        CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
        gpu_free(memory[r]);
    }
    destroy_streams(&ranks[0], &streams);
    gpu_free_all();
}

/* Memory between blocks is nobody's: it is not even written with what it held. */
static void with_gaps(struct gpu_rank *rank)
{
    enum { N = 8 };
    const size_t counts[] = {2, 3}, displs[] = {4, 0}; /* 3 is in a gap */
    int data[N] = {10, 11, 12, 13, 14, 15, 16, 17};
    struct streams streams = make_streams(rank);
    int *memory = (int *)gpu_memory(rank->gpu, sizeof data);
    gpu_write(rank->gpu, memory, data, sizeof data);
    check_success(rank,
                  tuttiAllGatherV(memory + displs[rank->rank], memory, counts, displs, tuttiInt32,
                                  rank->comm, streams.stream),
                  "all-gather-v in place");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    gpu_read(rank->gpu, data, memory, sizeof data);
    for (int i = 0; i < N; i++) CHECK_EQ(data[i], 10 + i);
    destroy_streams(rank, &streams);
    gpu_free(memory);
}

TEST(staged, blocks_with_gaps_in_place_leave_the_gaps_alone)
{
    on_devices(2, (const int[]){0, -1}, NULL, with_gaps, NULL);
}

/* ---- Pinned memory -------------------------------------------------------------------------- */

enum { PORTION = 4 << 20 /* TUTTI_STAGE_BYTES at most */, SLACK = 1 << 20 };

static size_t held(const struct gpu_rank *rank)
{
    tuttiCounters_t counters;
    check_success(rank, tuttiCommCounters(rank->comm, &counters), "counters");
    return (size_t)counters.memoryBytes;
}

/* 12 MiB through two places of at most 4 MiB each, with the bits of the same call on the host. */
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
    const size_t before = held(rank);
    for (int on_stream = 1; on_stream >= 0; on_stream--) {
        check_success(rank,
                      tuttiAllReduce(in, in, N, tuttiFloat32, tuttiSum, rank->comm,
                                     on_stream ? streams.stream : NULL),
                      "all-reduce");
        check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
        gpu_read(rank->gpu, got, in, NBYTES);
        CHECK_MESSAGE(!memcmp(got, sum, NBYTES), "rank %d: other bits than on the host",
                      rank->rank);
        gpu_write(rank->gpu, in, data, NBYTES);
    }
    const size_t more = held(rank) - before;
    CHECK_MESSAGE(more <= 2 * PORTION + SLACK, "rank %d holds %zu bytes for a call of %d",
                  rank->rank, more, NBYTES);
    CHECK_MESSAGE(rank->gpu < 0 || more, "rank %d: pinned memory is not counted", rank->rank);
    destroy_streams(rank, &streams);
    gpu_free(in - 1);
    free(data);
    free(sum);
    free(got);
}

TEST(staged_memory, a_large_call_takes_bounded_memory_and_has_the_bits_of_the_host)
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
    CHECK_MESSAGE(more <= 10 * PORTION + SLACK, "rank %d holds %zu bytes for %d calls", rank->rank,
                  more, NCALLS + NSMALL);
    if (rank->rank == 0) gpu_unblock();
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    check_ints(rank, memory, 1, N);
    check_ints(rank, few, 1, 1);
    destroy_streams(rank, &streams);
    gpu_free(memory);
    gpu_free(few);
}

TEST(staged_memory, many_calls_that_wait_take_bounded_memory)
{
    on_devices(2, (const int[]){0, 1}, NULL, many_calls, NULL);
}

/* Both directions at once, and a message of nothing. */
static void large_messages(struct gpu_rank *rank)
{
    enum { N = 3 << 19 };
    const int peer = 1 - rank->rank;
    struct streams streams = make_streams(rank);
    int *mine = make_ints(rank, rank->rank + 1, N + 5), *theirs = make_ints(rank, 0, N + 5);
    const size_t before = held(rank);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < 2; i++) {
        const size_t count = i ? 0 : N + 5;
        check_success(rank, tuttiSend(mine, count, tuttiInt32, peer, rank->comm, streams.stream),
                      "send");
        check_success(rank, tuttiRecv(theirs, count, tuttiInt32, peer, rank->comm, streams.stream),
                      "receive");
    }
    check_success(rank, tuttiGroupEnd(), "group");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    check_ints(rank, theirs, peer + 1, N + 5);
    const size_t more = held(rank) - before;
    CHECK_MESSAGE(more <= PORTION + SLACK, "rank %d holds %zu bytes", rank->rank, more);
    destroy_streams(rank, &streams);
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
        CHECK_EQ(tuttiStreamCreate(&hosts), tuttiSuccess);
        CHECK_EQ(tuttiStreamFromDevice(&others, 1, device_stream), tuttiSuccess);
        check_error(rank, tuttiAllReduce(here, on_host, 4, tuttiInt32, tuttiSum, comm, NULL),
                    tuttiInvalidArgument, "is memory of the host that GPU 0 cannot use");
        check_error(rank, tuttiSend(on_host, 4, tuttiInt32, 1, comm, streams.stream),
                    tuttiInvalidArgument, "is memory of the host that GPU 0 cannot use");
        check_error(rank, tuttiRecv(there, 4, tuttiInt32, 1, comm, NULL), tuttiInvalidArgument,
                    "is memory of GPU 1, but rank 0");
        check_error(rank, tuttiSend(here, 4, tuttiInt32, 1, comm, hosts), tuttiInvalidUsage,
                    "a stream of the host cannot run");
        check_error(rank, tuttiBarrier(comm, others), tuttiInvalidUsage, "the stream is of GPU 1");
        gpu_capture(0, streams.cuda);
        check_error(rank, tuttiAllReduce(here, here, 4, tuttiInt32, tuttiSum, comm, streams.stream),
                    tuttiInvalidUsage,
                    "cannot be captured, because they go through memory of the host");
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

enum { LONG = 3000 }; /* passes in portions of 4 KiB */

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
