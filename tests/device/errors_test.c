/* Calls on GPUs that cannot succeed: what the errors say, and that nothing hangs. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranks_on_gpus.h"
#include "shim.h"

static int data_on_host[16];

static void check_error(const struct gpu_rank *rank, tuttiResult_t result, tuttiResult_t expected,
                        const char *text)
{
    const char *error = tuttiGetLastError(rank ? rank->comm : NULL);
    if (!*error) error = tuttiGetLastError(NULL);
    CHECK_MESSAGE(result == expected, "rank %d: result %d, expected %d: %s", rank ? rank->rank : -1,
                  (int)result, (int)expected, error);
    CHECK_MESSAGE(strstr(error, text), "rank %d: '%s' is not in '%s'", rank ? rank->rank : -1, text,
                  error);
}

/* These leave the communicator as it was. */
static void bad_arguments(struct gpu_rank *rank)
{
    float on_host[4] = {0};
    const int other = 1 - rank->gpu;
    float *here = (float *)gpu_memory(rank->gpu, 64), *there = (float *)gpu_memory(other, 64);
    void *device_stream = gpu_stream(other);
    tuttiStream_t others, hosts, wrong;
    tuttiComm_t comm = rank->comm;
    CHECK_EQ(tuttiStreamFromDevice(&others, other, device_stream), tuttiSuccess);
    CHECK_EQ(tuttiStreamCreate(&hosts), tuttiSuccess);
    check_error(rank, tuttiAllReduce(here, on_host, 4, tuttiFloat, tuttiSum, comm, NULL),
                tuttiInvalidArgument, "is memory of the host that GPU");
    check_error(rank, tuttiAllReduce(there, here, 4, tuttiFloat, tuttiSum, comm, NULL),
                tuttiInvalidArgument, "sendbuff");
    check_error(rank, tuttiAllReduce(here, here, 4, tuttiFloat, tuttiSum, comm, others),
                tuttiInvalidUsage, "the stream is of GPU");
    check_error(rank, tuttiAllReduce(here, here, 4, tuttiFloat, tuttiSum, comm, hosts),
                tuttiInvalidUsage, "a stream of the host cannot run a call on device memory");
    check_error(rank, tuttiStreamLaunch(others, free, NULL), tuttiInvalidUsage, "cuLaunchHostFunc");
    check_error(rank, tuttiSend(there, 4, tuttiFloat, 1 - rank->rank, comm, NULL),
                tuttiInvalidArgument, "sendbuff");
    check_error(rank, tuttiRecv(here, 4, tuttiFloat, 0, comm, others), tuttiInvalidUsage,
                "the stream is of GPU");
    check_error(rank, tuttiRecv(here, 4, tuttiFloat, 0, comm, hosts), tuttiInvalidUsage,
                "a stream of the host cannot run a call on device memory");
    check_error(
        rank, tuttiAllGatherV(here, on_host, (const size_t[]){1, 1}, NULL, tuttiFloat, comm, NULL),
        tuttiInvalidArgument, "is memory of the host that GPU");
    check_error(rank,
                tuttiAllGatherV(here, there, (const size_t[]){1, 1}, NULL, tuttiFloat, comm, NULL),
                tuttiInvalidArgument, "recvbuff");
    check_error(rank,
                tuttiAlltoAllV(here, (const size_t[]){1, 1}, NULL, there, (const size_t[]){1, 1},
                               NULL, tuttiFloat, comm, NULL),
                tuttiInvalidArgument, "recvbuff");
    check_error(rank,
                tuttiAlltoAllV(on_host, (const size_t[]){1, 1}, NULL, on_host + 2,
                               (const size_t[]){1, 1}, NULL, tuttiFloat, comm, others),
                tuttiInvalidUsage, "the stream is of GPU");
    check_error(rank, tuttiStreamFromDevice(&wrong, rank->gpu, device_stream), tuttiInvalidArgument,
                "is no stream of GPU");
    CHECK_EQ(tuttiAllReduce(here, here, 4, tuttiFloat, tuttiSum, comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(others), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(hosts), tuttiSuccess);
    gpu_stream_destroy(other, device_stream);
    gpu_free(here);
    gpu_free(there);
}

TEST(device_errors, bad_arguments_are_named_and_leave_the_communicator_as_it_was)
{
    on_gpus(2, 2, NULL, bad_arguments, NULL);
}

TEST(device_errors, a_gpu_that_is_not_there_is_named)
{
    tuttiStream_t stream;
    check_error(NULL, tuttiStreamFromDevice(&stream, 7, NULL), tuttiInvalidArgument,
                "GPU 7 does not exist; this process can use 2");
}

/* A pre-multiplied sum whose scalar lies where the call cannot read it. */
static void scalars_elsewhere(struct gpu_rank *rank)
{
    float on_host[4] = {2};
    float *here = (float *)gpu_memory(rank->gpu, 64);
    tuttiRedOp_t hosts, gpus;
    CHECK_EQ(tuttiRedOpCreatePreMulSum(&hosts, on_host, tuttiFloat, tuttiScalarDevice, rank->comm),
             tuttiSuccess);
    CHECK_EQ(tuttiRedOpCreatePreMulSum(&gpus, here, tuttiFloat, tuttiScalarDevice, rank->comm),
             tuttiSuccess);
    check_error(rank, tuttiAllReduce(here, here, 4, tuttiFloat, hosts, rank->comm, NULL),
                tuttiInvalidArgument, "is memory of the host, which a call on a GPU cannot read");
    check_error(rank, tuttiAllReduce(on_host, on_host, 4, tuttiFloat, gpus, rank->comm, NULL),
                tuttiInvalidArgument, "is memory of a GPU, which a call on the host cannot read");
    tuttiRedOp_t none;
    check_error(
        rank,
        tuttiRedOpCreatePreMulSum(&none, here, tuttiFloat, tuttiScalarHostImmediate, rank->comm),
        tuttiInvalidArgument, "which the host cannot read: pass tuttiScalarDevice");
    /* A call of nothing reads no scalar. */
    CHECK_EQ(tuttiAllReduce(here, here, 0, tuttiFloat, gpus, rank->comm, NULL), tuttiSuccess);
    CHECK_EQ(
        tuttiReduceScatterV(here, here, (const size_t[2]){0}, tuttiFloat, gpus, rank->comm, NULL),
        tuttiSuccess);
    CHECK_EQ(tuttiBarrier(rank->comm, NULL), tuttiSuccess);
    gpu_free(here);
}

TEST(device_errors, a_scalar_that_the_call_cannot_read_is_named)
{
    on_gpus(2, 1, NULL, scalars_elsewhere, NULL);
}

/* The user's stream is busy when a communicator is aborted, and the memory that its call would use
 * is wanted by the next one. */
TEST(device_errors, a_kernel_that_begins_after_an_abort_spoils_no_later_communicator)
{
    struct gpu_rank rank = {.nranks = 1};
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiUniqueId id;
    tuttiStream_t stream;
    void *device_stream = gpu_stream(0);
    char *data = gpu_memory(0, 64), *result = gpu_memory(0, 64);
    config.device = 0;
    CHECK_EQ(tuttiStreamFromDevice(&stream, 0, device_stream), tuttiSuccess);
    for (int turn = 0; turn < 2; turn++) {
        CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
        REQUIRE(tuttiCommInitRankConfig(&rank.comm, 1, id, 0, &config) == tuttiSuccess);
        if (turn == 0) {
            gpu_block(0, device_stream);
            CHECK_EQ(tuttiAllReduce(data, result, 16, tuttiInt32, tuttiSum, rank.comm, stream),
                     tuttiSuccess);
            CHECK_EQ(tuttiCommAbort(rank.comm), tuttiSuccess);
            memset(data_on_host, 0, sizeof data_on_host);
            gpu_write(0, result, data_on_host, 64);
            gpu_unblock();
            continue;
        }
        int got[16];
        (void)tuttiStreamSynchronize(stream);
        gpu_read(0, got, result, 64);
        CHECK_EQ(got[0], 0); /* the aborted call wrote nothing */
        CHECK_EQ(tuttiAllReduce(data, result, 16, tuttiInt32, tuttiSum, rank.comm, NULL),
                 tuttiSuccess);
        gpu_read(0, got, result, 64);
        CHECK_EQ(got[0], (int)0xa5a5a5a5);
        CHECK_EQ(tuttiCommDestroy(rank.comm), tuttiSuccess);
    }
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    gpu_stream_destroy(0, device_stream);
    gpu_free(data);
    gpu_free(result);
    gpu_free_all();
}

static void different_counts(struct gpu_rank *rank)
{
    float *memory = (float *)gpu_memory(rank->gpu, 400);
    check_error(rank,
                tuttiAllReduce(memory, memory, rank->rank ? 100 : 99, tuttiFloat, tuttiSum,
                               rank->comm, NULL),
                tuttiInvalidUsage, "ranks disagree");
    gpu_free(memory);
}

TEST(device_errors, ranks_with_different_counts_get_an_error_that_shows_both)
{
    on_gpus(3, 2, NULL, different_counts, NULL);
}

/* Each rank is the root of its broadcast, so none takes a message: the broadcast finds it only
 * if both are still at work on it when one looks, else the next call does. */
static void two_roots(struct gpu_rank *rank)
{
    float *memory = (float *)gpu_memory(rank->gpu, 400);
    tuttiResult_t result =
        tuttiBroadcast(memory, memory, 100, tuttiFloat, rank->rank, rank->comm, NULL);
    if (result == tuttiSuccess)
        result = tuttiAllReduce(memory, memory, 100, tuttiFloat, tuttiSum, rank->comm, NULL);
    check_error(rank, result, tuttiInvalidUsage, "broadcast number 1 (count 100, float, root 0)");
    check_error(rank, result, tuttiInvalidUsage, "broadcast number 1 (count 100, float, root 1)");
    gpu_free(memory);
}

TEST(device_errors, an_earlier_call_on_which_ranks_disagreed_is_the_one_that_is_named)
{
    on_gpus(2, 1, NULL, two_roots, NULL);
}

static void host_and_device(struct gpu_rank *rank)
{
    float on_host[100] = {0};
    float *memory = (float *)gpu_memory(rank->gpu, 400);
    float *data = rank->rank ? memory : on_host;
    check_error(rank, tuttiAllReduce(data, data, 100, tuttiFloat, tuttiSum, rank->comm, NULL),
                tuttiInvalidUsage, "on a GPU");
    gpu_free(memory);
}

TEST(device_errors, a_rank_with_memory_of_the_host_among_ranks_with_device_memory_is_named)
{
    on_gpus(2, 1, NULL, host_and_device, NULL);
}

static void barriers_elsewhere(struct gpu_rank *rank)
{
    tuttiStream_t stream;
    void *device_stream = gpu_stream(rank->gpu);
    CHECK_EQ(tuttiStreamFromDevice(&stream, rank->gpu, device_stream), tuttiSuccess);
    tuttiResult_t result = tuttiBarrier(rank->comm, rank->rank ? stream : NULL);
    if (!result) result = tuttiStreamSynchronize(stream);
    check_error(rank, result, tuttiInvalidUsage, "barrier number 1 on a GPU");
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    gpu_stream_destroy(rank->gpu, device_stream);
}

TEST(device_errors, barriers_on_a_gpu_and_on_the_host_do_not_match_and_are_told_apart)
{
    on_gpus(2, 1, NULL, barriers_elsewhere, NULL);
}

/* Whether the page is shared memory, by /proc/self/maps. */
static bool is_shared(const void *page)
{
    char line[512], permissions[8] = "";
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long begin, end;
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &begin, &end, permissions) == 3 &&
            (unsigned long)page >= begin && (unsigned long)page < end)
            break;
    if (maps) fclose(maps);
    return permissions[0] && permissions[3] == 's';
}

