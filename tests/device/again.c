/* Programs that use a GPU again and again: again HOW.
 * peers: keeps a communicator, and makes others with processes that come and go: what it maps of
 * their memory has a bound.
 * reset: resets the GPU (cudaDeviceReset) between two communicators, whose streams it keeps.
 * reset_early: the same before it destroys the first, which is told, and ends without a fault; a
 * call on memory that is gone is refused, and one after the program has used the GPU again.
 * reset_used: the same; before, a call was captured, where kernels run, and afterwards one is made,
 *     which fails.
 * reset_kept: keeps a graph with a call, and resets the GPU after the communicator has been
 * destroyed, or before; the next communicator works, and destroying the graph afterwards does no
 * harm. reset_left: resets the GPU after an abort that left memory to a kernel which had not begun;
 * the next communicator works, and the driver gets nothing that is gone. */
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../driver/calls.h"
#include "tutti.h"

enum { COUNT = 100, NGENERATIONS = 3 };

/* In place of the tests' shim: what fails ends the process. */
void tt_test_fail(const char *file, int line, const char *format, ...)
{
    (void)format;
    fprintf(stderr, "%s:%d: a call of the driver failed\n", file, line);
    exit(3);
}

static void check(tuttiResult_t result, const char *what)
{
    if (!result) return;
    fprintf(stderr, "process %d: %s: %s\n", (int)getpid(), what, tuttiGetLastError(NULL));
    exit(2);
}

static tuttiComm_t make(int nranks, int rank, tuttiUniqueId id)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiComm_t comm = NULL;
    config.device = 0;
    check(tuttiCommInitRankConfig(&comm, nranks, id, rank, &config), "init");
    return comm;
}

static tuttiUniqueId new_id(void)
{
    tuttiUniqueId id;
    check(tuttiGetUniqueId(&id), "id");
    return id;
}

static void *begin(void)
{
    CUcontext context = NULL;
    CUdeviceptr memory = 0;
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    CALL(cuCtxSetCurrent, context);
    CALL(cuMemAlloc_v2, &memory, COUNT * sizeof(int));
    CALL(cuMemsetD32_v2, memory, 1, COUNT);
    CALL(cuCtxSynchronize);
    return (void *)(uintptr_t)memory;
}

static void sum(tuttiComm_t comm, void *memory, int expected)
{
    int got = 0;
    check(tuttiAllReduce(memory, memory, COUNT, tuttiInt32, tuttiSum, comm, NULL), "all-reduce");
    CALL(cuMemcpyDtoH_v2, &got, (CUdeviceptr)(uintptr_t)memory, sizeof got);
    if (got == expected) return;
    fprintf(stderr, "the sum is %d, expected %d\n", got, expected);
    exit(1);
}

/* ---- Processes that come and go ------------------------------------------------------------- */

/* A descriptor of standard input gives the id. */
static int be_a_peer(void)
{
    tuttiUniqueId id;
    if (read(STDIN_FILENO, &id, sizeof id) != sizeof id) return 1;
    const tuttiComm_t comm = make(2, 1, id);
    sum(comm, begin(), 2);
    check(tuttiCommDestroy(comm), "destroy");
    return 0;
}

static pid_t start_peer(const char *program, const tuttiUniqueId *id)
{
    int pipes[2];
    if (pipe(pipes)) exit(4);
    const pid_t child = fork();
    if (child == 0) {
        dup2(pipes[0], STDIN_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        execl(program, program, "peer", NULL);
        _exit(5);
    }
    if (child < 0 || write(pipes[1], id, sizeof *id) != sizeof *id) exit(4);
    close(pipes[0]);
    close(pipes[1]);
    return child;
}

/* Of device memory, which lies in files of this name. */
static int count_mappings(void)
{
    char line[512];
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) n += strstr(line, "vgpu memory") != NULL;
    if (maps) fclose(maps);
    return n;
}

