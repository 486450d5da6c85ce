/* Ranks that die while others wait for living ones. */
#include "dying.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 8 };

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
    if (!strcmp(how, "exec")) return become_another(comm, result);
    if (!strcmp(how, "cascade")) return hear_elsewhere(comm, result);
    return "no such way to die";
}
