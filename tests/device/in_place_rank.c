/* A rank of a job of processes whose memory their peers read in place: device_in_place GPUS WHAT
 * [RANK].
 *
 * `traffic`: the bytes that a rank loads and stores in an all-gather, once its peers have opened
 * the memory; without TUTTI_DEVICE_IN_PLACE there would be twice as many. `memory`: registrations,
 * allocations and frees between calls: no call gets old bytes. `freed`: RANK registers memory,
 * frees it, and uses what is allocated there since: the error names it. `growth`: each call has new
 * memory, which is freed behind it: processes do not have ever more memory of their peers open.
 * `many`: calls use more memory, and register more, than a rank can offer. `held`: calls on new
 * memory, on a stream that goes on only when they are issued: nothing in them waits for the GPU.
 * `closed`: memory goes back to the driver only when the peers have closed it, and a deregistration
 * waits for them. `late`: they cannot close it, because their kernels wait for rank 0: that ends
 * the wait with an error, and no other call waits. `early`: rank 0 frees what it sends from, or
 * deregisters it, before the others have made their call: they read it all the same. `gone`: rank 1
 * stands still, and is killed; `aborted`: it aborts: rank 0 does not wait for it. */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vgpu/traffic.h>

#include "../driver/calls.h"
#include "ranks_on_gpus.h"
#include "shim.h"

enum { COUNT = 1 << 16, MOST_PROCESSES = 8, MEMORY = 2 << 20, TIMES = 12, MOST_FREED = 1100 };
enum { MANY = 24 /* more than TT_MOST_RANGES */ };

static int fail(tuttiComm_t comm, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, tuttiGetLastError(comm));
    return 2;
}

static uint32_t value_of(int rank, int turn, int i)
{
    return (uint32_t)(rank * 1000003 + turn * 7919 + i);
}

static tuttiComm_t host; /* of all ranks, without GPUs: what it does leaves the GPUs alone */
static uint32_t data[MOST_PROCESSES * COUNT];

static void write_words(const struct gpu_rank *rank, char *in, int turn)
{
    for (int i = 0; i < COUNT; i++) data[i] = value_of(rank->rank, turn, i);
    gpu_write(rank->gpu, in, data, COUNT * sizeof *data);
}

/* 0: all came as they were sent. */
static int check_words(const struct gpu_rank *rank, char *out, int turn)
{
    int nwrong = 0;
    gpu_read(rank->gpu, data, out, (size_t)rank->nranks * COUNT * sizeof *data);
    for (int r = 0; r < rank->nranks; r++)
        for (int i = 0; i < COUNT; i++) nwrong += data[r * COUNT + i] != value_of(r, turn, i);
    if (nwrong) fprintf(stderr, "turn %d: %d words are wrong\n", turn, nwrong);
    return nwrong ? 1 : 0;
}

/* An all-gather of COUNT words of each rank. */
static int gather(const struct gpu_rank *rank, char *in, char *out, int turn)
{
    write_words(rank, in, turn);
    if (tuttiAllGather(in, out, COUNT, tuttiUint32, rank->comm, NULL))
        return fail(rank->comm, "all-gather");
    return check_words(rank, out, turn);
}

static char *allocate(const struct gpu_rank *rank, size_t nbytes)
{
    void *memory;
    if (tuttiDeviceMemAlloc(&memory, nbytes, rank->gpu)) exit(fail(NULL, "allocation"));
    return memory;
}

static struct vgpu_traffic traffic_on(int gpu)
{
    struct vgpu_traffic traffic = {0};
    __typeof__(vgpu_traffic) *function;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = library ? dlsym(library, "vgpu_traffic") : NULL;
    if (!symbol) exit(fail(NULL, "no vgpu_traffic"));
    memcpy(&function, &symbol, sizeof function);
    if (function(gpu, &traffic)) exit(2);
    return traffic;
}

