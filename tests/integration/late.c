/* A wait that lasts long says in the log who is missing (TUTTI_LATE_MS), and goes on. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranks.h"
#include "shim.h"

enum { PATIENCE_MS = 60000 };

/* The number-th line of a rank's log, so far, with the word; false: there are not so many. */
static bool find_line(const struct job_rank *rank, const char *word, int number, char line[512])
{
    static char text[MAX_TEXT];
    const ssize_t n = pread(rank->log, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strstr(text, word);
    for (int i = 0; at && i < number; i++) at = strstr(at + 1, word);
    if (!at || !strchr(at, '\n')) return false;
    while (at > text && at[-1] != '\n') at--;
    snprintf(line, 512, "%.*s", (int)strcspn(at, "\n"), at);
    return true;
}

static void await_line(const struct job_rank *rank, int number, char line[512])
{
    const int64_t end_ms = now_ms() + PATIENCE_MS;
    line[0] = '\0';
    while (!find_line(rank, "has waited", number, line) && now_ms() < end_ms) usleep(1000);
}

static long waited_ms(const char *line)
{
    const char *at = strstr(line, "has waited ");
    return at ? atol(at + strlen("has waited ")) : -1;
}

/* The other ranks do not speak for the one that is stopped. In 400 ms a stream's thread begins its
 * call also on a loaded machine. */
static void check_late(const char *hosts, const char *how)
{
    static struct job job;
    char first[512], second[512], name[24];
    const char *const extra[] = {"TUTTI_LATE_MS=400", NULL};
    REQUIRE(job_start_on(&job, hosts, (const char *const[]){"late", how, NULL}, extra));
    const int last = job.nranks - 1;
    await_line(&job.ranks[0], 0, first);
    await_line(&job.ranks[0], 1, second);
    REQUIRE(kill(job.ranks[last].pid, SIGCONT) == 0);
    CHECK_MESSAGE(job_wait(&job, PATIENCE_MS), "late on %s: some rank did not end", hosts);
    job_check_exit(&job, 0);
    snprintf(name, sizeof name, "rank %d ", last);
    CHECK_MESSAGE(strstr(first, "WARN") && strstr(first, "rank 0 (") &&
                      strstr(first, "all_reduce number 2 (count 1") &&
                      strstr(first, "communicator world") && strstr(first, "TUTTI_LATE_MS") &&
                      strstr(first, name),
                  "%s, %s: the line is: %s", hosts, how, first);
    CHECK_MESSAGE(waited_ms(first) >= 400, "%s", first);
    CHECK_MESSAGE(waited_ms(second) >= 800 && strstr(second, name), "%s", second);
}

TEST(late, a_rank_that_is_stopped_is_named_in_the_logs_of_those_who_wait)
{
    static const char *const layouts[] = {"aa", "aaa", "ab"};
    for (int i = 0; i < 3; i++) check_late(layouts[i], "caller");
}

TEST(late, a_wait_on_a_stream_names_the_rank_too)
{
    check_late("aa", "stream");
}

TEST(late, a_call_that_has_begun_speaks_for_those_behind_it)
{
    check_late("aa", "both");
    check_late("ab", "both");
}

TEST(late, a_call_behind_one_that_waits_in_a_stream_says_so)
{
    static struct job job;
    char line[512];
    const char *const extra[] = {"TUTTI_LATE_MS=100", NULL};
    REQUIRE(job_start_on(&job, "aa", (const char *const[]){"behind", NULL}, extra));
    await_line(&job.ranks[0], 0, line);
    CHECK_MESSAGE(job_wait(&job, PATIENCE_MS), "some rank did not end");
    job_check_exit(&job, 0);
    CHECK_MESSAGE(strstr(line, "WARN") && strstr(line, "rank 0 (") &&
                      strstr(line, "to begin all_reduce number 2 (count 1") &&
                      strstr(line, "1 earlier call is not done"),
                  "the line is: %s", line);
    CHECK_MESSAGE(waited_ms(line) >= 100, "%s", line);
}
