/* Loads the kernels on a GPU and launches them. */
#include "device/device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/log.h"
#include "base/process_lock.h"
#include "device/image.h"
#include "driver/cuda.h"
#include "driver/driver.h"

/* Dynamic shared memory of a block. With the kernel's own it is no more than what every GPU has
 * without a request (kernel/block.cuh). */
enum { ROOM_BYTES = TT_DEVICE_MOST_COPIED };
enum { WARP_THREADS = 32 };
/* The oldest driver that takes what nvcc 13 makes. */
enum { IMAGE_DRIVER = 13000 };

/* Freed with its last user. A forked child never uses its parent's. */
struct tt_device {
    /* immutable once listed */
    int number;
    pid_t process; /* that opened it */
    /* guarded by `making`, which its first user has while it loads the kernels, and immutable then:
     * the driver may wait for kernels of the program */
    pthread_mutex_t making;
    bool is_made;
    const struct tt_cuda *cu;
    struct tt_context *context;
    struct tt_gpu gpu;
    int capacity;
    CUmodule module;
    CUfunction run;
    struct tt_shares shares; /* guarded by the lock of shares.c */
    /* guarded by `lock` */
    bool is_listed; /* it is among `devices` */
    int nusers;
    struct tt_device *next;
};

/* The devices that this process has open, or is opening. Nobody calls the driver with this lock. */
static struct tt_process_lock lock = TT_PROCESS_LOCK;
static struct tt_device *devices;

enum { NAME_TEXT = 128, LOG_TEXT = 512 };

/* For messages. */
static const char *name_of(const struct tt_device *device, char text[NAME_TEXT])
{
    snprintf(text, NAME_TEXT, "GPU %d (%s, compute capability %d.%d)", device->number,
             device->gpu.name, device->gpu.capability / 10, device->gpu.capability % 10);
    return text;
}

/* log: what the driver's compiler said, or "". */
static tt_status fail_call(const struct tt_device *device, CUresult result, const char *call,
                           const char *log)
{
    char name[NAME_TEXT], text[NAME_TEXT + LOG_TEXT + 64];
    snprintf(text, sizeof text, "%s on %s%s%s%s", call, name_of(device, name),
             *log ? " (the driver's compiler: " : "", log, *log ? ")" : "");
    return tt_cuda_fail(result, text);
}

static int driver_version(const struct tt_device *device)
{
    int version = 0;
    device->cu->DriverGetVersion(&version);
    return version;
}

static bool has_older_image(void)
{
    return tt_device_older_image[0] != 0;
}

/* In the context. */
static tt_status fail_load(const struct tt_device *device, CUresult result, const char *log)
{
    char name[NAME_TEXT];
    size_t available = 0, total = 0;
    int version = 0;
    name_of(device, name);
    switch (result) {
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
        return tt_fail(TT_ERR_USAGE,
                       "%s runs none of the kernels of this build of tutti, which has %s; build it "
                       "with -DTUTTI_CUDA_ARCHITECTURES=%d%s%s",
                       name, tt_device_image_holds, device->gpu.capability,
                       *log ? "; the driver's compiler: " : "", log);
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
        version = driver_version(device);
        return tt_fail(TT_ERR_USAGE,
                       "the driver of %s is for CUDA %d.%d, too old for the kernels of this build "
                       "of tutti: update NVIDIA's driver%s (this build has %s)",
                       name, version / 1000, version % 1000 / 10,
                       has_older_image() ? "" : ", or build with -DTUTTI_CUDA_ARCHITECTURES=75",
                       tt_device_image_holds);
    case CUDA_ERROR_OUT_OF_MEMORY:
        device->cu->MemGetInfo(&available, &total);
        return tt_fail(TT_ERR_SYSTEM,
                       "%s is out of memory: the kernels could not be loaded; %zu of %zu bytes are "
                       "free",
                       name, available, total);
    default:
        return fail_call(device, result, "cuModuleLoadDataEx of the kernels", log);
    }
}

/* In the context: multiprocessors that kernels of this process run on. A client of MPS may have a
 * limit (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE); others have none, or the driver does not say. */
static int count_processors(const struct tt_device *device)
{
    CUexecAffinityParam limit = {.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT};
    const int all = device->gpu.nprocessors;
    if (device->cu->CtxGetExecAffinity(&limit, CU_EXEC_AFFINITY_TYPE_SM_COUNT) != CUDA_SUCCESS)
        return all;
    const unsigned n = limit.param.smCount.val;
    return n > 0 && n < (unsigned)all ? (int)n : all;
}