static int measure(const struct gpu_rank *rank)
{
    char *in = allocate(rank, COUNT * sizeof(uint32_t));
    char *out = allocate(rank, (size_t)rank->nranks * COUNT * sizeof(uint32_t));
    /* The first call offers the memory, the second opens that of the others. */
    for (int turn = 0; turn < 2; turn++) {
        const int status = gather(rank, in, out, turn);
        if (status) return status;
    }
    const struct vgpu_traffic before = traffic_on(rank->gpu);
    const int status = gather(rank, in, out, 2);
    const struct vgpu_traffic after = traffic_on(rank->gpu);
    const double all = (double)rank->nranks * COUNT * sizeof(uint32_t);
    const double loaded = (double)(after.weak_loaded + after.strong_loaded - after.waited) -
                          (double)(before.weak_loaded + before.strong_loaded - before.waited);
    const double stored = (double)(after.weak_stored + after.strong_stored) -
                          (double)(before.weak_stored + before.strong_stored);
    printf("rank %d: loads %.3f, stores %.3f of what all ranks have\n", rank->rank, loaded / all,
           stored / all);
    if (status) return status;
    return loaded > 0.99 * all && loaded < 1.1 * all && stored > 0.99 * all && stored < 1.1 * all
               ? 0
               : 1;
}

/* What comes to lie where freed memory was is not what peers have open. */
static int change_memory(const struct gpu_rank *rank)
{
    char *in = allocate(rank, MEMORY), *out = NULL, *registered = gpu_memory(rank->gpu, MEMORY);
    void *handle = NULL;
    int status = 0;
    out = allocate(rank, MEMORY);
    for (int turn = 0; turn < TIMES && !status; turn++) {
        /* While a kernel of a peer waits, that peer closes nothing. */
        if (tuttiBarrier(host, NULL)) return fail(host, "barrier");
        /* Each rank at other turns than the next one. */
        const int what = (turn + rank->rank) % 4;
        if (what == 0) {
            if (tuttiMemFree(in)) return fail(rank->comm, "free");
            in = allocate(rank, MEMORY);
        } else if (what == 1 && !handle) {
            if (tuttiCommRegister(rank->comm, registered, MEMORY, &handle))
                return fail(rank->comm, "register");
        } else if (what == 2 && handle) {
            if (tuttiCommDeregister(rank->comm, handle)) return fail(rank->comm, "deregister");
            handle = NULL;
            gpu_free(registered);
            gpu_free_all();
            registered = gpu_memory(rank->gpu, MEMORY);
        }
        if (tuttiBarrier(host, NULL)) return fail(host, "barrier");
        for (int i = 0; i < 3 && !status; i++)
            status = gather(rank, handle ? registered : in, out, 10 * turn + i);
    }
    return status;
}

/* Other memory at an address, a multiple of MEMORY, that was freed. */
static char *map_at(int gpu, CUdeviceptr address)
{
    const CUmemAllocationProp what = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu}};
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, gpu},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle memory = 0;
    gpu_use(gpu);
    /* The virtual GPU does not give addresses again that were freed lately. */
    for (int i = 0; i < MOST_FREED; i++) {
        CALL(cuMemAlloc_v2, &at, 1);
        CALL(cuMemFree_v2, at);
    }
    CALL(cuMemAddressReserve, &at, MEMORY, MEMORY, address, 0);
    CALL(cuMemCreate, &memory, MEMORY, &what, 0);
    CALL(cuMemMap, at, MEMORY, 0, memory, 0);
    CALL(cuMemSetAccess, at, MEMORY, &access, 1);
    return (char *)at;
}

