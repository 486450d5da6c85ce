/* Calls that have failed, whose kernels do not end. With launch_test.c one program. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "carrier/gpu_watch.h"
#include "carrier/kernel/work.h"
#include "device/device.h"
#include "shim.h"
#include "transport/host/segment.h"

/* The kernel waits for a rank that reads this rank's memory, and its call is at its deadline. Until
 * the host says 2, the kernel may wait for good; no call may follow that would say it. */
static void give_up(struct tt_work *work, struct tt_device_report *report)
{
    const int64_t stuck_ns = tt_deadline_ns(20000);
    work->deadline_ns = tt_now_ns();
    tt_status status;
    while ((status = work->ops->stop(work)) == TT_IN_PROGRESS && !tt_expired(stuck_ns))
        sched_yield();
    CHECK_EQ(status, TT_OK);
    CHECK(__atomic_load_n(&report->abort, __ATOMIC_RELAXED) > 1);
}

TEST(stop, a_call_does_not_leave_its_kernel_before_that_is_told_to_wait_for_nobody)
{
    struct tt_device *device = NULL;
    struct tt_peer_info peer = {.process_id = 1};
    struct tt_rank_record record = {.kernels = 1};
    struct tt_segment_header *header = calloc(1, sizeof *header);
    struct tt_segment segment = {.header = header};
    struct tt_fabric fabric = {.record = &record, .segment = &segment, .peers = &peer};
    atomic_init(&fabric.seen, &segment.header->failure);
    struct tt_engine engine = {.fabric = &fabric, .timeout_ms = 1};
    struct tt_device_report report = {.nbegun = 1, .begun = 1};
    struct tt_kernel_life life = {.report = &report, .nborrowed = 1};
    struct tt_program program = {.nchannels = 0};
    const struct tt_loaded loaded = {.program = &program};
    const struct tt_binding binding = {.nrounds = 0};
    const struct tt_call call = {.loaded = &loaded, .binding = &binding};
    REQUIRE(tt_device_open(0, &device) == TT_OK);
    REQUIRE(tt_gpu_watch_get(tt_device_context(device), &life.watch) == TT_OK);
    for (int i = 0; i < 2; i++) { /* the second one may not take back what was said */
        struct tt_kernel_work work;
        tt_kernel_begin_collective(&work, &life, &engine, &call);
        work.number = 1;
        work.uses_peers = true;
        give_up(&work.work, &report);
        CHECK_EQ(atomic_load(&record.kernels), 1);
        CHECK(strstr(fabric.own_failure, "keep them until the stream is done"));
    }
    tt_gpu_watch_put(life.watch);
    tt_device_close(device);
    free(header);
}
