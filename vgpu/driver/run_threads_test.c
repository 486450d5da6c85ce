/* Two threads destroy, or one uses what the other destroys, while work runs that both wait for;
 * and threads that need the lock while a kernel runs. */
#include "testing.h"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <shim.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TURNS = 2000 };

/* So many turns take long on a machine that has other work. */
static const char *const patient[] = {"VGPU_STALL_MS=60000", NULL};

static CUcontext primary, second;
static CUlibrary library;
static CUevent shared;
static volatile uint32_t *word;
static atomic_int calling; /* threads that are about to call */

/* The context's work waits until the host writes 1 to the word. */
static void hold(CUstream stream)
{
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)word;
    CHECK_EQ(cuStreamWaitValue32(stream, at, 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
}

static void open_word(void)
{
    CHECK_EQ(cuCtxGetCurrent(&primary), CUDA_SUCCESS);
    word = vt_mapped(64);
}

/* The threads get the time to wait. One that comes later finds what it names destroyed. */
static void let_wait(int threads)
{
    int device;
    while (atomic_load(&calling) < threads) sched_yield();
    for (int i = 0; i < TURNS; i++) {
        CHECK_EQ(cuDeviceGet(&device, 0), CUDA_SUCCESS);
        sched_yield();
    }
}

/* Two threads make the call: one of them gets `expected`, the other one `other`. */
static void both(void *(*call)(void *), CUresult expected, CUresult other)
{
    CUresult results[2] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_UNKNOWN};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_create(&threads[i], NULL, call, &results[i]), 0);
    let_wait(2);
    *word = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    const int late = results[0] != expected;
    CHECK_EQ(results[late], expected);
    CHECK_EQ(results[!late], other);
}

static void *destroy_context(void *result)
{
    atomic_fetch_add(&calling, 1);
    *(CUresult *)result = cuCtxDestroy(second);
    return NULL;
}

