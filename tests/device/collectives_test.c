/* Collectives on the memory of virtual GPUs, through tutti.h: right, in every shape that a user
 * gives them. */
#include <cuda.h>
#include <string.h>

#include "../driver/calls.h"
#include "calls_on_gpu.h"
#include "shim.h"

static void check_and_free(struct placed *placed)
{
    CHECK_MESSAGE(check_call(placed), "rank %d: wrong result of %s", placed->rank->rank,
                  call_text(&placed->call));
}

static struct call call_of(int kind, size_t count, tuttiDataType_t type, int nranks)
{
    return (struct call){.kind = kind,
                         .count = count,
                         .type = type,
                         .op = tuttiSum,
                         .root = 1 % nranks,
                         .salt = (uint64_t)kind * 1000 + count,
                         .nranks = nranks};
}

static void check_result(const struct gpu_rank *rank, tuttiResult_t result, const char *what)
{
    CHECK_MESSAGE(result == tuttiSuccess, "rank %d: %s: %s", rank->rank, what,
                  tuttiGetLastError(rank->comm));
}

static void run_call(struct gpu_rank *rank, int kind, size_t count)
{
    const struct call call = call_of(kind, count, tuttiFloat32, rank->nranks);
    struct placed placed;
    place_call(&placed, rank, &call, 0);
    check_result(rank, issue_call(&placed, NULL), call_text(&call));
    check_and_free(&placed);
}

/* Every collective with a NULL stream: complete when it returns. */
static void every_collective(struct gpu_rank *rank)
{
    static const size_t counts[] = {1, 37, 1500};
    for (int kind = 0; kind < tuttiCollBarrier; kind++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) run_call(rank, kind, counts[i]);
}

TEST(device, every_collective_is_right_among_two_ranks_of_a_gpu)
{
    on_gpus(2, 1, NULL, every_collective, NULL);
}

TEST(device, every_collective_is_right_among_three_ranks_of_two_gpus)
{
    on_gpus(3, 2, NULL, every_collective, NULL);
}

/* Every collective by meetings, in lines and in slots. The name that the library tells is that of
 * GPUs: its choice for a host would be a meeting for so little data too. */
static void every_meeting(struct gpu_rank *rank)
{
    static const size_t counts[] = {1, 37, 9001};
    const char *name = NULL;
    CHECK_EQ(tuttiCommGetAlgorithm(rank->comm, tuttiCollBroadcast, 8, &name), tuttiSuccess);
    CHECK(name && strcmp(name, "direct") == 0);
    for (int kind = 0; kind < tuttiCollBarrier; kind++) {
        CHECK_EQ(tuttiCommSetAlgorithm(rank->comm, (tuttiCollective_t)kind, "meet"), tuttiSuccess);
        CHECK_EQ(tuttiCommGetAlgorithm(rank->comm, (tuttiCollective_t)kind, 8, &name),
                 tuttiSuccess);
        CHECK(strcmp(name, "meet") == 0);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) run_call(rank, kind, counts[i]);
    }
}

TEST(device, every_collective_is_right_by_meetings_of_four_ranks_of_two_gpus)
{
    on_gpus(4, 2, NULL, every_meeting, NULL);
}

/* Calls that follow one another on a stream of the user, which the calls' copies follow. */
static void on_a_stream(struct gpu_rank *rank)
{
    enum { NCALLS = 5 };
    struct placed placed[NCALLS];
    tuttiStream_t stream;
    void *device_stream = gpu_stream(rank->gpu);
    CHECK_EQ(tuttiStreamFromDevice(&stream, rank->gpu, device_stream), tuttiSuccess);
    for (int i = 0; i < NCALLS; i++) {
        const struct call call =
            call_of(i % 2 ? tuttiCollAllGather : tuttiCollAllReduce, 100 + 333 * (size_t)i,
                    i % 2 ? tuttiInt64 : tuttiBfloat16, rank->nranks);
        place_call(&placed[i], rank, &call, 0);
    }
    for (int i = 0; i < NCALLS; i++)
        check_result(rank, issue_call(&placed[i], stream), call_text(&placed[i].call));
    check_result(rank, tuttiBarrier(rank->comm, stream), "barrier");
    check_result(rank, tuttiStreamSynchronize(stream), "synchronize");
    CHECK_EQ(tuttiStreamQuery(stream), tuttiSuccess);
    for (int i = 0; i < NCALLS; i++) check_and_free(&placed[i]);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    gpu_stream_destroy(rank->gpu, device_stream);
}

TEST(device, calls_on_a_cuda_stream_run_in_order_and_are_right)
{
    on_gpus(4, 2, NULL, on_a_stream, NULL);
}

