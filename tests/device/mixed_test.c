/* Calls among ranks with a GPU, whose kernels do their part, and ranks without one, whose host does
 * its part: with bridges, and with kernels required. The ranks are threads of one host. */
#include <pthread.h>
#include <stdio.h>

#include "graphs.h"
#include "on_streams.h"
#include "shim.h"

static const struct gpu_rank of_host = {.gpu = -1};

/* The GPUs of the ranks of each job; -1: none. */
static const struct job {
    int nranks, gpus[4];
} jobs[] = {{2, {0, -1}}, {2, {-1, 0}}, {3, {0, -1, 1}}, {4, {-1, 0, 0, -1}}};
enum { NJOBS = sizeof jobs / sizeof jobs[0] };

static void in_all_jobs(void (*body)(struct gpu_rank *rank))
{
    for (int i = 0; i < NJOBS; i++) on_devices(jobs[i].nranks, jobs[i].gpus, NULL, body, NULL);
}

static tuttiResult_t sum(const struct gpu_rank *rank, int *memory, int n, tuttiStream_t stream)
{
    return tuttiAllReduce(memory, memory, (size_t)n, tuttiInt32, tuttiSum, rank->comm, stream);
}

/* ---- Results -------------------------------------------------------------------------------- */

/* From one element to many rounds, with a stream and without. */
static void sums(struct gpu_rank *rank)
{
    static const int counts[] = {1, 5, 100, 3000, 70000, 1 << 18};
    struct streams streams = make_streams(rank);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (int on_stream = 0; on_stream < 2; on_stream++) {
            int *memory = make_ints(rank, rank->rank + 1, counts[i]);
            check_success(rank, sum(rank, memory, counts[i], on_stream ? streams.stream : NULL),
                          "sum");
            if (on_stream) check_success(rank, tuttiStreamSynchronize(streams.stream), "stream");
            check_ints(rank, memory, rank->nranks * (rank->nranks + 1) / 2, counts[i]);
            gpu_free(memory);
        }
    destroy_streams(rank, &streams);
}

TEST(mixed, sums_of_ranks_with_and_without_a_gpu_are_right)
{
    in_all_jobs(sums);
}

/* Calls on memory of GPUs and calls on memory of the host, which all ranks carry out on the host,
 * on streams that know nothing of each other: no rank waits in between. */
static void in_turns(struct gpu_rank *rank)
{
    enum { ROUNDS = 6, N = 40000 };
    struct streams streams = make_streams(rank), hosts = make_streams(&of_host);
    int *there = make_ints(rank, 1, N), *here = make_ints(&of_host, 1, N);
    int expected = 1;
    for (int i = 0; i < ROUNDS; i++) {
        check_success(rank, sum(rank, there, N - i, streams.stream), "of GPUs");
        check_success(rank, sum(rank, here, N - 2 * i, hosts.stream), "of the host");
        expected *= rank->nranks;
    }
    check_success(rank, sum(rank, here, 7, NULL), "without a stream");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "stream");
    check_success(rank, tuttiStreamSynchronize(hosts.stream), "stream of the host");
    check_ints(rank, there, expected, N - ROUNDS);
    check_ints(&of_host, here, expected * rank->nranks, 7);
    check_ints(&of_host, here + 7, expected, N - 2 * ROUNDS - 7);
    destroy_streams(rank, &streams);
    destroy_streams(&of_host, &hosts);
    gpu_free(there);
    gpu_free(here);
}

TEST(mixed, calls_of_kernels_and_of_the_host_take_turns)
{
    in_all_jobs(in_turns);
}

/* ---- Messages ------------------------------------------------------------------------------- */

/* From one of two ranks to the other. */
static tuttiResult_t pass(const struct gpu_rank *rank, int sender, int *data, int n,
                          tuttiStream_t stream)
{
    const size_t count = (size_t)n;
    return rank->rank == sender ? tuttiSend(data, count, tuttiInt32, 1 - sender, rank->comm, stream)
                                : tuttiRecv(data, count, tuttiInt32, sender, rank->comm, stream);
}

static void messages(struct gpu_rank *rank)
{
    static const int counts[] = {0, 1, 9, 5000, 32768, 32769, 1 << 20};
    struct streams streams = make_streams(rank);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (int way = 0; way < 4; way++) {
            const int sender = way % 2, n = counts[i];
            int *data = make_ints(rank, rank->rank == sender ? 3 + n : 0, n + 1);
            check_success(rank, pass(rank, sender, data, n, way < 2 ? streams.stream : NULL),
                          "message");
            check_success(rank, tuttiStreamSynchronize(streams.stream), "stream");
            if (n) check_ints(rank, data, 3 + n, n);
            check_ints(rank, data + n, rank->rank == sender ? 3 + n : 0, 1);
            gpu_free(data);
        }
    destroy_streams(rank, &streams);
}

TEST(mixed, messages_between_a_gpu_and_a_host_are_right_both_ways)
{
    on_devices(2, (const int[]){0, -1}, NULL, messages, NULL);
}