static int use_peers(const char *program)
{
    void *memory = begin();
    const tuttiComm_t own = make(1, 0, new_id());
    int first = 0, last = 0;
    for (int i = 0; i < NGENERATIONS; i++) {
        const tuttiUniqueId id = new_id();
        const pid_t peer = start_peer(program, &id);
        int status = -1;
        const tuttiComm_t comm = make(2, 0, id);
        CALL(cuMemsetD32_v2, (CUdeviceptr)(uintptr_t)memory, 1, COUNT);
        CALL(cuCtxSynchronize);
        sum(comm, memory, 2);
        check(tuttiCommDestroy(comm), "destroy");
        if (waitpid(peer, &status, 0) != peer || status) return 1;
        last = count_mappings();
        if (i == 0) first = last;
    }
    check(tuttiCommDestroy(own), "destroy");
    if (first > 0 && last <= first) return 0;
    fprintf(stderr, "%d mappings after one peer, %d after %d peers\n", first, last, NGENERATIONS);
    return 1;
}

/* ---- Resets --------------------------------------------------------------------------------- */

/* Of the last use_stream: memory that a reset frees, and a stream that nobody has destroyed yet. */
static void *used;
static tuttiStream_t kept;

static tuttiComm_t use_stream(void)
{
    CUstream stream = NULL;
    tuttiStream_t found = NULL;
    void *memory = used = begin();
    const tuttiComm_t comm = make(1, 0, new_id());
    CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    check(tuttiStreamOfDevice(&found, 0, stream), "stream");
    check(tuttiAllReduce(memory, memory, COUNT, tuttiInt32, tuttiSum, comm, found), "all-reduce");
    CALL(cuStreamSynchronize, stream);
    if (kept) check(tuttiStreamDestroy(kept), "destroy of a stream from before the reset");
    check(tuttiStreamFromDevice(&kept, 0, stream), "stream");
    sum(comm, memory, 1);
    return comm;
}

/* A call without a stream, after a reset. */
static void check_refused(tuttiComm_t comm, void *memory)
{
    const tuttiResult_t result =
        tuttiAllReduce(memory, memory, COUNT, tuttiInt32, tuttiSum, comm, NULL);
    if (result == tuttiInvalidUsage && strstr(tuttiGetLastError(NULL), "has reset the GPU")) return;
    fprintf(stderr, "after the reset: result %d, %s\n", (int)result, tuttiGetLastError(NULL));
    exit(1);
}

/* On memory that the reset has just freed. */
static void check_freed(tuttiComm_t comm)
{
    check_refused(comm, used);
}

/* The program uses the GPU again at once. */
static void reset_and_use(void)
{
    static int here[COUNT];
    const tuttiComm_t comm = use_stream();
    CALL(cuDevicePrimaryCtxReset_v2, 0);
    begin();
    check_refused(comm, here);
    check(tuttiCommDestroy(comm), "destroy");
}

/* A graph with a sum, which is launched. */
static CUgraph graph;
static CUgraphExec ready;

