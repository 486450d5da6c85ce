/* A call from its turn to its end, whatever its kind: waits for the turn, begins, is advanced,
 * waits until everything sent has left, gives the turn on; and what happens to it after a failure.
 */
#include "executor/work.h"

#include "base/clock.h"
#include "executor/internal.h"
#include "executor/stream.h"

/* How often a wait in which nothing moves looks at all wires. */
enum { DRIVE_TURNS = 16, DRIVE_RDMA_TURNS = 128 };

/* How long a call without a deadline (TUTTI_TIMEOUT_MS=0) that has failed waits for peers that use
 * its buffers: far longer than a copy takes. */
enum { WITHDRAWAL_S = TT_WITHDRAWAL_S };

void tt_work_note_begin(struct tt_work *work)
{
    work->state = TT_WORK_RUNNING;
    work->has_begun = true;
    work->engine->nbegun++;
}

static tt_status start(struct tt_work *work)
{
    TT_TRY(tt_fabric_check(work->engine->fabric)); /* issued before the failure */
    tt_work_note_begin(work);
    work->late.since_ns = 0;
    work->engine->report_ns = 0;
    return work->ops->start(work);
}

static tt_status advance_in_turn(struct tt_work *work)
{
    if (work->state == TT_WORK_WITHDRAWING) return work->status;
    if (work->state == TT_WORK_ISSUED) {
        TT_AWAIT(work->ops->ready(work));
        TT_TRY(start(work));
    }
    if (work->state == TT_WORK_RUNNING) TT_AWAIT(work->ops->advance(work));
    work->state = TT_WORK_LEAVING;
    return work->ops->flush(work);
}

/* A link that is polled advances its own wire. The other wires are advanced now and then, and
 * rarely when they carry only control frames. */
static tt_status drive_wires(struct tt_work *work, uint64_t progress)
{
    struct tt_engine *engine = work->engine;
    if (!engine->fabric->wires) return TT_IN_PROGRESS;
    engine->still = work->progress == progress ? engine->still + 1 : 0;
    const unsigned turns =
        tt_wires_by_sockets(engine->fabric->wires) ? DRIVE_TURNS : DRIVE_RDMA_TURNS;
    if ((engine->still + 1) % turns != 0) return TT_IN_PROGRESS;
    const tt_status status = tt_wires_progress(engine->fabric->wires);
    return status < 0 ? status : TT_IN_PROGRESS;
}

/* Where yields are quick a rank sleeps only in long waits: other ranks need not look after them
 * whether it is asleep. */
static void retire_sleep(struct tt_engine *engine)
{
    struct tt_sleep *sleep = &engine->fabric->host.sleep;
    if (atomic_load_explicit(&sleep->is_counted, memory_order_relaxed) &&
        !atomic_load_explicit(&engine->crowded_until_ns, memory_order_relaxed))
        tt_sleep_retire(sleep);
}

static void complete(struct tt_work *work, tt_status status)
{
    struct tt_engine *engine = work->engine;
    struct tt_stream *stream = work->stream;
    /* First: giving memory back may end connections, and the peers would not hear the cause. */
    if (status) tt_fabric_pass_on(engine->fabric);
    work->ops->end(work, status);
    retire_sleep(engine);
    engine->nbegun -= work->has_begun;
    work->status = status;
    work->progress++;
    work->state = TT_WORK_DONE;
    /* acquire: tt_work_advance */
    atomic_store_explicit(work->turns, work->turn, memory_order_release);
    atomic_fetch_sub_explicit(&engine->outstanding, 1, memory_order_release);
    if (stream) tt_stream_end(stream, status);
}

/* Until when a call that has failed waits for peers that use its buffers. Also where the deadline
 * is what failed, a peer that copies just now may end that. */
static void set_withdrawal_deadline(struct tt_work *work)
{
    if (!work->deadline_ns) work->deadline_ns = tt_deadline_ns(work->timeout_ms);
    if (work->deadline_ns == INT64_MAX)
        work->deadline_ns = tt_deadline_ns(WITHDRAWAL_S * 1000);
    else if (tt_expired(work->deadline_ns))
        work->deadline_ns = tt_deadline_ns(TT_GRACE_MS);
}

/* Completes the work; TT_IN_PROGRESS: later, when nobody reads or writes the caller's memory. */
static tt_status end(struct tt_work *work, tt_status status)
{
    if (status) {
        if (work->state != TT_WORK_WITHDRAWING) set_withdrawal_deadline(work);
        work->state = TT_WORK_WITHDRAWING;
        work->status = status;
        TT_AWAIT(work->ops->stop(work));
    }
    complete(work, status);
    return status;
}

tt_status tt_work_advance(struct tt_work *work)
{
    struct tt_engine *engine = work->engine;
    if (tt_work_is_done(work)) return work->status;
    /* release: complete, begin_express of collective.c, send_now of p2p.c, receive_now of p2p.c */
    /* release: tt_exchange_look_at_turns */
    if (atomic_load_explicit(work->turns, memory_order_acquire) + 1 != work->turn)
        return TT_IN_PROGRESS;
    if (!tt_engine_try_enter(engine)) {
        work->passed_over = true;
        return TT_IN_PROGRESS;
    }
    const uint64_t progress = work->progress;
    tt_status status = advance_in_turn(work);
    if (status == TT_IN_PROGRESS) status = drive_wires(work, progress);
    /* After a failure a peer may have freed what was read here by reference. */
    if (status == TT_OK) status = tt_fabric_check(engine->fabric);
    return tt_work_settle(work, status);
}

tt_status tt_work_settle(struct tt_work *work, tt_status status)
{
    struct tt_engine *engine = work->engine;
    if (status < 0) status = tt_fabric_fail_here(engine->fabric, status);
    if (status != TT_IN_PROGRESS) status = end(work, status);
    tt_engine_leave(engine);
    return status;
}

void tt_work_examine(struct tt_work *work)
{
    struct tt_engine *engine = work->engine;
    if (tt_work_is_done(work) || !tt_engine_try_enter(engine)) return;
    tt_status status = work->state == TT_WORK_WITHDRAWING ? work->status : tt_work_check(work);
    if (status) status = end(work, status);
    tt_engine_leave(engine);
}
