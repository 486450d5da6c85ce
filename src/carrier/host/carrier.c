/* The host as a carrier of calls. All calls of a group on one stream of the host are one task of
 * the stream. A thread that waits for the task runs it, or the stream's own thread
 * (executor/host_stream.c). */
#include "carrier/carrier.h"

/* The calls of a group on one stream. */
struct host_task {
    struct tt_task task; /* first: the task's address is this one's */
    int nworks;
    struct tt_work works[];
};

static tt_status run(struct tt_task *task, bool awaited)
{
    return tt_run(((struct host_task *)task)->works, !awaited);
}

/* The first call of the list with this stream. */
static struct tt_pending_call *first_like(const struct tt_calls *calls,
                                          const struct tt_pending_call *call)
{
    struct tt_pending_call *first = calls->first;
    while (first->stream != call->stream) first = first->next;
    return first;
}

static struct host_task *task_of(const struct tt_pending_call *first)
{
    return (struct host_task *)((char *)first->work - offsetof(struct host_task, works));
}

/* For the first call of a stream, and those that share it. */
static tt_status take_task(struct tt_pending_call *first)
{
    int nworks = 0;
    for (const struct tt_pending_call *call = first; call; call = call->next)
        nworks += call->stream == first->stream;
    struct host_task *task = (struct host_task *)tt_task_take(
        first->stream, sizeof *task + (size_t)nworks * sizeof task->works[0]);
    if (!task) return tt_fail(TT_ERR_SYSTEM, "out of memory for a group of %d calls", nworks);
    task->task.run = run;
    task->nworks = 0;
    for (struct tt_pending_call *call = first; call; call = call->next)
        if (call->stream == first->stream) call->work = &task->works[task->nworks++];
    return TT_OK;
}

static tt_status reserve(struct tt_calls *calls)
{
    for (struct tt_pending_call *call = calls->first; call; call = call->next)
        if (call->stream && !call->work) TT_TRY(take_task(call));
    return TT_OK;
}

static void drop(struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (call->stream && call->work && first_like(calls, call) == call)
            tt_task_drop(call->stream, &task_of(call)->task);
}

static void begin(struct tt_pending_call *call)
{
    struct tt_engine *engine = &call->comm->engine;
    if (call->kind == TT_CALL_SEND) {
        tt_work_send(call->work, engine, call->data, call->nbytes, call->peer);
    } else if (call->kind == TT_CALL_RECV) {
        tt_work_recv(call->work, engine, call->data, call->nbytes, call->peer);
    } else {
        tt_work_collective(call->work, engine, &call->call);
        call->cached->last_turn = call->work->turn;
    }
}

static void follow(struct tt_calls *calls)
{
    for (struct tt_pending_call *call = calls->first; call; call = call->next) {
        if (!call->stream || first_like(calls, call) != call) continue;
        struct host_task *task = task_of(call);
        for (int i = 0; i < task->nworks - 1; i++) task->works[i].next = &task->works[i + 1];
        task->task.works = task->works;
        tt_stream_set_lazy(call->stream, !call->comm->fabric->spares_core);
        tt_stream_push(call->stream, &task->task);
    }
}

const struct tt_carrier tt_carrier_host = {.name = "host",
                                           .work_bytes = sizeof(struct tt_work),
                                           .limits = tt_carrier_limits_of_host,
                                           .load = tt_carrier_load,
                                           .reserve = reserve,
                                           .drop = drop,
                                           .begin = begin,
                                           .follow = follow};
