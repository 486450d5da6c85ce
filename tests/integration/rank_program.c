/* One rank of the integration tests that need processes: rank_program loop | loop_mixed |
 * loop_split | loop_with_child FD | asks_in_child | many_communicators | held | random SEED NCALLS
 * | hello | init | init_stopping | cramped | disagree | stay_away | abort | abort_destroyed |
 * abort_done ROUNDS | abort_parent ROUNDS | aborting HOW | gone HOW | late HOW | behind | quit |
 * stuck HOW | dying HOW | uncopied | unread HOW | rank_order MOST | averages SHARE | closed |
 * closefrom; or all ranks: rank_program crowd NRANKS COLLECTIVE. Exit 0: all was right; 3: a call
 * failed and the last line of stderr says how ("ERROR ..."); 4: wrong results. */
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aborting.h"
#include "averages.h"
#include "communicator/communicator.h"
#include "crowd.h"
#include "dying.h"
#include "leaving.h"
#include "random_calls.h"
#include "rank_order.h"
#include "standard.h"
#include "stuck.h"
#include "tutti.h"

enum { RIGHT = 0, FAILED = 3, WRONG = 4 };

static int failed(tuttiComm_t comm, tuttiResult_t result)
{
    fprintf(stderr, "ERROR %s: %s\n", tuttiGetErrorString(result), tuttiGetLastError(comm));
    if (comm && tuttiCommDestroy(comm) != tuttiSuccess)
        fprintf(stderr, "ERROR destroy: %s\n", tuttiGetLastError(NULL));
    return FAILED;
}

/* Collectives of all sizes until one fails. */
static int loop(tuttiComm_t comm)
{
    enum { COUNT = 1 << 18 };
    float *buffer = calloc(COUNT, sizeof *buffer);
    if (!buffer) return WRONG;
    tuttiResult_t result = tuttiSuccess;
    for (int i = 0; result == tuttiSuccess; i++) {
        const size_t count = i % 7 == 0 ? COUNT : i % 3 == 0 ? 5000 : 2;
        switch (i % 4) {
        case 0:
            result = tuttiAllReduce(buffer, buffer, count, tuttiFloat32, tuttiMax, comm, NULL);
            break;
        case 1:
            result = tuttiBroadcast(buffer, buffer, count, tuttiFloat32, 0, comm, NULL);
            break;
        case 2:
            result = tuttiBarrier(comm, NULL);
            break;
        default:
            result = tuttiReduce(buffer, buffer, count, tuttiFloat32, tuttiSum, 1, comm, NULL);
            break;
        }
        if (i == 20) {
            puts("looping");
            fflush(stdout);
        }
    }
    free(buffer);
    return failed(comm, result);
}

/* A call of the kind that `draw` chooses, alike on all ranks; one kind splits. */
static tuttiResult_t call_any(tuttiComm_t comm, unsigned draw, float *from, float *to)
{
    const size_t count = draw / 8 % 3 ? 100 : 20000;
    tuttiComm_t part = NULL;
    int nranks, rank;
    tuttiCommCount(comm, &nranks);
    tuttiCommUserRank(comm, &rank);
    switch (draw % 6) {
    case 0:
        return tuttiAllReduce(from, from, count, tuttiFloat32, tuttiMax, comm, NULL);
    case 1:
        return tuttiBroadcast(from, from, count, tuttiFloat32, (int)(draw / 8) % nranks, comm,
                              NULL);
    case 2:
        tuttiGroupStart();
        tuttiSend(from, count, tuttiFloat32, (rank + 1) % nranks, comm, NULL);
        tuttiRecv(to, count, tuttiFloat32, (rank + nranks - 1) % nranks, comm, NULL);
        return tuttiGroupEnd();
    case 3:
        return tuttiAllGather(from, to, count / 8, tuttiFloat32, comm, NULL);
    case 4:
        return tuttiBarrier(comm, NULL);
    }
    tuttiResult_t result = tuttiCommSplit(comm, rank % 2, 0, &part, NULL);
    if (result == tuttiSuccess)
        result = tuttiAllReduce(from, from, 100, tuttiFloat32, tuttiMax, part, NULL);
    if (result != tuttiSuccess) fprintf(stderr, "part: %s\n", tuttiGetLastError(part));
    tuttiCommDestroy(part);
    return result;
}