static int use_freed(const struct gpu_rank *rank, bool frees)
{
    char *out = allocate(rank, MEMORY), *in = gpu_memory(rank->gpu, 3 * MEMORY);
    void *handle;
    int status = 0;
    if (tuttiCommRegister(rank->comm, in, 3 * MEMORY, &handle)) return fail(rank->comm, "register");
    for (int turn = 0; turn < 3 && !status; turn++) status = gather(rank, in, out, turn);
    if (status || !frees) return status;
    gpu_free(in);
    gpu_free_all();
    const CUdeviceptr address = ((CUdeviceptr)in + MEMORY - 1) / MEMORY * MEMORY;
    in = map_at(rank->gpu, address);
    if ((CUdeviceptr)in != address) return fail(NULL, "the driver gives another address");
    const tuttiResult_t result = tuttiAllGather(in, out, COUNT, tuttiUint32, rank->comm, NULL);
    printf("rank %d: %s\n", rank->rank, tuttiGetLastError(rank->comm));
    return result == tuttiInvalidArgument ? 0 : 1;
}

/* Bytes of virtual GPUs' memory that the process has mapped, its own and that of its peers. */
static size_t mapped(void)
{
    char line[512];
    size_t nbytes = 0;
    unsigned long begin, end;
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps) exit(fail(NULL, "/proc/self/maps"));
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "vgpu memory") && sscanf(line, "%lx-%lx", &begin, &end) == 2)
            nbytes += end - begin;
    fclose(maps);
    return nbytes;
}

static int change_often(const struct gpu_rank *rank)
{
    char *out = allocate(rank, MEMORY);
    size_t before = 0;
    int status = 0;
    for (int turn = 0; turn < 3 * TIMES && !status; turn++) {
        char *in = allocate(rank, MEMORY);
        for (int i = 0; i < 3 && !status; i++) status = gather(rank, in, out, turn);
        if (tuttiMemFree(in)) return fail(rank->comm, "free");
        if (turn == TIMES) before = mapped();
    }
    const size_t after = mapped();
    if (after > before + (size_t)rank->nranks * MEMORY) {
        printf("rank %d: %zu bytes are mapped, after %zu\n", rank->rank, after, before);
        return 1;
    }
    return status;
}

static int use_many(const struct gpu_rank *rank)
{
    char *out = allocate(rank, MEMORY), *in[MANY];
    void *handles[MANY];
    int status = 0;
    for (int i = 0; i < MANY; i++) {
        in[i] = i % 2 ? gpu_memory(rank->gpu, MEMORY) : allocate(rank, MEMORY);
        if (i % 2 && tuttiCommRegister(rank->comm, in[i], MEMORY, &handles[i]))
            return fail(rank->comm, "register");
    }
    for (int i = 0; i < 3 * MANY && !status; i++) status = gather(rank, in[i % MANY], out, i);
    if (tuttiBarrier(host, NULL)) return fail(host, "barrier");
    for (int i = 1; i < MANY; i += 2)
        if (tuttiCommDeregister(rank->comm, handles[i])) return fail(rank->comm, "deregister");
    if (tuttiBarrier(host, NULL)) return fail(host, "barrier");
    return status ? status : gather(rank, in[0], out, 0);
}

/* All-gathers on a stream that goes on when they are issued: the first offers the memory, the
 * second opens that of the peers, the third sends from it. */
static int gather_held(const struct gpu_rank *rank, void *cuda, tuttiStream_t stream, char *in,
                       char *out, int turn)
{
    tuttiResult_t result = tuttiSuccess;
    write_words(rank, in, turn);
    gpu_block(rank->gpu, cuda);
    for (int i = 0; i < 3 && !result; i++) {
        result = tuttiAllGather(in, out, COUNT, tuttiUint32, rank->comm, stream);
        if (!result) result = tuttiBarrier(host, NULL);
    }
    gpu_unblock();
    if (result || tuttiStreamSynchronize(stream)) return fail(rank->comm, "held all-gather");
    return check_words(rank, out, turn);
}

