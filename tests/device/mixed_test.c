/* Calls among ranks with a GPU, whose kernels do their part, and ranks without one, whose host does
 * its part: with bridges, and with kernels required. The ranks are threads of one host. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

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

/* ---- Groups of messages in memory of both kinds ---------------------------------------------- */

enum { MOST_MESSAGES = 8, MOST_IN_GROUP = 4 * MOST_MESSAGES };

/* A message with the peer, in memory of the rank's GPU ('g') or of the host ('h'). */
struct in_group {
    const struct gpu_rank *where;
    int peer, *sent, *received;
};

/* What the i-th message from one rank to another holds. */
static int value_of(int sender, int receiver, int i)
{
    return 1 + 100 * sender + 10 * receiver + i;
}

/* Messages of one length, so that only the data shows in which order they came. */
static void run_group(struct gpu_rank *rank, const char *memory, int n, bool on_streams)
{
    struct streams streams = make_streams(rank), hosts = make_streams(&of_host);
    struct in_group messages[MOST_IN_GROUP];
    int nmessages = 0;
    for (int i = 0; memory[i]; i++)
        for (int peer = 0; peer < rank->nranks; peer++) {
            if (peer == rank->rank) continue;
            struct in_group *message = &messages[nmessages++];
            const struct gpu_rank *where = memory[i] == 'g' ? rank : &of_host;
            *message = (struct in_group){where, peer, NULL, make_ints(where, -1, n)};
            message->sent = make_ints(where, value_of(rank->rank, peer, i), n);
        }
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < nmessages; i++) {
        const struct in_group *of = &messages[i];
        tuttiStream_t stream = of->where == rank ? streams.stream : hosts.stream;
        if (!on_streams) stream = NULL;
        check_success(
            rank, tuttiSend(of->sent, (size_t)n, tuttiInt32, of->peer, rank->comm, stream), "send");
        check_success(rank,
                      tuttiRecv(of->received, (size_t)n, tuttiInt32, of->peer, rank->comm, stream),
                      "receive");
    }
    check_success(rank, tuttiGroupEnd(), "group");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "stream");
    check_success(rank, tuttiStreamSynchronize(hosts.stream), "stream of the host");
    for (int i = 0; i < nmessages; i++) {
        const struct in_group *of = &messages[i];
        check_ints(of->where, of->received, value_of(of->peer, rank->rank, i / (rank->nranks - 1)),
                   n);
        gpu_free(of->sent);
        gpu_free(of->received);
    }
    destroy_streams(rank, &streams);
    destroy_streams(&of_host, &hosts);
}

/* Of two ranks, in orders in which memory changes once and often; the last one is of messages
 * longer than a slot. */
static void groups_of_two(struct gpu_rank *rank)
{
    run_group(rank, "hg", 100, false);
    run_group(rank, "hg", 100, true);
    run_group(rank, "ghhg", 100, true);
    run_group(rank, "hggghghg", 100, false);
    run_group(rank, "ghg", 50000, false);
}

static void groups_of_all(struct gpu_rank *rank)
{
    run_group(rank, "ghgh", 100, false);
    run_group(rank, "hgg", 100, true);
}

TEST(mixed, a_group_with_memory_of_both_kinds_keeps_the_order_of_its_messages)
{
    on_devices(2, (const int[]){0, -1}, NULL, groups_of_two, NULL);
    on_devices(4, jobs[NJOBS - 1].gpus, NULL, groups_of_all, NULL);
}

/* ---- Calls that wait for earlier ones of their rank ------------------------------------------ */

static void pass_barrier(void *barrier)
{
    pthread_barrier_wait(barrier);
}

/* The kernel of rank 0's second message waits for the first one, whose stream is held up for longer
 * than a call may take. */
static void message_behind_the_users_work(struct gpu_rank *rank)
{
    const struct timespec beyond_deadline = {.tv_sec = 1, .tv_nsec = 600000000};
    struct streams streams = make_streams(rank), hosts = make_streams(&of_host);
    int *here = make_ints(&of_host, rank->rank ? 0 : 3, 9);
    int *there = make_ints(rank, rank->rank ? 0 : 4, 9);
    if (rank->rank == 0) {
        CHECK_EQ(tuttiStreamLaunch(hosts.stream, pass_barrier, rank->arg), tuttiSuccess);
        check_success(rank, pass(rank, 0, here, 9, hosts.stream), "message of the host");
        check_success(rank, pass(rank, 0, there, 9, streams.stream), "message of the GPU");
        nanosleep(&beyond_deadline, NULL);
        CHECK_EQ(tuttiStreamQuery(streams.stream), tuttiInProgress);
        pthread_barrier_wait(rank->arg);
    } else {
        pthread_barrier_wait(rank->arg);
        check_success(rank, pass(rank, 0, here, 9, NULL), "first message");
        check_success(rank, pass(rank, 0, there, 9, NULL), "second message");
    }
    check_success(rank, tuttiStreamSynchronize(hosts.stream), "stream of the host");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "stream");
    check_ints(&of_host, here, 3, 9);
    check_ints(rank, there, 4, 9);
    destroy_streams(rank, &streams);
    destroy_streams(&of_host, &hosts);
    gpu_free(here);
    gpu_free(there);
}