/* Calls of all kinds, or of all but splits, until one fails. Then the communicators are destroyed,
 * also one that has not failed itself, and the process ends. */
static int loop_mixed(tuttiComm_t comm, bool splits)
{
    enum { COUNT = 20000 };
    static float from[COUNT], to[COUNT * 8];
    unsigned draw = 7;
    tuttiResult_t result = tuttiSuccess, own;
    puts("looping");
    fflush(stdout);
    while (result == tuttiSuccess) {
        draw = draw * 1103515245 + 12345;
        result =
            call_any(comm, splits ? draw >> 16 : (draw >> 16) / 6 * 6 + (draw >> 16) % 5, from, to);
    }
    if (tuttiCommGetAsyncError(comm, &own) != tuttiSuccess) return WRONG;
    if (own != tuttiSuccess) return failed(comm, result);
    fprintf(stderr, "ERROR of a part: %s\n", tuttiGetLastError(NULL));
    return tuttiCommDestroy(comm) == tuttiSuccess ? FAILED : WRONG;
}

/* Leaves a child behind that lives until the other end of the pipe `fd` is closed. */
static int loop_with_child(tuttiComm_t comm, int fd)
{
    if (tuttiBarrier(comm, NULL) != tuttiSuccess) return WRONG;
    const pid_t child = fork();
    if (child < 0) return WRONG;
    if (child > 0) return loop(comm);
    char byte;
    while (read(fd, &byte, 1) > 0) {
    }
    _exit(0);
}

/* A child of rank 0 asks for the state of the communicator several times; then the ranks go on. */
static int asks_in_child(tuttiComm_t comm)
{
    int rank = 0, how = 0, data = 1;
    tuttiResult_t result = tuttiBarrier(comm, NULL), state = tuttiInternalError;
    if (result != tuttiSuccess || tuttiCommUserRank(comm, &rank)) return failed(comm, result);
    const pid_t child = rank ? 0 : fork();
    if (!rank && !child) {
        for (int i = 0; i < 5 && (!i || !state); i++)
            if (tuttiCommGetAsyncError(comm, &state)) _exit(WRONG);
        _exit(state == tuttiSuccess ? RIGHT : FAILED);
    }
    if (!rank && (waitpid(child, &how, 0) != child || how)) return WRONG;
    result = tuttiAllReduce(&data, &data, 1, tuttiInt32, tuttiSum, comm, NULL);
    if (result != tuttiSuccess) return failed(comm, result);
    return tuttiCommDestroy(comm) == tuttiSuccess ? RIGHT : WRONG;
}

static int count_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 1000; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Each communicator takes one descriptor, however many ranks it has. */
static int many_communicators(tuttiComm_t comm)
{
    enum { MANY = 20 };
    tuttiComm_t comms[MANY];
    const int before = count_descriptors();
    for (int i = 0; i < MANY; i++) {
        const tuttiResult_t result = tuttiCommSplit(comm, 0, 0, &comms[i], NULL);
        if (result != tuttiSuccess) return failed(comm, result);
    }
    const int more = count_descriptors() - before;
    if (more > MANY) fprintf(stderr, "%d communicators took %d descriptors\n", MANY, more);
    for (int i = 0; i < MANY; i++)
        if (tuttiCommDestroy(comms[i]) != tuttiSuccess) return WRONG;
    return more > MANY || tuttiCommDestroy(comm) != tuttiSuccess ? WRONG : RIGHT;
}

/* Defined under a sanitizer, whose allocator mallinfo2 does not know. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t allocated(void)
{
    if (__sanitizer_get_current_allocated_bytes) return __sanitizer_get_current_allocated_bytes();
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* Bytes of the segments that this process has mapped. */
static size_t mapped_segments(void)
{
    char line[512];
    size_t nbytes = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        if (strstr(line, "memfd:tutti-segment") && sscanf(line, "%lx-%lx", &begin, &end) == 2)
            nbytes += end - begin;
    }
    if (maps) fclose(maps);
    return nbytes;
}

