/* Who is named when an init fails: the rank that is missing, stopped or different, by every rank
 * that came, also where the process of rank 0 ends at once, and where ranks came at other times. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/sanitizers.h"
#include "net/socket.h"
#include "ranks.h"
#include "shim.h"

enum { MOST = 16 };

/* Rank `rank` of nranks processes that meet at the method. */
static struct rank_run run_by(const char *method, int rank, int nranks, int64_t timeout_ms)
{
    struct rank_run run = rank_run_by(method, rank, nranks);
    run.timeout_ms = timeout_ms;
    return run;
}

/* A process of this rank, with a setting of its own (NULL: none). Its exit code: 0 when the error
 * is as expected. It ends by exit() or, `at_once`, without looking after anything. */
static pid_t fork_rank(struct rank_run run, const char *setting, const char *text, bool at_once)
{
    fflush(NULL);
    const pid_t pid = fork();
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (setting) putenv((char *)(uintptr_t)setting);
    tt_config_reload();
    run_rank(&run);
    const bool right = run.status != TT_OK && strstr(run.text, text);
    if (!right) fprintf(stderr, "rank %d: status %d '%s'\n", run.rank, run.status, run.text);
    if (at_once) _exit(right ? 0 : 1);
    exit(right ? 0 : 1);
}

TEST(blame, a_rank_that_never_comes_is_named_by_all_though_rank_0_ends_first)
{
    enum { RANKS = 8, ROUNDS = 2 };
    char method[64];
    pid_t pids[RANKS];
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    for (int round = 0; round < ROUNDS; round++) {
        snprintf(method, sizeof method, "tcp://127.0.0.1:%d", free_port());
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != 1)
                pids[rank] = fork_rank(run_by(method, rank, RANKS, 3000), NULL,
                                       "rank 1 of 8 did not come within", true);
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != 1) expect_exit(pids[rank]);
    }
}

TEST(blame, ranks_that_come_after_a_disagreement_are_told_and_can_try_again)
{
    char method[64];
    struct rank_run runs[4];
    snprintf(method, sizeof method, "tcp://127.0.0.1:%d", free_port());
    runs[0] = run_by(method, 0, 4, 10000);
    runs[1] = run_by(method, 1, 2, 10000);
    run_ranks(runs, 2);
    expect_ranks(runs, 2, TT_ERR_USAGE, "the ranks disagree on how many they are");
    for (int rank = 2; rank < 4; rank++) runs[rank] = run_by(method, rank, 4, 1000);
    run_ranks(&runs[2], 2);
    expect_ranks(&runs[2], 2, TT_ERR_USAGE, "the ranks disagree on how many they are");
    for (int turn = 0; turn < 3; turn++) { /* rank 0 comes after the others, or with them */
        for (int rank = 0; rank < 4; rank++) runs[rank] = run_by(method, rank, 4, 10000);
        run_ranks(runs, 4);
        expect_ranks(runs, 4, TT_OK, NULL);
    }
}

TEST(blame, the_file_of_a_failed_init_tells_late_ranks_and_is_removed)
{
    char path[] = "/tmp/tutti-blame-XXXXXX", method[64];
    struct rank_run runs[3];
    const int64_t patience_ns = tt_deadline_ns(20000);
    REQUIRE(mkdtemp(path));
    snprintf(method, sizeof method, "file://%s/id", path);
    runs[0] = run_by(method, 0, 3, 10000);
    runs[1] = run_by(method, 1, 2, 10000);
    run_ranks(runs, 2);
    expect_ranks(runs, 2, TT_ERR_USAGE, "the ranks disagree on how many they are");
    runs[2] = run_by(method, 2, 3, 1000);
    run_ranks(&runs[2], 1);
    expect_ranks(&runs[2], 1, TT_ERR_USAGE, "the ranks disagree on how many they are");
    for (int rank = 0; rank < 3; rank++) runs[rank] = run_by(method, rank, 3, 10000);
    run_ranks(runs, 3);
    expect_ranks(runs, 3, TT_OK, NULL);
    while (rmdir(path) != 0 && !tt_expired(patience_ns)) sched_yield(); /* nothing is left in it */
    CHECK(access(path, F_OK) != 0);
}

/* Rank `silent` joins and then does nothing more, as a process that is stopped. The others wait in
 * an allgather; rank i came i * apart_ms ago, so their deadlines differ by that. */
