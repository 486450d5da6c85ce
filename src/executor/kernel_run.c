/* Waits for calls that a kernel carries out, and ends them. */
#include "executor/kernel_run.h"

#include <stdio.h>

#include "executor/exchange.h"

/* Ranks that live have read within this time what a kernel that fails has sent by reference. */
enum { GRACE_MS = 1000 };

/* The report is memory that the GPU writes: each word is read once, in order. */
static uint64_t read_word(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

bool tt_kernel_has_begun(struct tt_work *work)
{
    const struct tt_kernel_run *kernel = tt_work_kernel(work);
    return read_word(&kernel->report->begun) >= kernel->number;
}

/* Of a report with a failure. A later call of the rank may have failed before this one is looked
 * at, and an earlier one, or a replay, may not have been looked at yet. */
static bool has_result(const struct tt_kernel_run *kernel)
{
    return kernel->number <= read_word(&kernel->report->sound);
}

static bool is_failed(const struct tt_kernel_run *kernel)
{
    return !read_word(&kernel->report->replay) &&
           kernel->number == read_word(&kernel->report->sound) + 1;
}

/* A failure that the host learns of by the kernel, which may not end before the host has aborted
 * the other ranks: it waits for those that read what it has sent by reference. */
static bool tells_why(uint32_t failure)
{
    return failure == TT_DEVICE_MISMATCH || failure == TT_DEVICE_IMPOSSIBLE;
}

tt_status tt_kernel_advance(struct tt_work *work)
{
    const struct tt_kernel_run *kernel = tt_work_kernel(work);
    const struct tt_device_report *report = kernel->report;
    const bool ended = read_word(&report->ended) >= kernel->number;
    const uint32_t failure = __atomic_load_n(&report->failure, __ATOMIC_ACQUIRE);
    if (!ended && !(tells_why(failure) && is_failed(kernel))) return TT_IN_PROGRESS;
    if (failure && has_result(kernel)) return TT_OK;
    if (failure && !is_failed(kernel)) {
        TT_TRY(tt_fabric_check(work->engine->fabric));
        return TT_IN_PROGRESS; /* until the call that has failed says why */
    }
    switch ((enum tt_device_failure)failure) {
    case TT_DEVICE_FINE:
        return TT_OK;
    case TT_DEVICE_MISMATCH:
        return work->kind == TT_WORK_EXCHANGE ? tt_exchange_mismatch(work)
                                              : tt_work_mismatch(work, report->peer);
    case TT_DEVICE_ABORTED: /* the failure that aborted it is the communicator's */
        TT_TRY(tt_fabric_check(work->engine->fabric));
        break;
    default:
        break;
    }
    return tt_fail(
        TT_ERR_INTERNAL,
        "GPU %d: the kernel ended with failure %u in part %u, step %u; this is a defect of "
        "tutti: please report it",
        tt_context_gpu(kernel->context), report->failure, report->channel, report->step);
}

tt_status tt_check_gpu(struct tt_fabric *fabric, struct tt_context *context, void *stream)
{
    if (tt_context_stream_query(context, stream) >= 0) return TT_OK;
    char cause[TT_ERROR_TEXT], name[128];
    snprintf(cause, sizeof cause, "%s", tt_last_error());
    tt_fabric_name_rank(fabric, fabric->rank, name, sizeof name);
    return tt_fabric_fail(fabric, TT_ERR_DEVICE, "%s: GPU %d is lost: %s", name,
                          tt_context_gpu(context), cause);
}

tt_status tt_kernel_check(struct tt_work *work)
{
    const struct tt_kernel_run *kernel = tt_work_kernel(work);
    return tt_check_gpu(work->engine->fabric, kernel->context, kernel->stream);
}

/* False: all have been given back already. */
static bool take_borrowed(struct tt_engine *engine)
{
    int n = atomic_load_explicit(&engine->nborrowed, memory_order_relaxed);
    while (n > 0 && !atomic_compare_exchange_weak_explicit(
                        &engine->nborrowed, &n, n - 1, memory_order_relaxed, memory_order_relaxed))
        continue;
    return n > 0;
}

void tt_kernel_leave_peers(struct tt_work *work)
{
    if (work->uses_peers && take_borrowed(work->engine)) tt_fabric_give_back(work->engine->fabric);
    work->uses_peers = false;
}

void tt_kernel_leave_all_peers(struct tt_engine *engine)
{
    while (take_borrowed(engine)) tt_fabric_give_back(engine->fabric);
}

/* A kernel that begins from now on sees the word before it uses any buffer: it writes nbegun, then
 * reads abort, with a fence in between, as here the change, which is one, in the other order. A
 * call that fails later does not take back what the kernels were told. */
void tt_kernel_abort(struct tt_device_report *report, int64_t *grace_ns)
{
    if (!*grace_ns) *grace_ns = tt_deadline_ns(GRACE_MS);
    (void)__atomic_fetch_or(&report->abort, tt_expired(*grace_ns) ? 2 : 1, __ATOMIC_SEQ_CST);
}

bool tt_kernel_waits_for_readers(const struct tt_device_report *report)
{
    return read_word(&report->abort) < 2;
}

bool tt_kernel_has_ended(const struct tt_device_report *report)
{
    const uint64_t nbegun = __atomic_load_n(&report->nbegun, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&report->nended, __ATOMIC_SEQ_CST) >= nbegun;
}

bool tt_kernel_has_stopped(const struct tt_device_report *report, struct tt_context *context,
                           void *stream)
{
    return tt_kernel_has_ended(report) || tt_context_stream_query(context, stream) < 0;
}

tt_status tt_kernel_stop(struct tt_work *work)
{
    const struct tt_kernel_run *kernel = tt_work_kernel(work);
    tt_kernel_abort(kernel->report, &work->grace_ns);
    if (!tt_kernel_has_stopped(kernel->report, kernel->context, kernel->stream))
        return TT_IN_PROGRESS;
    /* Also of calls behind this one, which are not looked at before it has ended: the other ranks'
     * calls wait for them, and this one for theirs. */
    tt_kernel_leave_all_peers(work->engine);
    return TT_OK;
}
