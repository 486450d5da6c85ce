/* A signal whose handler ends the process interrupts a thread that has a lock of the library. */
#include <pthread.h>
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
