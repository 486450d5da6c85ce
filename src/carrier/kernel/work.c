/* Waits for calls that a kernel carries out, and ends them. */
#include "carrier/kernel/work.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/pause.h"
#include "carrier/gpu_watch.h"
#include "carrier/kernel/proxy.h"

/* Ranks that live have read within this time what a kernel that fails has sent by reference. */
enum { GRACE_MS = 1000 };
/* How long calls of other ranks have to end before a call that was refused fails the communicator.
 */
enum { REFUSED_MS = 1000 };
/* How long an abort waits for that. */
enum { AWAIT_REFUSED_MS = REFUSED_MS + 500 };

static struct tt_kernel_work *own(struct tt_work *work)
{
    return (struct tt_kernel_work *)work;
}

static const struct tt_kernel_work *own_const(const struct tt_work *work)
{
    return (const struct tt_kernel_work *)work;
}

/* ---- Its kernel ----------------------------------------------------------------------------- */

/* False: all have been given back already. */
static bool take_borrowed(struct tt_kernel_life *life)
{
    int n = atomic_load_explicit(&life->nborrowed, memory_order_relaxed);
    while (n > 0 && !atomic_compare_exchange_weak_explicit(
                        &life->nborrowed, &n, n - 1, memory_order_relaxed, memory_order_relaxed))
        continue;
    return n > 0;
}

void tt_kernel_leave_all_peers(struct tt_kernel_life *life, struct tt_fabric *fabric)
{
    while (take_borrowed(life)) tt_fabric_end_kernel(fabric);
}

/* A kernel that begins from now on sees the word before it uses any buffer: it writes nbegun, then
 * reads abort, with a fence in between, as here the change, which is one, in the other order. A
 * call that fails later does not take back what the kernels were told. */
void tt_kernel_abort(const struct tt_kernel_life *life, int64_t *grace_ns)
{
    if (!*grace_ns) *grace_ns = tt_deadline_ns(GRACE_MS);
    (void)__atomic_fetch_or(&life->report->abort, tt_expired(*grace_ns) ? 2 : 1, __ATOMIC_SEQ_CST);
}

bool tt_kernel_has_ended(const struct tt_kernel_life *life)
{
    const uint64_t nbegun = __atomic_load_n(&life->report->nbegun, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&life->report->nended, __ATOMIC_SEQ_CST) >= nbegun;
}

bool tt_kernel_has_stopped(const struct tt_kernel_life *life)
{
    return tt_kernel_has_ended(life) || tt_gpu_watch_look(life->watch) < 0;
}

bool tt_kernel_has_unrecorded(const struct tt_kernel_life *life)
{
    const uint64_t last = atomic_load_explicit(&life->unrecorded, memory_order_relaxed);
    const bool runs = tt_read_word(&life->report->ended) < last || !tt_kernel_has_ended(life);
    return last && runs && tt_gpu_watch_look(life->watch) >= 0;
}

/* ---- Begin ---------------------------------------------------------------------------------- */

/* Whether a kernel of another rank of this host runs. */
static bool any_runs(const struct tt_fabric *fabric)
{
    for (int r = 0; r < fabric->nranks; r++) {
        const struct tt_rank_record *record = tt_fabric_record(fabric, r);
        /* release: tt_fabric_end_kernel */
        if (r != fabric->rank && atomic_load_explicit(&record->kernels, memory_order_acquire) &&
            atomic_load_explicit(&record->state, memory_order_acquire) == TT_RANK_HERE &&
            !tt_fabric_is_dead(fabric, r))
            return true;
    }
    return false;
}

/* Fails the communicator, because other ranks may wait for the call, but not before what would end:
 * this rank's calls before, and those of other ranks in a short time. */
