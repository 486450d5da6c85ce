/* Checks of calls on GPUs that the perf tests do not make: what fails in the middle of a kernel,
 * and how fast the GPU copies. Runs on hardware and on virtual GPUs; `run` beside this calls it.
 *
 * checks devices         prints the number of GPUs, the name of the first, and "virtual" or "real"
 * checks copy BYTES      prints GB/s of a copy inside the GPU's memory
 * checks abort           a rank aborts while the other's kernel waits for it
 * checks deadline        a rank never calls
 * checks mismatch        two ranks make different calls
 * checks mixed           calls of a rank with GPU memory and a rank with memory of the host
 * checks death RANK      one process of a job of the environment: RANK kills itself while the
 * kernels of the others wait for it
 * checks free BYTES      a process of a job frees other memory behind an all-reduce of BYTES that
 *                        runs; prints after how long that returned
 *
 * Exit status: 0 as expected, 1 not, 2 a bad command line. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/gpu.h"
#include "common/timing.h"

enum { NRANKS = 2, COUNT = 5000, TIMEOUT_MS = 500, LIMIT_MS = 20000 };

/* A rank, by a thread or a process of its own. */
struct rank {
    int rank, nranks;
    int gpu; /* -1: none, `memory` is the host's */
    tuttiComm_t comm;
    struct perf_gpu on;
    tuttiStream_t stream;
    void *memory;
};

/* What a check does on each of two ranks, and the deadline of their calls. */
struct scene {
    int timeout_ms;
    void (*act)(struct rank *rank);
    bool mixed; /* rank 1 has no GPU */
};

static atomic_int nfailed;
static atomic_bool issued;   /* rank 0 has made its call */
static atomic_bool returned; /* rank 0 has the result of its call */

static void fail(const struct rank *rank, const char *what, const char *why)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank->rank, what, why);
    atomic_fetch_add(&nfailed, 1);
}

static bool ok(const struct rank *rank, tuttiResult_t result, const char *what)
{
    if (result == tuttiSuccess) return true;
    const char *why = rank->comm != NULL ? tuttiGetLastError(rank->comm) : "";
    if (why[0] == '\0') why = tuttiGetLastError(NULL);
    if (why[0] == '\0') why = perf_gpu_error();
    fail(rank, what, why);
    return false;
}

/* The result must be an error whose text has `text`. */
static void must_fail(const struct rank *rank, tuttiResult_t result, const char *text)
{
    const char *error = tuttiGetLastError(rank->comm);
    if (result == tuttiSuccess)
        fail(rank, "all-reduce", "succeeded, but an error was expected");
    else if (strstr(error, text) == NULL)
        fail(rank, "the error does not say what happened", error);
    else
        printf("rank %d: %s\n", rank->rank, error);
}

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* ---- Ranks ----------------------------------------------------------------------------------- */

static bool open_on_gpu(struct rank *rank, size_t nbytes)
{
    return ok(rank, perf_gpu_open(&rank->on, rank->gpu), "GPU") &&
           ok(rank, tuttiStreamFromDevice(&rank->stream, rank->gpu, rank->on.stream), "stream") &&
           ok(rank, perf_gpu_allocate(&rank->on, nbytes, &rank->memory), "memory") &&
           ok(rank, perf_gpu_fill(&rank->on, rank->memory, 0, nbytes), "fill");
}

/* The communicator is there already. */
static bool open_rank(struct rank *rank)
{
    if (rank->gpu < 0) return (rank->memory = calloc(COUNT, sizeof(float))) != NULL;
    return open_on_gpu(rank, COUNT * sizeof(float));
}

static void close_rank(struct rank *rank)
{
    if (rank->stream != NULL) (void)tuttiStreamDestroy(rank->stream);
    if (rank->comm != NULL) (void)tuttiCommAbort(rank->comm);
    if (rank->gpu < 0) {
        free(rank->memory);
        return;
    }
    if (rank->memory != NULL) perf_gpu_free(&rank->on, rank->memory);
    perf_gpu_close(&rank->on);
}

