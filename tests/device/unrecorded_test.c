/* The driver launches a kernel, and then refuses to record the event by which its end is known:
 * what the kernel uses stays until it has ended. */
#include <stdatomic.h>

#include "../driver/calls.h"
#include "driver/cuda.h"
#include "ranks_on_gpus.h"
#include "shim.h"

static __typeof__(cuEventRecord) *real_record;
static __typeof__(cuStreamDestroy) *real_destroy;
static _Atomic int nrefused, ndestroyed; /* streams: each rank has one until all of it is freed */
static _Atomic bool refuses;

static CUresult CUDAAPI record(CUevent event, CUstream stream)
{
    if (!atomic_exchange(&refuses, false)) return real_record(event, stream);
    atomic_fetch_add(&nrefused, 1);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

static CUresult CUDAAPI destroy(CUstream stream)
{
    atomic_fetch_add(&ndestroyed, 1);
    return real_destroy(stream);
}

static tuttiComm_t make(void)
{
    tuttiComm_t comm = NULL;
    CHECK_EQ(make_alone(&comm), tuttiSuccess);
    return comm;
}

TEST(unrecorded, what_a_kernel_uses_stays_until_it_has_ended)
{
    enum { COUNT = 100 };
    tuttiStream_t stream = NULL;
    tuttiResult_t error = tuttiSuccess;
    gpu_use(0);
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    REQUIRE(driver);
    real_record = driver->EventRecord;
    real_destroy = driver->StreamDestroy;
    driver->EventRecord = record;
    driver->StreamDestroy = destroy;
    tuttiComm_t other = make(), comm = make();
    float *memory = (float *)gpu_memory(0, COUNT * sizeof(float));
    void *cuda_stream = gpu_stream(0);
    CHECK_EQ(tuttiStreamFromDevice(&stream, 0, cuda_stream), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(memory, memory, COUNT, tuttiFloat32, tuttiSum, comm, stream),
             tuttiSuccess);
    CALL(cuStreamSynchronize, cuda_stream);
    gpu_block(0, cuda_stream);
    atomic_store(&ndestroyed, 0);
    atomic_store(&refuses, true);
    (void)tuttiAllReduce(memory, memory, COUNT, tuttiFloat32, tuttiSum, comm, stream);
    CHECK_EQ(atomic_load(&nrefused), 1);
    CHECK_EQ(tuttiCommGetAsyncError(comm, &error), tuttiSuccess);
    CHECK(error != tuttiSuccess && error != tuttiInProgress);
    CHECK_EQ(tuttiCommAbort(comm), tuttiSuccess);
    comm = make();
    CHECK_EQ(atomic_load(&ndestroyed), 0);
    gpu_unblock();
    CALL(cuStreamSynchronize, cuda_stream);
    (void)tuttiStreamSynchronize(stream); /* whose first error is the refused call's */
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    CHECK(atomic_load(&ndestroyed) >= 2);
    comm = make();
    CHECK_EQ(tuttiAllReduce(memory, memory, COUNT, tuttiFloat32, tuttiSum, comm, stream),
             tuttiSuccess);
    CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(other), tuttiSuccess);
    driver->EventRecord = real_record;
    driver->StreamDestroy = real_destroy;
}
