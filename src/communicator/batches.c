/* Batches of calls: each stream's calls of a group, begun and run together. */
#include "communicator/batches.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "communicator/graphs.h"
#include "communicator/staged_graphs.h"
#include "executor/exchange.h"
#include "executor/stream.h"

/* The calls of a group on one stream; those on streams of a GPU: all of one communicator, which run
 * side by side, so that none waits behind another one's turn. Freed by who runs it. */
struct tt_batch {
    struct tt_task task;               /* first: the task's address is the batch's */
    struct tt_attended_works attended; /* in place of the task, of calls that kernels carry out */
    struct tt_stage_run *deferred;     /* in place of the works; NULL: no call is deferred */
    int nworks;
    struct tt_work works[];
};

void tt_begin_call(struct tt_work *work, struct tt_pending_call *pending)
{
    struct tt_engine *engine = &pending->comm->engine;
    switch (pending->kind) {
    case TT_WORK_COLLECTIVE:
        if (pending->on_device)
            pending->call.kernel = tt_comm_next_kernel(pending->comm, NULL, &pending->uses_peers);
        tt_work_collective(work, engine, &pending->call);
        work->uses_peers = pending->uses_peers;
        if (!pending->deferred) pending->cached->last_turn = work->turn; /* else it is held */
        break;
    case TT_WORK_SEND:
        tt_work_send(work, engine, pending->data, pending->nbytes, pending->peer);
        break;
    case TT_WORK_RECV:
        tt_work_recv(work, engine, pending->data, pending->nbytes, pending->peer);
        break;
    case TT_WORK_EXCHANGE:
        tt_comm_exchange_begin(pending, work);
        break;
    }
    if (pending->stage) tt_comm_staged_begin(pending, work);
}

static struct tt_stream *gpus_stream(const struct tt_pending_call *call)
{
    struct tt_stream *stream = (struct tt_stream *)call->stream;
    return tt_stream_context(stream) ? stream : NULL;
}

/* A GPU's stream learns of the end of each of its calls. */
static void begin_in(struct tt_batch *batch, struct tt_pending_call *pending)
{
    if (pending->deferred) {
        tt_stream_begin(gpus_stream(pending));
        return;
    }
    struct tt_work *work = &batch->works[batch->nworks++];
    struct tt_engine *engine = tt_comm_replays(pending->comm) ? &pending->comm->engine : NULL;
    if (engine) tt_engine_enter(engine); /* a replay may take a turn */
    tt_begin_call(work, pending);
    if (engine) tt_engine_leave(engine);
    work->stream = gpus_stream(pending);
    if (work->stream) tt_stream_begin(work->stream);
}

static tt_status run_batch(struct tt_task *task)
{
    struct tt_batch *batch = (struct tt_batch *)task;
    const tt_status status =
        batch->deferred ? tt_stage_run(batch->deferred) : tt_run(batch->works, batch->nworks, true);
    free(batch);
    return status;
}

static void end_attended(struct tt_attended_works *works)
{
    free((char *)works - offsetof(struct tt_batch, attended));
}

static bool share_batch(const struct tt_pending_call *a, const struct tt_pending_call *b)
{
    if (!gpus_stream(a) || !gpus_stream(b)) return a->stream == b->stream;
    return a->comm == b->comm;
}

static struct tt_batch *make_batch(const struct tt_pending_call *calls, int ncalls,
                                   const struct tt_pending_call *first)
{
    int nworks = 0;
    for (int i = 0; i < ncalls; i++) nworks += share_batch(&calls[i], first);
    struct tt_batch *batch = malloc(sizeof *batch + (size_t)nworks * sizeof batch->works[0]);
    if (!batch) return NULL;
    batch->task.run = run_batch;
    batch->nworks = 0;
    batch->deferred = first->deferred ? tt_stage_run_make(calls, ncalls, first) : NULL;
    if (!first->deferred || batch->deferred) return batch;
    free(batch);
    return NULL;
}

