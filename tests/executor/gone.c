/* A rank that is gone fails a call that another rank has not entered: but not where that one's
 * kernel may have done its part. */
#include <string.h>

#include "executor/calls.h"
#include "shim.h"

enum { NRANKS = 4, COUNT = 64, GONE = 2, LATE = 3 };

struct part {
    struct all_reduce call;
    int32_t data[COUNT];
};

/* An all-reduce in place, which the rank enters. */
static bool enter(struct ranks *ranks, int rank, struct part *part)
{
    return all_reduce_make(&part->call, ranks, rank, "ring", COUNT, part->data, part->data) &&
           tt_work_advance(&part->call.work) >= 0;
}

/* The late rank's GPU; -1: it has none. */
static tt_status check_with(bool is_mixed, int gpu)
{
    static struct part parts[NRANKS];
    const struct tt_fabric_config config = together_config();
    struct ranks ranks;
    tt_status status = TT_ERR_INTERNAL;
    if (!ranks_open(&ranks, NRANKS, &config)) return status;
    struct tt_fabric *fabric = ranks.all.fabrics[0];
    memset(parts, 0, sizeof parts);
    for (int r = 0; r < LATE; r++) CHECK(enter(&ranks, r, &parts[r]));
    fabric->peers[LATE].gpu = gpu;
    fabric->mixed.is_mixed = is_mixed;
    CHECK_EQ(tt_engine_check_gone(&ranks.engines[0]), TT_OK);
    atomic_store(&tt_fabric_record(fabric, GONE)->state, TT_RANK_LEFT);
    tt_fabric_note_gone(fabric, GONE, "rank 2 is gone");
    status = tt_engine_check_gone(&ranks.engines[0]);
    CHECK(status >= 0 || (strstr(tt_last_error(), "rank 2 is gone; all_reduce number 1") &&
                          strstr(tt_last_error(), "has not been entered by rank 3")));
    fabric->mixed.is_mixed = false;
    for (int r = 0; r < LATE; r++) tt_loaded_destroy(parts[r].call.loaded);
    ranks_close(&ranks);
    return status;
}

TEST(gone, a_rank_fails_a_call_that_a_rank_without_kernels_has_not_entered)
{
    CHECK_EQ(check_with(false, -1), TT_ERR_REMOTE);
    CHECK_EQ(check_with(false, 0), TT_ERR_REMOTE); /* the call is of the host */
    CHECK_EQ(check_with(true, -1), TT_ERR_REMOTE);
}

TEST(gone, a_rank_fails_no_call_in_which_a_kernel_may_have_run_for_a_rank_that_is_late)
{
    CHECK_EQ(check_with(true, 0), TT_OK);
}