static int hold(const struct gpu_rank *rank)
{
    void *cuda = gpu_stream(rank->gpu);
    char *out = allocate(rank, MEMORY);
    tuttiStream_t stream;
    if (tuttiStreamFromDevice(&stream, rank->gpu, cuda)) return fail(NULL, "stream");
    int status = gather(rank, gpu_memory(rank->gpu, MEMORY), out, 0);
    for (int turn = 1; turn < 4 && !status; turn++) {
        char *in = allocate(rank, MEMORY);
        status = gather_held(rank, cuda, stream, in, out, turn);
    }
    if (tuttiStreamDestroy(stream)) return fail(NULL, "stream");
    gpu_stream_destroy(rank->gpu, cuda);
    return status;
}

/* ---- Who has memory open -------------------------------------------------------------------- */

enum { MOST_FILES = 256, PAUSE_US = 1000 };

/* The files of virtual GPUs' memory that a process has mapped. */
static int find_files(int pid, unsigned long files[MOST_FILES])
{
    char path[64], line[512];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "re");
    while (maps && n < MOST_FILES && fgets(line, sizeof line, maps))
        if (strstr(line, "vgpu memory") && sscanf(line, "%*s %*s %*s %*s %lu", &files[n]) == 1) n++;
    if (maps) fclose(maps);
    return n;
}

static bool maps(int pid, unsigned long file)
{
    unsigned long files[MOST_FILES];
    const int n = find_files(pid, files);
    for (int i = 0; i < n; i++)
        if (files[i] == file) return true;
    return false;
}

static int pids[MOST_PROCESSES];

/* Whether processes open memory that was registered. */
static bool opens_registered(void)
{
    const char *setting = getenv("TUTTI_DEVICE_IN_PLACE");
    return setting && strcmp(setting, "auto") != 0;
}

static bool any_peer_maps(const struct gpu_rank *rank, unsigned long file)
{
    for (int r = 0; r < rank->nranks; r++)
        if (r != rank->rank && maps(pids[r], file)) return true;
    return false;
}

/* Memory that a rank sends from. */
struct sent {
    char *memory;
    void *handle; /* NULL: of tuttiDeviceMemAlloc */
    unsigned long file;
};

static struct sent send_from(const struct gpu_rank *rank, bool registers)
{
    unsigned long before[MOST_FILES], after[MOST_FILES];
    struct sent sent = {0};
    CUipcMemHandle shared; /* from then on the memory is a file */
    const int nbefore = find_files(getpid(), before);
    sent.memory = registers ? gpu_memory(rank->gpu, MEMORY) : allocate(rank, MEMORY);
    gpu_use(rank->gpu);
    CALL(cuIpcGetMemHandle, &shared, (CUdeviceptr)sent.memory);
    const int nafter = find_files(getpid(), after);
    for (int i = 0; i < nafter; i++) {
        bool is_new = true;
        for (int k = 0; k < nbefore; k++) is_new = is_new && before[k] != after[i];
        if (is_new) sent.file = after[i];
    }
    if (!sent.file) exit(fail(NULL, "no new memory"));
    if (registers && tuttiCommRegister(rank->comm, sent.memory, MEMORY, &sent.handle))
        exit(fail(rank->comm, "register"));
    return sent;
}

/* Two calls, after which the peers have opened the memory, and one more. */
static int use(const struct gpu_rank *rank, const struct sent *sent, char *out)
{
    int status = 0;
    for (int turn = 0; turn < 3 && !status; turn++) status = gather(rank, sent->memory, out, turn);
    return status;
}

static int complain(const struct gpu_rank *rank, const char *what)
{
    fprintf(stderr, "rank %d: %s\n", rank->rank, what);
    return 1;
}

/* Until the driver has what tuttiMemFree has freed: nobody has it open then. */
static int await_free(const struct gpu_rank *rank, const struct sent *sent)
{
    while (maps(getpid(), sent->file)) usleep(PAUSE_US);
    return any_peer_maps(rank, sent->file) ? complain(rank, "open memory was freed") : 0;
}

static int deregister(const struct gpu_rank *rank, const struct sent *sent)
{
    if (tuttiCommDeregister(rank->comm, sent->handle)) return fail(rank->comm, "deregister");
    return any_peer_maps(rank, sent->file) ? complain(rank, "deregistered memory is open") : 0;
}