/* Ranks of this one's host, this one included: TUTTI_HOST_ID is equal. */
static int count_local(tuttiComm_t comm)
{
    char mine[16] = "", all[64][16];
    int nranks = 0, nlocal = 0;
    const char *id = getenv("TUTTI_HOST_ID");
    snprintf(mine, sizeof mine, "%s", id ? id : "");
    if (tuttiCommCount(comm, &nranks) || nranks > 64 ||
        tuttiAllGather(mine, all, sizeof mine, tuttiUint8, comm, NULL))
        return 1;
    for (int r = 0; r < nranks; r++) nlocal += !memcmp(all[r], mine, sizeof mine);
    return nlocal;
}

/* Messages to all ranks, through slots, in place and fetched; a reduction; a count for each rank.
 */
static tuttiResult_t use(tuttiComm_t comm, char *data, size_t nbytes)
{
    int nranks = 0;
    void *handle = NULL;
    tuttiResult_t result = tuttiCommCount(comm, &nranks);
    const size_t count = nbytes / 2 / (size_t)nranks;
    if (!result) result = tuttiAlltoAll(data, data + nbytes / 2, count, tuttiUint8, comm, NULL);
    if (!result) result = tuttiCommRegister(comm, data, nbytes, &handle);
    if (!result) result = tuttiAlltoAll(data, data + nbytes / 2, count, tuttiUint8, comm, NULL);
    if (!result)
        result = tuttiAllReduce(data, data + nbytes / 2, count, tuttiInt8, tuttiBitXor, comm, NULL);
    return result;
}

/* Whether the communicator says how much it has taken: from malloc() and by its struct, and its
 * share of the segment. The tolerance is what malloc() itself adds to each piece: more with the
 * thread sanitizer's. */
static bool says(tuttiComm_t comm, const char *when, size_t heap, size_t share)
{
    tuttiCounters_t counters;
    if (tuttiCommCounters(comm, &counters)) return false;
#ifdef __SANITIZE_THREAD__
    const size_t tolerance = heap / 6 + 4096;
#else
    const size_t tolerance = heap / 100 + 1024;
#endif
    const uint64_t said = counters.memoryBytes, taken = heap + share;
    fprintf(stderr, "%s: %llu bytes said, %llu taken (%zu from malloc)\n", when,
            (unsigned long long)said, (unsigned long long)taken, heap);
    return said <= taken + tolerance && taken <= said + tolerance;
}

static int held(tuttiComm_t comm)
{
    enum { NBYTES = 4 << 20 };
    tuttiComm_t other = NULL;
    const size_t nlocal = (size_t)count_local(comm);
    char *data = NULL;
    if (posix_memalign((void **)&data, 4096, NBYTES)) return WRONG;
    memset(data, 1, NBYTES);
    if (use(comm, data, NBYTES)) return failed(comm, tuttiSystemError);
    /* What the parent keeps of its calls in a split is its own. */
    if (tuttiCommSplit(comm, 0, 0, &other, NULL) || tuttiCommDestroy(other))
        return failed(comm, tuttiSystemError);
#ifdef __SANITIZE_ADDRESS__
    const size_t aside = 0; /* the struct is on the heap */
#else
    const size_t aside = sizeof *comm; /* a mapping (communicator/calling.c) */
#endif
    const size_t before = allocated() - aside, mapped = mapped_segments();
    if (tuttiCommSplit(comm, 0, 0, &other, NULL)) return failed(comm, tuttiSystemError);
    const size_t share = (mapped_segments() - mapped) / nlocal;
    const bool when_made = says(other, "made", allocated() - before, share);
    if (use(other, data, NBYTES)) return failed(other, tuttiSystemError);
    const bool when_used = says(other, "used", allocated() - before, share);
    if (tuttiCommDestroy(other) || tuttiCommDestroy(comm)) return WRONG;
    free(data);
    return when_made && when_used ? RIGHT : WRONG;
}

static bool is_last(tuttiComm_t comm)
{
    int nranks = 0, rank = 0;
    return !tuttiCommCount(comm, &nranks) && !tuttiCommUserRank(comm, &rank) && rank == nranks - 1;
}