/* Rank 0 sends from its GPU and from memory of the host in turn, on two streams. Lengths differ, so
 * that another order is an error. */
static void messages_in_order(struct gpu_rank *rank, int sender)
{
    enum { NMESSAGES = 8, N = 20000 };
    struct streams streams = make_streams(rank), hosts = make_streams(&of_host);
    int *data[NMESSAGES];
    for (int i = 0; i < NMESSAGES; i++) {
        const struct gpu_rank *where = i % 2 ? &of_host : rank;
        data[i] = make_ints(where, rank->rank == sender ? i : -1, N + i);
        check_success(rank,
                      pass(rank, sender, data[i], N + i, i % 2 ? hosts.stream : streams.stream),
                      "message");
    }
    check_success(rank, tuttiStreamSynchronize(streams.stream), "stream");
    check_success(rank, tuttiStreamSynchronize(hosts.stream), "stream of the host");
    for (int i = 0; i < NMESSAGES; i++) {
        check_ints(i % 2 ? &of_host : rank, data[i], i, N + i);
        gpu_free(data[i]);
    }
    destroy_streams(rank, &streams);
    destroy_streams(&of_host, &hosts);
}

static void messages_out(struct gpu_rank *rank)
{
    messages_in_order(rank, 0);
}

static void messages_back(struct gpu_rank *rank)
{
    messages_in_order(rank, 1);
}

TEST(mixed, messages_of_the_gpu_and_of_the_host_keep_their_order)
{
    on_devices(2, (const int[]){0, -1}, NULL, messages_out, NULL);
    on_devices(2, (const int[]){0, -1}, NULL, messages_back, NULL);
}

/* Rank 0, without a GPU, has gone before the stream of rank 1 has come to the receive. */
static void send_and_leave(struct gpu_rank *rank)
{
    enum { N = 500 };
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, rank->rank + 1, N);
    if (rank->rank == 0) {
        check_success(rank, tuttiSend(memory, N, tuttiInt32, 1, rank->comm, NULL), "send");
        CHECK_EQ(tuttiCommDestroy(rank->comm), tuttiSuccess);
        rank->comm = NULL;
        pthread_barrier_wait(rank->arg);
    } else {
        gpu_block(rank->gpu, streams.cuda);
        check_success(rank, tuttiRecv(memory, N, tuttiInt32, 0, rank->comm, streams.stream),
                      "receive");
        pthread_barrier_wait(rank->arg);
        gpu_unblock();
        check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
        check_ints(rank, memory, 1, N);
    }
    destroy_streams(rank, &streams);
    gpu_free(memory);
}

TEST(mixed, a_sender_without_a_gpu_may_leave_before_the_receiver_has_come)
{
    pthread_barrier_t has_left;
    pthread_barrier_init(&has_left, NULL, 2);
    on_devices(2, (const int[]){-1, 0}, NULL, send_and_leave, &has_left);
    pthread_barrier_destroy(&has_left);
}

/* Each rank sends to each other one, and to itself. */
static void all_with_all(struct gpu_rank *rank)
{
    enum { N = 50000 };
    const int n = rank->nranks;
    struct streams streams = make_streams(rank);
    int *mine = make_ints(rank, 5 + rank->rank, N), *theirs = make_ints(rank, 0, n * N);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < n; r++) {
        check_success(rank, tuttiSend(mine, N, tuttiInt32, r, rank->comm, streams.stream), "send");
        check_success(rank, tuttiRecv(theirs + r * N, N, tuttiInt32, r, rank->comm, streams.stream),
                      "receive");
    }
    check_success(rank, tuttiGroupEnd(), "group");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "stream");
    for (int r = 0; r < n; r++) check_ints(rank, theirs + r * N, 5 + r, N);
    destroy_streams(rank, &streams);
    gpu_free(mine);
    gpu_free(theirs);
}

TEST(mixed, a_group_of_messages_among_all_ranks_is_right)
{
    in_all_jobs(all_with_all);
}

/* ---- Errors --------------------------------------------------------------------------------- */

/* A rank that does something else than the others, and a barrier of all. */
struct other {
    int rank;
    pthread_barrier_t all;
};

/* Each rank of three is the other one in turn; -1 among the GPUs: it has none. */
static void with_each_other(void (*body)(struct gpu_rank *rank), const tuttiConfig_t *config)
{
    for (int r = 0; r < 3; r++) {
        struct other other = {.rank = r};
        pthread_barrier_init(&other.all, NULL, 3);
        on_devices(3, (const int[]){0, -1, 1}, config, body, &other);
        pthread_barrier_destroy(&other.all);
    }
}

/* All ranks have ended it. */
static void sum_before(const struct gpu_rank *rank, int *memory)
{
    struct other *other = rank->arg;
    check_success(rank, sum(rank, memory, 10, NULL), "a sum before");
    pthread_barrier_wait(&other->all);
}

