/* The calls of the driver that a collective makes: they are counted, and those that take memory are
 * none of them. */
#include <pthread.h>
#include <string.h>

#include "driver/cuda.h"
#include "on_streams.h"
#include "shim.h"

enum { COUNT = 1000, MOST_CALLS = 8 };

static struct tt_cuda real;
static _Thread_local bool counts; /* the calls of this thread */
static _Thread_local int ncalls;

/* One function of the driver that a call may use. */
#define COUNTED(member, parameters, arguments)                                                     \
    static CUresult CUDAAPI count_##member parameters                                              \
    {                                                                                              \
        ncalls += counts;                                                                          \
        return real.member arguments;                                                              \
    }
COUNTED(PointerGetAttributes,
        (unsigned n, CUpointer_attribute *attributes, void **data, CUdeviceptr pointer),
        (n, attributes, data, pointer))
COUNTED(StreamGetId, (CUstream stream, unsigned long long *id), (stream, id))
COUNTED(CtxPushCurrent, (CUcontext context), (context))
COUNTED(CtxPopCurrent, (CUcontext * context), (context))
COUNTED(StreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status), (stream, status))
COUNTED(StreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), (stream, event, flags))
COUNTED(EventRecord, (CUevent event, CUstream stream), (event, stream))
COUNTED(EventQuery, (CUevent event), (event)) /* by the thread that asks whether a GPU is lost */
COUNTED(DevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active),
        (device, flags, active))                                               /* by it too */
COUNTED(CtxGetId, (CUcontext context, unsigned long long *id), (context, id))  /* by it too */
COUNTED(ThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), (mode)) /* by it too */
COUNTED(LaunchKernel,
        (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
         unsigned bz, unsigned shared, CUstream stream, void **parameters, void **extra),
        (function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra))

/* In place of all others. */
static CUresult CUDAAPI refuse(void)
{
    tt_test_fail(__FILE__, __LINE__, "a call of the driver that no collective should need");
    return CUDA_ERROR_NOT_SUPPORTED;
}

static struct tt_cuda *table(void)
{
    return (struct tt_cuda *)(uintptr_t)tt_cuda_load();
}

/* A struct of pointers only. */
static void replace(void)
{
    struct tt_cuda *driver = table();
    void (*const other)(void) = (void (*)(void))refuse;
    real = *driver;
    for (size_t at = 0; at < sizeof *driver; at += sizeof other)
        memcpy((char *)driver + at, &other, sizeof other);
    driver->PointerGetAttributes = count_PointerGetAttributes;
    driver->StreamGetId = count_StreamGetId;
    driver->CtxPushCurrent = count_CtxPushCurrent;
    driver->CtxPopCurrent = count_CtxPopCurrent;
    driver->StreamIsCapturing = count_StreamIsCapturing;
    driver->StreamWaitEvent = count_StreamWaitEvent;
    driver->EventRecord = count_EventRecord;
    driver->EventQuery = count_EventQuery;
    driver->DevicePrimaryCtxGetState = count_DevicePrimaryCtxGetState;
    driver->CtxGetId = count_CtxGetId;
    driver->ThreadExchangeStreamCaptureMode = count_ThreadExchangeStreamCaptureMode;
    driver->LaunchKernel = count_LaunchKernel;
}

/* is_bare: the stream is found by the CUDA stream's handle. */
static void call(const struct gpu_rank *rank, const int *in, int *out,
                 const struct streams *streams, bool is_bare)
{
    tuttiStream_t stream = streams->stream;
    if (is_bare)
        check_success(rank, tuttiStreamOfDevice(&stream, rank->gpu, streams->cuda),
                      "find a stream");
    check_success(rank, tuttiAllReduce(in, out, COUNT, tuttiInt32, tuttiSum, rank->comm, stream),
                  "all-reduce");
}