/* Issues and waits. */
static tuttiResult_t all_reduce(struct rank *rank, size_t count)
{
    tuttiResult_t result = tuttiAllReduce(rank->memory, rank->memory, count, tuttiFloat32, tuttiSum,
                                          rank->comm, rank->stream);
    if (rank->rank == 0) atomic_store(&issued, true);
    if (result == tuttiSuccess) result = tuttiStreamSynchronize(rank->stream);
    if (rank->rank == 0) atomic_store(&returned, true);
    return result;
}

/* Returns when rank 0 has called; in the tenth of a second that follows its kernel begins. */
static void await_kernel(void)
{
    while (!atomic_load(&issued)) sleep_ms(1);
    sleep_ms(100);
}

static void await_result(void)
{
    while (!atomic_load(&returned)) sleep_ms(1);
}

struct thread {
    struct rank rank;
    const struct scene *scene;
    tuttiUniqueId id;
};

static void *run_rank(void *argument)
{
    struct thread *thread = argument;
    struct rank *rank = &thread->rank;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = rank->gpu;
    config.timeoutMs = thread->scene->timeout_ms;
    tuttiResult_t result =
        tuttiCommInitRankConfig(&rank->comm, rank->nranks, thread->id, rank->rank, &config);
    if (ok(rank, result, "init") && open_rank(rank)) thread->scene->act(rank);
    close_rank(rank);
    return NULL;
}

/* Two ranks as threads, on GPUs 0 and 1 where there are two. */
static void play(const struct scene *scene, int ngpus)
{
    struct thread threads[NRANKS];
    pthread_t handles[NRANKS];
    tuttiUniqueId id;
    atomic_store(&issued, false);
    atomic_store(&returned, false);
    if (tuttiGetUniqueId(&id) != tuttiSuccess) exit(1);
    for (int i = 0; i < NRANKS; i++) {
        threads[i] = (struct thread){
            .rank = {.rank = i, .nranks = NRANKS, .gpu = i && scene->mixed ? -1 : i % ngpus},
            .scene = scene,
            .id = id};
        if (pthread_create(&handles[i], NULL, run_rank, &threads[i]) != 0) exit(1);
    }
    for (int i = 0; i < NRANKS; i++) pthread_join(handles[i], NULL);
}

/* ---- Scenes ---------------------------------------------------------------------------------- */

static void be_right(struct rank *rank)
{
    (void)ok(rank, all_reduce(rank, COUNT), "all-reduce on a new communicator");
    if (tuttiCommDestroy(rank->comm) != tuttiSuccess) fail(rank, "destroy", "failed");
    rank->comm = NULL;
}

static void be_aborted(struct rank *rank)
{
    if (rank->rank == 0) {
        must_fail(rank, all_reduce(rank, COUNT), "rank 1");
        return;
    }
    await_kernel();
    (void)tuttiCommAbort(rank->comm);
    rank->comm = NULL;
}

/* Rank 1 stays, so that it is the deadline that ends rank 0's call. */
static void be_late(struct rank *rank)
{
    if (rank->rank == 0)
        must_fail(rank, all_reduce(rank, COUNT), "rank 1");
    else
        await_result();
}

static void be_different(struct rank *rank)
{
    must_fail(rank, all_reduce(rank, rank->rank == 0 ? COUNT : COUNT / 2), "count");
}

/* Sets all elements to `value`. */
static void put(struct rank *rank, float value)
{
    float data[COUNT];
    for (int i = 0; i < COUNT; i++) data[i] = value;
    if (rank->gpu < 0)
        memcpy(rank->memory, data, sizeof(data));
    else
        (void)ok(rank, perf_gpu_write(&rank->on, rank->memory, data, sizeof(data)), "write");
}

