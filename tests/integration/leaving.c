/* Ranks that abort, end or stop while others still need them, or not. */
#include "leaving.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ranks.h"

/* EXPLAIN_MS: so long others may say why a rank has left that has not aborted. */
enum { MOST_COUNT = 100000, SOON_MS = SANITIZED ? 5000 : 1000, EXPLAIN_MS = 1000 };

static char text[1024];

static int64_t ms_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static const char *wrong(tuttiComm_t comm, const char *what)
{
    snprintf(text, sizeof text, "%s: %s", what, tuttiGetLastError(comm));
    return text;
}

static const char *reduce(tuttiComm_t comm, int *data, int count)
{
    int rank, nranks;
    tuttiCommCount(comm, &nranks);
    tuttiCommUserRank(comm, &rank);
    for (int i = 0; i < count; i++) data[i] = rank + 1;
    if (tuttiAllReduce(data, data, (size_t)count, tuttiInt32, tuttiSum, comm, NULL))
        return wrong(comm, "all-reduce");
    for (int i = 0; i < count; i++)
        if (data[i] != nranks * (nranks + 1) / 2) return "a wrong sum";
    return NULL;
}

const char *abort_done(tuttiComm_t comm, int rounds)
{
    static const int counts[] = {2, 3000, MOST_COUNT};
    int *data = malloc(MOST_COUNT * sizeof *data);
    const char *what = NULL;
    for (int i = 0; data && i < rounds && !what; i++) {
        tuttiComm_t part = NULL;
        if (tuttiCommSplit(comm, 0, 0, &part, NULL)) return wrong(comm, "split");
        what = reduce(part, data, counts[i % 3]);
        if (tuttiCommAbort(part) && !what) what = wrong(NULL, "abort");
    }
    free(data);
    return what;
}

/* how: 0, alone; 1, in a group; 2, in a group that also has a call of the parent; 3, rank 0 gets no
 * communicator. */
static tuttiResult_t split_once_more(tuttiComm_t parent, int how, tuttiComm_t *child)
{
    int rank, data = 1;
    tuttiCommUserRank(parent, &rank);
    const int color = how == 3 && rank == 0 ? TUTTI_SPLIT_NOCOLOR : 0;
    if (how == 0 || how == 3) return tuttiCommSplit(parent, color, 0, child, NULL);
    (void)tuttiGroupStart();
    (void)tuttiCommSplit(parent, color, 0, child, NULL);
    if (how == 2) (void)tuttiAllReduce(&data, &data, 1, tuttiInt32, tuttiSum, parent, NULL);
    return tuttiGroupEnd();
}

const char *abort_parent(tuttiComm_t comm, int rounds)
{
    int data[2];
    const char *what = NULL;
    for (int i = 0; i < rounds && !what; i++) {
        tuttiComm_t part = NULL, child = NULL;
        if (tuttiCommSplit(comm, 0, 0, &part, NULL)) return wrong(comm, "split");
        if (split_once_more(part, i % 4, &child)) what = wrong(part, "split of the split");
        if (tuttiCommAbort(part) && !what) what = wrong(NULL, "abort");
        if (!what && child) what = reduce(child, data, 2);
        if (tuttiCommDestroy(child) && !what) what = wrong(NULL, "destroy");
    }
    return what;
}

/* Until the process has ended. */
static bool await_end(pid_t pid)
{
    const int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    const bool ended = fd < 0 || poll(&poll_fd, 1, 30000) == 1;
    if (fd >= 0) close(fd);
    return ended;
}

static bool has_async(tuttiComm_t comm, tuttiResult_t expected)
{
    tuttiResult_t result = tuttiNumResults;
    return tuttiCommGetAsyncError(comm, &result) == tuttiSuccess && result == expected;
}

static tuttiResult_t exchange(tuttiComm_t comm, int rank)
{
    int mine = rank, theirs = -1;
    tuttiGroupStart();
    tuttiSend(&mine, 1, tuttiInt32, 1 - rank, comm, NULL);
    tuttiRecv(&theirs, 1, tuttiInt32, 1 - rank, comm, NULL);
    return tuttiGroupEnd();
}

static _Noreturn void go(tuttiComm_t comm, const char *how)
{
    if (!strcmp(how, "vanishes")) _exit(0);
    if (!strcmp(how, "aborts")) tuttiCommAbort(comm);
    exit(0);
}

/* Rank 1 waits for the last rank, when rank 0 has done all that does not: the communicator
 * then fails for both. */