static int free_one(const struct gpu_rank *rank, const struct sent *sent)
{
    if (sent->handle) return deregister(rank, sent);
    if (tuttiMemFree(sent->memory)) return fail(NULL, "free");
    return await_free(rank, sent);
}

static int close_all(const struct gpu_rank *rank)
{
    char *out = allocate(rank, MEMORY);
    int status = 0;
    for (int turn = 0; turn < 2 * rank->nranks && !status; turn++) {
        const struct sent sent = send_from(rank, turn % 2);
        status = use(rank, &sent, out);
        if (status || tuttiBarrier(host, NULL)) return fail(host, "barrier");
        if (any_peer_maps(rank, sent.file) != (!sent.handle || opens_registered()))
            return complain(rank, "memory is open that should not be, or not open");
        if (tuttiBarrier(host, NULL)) return fail(host, "barrier");
        if (turn / 2 == rank->rank) status = free_one(rank, &sent);
        if (tuttiBarrier(host, NULL)) return fail(host, "barrier");
        if (turn / 2 != rank->rank && !status) status = free_one(rank, &sent);
        if (tuttiBarrier(host, NULL)) return fail(host, "barrier");
    }
    return status;
}

static int free_late(const struct gpu_rank *rank, char *out, const struct sent *sent,
                     const struct sent *registered)
{
    if (rank->rank) return 0;
    if (tuttiMemFree(sent->memory)) return fail(NULL, "free");
    const tuttiResult_t result = tuttiCommDeregister(rank->comm, registered->handle);
    if (result != (opens_registered() ? tuttiTimeout : tuttiSuccess))
        return complain(rank, "deregistered what kernels keep open, or not what they do not");
    if (result) printf("rank 0: %s\n", tuttiGetLastError(rank->comm));
    if (!maps(getpid(), sent->file)) return complain(rank, "freed what kernels keep open");
    int status = gather(rank, registered->memory, out, 0);
    if (!status && result) status = deregister(rank, registered);
    return status ? status : await_free(rank, sent);
}

static int be_late(const struct gpu_rank *rank)
{
    void *cuda = gpu_stream(rank->gpu);
    tuttiStream_t stream;
    char *out = allocate(rank, MEMORY);
    if (tuttiStreamFromDevice(&stream, rank->gpu, cuda)) return fail(NULL, "stream");
    const struct sent sent = send_from(rank, false), registered = send_from(rank, true);
    int status = use(rank, &sent, out);
    if (!status) status = use(rank, &registered, out);
    write_words(rank, registered.memory, 0);
    if (!status && rank->rank &&
        tuttiAllGather(registered.memory, out, COUNT, tuttiUint32, rank->comm, stream))
        return fail(rank->comm, "all-gather");
    if (status || tuttiBarrier(host, NULL)) return fail(host, "barrier");
    status = free_late(rank, out, &sent, &registered);
    if (tuttiStreamSynchronize(stream) || tuttiBarrier(host, NULL)) return fail(NULL, "end");
    if (tuttiStreamDestroy(stream)) return fail(NULL, "stream");
    gpu_stream_destroy(rank->gpu, cuda);
    return status;
}

/* Rank 0 broadcasts words of its memory, or sends them to rank 1. */
static tuttiResult_t give(const struct gpu_rank *rank, char *memory, char *out, bool sends,
                          tuttiStream_t stream)
{
    char *at = rank->rank ? out : memory;
    if (!sends) return tuttiBroadcast(at, at, COUNT, tuttiUint32, 0, rank->comm, stream);
    if (rank->rank > 1) return tuttiSuccess;
    return rank->rank ? tuttiRecv(out, COUNT, tuttiUint32, 0, rank->comm, stream)
                      : tuttiSend(memory, COUNT, tuttiUint32, 1, rank->comm, stream);
}

