/* Times all-reduce of NCCL between processes that share GPU 0, for a comparison with tutti's on the
 * same machine: `run` beside this calls it.
 *
 * nccl LIBRARY RANKS MIN MAX FACTOR      sizes in bytes; MAX may end with K, M
 *
 * Rank 0 prints a row for each size, in the columns of the perf tests: bytes, elements, type,
 * operation, root, time in us, algbw and busbw in GB/s, wrong elements. The time is the least of
 * five means of 20 calls that follow one another on a stream. NCCL accepts several ranks on a GPU
 * from 2.30 on, with NCCL_MULTI_RANK_GPU_ENABLE=1. The types and numbers of NCCL's binary interface
 * below stay, so this file needs no header of NCCL.
 *
 * Exit status: 0 done, 1 a call failed or a value is wrong, 2 a bad command line. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/gpu.h"
#include "common/timing.h"

enum { NCALLS = 20, NTURNS = 5, NCCL_FLOAT = 7, NCCL_SUM = 0 };

typedef struct {
    char bytes[128];
} nccl_id;

static struct {
    int (*get_version)(int *);
    int (*get_id)(nccl_id *);
    int (*init)(void **, int, nccl_id, int);
    int (*all_reduce)(const void *, void *, size_t, int, int, void *, void *);
    int (*destroy)(void *);
    const char *(*error)(int);
} nccl;

/* What the processes share. */
struct shared {
    volatile int has_id;
    nccl_id id;
};

static int rank, nranks;

static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "rank %d: ", rank);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static void gpu_ok(tuttiResult_t result)
{
    if (result != tuttiSuccess) die("%s", perf_gpu_error());
}

static void nccl_ok(int result, const char *what)
{
    if (result) die("%s: %s", what, nccl.error(result));
}

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found) die("no %s in the library", name);
    return found;
}

static void load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) die("%s", dlerror());
    *(void **)&nccl.get_version = symbol(library, "ncclGetVersion");
    *(void **)&nccl.get_id = symbol(library, "ncclGetUniqueId");
    *(void **)&nccl.init = symbol(library, "ncclCommInitRank");
    *(void **)&nccl.all_reduce = symbol(library, "ncclAllReduce");
    *(void **)&nccl.destroy = symbol(library, "ncclCommDestroy");
    *(void **)&nccl.error = symbol(library, "ncclGetErrorString");
}

/* A rank's GPU and its buffers. */
struct place {
    struct perf_gpu gpu;
    void *comm, *in, *out, *begun, *ended;
};

/* The seconds of a call, as a mean of NCALLS. */
static double time_calls(const struct place *at, size_t count)
{
    double seconds;
    gpu_ok(perf_gpu_event_record(&at->gpu, at->begun));
    for (int i = 0; i < NCALLS; i++)
        nccl_ok(
            nccl.all_reduce(at->in, at->out, count, NCCL_FLOAT, NCCL_SUM, at->comm, at->gpu.stream),
            "ncclAllReduce");
    gpu_ok(perf_gpu_event_record(&at->gpu, at->ended));
    gpu_ok(perf_gpu_wait(&at->gpu));
    gpu_ok(perf_gpu_event_seconds(&at->gpu, at->begun, at->ended, &seconds));
    return seconds / NCALLS;
}

/* Every rank's input is rank + 1 everywhere. */
static size_t count_wrong(const struct place *at, size_t count)
{
    const float expected = (float)(nranks * (nranks + 1) / 2);
    float *data = malloc(count * sizeof *data);
    size_t wrong = 0;
    if (!data) die("no memory for %zu elements", count);
    gpu_ok(perf_gpu_read(&at->gpu, data, at->out, count * sizeof *data));
    for (size_t i = 0; i < count; i++) wrong += data[i] != expected;
    free(data);
    return wrong;
}

static void fill_input(const struct place *at, size_t count)
{
    float *data = malloc(count * sizeof *data);
    if (!data) die("no memory for %zu elements", count);
    for (size_t i = 0; i < count; i++) data[i] = (float)(rank + 1);
    gpu_ok(perf_gpu_write(&at->gpu, at->in, data, count * sizeof *data));
    free(data);
}

static int measure(const struct place *at, size_t nbytes)
{
    const size_t count = nbytes / sizeof(float);
    double best = 0;
    for (int turn = -1; turn < NTURNS; turn++) { /* the first is not counted */
        const double seconds = time_calls(at, count);
        if (turn == 0 || (turn > 0 && seconds < best)) best = seconds;
    }
    const size_t wrong = count_wrong(at, count);
    const double rate = (double)nbytes / best * 1e-9;
    if (!rank)
        printf("%12zu %12zu float sum -1 %10.2f %8.2f %8.2f %zu\n", nbytes, count, best * 1e6, rate,
               rate * 2 * (nranks - 1) / nranks, wrong);
    fflush(stdout);
    return wrong > 0;
}

static int run_rank(struct shared *shared, size_t least, size_t most, size_t factor)
{
    struct place at = {.comm = NULL};
    int ngpus, status = 0, version = 0;
    gpu_ok(perf_gpu_load(&ngpus));
    gpu_ok(perf_gpu_open(&at.gpu, 0));
    nccl_ok(nccl.get_version(&version), "ncclGetVersion");
    if (!rank) {
        printf("# NCCL %d, %d processes on GPU 0\n", version, nranks);
        nccl_ok(nccl.get_id(&shared->id), "ncclGetUniqueId");
        __atomic_store_n(&shared->has_id, 1, __ATOMIC_RELEASE);
    }
    while (!__atomic_load_n(&shared->has_id, __ATOMIC_ACQUIRE)) usleep(1000);
    nccl_ok(nccl.init(&at.comm, nranks, shared->id, rank), "ncclCommInitRank");
    gpu_ok(perf_gpu_allocate(&at.gpu, most, &at.in));
    gpu_ok(perf_gpu_allocate(&at.gpu, most, &at.out));
    gpu_ok(perf_gpu_event_create(&at.gpu, &at.begun));
    gpu_ok(perf_gpu_event_create(&at.gpu, &at.ended));
    fill_input(&at, most / sizeof(float));
    for (size_t nbytes = least; nbytes <= most; nbytes *= factor) status |= measure(&at, nbytes);
    nccl_ok(nccl.destroy(at.comm), "ncclCommDestroy");
    return status;
}

static size_t size_of(const char *text)
{
    char *end;
    const size_t number = strtoull(text, &end, 10);
    return number << (*end == 'M' ? 20 : *end == 'K' ? 10 : 0);
}

int main(int argc, char **argv)
{
    if (argc != 6 || atoi(argv[2]) < 1 || size_of(argv[3]) < 4 || size_of(argv[5]) < 2) {
        fprintf(stderr, "usage: nccl LIBRARY RANKS MIN MAX FACTOR (MIN at least 4, FACTOR 2)\n");
        return 2;
    }
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int failed = 0;
    if (shared == MAP_FAILED) die("no shared memory");
    nranks = atoi(argv[2]);
    for (rank = 0; rank < nranks; rank++)
        if (!fork()) { /* before CUDA begins */
            load(argv[1]);
            return run_rank(shared, size_of(argv[3]), size_of(argv[4]), size_of(argv[5]));
        }
    for (int i = 0, status; i < nranks; i++)
        if (wait(&status) > 0 && status) failed = 1;
    return failed;
}