/* In the context. */
static CUresult load_image(struct tt_device *device, const void *image, char log[LOG_TEXT])
{
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(size_t)LOG_TEXT};
    *log = '\0';
    const CUresult result =
        device->cu->ModuleLoadDataEx(&device->module, image, 2, options, values);
    if (result != CUDA_SUCCESS) device->module = NULL;
    return result;
}

/* In the context. Machine code of nvcc 13 is never given to a driver for CUDA 12: NVIDIA promises
 * for such a pair neither that the driver loads it nor that it refuses it. */
static CUresult load_module(struct tt_device *device, char log[LOG_TEXT])
{
    const int version = driver_version(device);
    CUresult result = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    char name[NAME_TEXT];
    *log = '\0';
    if (version >= IMAGE_DRIVER) result = load_image(device, tt_device_image, log);
    if (result != CUDA_ERROR_UNSUPPORTED_PTX_VERSION || !has_older_image()) return result;
    TT_INFO("%s: its driver, for CUDA %d.%d, compiles the kernels from PTX, which takes up to a "
            "minute at the first use; then it keeps them (CUDA_CACHE_PATH)",
            name_of(device, name), version / 1000, version % 1000 / 10);
    return load_image(device, tt_device_older_image, log);
}

/* In the context. On a failure, what was loaded stays in *device. */
static tt_status load(struct tt_device *device)
{
    const struct tt_cuda *cu = device->cu;
    char log[LOG_TEXT], name[NAME_TEXT];
    int nblocks = 0;
    CUresult result = load_module(device, log);
    if (result != CUDA_SUCCESS) return fail_load(device, result, log);
    result = cu->ModuleGetFunction(&device->run, device->module, "tutti_run");
    if (result != CUDA_SUCCESS)
        return fail_call(device, result, "cuModuleGetFunction of tutti_run", "");
    result = cu->OccupancyMaxActiveBlocksPerMultiprocessor(&nblocks, device->run, TT_DEVICE_THREADS,
                                                           ROOM_BYTES);
    if (result != CUDA_SUCCESS)
        return fail_call(device, result, "cuOccupancyMaxActiveBlocksPerMultiprocessor", "");
    if (nblocks < 1)
        return tt_fail(
            TT_ERR_DEVICE,
            "a multiprocessor of %s cannot hold one block of the kernel: %d threads, their "
            "registers and shared memory",
            name_of(device, name), TT_DEVICE_THREADS);
    device->capacity = nblocks * count_processors(device);
    return TT_OK;
}

/* The first launch of a kernel takes memory, for which the driver may wait for kernels that run. So
 * it is made now, of no call, and not waited for. */
static tt_status launch_first(struct tt_device *device)
{
    const struct tt_device_batch none = {.ncalls = 0};
    void *parameters[] = {(void *)(uintptr_t)&none}, *stream; /* the driver copies them */
    TT_TRY(tt_context_stream_create(device->context, &stream));
    const CUresult result = device->cu->LaunchKernel(device->run, 1, 1, 1, WARP_THREADS, 1, 1,
                                                     ROOM_BYTES, stream, parameters, NULL);
    tt_context_stream_destroy(device->context, stream);
    return result == CUDA_SUCCESS ? TT_OK : fail_call(device, result, "cuLaunchKernel", "");
}

static void unload(struct tt_device *device)
{
    if (!device->module || tt_context_enter(device->context) != TT_OK) return;
    device->cu->ModuleUnload(device->module);
    tt_context_leave(device->context);
}

/* Loads the kernels of an entry that has a number and nothing else. */
static tt_status make(struct tt_device *device)
{
    TT_TRY(tt_context_open(device->number, &device->context));
    device->cu = tt_cuda_load();
    tt_status status = tt_driver_gpu(device->number, &device->gpu);
    if (!status) status = tt_context_enter(device->context);
    if (status) goto close_context;
    status = load(device);
    if (!status) status = launch_first(device);
    tt_context_leave(device->context);
    if (status) goto unload_module;
    device->shares.capacity = device->capacity;
    return TT_OK;

unload_module:
    unload(device);
close_context:
    tt_context_close(device->context);
    return status;
}

/* An entry with one user, whose lock `making` the caller has. */
static tt_status list_locked(int gpu, struct tt_device **out)
{
    struct tt_device *device = calloc(1, sizeof *device);
    if (!device)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for GPU %d: %zu bytes", gpu, sizeof *device);
    *device = (struct tt_device){
        .number = gpu, .process = getpid(), .is_listed = true, .nusers = 1, .next = devices};
    pthread_mutex_init(&device->making, NULL);
    pthread_mutex_lock(&device->making);
    devices = device;
    *out = device;
    return TT_OK;
}

static void unlist_locked(const struct tt_device *device)
{
    struct tt_device **link = &devices;
    while (*link != device) link = &(*link)->next;
    *link = device->next;
}

