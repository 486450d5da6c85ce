/* What the staged calls of a group have to do with one another. */
#include <limits.h>

#include "carrier/gpu_stream.h"
#include "carrier/staged/staged.h"
#include "driver/capture.h"
#include "driver/driver.h"

/* ---- Buffers -------------------------------------------------------------------------------- */

static bool overlap(const struct tt_extent *a, const struct tt_extent *b)
{
    return a->first < b->first + b->nbytes && b->first < a->first + a->nbytes;
}

/* Whether the call's stream copies for it. */
static bool is_copied_by_stream(const struct tt_pending_call *call)
{
    return call->stream && call->stage->memory;
}

/* Finds how the later call's copies come to follow the earlier one's: by their streams, for which
 * *in_order is set, or when both are made in the turns of the calls. */
static tt_status link_calls(const struct tt_pending_call *earlier,
                            const struct tt_pending_call *later, bool *in_order)
{
    struct tt_stage *first = earlier->stage, *second = later->stage;
    if (!overlap(&first->out, &second->in) && !overlap(&first->out, &second->out)) return TT_OK;
    if (is_copied_by_stream(earlier) && is_copied_by_stream(later)) {
        *in_order = true;
        return TT_OK;
    }
    if ((earlier->stream || later->stream) && tt_driver_connections() == 1)
        return tt_fail(TT_ERR_USAGE,
                       "communicator %s: collectives of a group that use one another's buffers, "
                       "one with a CUDA stream and one without, need %d hardware queues where they "
                       "go through memory of the host: set CUDA_DEVICE_MAX_CONNECTIONS to at least "
                       "%d, not 1, before the process uses CUDA",
                       later->comm->name, TT_STAGED_QUEUES, TT_STAGED_QUEUES);
    first->by_host = second->by_host = true;
    return TT_OK;
}

/* The streams make the copies of each communicator's first collectives, then of the second ones,
 * and so on, then of messages. So a stream that waits for a call waits for none that comes behind
 * one of the same communicator in the order of the group, on any rank. */
static void put_in_order(const struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        int before = 0;
        for (const struct tt_pending_call *other = calls->first; other != call; other = other->next)
            before += other->comm == call->comm && other->stage->is_collective;
        if (call->stream) call->stage->after = call->stage->is_collective ? before : INT_MAX;
    }
}

/* Collectives of a rank run in order also in a group; messages do not. */
tt_status tt_staged_link(struct tt_calls *calls)
{
    bool in_order = false;
    for (const struct tt_pending_call *later = calls->first; later; later = later->next)
        for (const struct tt_pending_call *call = calls->first; call != later; call = call->next)
            if (call->comm == later->comm && call->stage->is_collective &&
                later->stage->is_collective)
                TT_TRY(link_calls(call, later, &in_order));
    if (in_order) put_in_order(calls);
    return TT_OK;
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
