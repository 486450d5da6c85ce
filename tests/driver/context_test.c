/* Primary contexts on two virtual GPUs: memory, copies and streams, beside kernels that run. */
#include "driver/context.h"

#include <dirent.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "driver/calls.h"
#include "driver/capture.h"
#include "driver/context_internal.h"
#include "driver/driver.h"

/* (word): waits until the word is not 0. (log, id): log[++log[0]] = id. One thread. */
static const char ptx[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry await(.param .u64 word)\n"
    "{ .reg .u32 %r<2>; .reg .u64 %rd<2>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1, [word];\n"
    "L: ld.acquire.sys.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; ret; }\n"
    ".visible .entry append(.param .u64 log, .param .u32 id)\n"
    "{ .reg .u32 %r<3>; .reg .u64 %rd<3>;\n"
    "  ld.param.u64 %rd1, [log]; ld.param.u32 %r1, [id];\n"
    "  ld.global.u32 %r2, [%rd1]; add.u32 %r2, %r2, 1; st.global.u32 [%rd1], %r2;\n"
    "  mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r1; ret; }\n";

struct kernels {
    CUmodule module;
    CUfunction await, append;
};

static void load(struct tt_context *context, struct kernels *kernels)
{
    CHECK_EQ(tt_context_enter(context), TT_OK);
    CALL(cuModuleLoadData, &kernels->module, ptx);
    CALL(cuModuleGetFunction, &kernels->await, kernels->module, "await");
    CALL(cuModuleGetFunction, &kernels->append, kernels->module, "append");
    tt_context_leave(context);
}

static void unload(struct tt_context *context, struct kernels *kernels)
{
    CHECK_EQ(tt_context_enter(context), TT_OK);
    CALL(cuModuleUnload, kernels->module);
    tt_context_leave(context);
}

static void launch(struct tt_context *context, CUfunction kernel, void *stream, void **parameters)
{
    CHECK_EQ(tt_context_enter(context), TT_OK);
    CALL(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    tt_context_leave(context);
}

static CUcontext current(void)
{
    CUcontext context = NULL;
    CALL(cuCtxGetCurrent, &context);
    return context;
}

static void read_back(struct tt_context *context, void *to, const void *from, size_t nbytes)
{
    CUstream stream = NULL;
    CHECK_EQ(tt_context_enter(context), TT_OK);
    CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CALL(cuMemcpyDtoHAsync_v2, to, (CUdeviceptr)(uintptr_t)from, nbytes, stream);
    CALL(cuStreamSynchronize, stream);
    CALL(cuStreamDestroy_v2, stream);
    tt_context_leave(context);
}

static size_t available(struct tt_context *context)
{
    size_t nbytes = 0, total;
    CHECK_EQ(tt_context_enter(context), TT_OK);
    CALL(cuMemGetInfo_v2, &nbytes, &total);
    tt_context_leave(context);
    return nbytes;
}

TEST(context, a_gpu_has_one_context_and_no_gpu_has_none)
{
    struct tt_context *first = NULL, *again = NULL, *second = NULL;
    REQUIRE(tt_context_open(0, &first) == TT_OK);
    CHECK_EQ(tt_context_open(0, &again), TT_OK);
    CHECK_EQ(tt_context_open(1, &second), TT_OK);
    CHECK(first == again && first != second);
    CHECK_EQ(tt_context_gpu(first), 0);
    CHECK_EQ(tt_context_gpu(second), 1);
    CHECK_EQ(tt_context_open(2, &again), TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "GPU 2 does not exist") != NULL);
    CHECK_EQ(tt_context_open(-1, &again), TT_ERR_ARGUMENT);
    tt_context_close(first);
    tt_context_close(first);
    tt_context_close(second);
    tt_context_close(NULL);
}

/* Every function that the header has, once. */
static void use_all(struct tt_context *context)
{
    void *memory = NULL, *pinned = NULL, *stream = NULL;
    const char byte = 1;
    char *base = NULL;
    int fd = -1;
    size_t exported = 0;
    CHECK_EQ(tt_context_allocate(context, 100, &memory), TT_OK);
    CHECK_EQ(tt_context_export(context, memory, 100, &fd, &base, &exported), TT_OK);
    close(fd);
    CHECK_EQ(tt_context_allocate_host(context, 100, &pinned), TT_OK);
    CHECK_EQ(tt_context_upload(context, memory, &byte, 1), TT_OK);
    CHECK_EQ(tt_context_stream_create(context, &stream), TT_OK);
    CHECK_EQ(tt_context_stream_follow(context, stream, NULL), TT_OK);
    CHECK_EQ(tt_context_stream_synchronize(context, stream), TT_OK);
    tt_context_stream_destroy(context, stream);
    tt_context_free_host(context, pinned);
    tt_context_free(context, memory);
}

TEST(context, the_current_context_is_left_as_it_was)
{
    CUcontext mine = NULL;
    struct tt_context *context = NULL;
    CALL(cuInit, 0);
    CALL(cuCtxSetCurrent, NULL);
    REQUIRE(tt_context_open(0, &context) == TT_OK);
    use_all(context);
    CHECK(current() == NULL);
    CALL(cuDevicePrimaryCtxRetain, &mine, 1);
    CALL(cuCtxSetCurrent, mine);
    use_all(context);
    CHECK(tt_context_allocate(context, (size_t)1 << 40, &(void *){NULL}) != TT_OK);
    CHECK(current() == mine);
    tt_context_close(context);
    CHECK(current() == mine);
    CALL(cuCtxSetCurrent, NULL);
    CALL(cuDevicePrimaryCtxRelease_v2, 1);
}

TEST(context, memory_is_zeroed_aligned_and_of_its_gpu)
{
    enum { NBYTES = 3 << 20 };
    unsigned char *host = malloc(NBYTES), *old = malloc(NBYTES);
    memset(old, 0xa5, NBYTES);
    for (int gpu = 0; gpu < 2; gpu++) {
        struct tt_context *context = NULL;
        REQUIRE(tt_context_open(gpu, &context) == TT_OK);
        for (int turn = 0; turn < 2; turn++) {
            void *memory = NULL;
            struct tt_pointer pointer;
            CHECK_EQ(tt_context_allocate(context, NBYTES, &memory), TT_OK);
            CHECK_EQ((uintptr_t)memory % 512, 0);
            CHECK_EQ(tt_driver_pointer(memory, &pointer), TT_OK);
            CHECK_EQ(pointer.gpu, gpu);
            read_back(context, host, memory, NBYTES);
            size_t nwrong = 0;
            for (size_t i = 0; i < NBYTES; i++) nwrong += host[i] != 0;
            CHECK_EQ(nwrong, 0);
            CHECK_EQ(tt_context_upload(context, memory, old, NBYTES), TT_OK);
            read_back(context, host, memory, NBYTES);
            CHECK_EQ(memcmp(host, old, NBYTES), 0);
            tt_context_free(context, memory);
        }
        tt_context_close(context);
    }
    free(old);
    free(host);
}

TEST(context, pinned_memory_is_zeroed_and_has_one_address_for_all_gpus)
{
    struct tt_context *contexts[2] = {NULL, NULL};
    uint32_t *pinned = NULL;
    CHECK_EQ(tt_context_open(0, &contexts[0]), TT_OK);
    CHECK_EQ(tt_context_open(1, &contexts[1]), TT_OK);
    CHECK_EQ(tt_context_allocate_host(contexts[0], 4096, (void **)&pinned), TT_OK);
    REQUIRE(!tt_test_failed());
    for (int i = 0; i < 1024; i++) CHECK_EQ(pinned[i], 0);
    for (int gpu = 0; gpu < 2; gpu++) {
        struct kernels kernels;
        uint32_t id = 7 + (uint32_t)gpu;
        load(contexts[gpu], &kernels);
        launch(contexts[gpu], kernels.append, NULL, (void *[]){&pinned, &id});
        CHECK_EQ(tt_context_stream_synchronize(contexts[gpu], NULL), TT_OK);
        unload(contexts[gpu], &kernels);
    }
    CHECK_EQ(pinned[0], 2);
    CHECK_EQ(pinned[1], 7);
    CHECK_EQ(pinned[2], 8);
    tt_context_free_host(contexts[0], pinned);
    tt_context_close(contexts[0]);
    tt_context_close(contexts[1]);
}

TEST(context, out_of_memory_says_how_much_was_asked_for_and_how_much_is_free)
{
    struct tt_context *context = NULL;
    void *memory = NULL;
    char expected[64];
    REQUIRE(tt_context_open(1, &context) == TT_OK);
    snprintf(expected, sizeof expected, "%zu of ", available(context));
    CHECK_EQ(tt_context_allocate(context, (size_t)1 << 40, &memory), TT_ERR_SYSTEM);
    CHECK(memory == NULL);
    CHECK(strstr(tt_last_error(), "GPU 1 is out of memory: 1099511627776 bytes") != NULL);
    CHECK_MESSAGE(strstr(tt_last_error(), expected) != NULL, "no \"%s\" in: %s", expected,
                  tt_last_error());
    CHECK_EQ(tt_context_allocate(context, 1 << 20, &memory), TT_OK);
    tt_context_free(context, memory);
    tt_context_close(context);
}

/* The driver's own functions that free memory wait for kernels. */
static void use_memory_beside_kernels(struct tt_context *context)
{
    void *memory = NULL, *pinned = NULL;
    const uint64_t value = 5;
    uint64_t now = 0;
    for (int turn = 0; turn < 3; turn++) {
        CHECK_EQ(tt_context_allocate(context, 1 << 20, &memory), TT_OK);
        read_back(context, &now, memory, sizeof now);
        CHECK_EQ(now, 0);
        CHECK_EQ(tt_context_upload(context, memory, &value, sizeof value), TT_OK);
        read_back(context, &now, memory, sizeof now);
        CHECK_EQ(now, 5);
        CHECK_EQ(tt_context_allocate_host(context, 4096, &pinned), TT_OK);
        CHECK_EQ(*(char *)pinned, 0);
        *(char *)pinned = 1;
        tt_context_free_host(context, pinned);
        tt_context_free(context, memory);
    }
}

/* One kernel runs on the legacy stream, and one is on a stream that waits for the legacy stream. A
 * call that waited for them would never return: the virtual GPU reports that. */
TEST(context, calls_do_not_wait_for_a_kernel_that_runs)
{
    struct tt_context *context = NULL;
    struct kernels kernels;
    CUstream busy = NULL;
    uint32_t *word = NULL;
    REQUIRE(tt_context_open(0, &context) == TT_OK);
    load(context, &kernels);
    CHECK_EQ(tt_context_allocate_host(context, 4, (void **)&word), TT_OK);
    CHECK_EQ(tt_context_enter(context), TT_OK);
    CALL(cuStreamCreate, &busy, CU_STREAM_DEFAULT);
    tt_context_leave(context);
    launch(context, kernels.await, NULL, (void *[]){&word});
    launch(context, kernels.await, busy, (void *[]){&word});

    void *one = NULL, *other = NULL;
    use_memory_beside_kernels(context);
    CHECK_EQ(tt_context_stream_create(context, &one), TT_OK);
    CHECK_EQ(tt_context_stream_create(context, &other), TT_OK);
    CHECK_EQ(tt_context_stream_follow(context, one, other), TT_OK);
    CHECK_EQ(tt_context_stream_follow(context, other, busy), TT_OK);
    CHECK_EQ(tt_context_stream_synchronize(context, one), TT_OK);
    CHECK_EQ(tt_context_enter(context), TT_OK);
    CHECK_EQ(RESULT(cuStreamQuery, NULL), CUDA_ERROR_NOT_READY);
    CHECK_EQ(RESULT(cuStreamQuery, other), CUDA_ERROR_NOT_READY);
    tt_context_leave(context);

    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    CHECK_EQ(tt_context_stream_synchronize(context, other), TT_OK);
    tt_context_stream_destroy(context, busy);
    tt_context_stream_destroy(context, one);
    tt_context_stream_destroy(context, other);
    tt_context_free_host(context, word);
    unload(context, &kernels);
    tt_context_close(context);
}

/* Without the order the kernels would race, which the virtual GPU reports. */
TEST(context, a_stream_follows_another_one_as_often_as_asked)
{
    enum { TURNS = 50 };
    struct tt_context *context = NULL;
    struct kernels kernels;
    void *log = NULL, *streams[2] = {NULL, NULL};
    uint32_t host[TURNS + 1];
    REQUIRE(tt_context_open(0, &context) == TT_OK);
    load(context, &kernels);
    CHECK_EQ(tt_context_allocate(context, sizeof host, &log), TT_OK);
    for (int i = 0; i < 2; i++) CHECK_EQ(tt_context_stream_create(context, &streams[i]), TT_OK);
    for (uint32_t i = 0; i < TURNS; i++) {
        void *mine = streams[i % 2], *next = streams[(i + 1) % 2];
        launch(context, kernels.append, mine, (void *[]){&log, &i});
        CHECK_EQ(tt_context_stream_follow(context, next, mine), TT_OK);
    }
    for (int i = 0; i < 2; i++) CHECK_EQ(tt_context_stream_synchronize(context, streams[i]), TT_OK);
    read_back(context, host, log, sizeof host);
    CHECK_EQ(host[0], TURNS);
    for (uint32_t i = 0; i < TURNS; i++) CHECK_EQ(host[i + 1], i);
    for (int i = 0; i < 2; i++) tt_context_stream_destroy(context, streams[i]);
    tt_context_free(context, log);
    unload(context, &kernels);
    tt_context_close(context);
}

TEST(context, the_capture_of_a_stream_goes_on)
{
    struct tt_context *context = NULL;
    CUstream capturing = NULL;
    CUgraph graph = NULL;
    void *memory = NULL;
    const char byte = 1;
    REQUIRE(tt_context_open(0, &context) == TT_OK);
    CHECK_EQ(tt_context_stream_create(context, (void **)&capturing), TT_OK);
    CHECK_EQ(tt_context_enter(context), TT_OK);
    CALL(cuStreamBeginCapture_v2, capturing, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK_EQ(tt_context_allocate(context, 100, &memory), TT_OK);
    CHECK_EQ(tt_context_upload(context, memory, &byte, 1), TT_OK);
    tt_context_free(context, memory);
    use_all(context);
    CALL(cuStreamEndCapture, capturing, &graph);
    CHECK(graph != NULL);
    CALL(cuGraphDestroy, graph);
    tt_context_leave(context);
    tt_context_stream_destroy(context, capturing);
    tt_context_close(context);
}

/* Its memory is freed then. */
TEST(context, the_capture_of_a_stream_goes_on_when_the_context_of_another_gpu_is_closed)
{
    struct tt_context *context = NULL, *other = NULL;
    CUstream capturing = NULL;
    CUgraph graph = NULL;
    void *memory = NULL;
    if (tt_driver_ngpus(NULL) < 2) SKIP("one GPU");
    REQUIRE(tt_context_open(0, &context) == TT_OK);
    REQUIRE(tt_context_open(1, &other) == TT_OK);
    CHECK_EQ(tt_context_stream_create(context, (void **)&capturing), TT_OK);
    CHECK_EQ(tt_context_allocate(other, 100, &memory), TT_OK);
    tt_context_free(other, memory);
    CHECK_EQ(tt_context_enter(context), TT_OK);
    CALL(cuStreamBeginCapture_v2, capturing, CU_STREAM_CAPTURE_MODE_GLOBAL);
    tt_context_close(other);
    CALL(cuStreamEndCapture, capturing, &graph);
    CHECK(graph != NULL);
    CALL(cuGraphDestroy, graph);
    tt_context_leave(context);
    tt_context_stream_destroy(context, capturing);
    tt_context_close(context);
}

struct worker {
    pthread_t thread;
    int gpu;
};

static void *work(void *argument)
{
    const struct worker *worker = argument;
    for (int i = 0; i < 20; i++) {
        struct tt_context *context = NULL;
        CHECK_EQ(tt_context_open(worker->gpu, &context), TT_OK);
        if (context) use_all(context);
        CHECK(current() == NULL);
        tt_context_close(context);
    }
    return NULL;
}

/* ---- Objects of graphs ---------------------------------------------------------------------- */

static _Atomic int ngone;
static int nreleased;

static void CUDA_CB is_gone(void *arg)
{
    (void)arg;
    ngone++;
}

static CUresult CUDAAPI refuse(CUgraph graph, CUuserObject object, unsigned count, unsigned flags)
{
    (void)graph, (void)object, (void)count, (void)flags;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult CUDAAPI release(CUuserObject object, unsigned count)
{
    CALL(cuUserObjectRelease, object, count);
    nreleased++;
    return CUDA_SUCCESS;
}

/* What a graph does not take is given back, and is nobody's any more. */
TEST(context, an_object_that_a_graph_refuses_is_released_and_its_owner_not_told)
{
    struct tt_context *context;
    CUgraph graph = NULL;
    REQUIRE(tt_context_open(0, &context) == TT_OK);
    const struct tt_cuda *cu = context->cu;
    struct tt_cuda unwilling = *cu;
    unwilling.GraphRetainUserObject = refuse;
    unwilling.UserObjectRelease = release;
    CALL(cuGraphCreate, &graph, 0);
    context->cu = &unwilling;
    CHECK_EQ(tt_capture_keep(context, graph, is_gone, NULL), TT_ERR_DEVICE);
    context->cu = cu;
    CHECK_EQ(nreleased, 1);
    CHECK_EQ(tt_capture_keep(context, graph, is_gone, NULL), TT_OK);
    CHECK_EQ(ngone, 0);
    CALL(cuGraphDestroy, graph);
    const int64_t late = tt_deadline_ns(20000); /* another thread calls */
    while (!ngone && !tt_expired(late)) tt_test_pause();
    CHECK_EQ(ngone, 1);
    tt_context_close(context);
}

/* As the driver does where the stream waits for an event in the middle of a kernel. */
static CUresult CUDAAPI lossy(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                              CUgraph *graph, const CUgraphNode **nodes,
                              const CUgraphEdgeData **edges, size_t *n)
{
    if (nodes && !edges) return CUDA_ERROR_LOSSY_QUERY;
    return RESULT(cuStreamGetCaptureInfo_v3, stream, status, id, graph, nodes, edges, n);
}

TEST(context, a_capture_whose_edges_have_data_is_found)
{
    struct tt_context *context;
    struct tt_capture capture;
    CUgraph graph = NULL;
    void *stream = NULL;
    uint64_t id = 0;
    REQUIRE(tt_context_open(0, &context) == TT_OK);
    REQUIRE(tt_context_stream_create(context, &stream) == TT_OK);
    const struct tt_cuda *cu = context->cu;
    struct tt_cuda careful = *cu;
    careful.StreamGetCaptureInfo = lossy;
    CHECK_EQ(tt_context_enter(context), TT_OK);
    CALL(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    context->cu = &careful;
    CHECK_EQ(tt_capture_find(context, stream, &id), TT_OK);
    CHECK(id != 0);
    CHECK_EQ(tt_capture_open(context, stream, &capture), TT_OK);
    CHECK_EQ(capture.id, id);
    tt_capture_close(&capture);
    context->cu = cu;
    CALL(cuStreamEndCapture, stream, &graph);
    CALL(cuGraphDestroy, graph);
    tt_context_leave(context);
    tt_context_stream_destroy(context, stream);
    tt_context_close(context);
}

TEST(context, threads_use_one_context_and_several)
{
    struct worker workers[4];
    for (int i = 0; i < 4; i++) {
        workers[i].gpu = i / 3;
        CHECK_EQ(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(workers[i].thread, NULL);
}

TEST(context, memory_that_was_freed_is_used_again)
{
    struct tt_context *context = NULL;
    void *first = NULL, *again = NULL, *other = NULL;
    REQUIRE(tt_context_open(0, &context) == TT_OK);
    const size_t before = available(context);
    CHECK_EQ(tt_context_allocate(context, 3 << 20, &first), TT_OK);
    const size_t held = before - available(context);
    for (int i = 0; i < 20; i++) {
        tt_context_free(context, first);
        CHECK_EQ(tt_context_allocate(context, (3u << 20) - 100 * (unsigned)i, &again), TT_OK);
        CHECK(again == first);
        CHECK_EQ(tt_context_allocate(context, 1 << 20, &other), TT_OK);
        CHECK(other != first);
        tt_context_free(context, other);
    }
    CHECK_EQ(tt_context_allocate(context, 1 << 20, &other), TT_OK);
    tt_context_free(context, again);
    CHECK_EQ(tt_context_allocate(context, 1 << 10, &again), TT_OK); /* far smaller */
    CHECK(again != first);
    CHECK(before - available(context) <= 2 * held);
    tt_context_free(context, again);
    tt_context_free(context, other);
    tt_context_close(context);
}

/* The process itself uses the GPU: its context lives on. */
TEST(context, the_last_close_gives_all_memory_back)
{
    struct tt_context *context = NULL;
    CUcontext mine = NULL;
    void *memory = NULL;
    size_t before = 0, after = 0, total;
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &mine, 0);
    CALL(cuCtxPushCurrent_v2, mine);
    CALL(cuMemGetInfo_v2, &before, &total);
    REQUIRE(tt_context_open(0, &context) == TT_OK);
    CHECK_EQ(tt_context_allocate(context, 1 << 20, &memory), TT_OK);
    tt_context_free(context, memory);
    CHECK_EQ(tt_context_allocate(context, 3 << 20, &memory), TT_OK); /* never freed */
    tt_context_close(context);
    CALL(cuMemGetInfo_v2, &after, &total);
    CHECK_EQ(after, before);
    CALL(cuCtxPopCurrent_v2, &mine);
    CALL(cuDevicePrimaryCtxRelease_v2, 0);
}

static int descriptors(void)
{
    int n = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory)) n++;
    if (directory) closedir(directory);
    return n;
}

static bool is_active(int gpu)
{
    unsigned flags;
    int active = -1;
    CALL(cuDevicePrimaryCtxGetState, gpu, &flags, &active);
    return active != 0;
}

TEST(context, opening_and_closing_leaves_nothing)
{
    const bool active_before = is_active(1);
    size_t free_before = 0;
    int descriptors_before = 0;
    for (int i = 0; i < 100; i++) {
        struct tt_context *context = NULL;
        REQUIRE(tt_context_open(1, &context) == TT_OK);
        use_all(context);
        if (i == 0) {
            free_before = available(context);
            descriptors_before = descriptors();
        }
        CHECK_EQ(available(context), free_before);
        CHECK_EQ(descriptors(), descriptors_before);
        tt_context_close(context);
        CHECK_EQ(is_active(1), active_before);
    }
}
