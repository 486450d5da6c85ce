/* What the staged calls of a group have to do with one another. */
#include "communicator/device.h"
#include "communicator/staged.h"
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
void tt_comm_staged_link(const struct tt_pending_call *calls, int ncalls)
{
    for (int later = 1; later < ncalls; later++)
        for (int i = 0; i < later; i++)
            if (calls[i].comm == calls[later].comm && calls[i].stage && calls[later].stage &&
                calls[i].stage->is_collective && calls[later].stage->is_collective)
                link_calls(calls[later].stage, calls[i].stage);
}

/* ---- Streams -------------------------------------------------------------------------------- */

void *tt_staged_stream(const struct tt_pending_call *pending)
{
    struct tt_stream *stream = (struct tt_stream *)pending->stream;
    return stream ? tt_stream_device_stream(stream) : pending->comm->staged->stream;
}

void tt_staged_check_call(const struct tt_pending_call *pending, tt_status status)
{
    if (!status) return;
    pending->stage->failed = true;
    tt_ignore(tt_comm_fail_call(pending->comm, status));
}

/* Whether the call is the first of its communicator on its stream, and others are on others. */
static bool joins(const struct tt_pending_call *calls, int ncalls, int call)
{
    bool others = false;
    for (int i = 0; i < ncalls; i++) {
        if (!calls[i].stage || calls[i].comm != calls[call].comm) continue;
        if (calls[i].stream != calls[call].stream)
            others = true;
        else if (i < call)
            return false;
    }
    return others;
}

static tt_status join(const struct tt_pending_call *pending, bool before)
{
    const struct tt_comm_staged *staged = pending->comm->staged;
    void *stream = tt_staged_stream(pending);
    if (!pending->stream) TT_TRY(tt_context_stream_follow(staged->context, stream, NULL));
    TT_TRY(tt_context_event_wait(staged->context, staged->order, stream));
    return before ? tt_context_event_record(staged->context, staged->order, stream) : TT_OK;
}

void tt_comm_staged_join(const struct tt_pending_call *calls, int ncalls, bool before)
{
    for (int i = 0; i < ncalls; i++)
        if (calls[i].stage && !calls[i].stage->failed && (before || calls[i].stream) &&
            joins(calls, ncalls, i))
            tt_staged_check_call(&calls[i], join(&calls[i], before));
}
