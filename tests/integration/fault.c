/* kill -9 of one rank: the others end soon, say who died, and nothing is left behind. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ranks.h"
#include "shim.h"

enum { NRANKS = 4, NRUNS = SANITIZED ? 4 : 20, LIMIT_MS = SANITIZED ? 10000 : 2000 };

static int entries(const char *path)
{
    int n = 0;
    DIR *dir = opendir(path);
    if (!dir) return 0;
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

static void check_survivor(const struct job *job, int rank, int dead, int64_t killed_ms)
{
    const struct job_rank *survivor = &job->ranks[rank];
    char name[16], pid[24];
    snprintf(name, sizeof name, "rank %d", dead);
    snprintf(pid, sizeof pid, "%d", (int)job->ranks[dead].pid);
    CHECK_MESSAGE(WIFEXITED(survivor->status) && WEXITSTATUS(survivor->status) == 3,
                  "rank %d: status 0x%x after rank %d was killed; it said:\n%s", rank,
                  (unsigned)survivor->status, dead, survivor->text);
    CHECK_MESSAGE(survivor->ended_ms - killed_ms <= LIMIT_MS,
                  "rank %d ended %lld ms after rank %d was killed", rank,
                  (long long)(survivor->ended_ms - killed_ms), dead);
    const char *error = strstr(survivor->text, "ERROR ");
    /* In a part of the communicator the rank has another number. */
    const bool of_part = error && (!strncmp(error, "ERROR of a part", strlen("ERROR of a part")) ||
                                   strstr(error, "as numbered there"));
    CHECK_MESSAGE(error && (of_part || strstr(error, name)) && strstr(error, pid),
                  "rank %d's error does not name %s (pid %s):\n%s", rank, name, pid,
                  survivor->text);
}

static const char *const looping[] = {"loop", NULL};

static void one_run(uint64_t *state, const char *hosts, const char *const *args,
                    const char *setting)
{
    static struct job job;
    const int dead = random_below(state, NRANKS);
    const struct timespec delay = {.tv_nsec = random_below(state, 20000000)};
    const char *const extra[] = {"TUTTI_TIMEOUT_MS=60000", "TUTTI_INIT_TIMEOUT_MS=60000", setting,
                                 NULL};
    REQUIRE(job_start_on(&job, hosts, args, extra));
    CHECK_MESSAGE(job_ready(&job, 60000), "not every rank came to loop");
    nanosleep(&delay, NULL); /* so that death comes anywhere in the loop */
    const int64_t killed_ms = now_ms();
    REQUIRE(kill(job.ranks[dead].pid, SIGKILL) == 0);
    CHECK_MESSAGE(job_wait(&job, 30000), "some rank did not end after rank %d was killed", dead);
    for (int r = 0; r < NRANKS; r++)
        if (r != dead) check_survivor(&job, r, dead, killed_ms);
}

TEST(fault, a_killed_rank_ends_the_others_soon_with_its_name)
{
    uint64_t state = test_seed();
    char directory[] = "/tmp/tutti-fault-XXXXXX";
    REQUIRE(mkdtemp(directory));
    setenv("TMPDIR", directory, 1);
    const int shared = entries("/dev/shm"), fds = count_fds();
    for (int i = 0; i < NRUNS && !tt_test_failed(); i++) one_run(&state, "aaaa", looping, NULL);
    CHECK_EQ(entries("/dev/shm"), shared);
    CHECK_EQ(entries(directory), 2); /* "." and ".." */
    CHECK(count_fds() <= fds);       /* a root of an earlier test may have closed meanwhile */
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    unsetenv("TMPDIR");
    rmdir(directory);
}

TEST(fault, a_killed_rank_ends_those_on_other_hosts_with_its_name)
{
    static const char *const layouts[] = {"aabb", "abcc", "aaab", "abcd"};
    uint64_t state = test_seed();
    for (int i = 0; i < NRUNS && !tt_test_failed(); i++)
        one_run(&state, layouts[i % 4], looping, NULL);
}

