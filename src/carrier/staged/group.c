/* What the staged calls of a group have to do with one another. */
#include <stdio.h>

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

static bool reads(const struct tt_pending_call *call, struct tt_extent written)
{
    return tt_extents_overlap(written, call->stage->in) ||
           tt_extents_overlap(written, call->stage->scalar);
}

static bool uses_output(const struct tt_pending_call *call, const struct tt_pending_call *of)
{
    return reads(call, of->stage->out) || tt_extents_overlap(of->stage->out, call->stage->out);
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
        stage->is_late = stage->is_late || reads(call, other->stage->out);
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
        if (reads(other, message->stage->out) && !is_read_first(other, message, is_earlier))
            return refuse_message(message, "writes what a collective of the group reads");
    }
    return TT_OK;
}

/* Whether the collective runs when the other one has, of this rank or another one. */
static bool runs_behind(const struct tt_pending_call *call,
                        const struct tt_pending_call *collective)
{
    return !call->capture && call->stage->is_collective && tt_staged_are_of_one(call, collective) &&
           call->stage->position >= collective->stage->position;
}

/* Whether the copier makes its copies, and no graph does. */
static bool is_copied(const struct tt_pending_call *call)
{
    return call->stage->is_collective && call->stage->by_host && !call->capture;
}

/* Finds the calls whose streams wait in them for the copier. Whether there are any such copies.
 * What runs behind a collective that itself runs behind a copied one was found with that one. */
static bool find_waiting(const struct tt_calls *calls)
{
    bool any = false;
    for (const struct tt_pending_call *of = calls->first; of; of = of->next) {
        if (!is_copied(of)) continue;
        any = true;
        for (const struct tt_pending_call *call = of->stage->is_after ? NULL : calls->first; call;
             call = call->next) {
            if (!runs_behind(call, of)) continue;
            call->stage->is_after = true;
            call->stage->is_behind = call->stream;
        }
    }
    return any;
}

/* Whether the call's stream waits with the other call's: all streams of a rank in a group follow
 * the last call on one of them (tt_staged_join), and any call on a stream may stand behind another
 * communicator's call there. */
static bool follows(const struct tt_pending_call *call, const struct tt_pending_call *other)
{
    return other->comm == call->comm || (other->comm->gpu == call->comm->gpu &&
                                         tt_gpu_streams_wait(other->stream, call->stream));
}

/* Finds the calls whose streams wait with that of a call that was found. Whether there are more.
 * Calls of the same communicator and stream have the same ones. */
static bool find_following(const struct tt_calls *calls, const struct tt_pending_call *found)
{
    bool any = false;
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        struct tt_stage *stage = call->stage;
        if (call->comm == found->comm && call->stream == found->stream) stage->is_followed = true;
        if (stage->is_behind || !call->stream || call->capture || !follows(call, found)) continue;
        stage->is_behind = any = true;
    }
    return any;
}

/* Finds the calls whose streams wait for the copier. Whether there are any such copies. */
static bool find_behind(const struct tt_calls *calls)
{
    if (!find_waiting(calls)) return false;
    for (const struct tt_pending_call *call = calls->first, *next; call; call = next) {
        next = call->next;
        if (!call->stage->is_behind || call->stage->is_followed) continue;
        if (find_following(calls, call)) next = calls->first;
    }
    return true;
}

/* Streams of one GPU that have work at one time, of which some wait for the copier: each needs a
 * hardware queue of its own, because a stream takes any queue when it gets work. */
struct busy {
    int gpu;
    int nstreams; /* more than TT_MOST_CONNECTIONS: the others are not counted */
    const void *streams[TT_MOST_CONNECTIONS];
};

static void count(struct busy *busy, const void *stream)
{
    for (int i = 0; i < busy->nstreams && i < TT_MOST_CONNECTIONS; i++)
        if (busy->streams[i] == stream) return;
    if (busy->nstreams < TT_MOST_CONNECTIONS) busy->streams[busy->nstreams] = stream;
    if (busy->nstreams <= TT_MOST_CONNECTIONS) busy->nstreams++;
}