static void pinned_memory(struct gpu_rank *rank)
{
    enum { BYTES = 1 << 16 };
    void *plain = aligned_alloc(4096, BYTES), *pinned = aligned_alloc(4096, BYTES);
    void *handles[2];
    memset(plain, 1, BYTES);
    memset(pinned, 1, BYTES);
    gpu_pin(rank->gpu, pinned, BYTES);
    CHECK_EQ(tuttiCommRegister(rank->comm, plain, BYTES, &handles[0]), tuttiSuccess);
    CHECK_EQ(tuttiCommRegister(rank->comm, pinned, BYTES, &handles[1]), tuttiSuccess);
    CHECK(is_shared(plain));
    CHECK(!is_shared(pinned));
    for (int i = 0; i < 2; i++) CHECK_EQ(tuttiCommDeregister(rank->comm, handles[i]), tuttiSuccess);
    gpu_unpin(rank->gpu, pinned);
    free(plain);
    free(pinned);
}

TEST(device_errors, memory_that_cuda_has_pinned_is_registered_without_being_moved)
{
    on_gpus(1, 1, NULL, pinned_memory, NULL);
}

static void one_stays_away(struct gpu_rank *rank)
{
    float *memory = (float *)gpu_memory(rank->gpu, 400);
    if (rank->rank != 1)
        check_error(rank,
                    tuttiAllReduce(memory, memory, 100, tuttiFloat, tuttiSum, rank->comm, NULL),
                    tuttiTimeout, "rank 1");
    pthread_barrier_wait(rank->arg);
    gpu_free(memory);
}

