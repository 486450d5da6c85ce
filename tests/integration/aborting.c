/* A rank that aborts: while the other one waits for it, when that has not read yet what the rank
 * sent, or after a thread of the rank was cancelled in a call. */
#include "aborting.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NBYTES = 2 << 20, ROUNDS = 10 };
/* So long an abort may wait for a peer that reads nothing, without a loss; longer than a second. */
enum { LATE_S = 2 };

static char text[1024];

static const char *wrong(tuttiComm_t comm, const char *what)
{
    snprintf(text, sizeof text, "%s: %s", what, tuttiGetLastError(comm));
    return text;
}

static tuttiResult_t give(tuttiComm_t comm, int to)
{
    return tuttiSend("", 1, tuttiUint8, to, comm, NULL);
}

static tuttiResult_t take(tuttiComm_t comm, int from)
{
    char token;
    return tuttiRecv(&token, 1, tuttiUint8, from, comm, NULL);
}

static void *abort_it(void *comm)
{
    return (void *)(uintptr_t)tuttiCommAbort(comm);
}

static const char *must_name_the_aborter(tuttiComm_t part, tuttiResult_t result)
{
    const char *error = tuttiGetLastError(part);
    if (result == tuttiRemoteError && strstr(error, "rank 1") && strstr(error, "aborted"))
        return NULL;
    return wrong(part, result ? "not the aborter's fault" : "no error");
}

/* ---- A stream that waits --------------------------------------------------------------------- */

static void block(void *gate)
{
    char token;
    if (read(*(int *)gate, &token, 1) != 1) snprintf(text, sizeof text, "the gate");
}

/* Rank 0 says that it has heard of the abort, then the stream goes on. */
static const char *abort_behind_a_function(tuttiComm_t comm, tuttiComm_t part)
{
    int gate[2], never;
    void *result;
    pthread_t thread;
    tuttiStream_t stream = NULL;
    if (pipe(gate) || tuttiStreamCreate(&stream) || tuttiStreamLaunch(stream, block, gate) ||
        tuttiRecv(&never, 1, tuttiInt32, 0, part, stream) ||
        pthread_create(&thread, NULL, abort_it, part))
        return wrong(part, "the stream");
    const tuttiResult_t heard = take(comm, 0);
    if (write(gate[1], "", 1) != 1) return "the gate";
    pthread_join(thread, &result);
    if (result) return wrong(NULL, "abort");
    if (tuttiStreamSynchronize(stream) != tuttiRemoteError) return "the stream did not fail";
    if (tuttiStreamDestroy(stream)) return "the stream stays";
    return heard ? wrong(comm, "nothing was heard of rank 0") : NULL;
}

static const char *wait_for_the_aborter(tuttiComm_t comm, tuttiComm_t part)
{
    int never;
    const char *what = must_name_the_aborter(part, tuttiRecv(&never, 1, tuttiInt32, 1, part, NULL));
    if (give(comm, 1) && !what) what = wrong(comm, "rank 1 is gone");
    return tuttiCommDestroy(part) && !what ? wrong(NULL, "destroy") : what;
}

/* ---- A peer that has not read ---------------------------------------------------------------- */

/* Rank 0 reads when the abort has returned, or, if that waits for it, late. */
static const char *abort_what_is_unread(tuttiComm_t comm, tuttiComm_t part)
{
    pthread_t thread;
    struct timespec until;
    void *result;
    char *data = malloc(NBYTES);
    memset(data, 1, NBYTES);
    if (tuttiSend(data, NBYTES, tuttiUint8, 0, part, NULL)) return wrong(part, "send");
    free(data);
    if (pthread_create(&thread, NULL, abort_it, part)) return "thread";
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LATE_S;
    const bool ended = pthread_timedjoin_np(thread, &result, &until) == 0;
    if (give(comm, 0)) return wrong(comm, "rank 0 is gone");
    if (!ended) pthread_join(thread, &result);
    return result ? wrong(NULL, "abort") : NULL;
}

