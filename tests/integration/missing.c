/* Inits that fail: every rank that ends names the rank that is missing, stopped or unable, whatever
 * the hosts, and ends at once when the cause is known at once. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"
#include "shim.h"

static const char *const layouts[] = {"aaaa", "abcd", "aabb", "abab", "aa", "ab", "aaaabbbb"};
enum { NLAYOUTS = sizeof layouts / sizeof *layouts };

static const char *const init[] = {"init", NULL};

/* In a child that becomes a rank: what distinguishes the one that this test is about. */
static int chosen, stop_us;

static bool is_chosen(void)
{
    const char *rank = getenv("RANK");
    return rank && atoi(rank) == chosen;
}

static void check_all_say(const struct job *job, const char *text)
{
    for (int r = 0; r < job->nranks; r++) {
        const struct job_rank *rank = &job->ranks[r];
        const char *error = strstr(rank->text, "ERROR ");
        if (r == chosen) continue;
        CHECK_MESSAGE(WIFEXITED(rank->status) && WEXITSTATUS(rank->status) == 3 && error &&
                          strstr(error, text),
                      "rank %d of %d (chosen: %d): status 0x%x, and its error has no '%s':\n%s", r,
                      job->nranks, chosen, (unsigned)rank->status, text, rank->text);
    }
}

static struct job jobs[NLAYOUTS];

/* Runs n jobs at once, each on its hosts, in which rank choose(i) of the i-th prepares itself: the
 * root of an init that has failed stays for two seconds, for ranks that come late. */
static void run_all(int n, const char *const *hosts, const char *const *extra,
                    void (*prepare)(void), int (*choose)(int i))
{
    for (int i = 0; i < n; i++) {
        chosen = choose(i);
        REQUIRE(job_start_prepared(&jobs[i], hosts[i], init, extra, prepare));
    }
    for (int i = 0; i < n; i++)
        CHECK_MESSAGE(job_wait(&jobs[i], 20000), "some rank did not end in time");
}

/* The last rank of a layout, or the one before it. */
static int choose_late(int layout)
{
    return (int)strlen(layouts[layout]) - 1 - layout % 2;
}

static int choose_last(int layout)
{
    return (int)strlen(layouts[layout]) - 1;
}

static int choose_same(int i)
{
    return i;
}

static int choose_behind_root(int i)
{
    return i + 1;
}

static void never_come(void)
{
    if (is_chosen()) _exit(0);
}

TEST(missing, a_rank_that_never_comes_is_named_by_all)
{
    const char *const extra[] = {"TUTTI_INIT_TIMEOUT_MS=5000", NULL};
    char text[64];
    run_all(NLAYOUTS, layouts, extra, never_come, choose_late);
    for (int i = 0; i < NLAYOUTS; i++) {
        chosen = choose_late(i);
        if (!chosen) continue; /* nobody knows more than that rank 0 is not there */
        snprintf(text, sizeof text, "rank %d of %zu did not come", chosen, strlen(layouts[i]));
        check_all_say(&jobs[i], text);
    }
}

static void count_otherwise(void)
{
    if (is_chosen()) setenv("WORLD_SIZE", "9", 1);
}

TEST(missing, ranks_that_disagree_on_their_number_are_told_by_all)
{
    const char *const extra[] = {"TUTTI_INIT_TIMEOUT_MS=60000", NULL};
    run_all(NLAYOUTS, layouts, extra, count_otherwise, choose_late);
    for (int i = 0; i < NLAYOUTS; i++) {
        chosen = choose_late(i);
        check_all_say(&jobs[i], "the ranks disagree on how many they are");
    }
}

/* Exec keeps the timer, whose signal rank_program takes as a reason to stop. */
static void stop_soon(void)
{
    const struct itimerval timer = {.it_value.tv_usec = stop_us};
    if (is_chosen()) setitimer(ITIMER_REAL, &timer, NULL);
}

/* Waits for all but the chosen one, which may be stopped, and ends that. */
static bool wait_for_others(struct job *job)
{
    bool in_time = true;
    for (int r = 0; r < job->nranks; r++) {
        struct pollfd end = {.fd = job->ranks[r].pidfd, .events = POLLIN};
        if (r != chosen) in_time = in_time && poll(&end, 1, 30000) == 1;
    }
    kill(job->ranks[chosen].pid, SIGKILL);
    return job_wait(job, 30000) && in_time;
}

