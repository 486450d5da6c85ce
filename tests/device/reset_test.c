/* A program resets a GPU after an abort that left memory to a kernel which had not begun: the next
 * communicator frees that memory, and gives the driver no event that is gone. */
#include <stdatomic.h>

#include "../driver/calls.h"
#include "driver/cuda.h"
#include "ranks_on_gpus.h"
#include "shim.h"

static __typeof__(cuEventQuery) *real_query;
static __typeof__(cuEventCreate) *real_create;
static _Atomic(CUevent) last; /* that was queried before the reset */
/* The GPU was reset, and no event has been made since: a new one may have the address of an old
 * one.
 */
static _Atomic bool is_reset;
static _Atomic int nwrong;

static CUresult CUDAAPI query(CUevent event)
{
    if (!atomic_load(&is_reset))
        atomic_store(&last, event);
    else if (event == atomic_load(&last))
        atomic_fetch_add(&nwrong, 1);
    return real_query(event);
}

static CUresult CUDAAPI create(CUevent *event, unsigned flags)
{
    atomic_store(&is_reset, false);
    return real_create(event, flags);
}

static tuttiComm_t make(void)
{
    tuttiComm_t comm = NULL;
    CHECK_EQ(make_alone(&comm), tuttiSuccess);
    return comm;
}

TEST(reset, no_event_that_is_gone_is_given_to_the_driver)
{
    enum { COUNT = 100 };
    tuttiStream_t stream = NULL;
    gpu_use(0);
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    REQUIRE(driver);
    real_query = driver->EventQuery;
    real_create = driver->EventCreate;
    driver->EventQuery = query;
    driver->EventCreate = create;
    tuttiComm_t comm = make();
    float *memory = (float *)gpu_memory(0, COUNT * sizeof(float));
    void *cuda_stream = gpu_stream(0);
    CHECK_EQ(tuttiStreamFromDevice(&stream, 0, cuda_stream), tuttiSuccess);
    gpu_block(0, cuda_stream);
    CHECK_EQ(tuttiAllReduce(memory, memory, COUNT, tuttiFloat32, tuttiSum, comm, stream),
             tuttiSuccess);
    CHECK_EQ(tuttiCommAbort(comm), tuttiSuccess);
    gpu_unblock();
    CALL(cuStreamSynchronize, cuda_stream);
    (void)tuttiStreamSynchronize(stream);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    CHECK(atomic_load(&last) != NULL);
    CALL(cuDevicePrimaryCtxReset_v2, 0);
    atomic_store(&is_reset, true);
    gpu_use(0);
    comm = make();
    CHECK_EQ(atomic_load(&nwrong), 0);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}