static tt_status fail_refused(struct tt_kernel_work *mine)
{
    const struct tt_engine *engine = mine->work.engine;
    const struct tt_kernel_refusal *refusal = mine->refusal;
    TT_TRY(tt_fabric_check(engine->fabric));
    /* release: complete of executor/work.c */
    if (atomic_load_explicit(&engine->collectives_done, memory_order_acquire) <
            refusal->collectives ||
        atomic_load_explicit(&mine->life->exchanges_done, memory_order_acquire) <
            refusal->exchanges)
        return TT_IN_PROGRESS;
    if (!mine->refused_ns) mine->refused_ns = tt_deadline_ns(REFUSED_MS);
    const bool may_run = engine->fabric->wires || any_runs(engine->fabric); /* elsewhere, or here */
    if (may_run && !tt_expired(mine->refused_ns)) return TT_IN_PROGRESS;
    return tt_fabric_fail(engine->fabric, TT_ERR_REMOTE, "%s", refusal->text);
}

void tt_kernel_await_refused(const struct tt_kernel_refusal *refusal,
                             const struct tt_fabric *fabric)
{
    const int64_t deadline_ns = tt_deadline_ns(AWAIT_REFUSED_MS);
    struct tt_pause pause = {0};
    if (!atomic_load(&refusal->is_there)) return;
    while (!tt_fabric_failure(fabric, NULL) && !tt_expired(deadline_ns)) tt_pause(&pause);
}

static tt_status ready(struct tt_work *work)
{
    struct tt_kernel_work *mine = own(work);
    if (mine->refusal) return fail_refused(mine);
    return tt_read_word(&mine->life->report->begun) >= mine->number ? TT_OK : TT_IN_PROGRESS;
}

/* Ranks of other hosts learn of each collective, as with messages of the host: of two that follow
 * one another the first may be the one in which ranks differ. */
static tt_status start_collective(struct tt_work *work)
{
    struct tt_wires *wires = work->engine->fabric->wires;
    struct tt_proxy *proxy = own(work)->life->proxy;
    tt_record_entry(work->engine, work->collective.call, work->turn);
    if (proxy) tt_proxy_grant_program(proxy, tt_work_program(work), work->collective.binding);
    if (wires) tt_wires_send_record(wires);
    return TT_OK;
}

static tt_status start_exchange(struct tt_work *work)
{
    (void)work;
    return TT_OK;
}

/* ---- The result ----------------------------------------------------------------------------- */

/* Of a report with a failure. A later call of the rank may have failed before this one is looked
 * at, and an earlier one, or a replay, may not have been looked at yet. */
static bool has_result(const struct tt_kernel_work *mine)
{
    return mine->number <= tt_read_word(&mine->life->report->sound);
}

static bool is_failed(const struct tt_kernel_work *mine)
{
    const struct tt_device_report *report = mine->life->report;
    return !tt_read_word(&report->replay) && mine->number == tt_read_word(&report->sound) + 1;
}

/* A failure that the host learns of by the kernel, which may not end before the host has aborted
 * the other ranks: it waits for those that read what it has sent by reference. */
static bool tells_why(uint32_t failure)
{
    return failure == TT_DEVICE_MISMATCH || failure == TT_DEVICE_IMPOSSIBLE;
}

static tt_status mismatch(struct tt_work *work)
{
    const struct tt_kernel_work *mine = own(work);
    const struct tt_device_report *report = mine->life->report;
    return mine->exchange ? tt_exchange_mismatch(mine->exchange, work->engine->fabric, report)
                          : tt_collective_mismatch(work, report->peer);
}

static tt_status advance(struct tt_work *work)
{
    const struct tt_kernel_work *mine = own(work);
    const struct tt_device_report *report = mine->life->report;
    if (mine->exchange && work->engine->fabric->mixed.is_mixed)
        tt_exchange_look_at_turns(mine->exchange, work->engine, mine->life->proxy);
    const bool ended = tt_read_word(&report->ended) >= mine->number;
    const uint32_t failure = __atomic_load_n(&report->failure, __ATOMIC_ACQUIRE);
    if (!ended && !(tells_why(failure) && is_failed(mine))) return TT_IN_PROGRESS;
    if (failure && has_result(mine)) return TT_OK;
    if (failure && !is_failed(mine)) {
        TT_TRY(tt_fabric_check(work->engine->fabric));
        return TT_IN_PROGRESS; /* until the call that has failed says why */
    }
    switch ((enum tt_device_failure)failure) {
    case TT_DEVICE_FINE:
        return TT_OK;
    case TT_DEVICE_MISMATCH:
        return mismatch(work);
    case TT_DEVICE_ABORTED: /* the failure that aborted it is the communicator's */
        TT_TRY(tt_fabric_check(work->engine->fabric));
        break;
    default:
        break;
    }
    return tt_fail(TT_ERR_INTERNAL,
                   "GPU %d: the kernel ended with failure %u in part %u, step %u; this is a defect "
                   "of tutti: please report it",
                   mine->life->gpu, report->failure, report->channel, report->step);
}

