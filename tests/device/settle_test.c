/* What comes before an abort and the end of a process: a signal whose handler ends the process
 * interrupts a thread that has a lock of the library; a rank aborts because another one has left.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "../driver/calls.h"
#include "carrier/kernel/graphs.h"
#include "communicator/communicator.h"
#include "ranks_on_gpus.h"
#include "shim.h"

static void *settle(void *argument)
{
    tt_carried_kernel.settle(argument);
    return NULL;
}

/* What the end of the process does for a communicator, on another thread. */
static bool settles(struct tt_comm_core *core)
{
    pthread_t thread;
    struct timespec until;
    CHECK_EQ(pthread_create(&thread, NULL, settle, core), 0);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 30;
    return pthread_timedjoin_np(thread, NULL, &until) == 0;
}

TEST(settle, waits_for_no_lock)
{
    enum { COUNT = 100 };
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiComm_t comm = NULL;
    tuttiStream_t stream = NULL;
    tuttiUniqueId id;
    gpu_use(0);
    config.device = 0;
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    REQUIRE(tuttiCommInitRankConfig(&comm, 1, id, 0, &config) == tuttiSuccess);
    float *memory = (float *)gpu_memory(0, COUNT * sizeof(float));
    void *cuda_stream = gpu_stream(0);
    CUgraph graph = NULL;
    CHECK_EQ(tuttiStreamFromDevice(&stream, 0, cuda_stream), tuttiSuccess);
    CALL(cuStreamBeginCapture_v2, cuda_stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CHECK_EQ(tuttiAllReduce(memory, memory, COUNT, tuttiFloat32, tuttiSum, comm, stream),
             tuttiSuccess);
    CALL(cuStreamEndCapture, cuda_stream, &graph);
    struct tt_graphs *graphs = comm->core.kernel->graphs;
    REQUIRE(graphs);
    pthread_mutex_lock(&graphs->lock);
    const bool past_graphs = settles(&comm->core);
    pthread_mutex_unlock(&graphs->lock);
    CHECK(past_graphs);
    CALL(cuGraphDestroy, graph);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

/* Rank 2 leaves, so a call of rank 0 is refused, which aborts; what rank 1 finds then, of which a
 * kernel seems to run meanwhile. */
static void abort_after_left(struct gpu_rank *rank)
{
    enum { COUNT = 100 };
    float *memory = (float *)gpu_memory(rank->gpu, COUNT * sizeof(float));
    void *cuda_stream = gpu_stream(rank->gpu);
    tuttiStream_t stream = NULL;
    CHECK_EQ(tuttiStreamFromDevice(&stream, rank->gpu, cuda_stream), tuttiSuccess);
    struct tt_fabric *fabric = rank->comm->core.fabric;
    _Atomic uint32_t *kernels = &fabric->record->kernels;
    for (int turn = 2; turn >= 0; turn -= 2) {
        if (rank->rank == 1 && turn == 0) atomic_fetch_add(kernels, 1);
        pthread_barrier_wait(rank->arg);
        if (rank->rank == 0 && turn == 0) {
            CHECK(tuttiAllReduce(memory, memory, COUNT, tuttiFloat32, tuttiSum, rank->comm,
                                 stream) == tuttiRemoteError);
            CHECK_EQ(tuttiCommAbort(rank->comm), tuttiSuccess);
            rank->comm = NULL;
        } else if (rank->rank == 2 && turn == 2) {
            CHECK_EQ(tuttiCommDestroy(rank->comm), tuttiSuccess);
            rank->comm = NULL;
        }
    }
    if (rank->rank == 1) {
        while (!tt_fabric_failure(fabric, NULL) &&
               atomic_load(&tt_fabric_record(fabric, 0)->state) == TT_RANK_HERE)
            tt_test_pause();
        atomic_fetch_sub(kernels, 1);
        CHECK(tuttiAllReduce(memory, memory, COUNT, tuttiFloat32, tuttiSum, rank->comm, stream) ==
              tuttiRemoteError);
        const char *text = tuttiGetLastError(NULL);
        CHECK_MESSAGE(strstr(text, "rank 2 ") && strstr(text, "has left"), "unexpected: %s", text);
    }
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    gpu_stream_destroy(rank->gpu, cuda_stream);
    gpu_free(memory);
}

TEST(settle, a_rank_that_aborts_because_another_one_has_left_says_so)
{
    on_gpus_together(3, 2, NULL, abort_after_left);
}
