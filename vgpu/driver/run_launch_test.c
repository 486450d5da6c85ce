/* Launches: arguments, attributes, failures, waits without end. */
#include "testing.h"

#include <pthread.h>
#include <shim.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void arguments(void)
{
    const uint8_t a = 200;
    const uint64_t b = UINT64_C(0x1122334455667788);
    const uint32_t c = 0xdeadbeef;
    CUdeviceptr out = vt_device(64);
    struct {
        uint8_t a;
        uint64_t b;
        uint32_t c;
        CUdeviceptr out;
    } packed = {a, b, c, out};
    size_t size = sizeof packed, less = 16;
    void *pointers[] = {(void *)(uintptr_t)&a, (void *)(uintptr_t)&b, (void *)(uintptr_t)&c, &out};
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    uint64_t got[3];
    for (int form = 0; form < 2; form++) {
        CHECK_EQ(cuMemsetD8(out, 0, 64), CUDA_SUCCESS);
        CHECK_EQ(cuLaunchKernel(vt.nine, 1, 1, 1, 1, 1, 1, 0, NULL, form == 0 ? pointers : NULL,
                                form == 0 ? NULL : extra),
                 CUDA_SUCCESS);
        CHECK_EQ(cuMemcpyDtoH(got, out, sizeof got), CUDA_SUCCESS);
        CHECK(got[0] == a && got[1] == b && got[2] == c);
    }
    CHECK_EQ(cuLaunchKernel(vt.nine, 1, 1, 1, 1, 1, 1, 0, NULL, pointers, extra),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunchKernel(vt.nine, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
             CUDA_ERROR_INVALID_VALUE);
    extra[3] = &less;
    CHECK_EQ(cuLaunchKernel(vt.nine, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunchKernel((CUfunction)&size, 1, 1, 1, 1, 1, 1, 0, NULL, pointers, NULL),
             CUDA_ERROR_INVALID_HANDLE);
}

TEST(vgpu_launches, arguments_come_as_pointers_or_as_a_buffer)
{
    vt_quiet(NULL, arguments);
}

static CUresult with(CUlaunchAttribute attribute, unsigned grid)
{
    CUdeviceptr log = vt_device(1024);
    uint32_t id = 1;
    const CUlaunchConfig config = {.gridDimX = grid,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 1,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .attrs = &attribute,
                                   .numAttrs = 1};
    const CUresult result = cuLaunchKernelEx(&config, vt.append, (void *[]){&log, &id}, NULL);
    CHECK_EQ(vt_read(log, 0), result == CUDA_SUCCESS ? grid : 0);
    return result;
}

static void attributes(void)
{
    CUlaunchAttribute one = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE};
    one.value.cooperative = 1;
    CHECK_EQ(with(one, 128), CUDA_SUCCESS); /* 4 SMs of 32 blocks */
    CHECK_EQ(with(one, 129), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    one = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    one.value.clusterDim.x = 4;
    one.value.clusterDim.y = one.value.clusterDim.z = 1;
    CHECK_EQ(with(one, 8), CUDA_SUCCESS);
    CHECK_EQ(with(one, 6), CUDA_ERROR_INVALID_VALUE);
    one.value.clusterDim.x = 32;
    CHECK_EQ(with(one, 32), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    one = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN};
    one.value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
    CHECK_EQ(with(one, 1), CUDA_SUCCESS);
    one.id = (CUlaunchAttributeID)999;
    CHECK_EQ(with(one, 1), CUDA_ERROR_INVALID_VALUE);
    one.id = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY; /* of streams only */
    CHECK_EQ(with(one, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST(vgpu_launches, attributes_of_launches_are_checked)
{
    vt_quiet((const char *[]){"VGPU_SMS=4", NULL}, attributes);
}

/* A client of MPS with a limit: of 4 SMs 3. */
static void with_limit(void)
{
    CUlaunchAttribute one = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE};
    CUexecAffinityParam limit = {.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT};
    int all = 0;
    one.value.cooperative = 1;
    CHECK_EQ(with(one, 96), CUDA_SUCCESS);
    CHECK_EQ(with(one, 97), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    CHECK_EQ(cuCtxGetExecAffinity(&limit, CU_EXEC_AFFINITY_TYPE_SM_COUNT), CUDA_SUCCESS);
    CHECK_EQ(limit.param.smCount.val, 3);
    CHECK_EQ(cuDeviceGetAttribute(&all, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0), CUDA_SUCCESS);
    CHECK_EQ(all, 4);
    CHECK_EQ(cuCtxGetExecAffinity(&limit, CU_EXEC_AFFINITY_TYPE_MAX),
             CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    CHECK_EQ(cuCtxGetExecAffinity(NULL, CU_EXEC_AFFINITY_TYPE_SM_COUNT), CUDA_ERROR_INVALID_VALUE);
}

TEST(vgpu_launches, a_process_may_have_a_limit_of_multiprocessors)
{
    vt_quiet((const char *[]){"VGPU_SMS=4", "VGPU_SM_LIMIT=3", NULL}, with_limit);
}

static void begun(void)
{
    volatile uint32_t *word = vt_mapped(64);
    CUdeviceptr w = (CUdeviceptr)(uintptr_t)word, then = w + 4;
    uint32_t value = 1;
    const CUstream stream = vt_stream(CU_STREAM_NON_BLOCKING),
                   other = vt_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = NULL;
    CHECK_EQ(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    CUlaunchAttribute one = {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT};
    one.value.launchCompletionEvent.event = event;
    const CUlaunchConfig config = {.gridDimX = 1,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 1,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = stream,
                                   .attrs = &one,
                                   .numAttrs = 1};
    CHECK_EQ(cuLaunchKernelEx(&config, vt.await, (void *[]){&w, &value, &then}, NULL),
             CUDA_SUCCESS);
    CHECK_EQ(cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
    CHECK_EQ(cuStreamSynchronize(other), CUDA_SUCCESS);
    CHECK_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    *word = 1;
    CHECK_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST(vgpu_launches, a_launch_completion_event_comes_before_the_kernel_ends)
{
    vt_quiet(NULL, begun);
}

static void failure(void)
{
    CUdeviceptr memory = vt_device(64);
    CUcontext context;
    CUevent event = NULL;
    const CUstream stream = vt_stream(CU_STREAM_NON_BLOCKING);
    CHECK_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
    CHECK_EQ(vt_launch(vt.trap, 1, stream, NULL), CUDA_SUCCESS);
    CHECK_EQ(cuEventRecord(event, stream), CUDA_SUCCESS);
    CHECK_EQ(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(cuStreamQuery(stream), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(cuEventQuery(event), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(cuStreamQuery(NULL), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(vt_launch(vt.trap, 1, NULL, NULL), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(cuMemFree(memory), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_LAUNCH_FAILED);
}

TEST(vgpu_launches, a_failed_kernel_fails_all_calls_that_follow)
{
    char text[4096];
    for (int seed = 0; seed < 8; seed++) {
        char setting[32];
        snprintf(setting, sizeof setting, "VGPU_SEED=%d", seed);
        CHECK_EQ(vt_run((const char *[]){setting, NULL}, failure, text, sizeof text), 86);
        CHECK_MESSAGE(strstr(text, "kernel fail, block (0,0,0), thread (0,0,0): trap") != NULL,
                      "%s", text);
    }
}

static volatile CUresult told = CUDA_SUCCESS;

static void CUDA_CB on_failure(CUstream stream, CUresult status, void *arg)
{
    (void)stream;
    (void)arg;
    told = status;
}

static void failure_with_callback(void)
{
    const CUstream stream = vt_stream(CU_STREAM_NON_BLOCKING);
    CHECK_EQ(vt_launch(vt.trap, 1, stream, NULL), CUDA_SUCCESS);
    CHECK_EQ(cuStreamAddCallback(stream, on_failure, NULL, 0), CUDA_SUCCESS);
    CHECK_EQ(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
    while (told == CUDA_SUCCESS) { /* another thread calls */
    }
    CHECK_EQ(told, CUDA_ERROR_LAUNCH_FAILED);
}

TEST(vgpu_launches, a_callback_is_told_of_a_failed_kernel)
{
    char text[4096];
    CHECK_EQ(vt_run(NULL, failure_with_callback, text, sizeof text), 86);
}

static void no_one_writes(void)
{
    CUdeviceptr word = vt_device(64), then = word + 4;
    uint32_t one = 1;
    CHECK_EQ(vt_launch(vt.await, 1, NULL, (void *[]){&word, &one, &then}), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_TIMEOUT);
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_TIMEOUT);
}

TEST(vgpu_launches, a_kernel_that_waits_for_ever_is_reported_with_its_word)
{
    char text[4096];
    CHECK_EQ(vt_run(NULL, no_one_writes, text, sizeof text), 86);
    CHECK_MESSAGE(strstr(text, "deadlock") != NULL && strstr(text, "kernel await") != NULL &&
                      strstr(text, "offset 0 of cuMemAlloc") != NULL,
                  "%s", text);
}

static void value_never_comes(void)
{
    CHECK_EQ(cuStreamWaitValue32(NULL, vt_device(64), 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
    CHECK_EQ(cuStreamSynchronize(NULL), CUDA_ERROR_LAUNCH_TIMEOUT);
}

TEST(vgpu_launches, a_stream_that_waits_for_a_word_for_ever_is_reported)
{
    char text[4096];
    CHECK_EQ(vt_run(NULL, value_never_comes, text, sizeof text), 86);
    CHECK_MESSAGE(strstr(text, "deadlock") != NULL, "%s", text);
}

static void no_room(void)
{
    CUdeviceptr words = vt_device(512), mine = words, theirs = words + 256;
    uint32_t n = 2;
    const CUstream a = vt_stream(CU_STREAM_NON_BLOCKING), b = vt_stream(CU_STREAM_NON_BLOCKING);
    CHECK_EQ(
        cuLaunchKernel(vt.turns, 1, 1, 1, 1024, 1, 1, 0, a, (void *[]){&mine, &theirs, &n}, NULL),
        CUDA_SUCCESS);
    CHECK_EQ(
        cuLaunchKernel(vt.turns, 2, 1, 1, 1024, 1, 1, 0, b, (void *[]){&theirs, &mine, &n}, NULL),
        CUDA_SUCCESS);
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    CHECK_EQ(cuLaunchKernel(vt.await, 2, 1, 1, 1024, 1, 1, 0, a,
                            (void *[]){&(CUdeviceptr){words + 64}, &n, &(CUdeviceptr){words + 128}},
                            NULL),
             CUDA_SUCCESS);
    for (int i = 0; i < 40; i++) cuStreamQuery(a); /* until it is resident */
    CHECK_EQ(cuLaunchKernel(vt.set, 1, 1, 1, 32, 1, 1, 0, b,
                            (void *[]){&(CUdeviceptr){words + 64}, &n}, NULL),
             CUDA_SUCCESS);
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_TIMEOUT);
}

TEST(vgpu_launches, a_kernel_for_which_the_gpu_has_no_room_is_waited_for_in_vain)
{
    char text[4096];
    CHECK_EQ(vt_run((const char *[]){"VGPU_SMS=1", "VGPU_MODEL=0", "VGPU_PATIENCE=50", NULL},
                    no_room, text, sizeof text),
             86);
    CHECK_MESSAGE(strstr(text, "kernel set: 0 blocks are resident, 0 have ended, 1 have not "
                               "started, for the GPU has no room") != NULL,
                  "%s", text);
}

static volatile uint32_t *late_word;

static void *write_after_the_warning(void *arg)
{
    (void)arg;
    char text[4096] = "";
    while (strstr(text, "stall") == NULL) {
        const ssize_t n = pread(STDERR_FILENO, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = '\0';
    }
    *late_word = 1;
    return NULL;
}

static void late_host(void)
{
    late_word = vt_mapped(64);
    CUdeviceptr w = (CUdeviceptr)(uintptr_t)late_word, then = w + 4;
    uint32_t one = 1;
    pthread_t thread;
    CHECK_EQ(vt_launch(vt.await, 1, NULL, (void *[]){&w, &one, &then}), CUDA_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, write_after_the_warning, NULL) == 0);
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    pthread_join(thread, NULL);
    CHECK_EQ(late_word[1], 1);
}

TEST(vgpu_launches, a_long_wait_for_the_host_is_warned_of_once_and_goes_on)
{
    char text[4096];
    vt_run((const char *[]){"VGPU_STALL_MS=20", NULL}, late_host, text, sizeof text);
    const char *first = strstr(text, "stall");
    CHECK_MESSAGE(first != NULL && strstr(text, "which others can write") != NULL, "%s", text);
    CHECK_MESSAGE(first == NULL || strstr(first + 5, "vgpu: stall") == NULL, "%s", text);
}
