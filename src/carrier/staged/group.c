/* What the staged calls of a group have to do with one another. */
#include <limits.h>

#include "carrier/gpu_stream.h"
#include "carrier/staged/staged.h"
#include "driver/capture.h"

/* ---- Buffers -------------------------------------------------------------------------------- */

static bool overlap(const struct tt_extent *a, const struct tt_extent *b)
{
    return a->first < b->first + b->nbytes && b->first < a->first + a->nbytes;
}

/* Finds how the later call's copies come to follow the earlier one's: by their streams, for which
 * *in_turn is set; or, without streams, when both are made in the turns of the calls. */
static tt_status link_collectives(const struct tt_pending_call *earlier,
                                  const struct tt_pending_call *later, bool *in_turn)
{
    if (earlier->stream && later->stream) {
        *in_turn = true;
        return TT_OK;
    }
    if (earlier->stream || later->stream)
        return tt_fail(TT_ERR_USAGE,
                       "communicator %s: collectives of a group that use one another's buffers "
                       "and go through memory of the host have a CUDA stream each, or none has: "
                       "give both a stream, or put them into two groups",
                       later->comm->name);
    earlier->stage->by_host = later->stage->by_host = true;
    return TT_OK;
}

static bool uses_output(const struct tt_pending_call *later, const struct tt_pending_call *earlier)
{
    const struct tt_extent *output = &earlier->stage->out;
    return later->comm == earlier->comm && earlier->stage->is_collective &&
           (overlap(output, &later->stage->in) || overlap(output, &later->stage->out));
}

/* Ranks of one communicator in this process. */
static bool are_of_one(const struct tt_pending_call *a, const struct tt_pending_call *b)
{
    return a->comm->fabric->segment == b->comm->fabric->segment;
}

/* Which of its rank's collectives on the communicator in the group it is. */
static int number_of(const struct tt_calls *calls, const struct tt_pending_call *of)
{
    int number = 0;
    for (const struct tt_pending_call *call = calls->first; call != of; call = call->next)
        number += call->comm == of->comm && call->stage->is_collective;
    return number;
}

/* From 1, in the order of the group. The calls of several ranks that are one collective have one
 * turn: one rank's stream may be another's, which must not wait before all have copied in. Until
 * then out_turn is number_of. */
static int turn_of(const struct tt_calls *calls, const struct tt_pending_call *of)
{
    int turn = 1;
    for (const struct tt_pending_call *call = calls->first; call != of; call = call->next, turn++)
        if (call->stage->is_collective && are_of_one(call, of) &&
            call->stage->out_turn == of->stage->out_turn)
            return call->stage->in_turn;
    return turn;
}

/* Streams make the copies of one collective after the other, of all communicators, as streams of
 * other ranks do that make the calls in this order without a group. Messages run side by side,
 * after the collectives of their communicator: they copy in first, or, where they may use what
 * those write, last; their waits are the last ones. */
static void put_in_turn(const struct tt_calls *calls)
{
    struct tt_pending_call *call;
    for (call = calls->first; call; call = call->next)
        call->stage->out_turn = number_of(calls, call);
    for (call = calls->first; call; call = call->next)
        if (call->stage->is_collective) call->stage->in_turn = turn_of(calls, call);
    for (call = calls->first; call; call = call->next) {
        struct tt_stage *stage = call->stage;
        stage->out_turn = stage->is_collective ? stage->in_turn : INT_MAX;
        if (!call->stream) stage->in_turn = stage->out_turn = 0;
    }
}

/* Collectives of a rank run in order also in a group; its messages after them. */
tt_status tt_staged_link(struct tt_calls *calls)
{
    bool in_turn = false;
    for (struct tt_pending_call *later = calls->first; later; later = later->next)
        for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
            const bool is_collective = later->stage->is_collective;
            if (call == later && is_collective) break; /* only the earlier ones */
            if (call == later || !uses_output(later, call)) continue;
            if (is_collective) TT_TRY(link_collectives(call, later, &in_turn));
            if (is_collective || !call->stream || !later->stream) continue;
            later->stage->in_turn = INT_MAX;
            in_turn = true;
        }
    if (in_turn) put_in_turn(calls);
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
