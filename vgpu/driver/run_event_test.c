/* Events. */
#include "testing.h"

#include <shim.h>
#include <string.h>

static CUevent event(unsigned flags)
{
    CUevent made = NULL;
    CHECK_EQ(cuEventCreate(&made, flags), CUDA_SUCCESS);
    return made;
}

/* A kernel waits in a stream until the host writes 1 to the word that is returned. */
static volatile uint32_t *hold(CUstream stream)
{
    volatile uint32_t *word = vt_mapped(64);
    CUdeviceptr w = (CUdeviceptr)(uintptr_t)word, then = w + 4;
    uint32_t one = 1;
    CHECK_EQ(vt_launch(vt.await, 1, stream, (void *[]){&w, &one, &then}), CUDA_SUCCESS);
    return word;
}

static void recorded_again(void)
{
    const CUstream held = vt_stream(CU_STREAM_NON_BLOCKING),
                   waits = vt_stream(CU_STREAM_NON_BLOCKING),
                   idle = vt_stream(CU_STREAM_NON_BLOCKING);
    const CUevent e = event(0);
    volatile uint32_t *word = hold(held);
    CHECK_EQ(cuEventRecord(e, held), CUDA_SUCCESS);
    CHECK_EQ(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    CHECK_EQ(cuStreamWaitEvent(waits, e, 0), CUDA_SUCCESS);
    CHECK_EQ(cuEventRecord(e, idle), CUDA_SUCCESS);
    CHECK_EQ(cuEventSynchronize(e), CUDA_SUCCESS);
    CHECK_EQ(cuStreamQuery(waits), CUDA_ERROR_NOT_READY); /* for what was recorded at its call */
    *word = 1;
    CHECK_EQ(cuStreamSynchronize(waits), CUDA_SUCCESS);
    CHECK_EQ(cuStreamQuery(held), CUDA_SUCCESS);
}

TEST(vgpu_events, a_stream_waits_for_what_an_event_was_when_it_was_asked)
{
    vt_quiet(NULL, recorded_again);
}

static void order(void)
{
    const CUstream a = vt_stream(CU_STREAM_NON_BLOCKING), b = vt_stream(CU_STREAM_NON_BLOCKING);
    const CUevent e = event(CU_EVENT_DISABLE_TIMING);
    CUdeviceptr log = vt_device(256);
    for (uint32_t i = 1; i < 20; i += 2) {
        uint32_t next = i + 1;
        CHECK_EQ(vt_launch(vt.append, 1, a, (void *[]){&log, &i}), CUDA_SUCCESS);
        CHECK_EQ(cuEventRecord(e, a), CUDA_SUCCESS);
        CHECK_EQ(cuStreamWaitEvent(b, e, 0), CUDA_SUCCESS);
        CHECK_EQ(vt_launch(vt.append, 1, b, (void *[]){&log, &next}), CUDA_SUCCESS);
        CHECK_EQ(cuEventRecord(e, b), CUDA_SUCCESS);
        CHECK_EQ(cuStreamWaitEvent(a, e, 0), CUDA_SUCCESS);
    }
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    for (int i = 1; i <= 20; i++) CHECK_EQ(vt_read(log, i), i);
}

TEST(vgpu_events, events_order_the_work_of_two_streams)
{
    vt_quiet(NULL, order);
}

/* A weak store in each of two streams that an event orders is no race; without it, it is one. */
static bool ordered;

static void two_stores(void)
{
    const CUstream a = vt_stream(CU_STREAM_NON_BLOCKING), b = vt_stream(CU_STREAM_NON_BLOCKING);
    const CUevent e = event(CU_EVENT_DISABLE_TIMING);
    CUdeviceptr word = vt_device(64);
    uint32_t one = 1, two = 2;
    CHECK_EQ(vt_launch(vt.put, 1, a, (void *[]){&word, &one}), CUDA_SUCCESS);
    if (ordered) {
        CHECK_EQ(cuEventRecord(e, a), CUDA_SUCCESS);
        CHECK_EQ(cuStreamWaitEvent(b, e, 0), CUDA_SUCCESS);
    }
    CHECK_EQ(vt_launch(vt.put, 1, b, (void *[]){&word, &two}), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    if (ordered) CHECK_EQ(vt_read(word, 0), 2);
}

TEST(vgpu_events, stores_of_two_streams_race_unless_an_event_orders_them)
{
    char text[4096];
    for (int i = 0; i < 2; i++) {
        ordered = i == 1;
        CHECK_EQ(vt_run(NULL, two_stores, text, sizeof text), ordered ? 0 : 86);
        CHECK_MESSAGE((strstr(text, "race") != NULL) == !ordered, "%s", text);
    }
}

static void times(void)
{
    const CUstream stream = vt_stream(CU_STREAM_NON_BLOCKING);
    const CUevent begin = event(0), end = event(0), untimed = event(CU_EVENT_DISABLE_TIMING),
                  never = event(0);
    float ms = -1;
    CHECK_EQ(cuEventRecord(begin, stream), CUDA_SUCCESS);
    volatile uint32_t *word = hold(stream);
    CHECK_EQ(cuEventRecord(end, stream), CUDA_SUCCESS);
    CHECK_EQ(cuEventRecord(untimed, stream), CUDA_SUCCESS);
    CHECK_EQ(cuEventElapsedTime(&ms, begin, end), CUDA_ERROR_NOT_READY);
    CHECK_EQ(cuEventElapsedTime(&ms, begin, never), CUDA_ERROR_INVALID_HANDLE);
    *word = 1;
    CHECK_EQ(cuEventSynchronize(end), CUDA_SUCCESS);
    CHECK_EQ(cuEventElapsedTime(&ms, begin, end), CUDA_SUCCESS);
    CHECK_MESSAGE(ms > 0, "%f ms", (double)ms);
    CHECK_EQ(cuEventElapsedTime(&ms, begin, untimed), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuEventQuery(never), CUDA_SUCCESS);
    CHECK_EQ(cuEventDestroy(end), CUDA_SUCCESS);
    CHECK_EQ(cuEventQuery(end), CUDA_ERROR_INVALID_HANDLE);
}

TEST(vgpu_events, time_passes_between_two_events_around_a_kernel)
{
    vt_quiet(NULL, times);
}

/* The event of several processes is recorded in a stream whose work ends last, then in one that is
 * idle. */
static void shared_recorded_again(void)
{
    const CUstream held = vt_stream(CU_STREAM_NON_BLOCKING),
                   waits = vt_stream(CU_STREAM_NON_BLOCKING),
                   idle = vt_stream(CU_STREAM_NON_BLOCKING);
    const CUevent e = event(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    volatile uint32_t *word = hold(held);
    OK(cuEventRecord(e, held));
    OK(cuStreamWaitEvent(waits, e, 0));
    OK(cuEventRecord(e, idle));
    OK(cuStreamSynchronize(idle));
    CHECK_EQ(cuStreamQuery(waits), CUDA_ERROR_NOT_READY);
    *word = 1;
    OK(cuStreamSynchronize(waits));
    CHECK_EQ(cuEventQuery(e), CUDA_SUCCESS);
}

TEST(vgpu_events, of_several_processes_may_be_recorded_again_in_another_stream)
{
    vt_quiet(NULL, shared_recorded_again);
}

/* The record that is pending ends behind many later ones, which have happened. */
static void shared_recorded_often(void)
{
    const CUstream held = vt_stream(CU_STREAM_NON_BLOCKING),
                   idle = vt_stream(CU_STREAM_NON_BLOCKING);
    const CUevent e = event(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    volatile uint32_t *word = hold(held);
    OK(cuEventRecord(e, held));
    for (int i = 0; i < 4096; i++) OK(cuEventRecord(e, idle));
    OK(cuStreamSynchronize(idle));
    CHECK_EQ(cuEventQuery(e), CUDA_SUCCESS);
    *word = 1;
    OK(cuStreamSynchronize(held));
    CHECK_EQ(cuEventQuery(e), CUDA_SUCCESS);
    OK(cuStreamWaitEvent(held, e, 0));
    OK(cuStreamSynchronize(held));
}

TEST(vgpu_events, of_several_processes_have_happened_when_an_older_record_ends)
{
    vt_quiet(NULL, shared_recorded_often);
}

/* Who waits for all blocks of a kernel to have begun follows what was before the kernel. */
static void begun(void)
{
    const CUstream a = vt_stream(CU_STREAM_NON_BLOCKING), b = vt_stream(CU_STREAM_NON_BLOCKING);
    const CUevent e = event(CU_EVENT_DISABLE_TIMING);
    CUdeviceptr data = vt_device(64);
    volatile uint32_t *word = vt_mapped(64);
    CUdeviceptr then = (CUdeviceptr)&word[1];
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
                                   .value.launchCompletionEvent.event = e};
    const CUlaunchConfig config = {.gridDimX = 1,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 1,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = a,
                                   .attrs = &attribute,
                                   .numAttrs = 1};
    OK(vt_put(data, 1, a));
    OK(cuLaunchKernelEx(&config, vt.await, (void *[]){&word, &(uint32_t){1}, &then}, NULL));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(vt_put(data, 2, b));
    OK(cuStreamSynchronize(b));
    *word = 1;
    OK(cuCtxSynchronize());
    CHECK_EQ(vt_read(data, 0), 2);
}

TEST(vgpu_events, of_a_launch_that_has_begun_follow_what_was_before_it)
{
    vt_quiet(NULL, begun);
}

/* The kernel of the launch never begins, for its context has failed: who waits is told so. */
static void never_begun(void)
{
    const CUstream here = vt_stream(CU_STREAM_NON_BLOCKING);
    const CUevent e = event(CU_EVENT_DISABLE_TIMING);
    CUcontext other;
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
                                   .value.launchCompletionEvent.event = e};
    const CUlaunchConfig config = {.gridDimX = 1,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 1,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = here,
                                   .attrs = &attribute,
                                   .numAttrs = 1};
    volatile uint32_t *word = hold(here);
    OK(vt_launch(vt.trap, 1, here, NULL));
    OK(cuLaunchKernelEx(&config, vt.trap, NULL, NULL));
    OK(cuCtxCreate(&other, NULL, 0, 0));
    const CUstream there = vt_stream(CU_STREAM_NON_BLOCKING);
    OK(cuStreamWaitEvent(there, e, 0));
    *word = 1;
    OK(cuStreamSynchronize(there));
}

TEST(vgpu_events, of_a_launch_that_never_begins_let_others_go_on)
{
    char text[4096];
    CHECK_EQ(vt_run(NULL, never_begun, text, sizeof text), 86);
}
