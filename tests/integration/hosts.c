/* Ranks on several hosts, as TUTTI_HOST_ID makes them out of one: right results, and errors that
 * reach everybody. Real hosts are in tests/hosts. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "ranks.h"
#include "shim.h"

enum { NCALLS = SANITIZED ? 60 : 200 };

static const char *const layouts[] = {"aabb", "aaab", "abc", "abab"};
enum { NLAYOUTS = sizeof layouts / sizeof *layouts };

TEST(hosts, random_collectives_splits_and_streams_match_the_reference)
{
    static const char *const ways[] = {
        "TUTTI_ENCRYPT=0", "TUTTI_ENCRYPT=1",   "TUTTI_SOCKETS=3",       "TUTTI_SLOT_BYTES=1K",
        "TUTTI_SLOTS=2",   "TUTTI_CHANNELS=11", "TUTTI_SOCKET_FAMILY=6", "TUTTI_COPIES=2"};
    uint64_t state = test_seed();
    for (int i = 0; i < NLAYOUTS && !tt_test_failed(); i++) {
        static struct job job;
        char seed[24], ncalls[16];
        snprintf(seed, sizeof seed, "%llu", (unsigned long long)(next_random(&state) >> 1));
        snprintf(ncalls, sizeof ncalls, "%d", NCALLS);
        const char *const way = ways[random_below(&state, sizeof ways / sizeof *ways)];
        printf("hosts %s, %s, seed %s\n", layouts[i], way, seed);
        const char *const extra[] = {"TUTTI_TIMEOUT_MS=60000", way, NULL};
        REQUIRE(job_start_on(&job, layouts[i], (const char *const[]){"random", seed, ncalls, NULL},
                             extra));
        CHECK_MESSAGE(job_wait(&job, 240000), "some rank did not end");
        job_check_exit(&job, 0);
    }
}

/* All ranks end with an error whose text has all the words. */
static void check_all_say(const char *mode, const char *hosts, const char *const *extra,
                          const char *const *words)
{
    static struct job job;
    REQUIRE(job_start_on(&job, hosts, (const char *const[]){mode, NULL}, extra));
    CHECK_MESSAGE(job_wait(&job, 60000), "%s on %s: some rank did not end", mode, hosts);
    job_check_exit(&job, 3);
    for (int r = 0; r < job.nranks; r++) {
        const char *error = strstr(job.ranks[r].text, "ERROR ");
        for (int w = 0; words[w]; w++)
            CHECK_MESSAGE(error && strstr(error, words[w]),
                          "%s on %s: rank %d's error has no '%s':\n%s", mode, hosts, r, words[w],
                          job.ranks[r].text);
    }
}

TEST(hosts, ranks_that_disagree_all_see_both_calls)
{
    const char *const extra[] = {"TUTTI_TIMEOUT_MS=30000", NULL};
    const char *const words[] = {"disagree", "all_reduce number 2 (count 1000, float, sum)",
                                 "broadcast number 2 (count 20", NULL};
    for (int i = 0; i < NLAYOUTS; i++) check_all_say("disagree", layouts[i], extra, words);
}

TEST(hosts, a_rank_that_stays_away_is_named_at_the_deadline)
{
    const char *const extra[] = {"TUTTI_TIMEOUT_MS=700", NULL};
    for (int i = 0; i < NLAYOUTS; i++) {
        char name[32];
        snprintf(name, sizeof name, "rank %zu", strlen(layouts[i]) - 1);
        check_all_say("stay_away", layouts[i], extra,
                      (const char *const[]){"TUTTI_TIMEOUT_MS", name, NULL});
    }
}

TEST(hosts, a_process_may_end_without_destroying_its_communicator)
{
    static const char *const ways[] = {"TUTTI_ENCRYPT=1", "TUTTI_SOCKETS=3", "TUTTI_ENCRYPT=0"};
    for (int i = 0; i < NLAYOUTS; i++) {
        static struct job job;
        const char *const extra[] = {"TUTTI_TIMEOUT_MS=30000", ways[i % 3], NULL};
        REQUIRE(job_start_on(&job, layouts[i], (const char *const[]){"quit", NULL}, extra));
        CHECK_MESSAGE(job_wait(&job, 60000), "%s: some rank did not end", layouts[i]);
        job_check_exit(&job, 0);
    }
}

TEST(hosts, a_child_made_by_fork_that_asks_for_the_state_fails_nobody)
{
    for (int i = 0; i < NLAYOUTS; i++) {
        static struct job job;
        const char *const extra[] = {"TUTTI_TIMEOUT_MS=30000", NULL};
        REQUIRE(
            job_start_on(&job, layouts[i], (const char *const[]){"asks_in_child", NULL}, extra));
        CHECK_MESSAGE(job_wait(&job, 60000), "%s: some rank did not end", layouts[i]);
        job_check_exit(&job, 0);
    }
}

TEST(hosts, an_abort_ends_the_ranks_of_all_hosts)
{
    const char *const extra[] = {"TUTTI_TIMEOUT_MS=30000", NULL};
    for (int i = 0; i < NLAYOUTS; i++)
        check_all_say("abort", layouts[i], extra, (const char *const[]){"aborted", NULL});
}
