/* What a call on staging memory has in common with the CUDA stream that copies for it, and the
 * copies of its portions. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "carrier/gpu_watch.h"
#include "carrier/staged/staged.h"
#include "driver/capture.h"

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

/* ---- Copies --------------------------------------------------------------------------------- */

static tt_status copy(const struct tt_work *work, void *to, const void *from, size_t nbytes)
{
    return tt_context_stream_copy(own_const(work)->part->context, portions_of(work)->stream, to,
                                  from, nbytes);
}

/* Leaves out what is kept. */
static tt_status copy_out(const struct tt_work *work, char *users, const char *staged,
                          size_t nbytes)
{
    const struct tt_stage_portions *portions = portions_of(work);
    const char *const end = users + nbytes;
    if (portions->kept >= end || portions->kept_end <= users)
        return copy(work, users, staged, nbytes);
    if (portions->kept > users) TT_TRY(copy(work, users, staged, (size_t)(portions->kept - users)));
    if (portions->kept_end >= end) return TT_OK;
    const size_t after = (size_t)(end - portions->kept_end);
    return copy(work, users + (nbytes - after), staged + (nbytes - after), after);
}

static tt_status copy_part(const struct tt_work *work, int buffer, uint64_t portion, int32_t block,
                           int part)
{
    const struct tt_stage_portions *portions = portions_of(work);
    const struct tt_binding *binding = work->collective.call.binding;
    const size_t most = portions->base.rounds * binding->piece, skip = (size_t)portion * most;
    size_t begin;
    const size_t length = tt_binding_part(binding, block, part, &begin);
    if (length <= skip) return TT_OK;
    const size_t count = length - skip < most ? length - skip : most;
    char *users = portions->users[buffer] + (begin + skip) * binding->element;
    char *staged = portions->base.memory + tt_portion_place(&portions->base, portion) +
                   tt_portion_part(work, buffer, block, part);
    return buffer == TT_INPUT ? copy(work, staged, users, count * binding->element)
                              : copy_out(work, users, staged, count * binding->element);
}

static tt_status copy_rounds(const struct tt_work *work, int buffer, uint64_t portion)
{
    const struct tt_program_blocks *held = &tt_work_program(work)->held[buffer];
    const int nparts = (int)work->collective.binding.parts[0].nparts;
    for (int32_t i = 0; i < held->number; i++)
        for (int part = 0; part < nparts; part++)
            TT_TRY(copy_part(work, buffer, portion, held->first + i, part));
    return TT_OK;
}

static tt_status copy_message(const struct tt_work *work, int buffer, uint64_t portion)
{
    const struct tt_stage_portions *portions = portions_of(work);
    const size_t at = (size_t)portion * portions->base.nbytes, left = work->p2p.nbytes - at;
    const size_t nbytes = left < portions->base.nbytes ? left : portions->base.nbytes;
    char *users = portions->users[buffer] + at;
    char *staged = portions->base.memory + tt_portion_place(&portions->base, portion);
    return buffer == TT_INPUT ? copy(work, staged, users, nbytes)
                              : copy(work, users, staged, nbytes);
}

static tt_status copy_portion(const struct tt_work *work, int buffer, uint64_t portion)
{
    if (own_const(work)->host == &tt_p2p_ops)
        return work->p2p.sends == (buffer == TT_INPUT) ? copy_message(work, buffer, portion)
                                                       : TT_OK;
    return tt_is_divided(work) ? copy_rounds(work, buffer, portion) : TT_OK;
}

static tt_status queue_in(struct tt_work *work)
{
    const struct tt_staged_work *mine = own_const(work);
    struct tt_stage_portions *portions = portions_of(work);
    for (int i = 0; portions->in == 0 && i < portions->nin; i++) {
        const struct tt_stage_piece *piece = &portions->pieces[i];
        TT_TRY(copy(work, piece->staged, piece->users, piece->nbytes));
    }
    TT_TRY(copy_portion(work, TT_INPUT, portions->in));
    /* acquire: has */
    TT_TRY(tt_context_stream_store(mine->part->context, portions->stream, &mine->stage->words->in,
                                   (uint32_t)(portions->in + 1)));
    portions->in++;
    return TT_OK;
}

static tt_status queue_out(struct tt_work *work)
{
    const struct tt_staged_work *mine = own_const(work);
    struct tt_stage_portions *portions = portions_of(work);
    const bool is_last = portions->out + 1 == portions->base.number;
    TT_TRY(copy_portion(work, TT_OUTPUT, portions->out));
    for (int i = portions->nin; is_last && i < portions->nin + portions->nout; i++) {
        const struct tt_stage_piece *piece = &portions->pieces[i];
        TT_TRY(copy(work, piece->users, piece->staged, piece->nbytes));
    }
    /* acquire: are_copied */
    TT_TRY(tt_context_stream_store(mine->part->context, portions->stream, &mine->stage->words->out,
                                   (uint32_t)(portions->out + 1)));
    portions->out++;
    return TT_OK;
}

/* The copies back of portions that are finished, then those of the next ones, which take their
 * places. */
static tt_status queue_copies(struct tt_work *work, uint64_t finished)
{
    struct tt_stage_portions *portions = portions_of(work);
    while (portions->out < finished) {
        TT_TRY(queue_out(work));
        work->progress++;
    }
    while (portions->in < portions->base.number && portions->in < finished + 2)
        TT_TRY(queue_in(work));
    return TT_OK;
}