/* The last rank has no address space left for the memory of the others. */
static int cramped(tuttiComm_t comm)
{
    enum { COUNT = 1 << 22 };
    float *memory = NULL;
    struct rlimit limit;
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    tuttiResult_t result = tuttiMemAlloc((void **)&memory, COUNT * sizeof *memory);
    if (result != tuttiSuccess || !file || fscanf(file, "%lu", &pages) != 1) return WRONG;
    fclose(file);
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + COUNT;
    if (is_last(comm) && setrlimit(RLIMIT_AS, &limit)) return WRONG;
    for (int i = 0; i < 3 && result == tuttiSuccess; i++)
        result = tuttiAllReduce(memory, memory, COUNT, tuttiFloat32, tuttiSum, comm, NULL);
    return result == tuttiSuccess ? RIGHT : failed(comm, result);
}

/* SIGALRM: its sender wants a rank that stops. */
static void stop(int number)
{
    (void)number;
    raise(SIGSTOP);
}

/* One all-reduce of each way that data can take. */
static int hello(tuttiComm_t comm)
{
    enum { COUNT = 300000 };
    int nranks, rank;
    void *window = NULL;
    int *data = malloc(COUNT * sizeof *data);
    if (!data || tuttiCommCount(comm, &nranks) || tuttiCommUserRank(comm, &rank)) return WRONG;
    tuttiResult_t result = tuttiMemAlloc(&window, COUNT * sizeof *data);
    if (result != tuttiSuccess) fprintf(stderr, "no window memory: %s\n", tuttiGetLastError(NULL));
    for (int pass = 0; pass < (window ? 2 : 1); pass++) {
        int *const buffer = pass ? window : data;
        for (int i = 0; i < COUNT; i++) buffer[i] = rank + i % 10;
        result = tuttiAllReduce(buffer, buffer, COUNT, tuttiInt32, tuttiSum, comm, NULL);
        if (result != tuttiSuccess) return failed(comm, result);
        for (int i = 0; i < COUNT; i++)
            if (buffer[i] != nranks * (nranks - 1) / 2 + i % 10 * nranks) return WRONG;
    }
    if (tuttiMemFree(window) != tuttiSuccess) return WRONG;
    free(data);
    result = tuttiCommDestroy(comm);
    return result == tuttiSuccess ? RIGHT : failed(NULL, result);
}

/* A long all-reduce of window memory, out of place and in place: no byte goes through a slot. */
static int uncopied(tuttiComm_t comm)
{
    enum { COUNT = 4 << 20 };
    int nranks, rank, *data[2] = {NULL, NULL};
    tuttiCounters_t before, after;
    if (tuttiCommCount(comm, &nranks) || tuttiCommUserRank(comm, &rank)) return WRONG;
    for (int b = 0; b < 2; b++)
        if (tuttiMemAlloc((void **)&data[b], COUNT * sizeof(int)))
            return failed(comm, tuttiSystemError);
    for (int b = 1; b >= 0; b--) {
        for (int i = 0; i < COUNT; i++) data[0][i] = rank + i % 10;
        if (tuttiCommCounters(comm, &before)) return WRONG;
        const tuttiResult_t result =
            tuttiAllReduce(data[0], data[b], COUNT, tuttiInt32, tuttiSum, comm, NULL);
        if (result != tuttiSuccess) return failed(comm, result);
        if (tuttiCommCounters(comm, &after)) return WRONG;
        for (int i = 0; i < COUNT; i++)
            if (data[b][i] != nranks * (nranks - 1) / 2 + i % 10 * nranks) return WRONG;
        const unsigned long long copied = after.bytesCopied - before.bytesCopied;
        if (!copied) continue;
        fprintf(stderr, "WRONG rank %d copied %llu bytes\n", rank, copied);
        return WRONG;
    }
    return tuttiCommDestroy(comm) == tuttiSuccess ? RIGHT : WRONG;
}

/* Rank 0 uses a window that it has not used before, and that its peer never looks into. */
static tuttiResult_t use_unread(tuttiComm_t comm, const char *how, int rank, char *common,
                                char *fresh)
{
    enum { NBYTES = 65536 };
    if (!strcmp(how, "reduce"))
        return tuttiReduce(common, fresh, NBYTES, tuttiUint8, tuttiMax, 0, comm, NULL);
    if (rank) return tuttiSend(common, NBYTES, tuttiUint8, 0, comm, NULL);
    return tuttiRecv(fresh, NBYTES, tuttiUint8, 1, comm, NULL);
}

