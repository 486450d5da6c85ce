/* What the host has waited for, and hands on to kernels: it is ordered; what it has not waited for
 * races. */
#include "testing.h"

#include <shim.h>
#include <stdatomic.h>
#include <string.h>

/* How the host waits for the stream that writes the data. */
enum wait { NOT, STREAM, QUERY, EVENT };

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

static void without_a_wait(void)
{
    hand_on(NOT);
}

TEST(vgpu_host, hands_on_what_it_has_waited_for_to_a_kernel_that_acquires_its_word)
{
    vt_quiet(NULL, after_the_stream);
    vt_quiet(NULL, after_a_query);
    vt_quiet(NULL, after_an_event);
}

TEST(vgpu_host, does_not_hand_on_what_it_has_not_waited_for)
{
    static char text[8192];
    CHECK_EQ(vt_run(NULL, without_a_wait, text, sizeof text), 86);
    CHECK_MESSAGE(strstr(text, "race") != NULL, "%s", text);
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
