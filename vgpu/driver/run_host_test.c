/* What the host has waited for, and hands on to kernels: it is ordered; what it has not waited for
 * races. */
#include "testing.h"

#include <sched.h>
#include <semaphore.h>
#include <shim.h>
#include <stdatomic.h>
#include <string.h>

/* How the host waits for the stream that writes the data. */
enum wait { NOT, STREAM, QUERY, EVENT, ELAPSED };

/* A kernel waits for a word of the host; meanwhile another stream writes `data`, which the kernel
 * then writes too. */
static void hand_on(enum wait wait)
{
    CUdeviceptr data = vt_device(64);
    volatile uint32_t *flag = vt_mapped(64);
    CUstream waiting = vt_stream(CU_STREAM_NON_BLOCKING);
    CUstream writing = vt_stream(CU_STREAM_NON_BLOCKING);
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(vt_await((CUdeviceptr)flag, 1, data, waiting));
    OK(vt_put(data, 7, writing));
    OK(cuEventRecord(event, writing));
    if (wait == STREAM) OK(cuStreamSynchronize(writing));
    if (wait == EVENT) OK(cuEventSynchronize(event));
    float ms;
    while (wait == ELAPSED && cuEventElapsedTime(&ms, event, event) == CUDA_ERROR_NOT_READY) {
    }
    while (wait == QUERY && cuStreamQuery(writing) == CUDA_ERROR_NOT_READY) {
    }
    __atomic_store_n(&flag[0], 1, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(waiting));
    if (wait != NOT) CHECK_EQ(vt_read(data, 0), 1);
}

static void after_the_stream(void)
{
    hand_on(STREAM);
}

static void after_a_query(void)
{
    hand_on(QUERY);
}

static void after_an_event(void)
{
    hand_on(EVENT);
}

static void after_a_time(void)
{
    hand_on(ELAPSED);
}

static void without_a_wait(void)
{
    hand_on(NOT);
}

TEST(vgpu_host, hands_on_what_it_has_waited_for_to_a_kernel_that_acquires_its_word)
{
    vt_quiet(NULL, after_the_stream);
    vt_quiet(NULL, after_a_query);
    vt_quiet(NULL, after_an_event);
    vt_quiet(NULL, after_a_time);
}

TEST(vgpu_host, does_not_hand_on_what_it_has_not_waited_for)
{
    static char text[8192];
    CHECK_EQ(vt_run(NULL, without_a_wait, text, sizeof text), 86);
    CHECK_MESSAGE(strstr(text, "race") != NULL, "%s", text);
}

/* The stream that writes the data has been destroyed, and its work may have ended, when the host
 * waits; then another stream writes the data. */
static void destroyed(unsigned flags)
{
    CUdeviceptr data = vt_device(64);
    CUstream writing = vt_stream(flags), after = vt_stream(CU_STREAM_NON_BLOCKING);
    OK(vt_put(data, 1, writing));
    OK(cuStreamDestroy(writing));
    for (int i = 0; i < 1000; i++) OK(cuStreamQuery(after)); /* lets the kernel run */
    (void)vt_stream(CU_STREAM_NON_BLOCKING);                 /* forgets what has ended */
    if ((flags & CU_STREAM_NON_BLOCKING) != 0) OK(cuCtxSynchronize());
    while (cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY) {
    }
    OK(vt_put(data, 2, after));
    OK(cuStreamSynchronize(after));
    CHECK_EQ(vt_read(data, 0), 2);
}

static void destroyed_blocking(void)
{
    destroyed(CU_STREAM_DEFAULT);
}

static void destroyed_apart(void)
{
    destroyed(CU_STREAM_NON_BLOCKING);
}

TEST(vgpu_host, waits_for_streams_that_were_destroyed)
{
    vt_quiet(NULL, destroyed_blocking);
    vt_quiet(NULL, destroyed_apart);
}

static void CUDA_CB tell(void *arg)
{
    atomic_store((atomic_int *)arg, 1);
}

static void told_by_a_host_function(void)
{
    atomic_int told = 0;
    CUdeviceptr data = vt_device(64);
    CUstream first = vt_stream(CU_STREAM_NON_BLOCKING);
    CUstream second = vt_stream(CU_STREAM_NON_BLOCKING);
    OK(vt_put(data, 1, first));
    OK(cuLaunchHostFunc(first, tell, &told));
    while (!atomic_load(&told)) (void)cuStreamQuery(second);
    OK(vt_put(data, 2, second));
    OK(cuStreamSynchronize(second));
    CHECK_EQ(vt_read(data, 0), 2);
}

