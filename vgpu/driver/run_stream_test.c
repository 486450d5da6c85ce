/* Streams: what runs beside what, and in which order; host functions; words that streams wait for.
 */
#include "testing.h"

#include <pthread.h>
#include <shim.h>
#include <string.h>

CUresult cuStreamGetId_ptsz(CUstream stream, unsigned long long *id);

static void append(CUstream stream, CUdeviceptr log, uint32_t id)
{
    CHECK_EQ(vt_launch(vt.append, 1, stream, (void *[]){&log, &id}), CUDA_SUCCESS);
}

static void two_wait_for_one_another(void)
{
    CUdeviceptr words = vt_device(512), mine = words, theirs = words + 256;
    uint32_t n = 200;
    const CUstream a = vt_stream(CU_STREAM_NON_BLOCKING), b = vt_stream(CU_STREAM_NON_BLOCKING);
    CHECK_EQ(vt_launch(vt.turns, 1, a, (void *[]){&mine, &theirs, &n}), CUDA_SUCCESS);
    CHECK_EQ(vt_launch(vt.turns, 1, b, (void *[]){&theirs, &mine, &n}), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    CHECK_EQ(vt_read(words, 0), 200);
    CHECK_EQ(vt_read(words, 64), 200);
}

TEST(vgpu_streams, two_kernels_that_wait_for_one_another_run_side_by_side)
{
    vt_quiet(NULL, two_wait_for_one_another);
}

/* The kernel in stream `first` waits for a word of the host; the log of what ran meanwhile. */
static void legacy_order(void)
{
    volatile uint32_t *word = vt_mapped(64);
    CUdeviceptr w = (CUdeviceptr)(uintptr_t)word, then = w + 4, log = vt_device(256);
    uint32_t one = 1;
    const CUstream blocking = vt_stream(CU_STREAM_DEFAULT),
                   other = vt_stream(CU_STREAM_NON_BLOCKING);
    CHECK_EQ(vt_launch(vt.await, 1, blocking, (void *[]){&w, &one, &then}), CUDA_SUCCESS);
    append(blocking, log, 1);
    append(NULL, log, 2);     /* behind the blocking stream */
    append(blocking, log, 3); /* behind the legacy stream */
    append(other, log, 4);    /* beside both */
    CHECK_EQ(cuStreamSynchronize(other), CUDA_SUCCESS);
    CHECK_EQ(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    CHECK_EQ(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
    *word = 1;
    CHECK_EQ(cuStreamSynchronize(NULL), CUDA_SUCCESS);
    const uint32_t want[] = {4, 4, 1, 2, 3};
    for (int i = 0; i < 5; i++) CHECK_EQ(vt_read(log, i), want[i]);
}

TEST(vgpu_streams, the_legacy_stream_waits_for_blocking_streams_and_they_for_it)
{
    vt_quiet(NULL, legacy_order);
}

static void destroyed_stream(void)
{
    volatile uint32_t *word = vt_mapped(64);
    CUdeviceptr w = (CUdeviceptr)(uintptr_t)word, then = w + 4, log = vt_device(256);
    uint32_t one = 1;
    const CUstream stream = vt_stream(CU_STREAM_DEFAULT);
    CHECK_EQ(vt_launch(vt.await, 1, stream, (void *[]){&w, &one, &then}), CUDA_SUCCESS);
    append(stream, log, 7);
    CHECK_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
    CHECK_EQ(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
    append(NULL, log, 8);
    *word = 1;
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    CHECK_EQ(vt_read(log, 1), 7);
    CHECK_EQ(vt_read(log, 2), 8);
}

TEST(vgpu_streams, a_destroyed_stream_ends_its_work_in_order)
{
    vt_quiet(NULL, destroyed_stream);
}

static void *own_stream(void *arg)
{
    CUcontext context;
    CHECK_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    CHECK_EQ(cuStreamGetId_ptsz(NULL, arg), CUDA_SUCCESS);
    return NULL;
}

static void per_thread_streams(void)
{
    unsigned long long id[4];
    pthread_t thread;
    CHECK_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, &id[0]), CUDA_SUCCESS);
    CHECK_EQ(cuStreamGetId_ptsz(NULL, &id[1]), CUDA_SUCCESS);
    CHECK_EQ(cuStreamGetId(NULL, &id[2]), CUDA_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, own_stream, &id[3]) == 0);
    pthread_join(thread, NULL);
    CHECK(id[0] == id[1]);
    CHECK(id[2] != id[0]);
    CHECK(id[3] != id[0] && id[3] != id[2]);
}

TEST(vgpu_streams, each_thread_has_a_default_stream_of_its_own)
{
    vt_quiet(NULL, per_thread_streams);
}

static struct worker {
    pthread_t thread;
    CUdeviceptr log;
    uint32_t id;
} workers[4];

static void *work(void *arg)
{
    const struct worker *worker = arg;
    CUcontext context;
    CHECK_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    const CUstream stream = vt_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 50; i++) {
        append(stream, worker->log, worker->id);
        if (i % 8 == 0) CHECK_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    }
    CHECK_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    CHECK_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
    return NULL;
}