/* The driver's calls of one all-reduce on a stream. */
static int count(struct gpu_rank *rank, const int *in, int *out, const struct streams *streams,
                 bool is_bare)
{
    pthread_barrier_t *together = rank->arg;
    for (int i = 0; i < 2; i++) call(rank, in, out, streams, is_bare); /* of a size seen before */
    check_success(rank, tuttiStreamSynchronize(streams->stream), "synchronize");
    pthread_barrier_wait(together);
    if (rank->rank == 0) replace();
    pthread_barrier_wait(together);
    ncalls = 0;
    counts = true;
    call(rank, in, out, streams, is_bare);
    counts = false;
    CHECK_MESSAGE(ncalls <= MOST_CALLS, "rank %d: %d calls of the driver, expected at most %d",
                  rank->rank, ncalls, MOST_CALLS);
    CHECK(ncalls > 3); /* they are counted */
    pthread_barrier_wait(together);
    if (rank->rank == 0) *table() = real;
    pthread_barrier_wait(together);
    check_success(rank, tuttiStreamSynchronize(streams->stream), "synchronize");
    check_ints(rank, out, 3, COUNT);
    return ncalls;
}

static void count_calls(struct gpu_rank *rank)
{
    int *in = make_ints(rank, rank->rank + 1, COUNT), *out = make_ints(rank, 0, COUNT);
    struct streams streams = make_streams(rank);
    gpu_use(rank->gpu);
    const int usual = count(rank, in, out, &streams, false);
    CHECK_EQ(count(rank, in, out, &streams, true), usual + 1);
    destroy_streams(rank, &streams);
    gpu_free(in);
    gpu_free(out);
}

TEST(driver_calls, a_collective_on_a_stream_makes_at_most_eight)
{
    on_gpus_together(2, 2, NULL, count_calls);
    on_gpus_together(2, 1, NULL, count_calls);
}

/* ---- The first calls ------------------------------------------------------------------------- */

static CUresult CUDAAPI count_synchronize(CUstream stream)
{
    ncalls += counts;
    return real.StreamSynchronize(stream);
}

/* Of two sizes, which are two programs, and the second one takes scratch memory. */
static void first_calls(struct gpu_rank *rank)
{
    enum { LARGE = 300000 };
    int *in = make_ints(rank, rank->rank + 1, LARGE), *out = make_ints(rank, 0, LARGE);
    struct streams streams = make_streams(rank);
    ncalls = 0;
    counts = true;
    for (int i = 0; i < 2; i++)
        check_success(rank,
                      tuttiAllReduce(in, out, i ? LARGE : COUNT, tuttiInt32, tuttiSum, rank->comm,
                                     streams.stream),
                      "all-reduce");
    counts = false;
    CHECK_EQ(ncalls, 0);
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    check_ints(rank, out, 6, LARGE);
    destroy_streams(rank, &streams);
    gpu_free(in);
    gpu_free(out);
}

/* A stream that shares its hardware queue with others waits for their work, which may wait for the
 * calling thread. */
TEST(driver_calls, the_first_collectives_of_their_kinds_wait_for_no_stream)
{
    real = *table();
    table()->StreamSynchronize = count_synchronize;
    on_gpus_together(3, 2, NULL, first_calls);
    table()->StreamSynchronize = real.StreamSynchronize;
}

/* ---- Memory of the host --------------------------------------------------------------------- */

/* Whose memory each buffer is, and the two questions of a reset, which makes memory of a GPU look
 * like memory of the host. */
enum { HOST_CALLS = 4 };

/* The driver's calls of one all-reduce on memory of the host. */
static int count_on_host(const struct gpu_rank *rank, const int *in, int *out)
{
    pthread_barrier_t *together = rank->arg;
    pthread_barrier_wait(together);
    if (rank->rank == 0) replace();
    pthread_barrier_wait(together);
    ncalls = 0;
    counts = true;
    const tuttiResult_t result =
        tuttiAllReduce(in, out, COUNT, tuttiInt32, tuttiSum, rank->comm, NULL);
    counts = false;
    pthread_barrier_wait(together);
    if (rank->rank == 0) *table() = real;
    pthread_barrier_wait(together);
    check_success(rank, result, "all-reduce");
    CHECK_EQ(out[COUNT - 1], 3);
    return ncalls;
}

static void count_host_calls(struct gpu_rank *rank)
{
    int in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++) in[i] = rank->rank + 1;
    CHECK_EQ(count_on_host(rank, in, out), HOST_CALLS);
    CHECK_EQ(count_on_host(rank, in, in), HOST_CALLS - 1);
}

TEST(driver_calls, a_collective_on_memory_of_the_host_asks_whose_memory_it_is_and_for_a_reset)
{
    on_gpus_together(2, 2, NULL, count_host_calls);
}
