/* Calls that a kernel carries out: the host waits for the kernel's report, and looks at deadlines,
 * the dead and disagreeing peers as with any call. A call begins when its kernel does, so that what
 * the user's stream does before takes nothing of its time. */
#ifndef TT_EXECUTOR_KERNEL_RUN_H
#define TT_EXECUTOR_KERNEL_RUN_H

#include "executor/internal.h"

static inline bool tt_work_on_device(const struct tt_work *work)
{
    return work->kind == TT_WORK_EXCHANGE ||
           (work->kind == TT_WORK_COLLECTIVE && work->collective.call.kernel.report);
}

/* Of a work on a device. */
static inline struct tt_kernel_run *tt_work_kernel(struct tt_work *work)
{
    return work->kind == TT_WORK_EXCHANGE ? &work->exchange.kernel : &work->collective.call.kernel;
}

/* Whether the call's kernel has begun. */
bool tt_kernel_has_begun(struct tt_work *work);
/* TT_OK when the kernel has ended with the result; TT_IN_PROGRESS; or its failure. */
TT_NODISCARD tt_status tt_kernel_advance(struct tt_work *work);
/* A system call: fails the communicator where the GPU of the stream is lost. */
TT_NODISCARD tt_status tt_check_gpu(struct tt_fabric *fabric, struct tt_context *context,
                                    void *stream);
/* The same for the GPU of the call's kernel. */
TT_NODISCARD tt_status tt_kernel_check(struct tt_work *work);
/* The call's kernel has ended: it uses memory of other ranks no longer. */
void tt_kernel_leave_peers(struct tt_work *work);
/* No kernel of the rank runs any more, and one that begins later ends at once. */
void tt_kernel_leave_all_peers(struct tt_engine *engine);
/* After a failure: every kernel of the rank that has this report ends. *grace_ns: until when it may
 * wait for ranks that read what it has sent by reference; 0: not set yet. */
void tt_kernel_abort(struct tt_device_report *report, int64_t *grace_ns);
/* Whether it may still do so. */
bool tt_kernel_waits_for_readers(const struct tt_device_report *report);
/* All kernels of the rank that have begun have ended. */
bool tt_kernel_has_ended(const struct tt_device_report *report);
/* The same, or the GPU of the rank's stream is lost. */
bool tt_kernel_has_stopped(const struct tt_device_report *report, struct tt_context *context,
                           void *stream);
/* After a failure: makes every kernel of the rank end. TT_IN_PROGRESS: one may still use the
 * caller's buffers. */
TT_NODISCARD tt_status tt_kernel_stop(struct tt_work *work);

#endif