/* ---- Portions, as the host asks for them ---------------------------------------------------- */

static bool has(const struct tt_work *work, uint64_t portion)
{
    const uint32_t number = (uint32_t)(portion + 1);
    if (portions_of(work)->in <= portion) return false;
    /* release: the stream's store (queue_in) */
    return (int32_t)(__atomic_load_n(&own_const(work)->stage->words->in, __ATOMIC_ACQUIRE) -
                     number) >= 0;
}

/* Queues the first copies, in the call's turn. */
static tt_status begin_portions(struct tt_work *work)
{
    const struct tt_staged_work *mine = own(work);
    struct tt_stage_portions *portions = portions_of(work);
    if (!portions->in) {
        TT_TRY(tt_fabric_check(work->engine->fabric)); /* issued before the failure */
        /* Has happened, but the GPU shall know that the copies come after. */
        TT_TRY(tt_context_stream_await(mine->part->context, portions->stream,
                                       &mine->stage->words->ready, mine->number));
        TT_TRY(queue_copies(work, 0));
    }
    return has(work, 0) ? TT_OK : TT_IN_PROGRESS;
}

static tt_status flush_writes(struct tt_work *work)
{
    return tt_context_flush_writes(own(work)->part->context);
}

const struct tt_portions_ops tt_stage_portions_ops = {
    .begin = begin_portions, .has = has, .flush_writes = flush_writes};

/* ---- The call ------------------------------------------------------------------------------- */

/* A call begins when its input is there, so that what the stream does before takes nothing of its
 * time. */
static tt_status ready(struct tt_work *work)
{
    const struct tt_staged_work *mine = own(work);
    /* release: the stream's store (copy_in of call.c) */
    if (__atomic_load_n(&mine->stage->words->ready, __ATOMIC_ACQUIRE) != mine->number)
        return TT_IN_PROGRESS;
    const bool chooses = mine->host == &tt_p2p_ops && work->p2p.on_device; /* its place, later */
    return work->portions && !chooses ? begin_portions(work) : TT_OK;
}

static tt_status start(struct tt_work *work)
{
    return own(work)->host->start(work);
}

/* Queues the copies for which there is room now that the call has come so far. ran: to its end. */
static tt_status pass(struct tt_work *work, bool ran)
{
    const struct tt_stage_portions *portions = portions_of(work);
    const bool message = own(work)->host == &tt_p2p_ops;
    if (!portions || (message && work->p2p.on_device)) return TT_OK;
    if (ran) return queue_copies(work, portions->base.number);
    if (portions->base.number == 1) return TT_OK;
    return queue_copies(work, message ? work->p2p.offset / portions->base.nbytes
                                      : tt_portions_finished(work));
}

static tt_status advance(struct tt_work *work)
{
    const tt_status status = own(work)->host->advance(work);
    if (status >= 0) TT_TRY(pass(work, status == TT_OK));
    return status;
}

/* Whether all copies that were queued have been made. */
static bool are_copied(const struct tt_work *work)
{
    const struct tt_stage_portions *portions = portions_of(work);
    if (!portions) return true;
    const struct tt_stage_words *words = own_const(work)->stage->words;
    /* release: the stream's stores (queue_in, queue_out) */
    return __atomic_load_n(&words->in, __ATOMIC_ACQUIRE) == (uint32_t)portions->in &&
           __atomic_load_n(&words->out, __ATOMIC_ACQUIRE) == (uint32_t)portions->out;
}

static tt_status flush(struct tt_work *work)
{
    if (!are_copied(work)) return TT_IN_PROGRESS;
    return own(work)->host->flush(work);
}

/* While the user's stream or copies are waited for, the GPU may be lost. */
static tt_status check_gpu(const struct tt_work *work)
{
    struct tt_fabric *fabric = work->engine->fabric;
    const struct tt_staged_part *part = own_const(work)->part;
    if (tt_gpu_watch_look(part->watch) >= 0) return TT_OK;
    char cause[TT_ERROR_TEXT], name[128];
    snprintf(cause, sizeof cause, "%s", tt_last_error());
    tt_fabric_name_rank(fabric, fabric->rank, name, sizeof name);
    return tt_fabric_fail(fabric, TT_ERR_DEVICE, "%s: GPU %d is lost: %s", name,
                          tt_context_gpu(part->context), cause);
}

static tt_status check(struct tt_work *work)
{
    if (work->state == TT_WORK_ISSUED || work->portions) TT_TRY(check_gpu(work));
    return own(work)->host->check(work);
}

/* Whether copies are on their way, also such that are not counted because what was to be queued
 * behind them could not be. A GPU that is lost makes none any more. */
static bool has_copies(const struct tt_work *work)
{
    const struct tt_staged_part *part = own_const(work)->part;
    if (!work->portions || tt_gpu_watch_look(part->watch) < 0) return false;
    return !are_copied(work) ||
           tt_context_stream_query(part->context, portions_of(work)->stream) == TT_IN_PROGRESS;
}

static tt_status stop(struct tt_work *work)
{
    if (has_copies(work)) {
        if (!tt_expired(work->deadline_ns)) return TT_IN_PROGRESS;
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
    /* acquire: the stream's wait (copy_out of call.c), or the graph's */
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
        __atomic_store_n(&stage->words->in, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&stage->words->out, 0, __ATOMIC_RELAXED);
    }
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