static void one_context(void)
{
    open_word();
    CHECK_EQ(cuCtxCreate(&second, NULL, 0, 0), CUDA_SUCCESS);
    hold(NULL);
    both(destroy_context, CUDA_SUCCESS, CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_EQ(cuCtxSetCurrent(primary), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST(vgpu_threads, two_may_destroy_one_context)
{
    vt_quiet(patient, one_context);
}

static void *reset(void *result)
{
    atomic_fetch_add(&calling, 1);
    *(CUresult *)result = cuDevicePrimaryCtxReset(0);
    return NULL;
}

static void one_reset(void)
{
    open_word();
    hold(NULL);
    both(reset, CUDA_SUCCESS, CUDA_SUCCESS);
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_EQ(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST(vgpu_threads, two_may_reset_one_device)
{
    vt_quiet(patient, one_reset);
}

static void *unload(void *result)
{
    atomic_fetch_add(&calling, 1);
    *(CUresult *)result = cuLibraryUnload(library);
    return NULL;
}

static void one_library(void)
{
    static const char ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
                              ".visible .entry nothing() { ret; }\n";
    CUmodule module;
    open_word();
    CHECK_EQ(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
    CHECK_EQ(cuLibraryGetModule(&module, library), CUDA_SUCCESS);
    hold(NULL);
    both(unload, CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
}

TEST(vgpu_threads, two_may_unload_one_library)
{
    vt_quiet(patient, one_library);
}

static void *wait_for_event(void *result)
{
    CHECK_EQ(cuCtxSetCurrent(primary), CUDA_SUCCESS);
    atomic_fetch_add(&calling, 1);
    *(CUresult *)result = cuEventSynchronize(shared);
    return NULL;
}

static void one_event(void)
{
    CUresult result = CUDA_ERROR_UNKNOWN;
    pthread_t thread;
    open_word();
    CHECK_EQ(cuEventCreate(&shared, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    hold(NULL);
    CHECK_EQ(cuEventRecord(shared, NULL), CUDA_SUCCESS);
    CHECK_EQ(pthread_create(&thread, NULL, wait_for_event, &result), 0);
    let_wait(1);
    CHECK_EQ(cuEventDestroy(shared), CUDA_SUCCESS);
    *word = 1;
    pthread_join(thread, NULL);
    CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_HANDLE);
}

/* Only a sanitizer sees that the event was read after it was freed. */
TEST(vgpu_threads, one_may_destroy_the_event_of_several_processes_that_another_waits_for)
{
    vt_quiet(patient, one_event);
}

static void *own_stream(void *id)
{
    CHECK_EQ(cuCtxSetCurrent(primary), CUDA_SUCCESS);
    CHECK_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, id), CUDA_SUCCESS);
    return NULL;
}

static void own_streams(void)
{
    unsigned long long ids[3] = {0};
    CHECK_EQ(cuCtxGetCurrent(&primary), CUDA_SUCCESS);
    own_stream(&ids[0]);
    for (int i = 1; i < 3; i++) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, own_stream, &ids[i]), 0);
        pthread_join(thread, NULL);
    }
    CHECK(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    unsigned long long again = 0;
    own_stream(&again);
    CHECK_EQ(again, ids[0]);
}

static void *work_in_own_stream(void *arg)
{
    OK(cuCtxSetCurrent(primary));
    OK(cuMemsetD32Async((CUdeviceptr)(uintptr_t)arg, 1, 4, CU_STREAM_PER_THREAD));
    return NULL;
}

static void run_threads(int n, CUdeviceptr memory)
{
    for (int i = 0; i < n; i++) {
        pthread_t thread;
        void *own = (void *)(uintptr_t)(memory + 16 * (unsigned)i);
        CHECK_EQ(pthread_create(&thread, NULL, work_in_own_stream, own), 0);
        pthread_join(thread, NULL);
    }
    OK(cuCtxSynchronize());
}

static void many_own_streams(void)
{
    enum { THREADS = 300 };
    const CUdeviceptr memory = vt_device(16 * THREADS);
    OK(cuCtxGetCurrent(&primary));
    run_threads(THREADS, memory);
    size_t least = SIZE_MAX; /* tables grow now and then, streams that stay each time */
    for (int i = 0; i < 4; i++) {
        const size_t before = mallinfo2().uordblks;
        run_threads(THREADS, memory);
        const size_t after = mallinfo2().uordblks, grown = after > before ? after - before : 0;
        if (grown < least) least = grown;
    }
    CHECK_MESSAGE(least < THREADS * sizeof(CUstreamAttrValue), "%zu bytes", least);
}

TEST(vgpu_threads, that_have_ended_leave_no_streams)
{
    vt_quiet(NULL, many_own_streams);
}

/* The second thread lies where the first one lay in memory. */
TEST(vgpu_threads, one_that_has_ended_does_not_leave_its_stream_to_the_next)
{
    vt_quiet(NULL, own_streams);
}

/* ---- a kernel that stores all the time while it waits for the host ---- */

static void *call(void *arg)
{
    int device;
    (void)arg;
    CHECK_EQ(cuDeviceGet(&device, 0), CUDA_SUCCESS);
    return NULL;
}

/* The kernel ends when the host has written 1 to the word. A second thread calls before, so that
 * the executor's own thread runs it. */
static void begin_busy(CUstream stream)
{
    static const char ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
                              ".visible .entry busy(.param .u64 word, .param .u64 count)\n"
                              "{ .reg .u32 %r<3>; .reg .u64 %rd<3>; .reg .pred %p<2>;\n"
                              "  ld.param.u64 %rd1, [word]; ld.param.u64 %rd2, [count];\n"
                              "L: atom.relaxed.gpu.global.add.u32 %r1, [%rd2], 1; "
                              "ld.acquire.sys.global.u32 %r2, [%rd1];\n"
                              "  setp.ne.u32 %p1, %r2, 1; @%p1 bra L; ret; }\n";
    CUmodule module;
    CUfunction busy;
    pthread_t thread;
    open_word();
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)word, count = at + 4;
    CHECK_EQ(cuModuleLoadData(&module, ptx), CUDA_SUCCESS);
    CHECK_EQ(cuModuleGetFunction(&busy, module, "busy"), CUDA_SUCCESS);
    CHECK_EQ(pthread_create(&thread, NULL, call, NULL), 0);
    pthread_join(thread, NULL);
    CHECK_EQ(vt_launch(busy, 1, stream, (void *[]){&at, &count}), CUDA_SUCCESS);
    while (word[1] == 0) sched_yield();
}

static void CUDA_CB write_word(void *arg)
{
    (void)arg;
    *word = 1;
}

static void busy_and_function(void)
{
    const CUstream a = vt_stream(CU_STREAM_NON_BLOCKING), b = vt_stream(CU_STREAM_NON_BLOCKING);
    begin_busy(a);
    CHECK_EQ(cuLaunchHostFunc(b, write_word, NULL), CUDA_SUCCESS);
    CHECK_EQ(cuStreamSynchronize(a), CUDA_SUCCESS);
}

TEST(vgpu_threads, a_host_function_begins_while_a_kernel_stores_all_the_time)
{
    vt_quiet(NULL, busy_and_function);
}

static void busy_and_fork(void)
{
    int status = -1;
    begin_busy(NULL);
    const pid_t child = fork();
    if (child == 0) _exit(0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    *word = 1;
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST(vgpu_threads, a_process_forks_while_a_kernel_stores_all_the_time)
{
    vt_quiet(NULL, busy_and_fork);
}

/* Its first call comes when the main thread has long been waiting for what it launches. */
static void *set_late(void *flag)
{
    usleep(50000);
    OK(cuCtxSetCurrent(vt.context));
    OK(vt_launch(vt.set, 1, vt_stream(CU_STREAM_NON_BLOCKING), (void *[]){flag, &(uint32_t){1}}));
    return NULL;
}

static void wait_for_a_new_thread(void)
{
    pthread_t thread;
    CUdeviceptr flag = vt_device(64);
    CUstream stream = vt_stream(CU_STREAM_NON_BLOCKING);
    CHECK(pthread_create(&thread, NULL, set_late, &flag) == 0);
    OK(vt_await(flag, 1, flag + 4, stream));
    OK(cuStreamSynchronize(stream));
    pthread_join(thread, NULL);
    CHECK_EQ(vt_read(flag, 1), 1);
}

TEST(vgpu_threads, one_that_has_not_called_yet_may_end_what_another_waits_for)
{
    vt_quiet(NULL, wait_for_a_new_thread);
}
