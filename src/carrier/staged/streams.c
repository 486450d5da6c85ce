/* What CUDA streams do for staged calls: they copy, store and wait. */
#include <stdio.h>

#include "carrier/gpu_stream.h"
#include "carrier/staged/staged.h"
#include "driver/capture.h"

/* The next call of the same communicator, behind `call` in the list. */
static const struct tt_pending_call *next_of_bounce(const struct tt_pending_call *call)
{
    const struct tt_pending_call *next = call->next;
    while (next && next->comm != call->comm) next = next->next;
    return next;
}

static bool is_first(const struct tt_calls *calls, const struct tt_pending_call *of)
{
    const struct tt_pending_call *call = calls->first;
    while (call->comm != of->comm) call = call->next;
    return call == of;
}

/* The bounce follows the streams of its calls, or (`before` is false) they follow it. */
static tt_status join(const struct tt_pending_call *first, bool before)
{
    const struct tt_staged_part *staged = first->comm->staged;
    if (staged->queue != staged->stream) return TT_OK; /* the stream of all of its calls */
    for (const struct tt_pending_call *call = first; call; call = next_of_bounce(call)) {
        void *users = tt_gpu_stream_handle(call->stage->stream);
        if (before)
            TT_TRY(tt_context_stream_follow(staged->context, staged->queue, users));
        else if (call->stage->stream)
            TT_TRY(tt_context_stream_follow(staged->context, users, staged->queue));
    }
    return TT_OK;
}

static tt_status copy_pieces(const struct tt_pending_call *call, bool in)
{
    const struct tt_staged_part *staged = call->comm->staged;
    const struct tt_stage *stage = call->stage;
    const struct tt_stage_piece *piece = stage->pieces + (in ? 0 : stage->nin);
    for (int n = in ? stage->nin : stage->nout; n > 0; n--, piece++)
        TT_TRY(tt_context_stream_copy(staged->context, staged->queue,
                                      in ? piece->staged : piece->users,
                                      in ? piece->users : piece->staged, piece->nbytes));
    return TT_OK;
}

static tt_status store(struct tt_staged_part *staged, uint32_t *word)
{
    return tt_context_stream_store(staged->context, staged->queue, word, staged->number);
}

/* Once: a second store would come when the memory may be freed. */
static tt_status tell_ended(struct tt_staged_part *staged)
{
    if (staged->has_told) return TT_OK;
    TT_TRY(store(staged, &staged->words->ended)); /* acquire: has_ended of part.c */
    staged->has_told = true;
    return TT_OK;
}

static tt_status copy_in(const struct tt_pending_call *first)
{
    struct tt_staged_part *staged = first->comm->staged;
    TT_TRY(join(first, true));
    TT_TRY(tt_context_event_wait(staged->context, staged->order, staged->queue));
    for (const struct tt_pending_call *call = first; call; call = next_of_bounce(call))
        TT_TRY(copy_pieces(call, true));
    return store(staged, &staged->words->in); /* acquire: ready of carrier.c */
}

/* Messages run behind collectives, as by kernels. */
static tt_status copy_out(const struct tt_pending_call *first)
{
    struct tt_staged_part *staged = first->comm->staged;
    TT_TRY(tt_context_stream_await(staged->context, staged->queue, &staged->words->done,
                                   staged->number));
    for (int messages = 0; messages < 2; messages++)
        for (const struct tt_pending_call *call = first; call; call = next_of_bounce(call))
            if ((call->kind != TT_CALL_COLLECTIVE) == messages) TT_TRY(copy_pieces(call, false));
    TT_TRY(tell_ended(staged));
    TT_TRY(tt_context_event_record(staged->context, staged->order, staged->queue));
    return join(first, false);
}

/* The driver refused what was to be queued for a bounce, so its communicator fails. What the stream
 * has got may use staging memory: it tells when it has done that. If the driver refuses that too,
 * the staging memory is never freed. */
static void check(const struct tt_pending_call *first, tt_status status)
{
    struct tt_staged_part *staged = first->comm->staged;
    if (!status) return;
    staged->failed = true;
    tt_ignore(tt_core_fail_call(first->comm, status));
    /* The host's part may have ended well before an output is refused. */
    for (const struct tt_pending_call *call = first; call; call = next_of_bounce(call))
        if (call->stage->stream) tt_stream_fail(call->stage->stream, status);
    tt_ignore(tell_ended(staged));
}

void tt_staged_copy_in(struct tt_calls *calls)
{
    tt_context_begin_work();
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (is_first(calls, call)) check(call, copy_in(call));
    tt_context_end_work();
}

void tt_staged_copy_out(struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (is_first(calls, call) && !call->comm->staged->failed) check(call, copy_out(call));
}