TEST(mixed, a_message_behind_one_that_waits_for_the_users_work_has_no_deadline)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 1000;
    pthread_barrier_t go_on;
    pthread_barrier_init(&go_on, NULL, 3);
    on_devices(2, (const int[]){0, -1}, &config, message_behind_the_users_work, &go_on);
    pthread_barrier_destroy(&go_on);
}

/* What a function that the stream runs calls, while a message of the host is queued behind it. */
struct inside {
    struct gpu_rank *rank;
    struct streams streams, hosts;
    int *here, *there;
    sem_t queued;
};

static void check_refused(const struct inside *inside, tuttiResult_t result)
{
    check_error(inside->rank, result, tuttiInvalidUsage, "queued in the stream behind that");
}

/* Messages of memory of the GPU, that follow a message of the host or not. */
static void call_inside(void *argument)
{
    struct inside *own = argument;
    struct gpu_rank *rank = own->rank;
    while (sem_wait(&own->queued)) continue;
    check_refused(own, pass(rank, 0, own->there, 1, NULL));
    check_success(rank, tuttiRecv(own->there + 1, 1, tuttiInt32, 1, rank->comm, NULL), "receive");
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    check_success(rank, pass(rank, 0, own->here, 1, own->hosts.stream), "in a group");
    check_success(rank, pass(rank, 0, own->there, 1, own->streams.stream), "in a group");
    check_success(rank, tuttiRecv(own->there, 1, tuttiInt32, 1, rank->comm, NULL), "in a group");
    check_refused(own, tuttiGroupEnd());
    /* From now on a kernel waits for the message behind the function. */
    check_success(rank, pass(rank, 0, own->there, 1, own->streams.stream), "with a stream");
    check_refused(own, sum(rank, own->there, 1, NULL));
    check_refused(own, tuttiRecv(own->there, 1, tuttiInt32, 1, rank->comm, NULL));
}

static void calls_behind_a_function(struct gpu_rank *rank)
{
    int *here = make_ints(&of_host, rank->rank ? 0 : 3, 2);
    int *there = make_ints(rank, rank->rank ? 5 : 4, 2);
    if (rank->rank == 0) {
        struct inside inside = {.rank = rank, .here = here, .there = there};
        inside.streams = make_streams(rank);
        inside.hosts = make_streams(&of_host);
        sem_init(&inside.queued, 0, 0);
        CHECK_EQ(tuttiStreamLaunch(inside.hosts.stream, call_inside, &inside), tuttiSuccess);
        check_success(rank, pass(rank, 0, here, 1, inside.hosts.stream), "behind the function");
        sem_post(&inside.queued);
        check_success(rank, tuttiStreamSynchronize(inside.hosts.stream), "stream of the host");
        check_success(rank, tuttiStreamSynchronize(inside.streams.stream), "stream");
        destroy_streams(rank, &inside.streams);
        destroy_streams(&of_host, &inside.hosts);
        check_ints(rank, there + 1, 5, 1);
        check_ints(rank, there, 4, 1);
    } else {
        check_success(rank, tuttiSend(there, 1, tuttiInt32, 0, rank->comm, NULL), "send");
        check_success(rank, pass(rank, 0, here, 1, NULL), "first message");
        check_success(rank, pass(rank, 0, there, 1, NULL), "second message");
        check_ints(rank, here, 3, 1);
        check_ints(rank, there, 4, 1);
    }
    gpu_free(here);
    gpu_free(there);
}

TEST(mixed, a_function_cannot_wait_for_a_kernel_that_waits_for_a_message_behind_it)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 20000;
    on_devices(2, (const int[]){0, -1}, &config, calls_behind_a_function, NULL);
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

/* 65 to 128 need that no algorithm is forced, nor the order of folds. */
TEST(mixed_errors, more_ranks_than_kernels_reach_have_none)
{
    enum { MANY = 129 };
    tuttiComm_t comms[MANY];
    int gpus[MANY];
    for (int r = 0; r < MANY; r++) gpus[r] = r ? -1 : 0;
    CHECK_EQ(tuttiCommInitAll(comms, MANY, gpus), tuttiInvalidUsage);
    CHECK_MESSAGE(strstr(tuttiGetLastError(NULL), "it has 129 ranks; kernels reach"), "%s",
                  tuttiGetLastError(NULL));
}