static const char *need(tuttiComm_t comm, int rank, int last, const char *how)
{
    char name[24];
    int token = 0;
    const int64_t began_ms = ms_now();
    const int64_t most_ms = strcmp(how, "exits") ? SOON_MS : SOON_MS + EXPLAIN_MS;
    if (rank == 0) {
        (void)tuttiSend(&token, 1, tuttiInt32, 1, comm, NULL);
        while (has_async(comm, tuttiSuccess) && ms_now() - began_ms < 30000) continue;
    } else {
        if (tuttiRecv(&token, 1, tuttiInt32, 0, comm, NULL)) return wrong(comm, "the token");
        if (tuttiRecv(&token, 1, tuttiInt32, last, comm, NULL) != tuttiRemoteError)
            return wrong(comm, "no remote error");
    }
    const char *error = tuttiGetLastError(comm);
    if (!has_async(comm, tuttiRemoteError)) return "no async error";
    if (rank && ms_now() - began_ms > most_ms) return wrong(comm, "a late error");
    snprintf(name, sizeof name, "rank %d", last);
    if (!strstr(error, name)) return wrong(comm, "the rank is not named");
    if (strstr(error, "destroyed")) return wrong(comm, "the rank has destroyed nothing");
    if (strstr(error, "has left") && !strstr(error, "its process exited without destroying"))
        return wrong(comm, "how the rank has left is not said");
    return strcmp(how, "aborts") || strstr(error, "aborted") ? NULL : wrong(comm, "no abort");
}

/* By ranks 0 and 1. */
static const char *do_without(tuttiComm_t comm, int rank)
{
    for (int i = 0; i < 100; i++) {
        if (!has_async(comm, tuttiSuccess)) return wrong(comm, "an early error");
        if (exchange(comm, rank)) return wrong(comm, "an exchange of the others");
    }
    return NULL;
}

const char *gone(tuttiComm_t comm, const char *how)
{
    pid_t pids[MAX_JOB], own = getpid();
    int rank, nranks;
    tuttiCommCount(comm, &nranks);
    tuttiCommUserRank(comm, &rank);
    if (tuttiAllGather(&own, pids, sizeof own, tuttiUint8, comm, NULL))
        return wrong(comm, "all-gather");
    if (tuttiBarrier(comm, NULL)) return wrong(comm, "barrier");
    if (rank == nranks - 1) go(comm, how);
    if (!await_end(pids[nranks - 1])) return "the last rank did not end";
    const char *what = do_without(comm, rank);
    if (!what) what = need(comm, rank, nranks - 1, how);
    if (tuttiCommDestroy(comm) && !what) what = wrong(NULL, "destroy");
    return what;
}

static void sleep_ms(void *ms)
{
    usleep(1000 * (useconds_t) * (const int *)ms);
}

const char *behind(tuttiComm_t comm)
{
    static int ms = 500;
    int rank, nranks, first = 1, second = 2;
    tuttiStream_t stream;
    tuttiCommCount(comm, &nranks);
    tuttiCommUserRank(comm, &rank);
    if (tuttiStreamCreate(&stream)) return wrong(NULL, "stream");
    if (!rank && tuttiStreamLaunch(stream, sleep_ms, &ms)) return wrong(NULL, "function");
    if (tuttiAllReduce(&first, &first, 1, tuttiInt32, tuttiSum, comm, stream) ||
        tuttiAllReduce(&second, &second, 1, tuttiInt32, tuttiSum, comm, NULL))
        return wrong(comm, "all-reduce");
    if (tuttiStreamDestroy(stream)) return wrong(NULL, "destroy of the stream");
    return first == nranks && second == 2 * nranks ? NULL : "a wrong sum";
}

const char *late(tuttiComm_t comm, const char *how)
{
    int rank, nranks, data = 1;
    tuttiStream_t stream = NULL;
    tuttiCommCount(comm, &nranks);
    tuttiCommUserRank(comm, &rank);
    if (tuttiBarrier(comm, NULL)) return wrong(comm, "barrier");
    if (rank == nranks - 1) raise(SIGSTOP);
    if (strcmp(how, "caller") && tuttiStreamCreate(&stream)) return wrong(NULL, "stream");
    if (tuttiAllReduce(&data, &data, 1, tuttiInt32, tuttiSum, comm, stream))
        return wrong(comm, "all-reduce");
    if (!strcmp(how, "both") && tuttiBarrier(comm, NULL)) return wrong(comm, "second call");
    if (stream && tuttiStreamSynchronize(stream)) return wrong(comm, "synchronize");
    if (tuttiStreamDestroy(stream)) return wrong(NULL, "destroy of the stream");
    return data == nranks ? NULL : "a wrong sum";
}