/* Whether ranks that nobody has stopped missed the deadline, too: the machine was busy. */
static bool others_are_late(const struct job *job)
{
    int r = 0;
    while (r < job->nranks && !strstr(job->ranks[r].text, "ERROR a deadline passed: ranks ")) r++;
    return r < job->nranks;
}

TEST(missing, a_rank_that_stops_during_init_is_named_by_all)
{
    static struct job job;
    const char *const extra[] = {"TUTTI_INIT_TIMEOUT_MS=700", NULL};
    uint64_t state = test_seed();
    int nfailed = 0;
    const int nturns = SANITIZED ? 7 : 14, most = 10 * nturns; /* most: where all came too late */
    for (int turn = 0; turn < (nfailed ? nturns : most) && !tt_test_failed(); turn++) {
        const char *layout = layouts[turn % NLAYOUTS];
        char name[24];
        chosen = random_below(&state, (int)strlen(layout));
        stop_us = 1 + random_below(&state, SANITIZED ? 200000 : 20000);
        REQUIRE(job_start_prepared(&job, layout, (const char *const[]){"init_stopping", NULL},
                                   extra, stop_soon));
        CHECK_MESSAGE(wait_for_others(&job), "some rank did not end");
        if (others_are_late(&job)) continue;
        snprintf(name, sizeof name, "rank %d", chosen);
        for (int r = 0; r < job.nranks; r++) {
            const struct job_rank *rank = &job.ranks[r];
            const char *error = strstr(rank->text, "ERROR ");
            if (r == chosen || (WIFEXITED(rank->status) && WEXITSTATUS(rank->status) == 0))
                continue; /* it had no need of the one that stopped */
            nfailed++;
            CHECK_MESSAGE(error && strstr(error, name),
                          "%s: rank %d does not name %s, which stopped after %d us:\n%s", layout, r,
                          name, stop_us, rank->text);
        }
    }
    printf("%d errors\n", nfailed);
    CHECK(nfailed > 0);
}

/* Whether users without rights of their own can come to the program of the ranks. */
static bool all_may_run_ranks(void)
{
    char path[] = TUTTI_BINARY_DIR "/tests/rank_program";
    struct stat file;
    bool may = stat(path, &file) == 0 && file.st_mode & S_IXOTH;
    for (char *end = strrchr(path, '/'); may && end && end != path; end = strrchr(path, '/')) {
        *end = '\0';
        may = stat(path, &file) == 0 && file.st_mode & S_IXOTH;
    }
    return may;
}

static void become_nobody(void)
{
    if (is_chosen() && (setgid(65534) || setuid(65534))) _exit(9);
}

static const char other_costs[] = TUTTI_BINARY_DIR "/tests/other_costs.txt";

static void take_other_costs(void)
{
    if (is_chosen()) setenv("TUTTI_COST_FILE", other_costs, 1);
}

TEST(missing, ranks_with_different_constants_of_the_cost_model_are_named)
{
    const char *const extra[] = {"TUTTI_INIT_TIMEOUT_MS=60000", NULL};
    char text[32];
    FILE *file = fopen(other_costs, "w");
    REQUIRE(file && fputs("link = 1\n", file) >= 0 && fclose(file) == 0);
    run_all(NLAYOUTS, layouts, extra, take_other_costs, choose_late);
    for (int i = 0; i < NLAYOUTS; i++) {
        chosen = choose_late(i);
        check_all_say(&jobs[i], "TUTTI_COST_FILE must name files with the same values");
        check_all_say(&jobs[i], "rank 0 (host");
        snprintf(text, sizeof text, "rank %d (host", chosen == 0 ? 1 : chosen);
        check_all_say(&jobs[i], text);
    }
    unlink(other_costs);
}

static void take_16_slots(void)
{
    if (is_chosen()) setenv("TUTTI_SLOTS", "16", 1);
}

