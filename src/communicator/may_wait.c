/* Refuses calls for which the calling thread would wait for ever: a message of a rank to itself
 * without its partner, and, in a function that a stream runs, a call without a stream behind one
 * that is queued in the stream behind that function. */
#include "communicator/communicator.h"
#include "communicator/issue.h"
#include "executor/stream.h"

/* ---- Messages to the rank itself ------------------------------------------------------------- */

static bool is_to_itself(const struct tt_pending_call *call)
{
    return (call->kind == TT_CALL_SEND || call->kind == TT_CALL_RECV) &&
           call->peer == call->comm->rank;
}

/* Numbers the messages of each communicator and kind to the rank itself: a send belongs to the
 * receive with the same number. */
static void number_messages_to_itself(struct tt_pending_call *calls, int ncalls)
{
    for (int i = 0; i < ncalls; i++)
        if (is_to_itself(&calls[i]))
            calls[i].to_itself =
                tt_comm_of(calls[i].comm)->counts.own_messages[calls[i].kind == TT_CALL_SEND]++;
    for (int i = 0; i < ncalls; i++) {
        int *own = tt_comm_of(calls[i].comm)->counts.own_messages;
        own[0] = own[1] = 0;
    }
}

tt_status tt_check_own_messages(const struct tt_pending_call *calls, int ncalls)
{
    tt_status status = TT_OK;
    int first = 0;
    while (first < ncalls && !is_to_itself(&calls[first])) first++;
    for (int i = first; i < ncalls; i++)
        if (is_to_itself(&calls[i]))
            tt_comm_of(calls[i].comm)->counts.own_messages[calls[i].kind == TT_CALL_SEND]++;
    for (int i = first; i < ncalls; i++) {
        if (!is_to_itself(&calls[i])) continue;
        int *own = tt_comm_of(calls[i].comm)->counts.own_messages;
        if (own[0] != own[1] && !status)
            status = tt_fail(TT_ERR_USAGE,
                             "rank %d sends %d messages to itself in the group and receives %d "
                             "from itself: a send and its receive must be in the same group",
                             calls[i].comm->rank, own[1], own[0]);
        own[0] = own[1] = 0;
    }
    return status;
}

/* ---- Calls behind the function that the thread runs ------------------------------------------ */

static tt_status fail_to_wait(const struct tt_comm_core *core)
{
    return tt_fail(TT_ERR_USAGE,
                   "a call without a stream, on communicator %s, in a function that a stream runs: "
                   "an earlier call of the communicator is queued in the stream behind that "
                   "function, and each would wait for the other; give the function's call a "
                   "stream, or issue it before the other one",
                   core->name);
}

/* Whether calls of the carrier that kernels wait for are held up. turns: of the call that is
 * asked for; NULL: it runs behind all of them. */
static bool kernels_are_held(const struct tt_comm_core *core, const _Atomic uint64_t *turns)
{
    const struct tt_carrier *carrier = tt_carrier_of_gpu(core);
    return carrier->is_held_here && carrier->is_held_here(core, turns);
}

tt_status tt_check_may_wait(const struct tt_comm_core *core, const _Atomic uint64_t *turns)
{
    if (!tt_stream_is_served_here()) return TT_OK;
    const bool holds = tt_stream_holds_turn(turns, UINT64_MAX) || kernels_are_held(core, turns);
    return holds ? fail_to_wait(core) : TT_OK;
}

/* Messages that kernels carry are not ordered with those that the host carries, but for those of
 * two ranks of which one has no GPU. */
static bool has_turns_of_carrier(const struct tt_pending_call *call)
{
    return call->kind != TT_CALL_COLLECTIVE && call->carrier->orders_messages &&
           !tt_fabric_is_relayed(call->comm->fabric, call->peer);
}

static const _Atomic uint64_t *turns_of(const struct tt_pending_call *call)
{
    const struct tt_engine *engine = &call->comm->engine;
    return call->kind == TT_CALL_SEND   ? &engine->sends_done[call->peer]
           : call->kind == TT_CALL_RECV ? &engine->recvs_done[call->peer]
                                        : &engine->collectives_done;
}

static bool follows(const struct tt_pending_call *call, const struct tt_pending_call *before)
{
    return before < call && call->comm == before->comm && !has_turns_of_carrier(call) &&
           !has_turns_of_carrier(before) && turns_of(before) == turns_of(call);
}

/* Whether a call waits for another one of its group, which is queued in a stream. */
static bool waits_for(const struct tt_pending_call *call, const struct tt_pending_call *queued)
{
    if (has_turns_of_carrier(call) || call->comm != queued->comm) return false;
    if (follows(call, queued)) return true;
    return is_to_itself(call) && is_to_itself(queued) && queued->kind != call->kind &&
           call->to_itself == queued->to_itself;
}

static bool goes_behind(const struct tt_pending_call *call)
{
    return call->stream && tt_stream_is_here(call->stream);
}

/* A kernel that waits for its turn holds up the rank's kernels behind it. */
static bool holds_up_kernels(const struct tt_pending_call *call)
{
    return call->carrier->is_held_here && call->comm->fabric->mixed.is_mixed;
}

/* Whether a kernel of the group carries the call, or one before it with turns of the same kind. */
static bool needs_kernel(const struct tt_pending_call *calls, const struct tt_pending_call *call)
{
    bool needs = holds_up_kernels(call);
    for (const struct tt_pending_call *before = calls; before < call; before++)
        needs = needs || (holds_up_kernels(before) && follows(call, before));
    return needs;
}

/* The call waits for one that is queued behind the function. Whether the thread does so too. */
static bool is_waited_for(const struct tt_pending_call *calls, int ncalls,
                          const struct tt_pending_call *waiting)
{
    if (!waiting->stream) return true;
    if (!holds_up_kernels(waiting)) return false;
    for (const struct tt_pending_call *call = calls; call < calls + ncalls; call++)
        if (!call->stream && call->comm == waiting->comm && needs_kernel(calls, call)) return true;
    return false;
}

static tt_status check_before(const struct tt_pending_call *calls, int ncalls)
{
    const _Atomic uint64_t *turns = NULL;
    for (int i = 0; i < ncalls; i++) {
        const struct tt_pending_call *call = &calls[i];
        if (call->stream) continue;
        if (holds_up_kernels(call) && kernels_are_held(call->comm, NULL))
            return fail_to_wait(call->comm);
        if (has_turns_of_carrier(call) || turns_of(call) == turns) continue;
        turns = turns_of(call);
        TT_TRY(tt_check_may_wait(call->comm, turns));
    }
    return TT_OK;
}

tt_status tt_check_calls_may_wait(struct tt_pending_call *calls, int ncalls)
{
    if (!tt_stream_is_served_here()) return TT_OK;
    TT_TRY(check_before(calls, ncalls));
    number_messages_to_itself(calls, ncalls);
    for (int i = 0; i < ncalls; i++) {
        if (!goes_behind(&calls[i])) continue;
        for (int k = 0; k < ncalls; k++)
            if (waits_for(&calls[k], &calls[i]) && is_waited_for(calls, ncalls, &calls[k]))
                return fail_to_wait(calls[k].comm);
    }
    return TT_OK;
}
