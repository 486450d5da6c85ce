/* What CUDA streams do for staged calls: they copy, store and wait. */
#include <stdio.h>

#include "carrier/gpu_stream.h"
#include "carrier/staged/staged.h"
#include "driver/capture.h"

/* Copies the input on the stream, behind the outputs that were queued before. */
static tt_status copy_input(const struct tt_pending_call *pending, void *stream)
{
    struct tt_context *context = pending->comm->staged->context;
    const struct tt_stage *stage = pending->stage;
    TT_TRY(tt_context_event_wait(context, pending->comm->staged->order, stream));
    for (int i = 0; !stage->by_host && i < stage->nin; i++) {
        const struct tt_stage_piece *piece = &stage->pieces[i];
        TT_TRY(tt_context_stream_copy(context, stream, piece->staged, piece->users, piece->nbytes));
    }
    return TT_OK;
}

static tt_status tell_ready(const struct tt_pending_call *pending, void *stream)
{
    const struct tt_stage *stage = pending->stage;
    /* acquire: ready of work.c */
    return tt_context_stream_store(pending->comm->staged->context, stream, &stage->words->ready,
                                   stage->number);
}

static tt_status copy_in(const struct tt_pending_call *pending)
{
    struct tt_context *context = pending->comm->staged->context;
    void *stream = tt_staged_stream(pending), *const order = pending->comm->staged->order;
    if (!pending->stream) TT_TRY(tt_context_stream_follow(context, stream, NULL));
    if (pending->stage->is_late) {
        TT_TRY(tt_context_event_wait(context, order, stream));
        return tt_context_event_record(context, order, stream);
    }
    TT_TRY(copy_input(pending, stream));
    /* In a group, outputs of other streams are written after this. */
    TT_TRY(tt_context_event_record(context, order, stream));
    return tell_ready(pending, stream);
}

static tt_status copy_late_in(const struct tt_pending_call *pending)
{
    void *stream = tt_staged_waiting_stream(pending);
    TT_TRY(copy_input(pending, stream));
    return tell_ready(pending, stream);
}

/* Outputs are written in the order of the calls, whatever their streams. */
static tt_status copy_out(const struct tt_pending_call *pending)
{
    struct tt_context *context = pending->comm->staged->context;
    const struct tt_stage *stage = pending->stage;
    void *stream = tt_staged_waiting_stream(pending);
    if (pending->stream) {
        TT_TRY(tt_context_event_wait(context, pending->comm->staged->order, stream));
        TT_TRY(tt_context_stream_await(context, stream, &stage->words->done, stage->number));
    }
    for (int i = stage->nin; !stage->by_host && i < stage->nin + stage->nout; i++) {
        const struct tt_stage_piece *piece = &stage->pieces[i];
        TT_TRY(tt_context_stream_copy(context, stream, piece->users, piece->staged, piece->nbytes));
    }
    if (pending->stream) /* complete when it returns, where it has none */
        TT_TRY(tt_context_event_record(context, pending->comm->staged->order, stream));
    return tt_staged_tell_ended(pending);
}

void tt_staged_copy_in(struct tt_calls *calls)
{
    tt_context_begin_work();
    tt_staged_join(calls, true);
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        call->stage->is_held = false;
        if (!call->stage->failed) tt_staged_check_call(call, copy_in(call));
        if (!call->stream) tt_core_enter_call(call->comm);
    }
    tt_context_end_work();
}

static bool is_on_stream(const struct tt_pending_call *call)
{
    return call->stream && !call->stage->failed;
}

/* Whether they are one collective, of ranks of one communicator. */
static bool are_one_operation(const struct tt_pending_call *a, const struct tt_pending_call *b)
{
    return a->stage->is_collective && b->stage->is_collective &&
           a->stage->position == b->stage->position && tt_staged_are_of_one(a, b);
}

static bool is_first_of_operation(const struct tt_calls *calls, const struct tt_pending_call *of)
{
    const struct tt_pending_call *call = calls->first;
    while (!are_one_operation(call, of)) call = call->next;
    return call == of;
}

static void copy_out_operation(const struct tt_pending_call *like)
{
    for (const struct tt_pending_call *call = like; call; call = call->next)
        if (call->stage->is_late && is_on_stream(call) && are_one_operation(call, like))
            tt_staged_check_call(call, copy_late_in(call));
    for (const struct tt_pending_call *call = like; call; call = call->next)
        if (is_on_stream(call) && are_one_operation(call, like))
            tt_staged_check_call(call, copy_out(call));
}

void tt_staged_copy_out(struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (call->stage->is_collective && is_first_of_operation(calls, call))
            copy_out_operation(call);
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (!call->stage->is_collective && is_on_stream(call))
            tt_staged_check_call(call, copy_out(call));
    tt_staged_join(calls, false);
}

tt_status tt_staged_give_up(struct tt_pending_call *pending)
{
    pending->stage->is_left = true;
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
        call->stage->is_left = tt_fabric_failure_text(call->comm->fabric)[0];
        if (!call->stage->is_left) tt_staged_check_call(call, copy_out(call));
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
