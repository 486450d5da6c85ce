/* Errors: the last one of a thread, those that stay, names and texts; devices of threads; resets.
 */
#include "testing.h"

#include <pthread.h>
#include <string.h>

static void last_errors(void)
{
    void *memory = NULL;
    FINE(cudaGetLastError());
    CHECK_EQ(cudaMalloc(NULL, 4), cudaErrorInvalidValue);
    FINE(cudaMalloc(&memory, 4)); /* a call that succeeds leaves it */
    CHECK_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
    FINE(cudaPeekAtLastError());
    CHECK_EQ(cudaMemcpy(memory, memory, 4, (enum cudaMemcpyKind)5),
             cudaErrorInvalidMemcpyDirection);
    CHECK_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
    CHECK_EQ(cudaMemcpy2D(memory, 1, memory, 4, 2, 1, cudaMemcpyDefault),
             cudaErrorInvalidPitchValue);
    CHECK_EQ(cudaFree(&memory), cudaErrorInvalidValue);
    CHECK_EQ(cudaEventDestroy(NULL), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaMalloc(&memory, (size_t)1 << 60), cudaErrorMemoryAllocation);
    CHECK_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    FINE(cudaFree(NULL));
    FINE(cudaFreeHost(NULL));
}

TEST(vgpu_runtime_errors, the_last_error_stays_until_it_is_taken)
{
    char text[4096];
    CHECK_EQ(rt_run_text(last_errors, text, sizeof text), 0);
    CHECK_MESSAGE(strstr(text, "GPU 0 is out of memory") != NULL, "%s", text);
}

static void refusals(void)
{
    cudaArray_t array;
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(cudaMallocArray(&array, NULL, 1, 1, 0), cudaErrorNotSupported);
        CHECK_EQ(cudaGetLastError(), cudaErrorNotSupported);
    }
}

TEST(vgpu_runtime_errors, a_function_that_is_not_there_names_itself_once)
{
    char text[4096];
    CHECK_EQ(rt_run_text(refusals, text, sizeof text), 0);
    CHECK_STR(text, "vgpu: WARN: cudaMallocArray is not supported by the virtual GPU\n");
}

static void *other_thread(void *result)
{
    void *memory;
    FINE(cudaPeekAtLastError());
    *(cudaError_t *)result = cudaMalloc(&memory, 4);
    return NULL;
}

static void sticky(void)
{
    pthread_t thread;
    void *memory;
    cudaError_t other = cudaSuccess;
    FINE(rt_launch(&rt_trap, 1, 1, NULL, NULL));
    CHECK_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    CHECK_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
    CHECK_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
    CHECK_EQ(cudaMalloc(&memory, 4), cudaErrorLaunchFailure);
    CHECK_EQ(pthread_create(&thread, NULL, other_thread, &other), 0);
    pthread_join(thread, NULL);
    CHECK_EQ(other, cudaErrorLaunchFailure);
    FINE(cudaSetDevice(1)); /* which is not lost */
    FINE(cudaMalloc(&memory, 4));
}

TEST(vgpu_runtime_errors, a_failed_kernel_is_the_error_of_every_later_call_of_its_device)
{
    char text[4096];
    CHECK_EQ(rt_run_text(sticky, text, sizeof text), 86);
    CHECK_MESSAGE(strstr(text, "vgpu: fault: ") != NULL, "%s", text);
}

static void not_ready(void)
{
    void *word = NULL;
    cudaEvent_t event;
    FINE(cudaHostAlloc(&word, 4, cudaHostAllocMapped));
    __atomic_store_n((uint32_t *)word, 0, __ATOMIC_RELEASE);
    FINE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    FINE(rt_launch(&rt_await, 1, 1, NULL, (void *[]){&word}));
    FINE(cudaEventRecord(event, NULL));
    CHECK_EQ(cudaStreamQuery(NULL), cudaErrorNotReady);
    CHECK_EQ(cudaGetLastError(), cudaErrorNotReady);
    CHECK_EQ(cudaEventQuery(event), cudaErrorNotReady);
    __atomic_store_n((uint32_t *)word, 1, __ATOMIC_RELEASE);
    FINE(cudaEventSynchronize(event));
    FINE(cudaEventQuery(event));
    FINE(cudaStreamQuery(NULL));
}

TEST(vgpu_runtime_errors, work_that_has_not_ended_is_not_ready)
{
    rt_run(not_ready);
}