TEST(device_errors, a_rank_that_does_not_come_is_named_at_the_deadline)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 1500;
    on_gpus_together(3, 1, &config, one_stays_away);
}

static void one_destroys(struct gpu_rank *rank)
{
    float *memory = (float *)gpu_memory(rank->gpu, 400);
    if (rank->rank != 1)
        check_error(rank,
                    tuttiAllReduce(memory, memory, 100, tuttiFloat, tuttiSum, rank->comm, NULL),
                    tuttiRemoteError, "rank 1");
    gpu_free(memory);
}

TEST(device_errors, a_rank_that_destroys_its_communicator_instead_is_named)
{
    on_gpus(3, 1, NULL, one_destroys, NULL);
}

static void one_aborts(struct gpu_rank *rank)
{
    float *memory = (float *)gpu_memory(rank->gpu, 400);
    if (rank->rank == 1) {
        CHECK_EQ(tuttiCommAbort(rank->comm), tuttiSuccess);
        rank->comm = NULL;
    } else {
        check_error(rank,
                    tuttiAllReduce(memory, memory, 100, tuttiFloat, tuttiSum, rank->comm, NULL),
                    tuttiRemoteError, "rank 1");
    }
    gpu_free(memory);
}

TEST(device_errors, an_abort_ends_the_kernels_that_wait_for_the_rank)
{
    on_gpus(3, 2, NULL, one_aborts, NULL);
}

