/* What ncclAllReduce of 8 bytes costs beside tuttiAllReduce. On a GPU: one rank on a CUDA stream,
 * in groups whose calls are never issued, so no kernel is launched while a call is timed. On host
 * memory: ranks that are threads make whole calls. cost.sh runs this program, on a virtual GPU too.
 *
 * nccl_cost gpu ROUNDS|count        a round makes NCALLS calls of each kind, in turns; prints their
 * nccl_cost host RANKS ROUNDS|count times. count: NCALLS calls of each kind, for callgrind:
 *                                   next_kind comes before each kind
 */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allocations.h"
#include "nccl.h"
#include "tutti.h"

/* ID: cuStreamGetId, the driver's call by which ncclAllReduce knows which stream it was given.
 * tuttiAllReduce is given a tuttiStream_t. Both ask the driver whose memory the buffer is. */
enum { NCCL, TUTTI, ID, NKINDS };
enum { MOST_ROUNDS = 10000, MOST_RANKS = 8, NCALLS = 1000 };

/* A rank. On host memory there is no stream, and no kind ID. */
struct rank {
    int rank;
    ncclComm_t nccl;
    tuttiComm_t tutti;
    CUstream stream;
    tuttiStream_t same; /* the same stream, for tutti */
    const void *data;   /* 8 bytes of device memory, or of the host's */
    void *result;       /* the same 8 bytes, or others of the host's */
    int64_t memory[2];
};

static struct {
    int nranks, nkinds;
    long nrounds; /* 0: calls for callgrind */
    bool is_on_gpu;
    ncclUniqueId nccl_id;
    tuttiUniqueId tutti_id;
    CUresult (*get_id)(CUstream, unsigned long long *);
} at;

static void need(int result, const char *what)
{
    if (!result) return;
    fprintf(stderr, "nccl_cost: %s: result %d: %s\n", what, result, tuttiGetLastError(NULL));
    exit(1);
}

static void *symbol(const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, name) : NULL;
    if (found) return found;
    fprintf(stderr, "nccl_cost: no %s in libcuda.so.1: run it by vgpu-run\n", name);
    exit(1);
}

