/* The end of a process with work that nobody has waited for. */
#include "testing.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

static volatile uint32_t *page; /* shared with the child */

static CUdeviceptr open_page(void)
{
    OK(cuMemHostRegister((void *)(uintptr_t)page, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    return (CUdeviceptr)(uintptr_t)page;
}

static int run(const char *const settings[], void (*body)(void), char text[4096])
{
    void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    page = shared;
    return vt_run(settings, body, text, 4096);
}

static void launch_and_end(void)
{
    CUdeviceptr at = open_page(), copied = at + 4, memory = vt_device(64);
    uint32_t value = 7;
    const CUstream stream = vt_stream(CU_STREAM_NON_BLOCKING);
    OK(vt_launch(vt.set, 1, stream, (void *[]){&at, &value}));
    OK(vt_launch(vt.set, 1, stream, (void *[]){&memory, &value}));
    OK(cuMemcpyAsync(copied, memory, 4, stream));
}

TEST(vgpu_end, work_that_nobody_waited_for_runs)
{
    char text[4096];
    CHECK_MESSAGE(run(NULL, launch_and_end, text) == 0, "%s", text);
    CHECK_EQ(page[0], 7);
    CHECK_EQ(page[1], 7);
    CHECK_MESSAGE(text[0] == '\0', "%s", text);
}

TEST(vgpu_end, nothing_runs_without_time)
{
    static const char *const settings[] = {"VGPU_EXIT_MS=0", "VGPU_IDLE_MS=60000", NULL};
    char text[4096];
    CHECK_EQ(run(settings, launch_and_end, text), 0);
    CHECK_EQ(page[1], 0);
    CHECK_MESSAGE(strstr(text, "the process ended before its work had") != NULL, "%s", text);
}

static void race_and_end(void)
{
    CUdeviceptr memory = vt_device(64);
    uint32_t value = 7;
    for (int i = 0; i < 2; i++)
        OK(vt_launch(vt.put, 1, vt_stream(CU_STREAM_NON_BLOCKING), (void *[]){&memory, &value}));
}

static void *race_in_thread(void *context)
{
    OK(cuCtxSetCurrent(context));
    race_and_end();
    return NULL;
}

/* Two threads call: the executor's own thread runs the work. */
static void race_from_two_threads(void)
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, race_in_thread, vt.context) == 0);
    race_and_end();
    pthread_join(thread, NULL);
    race_and_end();
}

TEST(vgpu_end, a_race_in_the_last_kernels_is_reported)
{
    char text[4096];
    CHECK_EQ(run(NULL, race_and_end, text), 86);
    CHECK_MESSAGE(strstr(text, "vgpu: race: ") != NULL, "%s", text);
    CHECK_EQ(run(NULL, race_from_two_threads, text), 86);
    CHECK_MESSAGE(strstr(text, "vgpu: race: ") != NULL, "%s", text);
}

static void fault_and_end(void)
{
    OK(vt_launch(vt.trap, 1, NULL, NULL));
}

TEST(vgpu_end, a_fault_of_the_last_kernel_is_reported)
{
    char text[4096];
    CHECK_EQ(run(NULL, fault_and_end, text), 86);
    CHECK_MESSAGE(strstr(text, "vgpu: fault: kernel fail") != NULL, "%s", text);
}

static void CUDA_CB write_word(void *word)
{
    *(volatile uint32_t *)word = 1;
}

/* The function's turn comes after the last call. */
static void function_and_end(void)
{
    CUdeviceptr at = open_page(), then = at + 4, behind = at + 12;
    uint32_t value = 7;
    const CUstream first = vt_stream(CU_STREAM_NON_BLOCKING),
                   second = vt_stream(CU_STREAM_NON_BLOCKING);
    OK(vt_launch(vt.await, 1, first, (void *[]){&at, &value, &then}));
    OK(cuLaunchHostFunc(first, write_word, (void *)(uintptr_t)(at + 8)));
    OK(vt_launch(vt.set, 1, first, (void *[]){&behind, &value}));
    OK(vt_launch(vt.set, 1, second, (void *[]){&at, &value}));
}

/* What the program needs for its functions may be gone. */
TEST(vgpu_end, no_host_function_is_called_any_more)
{
    static const char *const settings[] = {"VGPU_IDLE_MS=60000", NULL};
    char text[4096];
    CHECK_MESSAGE(run(settings, function_and_end, text) == 0, "%s", text);
    CHECK_EQ(page[1], 1);
    CHECK_EQ(page[2], 0);
    CHECK_EQ(page[3], 0);
}

static void wait_and_end(void)
{
    CUdeviceptr at = open_page(), then = at + 4;
    uint32_t value = 7;
    OK(vt_launch(vt.await, 1, NULL, (void *[]){&at, &value, &then}));
}

TEST(vgpu_end, a_kernel_that_waits_for_the_host_does_not_hold_the_process)
{
    static const char *const settings[] = {"VGPU_EXIT_MS=200", NULL};
    char text[4096];
    CHECK_EQ(run(settings, wait_and_end, text), 0);
    CHECK_MESSAGE(strstr(text, "the process ended before its work had") != NULL, "%s", text);
}

static void deadlock_and_end(void)
{
    CUdeviceptr at = vt_device(64), then = at + 4;
    uint32_t value = 7;
    OK(vt_launch(vt.await, 1, NULL, (void *[]){&at, &value, &then}));
}

TEST(vgpu_end, a_kernel_that_waits_for_ever_is_reported)
{
    static const char *const settings[] = {"VGPU_IDLE_MS=60000", "VGPU_EXIT_MS=30000", NULL};
    char text[4096];
    CHECK_EQ(run(settings, deadlock_and_end, text), 86);
    CHECK_MESSAGE(strstr(text, "vgpu: deadlock: ") != NULL, "%s", text);
}
