/* The functions that finalize, destroy and abort communicators. */
#include <stdio.h>

#include "base/pause.h"
#include "base/thread.h"
#include "carrier/carried.h"
#include "communicator/calling.h"
#include "communicator/group.h"
#include "executor/stream.h"

/* Calls that are queued in the stream behind the function that calls this would never end. */
static tt_status check_may_drain(tuttiComm_t comm, const char *function)
{
    const struct tt_engine *engine = &comm->core.engine;
    if (!tt_stream_is_served_here() ||
        !atomic_load_explicit(&engine->outstanding, memory_order_acquire))
        return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "%s in a function that a stream runs, while calls on communicator %s are not "
                   "complete: they may be queued behind that function; call it in another thread",
                   function, comm->core.name);
}

static void finalize(tuttiComm_t comm)
{
    tt_comm_drain(comm);
    atomic_fetch_or(&comm->ends, TT_COMM_FINALIZED);
}

static tt_status enter_to_finalize(tuttiComm_t comm, const char *function)
{
    TT_TRY(tt_comm_enter(comm));
    const tt_status status = check_may_drain(comm, function);
    if (status) tt_core_leave_call(&comm->core);
    return status;
}

/* ---- The end -------------------------------------------------------------------------------- */

/* A group may have ended it before. */
static tt_status check_is_there(const struct tt_pending_end *pending)
{
    TT_TRY(tt_comm_check_handle(pending->comm));
    return tt_comm_check_number(pending->comm, pending->number);
}

static tt_status destroy(tuttiComm_t comm)
{
    tt_status status = TT_OK;
    TT_TRY(check_may_drain(comm, "tuttiCommDestroy"));
    tt_core_enter_call(&comm->core); /* another thread that ends it does not free it meanwhile */
    if (atomic_fetch_or(&comm->ends, TT_COMM_ENDS) & TT_COMM_ENDS)
        status = tt_fail(TT_ERR_USAGE, "communicator %s is being destroyed or aborted already",
                         comm->core.name);
    tt_core_leave_call(&comm->core);
    if (status) return status;
    tt_comm_shut(comm, TT_COMM_ENDS); /* a call that came before may queue itself in a stream */
    tt_comm_drain(comm);
    tt_comm_free(comm);
    return TT_OK;
}

static tt_status end_by_destroy(struct tt_pending_end *pending)
{
    TT_TRY(check_is_there(pending));
    if (!tt_comm_is_inherited(pending->comm)) return destroy(pending->comm);
    tt_comm_free_inherited(pending->comm);
    return TT_OK;
}

/* is_first: no other thread frees the communicator. */
static void fail_own_calls(tuttiComm_t comm, bool is_first)
{
    char name[128], text[256];
    const struct tt_carried *carried = is_first ? tt_carried_of(&comm->core) : NULL;
    tt_fabric_name_rank(comm->core.fabric, comm->core.rank, name, sizeof name);
    snprintf(text, sizeof text, "%s aborted communicator %s", name, comm->core.name);
    if (carried && carried->settle) carried->settle(&comm->core);
    tt_engine_enter(&comm->core.engine);
    tt_fabric_abort(comm->core.fabric, text);
    tt_engine_leave(&comm->core.engine);
}

/* Whether the abort ends more than this rank's use of a communicator that is at rest. */
static bool interrupts(tuttiComm_t comm, unsigned ends)
{
    return ends || atomic_load_explicit(&comm->core.engine.outstanding, memory_order_acquire);
}

/* Returns in what the communicator was before. */
static unsigned interrupt(tuttiComm_t comm)
{
    struct tt_fabric *fabric = comm->core.fabric;
    const char *text;
    TT_CANCELS_WAIT;
    tt_core_enter_call(&comm->core); /* a thread that destroys it waits */
    /* With TT_COMM_GOES the thread that ends it frees the fabric. */
    const bool had_failed =
        !(atomic_load(&comm->ends) & TT_COMM_GOES) && tt_fabric_failure(fabric, &text);
    const unsigned ends =
        atomic_fetch_or(&comm->ends, TT_COMM_ENDS | TT_COMM_ABORTED) & ~(unsigned)TT_COMM_FINALIZED;
    if (!ends) atomic_store(&comm->failed_before_abort, had_failed);
    if (!(ends & TT_COMM_GOES)) {
        if (interrupts(comm, ends)) atomic_store(&fabric->hurries, true);
        atomic_store(&fabric->aborted, true);
    }
    if (!(ends & TT_COMM_LEAVES)) fail_own_calls(comm, !ends);
    tt_core_leave_call(&comm->core);
    return ends;
}