/* After many windows that rank 1 has not looked into it still reads one in place. */
static int unread(tuttiComm_t comm, const char *how)
{
    enum { TIMES = 300, NBYTES = 131072 };
    int rank;
    char *common = calloc(1, NBYTES), *window;
    tuttiCounters_t before, after;
    if (!common || tuttiCommUserRank(comm, &rank)) return WRONG;
    for (int i = 0; i < TIMES; i++) {
        if (tuttiMemAlloc((void **)&window, NBYTES)) return failed(comm, tuttiSystemError);
        const tuttiResult_t result = use_unread(comm, how, rank, common, rank ? common : window);
        if (result != tuttiSuccess) return failed(comm, result);
        if (tuttiMemFree(window)) return WRONG;
    }
    if (tuttiMemAlloc((void **)&window, NBYTES)) return failed(comm, tuttiSystemError);
    if (tuttiCommCounters(comm, &before)) return WRONG;
    const tuttiResult_t result = rank ? tuttiRecv(common, NBYTES, tuttiUint8, 0, comm, NULL)
                                      : tuttiSend(window, NBYTES, tuttiUint8, 1, comm, NULL);
    if (result != tuttiSuccess) return failed(comm, result);
    if (tuttiCommCounters(comm, &after) || tuttiMemFree(window)) return WRONG;
    free(common);
    const unsigned long long copied = after.bytesCopied - before.bytesCopied;
    if (copied) fprintf(stderr, "WRONG rank %d copied %llu bytes of a window\n", rank, copied);
    return tuttiCommDestroy(comm) == tuttiSuccess && !copied ? RIGHT : WRONG;
}

static int barriers(tuttiComm_t comm)
{
    tuttiResult_t result = tuttiSuccess;
    while (result == tuttiSuccess) result = tuttiBarrier(comm, NULL);
    return failed(comm, result);
}

/* The last rank calls something else. */
static int disagree(tuttiComm_t comm)
{
    float data[1000] = {0};
    tuttiResult_t result = tuttiBarrier(comm, NULL);
    if (result == tuttiSuccess)
        result = is_last(comm)
                     ? tuttiBroadcast(data, data, 20, tuttiFloat32, 0, comm, NULL)
                     : tuttiAllReduce(data, data, 1000, tuttiFloat32, tuttiSum, comm, NULL);
    return result == tuttiSuccess ? barriers(comm) : failed(comm, result);
}

/* The last rank does not come to the second barrier: it only looks whether all is well. */
static int stay_away(tuttiComm_t comm)
{
    tuttiResult_t result = tuttiBarrier(comm, NULL), asked = tuttiSuccess;
    if (!is_last(comm)) return barriers(comm);
    while (result == tuttiSuccess && asked == tuttiSuccess)
        result = tuttiCommGetAsyncError(comm, &asked);
    return failed(comm, asked);
}

/* The last rank ends silently when its part is done; the others take what it sent later. */
static int quit(tuttiComm_t comm)
{
    enum { COUNT = 100000 };
    int *data = calloc(COUNT, sizeof *data);
    if (!data || tuttiBarrier(comm, NULL) != tuttiSuccess) return WRONG;
    int nranks = 0;
    if (tuttiCommCount(comm, &nranks) != tuttiSuccess) return WRONG;
    for (int i = 0; i < COUNT && is_last(comm); i++) data[i] = i;
    if (!is_last(comm)) usleep(300000); /* until it has gone */
    const tuttiResult_t result =
        tuttiBroadcast(data, data, COUNT, tuttiInt32, nranks - 1, comm, NULL);
    if (is_last(comm)) exit(result == tuttiSuccess ? RIGHT : FAILED);
    if (result != tuttiSuccess) return failed(comm, result);
    for (int i = 0; i < COUNT; i++)
        if (data[i] != i) return WRONG;
    free(data);
    return tuttiCommDestroy(comm) == tuttiSuccess ? RIGHT : WRONG;
}

