/* Tests of how many communicators a process has made from an address, and of processes that
 * disagree on that. */
#include <stdio.h>

#include "bootstrap/uses.h"
#include "ranks.h"
#include "shim.h"

/* The first round ended on rank 0 and failed on rank 1. */
TEST(uses, a_process_whose_attempt_failed_takes_the_count_of_rank_0)
{
    char method[64];
    struct rank_run runs[3];
    struct tt_use use;
    const int port = free_port();
    struct tt_user user = {.host = "127.0.0.1", .port = port, .nranks = 3};
    snprintf(method, sizeof method, "tcp://127.0.0.1:%d", port);
    for (int turn = 0; turn < 2; turn++) {
        for (user.rank = 0; user.rank < 3; user.rank++) {
            REQUIRE(tt_uses_find(&use, &user) == TT_OK);
            CHECK_EQ((int)use.count, 3 * turn);
            tt_uses_try(use.number, use.count);
            if (user.rank != 1) tt_uses_done(use.number, use.count + 1);
        }
        for (int rank = 0; rank < 3; rank++) runs[rank] = rank_run_by(method, rank, 3);
        run_ranks(runs, 3);
        expect_ranks(runs, 3, TT_OK, NULL);
    }
}

/* Nothing has failed: the processes have made other communicators from the address. */
TEST(uses, a_process_behind_rank_0_is_told_so)
{
    char method[64];
    struct rank_run runs[2];
    struct tt_use use;
    const int port = free_port();
    const struct tt_user user = {.host = "127.0.0.1", .port = port, .nranks = 2};
    snprintf(method, sizeof method, "tcp://127.0.0.1:%d", port);
    REQUIRE(tt_uses_find(&use, &user) == TT_OK);
    tt_uses_done(use.number, 0);
    for (int rank = 0; rank < 2; rank++) runs[rank] = rank_run_by(method, rank, 2);
    runs[0].timeout_ms = 300;
    run_ranks(runs, 2);
    expect_ranks(&runs[1], 1, TT_ERR_REMOTE, "rank 0 makes communicator 2 from this address");
}
