/* Calls on GPUs that cannot succeed: what the errors say, and that nothing hangs. */
#include <cuda.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ranks_on_gpus.h"
#include "shim.h"

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
    tuttiStream_t others, hosts;
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
    check_error(rank, tuttiSend(here, 4, tuttiFloat, 0, comm, NULL), tuttiInvalidUsage,
                "for memory of the host only");
    check_error(rank, tuttiRecv(here, 4, tuttiFloat, 0, comm, others), tuttiInvalidUsage,
                "for streams of the host only");
    check_error(
        rank, tuttiAllGatherV(here, here + 4, (const size_t[]){1, 1}, NULL, tuttiFloat, comm, NULL),
        tuttiInvalidUsage, "for memory of the host only");
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
    pthread_barrier_t all_are_done;
    pthread_barrier_init(&all_are_done, NULL, 3);
    on_gpus(3, 1, &config, one_stays_away, &all_are_done);
    pthread_barrier_destroy(&all_are_done);
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
