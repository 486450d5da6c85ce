/* The deterministic mode: reductions have the bits of a loop over the ranks, also on several hosts
 * and with any transport; what is forced, split or set differently on some ranks. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rank_order.h"
#include "ranks.h"
#include "shim.h"

enum { MOST = SANITIZED ? 40000 : 700000 };

static tuttiConfig_t config_with(int deterministic)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 60000;
    config.deterministic = deterministic;
    return config;
}

struct order_run {
    size_t most;
    _Atomic int nwrong;
};

static void run_calls(int rank, tuttiComm_t comm, void *arg)
{
    (void)rank;
    struct order_run *run = arg;
    run->nwrong += rank_order_calls(comm, run->most);
}

TEST(deterministic, reductions_of_threads_have_the_bits_of_a_loop_over_the_ranks)
{
    static const int numbers[] = {1, 2, 3, 4, 5, 8};
    const tuttiConfig_t config = config_with(1);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct order_run run = {.most = MOST / (size_t)numbers[i]};
        as_threads(numbers[i], &config, run_calls, &run);
        CHECK_MESSAGE(run.nwrong == 0, "%d ranks: %d calls went wrong", numbers[i], run.nwrong);
    }
}

/* Ranks as processes on these hosts, of which each must exit with `status`: 0, right; 4, wrong. */
static void run_processes(const char *hosts, size_t most, const char *mode, const char *way,
                          int status)
{
    static struct job job;
    char number[24];
    snprintf(number, sizeof number, "%zu", most);
    const char *const extra[] = {mode, "TUTTI_TIMEOUT_MS=60000", way, NULL};
    REQUIRE(job_start_on(&job, hosts, (const char *const[]){"rank_order", number, NULL}, extra));
    CHECK_MESSAGE(job_wait(&job, 240000), "%s: some rank did not end", hosts);
    job_check_exit(&job, status);
}

