/* Calls on the legacy default stream, and without a stream, while a capture of a blocking stream
 * begins, which forbids the legacy stream: by kernels, and through memory of the host. */
#include "driver/cuda.h"
#include "graphs.h"
#include "on_streams.h"
#include "shim.h"

enum { N = 100, LOOKS = 3, MOST_USES = 100 };

enum calls { WITHOUT_STREAM, ON_LEGACY, ON_TWO_STREAMS, NCALLS };

/* A driver with which a capture begins before the use of this number of the legacy stream of rank
 * 0's GPU, and ends when the library has looked for it a few times. All is rank 0's. */
static struct {
    struct tt_cuda real;
    enum calls calls;
    int first; /* before which use */
    int nuses, nlooks;
    CUstream stream; /* that is captured */
    bool has_begun, goes_on;
} beside;

static void end_capture(void)
{
    CUgraph graph = NULL;
    beside.goes_on = false;
    if (RESULT(cuStreamEndCapture, beside.stream, &graph) == CUDA_SUCCESS)
        CALL(cuGraphDestroy, graph);
}

static bool is_use(CUstream stream)
{
    CUdevice device = 0;
    return (!stream || stream == CU_STREAM_LEGACY) && !RESULT(cuCtxGetDevice, &device) && !device;
}

static void use(CUstream stream)
{
    if (!is_use(stream) || beside.nuses++ != beside.first) return;
    capture_begin(beside.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    beside.has_begun = beside.goes_on = true;
    beside.nlooks = 0;
}

static CUresult CUDAAPI look(CUstream stream, CUstreamCaptureStatus *status)
{
    if (is_use(stream) && beside.goes_on && ++beside.nlooks == LOOKS) end_capture();
    return beside.real.StreamIsCapturing(stream, status);
}

static CUresult CUDAAPI record(CUevent event, CUstream stream)
{
    use(stream);
    return beside.real.EventRecord(event, stream);
}

static CUresult CUDAAPI wait(CUstream stream, CUevent event, unsigned flags)
{
    use(stream);
    return beside.real.StreamWaitEvent(stream, event, flags);
}

static CUresult CUDAAPI copy(CUdeviceptr to, CUdeviceptr from, size_t nbytes, CUstream stream)
{
    use(stream);
    return beside.real.MemcpyAsync(to, from, nbytes, stream);
}

static CUresult CUDAAPI store(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned flags)
{
    use(stream);
    return beside.real.StreamWriteValue32(stream, word, value, flags);
}

static CUresult CUDAAPI await(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned flags)
{
    use(stream);
    return beside.real.StreamWaitValue32(stream, word, value, flags);
}

static CUresult CUDAAPI launch(CUfunction function, unsigned x, unsigned y, unsigned z,
                               unsigned block_x, unsigned block_y, unsigned block_z,
                               unsigned shared_bytes, CUstream stream, void **parameters,
                               void **extra)
{
    use(stream);
    return beside.real.LaunchKernel(function, x, y, z, block_x, block_y, block_z, shared_bytes,
                                    stream, parameters, extra);
}

static tuttiResult_t issue(const struct gpu_rank *rank, int *memory, tuttiStream_t legacy,
                           const struct streams *other)
{
    const tuttiStream_t first = beside.calls == WITHOUT_STREAM ? NULL : legacy;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(memory, memory, N, tuttiInt32, tuttiSum, rank->comm, first),
             tuttiSuccess);
    if (beside.calls == ON_TWO_STREAMS)
        CHECK_EQ(tuttiAllReduce(memory + N, memory + N, N, tuttiInt32, tuttiSum, rank->comm,
                                other->stream),
                 tuttiSuccess);
    return tuttiGroupEnd();
}

/* A call that is refused is as if it had not been made: the other rank waits for the next one. */
static tuttiResult_t issue_beside(const struct gpu_rank *rank, int *memory, tuttiStream_t legacy,
                                  const struct streams *other)
{
    beside.nuses = 0;
    beside.has_begun = false;
    CALL(cuStreamCreate, &beside.stream, CU_STREAM_DEFAULT);
    tuttiResult_t result = issue(rank, memory, legacy, other);
    if (beside.calls == WITHOUT_STREAM && beside.has_begun) CHECK_EQ(result, tuttiInvalidUsage);
    if (result) check_error(rank, result, tuttiInvalidUsage, "legacy default stream");
    if (beside.goes_on) end_capture();
    beside.nuses = MOST_USES;
    if (result) result = issue(rank, memory, legacy, other);
    return result;
}

static void run(struct gpu_rank *rank)
{
    tuttiStream_t legacy;
    struct streams other = make_streams(rank);
    int *memory = make_ints(rank, 1, 2 * N);
    gpu_use(rank->gpu);
    CHECK_EQ(tuttiStreamFromDevice(&legacy, rank->gpu, CU_STREAM_LEGACY), tuttiSuccess);
    check_success(rank, (rank->rank ? issue : issue_beside)(rank, memory, legacy, &other), "sum");
    check_success(rank, tuttiStreamSynchronize(legacy), "legacy stream");
    check_success(rank, tuttiStreamSynchronize(other.stream), "other stream");
    check_ints(rank, memory, rank->nranks, beside.calls == ON_TWO_STREAMS ? 2 * N : N);
    if (!rank->rank) CALL(cuStreamDestroy_v2, beside.stream);
    CHECK_EQ(tuttiStreamDestroy(legacy), tuttiSuccess);
    destroy_streams(rank, &other);
    gpu_free(memory);
}

static void plant(struct tt_cuda *driver, const struct tt_cuda *from)
{
    driver->StreamIsCapturing = from->StreamIsCapturing;
    driver->EventRecord = from->EventRecord;
    driver->StreamWaitEvent = from->StreamWaitEvent;
    driver->MemcpyAsync = from->MemcpyAsync;
    driver->StreamWriteValue32 = from->StreamWriteValue32;
    driver->StreamWaitValue32 = from->StreamWaitValue32;
    driver->LaunchKernel = from->LaunchKernel;
}

/* Nothing keeps another thread from beginning a capture between two calls of the driver. */
TEST(legacy, a_capture_that_begins_within_a_call_fails_no_communicator)
{
    static const struct tt_cuda twin = {.StreamIsCapturing = look,
                                        .EventRecord = record,
                                        .StreamWaitEvent = wait,
                                        .MemcpyAsync = copy,
                                        .StreamWriteValue32 = store,
                                        .StreamWaitValue32 = await,
                                        .LaunchKernel = launch};
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    beside.real = *driver;
    beside.nuses = MOST_USES;
    plant(driver, &twin);
    for (int calls = 0; calls < NCALLS; calls++) {
        beside.calls = (enum calls)calls;
        beside.has_begun = true;
        for (int i = 0; beside.has_begun && !tt_test_failed(); i++) {
            beside.first = i;
            on_gpus(2, 2, NULL, run, NULL);
        }
        CHECK(beside.first > 0 && beside.first < MOST_USES);
    }
    plant(driver, &beside.real);
}
