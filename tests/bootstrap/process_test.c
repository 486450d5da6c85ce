/* Ranks as processes, where it matters: death, limits. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/sanitizers.h"
#include "bootstrap/root.h"
#include "net/socket.h"
#include "ranks.h"
#include "shim.h"
#include "threads.h"

/* Forks a process that runs `run` and ends with 0 when it ended with `status` and `text`. */
static pid_t fork_rank(struct rank_run run, tt_status status, const char *text)
{
    const pid_t pid = fork();
    if (pid) return pid;
    run_rank(&run);
    const bool right = run.status == status && !run.wrong && (!text || strstr(run.text, text));
    if (!right) fprintf(stderr, "rank %d: status %d '%s'\n", run.rank, run.status, run.text);
    _exit(right ? 0 : 1);
}

TEST(process, four_processes_join)
{
    struct tt_unique_id id;
    pid_t pids[4];
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    for (int rank = 0; rank < 4; rank++)
        pids[rank] = fork_rank(rank_run_of(&id, rank, 4), TT_OK, NULL);
    for (int rank = 0; rank < 4; rank++) expect_exit(pids[rank]);
}

TEST(process, too_few_descriptors_are_named_with_the_remedy)
{
    const pid_t pid = fork();
    if (pid == 0) {
        struct tt_unique_id id;
        const struct rlimit limit = {.rlim_cur = 3, .rlim_max = 3};
        setrlimit(RLIMIT_NOFILE, &limit);
        const bool right = tt_unique_id_create(&id) == TT_ERR_SYSTEM &&
                           strstr(tt_last_error(), "no file descriptor is left of 3");
        if (!right) fprintf(stderr, "'%s'\n", tt_last_error());
        _exit(right ? 0 : 1);
    }
    expect_exit(pid);
}