static void stop_one(int nranks, int silent, int apart_ms)
{
    struct tt_unique_id id;
    struct rank_run runs[MOST];
    char text[64];
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    for (int rank = 0; rank < nranks; rank++) {
        runs[rank] = rank_run_of(&id, rank, nranks);
        runs[rank].timeout_ms = 800 + apart_ms * (nranks - rank);
        runs[rank].meets_deadline = true;
    }
    runs[silent].nallgathers = 0;
    runs[silent].stay_for = runs;
    runs[silent].nstay_for = nranks;
    run_ranks(runs, nranks);
    snprintf(text, sizeof text, "waited for rank %d (pid ", silent);
    for (int rank = 0; rank < nranks; rank++)
        if (rank != silent) expect_ranks(&runs[rank], 1, TT_ERR_TIMEOUT, text);
}

TEST(blame, a_rank_that_stops_during_init_is_named_by_all_at_equal_deadlines)
{
    stop_one(2, 1, 0);
    stop_one(4, 0, 0);
    stop_one(8, 6, 0);
}

TEST(blame, a_stopped_rank_is_named_through_a_deep_tree)
{
    stop_one(16, 1, 0);
    stop_one(16, 12, 0); /* its parent is rank 1, its parent's rank 0 */
}

TEST(blame, the_rank_whose_deadline_comes_first_ends_the_wait_for_all)
{
    stop_one(4, 3, 400);
    stop_one(4, 0, 400);
}

/* ---- A failure that the parent sends -------------------------------------------------------- */

struct pieces {
    int to, at; /* the parent's end, and the child's */
    const char *rest;
    size_t nbytes;
};

/* The rest follows when the child has read what came first. */
static void *send_rest(void *argument)
{
    const struct pieces *pieces = argument;
    int unread = 1;
    while (ioctl(pieces->at, FIONREAD, &unread) == 0 && unread) tt_test_pause();
    CHECK(write(pieces->to, pieces->rest, pieces->nbytes) == (ssize_t)pieces->nbytes);
    return NULL;
}

TEST(blame, a_failure_that_arrives_in_two_pieces_keeps_its_text)
{
    char message[sizeof(struct tt_report) + 64];
    static const size_t cuts[] = {1, 12, 23, 24, 40};
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    struct tt_bootstrap parent = {
        .nranks = 2, .nchildren = 1, .parent.fd = -1, .children[0].fd = ends[0]};
    tt_bootstrap_break(&parent, TT_ERR_SYSTEM, "rank 0 has a reason of its own");
    const ssize_t nbytes = read(ends[1], message, sizeof message);
    REQUIRE(nbytes > 40);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        int link[2];
        pthread_t thread;
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, link) == 0);
        struct tt_bootstrap child = {.rank = 1, .nranks = 2, .parent.fd = link[1]};
        struct pieces pieces = {.to = link[0],
                                .at = link[1],
                                .rest = message + cuts[i],
                                .nbytes = (size_t)nbytes - cuts[i]};
        CHECK(write(link[0], message, cuts[i]) == (ssize_t)cuts[i]);
        REQUIRE(pthread_create(&thread, NULL, send_rest, &pieces) == 0);
        CHECK_EQ(tt_bootstrap_hear_parent(&child), TT_ERR_SYSTEM);
        CHECK_MESSAGE(strstr(tt_last_error(), "a reason of its own"), "%s", tt_last_error());
        pthread_join(thread, NULL);
        for (int end = 0; end < 2; end++) close(link[end]);
    }
    for (int end = 0; end < 2; end++) close(ends[end]);
}

TEST(blame, a_rank_that_cannot_join_tells_all_why_at_once)
{
    enum { RANKS = 4 };
    char method[64];
    pid_t pids[RANKS];
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    for (int unable = 0; unable < RANKS; unable++) {
        const int64_t start_ns = tt_now_ns();
        snprintf(method, sizeof method, "tcp://127.0.0.1:%d", free_port());
        for (int rank = 0; rank < RANKS; rank++)
            pids[rank] = fork_rank(run_by(method, rank, RANKS, 30000),
                                   rank == unable ? "TUTTI_SOCKET_INTERFACE=nosuch7" : NULL,
                                   "is called 'nosuch7'", false);
        for (int rank = 0; rank < RANKS; rank++) expect_exit(pids[rank]);
        CHECK(tt_now_ns() - start_ns < 10000000000);
    }
}
