/* Ranks that die while others wait for living ones. */
#include "dying.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LATE_S = 8, BLOCK = 4096, MOST = 8 };

static int rank, nranks;

static void say_ready(void)
{
    puts("ready");
    fflush(stdout);
}

static const char *sum_ranks(tuttiComm_t comm, tuttiResult_t *result)
{
    int value = rank + 1, sum = 0;
    *result = tuttiAllReduce(&value, &sum, 1, tuttiInt32, tuttiSum, comm, NULL);
    return *result == tuttiSuccess && sum != nranks * (nranks + 1) / 2 ? "a wrong sum" : NULL;
}

/* inside: the last rank makes the call, too. */
static const char *wait_for_idle(tuttiComm_t comm, bool warm, bool inside, tuttiResult_t *result)
{
    if (warm && sum_ranks(comm, result)) return "a wrong sum before";
    if (warm && *result != tuttiSuccess) return "the call before has failed";
    say_ready();
    if (rank == 0 || (rank == nranks - 1 && !inside))
        for (;;) pause();
    return sum_ranks(comm, result);
}

static const char *come_late(tuttiComm_t comm, tuttiResult_t *result)
{
    if (sum_ranks(comm, result) || *result != tuttiSuccess) return "the call before went wrong";
    say_ready();
    if (rank == 0 || rank == nranks - 1) sleep(LATE_S);
    return sum_ranks(comm, result);
}

static const char *reduce_to_one(tuttiComm_t comm, tuttiResult_t *result)
{
    int value = rank + 1, sum = 0;
    if (sum_ranks(comm, result) || *result != tuttiSuccess) return "the call before went wrong";
    say_ready();
    if (rank == 0) sleep(LATE_S);
    *result = tuttiReduce(&value, &sum, 1, tuttiInt32, tuttiSum, 1, comm, NULL);
    if (rank == nranks - 1) _exit(*result == tuttiSuccess ? 0 : 1);
    if (rank != 1 || *result != tuttiSuccess) return NULL;
    return sum == nranks * (nranks + 1) / 2 ? NULL : "a wrong sum";
}

/* ---- A rank that stops in the middle of a call ---------------------------------------------- */

static char *input;

static void on_hole(int number)
{
    (void)number;
    raise(SIGSTOP);
    mprotect(input, (size_t)nranks * BLOCK, PROT_READ | PROT_WRITE);
}

/* Rank 0 stops when it reads its block for the last rank, after it has sent that for rank 1. */
static const char *stop_in_the_middle(tuttiComm_t comm, tuttiResult_t *result)
{
    static char output[MOST * BLOCK];
    struct sigaction action = {.sa_handler = on_hole};
    const size_t nbytes = (size_t)nranks * BLOCK;
    input = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (input == MAP_FAILED || nranks > MOST) return "no memory";
    memset(input, rank + 1, nbytes);
    if (tuttiCommSetAlgorithm(comm, tuttiCollAllToAll, "direct")) return "no such algorithm";
    if (tuttiAlltoAll(input, output, BLOCK, tuttiInt8, comm, NULL)) return "the first call failed";
    if (tuttiBarrier(comm, NULL)) return "the ranks did not meet";
    memset(output, 0, sizeof output);
    if (rank == 0 && (sigaction(SIGSEGV, &action, NULL) ||
                      mprotect(input + (size_t)(nranks - 1) * BLOCK, BLOCK, PROT_NONE)))
        return "no page could be made unreadable";
    if (rank != 1) say_ready();
    *result = tuttiAlltoAll(input, output, BLOCK, tuttiInt8, comm, NULL);
    if (rank == 1) {
        say_ready(); /* it is done, though rank 0 is not */
        _exit(*result == tuttiSuccess ? 0 : 1);
    }
    for (int r = 0; *result == tuttiSuccess && r < nranks; r++)
        if (output[r * BLOCK] != r + 1 || output[(r + 1) * BLOCK - 1] != r + 1)
            return "a wrong block";
    return NULL;
}

/* ---- On one host ---------------------------------------------------------------------------- */

static const char *become_another(tuttiComm_t comm, tuttiResult_t *result)
{
    if (sum_ranks(comm, result) || *result != tuttiSuccess) return "the call before went wrong";
    say_ready();
    if (rank == 1) execl("/bin/sleep", "sleep", "1000", (char *)NULL);
    return rank == 1 ? "exec failed" : sum_ranks(comm, result);
}

static bool has_ended(int pidfd)
{
    struct pollfd end = {.fd = pidfd, .events = POLLIN};
    return poll(&end, 1, 30000) == 1;
}

static const char *hear_elsewhere(tuttiComm_t comm, tuttiResult_t *result)
{
    tuttiComm_t part;
    int own = (int)getpid(), pids[MOST];
    if (nranks > MOST || tuttiAllGather(&own, pids, 1, tuttiInt32, comm, NULL))
        return "the ranks did not meet";
    const int pidfd = rank == 1 ? -1 : (int)syscall(SYS_pidfd_open, pids[1], 0);
    if (tuttiCommSplit(comm, 0, rank, &part, NULL)) return "no part";
    say_ready();
    if (rank == nranks - 1) raise(SIGKILL);
    if (rank == 1) {
        *result = tuttiBarrier(part, NULL);
        _exit(*result == tuttiSuccess ? 0 : 1);
    }
    if (!has_ended(pidfd)) return "rank 1 has not ended";
    close(pidfd);
    return sum_ranks(comm, result);
}

const char *dying(tuttiComm_t comm, const char *how, tuttiResult_t *result)
{
    if (tuttiCommUserRank(comm, &rank) || tuttiCommCount(comm, &nranks)) return "no rank";
    if (!strcmp(how, "idle")) return wait_for_idle(comm, true, false, result);
    if (!strcmp(how, "cold")) return wait_for_idle(comm, false, false, result);
    if (!strcmp(how, "inside")) return wait_for_idle(comm, true, true, result);
    if (!strcmp(how, "first")) return wait_for_idle(comm, false, true, result);
    if (!strcmp(how, "late")) return come_late(comm, result);
    if (!strcmp(how, "root")) return reduce_to_one(comm, result);
    if (!strcmp(how, "stopped")) return stop_in_the_middle(comm, result);
    if (!strcmp(how, "exec")) return become_another(comm, result);
    if (!strcmp(how, "cascade")) return hear_elsewhere(comm, result);
    return "no such way to die";
}