/* Inside a host kernels publish and release in memory of GPUs. What goes to other hosts must be on
 * its way: the process may end after the call. What is published when the kernel is seen to have
 * ended is waited for; later calls go on meanwhile. */
static tt_status flush_exchange(struct tt_work *work)
{
    struct tt_kernel_work *mine = own(work);
    struct tt_proxy *proxy = mine->life->proxy;
    const enum tt_bridge_mark mark = mine->exchange ? TT_BRIDGE_EXCHANGES : TT_BRIDGE_COLLECTIVES;
    return !proxy || tt_proxy_has_sent(proxy, mark, &mine->has_marked) ? TT_OK : TT_IN_PROGRESS;
}

static tt_status flush_collective(struct tt_work *work)
{
    const struct tt_fabric *fabric = work->engine->fabric;
    const tt_status sent = flush_exchange(work);
    return fabric->wires && !tt_wires_flushed(fabric->wires) ? TT_IN_PROGRESS : sent;
}

/* ---- Checks --------------------------------------------------------------------------------- */

static tt_status check_collective(struct tt_work *work)
{
    TT_TRY(tt_gpu_watch_check(own(work)->life->watch, work->engine->fabric, work, NULL));
    return own(work)->refusal ? TT_OK : tt_collective_check(work);
}

static tt_status check_exchange(struct tt_work *work)
{
    struct tt_kernel_work *mine = own(work);
    TT_TRY(tt_gpu_watch_check(mine->life->watch, work->engine->fabric, work, NULL));
    /* As a call without its turn: its time begins when the earlier calls of this rank have ended */
    if (tt_exchange_is_behind(mine->exchange, work->engine->fabric)) work->deadline_ns = 0;
    return mine->refusal ? TT_OK
                         : tt_exchange_check(mine->exchange, work->engine->fabric, &mine->gone);
}

/* ---- End ------------------------------------------------------------------------------------ */

/* TT_OK: no kernel of the rank may use the caller's buffers any more. */
static tt_status stop_kernel(struct tt_kernel_work *mine)
{
    tt_kernel_abort(mine->life, &mine->grace_ns);
    if (!tt_kernel_has_stopped(mine->life)) return TT_IN_PROGRESS;
    /* Kernels of calls behind this one have stopped too. Those calls are not looked at before this
     * one has ended: the other ranks' calls wait for them, and this one for theirs. */
    tt_kernel_leave_all_peers(mine->life, mine->work.engine->fabric);
    return TT_OK;
}

/* The kernel may run longer than its call: the other ranks keep their memory until it has ended
 * (leave_peers), and the failure's text tells the user to keep the buffers. But it must end: nobody
 * stops it after the call. So the call ends, whatever its deadline, when the kernel has been told
 * to wait for no reader any more, and has had time to see that. */
static tt_status await_kernel(struct tt_kernel_work *mine)
{
    struct tt_work *work = &mine->work;
    const bool waits = tt_read_word(&mine->life->report->abort) < 2; /* for readers */
    if (stop_kernel(mine) == TT_OK) return TT_OK;
    if (!tt_expired(work->deadline_ns)) return TT_IN_PROGRESS;
    if (waits) {
        work->deadline_ns = tt_deadline_ns(TT_GRACE_MS);
        return TT_IN_PROGRESS;
    }
    tt_fabric_add_to_failure(work->engine->fabric,
                             "; this rank's kernel has not ended and may still use its buffers: "
                             "keep them until the stream is done");
    return TT_OK;
}

