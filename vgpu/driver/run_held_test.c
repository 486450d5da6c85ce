/* VGPU_DRIVER_LOCK: which calls of a thread wait while another thread waits for a kernel inside a
 * call. */
#include "testing.h"

#include <pthread.h>
#include <sched.h>
#include <shim.h>
#include <stdatomic.h>
#include <unistd.h>

enum { STANDS = 2000, ROOM = 4 };

static volatile uint32_t *word;
static CUstream holder, other;
static CUevent event;
static CUdeviceptr freed;
static void *freed_pinned;
static atomic_bool is_open; /* the word is written: the kernel ends */
static atomic_uint ncalls;  /* of the thread that calls until then */

static CUresult launch(void)
{
    return vt_put((CUdeviceptr)(uintptr_t)word + 64, 1, other);
}

static CUresult record(void)
{
    return cuEventRecord(event, other);
}

static CUresult allocate(void)
{
    CUdeviceptr memory;
    return cuMemAlloc(&memory, 64);
}

static CUresult allocate_pinned(void)
{
    void *memory;
    return cuMemHostAlloc(&memory, 64, 0);
}

static CUresult query(void)
{
    return cuStreamQuery(other);
}

static CUresult free_memory(void)
{
    return cuMemFree(freed);
}

static CUresult free_pinned(void)
{
    return cuMemFreeHost(freed_pinned);
}

/* One more than there is room for. */
static CUresult launch_many(void)
{
    for (int i = 0; i <= ROOM; i++) OK(vt_put((CUdeviceptr)(uintptr_t)word + 128, 1, holder));
    return CUDA_SUCCESS;
}

typedef CUresult (*call)(void);

static void *call_once(void *argument)
{
    OK(cuCtxSetCurrent(vt.context));
    OK((*(call *)argument)());
    return NULL;
}

/* Calls again and again until the word is written. */
static void *call_often(void *argument)
{
    OK(cuCtxSetCurrent(vt.context));
    while (!atomic_load(&is_open)) {
        const CUresult result = (*(call *)argument)();
        CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY);
        atomic_fetch_add(&ncalls, 1);
    }
    return NULL;
}

/* Returns when the calling thread stands still; else the test's time runs out. */
static void await_standstill(void)
{
    unsigned before = 0, stands = 0;
    while (stands < STANDS) {
        const unsigned now = atomic_load(&ncalls);
        stands = now == before && now > 0 ? stands + 1 : 0;
        before = now;
        sched_yield();
        if (stands % 100 == 99) usleep(100);
    }
}

static void begin_wait(void)
{
    word = vt_mapped(4096);
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)word;
    holder = vt_stream(CU_STREAM_NON_BLOCKING);
    other = vt_stream(CU_STREAM_NON_BLOCKING);
    freed = vt_device(4096);
    freed_pinned = (void *)(uintptr_t)vt_mapped(64);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(vt_await(at, 1, at + 4, holder));
}

/* Set before a body runs in a child. */
static call waits, waited_for;

static void stands_still(void)
{
    pthread_t threads[2];
    begin_wait();
    REQUIRE(pthread_create(&threads[0], NULL, call_often, &waits) == 0);
    while (!atomic_load(&ncalls)) sched_yield();
    REQUIRE(pthread_create(&threads[1], NULL, call_once, &waited_for) == 0);
    await_standstill();
    atomic_store(&is_open, true);
    *word = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    OK(cuCtxSynchronize());
}

static void check(const char *lock, call a, call b)
{
    waits = a;
    waited_for = b;
    vt_quiet((const char *[]){lock, "VGPU_STALL_MS=60000", "VGPU_LAUNCHES=4", NULL}, stands_still);
}

TEST(vgpu_driver_lock, launches_records_and_allocations_wait_for_who_waits_for_kernels)
{
    check("VGPU_DRIVER_LOCK=on", launch, free_memory);
    check("VGPU_DRIVER_LOCK=on", record, free_pinned);
    check("VGPU_DRIVER_LOCK=on", allocate, cuCtxSynchronize);
    check("VGPU_DRIVER_LOCK=on", allocate_pinned, free_memory);
    check("VGPU_DRIVER_LOCK=on", launch, launch_many);
}

TEST(vgpu_driver_lock, every_call_waits_where_it_is_strict)
{
    check("VGPU_DRIVER_LOCK=strict", query, free_memory);
    check("VGPU_DRIVER_LOCK=strict", query, cuCtxSynchronize);
    check("VGPU_DRIVER_LOCK=strict", query, launch_many);
}

/* The memory is being freed: it can be exported no longer. */
static bool is_being_freed(void)
{
    int fd;
    const CUresult result =
        cuMemGetHandleForAddressRange(&fd, freed, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (result == CUDA_SUCCESS) close(fd);
    return result != CUDA_SUCCESS;
}

/* These return while the other thread waits, and so does everything without the setting. */
static void returns(void)
{
    pthread_t thread;
    begin_wait();
    waited_for = free_memory;
    CHECK(!is_being_freed());
    REQUIRE(pthread_create(&thread, NULL, call_once, &waited_for) == 0);
    while (!is_being_freed()) sched_yield();
    if (waits) OK(waits());
    OK(cuStreamSynchronize(other));
    OK(cuStreamQuery(other));
    CHECK_EQ(cuStreamQuery(holder), CUDA_ERROR_NOT_READY);
    OK(cuEventQuery(event));
    OK(cuStreamWaitEvent(other, event, 0));
    *word = 1;
    pthread_join(thread, NULL);
}

TEST(vgpu_driver_lock, other_calls_return)
{
    waits = NULL;
    vt_quiet((const char *[]){"VGPU_DRIVER_LOCK=on", "VGPU_STALL_MS=60000", NULL}, returns);
}

TEST(vgpu_driver_lock, nobody_holds_it_without_the_setting)
{
    waits = launch;
    vt_quiet((const char *[]){"VGPU_STALL_MS=60000", NULL}, returns);
    waits = allocate;
    vt_quiet((const char *[]){"VGPU_STALL_MS=60000", NULL}, returns);
}