/* One more user of the GPU's entry, or, with *is_first, a new entry. */
static tt_status use_locked(int gpu, struct tt_device **device, bool *is_first)
{
    struct tt_device *found = devices;
    while (found && found->number != gpu) found = found->next;
    *is_first = !found;
    if (!found) return list_locked(gpu, device);
    if (found->process != getpid())
        return tt_fail(TT_ERR_USAGE,
                       "GPU %d was opened by process %d before it forked; its child %d cannot use "
                       "CUDA (fork before the first use of a GPU, or start the child by exec)",
                       gpu, (int)found->process, (int)getpid());
    found->nusers++;
    *device = found;
    return TT_OK;
}

/* One user less. True: that was the last one. */
static bool leave(struct tt_device *device)
{
    tt_process_lock(&lock);
    const bool last = --device->nusers == 0;
    if (last && device->is_listed) unlist_locked(device);
    tt_process_unlock(&lock);
    return last;
}

static void free_entry(struct tt_device *device)
{
    pthread_mutex_destroy(&device->making);
    free(device);
}

/* By the entry's first user. Who waits for an entry that could not be made finds none in the list,
 * and makes one. */
static tt_status make_first(struct tt_device *device)
{
    const tt_status status = make(device);
    if (status) {
        tt_process_lock(&lock);
        unlist_locked(device);
        device->is_listed = false;
        tt_process_unlock(&lock);
    }
    device->is_made = !status;
    pthread_mutex_unlock(&device->making);
    return status;
}

/* Waits for the entry's first user. */
static bool await_made(struct tt_device *device)
{
    pthread_mutex_lock(&device->making);
    const bool is_made = device->is_made;
    pthread_mutex_unlock(&device->making);
    return is_made;
}

tt_status tt_device_open(int gpu, struct tt_device **out)
{
    struct tt_device *device = NULL;
    bool is_first = false, is_made = false;
    tt_status status = TT_OK;
    while (!status && !is_made) {
        tt_process_lock(&lock);
        status = use_locked(gpu, &device, &is_first);
        tt_process_unlock(&lock);
        if (status) return status;
        if (is_first) status = make_first(device);
        is_made = await_made(device);
        if (!is_made && leave(device)) free_entry(device);
    }
    if (!status) *out = device;
    return status;
}

void tt_device_close(struct tt_device *device)
{
    /* In a forked child the driver does not answer: what it holds is the parent's. */
    if (!device || !leave(device) || device->process != getpid()) return;
    unload(device); /* waits for all kernels */
    tt_context_let_go(device->context);
    tt_context_close(device->context);
    free_entry(device);
}

struct tt_context *tt_device_context(const struct tt_device *device)
{
    return device->context;
}

int tt_device_capacity(const struct tt_device *device)
{
    return device->capacity;
}

struct tt_shares *tt_device_shares(struct tt_device *device)
{
    return &device->shares;
}

/* How many blocks the batch has, and threads of each. */
static tt_status measure(const struct tt_device *device, const struct tt_device_batch *batch,
                         unsigned *nblocks, unsigned *nthreads)
{
    uint64_t sum = 0;
    char name[NAME_TEXT];
    if (batch->ncalls > TT_DEVICE_MOST_CALLS)
        return tt_fail(TT_ERR_USAGE, "%u calls in one launch; at most %d are possible",
                       batch->ncalls, TT_DEVICE_MOST_CALLS);
    for (uint32_t i = 0, end; i < batch->ncalls; i = end) {
        end = tt_device_run_end(batch, i);
        sum += tt_device_run_blocks(batch, i, end);
    }
    if (sum > (uint64_t)device->capacity)
        return tt_fail(TT_ERR_USAGE,
                       "%llu blocks in one launch; %s holds %d at the same time, and blocks may "
                       "wait for one another (use fewer ranks, channels or copies on this GPU)",
                       (unsigned long long)sum, name_of(device, name), device->capacity);
    *nblocks = (unsigned)sum;
    *nthreads = batch->nthreads ? batch->nthreads : TT_DEVICE_THREADS;
    if (*nthreads % 32 || *nthreads > TT_DEVICE_THREADS)
        return tt_fail(TT_ERR_USAGE, "%u threads of a block; expected a multiple of 32, at most %d",
                       *nthreads, TT_DEVICE_THREADS);
    return TT_OK;
}

static CUresult launch_with_priority(const struct tt_device *device, void *stream, int priority,
                                     unsigned nblocks, unsigned nthreads, void **parameters)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY,
                                   .value = {.priority = priority}};
    const CUlaunchConfig config = {.gridDimX = nblocks,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = nthreads,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .sharedMemBytes = ROOM_BYTES,
                                   .hStream = stream,
                                   .attrs = &attribute,
                                   .numAttrs = 1};
    return device->cu->LaunchKernelEx(&config, device->run, parameters, NULL);
}