/* The call that was issued leaves `first` in the first half and `second` in the other one. */
static void must_give(struct rank *rank, tuttiResult_t result, const char *what, float first,
                      float second)
{
    float data[COUNT];
    if (result == tuttiSuccess && rank->stream) result = tuttiStreamSynchronize(rank->stream);
    if (!ok(rank, result, what)) return;
    if (rank->gpu < 0)
        memcpy(data, rank->memory, sizeof(data));
    else if (!ok(rank, perf_gpu_read(&rank->on, data, rank->memory, sizeof(data)), "read"))
        return;
    for (int i = 0; i < COUNT; i++)
        if (data[i] != (i < COUNT / 2 ? first : second)) {
            fail(rank, what, "wrong result");
            return;
        }
    printf("rank %d: %s is right\n", rank->rank, what);
}

/* The first half goes to the other rank, whose first half comes to the second. */
static tuttiResult_t swap(struct rank *rank)
{
    float *memory = rank->memory;
    tuttiResult_t result = tuttiGroupStart(), sent, received;
    if (result != tuttiSuccess) return result;
    sent = tuttiSend(memory, COUNT / 2, tuttiFloat32, 1 - rank->rank, rank->comm, rank->stream);
    received = tuttiRecv(memory + COUNT / 2, COUNT / 2, tuttiFloat32, 1 - rank->rank, rank->comm,
                         rank->stream);
    result = tuttiGroupEnd();
    return sent != tuttiSuccess ? sent : received != tuttiSuccess ? received : result;
}

static void be_mixed(struct rank *rank)
{
    float *memory = rank->memory;
    const float own = (float)(rank->rank + 1);
    put(rank, own);
    must_give(
        rank,
        tuttiAllReduce(memory, memory, COUNT, tuttiFloat32, tuttiSum, rank->comm, rank->stream),
        "all-reduce", 3, 3);
    for (int root = 0; root < NRANKS; root++) {
        put(rank, own);
        must_give(
            rank,
            tuttiBroadcast(memory, memory, COUNT, tuttiFloat32, root, rank->comm, rank->stream),
            "broadcast", (float)(root + 1), (float)(root + 1));
    }
    put(rank, own);
    must_give(rank,
              tuttiAllGather(memory + COUNT / 2 * rank->rank, memory, COUNT / 2, tuttiFloat32,
                             rank->comm, rank->stream),
              "all-gather", 1, 2);
    put(rank, own);
    must_give(rank, swap(rank), "send and receive", own, 3 - own);
    if (tuttiCommDestroy(rank->comm) != tuttiSuccess) fail(rank, "destroy", "failed");
    rank->comm = NULL;
}

static int check(const char *name, int ngpus)
{
    static const struct {
        const char *name;
        struct scene scene;
    } scenes[] = {{"abort", {LIMIT_MS, be_aborted, false}},
                  {"deadline", {TIMEOUT_MS, be_late, false}},
                  {"mismatch", {LIMIT_MS, be_different, false}},
                  {"mixed", {LIMIT_MS, be_mixed, true}}};
    static const struct scene afterwards = {LIMIT_MS, be_right, false};
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
        if (strcmp(scenes[i].name, name) != 0) continue;
        play(&scenes[i].scene, ngpus);
        play(&afterwards, ngpus); /* the GPU and the process are as before */
        return atomic_load(&nfailed) > 0;
    }
    fprintf(stderr, "checks: '%s' is no check\n", name);
    return 2;
}

/* The rank of a job of processes. */
static bool join(struct rank *rank, int ngpus)
{
    int local;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = LIMIT_MS;
    if (!ok(rank, tuttiGetLauncher(&rank->rank, &rank->nranks, &local), "launcher")) return false;
    rank->gpu = config.device = local % ngpus;
    return ok(rank, tuttiCommInitEnv(&rank->comm, NULL, &config), "init");
}

