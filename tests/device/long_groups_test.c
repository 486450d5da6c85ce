/* Groups with calls that begin behind all launches: with as many other calls as launches have room
 * for, and with one more. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "on_streams.h"
#include "shim.h"

enum { MOST = 4088, DEADLINE_MS = 30000, ANSWER = 7 };

static const struct gpu_rank of_host = {.gpu = -1};

static void run_on(int nranks, const int *gpus, void (*body)(struct gpu_rank *rank))
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = DEADLINE_MS;
    on_devices(nranks, gpus, &config, body, NULL);
}

/* So many calls, of which only the first has data, so that the others take little time. */
static void broadcast_often(tuttiComm_t comm, int root, int *memory, int ncalls,
                            tuttiStream_t stream)
{
    for (int i = 0; i < ncalls; i++)
        CHECK_EQ(tuttiBroadcast(memory, memory, i == 0, tuttiInt32, root, comm, stream),
                 tuttiSuccess);
}

static void check_refused(const struct gpu_rank *rank)
{
    check_error(rank, tuttiGroupEnd(), tuttiInvalidUsage, "a group has 4089 calls of rank 0");
    CHECK(strstr(tuttiGetLastError(NULL), "make several groups of them") != NULL);
}

/* ---- Of a communicator in which a rank has no GPU ------------------------------------------- */

/* Rank 0 has a GPU. Its messages are one call, though one of them has another stream. */
static void begin_group(const struct gpu_rank *rank, int *memory, int ncollectives, bool sends,
                        tuttiStream_t stream)
{
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    broadcast_often(rank->comm, 1, memory, ncollectives, stream);
    for (int i = 1; sends && i < 3; i++)
        CHECK_EQ(rank->rank
                     ? tuttiRecv(memory + i, 1, tuttiInt32, 0, rank->comm, NULL)
                     : tuttiSend(memory + i, 1, tuttiInt32, 1, rank->comm, i == 1 ? NULL : stream),
                 tuttiSuccess);
}

static void has_no_gpu(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, rank->rank ? ANSWER : 1, 3);
    if (!rank->rank) {
        begin_group(rank, memory, MOST + 1, false, streams.stream);
        check_refused(rank);
        begin_group(rank, memory, MOST, true, streams.stream);
        check_refused(rank);
    }
    begin_group(rank, memory, MOST - 1, true, streams.stream);
    check_success(rank, tuttiGroupEnd(), "group");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "stream");
    check_ints(rank, memory, ANSWER, 1);
    check_ints(rank, memory + 1, 1, 2);
    gpu_free(memory);
    destroy_streams(rank, &streams);
}

TEST(long_groups, of_a_rank_beside_one_without_a_gpu_have_as_many_calls_as_launches_have_room_for)
{
    run_on(2, (const int[]){0, -1}, has_no_gpu);
}

/* A message to rank 2, and calls of another communicator, in which all ranks have GPUs. */
static void sends_to_the_host(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, 1);
    tuttiComm_t split = NULL;
    CHECK_EQ(tuttiCommSplit(rank->comm, rank->gpu < 0, rank->rank, &split, NULL), tuttiSuccess);
    if (!rank->rank) {
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        broadcast_often(split, 1, memory, MOST + 1, streams.stream);
        CHECK_EQ(tuttiSend(memory, 1, tuttiInt32, 2, rank->comm, streams.stream), tuttiSuccess);
        check_refused(rank);
    }
    CHECK_EQ(tuttiAllReduce(memory, memory, 1, tuttiInt32, tuttiSum, rank->comm, NULL),
             tuttiSuccess);
    check_ints(rank, memory, 3, 1);
    CHECK_EQ(tuttiCommDestroy(split), tuttiSuccess);
    gpu_free(memory);
    destroy_streams(rank, &streams);
}

TEST(long_groups, beside_a_message_to_a_rank_without_a_gpu_have_no_more_calls)
{
    run_on(3, (const int[]){0, 1, -1}, sends_to_the_host);
}

/* ---- Beside calls on memory of the host ----------------------------------------------------- */

static tuttiResult_t sum_here(const struct gpu_rank *rank, int *memory)
{
    return tuttiAllReduce(memory, memory, 1, tuttiInt32, tuttiSum, rank->comm, NULL);
}

/* Rank 1 makes its calls on the GPU when it has made the one on memory of the host. */
static void calls_the_host(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, rank->rank ? ANSWER : 1, 1), *here = make_ints(&of_host, 1, 1);
    if (!rank->rank) {
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        CHECK_EQ(sum_here(rank, here), tuttiSuccess);
        broadcast_often(rank->comm, 1, memory, MOST + 1, streams.stream);
        check_refused(rank);
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    }
    check_success(rank, sum_here(rank, here), "of the host");
    if (rank->rank) CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    broadcast_often(rank->comm, 1, memory, MOST, streams.stream);
    check_success(rank, tuttiGroupEnd(), "group");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "stream");
    check_ints(rank, memory, ANSWER, 1);
    check_ints(&of_host, here, 2, 1);
    gpu_free(memory);
    gpu_free(here);
    destroy_streams(rank, &streams);
}

TEST(long_groups, beside_a_call_on_memory_of_the_host_have_as_many_calls)
{
    run_on(2, (const int[]){0, 1}, calls_the_host);
}

/* ---- Of two communicators -------------------------------------------------------------------- */