/* Few ranks are connected when one is killed, and a part of the communicator fails before it. */
TEST(fault, a_killed_rank_is_named_also_where_the_others_destroy_communicators_that_have_not_failed)
{
    static const char *const layouts[] = {"abcd", "aabb", "abac"};
    static const char *const splitting[] = {"loop_split", NULL};
    uint64_t state = test_seed();
    for (int i = 0; i < 3 * NRUNS && !tt_test_failed(); i++)
        one_run(&state, layouts[i % 3], splitting, "TUTTI_NET_TIMEOUT_MS=2000");
}

TEST(fault, a_killed_rank_whose_child_lives_on_ends_those_on_other_hosts_with_its_name)
{
    uint64_t state = test_seed();
    int ends[2];
    char number[12];
    REQUIRE(pipe(ends) == 0 && fcntl(ends[1], F_SETFD, FD_CLOEXEC) == 0);
    snprintf(number, sizeof number, "%d", ends[0]);
    const char *const args[] = {"loop_with_child", number, NULL};
    one_run(&state, "abcd", args, NULL);
    if (!tt_test_failed()) one_run(&state, "aabb", args, NULL);
    close(ends[0]);
    close(ends[1]); /* the children end */
}

TEST(fault, a_rank_killed_during_init_ends_the_others_within_the_deadline)
{
    static struct job job;
    const char *const extra[] = {"TUTTI_INIT_TIMEOUT_MS=1500", NULL};
    REQUIRE(job_start(&job, NRANKS, (const char *const[]){"loop", NULL}, extra, NULL));
    REQUIRE(kill(job.ranks[2].pid, SIGKILL) == 0);
    CHECK_MESSAGE(job_wait(&job, 30000), "some rank did not end");
    for (int r = 0; r < NRANKS; r++)
        CHECK_MESSAGE(
            r == 2 || (WIFEXITED(job.ranks[r].status) && strstr(job.ranks[r].text, "ERROR ")),
            "rank %d: status 0x%x\n%s", r, (unsigned)job.ranks[r].status, job.ranks[r].text);
}

/* ---- In the middle of a copy to another rank's buffer -----------------------------------------
 */

enum { NSTUCK = 3, WRITER = 1 };

/* Two ranks: in an express call, also on one core (stuck.c). */
static bool start_some_stuck(struct job *job, int nranks, const char *how, const char *timeout)
{
    const char *const args[] = {"stuck", how, NULL};
    const char *const extra[] = {timeout, nranks == 2 ? "TUTTI_WAIT=spin" : NULL, NULL};
    return job_start(job, nranks, args, extra, NULL) && job_ready(job, 30000);
}

static bool start_stuck(struct job *job, const char *how, const char *timeout)
{
    return start_some_stuck(job, NSTUCK, how, timeout);
}

static bool has_stopped(pid_t pid)
{
    siginfo_t info = {.si_pid = 0};
    return waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOWAIT) == 0 && info.si_pid == pid;
}

static bool ends_within(const struct job *job, int rank, int timeout_ms)
{
    struct pollfd end = {.fd = job->ranks[rank].pidfd, .events = POLLIN};
    return poll(&end, 1, timeout_ms) == 1;
}

static void check_says(const struct job *job, int rank, const char *text, bool still)
{
    const struct job_rank *one = &job->ranks[rank];
    const char *error = strstr(one->text, "ERROR ");
    CHECK_MESSAGE(WIFEXITED(one->status) && WEXITSTATUS(one->status) == 3 && error &&
                      strstr(error, text) && (strstr(error, "may still do so") != NULL) == still,
                  "rank %d: status 0x%x; it said:\n%s", rank, (unsigned)one->status, one->text);
}

TEST(fault, a_rank_killed_while_it_writes_to_others_does_not_hold_them_up)
{
    static struct job job;
    REQUIRE(start_stuck(&job, "die", "TUTTI_TIMEOUT_MS=60000"));
    CHECK_MESSAGE(job_wait(&job, 30000), "some rank waits for the dead");
    CHECK(WIFSIGNALED(job.ranks[WRITER].status));
    check_says(&job, 0, "has died", false);
    check_says(&job, 2, "has died", false);
}