/* Each call of a rank waits until no kernel of another rank reads its buffers: also those of calls
 * that are still behind another one. */
static void one_aborts_behind_two_calls(struct gpu_rank *rank)
{
    void *device_stream = gpu_stream(rank->gpu);
    float *memory = (float *)gpu_memory(rank->gpu, 400);
    tuttiStream_t stream;
    CHECK_EQ(tuttiStreamFromDevice(&stream, rank->gpu, device_stream), tuttiSuccess);
    for (int i = 0; i < 2 && rank->rank != 1; i++)
        CHECK_EQ(tuttiAllReduce(memory, memory, 100, tuttiFloat, tuttiSum, rank->comm, stream),
                 tuttiSuccess);
    pthread_barrier_wait(rank->arg);
    if (rank->rank == 1) {
        CHECK_EQ(tuttiCommAbort(rank->comm), tuttiSuccess);
        rank->comm = NULL;
    } else {
        check_error(rank, tuttiStreamSynchronize(stream), tuttiRemoteError, "rank 1");
        CHECK(!strstr(tuttiGetLastError(rank->comm), "may still"));
    }
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    gpu_stream_destroy(rank->gpu, device_stream);
    gpu_free(memory);
}

TEST(device_errors, after_an_abort_no_call_waits_for_one_that_is_behind_another)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 0; /* else it would be until the deadline */
    on_gpus_together(3, 1, &config, one_aborts_behind_two_calls);
}

static void *destroy(void *comm)
{
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    return NULL;
}

/* The destroy waits for a call in which rank 1 has no part. */
static void one_aborts_what_it_destroys(struct gpu_rank *rank)
{
    pthread_t thread;
    void *device_stream = gpu_stream(rank->gpu);
    float *memory = (float *)gpu_memory(rank->gpu, 400);
    tuttiStream_t stream;
    CHECK_EQ(tuttiStreamFromDevice(&stream, rank->gpu, device_stream), tuttiSuccess);
    if (rank->rank == 0) {
        CHECK_EQ(tuttiAllReduce(memory, memory, 100, tuttiFloat, tuttiSum, rank->comm, stream),
                 tuttiSuccess);
        REQUIRE(pthread_create(&thread, NULL, destroy, rank->comm) == 0);
        usleep(100000);
        CHECK_EQ(tuttiCommAbort(rank->comm), tuttiSuccess);
        pthread_join(thread, NULL);
        rank->comm = NULL;
    }
    pthread_barrier_wait(rank->arg);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    gpu_stream_destroy(rank->gpu, device_stream);
    gpu_free(memory);
}

TEST(device_errors, an_abort_ends_a_destroy_that_waits)
{
    on_gpus_together(2, 1, NULL, one_aborts_what_it_destroys);
}

/* Without a GPU of its own, a communicator takes no memory of one. */
static void without_gpu(struct gpu_rank *rank)
{
    float *memory = (float *)gpu_memory(0, 64);
    void *device_stream = gpu_stream(0);
    tuttiStream_t stream;
    CHECK_EQ(tuttiStreamFromDevice(&stream, 0, device_stream), tuttiSuccess);
    check_error(rank, tuttiAllReduce(memory, memory, 4, tuttiFloat, tuttiSum, rank->comm, stream),
                tuttiInvalidUsage, "has no GPU");
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    gpu_stream_destroy(0, device_stream);
    gpu_free(memory);
}

TEST(device_errors, a_communicator_without_a_gpu_refuses_its_streams)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiComm_t comm;
    tuttiUniqueId id;
    config.device = -1;
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    REQUIRE(tuttiCommInitRankConfig(&comm, 1, id, 0, &config) == tuttiSuccess);
    struct gpu_rank rank = {.nranks = 1, .comm = comm};
    without_gpu(&rank);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}