TEST(vgpu_host, knows_what_comes_before_a_host_function_that_has_begun)
{
    vt_quiet(NULL, told_by_a_host_function);
}

/* ---- what a host function has waited for, or has been told ---- */

static volatile uint32_t *told_by_kernel;
static sem_t told_by_thread;

static void CUDA_CB wait_for_kernel(void *arg)
{
    (void)arg;
    while (__atomic_load_n(told_by_kernel, __ATOMIC_ACQUIRE) == 0) sched_yield();
}

static void CUDA_CB wait_for_thread(void *arg)
{
    (void)arg;
    while (sem_wait(&told_by_thread) != 0) {
    }
}

/* A kernel behind a host function writes what another stream has written; the function waits for
 * the kernel's flag. */
static void function_waits_for_a_kernel(void)
{
    CUdeviceptr data = vt_device(64);
    told_by_kernel = vt_mapped(64);
    CUstream writing = vt_stream(CU_STREAM_NON_BLOCKING);
    CUstream after = vt_stream(CU_STREAM_NON_BLOCKING);
    OK(cuLaunchHostFunc(after, wait_for_kernel, NULL));
    OK(vt_put(data, 2, after));
    OK(vt_put(data, 1, writing));
    OK(vt_launch(vt.set, 1, writing, (void *[]){&told_by_kernel, &(uint32_t){1}}));
    OK(cuStreamSynchronize(after));
    OK(cuStreamSynchronize(writing));
    CHECK_EQ(vt_read(data, 0), 2);
}

static void function_waits_for_a_thread(void)
{
    CUdeviceptr data = vt_device(64);
    sem_init(&told_by_thread, 0, 0);
    CUstream writing = vt_stream(CU_STREAM_NON_BLOCKING);
    CUstream after = vt_stream(CU_STREAM_NON_BLOCKING);
    OK(cuLaunchHostFunc(after, wait_for_thread, NULL));
    OK(vt_put(data, 2, after));
    OK(vt_put(data, 1, writing));
    OK(cuStreamSynchronize(writing));
    sem_post(&told_by_thread);
    OK(cuStreamSynchronize(after));
    CHECK_EQ(vt_read(data, 0), 2);
}

TEST(vgpu_host, a_host_function_hands_on_what_it_has_waited_for_to_the_work_behind_it)
{
    vt_quiet(NULL, function_waits_for_a_kernel);
    vt_quiet(NULL, function_waits_for_a_thread);
}

/* ---- memory becomes one that others can reach between a release and its acquire ---- */

static void share(CUdeviceptr memory)
{
    CUipcMemHandle handle;
    for (int i = 0; i < 1000; i++) (void)cuDeviceGetCount(&(int){0}); /* lets the kernels run */
    OK(cuIpcGetMemHandle(&handle, memory));
}

static void shared_behind_a_release_for_all(void)
{
    CUdeviceptr data = vt_device(64), flag = vt_device(64);
    CUstream writing = vt_stream(CU_STREAM_NON_BLOCKING);
    CUstream waiting = vt_stream(CU_STREAM_NON_BLOCKING);
    OK(vt_await(flag, 1, flag + 4, waiting));
    OK(vt_put(data, 2, waiting));
    OK(vt_put(data, 1, writing));
    OK(vt_launch(vt.set, 1, writing, (void *[]){&flag, &(uint32_t){1}}));
    share(flag);
    OK(cuCtxSynchronize());
    CHECK_EQ(vt_read(data, 0), 2);
}

/* Each kernel releases its flag at scope .gpu and waits for the other one's. */
static void shared_behind_a_release_for_the_gpu(void)
{
    CUdeviceptr data = vt_device(64), mine = vt_device(64), theirs = mine + 4;
    CUstream writing = vt_stream(CU_STREAM_NON_BLOCKING);
    CUstream waiting = vt_stream(CU_STREAM_NON_BLOCKING);
    OK(vt_put(data, 1, writing));
    OK(vt_launch(vt.turns, 1, writing, (void *[]){&mine, &theirs, &(uint32_t){1}}));
    share(mine);
    OK(vt_launch(vt.turns, 1, waiting, (void *[]){&theirs, &mine, &(uint32_t){1}}));
    OK(vt_put(data, 2, waiting));
    OK(cuCtxSynchronize());
    CHECK_EQ(vt_read(data, 0), 2);
}

TEST(vgpu_host, shares_memory_whose_flag_is_released_and_not_yet_acquired)
{
    vt_quiet(NULL, shared_behind_a_release_for_all);
    vt_quiet(NULL, shared_behind_a_release_for_the_gpu);
}