static int abort_last(tuttiComm_t comm)
{
    if (tuttiBarrier(comm, NULL) != tuttiSuccess || !is_last(comm)) return barriers(comm);
    if (tuttiCommAbort(comm) != tuttiSuccess) return WRONG;
    fprintf(stderr, "ERROR aborted by rank itself\n");
    return FAILED;
}

struct destroyer {
    tuttiComm_t comm;
    tuttiResult_t result;
    _Atomic bool has_ended;
};

static void *destroy(void *argument)
{
    struct destroyer *destroyer = argument;
    destroyer->result = tuttiCommDestroy(destroyer->comm);
    destroyer->has_ended = true;
    return NULL;
}

/* The last rank stops. Another one has sent it as much as fits into the connection, destroys its
 * communicator, which waits until all has been taken, and aborts it meanwhile. */
static int abort_destroyed(tuttiComm_t comm)
{
    enum { TIMES = 4, NBYTES = 65536, WAIT_US = 100000 };
    static char data[NBYTES];
    struct destroyer destroyer = {.comm = comm};
    pthread_t thread;
    if (tuttiBarrier(comm, NULL) != tuttiSuccess) return WRONG;
    if (is_last(comm)) raise(SIGSTOP);
    for (int i = 0; i < TIMES; i++)
        if (tuttiSend(data, NBYTES, tuttiUint8, 1, comm, NULL) != tuttiSuccess) return WRONG;
    if (pthread_create(&thread, NULL, destroy, &destroyer)) return WRONG;
    usleep(WAIT_US);
    const tuttiResult_t aborted = destroyer.has_ended ? tuttiSuccess : tuttiCommAbort(comm);
    pthread_join(thread, NULL);
    return destroyer.result == tuttiSuccess && aborted == tuttiSuccess ? RIGHT : WRONG;
}

/* Rank 0 may have `more` descriptors more, and all split until that does not do. */
static int split_out(tuttiComm_t comm, int more)
{
    enum { MOST = 1000 };
    int rank;
    if (tuttiCommUserRank(comm, &rank) != tuttiSuccess) return WRONG;
    const int lowest = dup(0);
    const struct rlimit limit = {(rlim_t)(lowest + more), (rlim_t)(lowest + more)};
    close(lowest);
    if (rank == 0 && setrlimit(RLIMIT_NOFILE, &limit)) return WRONG;
    for (int i = 0; i < MOST; i++) {
        tuttiComm_t child;
        const tuttiResult_t result = tuttiCommSplit(comm, 0, rank, &child, NULL);
        if (result != tuttiSuccess) return failed(comm, result);
    }
    return RIGHT;
}

static int right_unless(const char *wrong)
{
    if (wrong) fprintf(stderr, "WRONG %s\n", wrong);
    return wrong ? WRONG : RIGHT;
}

static int destroyed(tuttiComm_t comm, const char *wrong)
{
    const int ended = right_unless(wrong);
    return tuttiCommDestroy(comm) == tuttiSuccess ? ended : WRONG;
}

typedef const char *fault(tuttiComm_t comm, const char *how, tuttiResult_t *result);

static int run_fault(tuttiComm_t comm, fault *run, const char *how)
{
    tuttiResult_t result = tuttiSuccess;
    const char *wrong = run(comm, how, &result);
    if (wrong) fprintf(stderr, "WRONG %s\n", wrong);
    if (result != tuttiSuccess) failed(comm, result);
    return wrong ? WRONG : result == tuttiSuccess ? RIGHT : FAILED;
}