TEST(fault, a_rank_killed_while_it_writes_in_an_express_call_does_not_hold_up_the_other)
{
    static struct job job;
    REQUIRE(start_some_stuck(&job, 2, "die", "TUTTI_TIMEOUT_MS=60000"));
    CHECK_MESSAGE(job_wait(&job, 30000), "rank 0 waits for the dead");
    CHECK(WIFSIGNALED(job.ranks[WRITER].status));
    check_says(&job, 0, "has died", false);
}

TEST(fault, a_rank_stopped_while_it_writes_in_an_express_call_is_named_as_one_that_may_still_write)
{
    static struct job job;
    REQUIRE(start_some_stuck(&job, 2, "stop", "TUTTI_TIMEOUT_MS=1000"));
    REQUIRE(has_stopped(job.ranks[WRITER].pid));
    CHECK(ends_within(&job, 0, 30000));
    REQUIRE(kill(job.ranks[WRITER].pid, SIGKILL) == 0);
    CHECK_MESSAGE(job_wait(&job, 30000), "some rank did not end");
    check_says(&job, 0, "rank 1 ", true);
}

TEST(fault, a_rank_stopped_while_it_writes_to_others_is_named_as_one_that_may_still_write)
{
    static struct job job;
    REQUIRE(start_stuck(&job, "stop", "TUTTI_TIMEOUT_MS=1000"));
    REQUIRE(has_stopped(job.ranks[WRITER].pid));
    CHECK(ends_within(&job, 0, 30000) && ends_within(&job, 2, 30000));
    REQUIRE(kill(job.ranks[WRITER].pid, SIGKILL) == 0);
    CHECK_MESSAGE(job_wait(&job, 30000), "some rank did not end");
    check_says(&job, 0, "rank 1 ", true);
    check_says(&job, 2, "rank 1 ", true);
}

TEST(fault, a_call_without_a_deadline_that_fails_does_not_wait_for_ever_for_a_rank_that_writes)
{
    static struct job job;
    REQUIRE(start_stuck(&job, "stop", "TUTTI_TIMEOUT_MS=0"));
    const int64_t deadline = now_ms() + 30000;
    while (!has_stopped(job.ranks[WRITER].pid) && now_ms() < deadline) tt_test_pause();
    REQUIRE(kill(job.ranks[2].pid, SIGKILL) == 0);
    CHECK(ends_within(&job, 0, 60000));
    REQUIRE(kill(job.ranks[WRITER].pid, SIGKILL) == 0);
    CHECK_MESSAGE(job_wait(&job, 30000), "some rank did not end");
    check_says(&job, 0, "rank 1 ", true);
    check_says(&job, 0, "10 s after the failure", true);
}

TEST(fault, a_call_that_fails_waits_for_a_rank_that_writes_to_its_buffer)
{
    static struct job job;
    REQUIRE(start_stuck(&job, "wait", "TUTTI_TIMEOUT_MS=60000"));
    REQUIRE(has_stopped(job.ranks[WRITER].pid));
    REQUIRE(kill(job.ranks[2].pid, SIGKILL) == 0);
    CHECK_MESSAGE(!ends_within(&job, 0, 300), "rank 0 ended while rank 1 was writing");
    REQUIRE(kill(job.ranks[WRITER].pid, SIGCONT) == 0);
    CHECK_MESSAGE(job_wait(&job, 30000), "some rank did not end");
    check_says(&job, 0, "has died", false);
    check_says(&job, WRITER, "has died", false);
}

TEST(fault, an_abort_ends_a_destroy_that_waits_for_a_stopped_rank_of_another_host)
{
    static struct job job;
    const char *const extra[] = {"TUTTI_NET_TIMEOUT_MS=600000", NULL};
    REQUIRE(job_start_on(&job, "ab", (const char *const[]){"abort_destroyed", NULL}, extra));
    CHECK_MESSAGE(ends_within(&job, 0, 60000), "rank 0 did not end");
    kill(job.ranks[1].pid, SIGKILL);
    CHECK_MESSAGE(job_wait(&job, 30000), "rank 1 did not end");
    CHECK_MESSAGE(job.ranks[0].status == 0, "rank 0: status 0x%x; it said:\n%s",
                  (unsigned)job.ranks[0].status, job.ranks[0].text);
}
