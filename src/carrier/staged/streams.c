/* What CUDA streams do for staged calls: they copy, store and wait. */
#include <stdio.h>

#include "carrier/gpu_stream.h"
#include "carrier/staged/staged.h"
#include "driver/capture.h"

static tt_status copy_in(const struct tt_pending_call *pending)
{
    struct tt_context *context = pending->comm->staged->context;
    const struct tt_stage *stage = pending->stage;
    void *stream = tt_staged_stream(pending);
    if (!pending->stream) TT_TRY(tt_context_stream_follow(context, stream, NULL));
    TT_TRY(tt_context_event_wait(context, pending->comm->staged->order, stream));
    for (int i = 0; !stage->by_host && i < stage->nin; i++) {
        const struct tt_stage_piece *piece = &stage->pieces[i];
        TT_TRY(tt_context_stream_copy(context, stream, piece->staged, piece->users, piece->nbytes));
    }
    /* In a group, outputs of other streams are written after this. */
    TT_TRY(tt_context_event_record(context, pending->comm->staged->order, stream));
    /* acquire: ready of work.c */
    return tt_context_stream_store(context, stream, &stage->words->ready, stage->number);
}

/* Outputs are written in the order of the calls, whatever their streams. succeeded: of a call
 * without a stream, which has run; one that failed leaves the output. */
static tt_status copy_out(const struct tt_pending_call *pending, bool succeeded)
{
    struct tt_context *context = pending->comm->staged->context;
    const struct tt_stage *stage = pending->stage;
    void *stream = tt_staged_stream(pending);
    if (pending->stream) {
        TT_TRY(tt_context_event_wait(context, pending->comm->staged->order, stream));
        TT_TRY(tt_context_stream_await(context, stream, &stage->words->done, stage->number));
    }
    for (int i = stage->nin; succeeded && !stage->by_host && i < stage->nin + stage->nout; i++) {
        const struct tt_stage_piece *piece = &stage->pieces[i];
        TT_TRY(tt_context_stream_copy(context, stream, piece->users, piece->staged, piece->nbytes));
    }
    if (pending->stream) /* complete when it returns, where it has none */
        TT_TRY(tt_context_event_record(context, pending->comm->staged->order, stream));
    /* acquire: has_ended of memory.c */
    return tt_context_stream_store(context, stream, &stage->words->ended, stage->number);
}

void tt_staged_copy_in(struct tt_calls *calls)
{
    tt_context_begin_work();
    tt_staged_join(calls, true);
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        tt_staged_check_call(call, copy_in(call));
        if (!call->stream) tt_core_enter_call(call->comm);
    }
    tt_context_end_work();
}

void tt_staged_copy_out(struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (call->stream && !call->stage->failed) tt_staged_check_call(call, copy_out(call, true));
    tt_staged_join(calls, false);
}

tt_status tt_staged_give_up(struct tt_pending_call *pending)
{
    if (!pending->stage->failed) tt_staged_check_call(pending, copy_out(pending, false));
    const tt_status status = tt_fabric_check(pending->comm->fabric);
    tt_core_leave_call(pending->comm);
    return status;
}

/* Waits until the output is there, and leaves the call. */
static tt_status finish(const struct tt_pending_call *call)
{
    const struct tt_staged_part *staged = call->comm->staged;
    tt_status status = tt_fabric_check(call->comm->fabric);
    if (!status) {
        status = tt_context_stream_synchronize(staged->context, staged->stream);
        tt_staged_check_call(call, status);
    }
    return status;
}

tt_status tt_staged_finish(struct tt_calls *calls, tt_status status)
{
    char text[TT_ERROR_TEXT];
    snprintf(text, sizeof text, "%s", status ? tt_last_error() : "");
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        if (call->stream || call->stage->failed) continue;
        tt_staged_check_call(call, copy_out(call, !tt_fabric_failure_text(call->comm->fabric)[0]));
    }
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        if (call->stream) continue;
        const tt_status own = finish(call);
        if (own && !status) {
            status = own;
            snprintf(text, sizeof text, "%s", tt_last_error());
        }
        tt_core_leave_call(call->comm);
    }
    if (status) tt_set_last_error(text);
    return status;
}
