/* A rank of a job of processes, each on a virtual GPU: device_rank GPUS SEED NCALLS [RANK THAT
 * DIES [graph|host]]. Runs random calls; RANK kills itself before the last call, which with `graph`
 * is a replay of a captured call that has been replayed before (RANK -1: nobody). With `host` RANK
 * aborts, before a call of the host behind such a replay to which its stream does not come. RANK
 * `second`: nobody; then the same calls in a communicator that another thread has made.
 * `late`: each rank broadcasts once more, later than the rank before, and leaves.
 * `order`: ranks 2n and 2n + 1 exchange messages in memory of both kinds in one group.
 * GPUS -N: every second rank has no GPU, the others have one of N; the calls are of every kind.
 * GPUS 0: instead, a program that uses its GPU for itself, and a communicator for memory of the
 * host. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../integration/random_calls.h"
#include "graphs.h"
#include "shim.h"

static int fail(tuttiComm_t comm, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, tuttiGetLastError(comm));
    return 2;
}

static int reduce_on_the_host(struct gpu_rank *rank)
{
    int sum = 1;
    gpu_use(rank->rank % 2);
    if (tuttiCommInitEnv(&rank->comm, NULL, NULL) != tuttiSuccess) return fail(NULL, "init");
    if (tuttiAllReduce(&sum, &sum, 1, tuttiInt32, tuttiSum, rank->comm, NULL) != tuttiSuccess)
        return fail(rank->comm, "all-reduce");
    (void)tuttiCommDestroy(rank->comm);
    return sum == rank->nranks ? 0 : 1;
}

static int run_calls(struct gpu_rank *rank, bool mixed, uint64_t seed, int ncalls)
{
    const struct call_memory on_gpu = {rank->gpu, gpu_memory, gpu_free,          gpu_write,
                                       gpu_read,  gpu_stream, gpu_stream_destroy};
    if (!mixed) return random_calls_on_gpu(rank, seed, ncalls);
    return random_calls_in(rank->gpu < 0 ? NULL : &on_gpu, rank->comm, seed, ncalls);
}

/* Of rank 0 on a stream, and with work behind it. */
static tuttiResult_t last_call(const struct placed *placed)
{
    const int gpu = placed->rank->gpu;
    if (placed->rank->rank) return issue_call(placed, NULL);
    tuttiStream_t stream;
    void *device_stream = gpu_stream(gpu), *memory = gpu_memory(gpu, 64);
    if (tuttiStreamFromDevice(&stream, gpu, device_stream) != tuttiSuccess) return tuttiSuccess;
    const tuttiResult_t issued = issue_call(placed, stream);
    gpu_fill(gpu, device_stream, memory, 7, 16);
    const tuttiResult_t result = tuttiStreamSynchronize(stream);
    const tuttiResult_t idle = tuttiStreamSynchronize(stream);
    (void)tuttiStreamDestroy(stream);
    gpu_stream_destroy(gpu, device_stream);
    return issued != tuttiSuccess ? issued : idle != tuttiSuccess ? tuttiSystemError : result;
}

/* A sum in place; then the first half goes to the next rank, and the second comes from the one
 * before. */