static void use_graph(tuttiComm_t comm)
{
    CUstream stream = NULL;
    tuttiStream_t found = NULL;
    void *memory = begin();
    CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CALL(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    check(tuttiStreamOfDevice(&found, 0, stream), "stream");
    check(tuttiAllReduce(memory, memory, COUNT, tuttiInt32, tuttiSum, comm, found), "capture");
    CALL(cuStreamEndCapture, stream, &graph);
    CALL(cuGraphInstantiateWithFlags, &ready, graph, 0);
    CALL(cuGraphLaunch, ready, stream);
    CALL(cuStreamSynchronize, stream);
}

static int reset_used(void)
{
    reset_and_use(); /* the graph below keeps what is of before its reset */
    const char *kernels = getenv("TUTTI_DEVICE_KERNELS");
    const int nways = kernels && !strcmp(kernels, "0") ? 1 : 2; /* without, with a capture */
    for (int captures = 0; captures < nways; captures++) {
        const tuttiComm_t comm = use_stream();
        tuttiCounters_t counters;
        if (captures) use_graph(comm);
        CALL(cuDevicePrimaryCtxReset_v2, 0);
        check_freed(comm);
        usleep(50000); /* threads of the library look at replays */
        void *memory = begin();
        if (!tuttiAllReduce(memory, memory, COUNT, tuttiInt32, tuttiSum, comm, NULL)) {
            fprintf(stderr, "a call after the reset has succeeded\n");
            return 1;
        }
        check(tuttiCommCounters(comm, &counters), "counters");
        check(tuttiCommDestroy(comm), "destroy");
    }
    return 0;
}

static int reset_kept(void)
{
    for (int i = 0; i < 4; i++) {
        const bool early = i % 2, destroys = i / 2;
        tuttiComm_t comm = use_stream();
        use_graph(comm);
        if (!early) check(tuttiCommDestroy(comm), "destroy");
        CALL(cuDevicePrimaryCtxReset_v2, 0);
        if (early) check(tuttiCommDestroy(comm), "destroy");
        void *memory = begin();
        comm = make(1, 0, new_id());
        /* The driver tells the library of that. */
        if (destroys) (void)RESULT(cuGraphExecDestroy, ready);
        if (destroys) (void)RESULT(cuGraphDestroy, graph);
        sum(comm, memory, 1);
        check(tuttiCommDestroy(comm), "destroy");
        CALL(cuDevicePrimaryCtxReset_v2, 0);
    }
    return 0;
}

static sem_t unblocked;

static void CUDA_CB wait_for_unblock(void *semaphore)
{
    while (sem_wait(semaphore)) {
    }
}

static int reset_left(void)
{
    CUstream stream = NULL;
    tuttiStream_t found = NULL;
    void *memory = begin();
    tuttiComm_t comm = make(1, 0, new_id());
    sem_init(&unblocked, 0, 0);
    CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    check(tuttiStreamOfDevice(&found, 0, stream), "stream");
    CALL(cuLaunchHostFunc, stream, wait_for_unblock, &unblocked);
    check(tuttiAllReduce(memory, memory, COUNT, tuttiInt32, tuttiSum, comm, found), "all-reduce");
    check(tuttiCommAbort(comm), "abort");
    sem_post(&unblocked);
    CALL(cuStreamSynchronize, stream);
    CALL(cuDevicePrimaryCtxReset_v2, 0);
    memory = begin();
    comm = make(1, 0, new_id());
    sum(comm, memory, 1);
    check(tuttiCommDestroy(comm), "destroy");
    return 0;
}

static int reset(bool early)
{
    for (int i = 0; i < 3; i++) {
        const tuttiComm_t comm = use_stream();
        if (early) CALL(cuDevicePrimaryCtxReset_v2, 0);
        if (early) check_freed(comm);
        if (early) usleep(50000); /* threads of the library look at what kernels report */
        check(tuttiCommDestroy(comm), "destroy");
        if (!early) CALL(cuDevicePrimaryCtxReset_v2, 0);
        /* While no communicator uses the GPU */
        void *memory = NULL;
        check(tuttiDeviceMemAlloc(&memory, 4096, 0), "memory");
        check(tuttiMemFree(memory), "free");
    }
    if (early) reset_and_use();
    return 0;
}

int main(int argc, char **argv)
{
    const char *how = argc == 2 ? argv[1] : "";
    CALL(cuInit, 0);
    if (!strcmp(how, "peer")) return be_a_peer();
    if (!strcmp(how, "peers")) return use_peers(argv[0]);
    if (!strcmp(how, "reset")) return reset(false);
    if (!strcmp(how, "reset_early")) return reset(true);
    if (!strcmp(how, "reset_used")) return reset_used();
    if (!strcmp(how, "reset_kept")) return reset_kept();
    if (!strcmp(how, "reset_left")) return reset_left();
    fprintf(stderr, "usage: again peers|reset|reset_early|reset_used|reset_kept|reset_left\n");
    return 1;
}
