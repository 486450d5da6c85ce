/* What the host makes of a kernel's report. */
#include "executor/kernel_run.h"

#include <stdlib.h>

#include "shim.h"
#include "transport/host/segment.h"

/* Until then other ranks keep the memory that it uses. */
TEST(kernel_run, a_kernel_that_runs_longer_than_its_call_uses_memory_of_others_until_it_ends)
{
    struct tt_rank_record record = {.reading = 2}; /* two calls */
    struct tt_segment_header *header = calloc(1, sizeof *header);
    struct tt_segment segment = {.header = header};
    struct tt_fabric fabric = {.record = &record, .segment = &segment};
    struct tt_engine engine = {.fabric = &fabric};
    struct tt_device_report report = {.nbegun = 1, .begun = 1};
    struct tt_work work = {.kind = TT_WORK_COLLECTIVE, .engine = &engine, .uses_peers = true};
    work.collective.call.kernel.report = &report;
    tt_work_complete(&work, TT_ERR_TIMEOUT);
    CHECK_EQ(atomic_load(&record.reading), 2);
    work.uses_peers = true;
    tt_work_complete(&work, TT_OK);
    CHECK_EQ(atomic_load(&record.reading), 1);
    tt_kernel_leave_all_peers(&engine);
    tt_kernel_leave_all_peers(&engine);
    CHECK_EQ(atomic_load(&record.reading), 0);
    free(header);
}

/* Calls 1 to 3 have ended, of which the third failed. */
TEST(kernel_run, the_failure_of_a_later_call_is_none_of_a_call_that_ended_before)
{
    struct tt_device_report report = {.nbegun = 3, .nended = 3, .begun = 3, .ended = 3, .sound = 2};
    struct tt_work work = {.kind = TT_WORK_COLLECTIVE};
    report.failure = TT_DEVICE_MISMATCH;
    work.collective.call.kernel.report = &report;
    for (uint64_t number = 1; number <= 2; number++) {
        work.collective.call.kernel.number = number;
        CHECK_EQ(tt_kernel_advance(&work), TT_OK);
    }
    work.collective.call.kernel.number = 4;
    CHECK_EQ(tt_kernel_advance(&work), TT_IN_PROGRESS);
}
