/* A rank of a job on several hosts, each rank on a virtual GPU, in which ranks leave while others
 * are late: device_bridge_rank SCENE [FILE]. All ranks broadcast once from each rank, rank 0 prints
 * what its links are, then all broadcast once more from rank 0, which is what the scenes are about:
 *   ends   rank 2 takes it late, when the others have ended one after the other
 *   exit   rank 0 ends without destroying its communicator, before the others take it
 *   abort  rank 0 aborts its communicator, which is at rest, before the others take it
 *   idle   rank 0 makes no call more, and stays until rank 1 has left and made the FILE
 *   closeR rank R closes its connections with other hosts before
 *   part   all reduce to the last rank instead; rank 0 does its part and ends by _exit before the
 *          rank before the last one begins
 *   bytes  instead all reduce to all; each says how many bytes it sends to other hosts, and in how
 *          many messages; FILE: how many elements
 *   otherX instead all reduce to all, rank 0 by algorithm X, and all of them must say so; FILE: how
 *          many elements
 *   held   instead a stream of the program waits for the thread that makes the first calls
 *   wrong  FILE: rank 0 makes a group that is none, between two messages to rank 1 of its host, and
 *          leaves; the others stay until it has made the FILE */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ranks_on_gpus.h"
#include "tutti.h"

enum {
    COUNT = 30000,
    SENT = 1 << 17, /* elements of scene `bytes`, at most */
    BEFORE_US = 200000,
    LATE_US = 1500000,
    MOST_LOOKS = 20000,
    LOOK_US = 1000,
    MOST_FD = 1024
};

static _Noreturn void fail(tuttiComm_t comm, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, tuttiGetLastError(comm));
    exit(2);
}

/* Of a value that only root has. */
static void broadcast(tuttiComm_t comm, int gpu, int rank, int root, int *memory)
{
    static int data[COUNT];
    for (int i = 0; i < COUNT; i++) data[i] = rank == root ? i + root : -1;
    gpu_write(gpu, memory, data, sizeof data);
    if (tuttiBroadcast(memory, memory, COUNT, tuttiInt32, root, comm, NULL))
        fail(comm, "broadcast");
    gpu_read(gpu, data, memory, sizeof data);
    for (int i = 0; i < COUNT; i++)
        if (data[i] != i + root) fail(NULL, "a wrong result");
}

/* Of ones, to the last rank. */
static void reduce(tuttiComm_t comm, int rank, int nranks, int *memory)
{
    static int data[COUNT];
    for (int i = 0; i < COUNT; i++) data[i] = 1;
    gpu_write(0, memory, data, sizeof data);
    if (rank == nranks - 2) usleep(2 * LATE_US);
    if (tuttiReduce(memory, memory, COUNT, tuttiInt32, tuttiSum, nranks - 1, comm, NULL))
        fail(comm, "reduce");
    gpu_read(0, data, memory, sizeof data);
    for (int i = 0; rank == nranks - 1 && i < COUNT; i++)
        if (data[i] != nranks) fail(NULL, "a wrong sum");
}

/* The second one: the first also binds the bridges. */
static void count_sent(tuttiComm_t comm, int rank, int nranks, int count)
{
    static int data[SENT];
    const size_t nbytes = (size_t)count * sizeof *data;
    tuttiCounters_t before, after;
    const char *algorithm;
    int *memory = (int *)gpu_memory(0, nbytes);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < count; i++) data[i] = i + rank;
        gpu_write(0, memory, data, nbytes);
        if (tuttiBarrier(comm, NULL) || tuttiCommCounters(comm, &before) ||
            tuttiAllReduce(memory, memory, (size_t)count, tuttiInt32, tuttiSum, comm, NULL) ||
            tuttiCommCounters(comm, &after) ||
            tuttiCommGetAlgorithm(comm, tuttiCollAllReduce, nbytes, &algorithm))
            fail(comm, "all_reduce");
        gpu_read(0, data, memory, nbytes);
        for (int i = 0; i < count; i++)
            if (data[i] != nranks * i + nranks * (nranks - 1) / 2) fail(NULL, "a wrong sum");
    }
    const uint64_t copied = after.bytesCopied - before.bytesCopied;
    const uint64_t direct = after.bytesDirect - before.bytesDirect;
    printf("sent %llu of %zu by %s\ncopied %llu, direct %llu\nmessages %llu\n",
           (unsigned long long)(copied + direct), nbytes, algorithm, (unsigned long long)copied,
           (unsigned long long)direct, (unsigned long long)(after.messages - before.messages));
}