/* Rank 1 has destroyed the first one before it comes to the calls of the other one. */
static void of_two_communicators(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, rank->rank ? ANSWER : 1, 2);
    tuttiComm_t first = NULL;
    CHECK_EQ(tuttiCommSplit(rank->comm, 0, rank->rank, &first, NULL), tuttiSuccess);
    for (int more = 1; more >= 0 && !rank->rank; more--) {
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        broadcast_often(first, 1, memory + 1, 1, streams.stream);
        broadcast_often(rank->comm, 1, memory, MOST + more, streams.stream);
        if (more) check_refused(rank);
    }
    if (rank->rank) {
        broadcast_often(first, 1, memory + 1, 1, streams.stream);
        CHECK_EQ(tuttiCommDestroy(first), tuttiSuccess);
        broadcast_often(rank->comm, 1, memory, MOST, streams.stream);
    } else {
        check_success(rank, tuttiGroupEnd(), "group");
    }
    check_success(rank, tuttiStreamSynchronize(streams.stream), "stream");
    check_ints(rank, memory, ANSWER, 2);
    if (!rank->rank) CHECK_EQ(tuttiCommDestroy(first), tuttiSuccess);
    gpu_free(memory);
    destroy_streams(rank, &streams);
}

TEST(long_groups, of_two_communicators_have_as_many_calls)
{
    run_on(2, (const int[]){0, 1}, of_two_communicators);
}

/* Rank 1 makes no call. A thread of rank 0 makes groups of both communicators until there is no
 * room; who aborts them one after the other needs not know that. */
struct endless {
    const struct gpu_rank *rank;
    tuttiComm_t other;
    struct streams streams, others;
    int *memory;
    _Atomic int ngroups;
    tuttiResult_t result;
    char text[512];
};

static void *issue_endlessly(void *argument)
{
    struct endless *endless = argument;
    while (!endless->result && endless->ngroups < 2 * MOST) {
        int *memory = endless->memory;
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        (void)tuttiBroadcast(memory, memory, 1, tuttiInt32, 1, endless->rank->comm,
                             endless->streams.stream);
        (void)tuttiBroadcast(memory + 1, memory + 1, 1, tuttiInt32, 1, endless->other,
                             endless->others.stream);
        endless->result = tuttiGroupEnd();
        snprintf(endless->text, sizeof endless->text, "%s", tuttiGetLastError(NULL));
        endless->ngroups++;
    }
    return NULL;
}

static void await_standstill(struct endless *endless)
{
    enum { LOOK_US = 300000 };
    for (int before = -1; endless->ngroups != before || before < 500; usleep(LOOK_US))
        before = endless->ngroups;
}

static void aborts_one_by_one(struct gpu_rank *rank)
{
    static _Atomic bool is_aborted;
    struct endless endless = {.rank = rank};
    pthread_t thread;
    if (!rank->rank) atomic_store(&is_aborted, false);
    CHECK_EQ(tuttiCommSplit(rank->comm, 0, rank->rank, &endless.other, NULL), tuttiSuccess);
    endless.streams = make_streams(rank);
    endless.others = make_streams(rank);
    endless.memory = make_ints(rank, 1, 2);
    if (!rank->rank) {
        CHECK_EQ(pthread_create(&thread, NULL, issue_endlessly, &endless), 0);
        await_standstill(&endless);
    }
    while (rank->rank && !atomic_load(&is_aborted)) usleep(1000);
    CHECK_EQ(tuttiCommAbort(rank->comm), tuttiSuccess);
    CHECK_EQ(tuttiCommAbort(endless.other), tuttiSuccess);
    atomic_store(&is_aborted, true);
    if (!rank->rank) {
        pthread_join(thread, NULL);
        CHECK(endless.result != tuttiSuccess);
        CHECK_MESSAGE(strstr(endless.text, "abort"), "%s", endless.text);
    }
    rank->comm = NULL;
    gpu_free(endless.memory);
    destroy_streams(rank, &endless.streams);
    destroy_streams(rank, &endless.others);
}

TEST(long_groups, which_wait_for_room_end_when_one_of_their_communicators_is_aborted)
{
    on_devices(2, (const int[]){0, 1}, NULL, aborts_one_by_one, NULL);
}

/* ---- Of several ranks on a stream ------------------------------------------------------------ */

/* A launch of five ranks has one call of each: so many of them have no room. */
TEST(long_groups, of_several_ranks_on_a_stream_have_as_many_calls_as_those_of_one)
{
    enum { NRANKS = 6, NCALLS = 512 };
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    struct gpu_rank ranks[NRANKS];
    int *memory[NRANKS];
    tuttiUniqueId id;
    config.timeoutMs = DEADLINE_MS;
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < NRANKS; r++) {
        ranks[r] = (struct gpu_rank){.rank = r, .nranks = NRANKS, .gpu = r < NRANKS - 1 ? 0 : -1};
        config.device = ranks[r].gpu;
        CHECK_EQ(tuttiCommInitRankConfig(&ranks[r].comm, NRANKS, id, r, &config), tuttiSuccess);
    }
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    for (int r = 0; r < NRANKS; r++) memory[r] = make_ints(&ranks[r], r, 1);
    struct streams streams = make_streams(&ranks[0]);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < NRANKS; r++)
        broadcast_often(ranks[r].comm, NRANKS - 1, memory[r], NCALLS,
                        ranks[r].gpu < 0 ? NULL : streams.stream);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CHECK_EQ(tuttiStreamSynchronize(streams.stream), tuttiSuccess);
    for (int r = 0; r < NRANKS; r++) {
        check_ints(&ranks[r], memory[r], NRANKS - 1, 1);
        gpu_free(memory[r]);
    }
    destroy_streams(&ranks[0], &streams);
    for (int r = 0; r < NRANKS; r++) CHECK_EQ(tuttiCommDestroy(ranks[r].comm), tuttiSuccess);
    gpu_free_all();
}