static void free_batch(struct tt_batch *batch)
{
    tt_stage_run_free(batch->deferred);
    free(batch);
}

/* The first call of the call's batch. */
static int first_of_batch(const struct tt_pending_call *calls, int call)
{
    int i = 0;
    while (!share_batch(&calls[i], &calls[call])) i++;
    return i;
}

tt_status tt_batches_make(const struct tt_pending_call *calls, int ncalls,
                          struct tt_batch **batches)
{
    for (int i = 0; i < ncalls; i++) {
        const int first = first_of_batch(calls, i);
        batches[i] = first < i ? batches[first] : make_batch(calls, ncalls, &calls[i]);
        if (batches[i]) continue;
        while (--i >= 0)
            if (first_of_batch(calls, i) == i) free_batch(batches[i]);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for a group of %d calls", ncalls);
    }
    return TT_OK;
}

/* Of calls on a GPU's stream. */
static void push_batch(tuttiComm_t comm, struct tt_batch *batch)
{
    if (!comm->on_gpu) {
        tt_stream_push(comm->staged->attendant, &batch->task);
        return;
    }
    batch->attended = (struct tt_attended_works){
        .works = batch->works, .nworks = batch->nworks, .done = end_attended};
    tt_attended_push(&comm->on_gpu->queue, &batch->attended);
}

/* ---- Calls without a stream ----------------------------------------------------------------- */

/* While they run. */
struct own_calls {
    struct tt_batch *batch;
    struct tt_pending_call *calls; /* of the group; a call that is given up has no stage */
    int ncalls;
    tt_status status; /* of the first that was given up */
    char text[TT_ERROR_TEXT];
};

/* Who aborts a communicator waits for its staged calls: not longer than they need it, because the
 * others of the group may wait until the same thread aborts theirs. */
static void give_up(void *argument)
{
    struct own_calls *own = argument;
    int nworks = 0;
    for (int i = 0; i < own->ncalls; i++) {
        struct tt_pending_call *call = &own->calls[i];
        if (call->stream) continue;
        const struct tt_work *work = &own->batch->works[nworks++];
        if (!call->stage || !tt_work_is_done(work) ||
            !tt_fabric_failure_text(call->comm->fabric)[0])
            continue;
        const tt_status status = tt_comm_staged_give_up(call);
        call->stage = NULL;
        if (own->status) continue;
        own->status = status;
        snprintf(own->text, sizeof own->text, "%s", tt_last_error());
    }
}

static tt_status run_own(struct tt_batch *batch, struct tt_pending_call *calls, int ncalls)
{
    struct own_calls own = {.batch = batch, .calls = calls, .ncalls = ncalls};
    const tt_status status = tt_run_and_look(batch->works, batch->nworks, give_up, &own);
    free(batch);
    if (status || !own.status) return status;
    tt_set_last_error(own.text);
    return own.status;
}

tt_status tt_batches_launch(struct tt_pending_call *calls, int ncalls, struct tt_batch **batches)
{
    struct tt_batch *own = NULL;
    for (int i = 0; i < ncalls; i++) begin_in(batches[i], &calls[i]);
    for (int i = 0; i < ncalls; i++)
        if (calls[i].deferred && first_of_batch(calls, i) == i)
            tt_stage_run_hold(batches[i]->deferred);
    tt_comm_device_launch(calls, ncalls);
    tt_comm_staged_launch(calls, ncalls);
    for (int i = 0; i < ncalls; i++) {
        if (first_of_batch(calls, i) < i) continue;
        if (gpus_stream(&calls[i]))
            push_batch(calls[i].comm, batches[i]);
        else if (calls[i].stream)
            tt_stream_push((struct tt_stream *)calls[i].stream, &batches[i]->task);
        else
            own = batches[i];
    }
    tt_comm_staged_follow(calls, ncalls);
    tt_comm_leave_calls(calls, ncalls);
    if (!own) return TT_OK;
    return tt_comm_staged_finish(calls, ncalls, run_own(own, calls, ncalls));
}
