/* What a call on staging memory has in common with the CUDA stream that copies for it. Nothing here
 * calls the driver, which may wait for the end of this call. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "carrier/gpu_watch.h"
#include "carrier/staged/copies.h"

/* After a failure: how long copies are waited for, at most. */
enum { STOP_MS = 1000 };

static struct tt_staged_work *own(struct tt_work *work)
{
    return (struct tt_staged_work *)work;
}

static const struct tt_staged_work *own_const(const struct tt_work *work)
{
    return (const struct tt_staged_work *)work;
}

/* NULL: the user's stream copies. */
static struct tt_stage_portions *portions_of(const struct tt_work *work)
{
    return (struct tt_stage_portions *)work->portions;
}

/* ---- Portions, as the host asks for them ---------------------------------------------------- */

static bool has(const struct tt_work *work, uint64_t portion)
{
    const uint32_t number = (uint32_t)(portion + 1);
    /* release: the stream's store (store of copies.c) */
    return (int32_t)(__atomic_load_n(&own_const(work)->stage->words->in, __ATOMIC_ACQUIRE) -
                     number) >= 0;
}

/* The call would wait for copies that the driver has refused. */
static tt_status check_copies(struct tt_work *work)
{
    char cause[TT_ERROR_TEXT], name[128], call[160] = "";
    struct tt_fabric *fabric = work->engine->fabric;
    const tt_status status = tt_copies_check(own(work));
    if (status >= 0) return TT_OK;
    snprintf(cause, sizeof cause, "%s", tt_last_error());
    tt_fabric_name_rank(fabric, fabric->rank, name, sizeof name);
    work->ops->describe(work, call, sizeof call);
    return tt_fabric_fail(fabric, status, "%s: in %s the driver has refused a copy: %s", name, call,
                          cause);
}

/* Wants the first copies, in the call's turn. */
static tt_status begin_portions(struct tt_work *work)
{
    if (!portions_of(work)->want_in) {
        TT_TRY(tt_fabric_check(work->engine->fabric)); /* issued before the failure */
        TT_TRY(check_copies(work));
        tt_copies_want(own(work), 0);
    }
    return has(work, 0) ? TT_OK : TT_IN_PROGRESS;
}

static tt_status flush_writes(struct tt_work *work)
{
    return tt_context_orders_writes(own(work)->part->context) ? TT_OK : tt_copies_flush(own(work));
}

const struct tt_portions_ops tt_stage_portions_ops = {
    .begin = begin_portions, .has = has, .flush_writes = flush_writes};

/* ---- The call ------------------------------------------------------------------------------- */

/* A call begins when its stream has come to it, so that what the stream does before takes nothing
 * of its time. The first copies do: the driver may hold them up for as long as the call lasts. */
static tt_status ready(struct tt_work *work)
{
    const struct tt_staged_work *mine = own(work);
    /* release: the stream's store (tell_ready of streams.c) */
    if (__atomic_load_n(&mine->stage->words->ready, __ATOMIC_ACQUIRE) != mine->number)
        return TT_IN_PROGRESS;
    if (!work->deadline_ns) work->deadline_ns = tt_deadline_ns(work->timeout_ms);
    const bool chooses = mine->host == &tt_p2p_ops && work->p2p.on_device; /* its place, later */
    return work->portions && !chooses ? begin_portions(work) : TT_OK;
}

static tt_status start(struct tt_work *work)
{
    return own(work)->host->start(work);
}

/* Wants the copies for which there is room now that the call has come so far. ran: to its end. */
static void pass(struct tt_work *work, bool ran)
{
    const struct tt_stage_portions *portions = portions_of(work);
    const bool message = own(work)->host == &tt_p2p_ops;
    if (!portions || (message && work->p2p.on_device)) return;
    if (ran)
        tt_copies_want(own(work), portions->base.number);
    else if (portions->base.number > 1)
        tt_copies_want(own(work), message ? work->p2p.offset / portions->base.nbytes
                                          : tt_portions_finished(work));
}

static tt_status advance(struct tt_work *work)
{
    const tt_status status = own(work)->host->advance(work);
    if (status >= 0) pass(work, status == TT_OK);
    return status;
}

static tt_status flush(struct tt_work *work)
{
    if (work->portions && !tt_copies_are_made(own(work))) return TT_IN_PROGRESS;
    return own(work)->host->flush(work);
}

