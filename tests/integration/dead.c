/* Ranks that die unnoticed by those that wait: because these wait for another rank, because the
 * process goes on as another program, or because a second one ends. None that lives, or was done,
 * is taken for dead. */
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

/* Rank 0 lives and makes no call. The last rank is killed. */
static void check_idle(const char *hosts, const char *how)
{
    const int last = (int)strlen(hosts) - 1;
    REQUIRE(start(hosts, how));
    usleep(500000); /* the others wait in their call, most likely */
    REQUIRE(kill(job.ranks[last].pid, SIGKILL) == 0);
    for (int r = 1; r < last; r++)
        CHECK_MESSAGE(ends(r), "%s %s: rank %d waits for ever", hosts, how, r);
    kill(job.ranks[0].pid, SIGKILL);
    CHECK_MESSAGE(job_wait(&job, 30000), "%s %s: some rank did not end", hosts, how);
    for (int r = 1; r < last; r++) check_names(r, last, 0);
}

TEST(dead, a_rank_of_another_host_is_named_while_the_one_that_is_waited_for_makes_no_call)
{
    check_idle("abc", "idle");
}

TEST(dead, a_rank_of_the_host_of_the_one_that_makes_no_call_is_named)
{
    check_idle("aba", "idle");
}

TEST(dead, a_rank_is_named_with_which_nobody_has_had_a_connection)
{
    check_idle("abc", "cold");
}

TEST(dead, a_rank_that_dies_in_the_call_of_those_that_wait_for_one_that_makes_none_is_named)
{
    static const char *const hosts[] = {"abc", "aab", "aba", "abcd"};
    for (int i = 0; i < 4; i++) check_idle(hosts[i], "inside");
}

TEST(dead, a_rank_that_dies_in_the_first_call_while_another_one_makes_none_is_named)
{
    check_idle("abc", "first");
    check_idle("aba", "first");
}

static void check_right(const char *hosts, const char *how, int continues)
{
    REQUIRE(start(hosts, how));
    if (continues >= 0) {
        sleep(8); /* the time after which ranks that are gone are sought, and more */
        REQUIRE(kill(job.ranks[continues].pid, SIGCONT) == 0);
    }
    CHECK_MESSAGE(job_wait(&job, 60000), "%s %s: some rank did not end", hosts, how);
    job_check_exit(&job, 0);
}

TEST(dead, ranks_that_are_late_are_not_taken_for_dead)
{
    check_right("abc", "late", -1);
}

TEST(dead, a_rank_that_has_ended_after_its_part_of_a_reduction_is_not_missed)
{
    check_right("abc", "root", -1);
}

TEST(dead, a_rank_that_has_ended_after_its_part_is_not_missed_while_another_one_is_stopped)
{
    check_right("abc", "stopped", 0);
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
