/* Ranks as threads, each on a virtual GPU, and memory on it. */
#include "ranks_on_gpus.h"

#include <cuda.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "../driver/calls.h"
#include "shim.h"

struct thread {
    struct gpu_rank rank;
    const tuttiConfig_t *config;
    tuttiUniqueId id;
    void (*body)(struct gpu_rank *rank);
};

static void *run(void *argument)
{
    struct thread *thread = argument;
    static const tuttiConfig_t undefined = TUTTI_CONFIG_INITIALIZER;
    tuttiConfig_t config = thread->config ? *thread->config : undefined;
    config.device = thread->rank.gpu;
    const tuttiResult_t result = tuttiCommInitRankConfig(&thread->rank.comm, thread->rank.nranks,
                                                         thread->id, thread->rank.rank, &config);
    CHECK_MESSAGE(result == tuttiSuccess, "rank %d: init: %s", thread->rank.rank,
                  tuttiGetLastError(NULL));
    if (result != tuttiSuccess) return NULL;
    thread->body(&thread->rank);
    if (thread->rank.comm) CHECK_EQ(tuttiCommDestroy(thread->rank.comm), tuttiSuccess);
    return NULL;
}

void on_gpus(int nranks, int ngpus, const tuttiConfig_t *config,
             void (*body)(struct gpu_rank *rank), void *arg)
{
    int gpus[MOST_RANKS];
    for (int r = 0; r < nranks; r++) gpus[r] = r % ngpus;
    on_devices(nranks, gpus, config, body, arg);
}

void on_gpus_together(int nranks, int ngpus, const tuttiConfig_t *config,
                      void (*body)(struct gpu_rank *rank))
{
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, (unsigned)nranks);
    on_gpus(nranks, ngpus, config, body, &all);
    pthread_barrier_destroy(&all);
}

void on_devices(int nranks, const int *gpus, const tuttiConfig_t *config,
                void (*body)(struct gpu_rank *rank), void *arg)
{
    struct thread threads[MOST_RANKS];
    pthread_t handles[MOST_RANKS];
    tuttiUniqueId id;
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    for (int r = 0; r < nranks; r++) {
        threads[r] = (struct thread){
            {.rank = r, .nranks = nranks, .gpu = gpus[r], .arg = arg}, config, id, body};
        CHECK(pthread_create(&handles[r], NULL, run, &threads[r]) == 0);
    }
    for (int r = 0; r < nranks; r++) pthread_join(handles[r], NULL);
    gpu_free_all();
}

/* cuMemFree waits for all kernels, also for those that wait for the calling rank. */
enum { MOST_GARBAGE = 4096 };
static struct {
    pthread_mutex_t lock;
    int number;
    void *at[MOST_GARBAGE];
    int nhost;
    void *of_host[MOST_GARBAGE]; /* what gpu_memory has made there */
} garbage = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The context stays retained: it holds the test's memory. */
static void enter(int gpu)
{
    CUcontext context = NULL;
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, gpu);
    CALL(cuCtxPushCurrent_v2, context);
}

static void leave(void)
{
    CUcontext context = NULL;
    CALL(cuCtxPopCurrent_v2, &context);
}

static char *keep_host(void *memory)
{
    pthread_mutex_lock(&garbage.lock);
    if (garbage.nhost < MOST_GARBAGE) garbage.of_host[garbage.nhost++] = memory;
    pthread_mutex_unlock(&garbage.lock);
    return memory;
}

static bool is_of_host_locked(void *memory)
{
    for (int i = 0; i < garbage.nhost; i++) {
        if (garbage.of_host[i] != memory) continue;
        garbage.of_host[i] = garbage.of_host[--garbage.nhost];
        return true;
    }
    return false;
}

/* With TT_ONE_MEMORY all memory of a GPU is of one tuttiDeviceMemAlloc, which peers open once. What
 * is freed is used again when all is. */
enum { MOST_GPUS = 16, ONE_MEMORY = 256 << 20, ONE_ALIGNMENT = 512 };
static struct {
    pthread_mutex_t lock;
    char *memory[MOST_GPUS];
    size_t used[MOST_GPUS];
    int nlive[MOST_GPUS];
} one = {.lock = PTHREAD_MUTEX_INITIALIZER};

static CUdeviceptr take_of_one(int gpu, size_t nbytes)
{
    void *memory = NULL;
    pthread_mutex_lock(&one.lock);
    if (!one.memory[gpu]) {
        if (tuttiDeviceMemAlloc(&memory, ONE_MEMORY, gpu)) abort();
        one.memory[gpu] = memory;
    }
    if (!one.nlive[gpu]++) one.used[gpu] = 0;
    char *taken = one.memory[gpu] + one.used[gpu];
    one.used[gpu] += (nbytes + ONE_ALIGNMENT) / ONE_ALIGNMENT * ONE_ALIGNMENT;
    if (one.used[gpu] > ONE_MEMORY) abort();
    pthread_mutex_unlock(&one.lock);
    return (CUdeviceptr)taken;
}