static int check_given(const struct gpu_rank *rank, char *out, int turn)
{
    int nwrong = 0;
    gpu_read(rank->gpu, data, out, COUNT * sizeof *data);
    for (int i = 0; i < COUNT; i++) nwrong += data[i] != value_of(0, turn, i);
    if (nwrong) fprintf(stderr, "turn %d: %d words are wrong\n", turn, nwrong);
    return nwrong ? 1 : 0;
}

/* Of rank 0, whose call the others have yet to make: they have time to close the memory, and must
 * not. */
static int free_early(const struct gpu_rank *rank, const struct sent *sent)
{
    if (!sent->handle && tuttiMemFree(sent->memory)) return fail(NULL, "free");
    if (sent->handle) {
        const tuttiResult_t result = tuttiCommDeregister(rank->comm, sent->handle);
        if (result != (opens_registered() ? tuttiTimeout : tuttiSuccess))
            return complain(rank, "deregistered what a call sends from, or not what none does");
        if (result) printf("rank 0: %s\n", tuttiGetLastError(rank->comm));
        if (!result) return 0;
    }
    for (int i = 0; i < 200; i++) usleep(PAUSE_US);
    return any_peer_maps(rank, sent->file) ? 0 : complain(rank, "a call sends what nobody has");
}

static int give_early(const struct gpu_rank *rank, void *cuda, char *out, bool sends,
                      bool registers)
{
    const struct sent sent = send_from(rank, registers);
    tuttiStream_t stream;
    int status = 0;
    if (tuttiStreamFromDevice(&stream, rank->gpu, cuda)) return fail(NULL, "stream");
    for (int turn = 0; turn < 4; turn++) {
        if (!rank->rank) write_words(rank, sent.memory, turn);
        if (tuttiBarrier(host, NULL)) return fail(host, "barrier");
        const bool is_early = turn == 3;
        if ((!rank->rank || !is_early) && give(rank, sent.memory, out, sends, stream))
            return fail(rank->comm, "call");
        if (is_early && !rank->rank) status = free_early(rank, &sent);
        if (tuttiBarrier(host, NULL)) return fail(host, "barrier");
        if (is_early && rank->rank && give(rank, sent.memory, out, sends, stream))
            return fail(rank->comm, "late call");
        if (tuttiStreamSynchronize(stream)) return fail(rank->comm, "stream");
        if (rank->rank && (!sends || rank->rank == 1)) status = check_given(rank, out, turn);
        if (status) return status;
    }
    if (tuttiBarrier(host, NULL)) return fail(host, "barrier");
    if (!rank->rank && !registers) status = await_free(rank, &sent);
    if (!rank->rank && registers && opens_registered()) status = deregister(rank, &sent);
    if (tuttiStreamDestroy(stream) || tuttiBarrier(host, NULL)) return fail(host, "barrier");
    return status;
}

/* A call that fails sends nothing any more: the memory goes back though nobody has read it. The
 * communicator is lost: the last thing that a rank does. */
static int fail_early(const struct gpu_rank *rank, void *cuda, char *out)
{
    const struct sent sent = send_from(rank, false);
    tuttiStream_t stream;
    int status = 0;
    if (tuttiStreamFromDevice(&stream, rank->gpu, cuda)) return fail(NULL, "stream");
    for (int turn = 0; turn < 3; turn++)
        if (give(rank, sent.memory, out, true, NULL)) return fail(rank->comm, "call");
    if (tuttiCommSetTimeout(rank->comm, 300)) return fail(rank->comm, "timeout");
    if (tuttiBarrier(host, NULL)) return fail(host, "barrier");
    if (!rank->rank) {
        if (give(rank, sent.memory, out, true, stream)) return fail(rank->comm, "call");
        if (tuttiMemFree(sent.memory)) return fail(NULL, "free");
        status = await_free(rank, &sent);
        if (tuttiStreamSynchronize(stream) == tuttiSuccess)
            status = complain(rank, "a call that nobody answers has ended well");
    }
    if (tuttiBarrier(host, NULL)) return fail(host, "barrier");
    fflush(stdout);
    _exit(status);
}