/* One thread drives all ranks of a communicator in groups. */
/* A group's calls on two streams in turns: none waits behind another one's turn. */
static void in_turns_on_two_streams(struct gpu_rank *rank)
{
    enum { NCALLS = 5 };
    struct placed placed[NCALLS];
    tuttiStream_t streams[2];
    void *device_streams[] = {gpu_stream(rank->gpu), gpu_stream(rank->gpu)};
    for (int s = 0; s < 2; s++)
        CHECK_EQ(tuttiStreamFromDevice(&streams[s], rank->gpu, device_streams[s]), tuttiSuccess);
    for (int i = 0; i < NCALLS; i++) {
        const int kind = i < 3 ? tuttiCollAllReduce : EXCHANGE;
        const struct call call = call_of(kind, 100 + (size_t)i, tuttiInt32, rank->nranks);
        place_call(&placed[i], rank, &call, 0);
    }
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < NCALLS; i++)
        check_result(rank, issue_call(&placed[i], streams[i % 2]), "a call of the group");
    check_result(rank, tuttiGroupEnd(), "group");
    for (int s = 0; s < 2; s++)
        check_result(rank, tuttiStreamSynchronize(streams[s]), "synchronize");
    for (int i = 0; i < NCALLS; i++) check_and_free(&placed[i]);
    for (int s = 0; s < 2; s++) {
        CHECK_EQ(tuttiStreamDestroy(streams[s]), tuttiSuccess);
        gpu_stream_destroy(rank->gpu, device_streams[s]);
    }
}

TEST(device, calls_of_a_group_on_two_streams_in_turns_all_run)
{
    on_gpus(2, 1, NULL, in_turns_on_two_streams, NULL);
}

TEST(device, one_thread_drives_four_ranks_of_two_gpus_in_a_group)
{
    enum { NRANKS = 4 };
    const int devices[NRANKS] = {0, 1, 0, 1};
    tuttiComm_t comms[NRANKS] = {NULL};
    struct gpu_rank ranks[NRANKS];
    struct placed placed[NRANKS][2];
    REQUIRE(tuttiCommInitAll(comms, NRANKS, devices) == tuttiSuccess);
    for (int r = 0; r < NRANKS; r++) {
        ranks[r] = (struct gpu_rank){r, NRANKS, devices[r], comms[r], NULL};
        const struct call calls[] = {call_of(tuttiCollAllReduce, 777, tuttiFloat64, NRANKS),
                                     call_of(tuttiCollReduceScatter, 50, tuttiInt32, NRANKS)};
        for (int i = 0; i < 2; i++) place_call(&placed[r][i], &ranks[r], &calls[i], 0);
    }
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < 2; i++)
        for (int r = 0; r < NRANKS; r++) CHECK_EQ(issue_call(&placed[r][i], NULL), tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    for (int r = 0; r < NRANKS; r++)
        for (int i = 0; i < 2; i++) check_and_free(&placed[r][i]);
    for (int r = 0; r < NRANKS; r++) CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
    gpu_free_all();
}

enum { NCALLS = 40 };

static void random_run(struct gpu_rank *rank)
{
    const uint64_t *seed = rank->arg;
    CHECK_EQ(random_calls_on_gpu(rank, *seed, NCALLS), 0);
}

TEST(device, random_calls_of_every_type_and_operation_are_right)
{
    for (uint64_t seed = 3; seed >= 1; seed--)
        if (tt_test_share(3)) on_gpus((int)seed * 2, 2, NULL, random_run, &seed);
}

TEST(device, a_communicator_of_one_rank_copies)
{
    uint64_t seed = 9;
    on_gpus(1, 1, NULL, random_run, &seed);
}

/* Calls that need scratch memory, each a little more than the one before, up to `most` elements.
 * Returns the bytes of the GPU that they take. */
static size_t grow_slowly(struct gpu_rank *rank, size_t least, size_t most)
{
    size_t all, before = 0, after = 0;
    char *memory = gpu_memory(rank->gpu, 4 * most * sizeof(float));
    CHECK_EQ(tuttiCommSetAlgorithm(rank->comm, tuttiCollAllToAll, "bruck"), tuttiSuccess);
    check_result(rank, tuttiAlltoAll(memory, memory, 0, tuttiFloat32, rank->comm, NULL), "empty");
    CALL(cuMemGetInfo_v2, &before, &all);
    for (size_t count = least; count <= most; count += 64)
        check_result(rank,
                     tuttiAlltoAll(memory, memory + 2 * most * sizeof(float), count, tuttiFloat32,
                                   rank->comm, NULL),
                     "all-to-all");
    CALL(cuMemGetInfo_v2, &after, &all);
    gpu_free(memory);
    return before - after;
}

static size_t taken[2]; /* by rank 0 */

static void grow_to_the_same(struct gpu_rank *rank)
{
    enum { MOST = 1024 };
    const bool *slowly = rank->arg;
    gpu_use(rank->gpu);
    const size_t nbytes = grow_slowly(rank, *slowly ? 64 : MOST, MOST);
    if (!rank->rank) taken[*slowly] = nbytes;
}

TEST(device, calls_that_grow_slowly_take_bounded_device_memory)
{
    for (int i = 0; i < 2; i++) {
        bool slowly = i;
        on_gpus(2, 2, NULL, grow_to_the_same, &slowly);
    }
    CHECK(taken[0] > 0);
    CHECK_MESSAGE(taken[1] <= 4 * taken[0], "%zu bytes, and at once %zu", taken[1], taken[0]);
}
