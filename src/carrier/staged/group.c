/* What the staged calls of a group have to do with one another. */
#include "carrier/gpu_stream.h"
#include "carrier/staged/staged.h"
#include "driver/capture.h"

/* ---- Buffers -------------------------------------------------------------------------------- */

static bool overlap(const struct tt_extent *a, const struct tt_extent *b)
{
    return a->first < b->first + b->nbytes && b->first < a->first + a->nbytes;
}

/* The later call's copies follow those of the earlier one when both are made in the turns of the
 * calls. */
static void link_calls(struct tt_stage *later, struct tt_stage *earlier)
{
    if (overlap(&earlier->out, &later->in) || overlap(&earlier->out, &later->out))
        earlier->by_host = later->by_host = true;
}

/* Collectives of a rank run in order also in a group; messages do not. */
void tt_staged_link(struct tt_calls *calls)
{
    for (const struct tt_pending_call *later = calls->first; later; later = later->next)
        for (const struct tt_pending_call *call = calls->first; call != later; call = call->next)
            if (call->comm == later->comm && call->stage->is_collective &&
                later->stage->is_collective)
                link_calls(later->stage, call->stage);
}

/* ---- Streams -------------------------------------------------------------------------------- */

void *tt_staged_stream(const struct tt_pending_call *pending)
{
    return pending->stream ? tt_gpu_stream_handle(pending->stream) : pending->comm->staged->stream;
}

void tt_staged_check_call(const struct tt_pending_call *pending, tt_status status)
{
    if (!status) return;
    pending->stage->failed = true;
    tt_ignore(tt_core_fail_call(pending->comm, status));
}

/* Whether the call is the first of its communicator on its stream, and others are on others. */
static bool joins(const struct tt_calls *calls, const struct tt_pending_call *of)
{
    bool others = false, is_before = true;
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        if (call == of) is_before = false;
        if (call->comm != of->comm) continue;
        if (call->stream != of->stream)
            others = true;
        else if (is_before)
            return false;
    }
    return others;
}

static tt_status join(const struct tt_pending_call *pending, bool before)
{
    const struct tt_staged_part *staged = pending->comm->staged;
    void *stream = tt_staged_stream(pending);
    if (!pending->stream) TT_TRY(tt_context_stream_follow(staged->context, stream, NULL));
    TT_TRY(tt_context_event_wait(staged->context, staged->order, stream));
    return before ? tt_context_event_record(staged->context, staged->order, stream) : TT_OK;
}

void tt_staged_join(struct tt_calls *calls, bool before)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (!call->stage->failed && (before || call->stream) && joins(calls, call))
            tt_staged_check_call(call, join(call, before));
}
