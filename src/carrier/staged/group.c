/* What the staged calls of a group have to do with one another. */
#include "carrier/gpu_stream.h"
#include "carrier/staged/graphs.h"
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
    return call != other && tt_are_one_run(call, other);
}

static bool uses_output(const struct tt_pending_call *call, const struct tt_pending_call *of)
{
    const struct tt_extent output = of->stage->out;
    return tt_extents_overlap(output, call->stage->in) ||
           tt_extents_overlap(output, call->stage->out);
}

/* Collectives of a rank run in order also in a group. */
static void link_to_earlier(const struct tt_calls *calls, const struct tt_pending_call *call)
{
    struct tt_stage *stage = call->stage;
    for (const struct tt_pending_call *other = calls->first; other != call; other = other->next) {
        if (!other->stage->is_collective || !run_together(call, other)) continue;
        stage->position++;
        if (!uses_output(call, other)) continue;
        other->stage->is_linked = stage->is_linked = true;
        stage->is_late = stage->is_late || tt_extents_overlap(other->stage->out, stage->in);
    }
}

/* Whether no stream can make the copies of a collective that is linked as this one is. */
static bool is_for_copier(const struct tt_calls *calls, const struct tt_pending_call *call)
{
    const struct tt_pending_call *other = calls->first;
    while (other && !(other->stage->is_linked && tt_are_one_run(other, call) &&
                      (other->stage->by_host || !other->stream)))
        other = other->next;
    return other;
}

/* Whether another communicator has calls on the call's stream, or on one that waits for it. */
static bool shares_stream(const struct tt_calls *calls, const struct tt_pending_call *call)
{
    const struct tt_pending_call *other = calls->first;
    while (other && (other->capture || !other->stream || tt_staged_are_of_one(other, call) ||
                     !tt_gpu_streams_wait(other->stream, call->stream)))
        other = other->next;
    return other;
}

static bool has_collective_on_stream(const struct tt_pending_call *call,
                                     const struct tt_pending_call *of)
{
    return call->stage->is_collective && call->stream && tt_are_one_run(call, of);
}

/* Calls of several communicators run side by side, also on one stream, in any order: there no
 * stream may wait before a late input is copied. */
static void set_apart(const struct tt_calls *calls, const struct tt_pending_call *late)
{
    const struct tt_pending_call *shared = calls->first;
    while (shared && !(has_collective_on_stream(shared, late) && shares_stream(calls, shared)))
        shared = shared->next;
    for (const struct tt_pending_call *call = calls->first; shared && call; call = call->next)
        if (has_collective_on_stream(call, late)) call->stage->is_apart = true;
}

static bool is_first_late(const struct tt_calls *calls, const struct tt_pending_call *of)
{
    const struct tt_pending_call *call = calls->first;
    while (!call->stage->is_late || !tt_are_one_run(call, of)) call = call->next;
    return call == of;
}

/* Who makes the copies of collectives that are linked. */
static void choose_streams(const struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (call->stage->is_linked && is_for_copier(calls, call)) call->stage->by_host = true;
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        call->stage->is_late = call->stage->is_late && !call->stage->by_host;
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (call->stage->is_late && is_first_late(calls, call)) set_apart(calls, call);
}

/* Whether the collective's input is copied before the message's output. Users' streams copy all
 * inputs of a group first, but the late ones. The copier copies an input in the collective's turn,
 * and an output when the message has come to it, as the rank's own stream does: both follow only
 * earlier inputs. */
static bool is_read_first(const struct tt_pending_call *collective,
                          const struct tt_pending_call *message, bool is_earlier)
{
    const bool is_late = collective->stage->by_host || collective->stage->is_late;
    if (is_late || is_earlier) return !is_late;
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

/* Whether a stream waits in the call until the collective has run, of this rank or another one. */
static bool waits_for(const struct tt_pending_call *call, const struct tt_pending_call *collective)
{
    return call->stream && !call->capture && call->stage->is_collective &&
           tt_staged_are_of_one(call, collective) &&
           call->stage->position >= collective->stage->position;
}

/* Finds the calls whose streams wait for the copier; returns a collective of it. NULL: there are
 * none. */
static const struct tt_pending_call *find_behind(const struct tt_calls *calls)
{
    const struct tt_pending_call *first = NULL;
    for (const struct tt_pending_call *of = calls->first; of; of = of->next) {
        if (!of->stage->is_collective || !of->stage->by_host || of->capture) continue;
        if (!first) first = of;
        for (const struct tt_pending_call *call = calls->first; call; call = call->next)
            call->stage->is_behind = call->stage->is_behind || waits_for(call, of);
    }
    return first;
}

/* The CUDA streams, each once, that wait for the copier. */
static int count_behind(const struct tt_calls *calls)
{
    int n = 0;
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        const struct tt_pending_call *same = calls->first;
        if (!call->stage->is_behind) continue;
        while (!same->stage->is_behind ||
               tt_staged_waiting_stream(same) != tt_staged_waiting_stream(call))
            same = same->next;
        n += same == call;
    }
    return n;
}

/* A stream that waits holds a hardware queue. */
static tt_status check_queues(const struct tt_calls *calls)
{
    const struct tt_pending_call *collective = find_behind(calls);
    if (!collective) return TT_OK;
    const int nqueues = tt_driver_connections(), nwaiting = count_behind(calls);
    if (nwaiting < nqueues) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "communicator %s: a collective of a group is copied on a stream beside yours, "
                   "while %d of your CUDA streams wait in the group until such ones have run, and "
                   "the process has %d hardware queues, all of which they may hold: put it into a "
                   "group of its own, or set CUDA_DEVICE_MAX_CONNECTIONS to at least %d, 32 at "
                   "most, before the process uses CUDA",
                   collective->comm->name, nwaiting, nqueues, nwaiting + 1);
}

tt_status tt_staged_link(struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (call->stage->is_collective) link_to_earlier(calls, call);
    choose_streams(calls);
    TT_TRY(check_queues(calls));
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (!call->stage->is_collective) TT_TRY(check_message(calls, call));
    return TT_OK;
}

/* ---- Streams -------------------------------------------------------------------------------- */

void *tt_staged_stream(const struct tt_pending_call *pending)
{
    return pending->stream ? tt_gpu_stream_handle(pending->stream) : pending->comm->staged->stream;
}

void *tt_staged_waiting_stream(const struct tt_pending_call *pending)
{
    return pending->stage->is_apart ? pending->comm->staged->stream : tt_staged_stream(pending);
}

bool tt_staged_are_of_one(const struct tt_pending_call *a, const struct tt_pending_call *b)
{
    return a->comm->fabric->segment == b->comm->fabric->segment;
}

void tt_staged_check_call(const struct tt_pending_call *pending, tt_status status)
{
    if (!status) return;
    pending->stage->failed = true;
    tt_ignore(tt_core_fail_call(pending->comm, status));
}

/* Whether the call is the first of its communicator on its stream, and others are on others, or
 * apart. */
static bool joins(const struct tt_calls *calls, const struct tt_pending_call *of)
{
    bool others = false, is_before = true;
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        if (call == of) is_before = false;
        if (call->comm != of->comm) continue;
        others = others || call->stream != of->stream || call->stage->is_apart;
        if (is_before && call->stream == of->stream) return false;
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
