/* Tests of joining: ranks as threads find each other, gather bytes, and fail in bounded time. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "bootstrap/tree.h"
#include "net/handshake.h"
#include "ranks.h"
#include "bootstrap/root.h"
#include "shim.h"

static void join_all(int nranks, size_t nbytes)
{
    struct tt_unique_id id;
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    struct rank_run *runs = calloc((size_t)nranks, sizeof *runs);
    for (int rank = 0; rank < nranks; rank++) {
        runs[rank] = rank_run_of(&id, rank, nranks);
        runs[rank].nbytes = nbytes;
    }
    run_ranks(runs, nranks);
    expect_ranks(runs, nranks, TT_OK, NULL);
    free(runs);
}

TEST(join, one_to_seventeen_ranks_gather_each_others_bytes)
{
    for (int nranks = 1; nranks <= 17; nranks++) join_all(nranks, 24);
}

TEST(join, sixty_four_ranks_make_a_tree_of_three_levels)
{
    join_all(64, 40);
}

TEST(join, seventy_four_ranks_have_a_fourth_level)
{
    join_all(74, 1);
}

/* All descriptors that this program may have; returns what it had. */
static struct rlimit raise_limit(void)
{
    struct rlimit before = {0}, most;
    getrlimit(RLIMIT_NOFILE, &before);
    most = before;
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
    return before;
}

TEST(join, five_hundred_and_twelve_ranks_come_at_once)
{
    const struct rlimit before = raise_limit();
    join_all(512, 16);
    setrlimit(RLIMIT_NOFILE, &before);
}

/* The most messages of a rank among so many, each gathering `ngathers` times. */
static uint64_t most_messages(int nranks, int ngathers)
{
    struct tt_unique_id id;
    uint64_t most = 0;
    if (tt_unique_id_create(&id) != TT_OK) return 0;
    struct rank_run *runs = calloc((size_t)nranks, sizeof *runs);
    for (int rank = 0; rank < nranks; rank++) {
        runs[rank] = rank_run_of(&id, rank, nranks);
        runs[rank].nallgathers = ngathers;
    }
    run_ranks(runs, nranks);
    expect_ranks(runs, nranks, TT_OK, NULL);
    for (int rank = 0; rank < nranks; rank++)
        if (runs[rank].counts.messages > most) most = runs[rank].counts.messages;
    /* A leaf has the root, its parent, and one message each way in each allgather. */
    CHECK_EQ(runs[nranks - 1].counts.connections, 2);
    CHECK_EQ(runs[nranks - 1].counts.messages, 3 + 3 + 1 + 2 * ngathers);
    free(runs);
    return most;
}

TEST(join, messages_of_a_rank_do_not_grow_with_the_number_of_ranks)
{
    const struct rlimit before = raise_limit();
    /* The root and nine neighbours: handshakes of three, a report, two for each allgather. */
    CHECK_EQ(most_messages(74, 1), 10 * 3 + 1 + 2 * 9);
    CHECK_EQ(most_messages(74, 3), 10 * 3 + 1 + 3 * 2 * 9);
    CHECK_EQ(most_messages(300, 3), 10 * 3 + 1 + 3 * 2 * 9);
    setrlimit(RLIMIT_NOFILE, &before);
}

TEST(join, the_largest_part_is_64_kib)
{
    join_all(11, 64 * 1024);
}

TEST(join, no_bytes_at_all_is_a_barrier)
{
    join_all(10, 0);
}

TEST(join, more_than_64_kib_is_refused)
{
    struct tt_unique_id id;
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    struct rank_run run = rank_run_of(&id, 0, 1);
    run.nbytes = 64 * 1024 + 1;
    run_ranks(&run, 1);
    expect_ranks(&run, 1, TT_ERR_ARGUMENT, "65537 bytes a rank, at most 65536");
}

TEST(join, ranks_out_of_range_and_foreign_ids_are_refused)
{
    struct tt_unique_id id;
    memset(&id, 7, sizeof id);
    struct rank_run runs[4] = {rank_run_of(&id, 0, 1), rank_run_of(&id, 2, 2),
                               rank_run_of(&id, -1, 2), rank_run_of(&id, 0, 0)};
    run_ranks(runs, 4);
    expect_ranks(&runs[0], 1, TT_ERR_ARGUMENT, "no unique id");
    expect_ranks(&runs[1], 1, TT_ERR_ARGUMENT, "rank 2 is not within 0 to 1");
    expect_ranks(&runs[2], 1, TT_ERR_ARGUMENT, "rank -1 is not within");
    expect_ranks(&runs[3], 1, TT_ERR_ARGUMENT, "0 is no number of ranks");
}