static const char *read_late(tuttiComm_t comm, tuttiComm_t part)
{
    char *data = calloc(NBYTES, 1);
    size_t nwrong = 0;
    if (take(comm, 1)) return wrong(comm, "rank 1 is gone");
    if (tuttiRecv(data, NBYTES, tuttiUint8, 1, part, NULL)) return wrong(part, "receive");
    for (size_t i = 0; i < NBYTES; i++) nwrong += data[i] != 1;
    free(data);
    if (tuttiCommDestroy(part)) return wrong(NULL, "destroy");
    return nwrong ? "other bytes than were sent" : NULL;
}

/* ---- Memory that is no more ------------------------------------------------------------------ */

struct sender {
    tuttiComm_t part;
    char *data;
    tuttiResult_t result;
};

static void *send_two(void *argument)
{
    struct sender *sender = argument;
    tuttiGroupStart();
    (void)give(sender->part, 0);
    tuttiSend(sender->data, NBYTES, tuttiUint8, 0, sender->part, NULL);
    sender->result = tuttiGroupEnd();
    return NULL;
}

static const char *abort_and_unmap(tuttiComm_t comm, tuttiComm_t part)
{
    pthread_t thread;
    void *data = mmap(NULL, NBYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sender sender = {.part = part, .data = data};
    memset(sender.data, 1, NBYTES);
    if (pthread_create(&thread, NULL, send_two, &sender)) return "thread";
    if (take(comm, 0)) return wrong(comm, "rank 0 is gone");
    if (tuttiCommAbort(part)) return wrong(NULL, "abort");
    pthread_join(thread, NULL);
    munmap(sender.data, NBYTES);
    if (sender.result != tuttiRemoteError) return "the send did not fail";
    return give(comm, 0) ? wrong(comm, "rank 0 is gone") : NULL;
}

static const char *read_nothing(tuttiComm_t comm, tuttiComm_t part)
{
    char *data = malloc(NBYTES);
    if (take(part, 1)) return wrong(part, "the first message");
    if (give(comm, 1) || take(comm, 1)) return wrong(comm, "rank 1 is gone");
    const char *what =
        must_name_the_aborter(part, tuttiRecv(data, NBYTES, tuttiUint8, 1, part, NULL));
    free(data);
    return tuttiCommDestroy(part) && !what ? wrong(NULL, "destroy") : what;
}

/* ---- A thread that is cancelled -------------------------------------------------------------- */

struct reduction {
    tuttiComm_t part;
    void *memory;
    tuttiResult_t result;
};

/* Long enough that the memory's descriptor is passed to the other rank. */
static void reduce(struct reduction *reduction)
{
    reduction->result = tuttiAllReduce(reduction->memory, reduction->memory, NBYTES, tuttiUint8,
                                       tuttiSum, reduction->part, NULL);
}

static void *reduce_when_cancelled(void *reduction)
{
    pthread_cancel(pthread_self());
    reduce(reduction);
    pthread_testcancel();
    return NULL;
}

/* A lock that is held for good would stop it. */
static bool can_fork(void)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0) _exit(0);
    return waitpid(child, &status, 0) == child && status == 0;
}

static const char *cancel_a_call(tuttiComm_t comm, tuttiComm_t part)
{
    struct reduction reduction = {.part = part};
    pthread_t thread;
    void *ended;
    (void)comm;
    if (tuttiMemAlloc(&reduction.memory, NBYTES)) return wrong(NULL, "memory");
    memset(reduction.memory, 1, NBYTES);
    if (pthread_create(&thread, NULL, reduce_when_cancelled, &reduction)) return "no thread";
    pthread_join(thread, &ended);
    if (ended != PTHREAD_CANCELED || reduction.result) return wrong(part, "the cancelled call");
    if (!can_fork()) return "fork after a cancelled call";
    if (tuttiCommAbort(part)) return wrong(NULL, "abort");
    return tuttiMemFree(reduction.memory) ? wrong(NULL, "the memory's end") : NULL;
}

