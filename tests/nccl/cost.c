/* What ncclAllReduce costs beside tuttiAllReduce: 8 bytes of one rank on a CUDA stream of a GPU, in
 * groups whose calls are never issued, so no kernel is launched while a call is timed. cost.sh runs
 * this program on a virtual GPU.
 *
 * nccl_cost ROUNDS     a round makes NCALLS calls of each kind, in turns; prints their times
 * nccl_cost count      NCALLS calls of each kind, for callgrind: next_kind comes before each kind
 */
#include <cuda.h>
#include <dlfcn.h>
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
enum { MOST_ROUNDS = 10000, NCALLS = 1000 };

static struct {
    ncclComm_t nccl;
    tuttiComm_t tutti;
    CUstream stream;
    tuttiStream_t same; /* the same stream, for tutti */
    void *data;         /* 8 bytes of device memory */
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

static void begin(void)
{
    CUcontext context;
    CUdeviceptr memory;
    void *found = symbol("cuStreamGetId");
    memcpy(&at.get_id, &found, sizeof at.get_id);
    DRIVER(cuInit, 0);
    DRIVER(cuDevicePrimaryCtxRetain, &context, 0);
    DRIVER(cuCtxSetCurrent, context);
    DRIVER(cuStreamCreate, &at.stream, CU_STREAM_NON_BLOCKING);
    DRIVER(cuMemAlloc_v2, &memory, sizeof(int64_t));
    at.data = (void *)(uintptr_t)memory;
    need((int)ncclCommInitAll(&at.nccl, 1, NULL), "ncclCommInitAll");
    need((int)tuttiCommInitAll(&at.tutti, 1, (const int[]){0}), "tuttiCommInitAll");
    need((int)tuttiStreamOfDevice(&at.same, 0, at.stream), "tuttiStreamOfDevice");
}

static void end(void)
{
    need((int)ncclCommDestroy(at.nccl), "ncclCommDestroy");
    need((int)tuttiCommDestroy(at.tutti), "tuttiCommDestroy");
}

/* Callgrind counts in this function, and writes what it has counted before next_kind. */
__attribute__((noinline)) int make_calls(int kind);
__attribute__((noinline)) int make_calls(int kind)
{
    unsigned long long id;
    int result = 0;
    for (int i = 0; i < NCALLS && !result; i++) {
        if (kind == NCCL)
            result = (int)ncclAllReduce(at.data, at.data, 1, ncclInt64, ncclSum, at.nccl,
                                        (cudaStream_t)(void *)at.stream);
        else if (kind == TUTTI)
            result =
                (int)tuttiAllReduce(at.data, at.data, 1, tuttiInt64, tuttiSum, at.tutti, at.same);
        else
            result = (int)at.get_id(at.stream, &id);
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

/* A call's nanoseconds, and how often the calls together took memory. The group ends without its
 * calls. */
static double time_calls(int kind, uint64_t *taken)
{
    if (kind == NCCL) need((int)ncclGroupStart(), "ncclGroupStart");
    if (kind == TUTTI) need((int)tuttiGroupStart(), "tuttiGroupStart");
    const uint64_t allocated = allocations();
    const double begun = now_ns();
    const int result = make_calls(kind);
    const double ended = now_ns();
    *taken = allocations() - allocated;
    need(result, "a call");
    if (kind == NCCL) (void)ncclGroupSimulateEnd(NULL);
    if (kind == TUTTI) {
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

static void print_times(int nrounds)
{
    static double ns[NKINDS][MOST_ROUNDS], more[MOST_ROUNDS], own[MOST_ROUNDS];
    uint64_t taken[NKINDS];
    for (int round = 0; round < nrounds; round++) {
        for (int turn = 0; turn < NKINDS; turn++) {
            const int kind = round % 2 ? NKINDS - 1 - turn : turn;
            ns[kind][round] = time_calls(kind, &taken[kind]);
        }
        more[round] = ns[NCCL][round] - ns[TUTTI][round];
        own[round] = more[round] - ns[ID][round];
    }
    print("ncclAllReduce", ns[NCCL], nrounds);
    print("tuttiAllReduce", ns[TUTTI], nrounds);
    print("cuStreamGetId", ns[ID], nrounds);
    print("ncclAllReduce less tuttiAllReduce", more, nrounds);
    print("and less cuStreamGetId", own, nrounds);
    printf("allocations of the last %d calls: ncclAllReduce %d, tuttiAllReduce %d\n", NCALLS,
           (int)taken[NCCL], (int)taken[TUTTI]);
}

int main(int argc, char **argv)
{
    uint64_t taken;
    const bool counts = argc == 2 && !strcmp(argv[1], "count");
    const long nrounds = argc == 2 && !counts ? strtol(argv[1], NULL, 10) : 0;
    if (!counts && (nrounds < 1 || nrounds > MOST_ROUNDS)) {
        fprintf(stderr, "usage: nccl_cost count | nccl_cost ROUNDS (1 to %d)\n", MOST_ROUNDS);
        return 2;
    }
    begin();
    for (int kind = 0; kind < NKINDS; kind++) (void)time_calls(kind, &taken); /* first uses */
    for (int kind = 0; counts && kind < NKINDS; kind++) {
        next_kind();
        (void)time_calls(kind, &taken);
    }
    next_kind();
    if (!counts) print_times((int)nrounds);
    end();
    return 0;
}