static int check_free(size_t nbytes, int ngpus)
{
    struct rank rank = {0};
    void *other = NULL;
    const size_t count = nbytes / sizeof(float);
    if (!join(&rank, ngpus) || !open_on_gpu(&rank, nbytes) ||
        !ok(&rank, perf_gpu_allocate(&rank.on, 1 << 20, &other), "memory") ||
        !ok(&rank, all_reduce(&rank, count), "first all-reduce") ||
        !ok(&rank, tuttiBarrier(rank.comm, NULL), "barrier"))
        return 1;
    const double start = perf_now();
    ok(&rank,
       tuttiAllReduce(rank.memory, rank.memory, count, tuttiFloat32, tuttiSum, rank.comm,
                      rank.stream),
       "all-reduce");
    perf_gpu_free(&rank.on, other);
    const double freed = perf_now();
    ok(&rank, tuttiStreamSynchronize(rank.stream), "synchronize");
    printf("rank %d: cuMemFree behind an all-reduce of %zu bytes returned after %.3f s, the stream "
           "was done after %.3f s\n",
           rank.rank, nbytes, freed - start, perf_now() - start);
    close_rank(&rank);
    return atomic_load(&nfailed) > 0;
}

static int check_death(int who, int ngpus)
{
    struct rank rank = {0};
    if (!join(&rank, ngpus) || !open_rank(&rank) ||
        !ok(&rank, all_reduce(&rank, COUNT), "first all-reduce") ||
        !ok(&rank, tuttiBarrier(rank.comm, NULL), "barrier"))
        return 1;
    if (rank.rank == who) {
        sleep_ms(300); /* the kernels of the others begin */
        kill(getpid(), SIGKILL);
    }
    char text[32];
    snprintf(text, sizeof(text), "rank %d ", who);
    must_fail(&rank, all_reduce(&rank, COUNT), text);
    close_rank(&rank);
    return atomic_load(&nfailed) > 0;
}

/* ---- The GPU --------------------------------------------------------------------------------- */

static int print_copy(size_t nbytes)
{
    enum { NCOPIES = 20 };
    struct rank rank = {.nranks = 1};
    void *to = NULL;
    if (!ok(&rank, perf_gpu_open(&rank.on, 0), "GPU") ||
        !ok(&rank, perf_gpu_allocate(&rank.on, nbytes, &rank.memory), "memory") ||
        !ok(&rank, perf_gpu_allocate(&rank.on, nbytes, &to), "memory"))
        return 1;
    double start = 0;
    for (int i = -1; i < NCOPIES; i++) { /* the first is not timed */
        if (i == 0 && !ok(&rank, perf_gpu_wait(&rank.on), "wait")) return 1;
        if (i == 0) start = perf_now();
        if (!ok(&rank, perf_gpu_copy(&rank.on, to, rank.memory, nbytes), "copy")) return 1;
    }
    if (!ok(&rank, perf_gpu_wait(&rank.on), "wait")) return 1;
    printf("%.3f\n", 1e-9 * NCOPIES * (double)nbytes / (perf_now() - start));
    perf_gpu_free(&rank.on, to);
    close_rank(&rank);
    return 0;
}

static void print_devices(int ngpus)
{
    char name[128], pci[32];
    perf_gpu_describe(0, name, sizeof(name), pci, sizeof(pci));
    printf("%d %s %s\n", ngpus, perf_gpu_is_virtual(name) ? "virtual" : "real", name);
}

int main(int argc, char **argv)
{
    int ngpus;
    if (argc < 2) return 2;
    if (perf_gpu_load(&ngpus) != tuttiSuccess) {
        fprintf(stderr, "%s\n", perf_gpu_error());
        return 1;
    }
    if (argc == 2 && strcmp(argv[1], "devices") == 0) {
        print_devices(ngpus);
        return 0;
    }
    if (argc == 2) return check(argv[1], ngpus);
    if (strcmp(argv[1], "death") == 0) return check_death(atoi(argv[2]), ngpus);
    if (strcmp(argv[1], "free") == 0) return check_free(strtoull(argv[2], NULL, 0), ngpus);
    if (strcmp(argv[1], "copy") == 0) return print_copy(strtoull(argv[2], NULL, 0));
    return 2;
}
