/* Calls CUDA's driver for a rank's memory, stream and events. The types and numbers below are those
 * of the driver's binary interface, which stay; so this file needs no header of CUDA. */
#include "common/gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define NON_BLOCKING 1u  /* CU_STREAM_NON_BLOCKING */
#define CAPTURE_THREAD 1 /* CU_STREAM_CAPTURE_MODE_THREAD_LOCAL */

/* X(member, symbol, parameters): a CUresult is an int, 0 is success; a CUdeviceptr is a uint64_t;
 * contexts, streams and events are pointers. */
#define DRIVER_CALLS(X)                                                                            \
    X(init, "cuInit", (unsigned))                                                                  \
    X(get_error, "cuGetErrorString", (int, const char **))                                         \
    X(get_count, "cuDeviceGetCount", (int *))                                                      \
    X(get_device, "cuDeviceGet", (int *, int))                                                     \
    X(get_name, "cuDeviceGetName", (char *, int, int))                                             \
    X(get_pci, "cuDeviceGetPCIBusId", (char *, int, int))                                          \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                                          \
    X(release, "cuDevicePrimaryCtxRelease_v2", (int))                                              \
    X(set_current, "cuCtxSetCurrent", (void *))                                                    \
    X(allocate, "cuMemAlloc_v2", (uint64_t *, size_t))                                             \
    X(free, "cuMemFree_v2", (uint64_t))                                                            \
    X(fill, "cuMemsetD8Async", (uint64_t, unsigned char, size_t, void *))                          \
    X(to_device, "cuMemcpyHtoDAsync_v2", (uint64_t, const void *, size_t, void *))                 \
    X(to_host, "cuMemcpyDtoHAsync_v2", (void *, uint64_t, size_t, void *))                         \
    X(copy, "cuMemcpyDtoDAsync_v2", (uint64_t, uint64_t, size_t, void *))                          \
    X(stream_create, "cuStreamCreate", (void **, unsigned))                                        \
    X(stream_destroy, "cuStreamDestroy_v2", (void *))                                              \
    X(stream_wait, "cuStreamSynchronize", (void *))                                                \
    X(event_create, "cuEventCreate", (void **, unsigned))                                          \
    X(event_destroy, "cuEventDestroy_v2", (void *))                                                \
    X(event_record, "cuEventRecord", (void *, void *))                                             \
    X(event_elapsed, "cuEventElapsedTime", (float *, void *, void *))                              \
    X(capture_begin, "cuStreamBeginCapture_v2", (void *, int))                                     \
    X(capture_end, "cuStreamEndCapture", (void *, void **))                                        \
    X(graph_make, "cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))            \
    X(graph_free, "cuGraphDestroy", (void *))                                                      \
    X(graph_launch, "cuGraphLaunch", (void *, void *))                                             \
    X(graph_destroy, "cuGraphExecDestroy", (void *))

#define MEMBER(member, symbol, parameters) int(*member) parameters;
static struct {
    DRIVER_CALLS(MEMBER)
} driver; /* filled by load, once */
#undef MEMBER

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char why_not[256]; /* "": the driver is loaded */
static int count_found;
static _Thread_local char error_text[320];

const char *perf_gpu_error(void)
{
    return error_text;
}

static tuttiResult_t fail(int error, const char *what)
{
    const char *text = NULL;
    if (driver.get_error(error, &text) != 0 || text == NULL) text = "unknown error";
    snprintf(error_text, sizeof(error_text), "CUDA's driver: %s: %s (error %d)", what, text, error);
    return tuttiUnhandledDeviceError;
}

#define DRIVER_TRY(call, what)                                                                     \
    do {                                                                                           \
        int driver_error = (call);                                                                 \
        if (driver_error != 0) return fail(driver_error, what);                                    \
    } while (0)

/* ---- The driver --------------------------------------------------------------------------------
 */

/* The text of a missing library names the file. */
static void load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why_not, sizeof(why_not), "no CUDA driver: %s", dlerror());
        return;
    }
    const char *missing = NULL;
#define FIND(member, symbol, parameters)                                                           \
    *(void **)&driver.member = dlsym(library, symbol);                                             \
    if (driver.member == NULL) missing = symbol;
    DRIVER_CALLS(FIND)