TEST(process, a_root_with_few_descriptors_takes_the_ranks_in_turns)
{
    enum { RANKS = 150 };
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    struct tt_unique_id id;
    struct rank_run runs[RANKS];
    const pid_t pid = fork_root(&id, 60);
    REQUIRE(pid > 0);
    for (int rank = 0; rank < RANKS; rank++) runs[rank] = rank_run_of(&id, rank, RANKS);
    run_ranks(runs, RANKS);
    expect_ranks(runs, RANKS, TT_OK, NULL);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

TEST(process, ranks_sent_away_learn_that_some_are_missing)
{
    enum { RANKS = 100 };
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    struct tt_unique_id id;
    struct rank_run runs[RANKS];
    int nnamed = 0;
    const pid_t pid = fork_root(&id, 60);
    REQUIRE(pid > 0);
    for (int i = 0; i < RANKS; i++) { /* rank 7 is missing */
        runs[i] = rank_run_of(&id, i < 7 ? i : i + 1, RANKS + 1);
        runs[i].timeout_ms = 1000;
    }
    run_ranks(runs, RANKS);
    for (int i = 0; i < RANKS; i++) {
        CHECK_EQ(runs[i].status, TT_ERR_TIMEOUT);
        nnamed += strstr(runs[i].text, "rank 7 of 101 did not come") != NULL;
    }
    CHECK_EQ(nnamed, RANKS);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

TEST(process, a_root_out_of_descriptors_tells_those_who_came)
{
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    const pid_t pid = fork();
    if (pid == 0) {
        struct tt_unique_id id;
        struct rank_run runs[40];
        const struct rlimit limit = {.rlim_cur = 40, .rlim_max = 40};
        setrlimit(RLIMIT_NOFILE, &limit);
        if (tt_unique_id_create(&id) != TT_OK) _exit(2);
        for (int rank = 0; rank < 40; rank++) {
            runs[rank] = rank_run_of(&id, rank, 40);
            runs[rank].timeout_ms = 3000;
        }
        run_ranks(runs, 40);
        int nright = 0;
        for (int rank = 0; rank < 40; rank++)
            nright += strstr(runs[rank].text, "ulimit -n") != NULL;
        if (nright < 1) fprintf(stderr, "'%s'\n", runs[0].text);
        _exit(nright >= 1 ? 0 : 1);
    }
    expect_exit(pid);
}

/* Takes all descriptors that the process has left. How many these are, at most n. */
static int take_descriptors(int *taken, int n)
{
    int ntaken = 0;
    while (ntaken < n && (taken[ntaken] = dup(0)) >= 0) ntaken++;
    return ntaken;
}

static void *run_one(void *run)
{
    run_rank(run);
    return NULL;
}

/* No rank has come to the root yet: what the rank told it must not fail the ranks that come. */
TEST(process, a_rank_that_had_no_descriptors_may_try_again)
{
    enum { LIMIT = 64 };
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    const pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit limit = {.rlim_cur = LIMIT, .rlim_max = LIMIT};
        struct tt_unique_id id;
        struct rank_run runs[2];
        int taken[LIMIT];
        if (setrlimit(RLIMIT_NOFILE, &limit) || tt_unique_id_create(&id) != TT_OK) _exit(2);
        runs[0] = rank_run_of(&id, 0, 2);
        const int ntaken = take_descriptors(taken, LIMIT);
        run_rank(&runs[0]);
        for (int i = 0; i < ntaken; i++) close(taken[i]);
        const bool failed = runs[0].status != TT_OK && strstr(runs[0].text, "ulimit -n");
        for (int rank = 0; rank < 2; rank++) runs[rank] = rank_run_of(&id, rank, 2);
        if (tt_unique_id_settle(&id, 0, 2, tt_deadline_ns(1000)) != TT_OK) _exit(4);
        const int before = count_descriptors();
        pthread_t thread;
        if (pthread_create(&thread, NULL, run_one, &runs[0])) _exit(3);
        while (count_descriptors() <= before)
            tt_test_pause(); /* rank 0 begins again, then rank 1 */
        run_rank(&runs[1]);
        pthread_join(thread, NULL);
        const bool right = failed && runs[0].status == TT_OK && runs[1].status == TT_OK;
        if (!right) fprintf(stderr, "failed %d, then '%s'\n", failed, runs[0].text);
        _exit(right ? 0 : 1);
    }
    expect_exit(pid);
}

TEST(process, the_limit_on_descriptors_stays_as_the_process_has_it)
{
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    const pid_t pid = fork();
    if (pid == 0) {
        struct tt_unique_id id;
        struct rank_run runs[40];
        const struct rlimit before = {.rlim_cur = 400, .rlim_max = 900};
        struct rlimit after = {0};
        if (setrlimit(RLIMIT_NOFILE, &before) || tt_unique_id_create(&id) != TT_OK) _exit(2);
        for (int rank = 0; rank < 40; rank++) runs[rank] = rank_run_of(&id, rank, 40);
        run_ranks(runs, 40);
        for (int rank = 0; rank < 40; rank++)
            if (runs[rank].status != TT_OK || runs[rank].wrong) _exit(3);
        getrlimit(RLIMIT_NOFILE, &after);
        fprintf(stderr, "%d of %d descriptors\n", (int)after.rlim_cur, (int)after.rlim_max);
        _exit(after.rlim_cur == before.rlim_cur && after.rlim_max == before.rlim_max ? 0 : 1);
    }
    expect_exit(pid);
}

TEST(process, ids_that_nobody_joins_share_a_thread_and_take_a_descriptor_each)
{
    enum { IDS = 20 };
    struct tt_unique_id ids[IDS];
    struct rank_run runs[2 * IDS];
    const int64_t patience_ns = tt_deadline_ns(20000);
    setenv("TUTTI_INIT_TIMEOUT_MS", "1500", 1);
    tt_config_reload();
    const int threads = count_now(), descriptors = count_descriptors();
    for (int i = 0; i < IDS; i++) REQUIRE(tt_unique_id_create(&ids[i]) == TT_OK);
    CHECK(count_now() <= threads + 1);
    CHECK(count_descriptors() <= descriptors + IDS + 1);
    for (int i = 0; i < IDS; i += 2) /* half of them are used, all at once */
        for (int rank = 0; rank < 2; rank++) runs[i + rank] = rank_run_of(&ids[i], rank, 2);
    run_ranks(runs, IDS);
    expect_ranks(runs, IDS, TT_OK, NULL);
    while ((count_now() > threads || count_descriptors() > descriptors) && !tt_expired(patience_ns))
        tt_test_pause(); /* until the deadline of the others */
    CHECK(count_now() <= threads);
    CHECK(count_descriptors() <= descriptors);
    struct rank_run late = rank_run_of(&ids[1], 0, 1);
    run_ranks(&late, 1);
    expect_ranks(&late, 1, TT_ERR_REMOTE, "has gone");
    unsetenv("TUTTI_INIT_TIMEOUT_MS");
    tt_config_reload();
}

/* Somebody connects to the id, who is no rank of it. */
TEST(process, a_dropped_id_ends_also_where_a_stranger_has_come)
{
    struct tt_unique_id id;
    struct tt_address address;
    int stranger;
    const int64_t patience_ns = tt_deadline_ns(10000);
    const int before = count_descriptors();
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    const int idle = count_descriptors();
    REQUIRE(tt_id_address(&address, &id) == TT_OK);
    REQUIRE(tt_socket_connect(&stranger, &address, patience_ns) == 0);
    /* The root takes a descriptor, and this connection two. */
    while (count_descriptors() < idle + 2 && !tt_expired(patience_ns)) tt_test_pause();
    tt_unique_id_drop(&id);
    close(stranger);
    while (count_descriptors() > before && !tt_expired(patience_ns)) tt_test_pause();
    CHECK(count_descriptors() <= before);
    CHECK(!tt_expired(patience_ns));
}

TEST(process, a_child_made_by_fork_has_ids_of_its_own)
{
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    struct tt_unique_id before, id;
    REQUIRE(tt_unique_id_create(&before) == TT_OK);
    const pid_t pid = fork();
    if (pid == 0) {
        struct rank_run run;
        if (tt_unique_id_create(&id) != TT_OK) _exit(2);
        run = rank_run_of(&id, 0, 1);
        run_rank(&run);
        _exit(run.status == TT_OK ? 0 : 3);
    }
    expect_exit(pid);
    struct rank_run run = rank_run_of(&before, 0, 1);
    run_rank(&run);
    expect_ranks(&run, 1, TT_OK, NULL);
}