TEST(join, missing_ranks_are_named_to_everyone_who_came)
{
    struct tt_unique_id id;
    struct rank_run runs[6];
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    for (int i = 0, rank = 0; rank < 8; rank++) {
        if (rank == 2 || rank == 5) continue;
        runs[i] = rank_run_of(&id, rank, 8);
        runs[i++].timeout_ms = 300;
    }
    run_ranks(runs, 6);
    expect_ranks(runs, 6, TT_ERR_TIMEOUT, "ranks 2, 5 of 8 did not come within");
    for (int i = 0; i < 6; i++) CHECK(runs[i].took_ns < 2000000000);
}

TEST(join, of_many_missing_ranks_sixteen_are_named)
{
    struct tt_unique_id id;
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    struct rank_run run = rank_run_of(&id, 0, 100);
    run.timeout_ms = 50;
    run_ranks(&run, 1);
    expect_ranks(&run, 1, TT_ERR_TIMEOUT, "15, 16 and 83 more of 100 did not come");
}

TEST(join, a_rank_that_comes_twice_is_named_to_both)
{
    struct tt_unique_id id;
    struct rank_run runs[3];
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    for (int i = 0; i < 3; i++) runs[i] = rank_run_of(&id, i == 2 ? 1 : i, 4);
    run_ranks(runs, 3);
    expect_ranks(runs, 3, TT_ERR_USAGE, "rank 1 of 4 came twice: pid ");
}

TEST(join, ranks_that_disagree_on_their_number_are_told)
{
    struct tt_unique_id id;
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    struct rank_run runs[2] = {rank_run_of(&id, 0, 3), rank_run_of(&id, 1, 2)};
    run_ranks(runs, 2);
    expect_ranks(runs, 2, TT_ERR_USAGE, "the ranks disagree on how many they are: rank ");
}

TEST(join, an_id_serves_one_communicator)
{
    struct tt_unique_id id;
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    struct rank_run run = rank_run_of(&id, 0, 1);
    run_ranks(&run, 1);
    expect_ranks(&run, 1, TT_OK, NULL);
    run_ranks(&run, 1);
    expect_ranks(&run, 1, TT_ERR_REMOTE, "has gone");
}

/* All but the last of nranks join, the last one gets its answer and then ends. */
static void lose_last(int nranks, struct tt_report report, tt_status status, const char *text)
{
    struct straggler straggler = {.rank = nranks - 1, .nranks = nranks, .report = report};
    struct rank_run runs[32];
    pthread_t thread;
    REQUIRE(tt_unique_id_create(&straggler.id) == TT_OK);
    REQUIRE(pthread_create(&thread, NULL, straggle, &straggler) == 0);
    for (int rank = 0; rank < nranks - 1; rank++)
        runs[rank] = rank_run_of(&straggler.id, rank, nranks);
    run_ranks(runs, nranks - 1);
    pthread_join(thread, NULL);
    CHECK(straggler.answered && straggler.kept);
    expect_ranks(runs, nranks - 1, status, text);
    /* The ranks would wait 20 s for it. */
    for (int rank = 0; rank < nranks - 1; rank++) CHECK(runs[rank].took_ns < 10000000000);
}

TEST(join, a_rank_that_dies_on_its_way_into_the_tree_is_named_at_once)
{
    const struct tt_report silence = {0};
    lose_last(2, silence, TT_ERR_REMOTE, "rank 1 (pid ");
    lose_last(5, silence, TT_ERR_REMOTE, "left before it had its place among the others");
    lose_last(20, silence, TT_ERR_REMOTE, "rank 19 (pid ");
}

TEST(join, a_rank_that_fails_on_its_way_into_the_tree_tells_all_why)
{
    struct tt_report report = {.status = TT_ERR_SYSTEM};
    strcpy(report.text, "no descriptor is left for a rank's test");
    lose_last(4, report, TT_ERR_SYSTEM, "no descriptor is left for a rank's test");
    lose_last(20, report, TT_ERR_SYSTEM, "no descriptor is left for a rank's test");
}