#define DRIVER(name, ...)                                                                          \
    do {                                                                                           \
        __typeof__(name) *call_;                                                                   \
        void *symbol_ = symbol(#name);                                                             \
        memcpy(&call_, &symbol_, sizeof call_);                                                    \
        need((int)call_(__VA_ARGS__), #name);                                                      \
    } while (0)

static void begin_on_gpu(struct rank *own)
{
    CUcontext context;
    CUdeviceptr memory;
    void *found = symbol("cuStreamGetId");
    memcpy(&at.get_id, &found, sizeof at.get_id);
    DRIVER(cuInit, 0);
    DRIVER(cuDevicePrimaryCtxRetain, &context, 0);
    DRIVER(cuCtxSetCurrent, context);
    DRIVER(cuStreamCreate, &own->stream, CU_STREAM_NON_BLOCKING);
    DRIVER(cuMemAlloc_v2, &memory, sizeof(int64_t));
    own->data = own->result = (void *)(uintptr_t)memory;
    need((int)ncclCommInitAll(&own->nccl, 1, NULL), "ncclCommInitAll");
    need((int)tuttiCommInitAll(&own->tutti, 1, (const int[]){0}), "tuttiCommInitAll");
    need((int)tuttiStreamOfDevice(&own->same, 0, own->stream), "tuttiStreamOfDevice");
}

static void begin_on_host(struct rank *own)
{
    own->data = &own->memory[0];
    own->result = &own->memory[1];
    need((int)ncclCommInitRank(&own->nccl, at.nranks, at.nccl_id, own->rank), "ncclCommInitRank");
    need((int)tuttiCommInitRank(&own->tutti, at.nranks, at.tutti_id, own->rank),
         "tuttiCommInitRank");
}

/* Callgrind counts in this function, and writes what it has counted before next_kind. */
__attribute__((noinline)) int make_calls(const struct rank *own, int kind);
__attribute__((noinline)) int make_calls(const struct rank *own, int kind)
{
    unsigned long long id;
    int result = 0;
    for (int i = 0; i < NCALLS && !result; i++) {
        if (kind == NCCL)
            result = (int)ncclAllReduce(own->data, own->result, 1, ncclInt64, ncclSum, own->nccl,
                                        (cudaStream_t)(void *)own->stream);
        else if (kind == TUTTI)
            result = (int)tuttiAllReduce(own->data, own->result, 1, tuttiInt64, tuttiSum,
                                         own->tutti, own->same);
        else
            result = (int)at.get_id(own->stream, &id);
    }
    return result;
}

__attribute__((noinline)) void next_kind(void);
__attribute__((noinline)) void next_kind(void)
{
    __asm__ volatile("");
}

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* A call's nanoseconds, and how often the calls together took memory. On a GPU the group ends
 * without its calls. */
static double time_calls(const struct rank *own, int kind, uint64_t *taken)
{
    if (at.is_on_gpu && kind == NCCL) need((int)ncclGroupStart(), "ncclGroupStart");
    if (at.is_on_gpu && kind == TUTTI) need((int)tuttiGroupStart(), "tuttiGroupStart");
    const uint64_t allocated = allocations();
    const double begun = now_ns();
    const int result = make_calls(own, kind);
    const double ended = now_ns();
    *taken = allocations() - allocated;
    need(result, "a call");
    if (at.is_on_gpu && kind == NCCL) (void)ncclGroupSimulateEnd(NULL);
    if (at.is_on_gpu && kind == TUTTI) {
        (void)tuttiGroupFail(tuttiInvalidUsage, "nccl_cost issues no call");
        (void)tuttiGroupEnd();
    }
    return (ended - begun) / NCALLS;
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void print(const char *what, double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    printf("%s: median %.0f ns, quarters %.0f and %.0f\n", what, values[n / 2], values[n / 4],
           values[n - 1 - n / 4]);
}

/* The ranks make the same calls in the same order; rank 0 prints. */
static void time_rounds(const struct rank *own)
{
    static double ns[NKINDS][MOST_ROUNDS], more[MOST_ROUNDS], beside[MOST_ROUNDS]; /* of rank 0 */
    uint64_t taken[NKINDS];
    for (int round = 0; round < at.nrounds; round++) {
        double each[NKINDS] = {0};
        for (int turn = 0; turn < at.nkinds; turn++) {
            const int kind = round % 2 ? at.nkinds - 1 - turn : turn;
            each[kind] = time_calls(own, kind, &taken[kind]);
        }
        if (own->rank) continue;
        for (int kind = 0; kind < at.nkinds; kind++) ns[kind][round] = each[kind];
        more[round] = each[NCCL] - each[TUTTI];
        beside[round] = more[round] - each[ID];
    }
    if (own->rank) return;
    print("ncclAllReduce", ns[NCCL], (int)at.nrounds);
    print("tuttiAllReduce", ns[TUTTI], (int)at.nrounds);
    if (at.is_on_gpu) print("cuStreamGetId", ns[ID], (int)at.nrounds);
    print("ncclAllReduce less tuttiAllReduce", more, (int)at.nrounds);
    if (at.is_on_gpu) print("and less cuStreamGetId", beside, (int)at.nrounds);
    printf("allocations of the last %d calls: ncclAllReduce %d, tuttiAllReduce %d\n", NCALLS,
           (int)taken[NCCL], (int)taken[TUTTI]);
}

static void *run_rank(void *argument)
{
    struct rank *own = argument;
    uint64_t taken;
    if (at.is_on_gpu)
        begin_on_gpu(own);
    else
        begin_on_host(own);
    for (int kind = 0; kind < at.nkinds; kind++)
        (void)time_calls(own, kind, &taken); /* first uses */
    for (int kind = 0; !at.nrounds && kind < at.nkinds; kind++) {
        next_kind();
        (void)time_calls(own, kind, &taken);
    }
    next_kind();
    if (at.nrounds) time_rounds(own);
    need((int)ncclCommDestroy(own->nccl), "ncclCommDestroy");
    need((int)tuttiCommDestroy(own->tutti), "tuttiCommDestroy");
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[MOST_RANKS];
    static struct rank ranks[MOST_RANKS];
    const bool is_on_host = argc == 4 && !strcmp(argv[1], "host");
    at.is_on_gpu = argc == 3 && !strcmp(argv[1], "gpu");
    at.nkinds = at.is_on_gpu ? NKINDS : ID;
    at.nranks = is_on_host ? (int)strtol(argv[2], NULL, 10) : 1;
    const bool counts = argc > 2 && !strcmp(argv[argc - 1], "count");
    at.nrounds = argc > 2 && !counts ? strtol(argv[argc - 1], NULL, 10) : 0;
    const bool is_right = (is_on_host || at.is_on_gpu) && at.nranks >= 1 &&
                          at.nranks <= MOST_RANKS &&
                          (counts || (at.nrounds >= 1 && at.nrounds <= MOST_ROUNDS));
    if (!is_right) {
        fprintf(stderr,
                "usage: nccl_cost gpu ROUNDS|count, or nccl_cost host RANKS ROUNDS|count "
                "(1 to %d ranks, 1 to %d rounds)\n",
                MOST_RANKS, MOST_ROUNDS);
        return 2;
    }
    if (is_on_host) {
        need((int)ncclGetUniqueId(&at.nccl_id), "ncclGetUniqueId");
        need((int)tuttiGetUniqueId(&at.tutti_id), "tuttiGetUniqueId");
    }
    for (int rank = 0; rank < at.nranks; rank++) {
        ranks[rank].rank = rank;
        need(pthread_create(&threads[rank], NULL, run_rank, &ranks[rank]), "pthread_create");
    }
    for (int rank = 0; rank < at.nranks; rank++) pthread_join(threads[rank], NULL);
    return 0;
}