static void let_the_other_come_first(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static const char *cancel_a_late_call(tuttiComm_t comm, tuttiComm_t part)
{
    let_the_other_come_first();
    return cancel_a_call(comm, part);
}

static const char *reduce_with_the_cancelled(tuttiComm_t comm, tuttiComm_t part)
{
    struct reduction reduction = {.part = part};
    (void)comm;
    if (tuttiMemAlloc(&reduction.memory, NBYTES)) return wrong(NULL, "memory");
    memset(reduction.memory, 1, NBYTES);
    reduce(&reduction);
    const char *what = reduction.result ? wrong(part, "the call") : NULL;
    if (!what && ((char *)reduction.memory)[NBYTES - 1] != 2) what = "the sum";
    if (!what) what = must_name_the_aborter(part, take(part, 1));
    if (tuttiCommDestroy(part) && !what) what = wrong(NULL, "destroy");
    return tuttiMemFree(reduction.memory) && !what ? wrong(NULL, "the memory's end") : what;
}

static const char *reduce_late(tuttiComm_t comm, tuttiComm_t part)
{
    let_the_other_come_first();
    return reduce_with_the_cancelled(comm, part);
}

static void *ask_for_errors(void *part)
{
    tuttiResult_t result;
    for (;;) {
        if (tuttiCommGetAsyncError(part, &result)) return part;
        pthread_testcancel();
    }
}

static const char *cancel_a_watchdog(tuttiComm_t comm, tuttiComm_t part)
{
    pthread_t thread;
    void *ended;
    (void)comm;
    if (pthread_create(&thread, NULL, ask_for_errors, part)) return "no thread";
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    pthread_cancel(thread);
    pthread_join(thread, &ended);
    if (ended != PTHREAD_CANCELED) return wrong(part, "the watchdog");
    if (tuttiBarrier(part, NULL)) return wrong(part, "the call after a cancel");
    return tuttiCommAbort(part) ? wrong(NULL, "abort") : NULL;
}

static const char *wait_for_both(tuttiComm_t comm, tuttiComm_t part)
{
    (void)comm;
    const char *what = tuttiBarrier(part, NULL) ? wrong(part, "the call after a cancel")
                                                : must_name_the_aborter(part, take(part, 1));
    return tuttiCommDestroy(part) && !what ? wrong(NULL, "destroy") : what;
}

/* ---- All ---------------------------------------------------------------------------------------
 */

static const struct way {
    const char *how;
    bool is_connected;
    int rounds;
    const char *(*by[2])(tuttiComm_t comm, tuttiComm_t part);
} ways[] = {
    {"connected", true, 3, {wait_for_the_aborter, abort_behind_a_function}},
    {"unconnected", false, 3, {wait_for_the_aborter, abort_behind_a_function}},
    {"unread", true, 1, {read_late, abort_what_is_unread}},
    {"unmapped", true, ROUNDS, {read_nothing, abort_and_unmap}},
    {"call_cancelled", true, ROUNDS, {reduce_late, cancel_a_call}},
    {"late_call_cancelled", true, ROUNDS, {reduce_with_the_cancelled, cancel_a_late_call}},
    {"watchdog_cancelled", true, ROUNDS, {wait_for_both, cancel_a_watchdog}},
};

const char *aborting(tuttiComm_t comm, const char *how)
{
    const struct way *way = ways;
    int rank;
    while (strcmp(way->how, how)) way++;
    tuttiCommUserRank(comm, &rank);
    const char *what = NULL;
    for (int i = 0; i < way->rounds && !what; i++) {
        tuttiComm_t part = NULL;
        if (tuttiCommSplit(comm, 0, 0, &part, NULL)) return wrong(comm, "split");
        if (way->is_connected && tuttiBarrier(part, NULL)) return wrong(part, "barrier");
        what = way->by[rank](comm, part);
    }
    return what;
}