/* Where the waits of a call are apart, its own stream follows them. */
static void count_waiting(const struct tt_calls *calls, struct busy *busy)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        if (call->comm->gpu != busy->gpu || !call->stage->is_behind) continue;
        count(busy, tt_staged_waiting_stream(call));
        count(busy, tt_staged_stream(call));
    }
}

/* Copies of collectives on streams begin while other streams still get their work. So the ranks'
 * own streams, which copy then, count too. Where only collectives without a stream are copied so,
 * that begins when all streams have their work. */
static void count_copying(const struct tt_calls *calls, struct busy *busy)
{
    bool begins_early = false;
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (call->comm->gpu == busy->gpu && is_copied(call) && call->stream) begins_early = true;
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        if (call->comm->gpu != busy->gpu) continue;
        if (is_copied(call)) count(busy, call->comm->staged->copies);
        if (!call->stream && begins_early) count(busy, call->comm->staged->stream);
    }
}

/* copied: the first collective of its GPU that the copier makes copies for. */
static tt_status check_gpu(const struct tt_calls *calls, const struct tt_pending_call *copied)
{
    struct busy busy = {.gpu = copied->comm->gpu};
    const int nqueues = tt_driver_connections();
    char how[120] = "";
    count_waiting(calls, &busy);
    if (!busy.nstreams) return TT_OK;
    count_copying(calls, &busy);
    const bool is_too_many = busy.nstreams > TT_MOST_CONNECTIONS;
    if (busy.nstreams <= nqueues) return TT_OK;
    if (!is_too_many)
        snprintf(how, sizeof how,
                 ", or set CUDA_DEVICE_MAX_CONNECTIONS to at least %d, %d at most, before the "
                 "process uses CUDA",
                 busy.nstreams, TT_MOST_CONNECTIONS);
    return tt_fail(TT_ERR_USAGE,
                   "communicator %s: a collective of a group is copied on a stream beside yours, "
                   "while other CUDA streams wait in the group until such ones have run: with the "
                   "library's own they may hold %s%d hardware queues of GPU %d, and the process "
                   "has %d: put it into a group of its own%s",
                   copied->comm->name, is_too_many ? "more than " : "", busy.nstreams - is_too_many,
                   busy.gpu, nqueues, how);
}

static bool is_first_copied(const struct tt_calls *calls, const struct tt_pending_call *of)
{
    const struct tt_pending_call *call = calls->first;
    while (!is_copied(call) || call->comm->gpu != of->comm->gpu) call = call->next;
    return call == of;
}

/* A stream that waits holds a hardware queue. */
static tt_status check_queues(const struct tt_calls *calls)
{
    if (!find_behind(calls)) return TT_OK;
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (is_copied(call) && is_first_copied(calls, call)) TT_TRY(check_gpu(calls, call));
    return TT_OK;
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

tt_status tt_staged_tell_ended(const struct tt_pending_call *pending)
{
    struct tt_stage *stage = pending->stage;
    /* acquire: has_ended of memory.c */
    TT_TRY(tt_context_stream_store(pending->comm->staged->context,
                                   tt_staged_waiting_stream(pending), &stage->words->ended,
                                   stage->number));
    stage->has_told = true;
    return TT_OK;
}

/* The streams may have got some of the call's work: they tell when they have done that. If they
 * tell already, nothing is left of it; the memory may be freed, or have another use, by the time of
 * a second store. */
static tt_status end_failed(const struct tt_pending_call *pending)
{
    void *stream = tt_staged_stream(pending), *waiting = tt_staged_waiting_stream(pending);
    if (pending->stage->has_told) return TT_OK;
    if (waiting != stream)
        TT_TRY(tt_context_stream_follow(pending->comm->staged->context, waiting, stream));
    return tt_staged_tell_ended(pending);
}

void tt_staged_check_call(const struct tt_pending_call *pending, tt_status status)
{
    char text[TT_ERROR_TEXT];
    if (!status) return;
    pending->stage->failed = true;
    tt_ignore(tt_core_fail_call(pending->comm, status));
    /* The host's part may have ended well before its output is refused. */
    if (pending->stream) tt_stream_fail(pending->stream, status);
    snprintf(text, sizeof text, "%s", tt_last_error());
    tt_ignore(end_failed(pending)); /* refused too: the staging memory is never freed */
    tt_set_last_error(text);
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