static bool give_to_one(const char *memory)
{
    bool is_one = false;
    pthread_mutex_lock(&one.lock);
    for (int gpu = 0; gpu < MOST_GPUS && !is_one; gpu++) {
        is_one =
            one.memory[gpu] && memory >= one.memory[gpu] && memory < one.memory[gpu] + ONE_MEMORY;
        if (is_one) one.nlive[gpu]--;
    }
    pthread_mutex_unlock(&one.lock);
    return is_one;
}

static CUdeviceptr allocate(int gpu, size_t nbytes)
{
    CUdeviceptr memory = 0;
    if (getenv("TT_ONE_MEMORY")) return take_of_one(gpu, nbytes);
    enter(gpu);
    CALL(cuMemAlloc_v2, &memory, nbytes ? nbytes : 1);
    leave();
    return memory;
}

char *gpu_memory(int gpu, size_t nbytes)
{
    void *filled = malloc(nbytes);
    memset(filled, 0xa5, nbytes);
    if (gpu < 0) return keep_host(filled);
    char *memory = (char *)allocate(gpu, nbytes);
    gpu_write(gpu, memory, filled, nbytes);
    free(filled);
    return memory;
}

void gpu_free(void *memory)
{
    if (give_to_one(memory)) return;
    pthread_mutex_lock(&garbage.lock);
    if (is_of_host_locked(memory))
        free(memory);
    else if (garbage.number < MOST_GARBAGE)
        garbage.at[garbage.number++] = memory;
    pthread_mutex_unlock(&garbage.lock);
}

void gpu_free_all(void)
{
    enter(0);
    while (garbage.number) CALL(cuMemFree_v2, (CUdeviceptr)garbage.at[--garbage.number]);
    leave();
}

void gpu_fill(int gpu, void *stream, void *memory, unsigned word, size_t nwords)
{
    enter(gpu);
    CALL(cuMemsetD32Async, (CUdeviceptr)memory, word, nwords, stream);
    leave();
}

void gpu_write(int gpu, void *to, const void *from, size_t nbytes)
{
    if (gpu < 0) {
        memcpy(to, from, nbytes);
        return;
    }
    void *stream = gpu_stream(gpu);
    enter(gpu);
    CALL(cuMemcpyHtoDAsync_v2, (CUdeviceptr)to, from, nbytes, stream);
    CALL(cuStreamSynchronize, stream);
    leave();
    gpu_stream_destroy(gpu, stream);
}

void gpu_read(int gpu, void *to, const void *from, size_t nbytes)
{
    if (gpu < 0) {
        memcpy(to, from, nbytes);
        return;
    }
    void *stream = gpu_stream(gpu);
    enter(gpu);
    CALL(cuMemcpyDtoHAsync_v2, to, (CUdeviceptr)from, nbytes, stream);
    CALL(cuStreamSynchronize, stream);
    leave();
    gpu_stream_destroy(gpu, stream);
}

void *gpu_stream(int gpu)
{
    CUstream stream = NULL;
    if (gpu < 0) return NULL;
    enter(gpu);
    CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    leave();
    return stream;
}

void gpu_stream_destroy(int gpu, void *stream)
{
    if (gpu < 0) return;
    enter(gpu);
    CALL(cuStreamDestroy_v2, stream);
    leave();
}

void gpu_capture(int gpu, void *stream)
{
    enter(gpu);
    CALL(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    leave();
}

void gpu_end_capture(int gpu, void *stream)
{
    CUgraph graph = NULL;
    enter(gpu);
    CALL(cuStreamEndCapture, stream, &graph);
    CALL(cuGraphDestroy, graph);
    leave();
}

static sem_t unblocked;

static void CUDA_CB wait_for_unblock(void *semaphore)
{
    while (sem_wait(semaphore)) {
    }
}

void gpu_block(int gpu, void *stream)
{
    sem_init(&unblocked, 0, 0);
    enter(gpu);
    CALL(cuLaunchHostFunc, stream, wait_for_unblock, &unblocked);
    leave();
}

void gpu_unblock(void)
{
    sem_post(&unblocked);
}

void gpu_use(int gpu)
{
    enter(gpu);
}

void gpu_pin(int gpu, void *memory, size_t nbytes)
{
    enter(gpu);
    CALL(cuMemHostRegister_v2, memory, nbytes, CU_MEMHOSTREGISTER_PORTABLE);
    leave();
}

void gpu_unpin(int gpu, void *memory)
{
    enter(gpu);
    CALL(cuMemHostUnregister, memory);
    leave();
}

tuttiResult_t make_alone(tuttiComm_t *comm)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiUniqueId id;
    config.device = 0;
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    return tuttiCommInitRankConfig(comm, 1, id, 0, &config);
}