/* Rank 1 has its place when rank 2 fails, rank 0 has not. */
TEST(join, ranks_for_which_an_attempt_ended_differently_try_again_together)
{
    enum { RANKS = 3 };
    struct tt_unique_id ids[RANKS];
    struct rank_run runs[RANKS];
    struct straggler straggler = {.rank = 2, .nranks = RANKS, .behind = &runs[1]};
    pthread_t thread;
    char method[64];
    snprintf(method, sizeof method, "tcp://127.0.0.1:%d", free_port());
    for (int rank = 0; rank < RANKS; rank++) {
        const struct tt_launcher launcher = {.rank = rank, .nranks = RANKS, .local_nranks = RANKS};
        REQUIRE(tt_unique_id_from_method(&ids[rank], method, &launcher, tt_deadline_ns(5000)) ==
                TT_OK);
        runs[rank] = rank_run_of(&ids[rank], rank, RANKS);
    }
    runs[1].nallgathers = 0;
    straggler.id = ids[2];
    REQUIRE(pthread_create(&thread, NULL, straggle, &straggler) == 0);
    run_ranks(runs, 2);
    pthread_join(thread, NULL);
    expect_ranks(&runs[0], 1, TT_ERR_REMOTE, "rank 2 (pid ");
    expect_ranks(&runs[1], 1, TT_OK, NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        runs[rank] = rank_run_by(method, rank, RANKS);
        runs[rank].timeout_ms = 5000;
    }
    run_ranks(runs, RANKS);
    expect_ranks(runs, RANKS, TT_OK, NULL);
}

TEST(join, no_descriptor_is_left_over)
{
    join_all(3, 8); /* whatever is opened once */
    const int64_t patience_ns = tt_deadline_ns(10000);
    const int before = count_descriptors();
    join_all(40, 8);
    /* The root's thread may be a little behind. */
    while (count_descriptors() > before && !tt_expired(patience_ns)) tt_test_pause();
    CHECK(count_descriptors() <= before);
}

static void leave(int nranks, int leaver)
{
    struct tt_unique_id id;
    struct rank_run runs[16];
    char text[64];
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    for (int rank = 0; rank < nranks; rank++) {
        runs[rank] = rank_run_of(&id, rank, nranks);
        if (rank == leaver) runs[rank].leave_before = 1;
    }
    run_ranks(runs, nranks);
    snprintf(text, sizeof text, "rank %d (pid ", leaver);
    for (int rank = 0; rank < nranks; rank++)
        if (rank != leaver) expect_ranks(&runs[rank], 1, TT_ERR_REMOTE, text);
}

TEST(allgather, a_rank_that_leaves_is_named_to_all)
{
    leave(12, 0);
    leave(12, 1);
    leave(12, 5);
    leave(12, 11);
}

TEST(allgather, other_lengths_on_other_ranks_are_an_error_on_all)
{
    struct tt_unique_id id;
    struct rank_run runs[10];
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    for (int rank = 0; rank < 10; rank++) {
        runs[rank] = rank_run_of(&id, rank, 10);
        if (rank == 9) runs[rank].nbytes = 8;
    }
    run_ranks(runs, 10);
    expect_ranks(runs, 10, TT_ERR_USAGE, "of 8 bytes on rank 9");
}

TEST(allgather, a_rank_that_is_late_is_named_at_the_deadline)
{
    struct tt_unique_id id;
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    struct rank_run runs[2] = {rank_run_of(&id, 0, 2), rank_run_of(&id, 1, 2)};
    runs[0].gather_timeout_ms = 100;
    runs[1].nallgathers = 0;
    runs[1].stay_for = &runs[0];
    run_ranks(runs, 2);
    expect_ranks(&runs[0], 1, TT_ERR_TIMEOUT, "rank 0 waited for rank 1 (pid ");
    expect_ranks(&runs[1], 1, TT_OK, NULL);
}

TEST(allgather, after_a_failure_every_call_fails_alike)
{
    struct tt_unique_id id;
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    struct rank_run runs[2] = {rank_run_of(&id, 0, 2), rank_run_of(&id, 1, 2)};
    runs[0].leave_before = 0;
    runs[1].try_again = true;
    run_ranks(runs, 2);
    expect_ranks(&runs[1], 1, TT_ERR_REMOTE, "rank 0 (pid ");
    tt_bootstrap_destroy(NULL);
}