static int be_early(const struct gpu_rank *rank)
{
    void *cuda = gpu_stream(rank->gpu);
    char *out = allocate(rank, MEMORY);
    int status = 0;
    for (int i = 0; i < 4 && !status; i++) status = give_early(rank, cuda, out, i % 2, i / 2);
    return status ? status : fail_early(rank, cuda, out);
}

static void *kill_later(void *pid)
{
    for (int i = 0; i < 200; i++) usleep(PAUSE_US);
    kill(*(int *)pid, SIGKILL);
    return NULL;
}

static bool stands_still(int pid)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *stat = fopen(path, "re");
    const bool found = stat && fscanf(stat, "%*d %*s %c", &state) == 1;
    if (stat) fclose(stat);
    return found && state == 'T';
}

static int lose_peer(const struct gpu_rank *rank, bool aborts)
{
    pthread_t killer;
    char *out = allocate(rank, MEMORY);
    const struct sent sent = send_from(rank, false), registered = send_from(rank, true);
    int status = use(rank, &sent, out);
    if (!status) status = use(rank, &registered, out);
    if (status || tuttiBarrier(host, NULL)) return fail(host, "barrier");
    if (rank->rank == 1 && aborts && tuttiCommAbort(rank->comm)) return fail(NULL, "abort");
    if (aborts && tuttiBarrier(host, NULL)) return fail(host, "barrier");
    if (rank->rank == 1 && !aborts) raise(SIGSTOP);
    while (!rank->rank && !aborts && !stands_still(pids[1])) usleep(PAUSE_US);
    if (!rank->rank && !aborts && pthread_create(&killer, NULL, kill_later, &pids[1])) return 2;
    if (!rank->rank) {
        if (tuttiMemFree(sent.memory)) return fail(NULL, "free");
        status = deregister(rank, &registered);
        if (!status) status = await_free(rank, &sent);
        if (!aborts) pthread_join(killer, NULL);
    }
    if (aborts && tuttiBarrier(host, NULL)) return fail(host, "barrier");
    _exit(status);
}

int main(int argc, char **argv)
{
    int launched, nranks, local, status = 2;
    if (argc < 3 || tuttiGetLauncher(&launched, &nranks, &local) || nranks > MOST_PROCESSES)
        return 2;
    struct gpu_rank rank = {.rank = launched, .nranks = nranks, .gpu = local % atoi(argv[1])};
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = rank.gpu;
    if (tuttiCommInitEnv(&rank.comm, NULL, &config)) return fail(NULL, "init");
    config.device = -1;
    if (tuttiCommInitEnv(&host, NULL, &config)) return fail(NULL, "init without a GPU");
    const int pid = getpid();
    if (tuttiAllGather(&pid, pids, 1, tuttiInt32, host, NULL)) return fail(host, "pids");
    if (!strcmp(argv[2], "closed")) status = close_all(&rank);
    if (!strcmp(argv[2], "late")) status = be_late(&rank);
    if (!strcmp(argv[2], "early")) status = be_early(&rank);
    if (!strcmp(argv[2], "gone")) status = lose_peer(&rank, false);
    if (!strcmp(argv[2], "aborted")) status = lose_peer(&rank, true);
    if (!strcmp(argv[2], "traffic")) status = measure(&rank);
    if (!strcmp(argv[2], "memory")) status = change_memory(&rank);
    if (!strcmp(argv[2], "freed") && argc > 3) status = use_freed(&rank, atoi(argv[3]) == launched);
    if (!strcmp(argv[2], "growth")) status = change_often(&rank);
    if (!strcmp(argv[2], "held")) status = hold(&rank);
    if (!strcmp(argv[2], "many")) status = use_many(&rank);
    if (tuttiCommDestroy(rank.comm) || tuttiCommDestroy(host)) return fail(NULL, "destroy");
    return status;
}