TEST(vgpu_runtime_errors, errors_have_names_and_texts)
{
    CHECK_STR(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue");
    CHECK_STR(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument");
    CHECK_STR(cudaGetErrorString(cudaSuccess), "no error");
    CHECK_STR(cudaGetErrorName((cudaError_t)12345), "unrecognized error code");
    CHECK_STR(cudaGetErrorString((cudaError_t)12345), "unrecognized error code");
    for (int i = 0; i < 1000; i++) {
        const char *name = cudaGetErrorName((cudaError_t)i);
        CHECK(cudaGetErrorString((cudaError_t)i)[0] != '\0');
        CHECK(!strncmp(name, "cuda", 4) || !strcmp(name, "unrecognized error code"));
    }
}

/* ---- devices ---- */

static void *first_device(void *device)
{
    FINE(cudaGetDevice(device));
    return NULL;
}

static void devices(void)
{
    struct cudaPointerAttributes attributes;
    pthread_t thread;
    int count = 0, device = -1;
    FINE(cudaGetDeviceCount(&count));
    CHECK_EQ(count, 2);
    FINE(cudaSetDevice(1));
    FINE(cudaGetDevice(&device));
    CHECK_EQ(device, 1);
    FINE(cudaPointerGetAttributes(&attributes, rt_words(1)));
    CHECK_EQ(attributes.device, 1);
    CHECK_EQ(pthread_create(&thread, NULL, first_device, &device), 0);
    pthread_join(thread, NULL);
    CHECK_EQ(device, 0);
    /* a context that the program made current counts */
    CUcontext context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    FINE(cudaGetDevice(&device));
    CHECK_EQ(device, 0);
}

TEST(vgpu_runtime_devices, each_thread_has_a_device_of_its_own)
{
    rt_run(devices);
}

static void no_devices(void)
{
    int count = 7;
    void *memory;
    CHECK_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    CHECK_EQ(count, 0);
    CHECK_EQ(cudaMalloc(&memory, 4), cudaErrorNoDevice);
    CHECK_EQ(cudaGetLastError(), cudaErrorNoDevice);
}

TEST(vgpu_runtime_devices, without_a_device_calls_say_so)
{
    CHECK_EQ(vt_run_unopened((const char *[]){"VGPU_DEVICES=0", NULL}, no_devices, NULL, 0), 0);
}

static void *use(void *stage)
{
    uint32_t *out;
    pthread_barrier_t *barrier = stage;
    out = rt_words(1);
    CHECK_EQ(rt_word(out), 0);
    pthread_barrier_wait(barrier); /* the other thread resets the device now */
    pthread_barrier_wait(barrier);
    out = rt_words(1);
    FINE(rt_launch(&rt_counter, 1, 1, NULL, (void *[]){&out}));
    CHECK_EQ(rt_word(out), 7);
    return NULL;
}

static void reset(void)
{
    pthread_t thread;
    pthread_barrier_t barrier;
    uint32_t *out = rt_words(1), value = 0;
    pthread_barrier_init(&barrier, NULL, 2);
    FINE(rt_launch(&rt_counter, 1, 1, NULL, (void *[]){&out}));
    CHECK_EQ(rt_word(out), 7);
    CHECK_EQ(pthread_create(&thread, NULL, use, &barrier), 0);
    pthread_barrier_wait(&barrier);
    FINE(cudaDeviceReset());
    CHECK_EQ(cudaMemcpy(&value, out, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    out = rt_words(1);
    FINE(rt_launch(&rt_counter, 1, 1, NULL, (void *[]){&out}));
    CHECK_EQ(rt_word(out), 8);
    FINE(cudaDeviceReset());
    FINE(cudaDeviceReset());
}

TEST(vgpu_runtime_devices, a_device_begins_anew_after_a_reset)
{
    rt_run(reset);
}

static void properties(void)
{
    struct cudaDeviceProp found;
    int value = 0;
    memset(&found, 0xff, sizeof found);
    FINE(cudaGetDeviceProperties(&found, 1));
    FINE(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 1));
    CHECK_EQ(found.multiProcessorCount, value);
    FINE(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 1));
    CHECK_EQ(found.major, value);
    FINE(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 1));
    CHECK_EQ(found.sharedMemPerBlockOptin, value);
    CHECK(found.warpSize == 32 && found.maxGridSize[0] == INT32_MAX && found.reserved[0] == 0);
    CHECK(found.totalGlobalMem > 0 && found.name[0] != '\0');
    CHECK_EQ(cudaGetDeviceProperties(&found, 2), cudaErrorInvalidDevice);
    FINE(cudaRuntimeGetVersion(&value));
    CHECK_EQ(value, CUDART_VERSION);
}

TEST(vgpu_runtime_devices, properties_are_the_attributes)
{
    rt_run(properties);
}