static tt_status begin_abort(struct tt_pending_end *pending)
{
    TT_TRY(check_is_there(pending));
    if (tt_comm_is_inherited(pending->comm)) return TT_OK;
    TT_TRY(check_may_drain(pending->comm, "tuttiCommAbort"));
    pending->endings = interrupt(pending->comm);
    return TT_OK;
}

/* Streams may not have reached the calls yet: meanwhile ranks of other hosts learn of the abort. */
static void drain_aborted(tuttiComm_t comm)
{
    struct tt_pause pause = {0};
    while (!tt_engine_idle(&comm->core.engine)) {
        tt_pause(&pause);
        if (!comm->core.fabric->wires) continue;
        TT_CANCELS_WAIT;
        tt_engine_enter(&comm->core.engine);
        tt_fabric_tell_abort(comm->core.fabric);
        tt_engine_leave(&comm->core.engine);
    }
}

static tt_status end_by_abort(struct tt_pending_end *pending)
{
    tuttiComm_t comm = pending->comm;
    if (pending->endings) return TT_OK; /* the other thread frees it, soon now */
    if (tt_comm_is_inherited(comm)) {
        TT_TRY(check_is_there(pending)); /* the group may have ended it twice */
        tt_comm_free_inherited(comm);
        return TT_OK;
    }
    tt_comm_shut(comm, TT_COMM_ENDS); /* a call that came before may queue itself in a stream */
    drain_aborted(comm);
    tt_comm_free(comm);
    return TT_OK;
}

static tt_status issue_end(struct tt_pending_end *pending)
{
    TT_TRY(tt_comm_check_handle(pending->comm));
    pending->number = pending->comm->number;
    return tt_issue_end(pending);
}

static tt_status finalize_pending(const struct tt_pending_end *pending, const char *function)
{
    TT_TRY(check_is_there(pending));
    TT_TRY(enter_to_finalize(pending->comm, function));
    finalize(pending->comm);
    tt_core_leave_call(&pending->comm->core);
    return TT_OK;
}

static tt_status end_by_finalize(struct tt_pending_end *pending)
{
    return finalize_pending(pending, "tuttiCommFinalize");
}

static tt_status end_by_finalize_local(struct tt_pending_end *pending)
{
    return finalize_pending(pending, "tuttiCommFinalizeLocal");
}

/* In a group the barrier is one of its calls, and what follows it runs at the group's end. */
static tuttiResult_t finalize_with_all(tuttiComm_t comm)
{
    struct tt_pending_end pending = {.end = end_by_finalize, .comm = comm, .needs_success = true};
    const tuttiResult_t result = tuttiBarrier(comm, NULL);
    if (!tt_in_group()) finalize(comm);
    if (!tt_in_group() || result != tuttiSuccess) return result;
    return tt_group_result("tuttiCommFinalize", issue_end(&pending));
}

tuttiResult_t tuttiCommFinalize(tuttiComm_t comm)
{
    TT_CANCELS_WAIT;
    const tt_status status = enter_to_finalize(comm, __func__);
    if (status) return tt_group_result(__func__, status);
    const struct tt_call_counts counts = comm->counts; /* the barrier is none of the user's calls */
    const tuttiResult_t result = finalize_with_all(comm);
    comm->counts = counts;
    tt_core_leave_call(&comm->core);
    return result;
}

/* In a group at its end, after its splits and calls. */
tuttiResult_t tuttiCommFinalizeLocal(tuttiComm_t comm)
{
    TT_CANCELS_WAIT;
    struct tt_pending_end pending = {
        .end = end_by_finalize_local, .comm = comm, .needs_success = true};
    return tt_group_result(__func__, issue_end(&pending));
}

tuttiResult_t tuttiCommDestroy(tuttiComm_t comm)
{
    TT_CANCELS_WAIT;
    struct tt_pending_end pending = {.end = end_by_destroy, .comm = comm};
    return comm ? tt_group_result(__func__, issue_end(&pending)) : tuttiSuccess;
}

tuttiResult_t tuttiCommAbort(tuttiComm_t comm)
{
    TT_CANCELS_WAIT;
    struct tt_pending_end pending = {.begin = begin_abort, .end = end_by_abort, .comm = comm};
    return comm ? tt_group_result(__func__, issue_end(&pending)) : tuttiSuccess;
}