static void many_threads(void)
{
    const CUdeviceptr log = vt_device(1024);
    uint32_t count[4] = {0};
    for (uint32_t i = 0; i < 4; i++) {
        workers[i] = (struct worker){.log = log, .id = i};
        REQUIRE(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(workers[i].thread, NULL);
    CHECK_EQ(vt_read(log, 0), 200);
    for (int i = 1; i <= 200; i++) count[vt_read(log, i) & 3]++;
    for (int i = 0; i < 4; i++) CHECK_EQ(count[i], 50);
}

TEST(vgpu_streams, four_threads_launch_in_streams_of_their_own)
{
    vt_quiet(NULL, many_threads);
}

static void host_polls(void)
{
    volatile uint32_t *word = vt_mapped(64);
    CUdeviceptr w = (CUdeviceptr)(uintptr_t)word, then = w + 4;
    uint32_t one = 1;
    CHECK_EQ(vt_launch(vt.await, 1, NULL, (void *[]){&w, &one, &then}), CUDA_SUCCESS);
    word[0] = 1;
    while (word[1] == 0) { /* no call */
    }
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST(vgpu_streams, a_host_that_polls_memory_without_a_call_sees_the_kernel_s_store)
{
    vt_quiet(NULL, host_polls);
}

static uint32_t called[8], ncalled;
static CUresult forbidden;

static void CUDA_CB on_host(void *arg)
{
    CUdeviceptr memory;
    called[ncalled++ & 7] = (uint32_t)(uintptr_t)arg;
    forbidden = cuMemAlloc(&memory, 16);
}

static void CUDA_CB on_callback(CUstream stream, CUresult status, void *arg)
{
    CHECK_EQ(status, CUDA_SUCCESS);
    CHECK(stream != NULL);
    called[ncalled++ & 7] = (uint32_t)(uintptr_t)arg;
}

static void host_functions(void)
{
    const CUstream stream = vt_stream(CU_STREAM_NON_BLOCKING);
    volatile uint32_t *word = vt_mapped(64);
    CUdeviceptr w = (CUdeviceptr)(uintptr_t)word, then = w + 4;
    uint32_t one = 1;
    CHECK_EQ(vt_launch(vt.await, 1, stream, (void *[]){&w, &one, &then}), CUDA_SUCCESS);
    CHECK_EQ(cuLaunchHostFunc(stream, on_host, (void *)1), CUDA_SUCCESS);
    CHECK_EQ(cuStreamAddCallback(stream, on_callback, (void *)2, 0), CUDA_SUCCESS);
    CHECK_EQ(cuLaunchHostFunc(stream, on_host, (void *)3), CUDA_SUCCESS);
    CHECK_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    CHECK_EQ(ncalled, 0); /* the kernel waits */
    *word = 1;
    CHECK_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    CHECK_EQ(ncalled, 3);
    for (uint32_t i = 0; i < 3; i++) CHECK_EQ(called[i], i + 1);
    CHECK_EQ(forbidden, CUDA_ERROR_NOT_PERMITTED);
    CHECK_EQ(cuLaunchHostFunc(stream, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
}

TEST(vgpu_streams, host_functions_run_in_order_and_may_not_call_the_driver)
{
    vt_quiet(NULL, host_functions);
}

/* A host function that a kernel waits for, while the host waits for the kernel. */
static volatile uint32_t *shared_word;

static void CUDA_CB set_word(void *arg)
{
    (void)arg;
    while (shared_word[1] == 0) { /* until the kernel runs */
    }
    shared_word[0] = 1;
}

static void function_and_kernel(void)
{
    shared_word = vt_mapped(64);
    CUdeviceptr w = (CUdeviceptr)(uintptr_t)shared_word, started = w + 4, then = w + 8;
    uint32_t one = 1;
    const CUstream a = vt_stream(CU_STREAM_NON_BLOCKING), b = vt_stream(CU_STREAM_NON_BLOCKING);
    CHECK_EQ(cuLaunchHostFunc(b, set_word, NULL), CUDA_SUCCESS);
    CHECK_EQ(vt_launch(vt.set, 1, a, (void *[]){&started, &one}), CUDA_SUCCESS);
    CHECK_EQ(vt_launch(vt.await, 1, a, (void *[]){&w, &one, &then}), CUDA_SUCCESS);
    CHECK_EQ(cuStreamSynchronize(a), CUDA_SUCCESS);
    CHECK_EQ(cuStreamSynchronize(b), CUDA_SUCCESS);
}

TEST(vgpu_streams, a_host_function_and_a_kernel_wait_for_one_another)
{
    vt_quiet(NULL, function_and_kernel);
}

static void words(void)
{
    static const struct {
        unsigned flags;
        uint32_t wanted, no, yes;
    } rows[] = {{CU_STREAM_WAIT_VALUE_GEQ, 5, 4, 6},
                {CU_STREAM_WAIT_VALUE_GEQ, 0xfffffff0u, 0xffffffe0u, 3}, /* cyclic */
                {CU_STREAM_WAIT_VALUE_EQ, 5, 6, 5},
                {CU_STREAM_WAIT_VALUE_AND, 6, 9, 2},
                {CU_STREAM_WAIT_VALUE_NOR, 0xfffffff0u, 15, 14}};
    const CUstream a = vt_stream(CU_STREAM_NON_BLOCKING), b = vt_stream(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr word = vt_device(64);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_EQ(cuStreamWriteValue32(a, word, rows[i].no, 0), CUDA_SUCCESS);
        CHECK_EQ(cuStreamSynchronize(a), CUDA_SUCCESS);
        CHECK_EQ(cuStreamWaitValue32(b, word, rows[i].wanted, rows[i].flags), CUDA_SUCCESS);
        for (int k = 0; k < 20; k++) CHECK_EQ(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
        CHECK_EQ(cuStreamWriteValue32(a, word, rows[i].yes, 0), CUDA_SUCCESS);
        CHECK_EQ(cuStreamSynchronize(b), CUDA_SUCCESS);
    }
    CUstreamBatchMemOpParams batch[3] = {{.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64},
                                         {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64},
                                         {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32}};
    batch[0].writeValue.address = batch[1].waitValue.address = word + 16;
    batch[0].writeValue.value64 = batch[1].waitValue.value64 = UINT64_C(0x123456789a);
    batch[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    batch[2].writeValue.address = word + 32;
    batch[2].writeValue.value = 77;
    CHECK_EQ(cuStreamBatchMemOp(a, 3, batch, 0), CUDA_SUCCESS);
    CHECK_EQ(cuStreamSynchronize(a), CUDA_SUCCESS);
    CHECK_EQ(vt_read(word, 8), 77);
    CHECK_EQ(vt_read(word, 4), 0x3456789a);
    CHECK_EQ(cuStreamWaitValue32(a, word + 2, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamWaitValue32(a, word, 0, 0x100), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamWaitValue32(a, word, 0, CU_STREAM_WAIT_VALUE_FLUSH), CUDA_ERROR_NOT_SUPPORTED);
}

TEST(vgpu_streams, streams_wait_for_words_in_four_ways_and_write_them)
{
    vt_quiet(NULL, words);
}

static void attributes(void)
{
    CUstream stream;
    unsigned flags;
    int priority;
    CUcontext context, current;
    CUgreenCtx green = (CUgreenCtx)&stream;
    CUstreamAttrValue value = {.syncPolicy = CU_SYNC_POLICY_YIELD}, got = {.syncPolicy = 0};
    CHECK_EQ(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -3), CUDA_SUCCESS);
    CHECK_EQ(cuStreamGetPriority(stream, &priority), CUDA_SUCCESS);
    CHECK_EQ(cuStreamGetFlags(stream, &flags), CUDA_SUCCESS);
    CHECK_EQ(cuStreamGetCtx(stream, &context), CUDA_SUCCESS);
    CHECK_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    CHECK_EQ(priority, -3);
    CHECK_EQ(flags, CU_STREAM_NON_BLOCKING);
    CHECK(context == current);
    CHECK(cuStreamGetGreenCtx(stream, &green) == CUDA_SUCCESS && !green);
    CHECK_EQ(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value),
             CUDA_SUCCESS);
    CHECK_EQ(cuStreamGetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got),
             CUDA_SUCCESS);
    CHECK_EQ(got.syncPolicy, CU_SYNC_POLICY_YIELD);
    CHECK_EQ(cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &got),
             CUDA_ERROR_INVALID_VALUE);
}

TEST(vgpu_streams, a_stream_gives_back_what_it_was_made_with)
{
    vt_quiet(NULL, attributes);
}
