/* Ranks whose death shows in another way: the process goes on as another program, or a second one
 * ends because of it. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"
#include "shim.h"

static const char *const no_deadline[] = {"TUTTI_TIMEOUT_MS=0", "TUTTI_INIT_TIMEOUT_MS=60000",
                                          NULL};
static struct job job;

static bool start(const char *hosts, const char *how)
{
    const char *const args[] = {"dying", how, NULL};
    return job_start_on(&job, hosts, args, no_deadline) && job_ready(&job, 60000);
}

static bool ends(int rank)
{
    struct pollfd end = {.fd = job.ranks[rank].pidfd, .events = POLLIN};
    return poll(&end, 1, 60000) == 1;
}

/* The error of `rank` names rank `dead` with its pid, and, if at all, rank `later` behind it. */
static void check_names(int rank, int dead, int later)
{
    const struct job_rank *one = &job.ranks[rank];
    char name[64], other[64];
    snprintf(name, sizeof name, "rank %d (host", dead);
    snprintf(other, sizeof other, "rank %d (host", later);
    const char *error = strstr(one->text, "ERROR "), *named = error ? strstr(error, name) : NULL;
    const char *second = error ? strstr(error, other) : NULL;
    snprintf(name, sizeof name, "pid %d)", (int)job.ranks[dead].pid);
    CHECK_MESSAGE(WIFEXITED(one->status) && WEXITSTATUS(one->status) == 3 && named &&
                      strstr(named, name) && (!second || second > named),
                  "rank %d: status 0x%x; rank %d (%s) has died; it said:\n%s", rank,
                  (unsigned)one->status, dead, name, one->text);
}

TEST(dead, a_rank_that_has_become_another_program_is_named)
{
    REQUIRE(start("aaa", "exec"));
    CHECK_MESSAGE(ends(0) && ends(2), "ranks wait for a process that is another program");
    kill(job.ranks[1].pid, SIGKILL);
    CHECK_MESSAGE(job_wait(&job, 30000), "some rank did not end");
    check_names(0, 1, 2);
    check_names(2, 1, 0);
    CHECK_MESSAGE(strstr(job.ranks[0].text, "(exec)"), "rank 0 said:\n%s", job.ranks[0].text);
}

TEST(dead, the_rank_that_died_first_is_named_before_one_that_ended_because_of_that)
{
    REQUIRE(start("aaa", "cascade"));
    CHECK_MESSAGE(job_wait(&job, 60000), "some rank did not end");
    check_names(0, 2, 1);
}