static CUgraphExec capture_sum_and_shift(const struct gpu_rank *rank, const struct both *stream,
                                         float *data, size_t count)
{
    const int n = rank->nranks, next = (rank->rank + 1) % n, before = (rank->rank + n - 1) % n;
    const size_t half = count / 2;
    capture_begin(stream->cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (tuttiAllReduce(data, data, count, tuttiFloat32, tuttiSum, rank->comm, stream->tutti) ||
        tuttiGroupStart() || tuttiSend(data, half, tuttiFloat32, next, rank->comm, stream->tutti) ||
        tuttiRecv(data + half, half, tuttiFloat32, before, rank->comm, stream->tutti) ||
        tuttiGroupEnd())
        exit(fail(rank->comm, "capture"));
    return capture_end(stream->cuda);
}

/* The stream goes on when the call of the host has ended. */
static void replay_behind_host(const struct gpu_rank *rank, CUgraphExec graph, CUstream stream)
{
    int here = 1;
    gpu_block(rank->gpu, stream);
    CALL(cuGraphLaunch, graph, stream);
    if (tuttiAllReduce(&here, &here, 1, tuttiInt32, tuttiSum, rank->comm, NULL) != tuttiRemoteError)
        exit(fail(rank->comm, "call of the host"));
    gpu_unblock();
    CALL(cuStreamSynchronize, stream);
}

/* dies: this rank, before the last replay. on_host: as main's `host`. 0: all was as it must be. */
static int replay_calls(struct gpu_rank *rank, bool dies, bool anybody_dies, bool on_host)
{
    enum { COUNT = 5000, TIMES = 3 };
    static float data[COUNT];
    struct both stream;
    tuttiResult_t result = tuttiSuccess;
    streams_create(rank, &stream, 1);
    float *here = (float *)gpu_memory(rank->gpu, sizeof data);
    float expected = 1;
    for (int i = 0; i < COUNT; i++) data[i] = 1;
    gpu_write(rank->gpu, here, data, sizeof data);
    CUgraphExec graph = capture_sum_and_shift(rank, &stream, here, COUNT);
    for (int i = 0; i < TIMES; i++) {
        replay(graph, stream.cuda);
        expected *= (float)rank->nranks;
    }
    gpu_read(rank->gpu, data, here, sizeof data);
    if (data[0] != expected || data[COUNT - 1] != expected) return 1;
    if (dies && on_host) exit(tuttiCommAbort(rank->comm) ? 2 : 0);
    if (dies) kill(getpid(), SIGKILL);
    if (anybody_dies && on_host)
        replay_behind_host(rank, graph, stream.cuda);
    else if (anybody_dies)
        replay(graph, stream.cuda);
    if (tuttiCommGetAsyncError(rank->comm, &result) != tuttiSuccess) return 1;
    if (result != (anybody_dies ? tuttiRemoteError : tuttiSuccess))
        return fail(rank->comm, "replay");
    if (anybody_dies) printf("rank %d: %s\n", rank->rank, tuttiGetLastError(rank->comm));
    CALL(cuGraphExecDestroy, graph);
    streams_destroy(rank, &stream, 1);
    return 0;
}

/* A communicator of the same ranks that a thread makes. */
struct second {
    struct gpu_rank rank;
    tuttiUniqueId id;
    tuttiResult_t result;
};

static void *make_second(void *argument)
{
    struct second *second = argument;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = second->rank.gpu;
    second->result = tuttiCommInitRankConfig(&second->rank.comm, second->rank.nranks, second->id,
                                             second->rank.rank, &config);
    if (second->result) fail(NULL, "second init");
    return NULL;
}

static int run_second(const struct gpu_rank *first, uint64_t seed, int ncalls)
{
    struct second second = {.rank = *first};
    pthread_t thread;
    if (tuttiGetUniqueId(&second.id) != tuttiSuccess) return fail(NULL, "id");
    if (tuttiBroadcast(&second.id, &second.id, sizeof second.id, tuttiUint8, 0, first->comm, NULL))
        return fail(first->comm, "broadcast");
    if (pthread_create(&thread, NULL, make_second, &second)) return 2;
    pthread_join(thread, NULL);
    if (second.result) return 2;
    const int nwrong = run_calls(&second.rank, false, seed, ncalls);
    if (tuttiCommDestroy(second.rank.comm) != tuttiSuccess) return fail(NULL, "destroy");
    return nwrong ? 1 : 0;
}

/* A rank may have left before the next one begins. */
static int broadcast_late(const struct gpu_rank *rank)
{
    enum { LATE_US = 300000 };
    int value = rank->rank ? 0 : 7;
    usleep((unsigned)rank->rank * LATE_US);
    char *memory = gpu_memory(rank->gpu, sizeof value);
    gpu_write(rank->gpu, memory, &value, sizeof value);
    if (tuttiBroadcast(memory, memory, 1, tuttiInt32, 0, rank->comm, NULL) != tuttiSuccess)
        return fail(rank->comm, "late broadcast");
    gpu_read(rank->gpu, &value, memory, sizeof value);
    return value == 7 ? 0 : 1;
}

/* Messages of one length in memory of the GPU and of the host in turn: another order is wrong data.
 */
static int exchange_in_order(const struct gpu_rank *rank)
{
    enum { N = 3000, TIMES = 5 };
    static int data[N];
    const int peer = rank->rank ^ 1;
    char *sent[TIMES], *received[TIMES];
    int nwrong = 0;
    if (peer >= rank->nranks) return 0;
    for (int i = 0; i < TIMES; i++) {
        const int gpu = i % 2 ? rank->gpu : -1;
        for (int k = 0; k < N; k++) data[k] = 100 * rank->rank + i;
        sent[i] = gpu_memory(gpu, sizeof data);
        received[i] = gpu_memory(gpu, sizeof data);
        gpu_write(gpu, sent[i], data, sizeof data);
    }
    (void)tuttiGroupStart();
    for (int i = 0; i < TIMES; i++)
        if (tuttiSend(sent[i], N, tuttiInt32, peer, rank->comm, NULL) ||
            tuttiRecv(received[i], N, tuttiInt32, peer, rank->comm, NULL))
            return fail(rank->comm, "message");
    if (tuttiGroupEnd() != tuttiSuccess) return fail(rank->comm, "group of messages");
    for (int i = 0; i < TIMES; i++) {
        gpu_read(i % 2 ? rank->gpu : -1, data, received[i], sizeof data);
        for (int k = 0; k < N; k++) nwrong += data[k] != 100 * peer + i;
    }
    if (nwrong) fprintf(stderr, "%d values in another order\n", nwrong);
    return nwrong ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc < 4) return 2;
    int launched, nranks, local;
    if (tuttiGetLauncher(&launched, &nranks, &local) != tuttiSuccess) return fail(NULL, "launcher");
    const int ngpus = atoi(argv[1]);
    struct gpu_rank rank = {.rank = launched, .nranks = nranks};
    rank.gpu = ngpus > 0 ? local % ngpus : ngpus && local % 2 == 0 ? local / 2 % -ngpus : -1;
    if (!ngpus) return reduce_on_the_host(&rank);
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = rank.gpu;
    if (tuttiCommInitEnv(&rank.comm, NULL, &config) != tuttiSuccess) return fail(NULL, "init");
    const int nwrong = run_calls(&rank, ngpus < 0, strtoull(argv[2], NULL, 0), atoi(argv[3]));
    if (nwrong) return 1;
    if (argc > 4 && !strcmp(argv[4], "second")) {
        const int status = run_second(&rank, strtoull(argv[2], NULL, 0), atoi(argv[3]));
        if (status) return status;
    } else if (argc > 4 && !strcmp(argv[4], "late")) {
        const int status = broadcast_late(&rank);
        if (status) return status;
    } else if (argc > 4 && !strcmp(argv[4], "order")) {
        const int status = exchange_in_order(&rank);
        if (status) return status;
    } else if (argc > 5) {
        const int dies = atoi(argv[4]);
        const int status =
            replay_calls(&rank, rank.rank == dies, dies >= 0, !strcmp(argv[5], "host"));
        if (status) return status;
    } else if (argc > 4) {
        struct placed placed;
        const struct call call = {
            .kind = tuttiCollAllReduce, .count = 100, .type = tuttiFloat32, .nranks = nranks};
        if (rank.rank == atoi(argv[4])) kill(getpid(), SIGKILL);
        place_call(&placed, &rank, &call, 0);
        if (last_call(&placed) != tuttiRemoteError) return fail(rank.comm, "last call");
        printf("rank %d: %s\n", rank.rank, tuttiGetLastError(rank.comm));
    }
    if (tuttiCommDestroy(rank.comm) != tuttiSuccess) return fail(NULL, "destroy");
    return 0;
}