TEST(deterministic, reductions_of_processes_have_the_bits_of_a_loop_over_the_ranks)
{
    static const struct {
        const char *hosts, *way;
        size_t most;
    } cases[] = {{"aa", "TUTTI_COPIES=1", 400000},      {"aaa", "TUTTI_TRANSPORT=shm", 100000},
                 {"aaaaa", "TUTTI_COPIES=2", 60000},    {"ab", "TUTTI_SOCKETS=2", 200000},
                 {"aba", "TUTTI_SLOT_BYTES=1K", 40000}, {"abab", "TUTTI_MEET_BYTES=1K", 40000},
                 {"aaabb", "TUTTI_COPIES=2", 40000},    {"aaaabbbb", "TUTTI_SLOTS=2", 40000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !tt_test_failed(); i++)
        run_processes(cases[i].hosts, SANITIZED ? 31000 : cases[i].most, "TUTTI_DETERMINISTIC=on",
                      cases[i].way, 0);
}

/* Else the tests above would prove nothing. */
TEST(deterministic, without_the_mode_some_reductions_have_other_bits)
{
    run_processes("aabb", 10000, "TUTTI_DETERMINISTIC=off", "TUTTI_COPIES=1", 4);
}

/* ---- What is forced, inherited, or set differently --------------------------------------------
 */

/* The call's result, and both words in its error. */
static void check_refused(tuttiResult_t result, const char *word, const char *other)
{
    const char *text = tuttiGetLastError(NULL);
    CHECK_MESSAGE(result == tuttiInvalidUsage && strstr(text, word) && strstr(text, other),
                  "%s: \"%s\" has not \"%s\" and \"%s\"", tuttiGetErrorString(result), text, word,
                  other);
}

TEST(deterministic, an_algorithm_that_folds_in_another_order_cannot_be_forced)
{
    static const char *const bad[] = {"ring", "all_reduce:tree", "reduce:chain",
                                      "reduce_scatter:pat", "all_reduce:meet/ring"};
    tuttiConfig_t config = config_with(1);
    tuttiUniqueId id;
    tuttiComm_t comm = NULL;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        config.algorithm = bad[i];
        const char *colon = strchr(bad[i], ':');
        check_refused(tuttiCommInitRankConfig(&comm, 1, id, 0, &config), colon ? colon : ":ring",
                      "meet");
    }
    config.algorithm = "two_shot;all_gather:ring;broadcast:chain;reduce_scatter:parallel";
    REQUIRE(tuttiCommInitRankConfig(&comm, 1, id, 0, &config) == tuttiSuccess);
    check_refused(tuttiCommSetAlgorithm(comm, tuttiCollAllReduce, "ring"), "all_reduce:ring",
                  "two_shot");
    CHECK_EQ(tuttiCommSetAlgorithm(comm, tuttiCollAllReduce, "naive"), tuttiSuccess);
    CHECK_EQ(tuttiCommSetAlgorithm(comm, tuttiCollAllGather, "bruck"), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(deterministic, the_setting_is_on_or_off)
{
    static const int bad[] = {2, -1};
    tuttiUniqueId id;
    tuttiComm_t comm = NULL;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    for (int i = 0; i < 2; i++) {
        char text[32];
        const tuttiConfig_t config = config_with(bad[i]);
        snprintf(text, sizeof text, "deterministic is %d", bad[i]);
        CHECK_EQ(tuttiCommInitRankConfig(&comm, 1, id, 0, &config), tuttiInvalidArgument);
        CHECK_MESSAGE(strstr(tuttiGetLastError(NULL), text), "%s", tuttiGetLastError(NULL));
    }
    tuttiConfig_t older = config_with(2); /* of a caller that does not know the field */
    older.size = offsetof(tuttiConfig_t, deterministic);
    REQUIRE(tuttiCommInitRankConfig(&comm, 1, id, 0, &older) == tuttiSuccess);
    CHECK_EQ(tuttiCommSetAlgorithm(comm, tuttiCollAllReduce, "ring"), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

/* Whether the communicator is in the mode: then it refuses a ring. */
static bool is_deterministic(tuttiComm_t comm)
{
    const bool refuses = tuttiCommSetAlgorithm(comm, tuttiCollAllReduce, "ring") != tuttiSuccess;
    CHECK_EQ(tuttiCommSetAlgorithm(comm, tuttiCollAllReduce, NULL), tuttiSuccess);
    return refuses;
}

static void check_split(int rank, tuttiComm_t comm, const tuttiConfig_t *config, bool expected)
{
    tuttiComm_t part = NULL;
    CHECK_EQ(tuttiCommSplit(comm, rank % 2, rank, &part, config), tuttiSuccess);
    if (!part) return;
    CHECK_EQ(is_deterministic(part), expected);
    CHECK_EQ(tuttiCommDestroy(part), tuttiSuccess);
}

static void split_both_ways(int rank, tuttiComm_t comm, void *arg)
{
    const bool mode = *(const bool *)arg;
    const tuttiConfig_t on = config_with(1), off = config_with(0);
    const tuttiConfig_t unsaid = config_with(TUTTI_CONFIG_UNDEF_INT);
    CHECK_EQ(is_deterministic(comm), mode);
    check_split(rank, comm, NULL, mode);
    check_split(rank, comm, &unsaid, mode);
    check_split(rank, comm, &on, true);
    check_split(rank, comm, &off, false);
}

TEST(deterministic, a_split_inherits_the_mode_unless_its_config_says_otherwise)
{
    for (int mode = 0; mode < 2; mode++) {
        bool arg = mode;
        const tuttiConfig_t config = config_with(mode);
        as_threads(4, &config, split_both_ways, &arg);
    }
}

struct joiner {
    tuttiUniqueId id;
    int rank;
};

static void *join_differently(void *arg)
{
    const struct joiner *joiner = arg;
    const tuttiConfig_t config = config_with(joiner->rank != 1);
    tuttiComm_t comm = NULL;
    check_refused(tuttiCommInitRankConfig(&comm, 3, joiner->id, joiner->rank, &config),
                  "TUTTI_DETERMINISTIC=1", "rank 1");
    return NULL;
}

TEST(deterministic, ranks_of_which_one_is_not_get_an_error_that_names_it)
{
    struct joiner joiners[3] = {{.rank = 0}};
    pthread_t threads[3];
    REQUIRE(tuttiGetUniqueId(&joiners[0].id) == tuttiSuccess);
    for (int r = 0; r < 3; r++) {
        joiners[r] = (struct joiner){.id = joiners[0].id, .rank = r};
        REQUIRE(pthread_create(&threads[r], NULL, join_differently, &joiners[r]) == 0);
    }
    for (int r = 0; r < 3; r++) pthread_join(threads[r], NULL);
}

/* Rank 0 says what the mode costs, once, and only where INFO is logged. */
TEST(deterministic, the_log_says_once_which_algorithms_are_left_and_what_they_cost)
{
    static struct job job;
    const char *const extra[] = {"TUTTI_DETERMINISTIC=yes", "TUTTI_LOG=INFO", NULL};
    REQUIRE(job_start_on(&job, "aba", (const char *const[]){"hello", NULL}, extra));
    CHECK_MESSAGE(job_wait(&job, 60000), "some rank did not end");
    job_check_exit(&job, 0);
    for (int r = 0; r < 3; r++) {
        static const char said[] = "deterministic: all_reduce folds in rank order by naive, "
                                   "parallel, two_shot; predicted time over that of the free "
                                   "choice: ";
        const char *line = strstr(job.ranks[r].text, said);
        CHECK_MESSAGE((line != NULL) == (r == 0), "rank %d said:\n%s", r, job.ranks[r].text);
        CHECK(!line || !strstr(line + 1, said));
    }
}