/* Rank 0 by another algorithm, which may have another number of blocks of threads. */
static void disagree(tuttiComm_t comm, int rank, const char *other, int count)
{
    int *memory = (int *)gpu_memory(0, (size_t)count * sizeof *memory);
    if (rank == 0 && tuttiCommSetAlgorithm(comm, tuttiCollAllReduce, other))
        fail(comm, "the other algorithm");
    if (tuttiAllReduce(memory, memory, (size_t)count, tuttiInt32, tuttiSum, comm, NULL) !=
            tuttiInvalidUsage ||
        !strstr(tuttiGetLastError(comm), "the ranks chose different algorithms"))
        fail(comm, "ranks with different algorithms");
}

static int count_of(const char *text)
{
    const int count = text ? atoi(text) : SENT;
    if (count < 1 || count > SENT) fail(NULL, "a number of elements");
    return count;
}

static void make_file(const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file || fclose(file)) fail(NULL, path);
}

static void await_file(const char *path)
{
    for (int i = 0; access(path, F_OK); i++) {
        if (i == MOST_LOOKS) fail(NULL, "the rank that leaves waits for this one");
        usleep(LOOK_US);
    }
}

/* As a program does that closes descriptors which are not its own. */
static void close_connections(void)
{
    for (int fd = STDERR_FILENO + 1; fd < MOST_FD; fd++) {
        struct sockaddr_storage peer = {.ss_family = AF_UNSPEC};
        socklen_t nbytes = sizeof peer;
        if (!getpeername(fd, (struct sockaddr *)&peer, &nbytes) &&
            (peer.ss_family == AF_INET || peer.ss_family == AF_INET6))
            close(fd);
    }
}

/* From rank 0 to rank 1. */
static void send_one(tuttiComm_t comm, int rank, int *memory)
{
    if (rank == 0 && tuttiSend(memory, 1, tuttiInt32, 1, comm, NULL)) fail(comm, "send");
    if (rank == 1 && tuttiRecv(memory, 1, tuttiInt32, 0, comm, NULL)) fail(comm, "receive");
}

/* Rank 0 has bound bridges, over which no message goes. */
static void make_wrong_group(tuttiComm_t comm, int rank, int *memory, const char *path)
{
    send_one(comm, rank, memory);
    if (rank == 1) send_one(comm, rank, memory);
    if (rank) return await_file(path);
    if (tuttiGroupStart() || tuttiBroadcast(memory, memory, 1, tuttiInt32, 0, comm, NULL) ||
        tuttiSend(memory, 1, tuttiInt32, 0, comm, NULL))
        fail(comm, "a group");
    if (tuttiGroupEnd() != tuttiInvalidUsage) fail(comm, "a wrong group");
    send_one(comm, rank, memory);
}