#undef FIND
    if (missing != NULL) {
        snprintf(why_not, sizeof(why_not), "the CUDA driver has no %s: install a newer one",
                 missing);
        return;
    }
    int error = driver.init(0);
    if (error == 0) error = driver.get_count(&count_found);
    if (error != 0) {
        (void)fail(error, "cuInit");
        snprintf(why_not, sizeof(why_not), "%.200s", error_text);
    } else if (count_found == 0) {
        snprintf(why_not, sizeof(why_not), "the CUDA driver finds no GPU (CUDA_VISIBLE_DEVICES?)");
    }
}

tuttiResult_t perf_gpu_load(int *ngpus)
{
    pthread_once(&once, load);
    if (why_not[0] != '\0') {
        snprintf(error_text, sizeof(error_text), "%s", why_not);
        return tuttiUnhandledDeviceError;
    }
    *ngpus = count_found;
    return tuttiSuccess;
}

void perf_gpu_describe(int number, char *name, size_t name_bytes, char *pci, size_t pci_bytes)
{
    int device;
    bool known = driver.get_device(&device, number) == 0;
    if (!known || driver.get_name(name, (int)name_bytes, device) != 0) {
        snprintf(name, name_bytes, "?");
    }
    if (!known || driver.get_pci(pci, (int)pci_bytes, device) != 0) snprintf(pci, pci_bytes, "?");
}

bool perf_gpu_is_virtual(const char *name)
{
    static const char prefix[] = "tutti virtual GPU";
    return strncmp(name, prefix, sizeof(prefix) - 1) == 0;
}

/* ---- A GPU -------------------------------------------------------------------------------------
 */

static tuttiResult_t enter(const struct perf_gpu *gpu)
{
    DRIVER_TRY(driver.set_current(gpu->context), "cuCtxSetCurrent");
    return tuttiSuccess;
}

#define ENTER(gpu)                                                                                 \
    do {                                                                                           \
        if (enter(gpu) != tuttiSuccess) return tuttiUnhandledDeviceError;                          \
    } while (0)

static tuttiResult_t retain(int number, void **context)
{
    int device;
    DRIVER_TRY(driver.get_device(&device, number), "cuDeviceGet");
    DRIVER_TRY(driver.retain(context, device), "cuDevicePrimaryCtxRetain");
    return tuttiSuccess;
}

tuttiResult_t perf_gpu_enter(int number)
{
    struct perf_gpu gpu = {.number = number};
    const tuttiResult_t result = retain(number, &gpu.context);
    return result == tuttiSuccess ? enter(&gpu) : result;
}

tuttiResult_t perf_gpu_open(struct perf_gpu *gpu, int number)
{
    void *context;
    gpu->number = number;
    const tuttiResult_t result = retain(number, &context);
    if (result != tuttiSuccess) return result;
    gpu->context = context;
    ENTER(gpu);
    DRIVER_TRY(driver.stream_create(&gpu->stream, NON_BLOCKING), "cuStreamCreate");
    return tuttiSuccess;
}

void perf_gpu_close(struct perf_gpu *gpu)
{
    int device;
    if (gpu->context == NULL) return;
    if (gpu->stream != NULL && enter(gpu) == tuttiSuccess) (void)driver.stream_destroy(gpu->stream);
    (void)driver.set_current(NULL);
    if (driver.get_device(&device, gpu->number) == 0) (void)driver.release(device);
    *gpu = (struct perf_gpu){0};
}

tuttiResult_t perf_gpu_allocate(const struct perf_gpu *gpu, size_t nbytes, void **memory)
{
    uint64_t address;
    ENTER(gpu);
    DRIVER_TRY(driver.allocate(&address, nbytes), "cuMemAlloc");
    *memory = (void *)(uintptr_t)address;
    return tuttiSuccess;
}

void perf_gpu_free(const struct perf_gpu *gpu, void *memory)
{
    if (enter(gpu) == tuttiSuccess) (void)driver.free((uintptr_t)memory);
}

tuttiResult_t perf_gpu_wait(const struct perf_gpu *gpu)
{
    ENTER(gpu);
    DRIVER_TRY(driver.stream_wait(gpu->stream), "cuStreamSynchronize");
    return tuttiSuccess;
}