tt_status tt_device_launch(struct tt_device *device, void *stream,
                           const struct tt_device_batch *batch)
{
    unsigned nblocks, nthreads;
    TT_TRY(measure(device, batch, &nblocks, &nthreads));
    if (nblocks == 0) return TT_OK;
    void *parameters[] = {(void *)(uintptr_t)batch}; /* the driver copies it */
    int64_t deadline_ns = 0;
    CUresult result;
    TT_TRY(tt_context_enter(device->context));
    do
        result = batch->priority
                     ? launch_with_priority(device, stream, batch->priority, nblocks, nthreads,
                                            parameters)
                     : device->cu->LaunchKernel(device->run, nblocks, 1, 1, nthreads, 1, 1,
                                                ROOM_BYTES, stream, parameters, NULL);
    while (tt_cuda_is_to_repeat(device->cu, result, &deadline_ns));
    tt_context_leave(device->context);
    return result == CUDA_SUCCESS
               ? TT_OK
               : fail_call(device, result, batch->priority ? "cuLaunchKernelEx" : "cuLaunchKernel",
                           "");
}

tt_status tt_device_launch_probes(struct tt_device *device, void *stream,
                                  struct tt_device_probe *probes, size_t nprobes, bool loads)
{
    enum { THREADS = 2 * WARP_THREADS, MOST_BLOCKS = 8 };
    const struct tt_device_batch batch = {
        .probes = probes, .nprobes = (uint32_t)nprobes, .loads = loads};
    const size_t nblocks = (nprobes + THREADS - 1) / THREADS;
    void *parameters[] = {(void *)(uintptr_t)&batch}; /* the driver copies it */
    if (nprobes == 0) return TT_OK;
    TT_TRY(tt_context_enter(device->context));
    const CUresult result = device->cu->LaunchKernel(
        device->run, nblocks < MOST_BLOCKS ? (unsigned)nblocks : MOST_BLOCKS, 1, 1, THREADS, 1, 1,
        0, stream, parameters, NULL);
    tt_context_leave(device->context);
    return result == CUDA_SUCCESS ? TT_OK : fail_call(device, result, "cuLaunchKernel", "");
}

static CUDA_KERNEL_NODE_PARAMS node_params(const struct tt_device *device, unsigned nblocks,
                                           unsigned nthreads, void **parameters)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = device->run,
                                     .gridDimX = nblocks,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = nthreads,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .sharedMemBytes = ROOM_BYTES,
                                     .kernelParams = parameters};
}

tt_status tt_device_add_node(struct tt_device *device, void *graph, void *const *after,
                             size_t nafter, const struct tt_device_batch *batch, void **node)
{
    unsigned nblocks, nthreads;
    CUgraphNode made;
    TT_TRY(measure(device, batch, &nblocks, &nthreads));
    if (nblocks == 0) return tt_fail(TT_ERR_INTERNAL, "a node of a graph without blocks");
    void *parameters[] = {(void *)(uintptr_t)batch}; /* the driver copies it */
    const CUDA_KERNEL_NODE_PARAMS launch = node_params(device, nblocks, nthreads, parameters);
    TT_TRY(tt_context_enter(device->context));
    const CUlaunchAttributeValue priority = {.priority = batch->priority};
    CUresult result =
        device->cu->GraphAddKernelNode(&made, graph, (const CUgraphNode *)after, nafter, &launch);
    const char *call = "cuGraphAddKernelNode";
    if (result == CUDA_SUCCESS) *node = made;
    if (result == CUDA_SUCCESS && batch->priority) {
        call = "cuGraphKernelNodeSetAttribute of a priority";
        result =
            device->cu->GraphKernelNodeSetAttribute(made, CU_LAUNCH_ATTRIBUTE_PRIORITY, &priority);
    }
    tt_context_leave(device->context);
    return result == CUDA_SUCCESS ? TT_OK : fail_call(device, result, call, "");
}

tt_status tt_device_empty_node(struct tt_device *device, void *node)
{
    struct tt_device_batch none = {.ncalls = 0};
    void *parameters[] = {&none};
    const CUDA_KERNEL_NODE_PARAMS launch = node_params(device, 1, 32, parameters);
    TT_TRY(tt_context_enter(device->context));
    const CUresult result = device->cu->GraphKernelNodeSetParams(node, &launch);
    tt_context_leave(device->context);
    return result == CUDA_SUCCESS ? TT_OK
                                  : fail_call(device, result, "cuGraphKernelNodeSetParams", "");
}
