/* What the staged calls of a group have to do with one another. */
#include "carrier/gpu_stream.h"
#include "carrier/staged/staged.h"
#include "driver/capture.h"
#include "driver/driver.h"

/* ---- Buffers -------------------------------------------------------------------------------- */

/* uses: what it does with a buffer of a collective. */
static tt_status refuse_message(const struct tt_pending_call *message, const char *uses)
{
    return tt_fail(TT_ERR_USAGE,
                   "communicator %s: a message of a group %s, and they go through memory of the "
                   "host, where they run side by side: put them into two groups",
                   message->comm->name, uses);
}

/* A captured call runs when its graph is launched, apart from those of other captures. */
static bool run_together(const struct tt_pending_call *call, const struct tt_pending_call *other)
{
    return call != other && call->comm == other->comm && call->capture == other->capture;
}

static bool uses_output(const struct tt_pending_call *call, const struct tt_pending_call *of)
{
    const struct tt_extent output = of->stage->out;
    return tt_extents_overlap(output, call->stage->in) ||
           tt_extents_overlap(output, call->stage->out);
}

/* Collectives of a rank run in order also in a group. The later call's copies follow those of the
 * earlier one when both are made in the turns of the calls, on another stream than the users'. */
static void link_to_earlier(const struct tt_calls *calls, const struct tt_pending_call *call)
{
    for (const struct tt_pending_call *other = calls->first; other != call; other = other->next)
        if (other->stage->is_collective && run_together(call, other) && uses_output(call, other))
            other->stage->by_host = call->stage->by_host = true;
}

/* Whether the collective's input is copied before the message's output. Users' streams copy all
 * inputs of a group first. The copier copies an input in the collective's turn, and an output when
 * the message has come to it, as the rank's own stream does: both follow only earlier inputs. */
static bool is_read_first(const struct tt_pending_call *collective,
                          const struct tt_pending_call *message, bool is_earlier)
{
    if (collective->stage->by_host || is_earlier) return !collective->stage->by_host;
    return !message->stage->by_host && (message->stream || !collective->stream);
}

/* Messages wait for no collective of their group. */
static tt_status check_message(const struct tt_calls *calls, const struct tt_pending_call *message)
{
    bool is_earlier = true;
    for (const struct tt_pending_call *other = calls->first; other; other = other->next) {
        if (other == message) is_earlier = false;
        if (!other->stage->is_collective || !run_together(message, other)) continue;
        if (uses_output(message, other))
            return refuse_message(message, "uses what a collective of the group writes");
        if (tt_extents_overlap(message->stage->out, other->stage->in) &&
            !is_read_first(other, message, is_earlier))
            return refuse_message(message, "writes what a collective of the group reads");
    }
    return TT_OK;
}

static bool waits_behind(const struct tt_pending_call *call,
                         const struct tt_pending_call *collective)
{
    return call->stream && !call->capture && call->stage->is_collective &&
           call->comm == collective->comm;
}

/* The CUDA streams, each once, of collectives that run after this one: they wait meanwhile. */
static int count_waiting(const struct tt_pending_call *collective)
{
    int n = 0;
    for (const struct tt_pending_call *call = collective; call; call = call->next) {
        const struct tt_pending_call *same = collective;
        if (!waits_behind(call, collective)) continue;
        while (!waits_behind(same, collective) || tt_staged_stream(same) != tt_staged_stream(call))
            same = same->next;
        n += same == call;
    }
    return n;
}

/* A stream that waits holds a hardware queue. */
static tt_status check_queues(const struct tt_pending_call *collective)
{
    const int nqueues = tt_driver_connections(), nwaiting = count_waiting(collective);
    if (nwaiting < nqueues) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "communicator %s: a collective of a group is copied on a stream beside yours, "
                   "while %d of your CUDA streams wait in the group until it has run, and the "
                   "process has %d hardware queues, all of which they may hold: put it into a "
                   "group of its own, or set CUDA_DEVICE_MAX_CONNECTIONS to at least %d, 32 at "
                   "most, before the process uses CUDA",
                   collective->comm->name, nwaiting, nqueues, nwaiting + 1);
}

tt_status tt_staged_link(struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (call->stage->is_collective) link_to_earlier(calls, call);
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (call->stage->is_collective && call->stage->by_host && !call->capture)
            TT_TRY(check_queues(call));
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (!call->stage->is_collective) TT_TRY(check_message(calls, call));
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