int main(int argc, char **argv)
{
    tuttiComm_t comm = NULL;
    if (argc == 4 && !strcmp(argv[1], "crowd")) {
        const tuttiResult_t went = crowd(atoi(argv[2]), argv[3]);
        return went == tuttiSuccess ? RIGHT : went == tuttiInternalError ? WRONG : FAILED;
    }
    if (argc == 2 && !strcmp(argv[1], "closed"))
        return works_with_closed_standard_streams() ? RIGHT : WRONG;
    if (argc == 2 && !strcmp(argv[1], "closefrom")) return survives_closefrom() ? RIGHT : WRONG;
    if (argc == 2 && !strcmp(argv[1], "init_stopping")) signal(SIGALRM, stop);
    const tuttiResult_t result = tuttiCommInitEnv(&comm, NULL, NULL);
    if (result != tuttiSuccess) return failed(NULL, result);
    if (argc == 2 && !strncmp(argv[1], "init", strlen("init")))
        return tuttiCommDestroy(comm) == tuttiSuccess ? RIGHT : WRONG;
    if (argc == 2 && !strcmp(argv[1], "loop")) return loop(comm);
    if (argc == 2 && !strcmp(argv[1], "loop_split")) return loop_mixed(comm, true);
    if (argc == 2 && !strcmp(argv[1], "loop_mixed")) return loop_mixed(comm, false);
    if (argc == 2 && !strcmp(argv[1], "hello")) return hello(comm);
    if (argc == 2 && !strcmp(argv[1], "cramped")) return cramped(comm);
    if (argc == 3 && !strcmp(argv[1], "split_out")) return split_out(comm, atoi(argv[2]));
    if (argc == 2 && !strcmp(argv[1], "disagree")) return disagree(comm);
    if (argc == 2 && !strcmp(argv[1], "stay_away")) return stay_away(comm);
    if (argc == 2 && !strcmp(argv[1], "abort")) return abort_last(comm);
    if (argc == 2 && !strcmp(argv[1], "abort_destroyed")) return abort_destroyed(comm);
    if (argc == 3 && !strcmp(argv[1], "abort_done"))
        return destroyed(comm, abort_done(comm, atoi(argv[2])));
    if (argc == 3 && !strcmp(argv[1], "abort_parent"))
        return destroyed(comm, abort_parent(comm, atoi(argv[2])));
    if (argc == 3 && !strcmp(argv[1], "aborting")) return destroyed(comm, aborting(comm, argv[2]));
    if (argc == 3 && !strcmp(argv[1], "late")) return destroyed(comm, late(comm, argv[2]));
    if (argc == 2 && !strcmp(argv[1], "behind")) return destroyed(comm, behind(comm));
    if (argc == 3 && !strcmp(argv[1], "gone")) return right_unless(gone(comm, argv[2]));
    if (argc == 2 && !strcmp(argv[1], "quit")) return quit(comm);
    if (argc == 3 && !strcmp(argv[1], "loop_with_child"))
        return loop_with_child(comm, atoi(argv[2]));
    if (argc == 3 && !strcmp(argv[1], "stuck")) return run_fault(comm, stuck, argv[2]);
    if (argc == 3 && !strcmp(argv[1], "dying")) return run_fault(comm, dying, argv[2]);
    if (argc == 2 && !strcmp(argv[1], "uncopied")) return uncopied(comm);
    if (argc == 3 && !strcmp(argv[1], "unread")) return unread(comm, argv[2]);
    if (argc == 2 && !strcmp(argv[1], "asks_in_child")) return asks_in_child(comm);
    if (argc == 2 && !strcmp(argv[1], "many_communicators")) return many_communicators(comm);
    if (argc == 2 && !strcmp(argv[1], "held")) return held(comm);
    if (argc == 4 && !strcmp(argv[1], "random")) {
        const int nwrong = random_calls(comm, strtoull(argv[2], NULL, 10), atoi(argv[3]));
        return tuttiCommDestroy(comm) || nwrong ? WRONG : RIGHT;
    }
    if (argc == 3 && !strcmp(argv[1], "rank_order")) {
        const int nwrong = rank_order_calls(comm, strtoul(argv[2], NULL, 10));
        return tuttiCommDestroy(comm) || nwrong ? WRONG : RIGHT;
    }
    if (argc == 3 && !strcmp(argv[1], "averages")) {
        const int nwrong = average_calls(comm, atoi(argv[2]));
        return tuttiCommDestroy(comm) || nwrong ? WRONG : RIGHT;
    }
    fprintf(stderr, "usage: rank_program loop | loop_mixed | loop_split | loop_with_child FD | "
                    "asks_in_child | many_communicators | held | "
                    "random SEED NCALLS | hello | init | init_stopping | disagree | stay_away | "
                    "abort | abort_done ROUNDS | abort_parent ROUNDS | aborting HOW | gone HOW | "
                    "late HOW | quit | stuck HOW | dying HOW | uncopied "
                    "| unread HOW | rank_order MOST | averages SHARE | crowd NRANKS COLLECTIVE\n");
    return 2;
}
