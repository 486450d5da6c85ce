/* Staged calls as a carrier: the host carries them out on staging memory. */
#include <stdio.h>
#include <stdlib.h>

#include "carrier/gpu_stream.h"
#include "carrier/staged/graphs.h"

/* The calls of a communicator on CUDA streams in a group, for the staging thread. */
struct tt_staged_task {
    struct tt_task task;           /* first: the task's address is this one's */
    struct tt_stage_run *deferred; /* in place of the works; NULL: no call is deferred */
    int nworks;
    struct tt_staged_work works[];
};

/* The rank's program is chosen and bound as for memory of the host. */
static void limits(const struct tt_comm_core *comm, struct tt_carrier_limits *limits)
{
    tt_carrier_host.limits(comm, limits);
}

static tt_status enter(struct tt_comm_core *comm)
{
    return tt_context_enter(comm->context);
}

static void leave(struct tt_comm_core *comm)
{
    tt_context_leave(comm->context);
}

/* ---- Before a group begins ------------------------------------------------------------------ */

/* Finds which streams of the calls are being captured, and whether a capture forbids the legacy
 * one, which calls without a stream follow; then what the calls, also those that are captured, have
 * to do with one another. */
static tt_status gather(struct tt_calls *calls)
{
    for (struct tt_pending_call *call = calls->first; call; call = call->next) {
        TT_TRY(tt_gpu_stream_find_capture(call->comm->context, call->stream, &call->capture));
        if (call->capture && !call->stage->captured)
            return tt_fail(TT_ERR_USAGE, "the capture of a CUDA stream has begun inside a group, "
                                         "after a call on that stream: begin it before the group");
    }
    return tt_staged_link(calls);
}

/* Nobody runs the tasks of the staging thread in its place. */
static tt_status run(struct tt_task *task, bool awaited)
{
    (void)awaited;
    struct tt_staged_task *mine = (struct tt_staged_task *)task;
    return mine->deferred ? tt_stage_run(mine->deferred) : tt_run(&mine->works[0].work, true);
}

/* Of the communicator of the first call, of which there is no task yet. */
static tt_status take_task(struct tt_pending_call *first)
{
    struct tt_staged_part *staged = first->comm->staged;
    int nworks = 0;
    for (const struct tt_pending_call *call = first; call; call = call->next)
        nworks += call->comm == first->comm && call->stream && !call->is_deferred;
    struct tt_staged_task *task = (struct tt_staged_task *)tt_task_take(
        staged->thread, sizeof *task + (size_t)nworks * sizeof task->works[0]);
    if (!task) return tt_fail(TT_ERR_SYSTEM, "out of memory for a group of %d calls", nworks);
    task->task.run = run;
    task->nworks = 0;
    task->deferred = first->is_deferred ? tt_stage_run_make(first) : NULL;
    staged->task = task;
    if (first->is_deferred && !task->deferred)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for a group of %d calls", nworks);
    return TT_OK;
}

static tt_status reserve(struct tt_calls *calls)
{
    for (struct tt_pending_call *call = calls->first; call; call = call->next) {
        if (!call->stream) continue;
        if (!call->comm->staged->task) TT_TRY(take_task(call));
        struct tt_staged_task *task = call->comm->staged->task;
        if (!call->is_deferred) call->work = &task->works[task->nworks++].work;
    }
    return TT_OK;
}

static void drop(struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        struct tt_staged_part *staged = call->comm->staged;
        tt_stage_drop(call->stage);
        if (!staged->task) continue;
        tt_stage_run_free(staged->task->deferred);
        tt_task_drop(staged->thread, &staged->task->task);
        staged->task = NULL;
    }
}

/* ---- Begin ---------------------------------------------------------------------------------- */

/* A stream learns of the end of each of its calls. */
static void begin(struct tt_pending_call *call)
{
    if (!call->is_deferred) tt_staged_begin((struct tt_staged_work *)call->work, call);
    if (!call->stream) return;
    tt_stream_begin(call->stream);
    if (!call->is_deferred) call->work->stream = call->stream;
}

/* The staging threads get the calls. */
static void push_tasks(struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        struct tt_staged_part *staged = call->comm->staged;
        struct tt_staged_task *task = staged->task;
        if (!task) continue;
        if (task->deferred) tt_stage_run_hold(task->deferred);
        for (int i = 0; i < task->nworks - 1; i++)
            task->works[i].work.next = &task->works[i + 1].work;
        tt_stream_push(staged->thread, &task->task);
        staged->task = NULL;
    }
}

static void follow(struct tt_calls *calls)
{
    push_tasks(calls);
    tt_staged_copy_out(calls);
}

/* ---- Calls without a stream ----------------------------------------------------------------- */

/* Who aborts a communicator waits for its staged calls: not longer than they need it, because the
 * others of the group may wait until the same thread aborts theirs. */
static void look(struct tt_calls *calls)
{
    for (struct tt_pending_call *call = calls->first; call; call = call->next) {
        if (call->stream || !tt_work_is_done(call->work) ||
            !tt_fabric_failure_text(call->comm->fabric)[0])
            continue;
        const tt_status status = tt_staged_give_up(call);
        call->is_gone = true;
        if (calls->left) continue;
        calls->left = status;
        snprintf(calls->left_text, sizeof calls->left_text, "%s", tt_last_error());
    }
    tt_calls_drop_gone(calls);
}

static tt_status wait(struct tt_calls *calls, tt_status status)
{
    if (!status && calls->left) {
        tt_set_last_error(calls->left_text);
        status = calls->left;
    }
    return tt_staged_finish(calls, status);
}

const struct tt_carrier tt_carrier_staged = {.name = "staged",
                                             .work_bytes = sizeof(struct tt_staged_work),
                                             .limits = limits,
                                             .load = tt_carrier_load,
                                             .launches_first = true,
                                             .packs = tt_stage_packs,
                                             .prepare = tt_stage_prepare,
                                             .enter = enter,
                                             .leave = leave,
                                             .gather = gather,
                                             .capture = tt_staged_capture,
                                             .captured = tt_staged_captured,
                                             .reserve = reserve,
                                             .drop = drop,
                                             .begin = begin,
                                             .launch = tt_staged_copy_in,
                                             .follow = follow,
                                             .look = look,
                                             .wait = wait};
