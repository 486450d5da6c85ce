/* What the host makes of a kernel's report. */
#include "executor/kernel_run.h"

#include "shim.h"

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