/* A kernel ends when nobody reads what it has sent by reference any more, unless it was told 2. */
static tt_status stop(struct tt_work *work)
{
    const struct tt_kernel_work *mine = own(work);
    TT_AWAIT(await_kernel(own(work)));
    return tt_read_word(&mine->life->report->abort) < 2 ? TT_OK : tt_await_kernels(work);
}

/* The call's kernel has ended: it uses memory of other ranks no longer. */
static void leave_peers(struct tt_kernel_work *mine)
{
    if (mine->uses_peers && take_borrowed(mine->life))
        tt_fabric_end_kernel(mine->work.engine->fabric);
    mine->uses_peers = false;
}

void tt_kernel_refuse(struct tt_kernel_work *mine, struct tt_kernel_refusal *refusal)
{
    uint64_t *before = mine->exchange ? &refusal->exchanges : &refusal->collectives;
    /* Only of the group in which the first call was refused */
    if (mine->work.turn <= *before) *before = mine->work.turn - 1;
    mine->refusal = refusal;
    leave_peers(mine);
}

/* Ranks of other hosts learn that this one has done its part: they miss it no more if it dies. */
static void end_collective(struct tt_work *work, tt_status status)
{
    if (!status) leave_peers(own(work));
    tt_collective_end(work, status);
    struct tt_wires *wires = work->engine->fabric->wires;
    if (!status && own(work)->life->proxy && wires) tt_wires_send_record(wires);
}

static void end_exchange(struct tt_work *work, tt_status status)
{
    if (!status) leave_peers(own(work));
    tt_exchange_release(own(work)->exchange);
}

/* ---- Texts ---------------------------------------------------------------------------------- */

static void describe_exchange(const struct tt_work *work, char *text, size_t size)
{
    tt_exchange_describe(own_const(work)->exchange, text, size);
}

static void missing_of_exchange(const struct tt_work *work, char *text, size_t size)
{
    tt_exchange_missing(own_const(work)->exchange, work->engine->fabric, text, size);
}

/* The kernel says which messages are missing. */
static bool knows_of_exchange(const struct tt_work *work)
{
    (void)work;
    return true;
}

/* ---- The kinds ------------------------------------------------------------------------------ */

static const struct tt_work_ops collective_ops = {.ready = ready,
                                                  .start = start_collective,
                                                  .advance = advance,
                                                  .flush = flush_collective,
                                                  .check = check_collective,
                                                  .stop = stop,
                                                  .end = end_collective,
                                                  .describe = tt_collective_describe,
                                                  .missing = tt_collective_missing,
                                                  .knows = tt_collective_knows};
static const struct tt_work_ops exchange_ops = {.ready = ready,
                                                .start = start_exchange,
                                                .advance = advance,
                                                .flush = flush_exchange,
                                                .check = check_exchange,
                                                .stop = stop,
                                                .end = end_exchange,
                                                .describe = describe_exchange,
                                                .missing = missing_of_exchange,
                                                .knows = knows_of_exchange};

void tt_kernel_begin_collective(struct tt_kernel_work *mine, struct tt_kernel_life *life,
                                struct tt_engine *engine, const struct tt_call *call)
{
    *mine = (struct tt_kernel_work){.life = life};
    tt_collective_issue(&mine->work, engine, call, &collective_ops);
}

void tt_kernel_begin_exchange(struct tt_kernel_work *mine, struct tt_kernel_life *life,
                              struct tt_engine *engine, struct tt_group_exchange *exchange,
                              uint64_t turn)
{
    *mine = (struct tt_kernel_work){.work = {.ops = &exchange_ops,
                                             .engine = engine,
                                             .turns = &life->exchanges_done,
                                             .turn = turn,
                                             .timeout_ms = tt_engine_timeout(engine)},
                                    .life = life,
                                    .number = exchange->number,
                                    .exchange = exchange};
    atomic_fetch_add_explicit(&engine->outstanding, 1, memory_order_relaxed);
}