tuttiResult_t perf_gpu_fill(const struct perf_gpu *gpu, void *to, int byte, size_t nbytes)
{
    ENTER(gpu);
    DRIVER_TRY(driver.fill((uintptr_t)to, (unsigned char)byte, nbytes, gpu->stream),
               "cuMemsetD8Async");
    return perf_gpu_wait(gpu);
}

tuttiResult_t perf_gpu_write(const struct perf_gpu *gpu, void *to, const void *from, size_t nbytes)
{
    ENTER(gpu);
    DRIVER_TRY(driver.to_device((uintptr_t)to, from, nbytes, gpu->stream), "cuMemcpyHtoDAsync");
    return perf_gpu_wait(gpu);
}

tuttiResult_t perf_gpu_read(const struct perf_gpu *gpu, void *to, const void *from, size_t nbytes)
{
    ENTER(gpu);
    DRIVER_TRY(driver.to_host(to, (uintptr_t)from, nbytes, gpu->stream), "cuMemcpyDtoHAsync");
    return perf_gpu_wait(gpu);
}

tuttiResult_t perf_gpu_copy(const struct perf_gpu *gpu, void *to, const void *from, size_t nbytes)
{
    ENTER(gpu);
    DRIVER_TRY(driver.copy((uintptr_t)to, (uintptr_t)from, nbytes, gpu->stream),
               "cuMemcpyDtoDAsync");
    return tuttiSuccess;
}

/* ---- Events ------------------------------------------------------------------------------------
 */

tuttiResult_t perf_gpu_event_create(const struct perf_gpu *gpu, void **event)
{
    ENTER(gpu);
    DRIVER_TRY(driver.event_create(event, 0), "cuEventCreate");
    return tuttiSuccess;
}

void perf_gpu_event_destroy(const struct perf_gpu *gpu, void *event)
{
    if (event != NULL && enter(gpu) == tuttiSuccess) (void)driver.event_destroy(event);
}

tuttiResult_t perf_gpu_event_record(const struct perf_gpu *gpu, void *event)
{
    ENTER(gpu);
    DRIVER_TRY(driver.event_record(event, gpu->stream), "cuEventRecord");
    return tuttiSuccess;
}

tuttiResult_t perf_gpu_event_seconds(const struct perf_gpu *gpu, void *start, void *end,
                                     double *seconds)
{
    float milliseconds;
    ENTER(gpu);
    DRIVER_TRY(driver.event_elapsed(&milliseconds, start, end), "cuEventElapsedTime");
    *seconds = 1e-3 * (double)milliseconds;
    return tuttiSuccess;
}

/* ---- Graphs ------------------------------------------------------------------------------------
 */

tuttiResult_t perf_gpu_capture_begin(const struct perf_gpu *gpu)
{
    ENTER(gpu);
    DRIVER_TRY(driver.capture_begin(gpu->stream, CAPTURE_THREAD), "cuStreamBeginCapture");
    return tuttiSuccess;
}

tuttiResult_t perf_gpu_capture_end(const struct perf_gpu *gpu, void **captured)
{
    ENTER(gpu);
    DRIVER_TRY(driver.capture_end(gpu->stream, captured), "cuStreamEndCapture");
    return tuttiSuccess;
}

void perf_gpu_captured_free(const struct perf_gpu *gpu, void *captured)
{
    if (captured != NULL && enter(gpu) == tuttiSuccess) (void)driver.graph_free(captured);
}

tuttiResult_t perf_gpu_graph_make(const struct perf_gpu *gpu, void *captured, void **graph)
{
    ENTER(gpu);
    DRIVER_TRY(driver.graph_make(graph, captured, 0), "cuGraphInstantiate");
    return tuttiSuccess;
}

tuttiResult_t perf_gpu_graph_launch(const struct perf_gpu *gpu, void *graph)
{
    ENTER(gpu);
    DRIVER_TRY(driver.graph_launch(graph, gpu->stream), "cuGraphLaunch");
    return tuttiSuccess;
}

void perf_gpu_graph_destroy(const struct perf_gpu *gpu, void *graph)
{
    if (graph != NULL && enter(gpu) == tuttiSuccess) (void)driver.graph_destroy(graph);
}
