/* What the host makes of a kernel's report. */
#include "executor/kernel_run.h"

#include "executor/exchange.h"
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

/* The table of an exchange that has ended may be overwritten by a later call's. */
TEST(kernel_run, the_table_of_an_exchange_that_has_ended_says_nothing)
{
    struct {
        struct tt_device_exchange head;
        struct tt_device_flow flows[2];
    } table = {.head = {.nflows = 1000000}, .flows = {{.peer = 123456}, {.peer = 654321}}};
    struct tt_device_report report = {.begun = 8, .ended = 8};
    struct tt_fabric fabric = {.rank = 0};
    struct tt_engine engine = {.fabric = &fabric};
    struct tt_group_exchange exchange = {.table = &table.head, .ncalls = 2};
    const struct tt_work work = {
        .engine = &engine,
        .kind = TT_WORK_EXCHANGE,
        .exchange = {.exchange = &exchange, .kernel = {.report = &report, .number = 7}}};
    char text[400] = "before";
    tt_exchange_list_missing(&work, text, sizeof text);
    CHECK_STR(text, "");
}