static void other_count(struct gpu_rank *rank)
{
    const struct other *other = rank->arg;
    const int n = rank->rank == other->rank ? 101 : 100;
    int *memory = make_ints(rank, 1, n);
    sum_before(rank, memory);
    const tuttiResult_t result = sum(rank, memory, n, NULL);
    check_error(rank, result, tuttiInvalidUsage, "ranks disagree");
    check_error(rank, result, tuttiInvalidUsage, "(count 101, int32, sum)");
    check_error(rank, result, tuttiInvalidUsage, "(count 100, int32, sum)");
    check_error(rank, result, tuttiInvalidUsage, "on a GPU");
    gpu_free(memory);
}

TEST(mixed_errors, ranks_with_different_counts_get_an_error_that_shows_both)
{
    with_each_other(other_count, NULL);
}

static void other_length(struct gpu_rank *rank)
{
    const int sender = *(const int *)rank->arg;
    int *memory = make_ints(rank, 1, 8);
    const tuttiResult_t result = pass(rank, sender, memory, rank->rank == sender ? 8 : 4, NULL);
    if (rank->rank != sender) check_error(rank, result, tuttiInvalidUsage, "sends 32 bytes");
    if (rank->rank != sender) check_error(rank, result, tuttiInvalidUsage, "receives 16 bytes");
    gpu_free(memory);
}

TEST(mixed_errors, messages_of_different_lengths_are_an_error_that_shows_both)
{
    for (int sender = 0; sender < 2; sender++)
        on_devices(2, (const int[]){0, -1}, NULL, other_length, &sender);
}

/* Of ranks with GPUs all make a call on memory of their GPUs, or none. The rank without a GPU may
 * get what it needs of both: then its next call fails. */
static void one_on_the_host(struct gpu_rank *rank)
{
    int *memory = make_ints(rank->rank == 2 ? &of_host : rank, 1, 100);
    tuttiResult_t result = sum(rank, memory, 100, NULL);
    if (!result && rank->rank == 1) result = sum(rank, memory, 100, NULL);
    check_error(rank, result, tuttiInvalidUsage, "ranks disagree");
    gpu_free(memory);
}

TEST(mixed_errors, one_of_the_ranks_with_gpus_that_passes_memory_of_the_host_is_named)
{
    on_devices(3, (const int[]){0, -1, 1}, NULL, one_on_the_host, NULL);
}

/* The communicator goes on. */
static void captures(struct gpu_rank *rank)
{
    int *memory = make_ints(rank, 1, 100);
    if (rank->gpu >= 0) {
        struct streams streams = make_streams(rank);
        gpu_use(rank->gpu);
        capture_begin(streams.cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        check_error(rank, sum(rank, memory, 100, streams.stream), tuttiInvalidUsage,
                    "cannot be captured into a CUDA graph");
        gpu_end_capture(rank->gpu, streams.cuda);
        destroy_streams(rank, &streams);
    }
    check_success(rank, sum(rank, memory, 100, NULL), "sum");
    check_ints(rank, memory, rank->nranks, 100);
    gpu_free(memory);
}

TEST(mixed_errors, a_call_that_is_captured_is_refused)
{
    on_devices(2, (const int[]){0, -1}, NULL, captures, NULL);
}

static void meets(struct gpu_rank *rank)
{
    int *memory = make_ints(rank, 1, 100);
    check_error(rank, tuttiCommSetAlgorithm(rank->comm, tuttiCollAllReduce, "meet"),
                tuttiInvalidUsage, "needs meetings");
    CHECK_EQ(tuttiCommSetAlgorithm(rank->comm, tuttiCollAllReduce, "ring"), tuttiSuccess);
    check_success(rank, sum(rank, memory, 100, NULL), "ring");
    check_ints(rank, memory, rank->nranks, 100);
    gpu_free(memory);
}

TEST(mixed_errors, an_algorithm_with_meetings_is_refused)
{
    on_devices(3, (const int[]){0, -1, 1}, NULL, meets, NULL);
}

static void one_stays_away(struct gpu_rank *rank)
{
    struct other *away = rank->arg;
    int *memory = make_ints(rank, 1, 100);
    char name[16];
    snprintf(name, sizeof name, "rank %d", away->rank);
    if (rank->rank != away->rank)
        check_error(rank, sum(rank, memory, 100, NULL), tuttiTimeout, name);
    pthread_barrier_wait(&away->all);
    gpu_free(memory);
}

TEST(mixed_errors, a_rank_that_does_not_come_is_named_at_the_deadline)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 1000;
    with_each_other(one_stays_away, &config);
}

static void one_aborts(struct gpu_rank *rank)
{
    const struct other *aborts = rank->arg;
    int *memory = make_ints(rank, 1, 100);
    sum_before(rank, memory);
    if (rank->rank == aborts->rank) {
        CHECK_EQ(tuttiCommAbort(rank->comm), tuttiSuccess);
        rank->comm = NULL;
    } else {
        check_error(rank, sum(rank, memory, 100, NULL), tuttiRemoteError,
                    "aborted the communicator");
    }
    gpu_free(memory);
}

TEST(mixed_errors, an_abort_ends_the_calls_of_all_ranks)
{
    with_each_other(one_aborts, NULL);
}