/* Meanwhile no thread has much to do. */
static void be_late(void)
{
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    usleep(LATE_US);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const long used_us =
        (after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000;
    if (used_us > LATE_US / 8) fail(NULL, "a rank that has nothing to do computes");
}

/* An all-reduce of ones, and each rank sends the sum to the next one, on one stream. Another stream
 * waits for this thread meanwhile, with work behind that. */
static void call_beside_a_wait(tuttiComm_t comm, int rank, int nranks, int *memory)
{
    static int data[COUNT];
    const size_t nbytes = sizeof data;
    int *sums = (int *)gpu_memory(0, nbytes), *received = (int *)gpu_memory(0, nbytes);
    int *filled = (int *)gpu_memory(0, nbytes);
    void *held = gpu_stream(0), *cuda = gpu_stream(0);
    tuttiStream_t stream;
    for (int i = 0; i < COUNT; i++) data[i] = 1;
    gpu_write(0, memory, data, nbytes);
    if (tuttiStreamFromDevice(&stream, 0, cuda)) fail(comm, "a stream");
    gpu_block(0, held);
    gpu_fill(0, held, filled, 7, COUNT);
    if (tuttiAllReduce(memory, sums, COUNT, tuttiInt32, tuttiSum, comm, stream) ||
        tuttiGroupStart() ||
        tuttiSend(sums, COUNT, tuttiInt32, (rank + 1) % nranks, comm, stream) ||
        tuttiRecv(received, COUNT, tuttiInt32, (rank + nranks - 1) % nranks, comm, stream) ||
        tuttiGroupEnd())
        fail(comm, "calls");
    gpu_unblock();
    if (tuttiStreamSynchronize(stream) || tuttiStreamDestroy(stream)) fail(comm, "the stream");
    gpu_read(0, data, received, nbytes);
    for (int i = 0; i < COUNT; i++)
        if (data[i] != nranks) fail(NULL, "a wrong sum");
}

static void print_line(void *arg, const char *line)
{
    (void)arg;
    puts(line);
}

int main(int argc, char **argv)
{
    int rank, nranks, local;
    tuttiComm_t comm;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    if (argc < 2 || tuttiGetLauncher(&rank, &nranks, &local)) fail(NULL, "launcher");
    const char *scene = argv[1], *path = argc > 2 ? argv[2] : NULL;
    const bool ends = !strcmp(scene, "ends");
    config.device = 0;
    if (tuttiCommInitEnv(&comm, NULL, &config)) fail(NULL, "init");
    if (!strcmp(scene, "bytes")) {
        count_sent(comm, rank, nranks, count_of(path));
        return tuttiCommDestroy(comm) ? 2 : 0;
    }
    if (!strncmp(scene, "other", strlen("other"))) {
        disagree(comm, rank, scene + strlen("other"), count_of(path));
        (void)tuttiCommDestroy(comm); /* says that it has failed */
        return 0;
    }
    int *memory = (int *)gpu_memory(0, COUNT * sizeof(int));
    if (!strcmp(scene, "held")) {
        call_beside_a_wait(comm, rank, nranks, memory);
        return tuttiCommDestroy(comm) ? 2 : 0;
    }
    if (!strcmp(scene, "wrong")) {
        make_wrong_group(comm, rank, memory, path);
        if (tuttiCommDestroy(comm)) fail(NULL, "the end");
        if (!rank) make_file(path);
        return 0;
    }
    for (int root = 0; root < nranks; root++) broadcast(comm, 0, rank, root, memory);
    if (tuttiBarrier(comm, NULL)) fail(comm, "barrier");
    if (!rank && tuttiDescribe(tuttiDescribeLinks, comm, print_line, NULL))
        fail(comm, "description");
    fflush(stdout);
    if (!strcmp(scene, "part")) {
        reduce(comm, rank, nranks, memory);
        if (!rank) _exit(0);
        return tuttiCommDestroy(comm) ? 2 : 0;
    }
    if (rank == nranks - 1) be_late();
    if (!strncmp(scene, "close", strlen("close")) && rank == atoi(scene + strlen("close")))
        close_connections();
    broadcast(comm, 0, rank, 0, memory);
    if (ends && rank == 1) usleep(BEFORE_US);
    if (!strcmp(scene, "exit") && rank == 0) return 0;
    if (path && rank == 0) await_file(path);
    if (!strcmp(scene, "abort") && rank == 0 ? tuttiCommAbort(comm) : tuttiCommDestroy(comm))
        fail(NULL, "the end");
    if (path && rank == 1) make_file(path);
    return 0;
}