/* As many as links of one host have where nothing is set. */
TEST(missing, ranks_with_different_slots_are_named_with_what_is_set)
{
    const char *const extra[] = {"TUTTI_INIT_TIMEOUT_MS=60000", NULL};
    run_all(NLAYOUTS, layouts, extra, take_16_slots, choose_last);
    for (int i = 0; i < NLAYOUTS; i++) {
        chosen = choose_last(i);
        check_all_say(&jobs[i], "has TUTTI_SLOTS=0, rank ");
        check_all_say(&jobs[i], "has 16: give all ranks the same");
    }
}

TEST(missing, a_rank_whose_file_of_constants_is_wrong_is_named)
{
    static const char *const hosts[] = {"aabb", "aabb", "aabb", "aabb"};
    const char *const extra[] = {"TUTTI_INIT_TIMEOUT_MS=60000", NULL};
    FILE *file = fopen(other_costs, "w");
    REQUIRE(file && fputs("link = fast\n", file) >= 0 && fclose(file) == 0);
    run_all(4, hosts, extra, take_other_costs, choose_same);
    for (chosen = 0; chosen < 4; chosen++) {
        char text[64];
        snprintf(text, sizeof text, "rank %d could not join: TUTTI_COST_FILE=", chosen);
        check_all_say(&jobs[chosen], text);
        check_all_say(&jobs[chosen], "line 1: the value is 'fast'");
    }
    unlink(other_costs);
}

TEST(missing, a_rank_that_gets_no_shared_memory_ends_all_at_once)
{
    static const char *const hosts[] = {"aaaa", "aaaa", "aaaa"};
    const char *const extra[] = {"TUTTI_INIT_TIMEOUT_MS=60000", NULL};
    if (geteuid() != 0) SKIP("only root can start a rank of another user");
    if (!all_may_run_ranks()) SKIP("other users cannot come to the build folder");
    run_all(3, hosts, extra, become_nobody, choose_behind_root);
    for (int i = 0; i < 3; i++) {
        chosen = choose_behind_root(i);
        check_all_say(&jobs[i], "of uid 65534");
        CHECK_MESSAGE(strstr(jobs[i].ranks[chosen].text, "of uid 65534"), "rank %d says:\n%s",
                      chosen, jobs[i].ranks[chosen].text);
    }
}

TEST(missing, a_rank_that_stops_in_a_call_is_named_by_all_at_equal_deadlines)
{
    static struct job job;
    static const char *const spread[] = {"abcd", "aabb", "abac", "abcdefgh", "aaaa"};
    const char *const extra[] = {"TUTTI_TIMEOUT_MS=1000", NULL};
    uint64_t state = test_seed();
    for (int turn = 0; turn < (SANITIZED ? 5 : 10) && !tt_test_failed(); turn++) {
        const char *layout = spread[turn % 5];
        const char *mode = turn % 2 ? "loop" : "loop_mixed";
        char pid[24];
        chosen = random_below(&state, (int)strlen(layout));
        REQUIRE(job_start_on(&job, layout, (const char *const[]){mode, NULL}, extra));
        CHECK_MESSAGE(job_ready(&job, 60000), "not every rank came to loop");
        usleep((useconds_t)random_below(&state, 20000)); /* so that it stops anywhere */
        kill(job.ranks[chosen].pid, SIGSTOP);
        CHECK_MESSAGE(wait_for_others(&job), "some rank did not end");
        snprintf(pid, sizeof pid, "pid %d)", (int)job.ranks[chosen].pid);
        check_all_say(&job, pid);
    }
}

/* How often the program warns that it is rank 0 of 1 under these variables. */
static int count_alone(const char *variables)
{
    char command[512], line[2048];
    int n = 0;
    snprintf(command, sizeof command, "env %s " TUTTI_BINARY_DIR "/tests/rank_program init 2>&1",
             variables);
    FILE *output = popen(command, "r");
    if (!output) return -1;
    while (fgets(line, sizeof line, output))
        n += strstr(line, " WARN ") && strstr(line, "this process is rank 0 of 1, but ");
    return pclose(output) == 0 ? n : -1;
}

TEST(missing, a_rank_that_takes_itself_for_the_only_one_says_so_once)
{
    CHECK_EQ(count_alone("FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2"), 1);
    CHECK_EQ(count_alone("RANK=0 WORLD_SIZE=1 FLUX_TASK_RANK=0 FLUX_JOB_SIZE=2"), 0);
    CHECK_EQ(count_alone("TUTTI_CHANNELS=2"), 0);
}
