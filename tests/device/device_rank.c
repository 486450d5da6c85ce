/* A rank of a job of processes, each on a virtual GPU: device_rank GPUS SEED NCALLS [RANK THAT
 * DIES]. Runs random calls; the last argument names a rank that kills itself before the last call.
 * GPUS -N: every second rank has no GPU, the others have one of N; the calls are of every kind.
 * GPUS 0: instead, a program that uses its GPU for itself, and a communicator for memory of the
 * host. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../integration/random_calls.h"
#include "calls_on_gpu.h"
#include "shim.h"

/* In place of the tests' shim: calls of the driver that fail end the process. */
void tt_test_fail(const char *file, int line, const char *format, ...)
{
    (void)format;
    fprintf(stderr, "%s:%d: a call of the driver failed\n", file, line);
    exit(3);
}

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
    if (argc > 4) {
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
