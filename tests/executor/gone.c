/* A rank that is gone fails a call that another rank has not entered: but not where that one's
 * kernel may have done its part. */
#include <string.h>

#include "algorithms/algorithms.h"
#include "executor/calls.h"
#include "program/lower.h"
#include "shim.h"

enum { NRANKS = 4, COUNT = 64, GONE = 2, LATE = 3 };

struct part {
    struct tt_loaded *loaded;
    struct tt_binding binding;
    struct tt_work work;
    int32_t data[COUNT];
};

/* An all-reduce in place, which the rank enters. */
static bool enter(struct ranks *ranks, int rank, struct part *part)
{
    struct tt_fabric *fabric = ranks->all.fabrics[rank];
    const struct tt_segment_header *header = fabric->segment->header;
    const struct tt_limits limits = {.slot_bytes = header->slot_bytes,
                                     .meet_bytes = header->meet_bytes};
    const struct tt_shape shape = {
        .collective = TT_ALL_REDUCE, .nranks = NRANKS, .hosts = fabric->hosts};
    struct tt_program *program;
    if (tt_program_create(tt_algorithm_find(TT_ALL_REDUCE, "ring"), &shape, rank, &program) ||
        tt_loaded_create(program, fabric, &part->loaded) ||
        tt_program_bind(program, COUNT, sizeof *part->data, &limits, &part->binding))
        return false;
    struct tt_call call = {.loaded = part->loaded,
                           .binding = &part->binding,
                           .input = part->data,
                           .output = part->data,
                           .reduction = {.type = TT_INT32, .op = TT_SUM, .nranks = NRANKS}};
    call.signature = tt_call_signature(program, COUNT, &call.reduction);
    call.entry = tt_call_entry_make(program, COUNT, &call.reduction);
    tt_work_collective(&part->work, &ranks->engines[rank], &call);
    return tt_work_advance(&part->work) >= 0;
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
    for (int r = 0; r < LATE; r++) tt_loaded_destroy(parts[r].loaded);
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
