/* An ordinary C program of NCCL's: two processes, a config, an all-reduce, a split, memory of the
 * library. Compiled with an nccl.h of any version since 2.28, and linked to libnccl.so.2. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const ncclResult_t result = (call);                                                        \
        if (result != ncclSuccess) {                                                               \
            fprintf(stderr, "%s: %s: %s\n", #call, ncclGetErrorString(result),                     \
                    ncclGetLastError(NULL));                                                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { COUNT = 1000 };

static void be_rank(int rank, ncclUniqueId id)
{
    ncclComm_t comm, part;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = rank;
    config.commName = "program";
    config.maxCTAs = 4;
    TRY(ncclCommInitRankConfig(&comm, 2, id, rank, &config));
    float *data;
    TRY(ncclMemAlloc((void **)&data, COUNT * sizeof *data));
    for (int i = 0; i < COUNT; i++) data[i] = (float)(i + rank);
    TRY(ncclAllReduce(data, data, COUNT, ncclFloat, ncclSum, comm, NULL));
    for (int i = 0; i < COUNT; i++)
        if (data[i] != (float)(2 * i + 1)) exit(2);
    TRY(ncclCommSplit(comm, rank, 0, &part, &config));
    int count;
    TRY(ncclCommCount(part, &count));
    if (count != 1) exit(3);
    TRY(ncclAllReduce(data, data, COUNT, ncclFloat, ncclProd, part, NULL));
    ncclResult_t state;
    TRY(ncclCommGetAsyncError(comm, &state));
    if (state != ncclSuccess) exit(4);
    TRY(ncclCommDestroy(part));
    TRY(ncclCommFinalize(comm));
    TRY(ncclCommDestroy(comm));
    TRY(ncclMemFree(data));
}

int main(void)
{
    int pipes[2], status, version;
    ncclUniqueId id;
    if (pipe(pipes)) return 1;
    const pid_t child = fork();
    if (child == 0) {
        if (read(pipes[0], &id, sizeof id) != (ssize_t)sizeof id) exit(1);
        be_rank(1, id);
        exit(0);
    }
    TRY(ncclGetUniqueId(&id));
    if (write(pipes[1], &id, sizeof id) != (ssize_t)sizeof id) return 1;
    be_rank(0, id);
    TRY(ncclGetVersion(&version));
    if (waitpid(child, &status, 0) != child || status) return 1;
    printf("header %d, library %d: right\n", NCCL_VERSION_CODE, version);
    return 0;
}
