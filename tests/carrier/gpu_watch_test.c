/* A program that resets a GPU (cudaDeviceReset) directly after it has ended what the library had
 * there, while the driver has not yet answered the thread that asks whether the GPU is lost. */
#include <cuda.h>
#include <stdatomic.h>
#include <stdint.h>

#include "carrier/gpu_watch.h"
#include "driver/calls.h"
#include "driver/context.h"
#include "driver/cuda.h"
#include "shim.h"
#include "tutti.h"

enum { COUNT = 100, TIMES = 3, MOST_PAUSES = 200 };

/* ---- A driver that answers late ------------------------------------------------------------- */

static __typeof__(cuEventQuery) *real_query;
static _Thread_local bool is_prompt; /* in this thread the driver answers at once */
static _Atomic bool is_asked, is_used_again;

/* Until the GPU is used again; a library that waits for the answer gets it some time later. */
static CUresult CUDAAPI answer_late(CUevent event)
{
    atomic_store(&is_asked, true);
    for (int i = 0; !is_prompt && i < MOST_PAUSES && !atomic_load(&is_used_again); i++)
        tt_test_pause();
    return real_query(event);
}

static void begin_late_answers(void)
{
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    is_prompt = true;
    atomic_store(&is_asked, false);
    atomic_store(&is_used_again, false);
    real_query = driver->EventQuery;
    driver->EventQuery = answer_late;
}

static void end_late_answers(void)
{
    atomic_store(&is_used_again, true);
    ((struct tt_cuda *)(uintptr_t)tt_cuda_load())->EventQuery = real_query;
}

/* ---- The thread alone ----------------------------------------------------------------------- */

static void check_is_whole(struct tt_context *context)
{
    void *memory = NULL;
    CHECK(!tt_context_is_reset(context));
    CHECK_MESSAGE(tt_context_allocate(context, COUNT, &memory) == TT_OK, "%s", tt_last_error());
    tt_context_free(context, memory);
}

static void reset_behind_put(void)
{
    struct tt_context *context = NULL, *kept = NULL;
    struct tt_gpu_watch *watch = NULL;
    REQUIRE(tt_context_open(0, &context) == TT_OK);
    REQUIRE(tt_context_hold(0, &kept) == TT_OK); /* as a stream does */
    REQUIRE(tt_gpu_watch_get(context, &watch) == TT_OK);
    begin_late_answers();
    while (!atomic_load(&is_asked)) {
        CHECK_EQ(tt_gpu_watch_look(watch), TT_OK);
        tt_test_pause();
    }
    tt_gpu_watch_put(watch);
    tt_context_close(context);
    CALL(cuDevicePrimaryCtxReset_v2, 0);
    CHECK_EQ(tt_context_open(0, &context), TT_OK);
    check_is_whole(context);
    end_late_answers();
    check_is_whole(context);
    tt_context_close(context);
    tt_context_drop(kept);
}

TEST(gpu_watch, a_gpu_that_is_reset_directly_after_its_last_user_can_be_opened_at_once)
{
    for (int i = 0; i < TIMES; i++) reset_behind_put();
}

/* ---- A driver that has shut down ------------------------------------------------------------ */

static CUresult CUDAAPI refuse_count(int *ngpus)
{
    (void)ngpus;
    return CUDA_ERROR_DEINITIALIZED;
}

static CUresult CUDAAPI refuse_query(CUevent event)
{
    (void)event;
    atomic_store(&is_asked, true);
    return CUDA_ERROR_DEINITIALIZED;
}

/* Asks until the driver has been asked twice more, so that its first answer has been used. */
static tt_status look_twice(struct tt_gpu_watch *watch)
{
    tt_status status = TT_OK;
    for (int i = 0; !status && i < 2; i++) {
        atomic_store(&is_asked, false);
        while (!status && !atomic_load(&is_asked)) {
            status = tt_gpu_watch_look(watch);
            tt_test_pause();
        }
    }
    return status;
}

static tt_status look_at_refusal(bool is_over)
{
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    const struct tt_cuda real = *driver;
    struct tt_context *context = NULL;
    struct tt_gpu_watch *watch = NULL;
    CHECK_EQ(tt_context_open(0, &context), TT_OK);
    CHECK_EQ(tt_gpu_watch_get(context, &watch), TT_OK);
    driver->EventQuery = refuse_query;
    if (is_over) driver->DeviceGetCount = refuse_count;
    const tt_status status = look_twice(watch);
    tt_gpu_watch_put(watch); /* its thread has ended */
    driver->EventQuery = real.EventQuery;
    driver->DeviceGetCount = real.DeviceGetCount;
    tt_context_close(context);
    return status;
}

TEST(gpu_watch, a_gpu_is_not_lost_because_the_process_exits)
{
    CHECK_EQ(look_at_refusal(true), TT_OK);
    CHECK_EQ(look_at_refusal(false), TT_ERR_DEVICE);
}

/* ---- Communicators -------------------------------------------------------------------------- */

static tuttiComm_t make(void)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiComm_t comm = NULL;
    tuttiUniqueId id;
    config.device = 0;
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    CHECK_MESSAGE(tuttiCommInitRankConfig(&comm, 1, id, 0, &config) == tuttiSuccess, "%s",
                  tuttiGetLastError(NULL));
    return comm;
}

/* A sum on a stream that comes to it when `begins`, pinned memory, is 1. */
static void sum(tuttiComm_t comm, CUstream cuda, int *begins, bool is_awaited)
{
    tuttiStream_t stream = NULL;
    CUdeviceptr memory = 0;
    CALL(cuMemAlloc_v2, &memory, COUNT * sizeof(int));
    CALL(cuStreamWaitValue32_v2, cuda, (CUdeviceptr)(uintptr_t)begins, 1, CU_STREAM_WAIT_VALUE_GEQ);
    CHECK_EQ(tuttiStreamOfDevice(&stream, 0, cuda), tuttiSuccess);
    CHECK_MESSAGE(tuttiAllReduce((void *)(uintptr_t)memory, (void *)(uintptr_t)memory, COUNT,
                                 tuttiInt32, tuttiSum, comm, stream) == tuttiSuccess,
                  "%s", tuttiGetLastError(comm));
    while (is_awaited && !atomic_load(&is_asked)) tt_test_pause();
    __atomic_store_n(begins, 1, __ATOMIC_RELEASE);
    CALL(cuStreamSynchronize, cuda);
}

static void use_and_reset(bool is_slow)
{
    CUcontext context = NULL;
    CUstream cuda = NULL;
    void *begins = NULL;
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    CALL(cuCtxSetCurrent, context);
    CALL(cuStreamCreate, &cuda, CU_STREAM_NON_BLOCKING);
    CALL(cuMemHostAlloc, &begins, sizeof(int), CU_MEMHOSTALLOC_DEVICEMAP);
    *(int *)begins = 0;
    const tuttiComm_t comm = make();
    if (!comm) return;
    if (is_slow) begin_late_answers();
    sum(comm, cuda, begins, is_slow);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    CALL(cuDevicePrimaryCtxReset_v2, 0);
}

TEST(gpu_watch, a_communicator_can_be_made_at_once_on_a_gpu_that_was_reset_after_a_destroy)
{
    CALL(cuInit, 0);
    for (int i = 0; i < TIMES; i++) {
        use_and_reset(true);
        use_and_reset(false);
        end_late_answers();
    }
}
