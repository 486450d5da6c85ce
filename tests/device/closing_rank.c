/* Rank 0 or 1 of two processes: while a thread of rank 1 closes memory of rank 0, which waits for a
 * kernel of the program, rank 1 goes on making calls: device_closing gpus|taken.
 *
 * `gpus`: the kernel is on another GPU, where a communicator is destroyed. `taken`: it is on the
 * GPU of the call, and rank 0 has freed memory that rank 1 had open. The kernel ends when the call
 * has ended. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../driver/calls.h"
#include "ranks_on_gpus.h"
#include "shim.h"

enum { COUNT = 1 << 16, MEMORY = 2 << 20, MOST_RANKS_HERE = 2, CLOSE_US = 300000 };

static const char spin[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
                           ".visible .entry spin(.param .u64 word)\n{\n"
                           "    .reg .b64 %at;\n    .reg .b32 %value;\n    .reg .pred %again;\n"
                           "    ld.param.u64 %at, [word];\n"
                           "look:\n    ld.relaxed.sys.global.u32 %value, [%at];\n"
                           "    setp.eq.u32 %again, %value, 0;\n    @%again bra look;\n"
                           "    ret;\n}\n";

static int fail(tuttiComm_t comm, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, tuttiGetLastError(comm));
    return 2;
}

static tuttiComm_t host; /* of all ranks, without GPUs: what it does leaves the GPUs alone */

/* A kernel that runs until *word is not 0. */
static unsigned *start_kernel(int gpu)
{
    static CUdeviceptr at;
    CUmodule module = NULL;
    CUfunction function = NULL;
    void *word = NULL;
    gpu_use(gpu);
    CALL(cuMemHostAlloc, &word, sizeof(unsigned),
         CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
    memset(word, 0, sizeof(unsigned));
    CALL(cuMemHostGetDevicePointer_v2, &at, word, 0);
    CALL(cuModuleLoadData, &module, spin);
    CALL(cuModuleGetFunction, &function, module, "spin");
    CALL(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, gpu_stream(gpu), ((void *[]){&at}), NULL);
    return word;
}

static int gather(const struct gpu_rank *rank, char *in, char *out, tuttiStream_t stream)
{
    static unsigned data[MOST_RANKS_HERE * COUNT];
    int nwrong = 0;
    for (int i = 0; i < COUNT; i++) data[i] = (unsigned)(rank->rank * COUNT + i);
    gpu_write(rank->gpu, in, data, COUNT * sizeof *data);
    if (tuttiAllGather(in, out, COUNT, tuttiUint32, rank->comm, stream) ||
        (stream && tuttiStreamSynchronize(stream)))
        return fail(rank->comm, "all-gather");
    gpu_read(rank->gpu, data, out, sizeof data);
    for (int i = 0; i < MOST_RANKS_HERE * COUNT; i++) nwrong += data[i] != (unsigned)i;
    if (nwrong) fprintf(stderr, "%d words are wrong\n", nwrong);
    return nwrong ? 1 : 0;
}

static void *destroy(void *comm)
{
    if (tuttiCommDestroy(comm)) fprintf(stderr, "destroy: %s\n", tuttiGetLastError(NULL));
    return NULL;
}

static char *allocate(const struct gpu_rank *rank)
{
    void *memory = NULL;
    if (tuttiDeviceMemAlloc(&memory, MEMORY, rank->gpu)) _exit(fail(NULL, "allocation"));
    return memory;
}

static int use_other(const struct gpu_rank *rank, tuttiComm_t *other)
{
    struct gpu_rank also = {.rank = rank->rank, .nranks = 2, .gpu = rank->gpu + 2};
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = also.gpu;
    if (tuttiCommInitEnv(&also.comm, NULL, &config)) return fail(NULL, "init");
    *other = also.comm;
    return gather(&also, gpu_memory(also.gpu, MEMORY), gpu_memory(also.gpu, MEMORY), NULL);
}

static int run(const struct gpu_rank *rank, bool other_gpu)
{
    char *in = allocate(rank), *out = allocate(rank), *freed = allocate(rank);
    tuttiComm_t other = NULL;
    unsigned *word = NULL;
    tuttiStream_t stream;
    pthread_t thread;
    if (tuttiStreamFromDevice(&stream, rank->gpu, gpu_stream(rank->gpu)))
        return fail(NULL, "stream");
    if (other_gpu && use_other(rank, &other)) return 1;
    for (int i = 0; i < 3; i++)
        if (gather(rank, freed, out, NULL) || gather(rank, in, out, NULL)) return 1;
    if (rank->rank) word = start_kernel(rank->gpu + (other_gpu ? 2 : 0));
    if (tuttiBarrier(host, NULL)) return fail(host, "barrier");
    if (other_gpu && pthread_create(&thread, NULL, destroy, other)) return 2;
    if (!other_gpu && !rank->rank && tuttiMemFree(freed)) return fail(NULL, "free");
    usleep(CLOSE_US);
    const int status = gather(rank, in, out, stream);
    if (word) __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    if (other_gpu) pthread_join(thread, NULL);
    if (status) return status;
    return tuttiBarrier(host, NULL) ? fail(host, "barrier") : gather(rank, in, out, stream);
}

int main(int argc, char **argv)
{
    int launched, nranks, local;
    if (argc < 2 || tuttiGetLauncher(&launched, &nranks, &local) || nranks != MOST_RANKS_HERE)
        return 2;
    struct gpu_rank rank = {.rank = launched, .nranks = nranks, .gpu = launched};
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = rank.gpu;
    if (tuttiCommInitEnv(&rank.comm, NULL, &config)) return fail(NULL, "init");
    config.device = -1;
    if (tuttiCommInitEnv(&host, NULL, &config)) return fail(NULL, "init without a GPU");
    const int status = run(&rank, !strcmp(argv[1], "gpus"));
    if (status) return status;
    if (tuttiCommDestroy(rank.comm) || tuttiCommDestroy(host)) return fail(NULL, "destroy");
    return 0;
}
