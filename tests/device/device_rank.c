/* A rank of a job of processes, each on a virtual GPU: device_rank GPUS SEED NCALLS [RANK THAT
 * DIES]. Runs random calls; the last argument names a rank that kills itself before the last call.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

int main(int argc, char **argv)
{
    if (argc < 4) return 2;
    int launched, nranks, local;
    if (tuttiGetLauncher(&launched, &nranks, &local) != tuttiSuccess) return fail(NULL, "launcher");
    struct gpu_rank rank = {.rank = launched, .nranks = nranks, .gpu = local % atoi(argv[1])};
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = rank.gpu;
    if (tuttiCommInitEnv(&rank.comm, NULL, &config) != tuttiSuccess) return fail(NULL, "init");
    const int nwrong = random_calls_on_gpu(&rank, strtoull(argv[2], NULL, 0), atoi(argv[3]));
    if (nwrong) return 1;
    if (argc > 4) {
        struct placed placed;
        const struct call call = {
            .kind = tuttiCollAllReduce, .count = 100, .type = tuttiFloat32, .nranks = nranks};
        if (rank.rank == atoi(argv[4])) kill(getpid(), SIGKILL);
        place_call(&placed, &rank, &call, 0);
        if (issue_call(&placed, NULL) != tuttiRemoteError) return fail(rank.comm, "last call");
        printf("rank %d: %s\n", rank.rank, tuttiGetLastError(rank.comm));
    }
    if (tuttiCommDestroy(rank.comm) != tuttiSuccess) return fail(NULL, "destroy");
    return 0;
}