static tt_status check(struct tt_work *work)
{
    /* While the user's stream or copies are waited for, the GPU may be lost. */
    if (work->state == TT_WORK_ISSUED || work->portions)
        TT_TRY(tt_gpu_watch_check(own(work)->part->watch, work->engine->fabric, work, NULL));
    if (work->portions) TT_TRY(check_copies(work));
    return own(work)->host->check(work);
}

/* A GPU that is lost makes no copies any more. */
static bool has_copies(struct tt_work *work)
{
    if (!work->portions) return false;
    return !tt_copies_stop(own(work)) && tt_gpu_watch_look(own(work)->part->watch) >= 0;
}

/* The thread that queues copies may be in the driver until the end of this call: a failure waits
 * no longer for that than a call that has come to its deadline. */
static tt_status stop(struct tt_work *work)
{
    struct tt_staged_work *mine = own(work);
    if (has_copies(work)) {
        if (!mine->stop_ns) mine->stop_ns = tt_deadline_ns(STOP_MS);
        if (!tt_expired(work->deadline_ns) && !tt_expired(mine->stop_ns)) return TT_IN_PROGRESS;
        tt_fabric_add_to_failure(work->engine->fabric,
                                 "; copies of this rank's GPU have not ended and may still use its "
                                 "buffers: keep them until the GPU is idle");
    }
    return own(work)->host->stop(work);
}

/* Ends the work, and lets the stream go on, also after a failure. */
static void end(struct tt_work *work, tt_status status)
{
    const struct tt_staged_work *mine = own(work);
    struct tt_stage_words *words = mine->stage->words;
    mine->host->end(work, status);
    /* acquire: the stream's wait (copy_out of streams.c), or the graph's */
    if (mine->replayed)
        __atomic_store_n(&words->ready, TT_REPLAY_ENDED, __ATOMIC_RELEASE);
    else
        __atomic_store_n(&words->done, mine->number, __ATOMIC_RELEASE);
}

static void describe(const struct tt_work *work, char *text, size_t size)
{
    own_const(work)->host->describe(work, text, size);
    const size_t used = strlen(text);
    if (own_const(work)->replayed)
        snprintf(text + used, size - used, ", replayed from a CUDA graph,");
}

static void missing(const struct tt_work *work, char *text, size_t size)
{
    own_const(work)->host->missing(work, text, size);
}

static bool knows(const struct tt_work *work)
{
    return own_const(work)->host->knows(work);
}

static const struct tt_work_ops ops = {.ready = ready,
                                       .start = start,
                                       .advance = advance,
                                       .flush = flush,
                                       .check = check,
                                       .stop = stop,
                                       .end = end,
                                       .describe = describe,
                                       .missing = missing,
                                       .knows = knows};

/* ---- Begin ---------------------------------------------------------------------------------- */

static void begin_host(struct tt_work *work, struct tt_pending_call *pending)
{
    struct tt_engine *engine = &pending->comm->engine;
    if (pending->kind == TT_CALL_SEND)
        tt_work_send(work, engine, pending->data, pending->nbytes, pending->peer);
    else if (pending->kind == TT_CALL_RECV)
        tt_work_recv(work, engine, pending->data, pending->nbytes, pending->peer);
    else
        tt_work_collective(work, engine, &pending->call);
    if (pending->kind == TT_CALL_COLLECTIVE && !pending->is_deferred) /* else it is held */
        pending->cached->last_turn = work->turn;
}

void tt_staged_begin(struct tt_staged_work *mine, struct tt_pending_call *pending)
{
    struct tt_stage *stage = pending->stage;
    struct tt_work *work = &mine->work;
    begin_host(work, pending);
    stage->portions.nin = stage->nin;
    stage->portions.nout = stage->nout;
    if (stage->is_kept) { /* the copies of the last replay have been made */
        stage->portions.in = stage->portions.out = 0;
        stage->portions.want_in = stage->portions.want_out = 0;
        __atomic_store_n(&stage->words->in, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&stage->words->out, 0, __ATOMIC_RELAXED);
    }
    mine->stop_ns = 0;
    mine->flush = 0;
    mine->host = work->ops;
    mine->part = pending->comm->staged;
    mine->stage = stage;
    mine->number = stage->is_kept ? TT_REPLAY_BEGUN : stage->number;
    mine->replayed = stage->is_kept;
    work->ops = &ops;
    work->portions = stage->by_host ? &stage->portions.base : NULL;
    if (pending->kind == TT_CALL_COLLECTIVE)
        work->collective.keeps_table = stage->is_kept;
    else
        work->p2p.on_device = stage->on_device;
}
