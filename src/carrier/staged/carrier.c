/* Staged calls as a carrier: the host carries them out on staging memory. */
#include <stdio.h>
#include <stdlib.h>

#include "base/pause.h"
#include "carrier/gpu_stream.h"
#include "carrier/gpu_watch.h"
#include "carrier/staged/staged.h"
#include "driver/capture.h"

/* A call of the host that begins when its input is in staging memory. */
struct staged_work {
    struct tt_work work;            /* first: the address of the work is this one's */
    const struct tt_work_ops *host; /* the host's of this kind of call */
    struct tt_work_ops ops;         /* the same, but for what waits for the stream */
    const struct tt_bounce *bounce;
};

/* A bounce, for the staging thread. */
struct tt_bounce {
    struct tt_task task; /* first: the task's address is this one's */
    struct tt_staged_part *part;
    uint32_t number; /* that the words get */
    int nworks;
    struct staged_work works[];
};

static bool collects(const struct tt_pending_call *call)
{
    return call->kind == TT_CALL_COLLECTIVE;
}

/* ---- Before a group begins ------------------------------------------------------------------ */

/* The host would not see when a graph is launched. */
static tt_status refuse_capture(const struct tt_pending_call *call)
{
    uint64_t capture = 0;
    TT_TRY(tt_gpu_stream_find_capture(call->comm->context, call->stream, &capture));
    if (!capture) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "communicator %s: a call through memory of the host cannot be captured into a "
                   "CUDA graph, one by kernels can, and kernels run none here: %s (what brings "
                   "kernels: TUTTI_DEVICE_KERNELS=1, and TUTTI_DEVICE_BRIDGES=1 for several hosts "
                   "and ranks without a GPU, on all ranks)",
                   call->comm->name, call->comm->no_kernels);
}

/* All inputs of a group are copied before any output is written. */
static tt_status refuse_use(const struct tt_pending_call *call, const struct tt_pending_call *of)
{
    if (!tt_extents_overlap(of->stage->out, call->stage->in) &&
        !tt_extents_overlap(of->stage->out, call->stage->scalar))
        return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "communicator %s: a %s of a group uses what a %s of the group writes, "
                   "and they go through memory of the host, where all inputs of a group are read "
                   "first: put them into two groups",
                   call->comm->name, collects(call) ? "collective" : "message",
                   collects(of) ? "collective" : "message");
}

/* Moves calls of the communicator, its collectives or its messages, from one list to another. */
static void move(struct tt_calls *to, struct tt_pending_call **from,
                 const struct tt_comm_core *comm, bool collectives)
{
    while (*from) {
        struct tt_pending_call *call = *from;
        if (call->comm != comm || collects(call) != collectives) {
            from = &call->next;
            continue;
        }
        *from = call->next;
        tt_calls_add(to, call);
    }
}

/* Refuses calls that depend on one another, and makes bounces of the others: from then on the calls
 * of a communicator follow one another in the list. Messages run behind all collectives of their
 * communicator in the group, as by kernels, and those of another communicator in the order of the
 * group, as on one stream. */
static tt_status gather(struct tt_calls *calls)
{
    struct tt_pending_call *rest = calls->first;
    for (const struct tt_pending_call *call = rest; call; call = call->next)
        TT_TRY(refuse_capture(call));
    for (const struct tt_pending_call *a = rest; a; a = a->next)
        for (const struct tt_pending_call *b = a->next; b; b = b->next)
            if (a->comm != b->comm || collects(a))
                TT_TRY(refuse_use(b, a));
            else if (collects(b))
                TT_TRY(refuse_use(a, b));
    tt_calls_init(calls);
    while (rest) {
        const struct tt_comm_core *comm = rest->comm;
        move(calls, &rest, comm, true);
        move(calls, &rest, comm, false);
    }
    return TT_OK;
}

/* The next call of the bounce; NULL: it is the last one. */
static struct tt_pending_call *next_of_bounce(const struct tt_pending_call *call)
{
    return call->next && call->next->comm == call->comm ? call->next : NULL;
}

/* The first call of the next bounce; NULL: there is none. */
static struct tt_pending_call *next_bounce(const struct tt_pending_call *call)
{
    while (next_of_bounce(call)) call = next_of_bounce(call);
    return call->next;
}

/* Nobody runs the tasks of the staging thread in its place. Streams go on also after a failure. */
static tt_status run(struct tt_task *task, bool awaited)
{
    struct tt_bounce *bounce = (struct tt_bounce *)task;
    (void)awaited;
    const tt_status status = tt_run(&bounce->works[0].work, true);
    if (status) bounce->part->has_failed = true; /* before `done` */
    /* acquire: the stream's wait (copy_out), has_run */
    __atomic_store_n(&bounce->part->words->done, bounce->number, __ATOMIC_RELEASE);
    return status;
}

static tt_status take_bounce(struct tt_staged_part *staged, size_t ncalls)
{
    struct tt_bounce *bounce = (struct tt_bounce *)tt_task_take(
        staged->thread, sizeof *bounce + ncalls * sizeof bounce->works[0]);
    if (!bounce) return tt_fail(TT_ERR_SYSTEM, "out of memory for a group of %zu calls", ncalls);
    bounce->task.run = run;
    bounce->part = staged;
    bounce->number = ++staged->number;
    bounce->nworks = 0;
    staged->bounce = bounce;
    staged->has_streams = staged->failed = staged->must_tell = false;
    return TT_OK;
}

/* Where the bounce is on the rank's own stream, that follows the streams of its calls. */
static tt_status reserve_bounce(struct tt_pending_call *first)
{
    struct tt_staged_part *staged = first->comm->staged;
    size_t ncalls = 0, nbytes = 0;
    char *memory;
    for (const struct tt_pending_call *call = first; call; call = next_of_bounce(call)) {
        ncalls++;
        nbytes += call->stage->nbytes;
    }
    TT_TRY(take_bounce(staged, ncalls));
    TT_TRY(tt_stage_memory(staged, nbytes, &memory));
    staged->queue = tt_gpu_stream_handle(first->stream);
    for (struct tt_pending_call *call = first; call; call = next_of_bounce(call)) {
        tt_stage_place(call, memory);
        memory += call->stage->nbytes;
        staged->has_streams |= call->stream != NULL;
        if (!call->stream || tt_gpu_stream_handle(call->stream) != staged->queue)
            staged->queue = staged->stream;
        call->bounce = staged->number;
        call->stage->stream = call->stream;
        call->stream = staged->thread;
    }
    if (staged->queue != staged->stream) return TT_OK;
    for (const struct tt_pending_call *call = first; call; call = next_of_bounce(call))
        TT_TRY(tt_context_stream_follow_now(staged->context, staged->queue,
                                            tt_gpu_stream_handle(call->stage->stream)));
    return TT_OK;
}

/* The staging thread runs all calls, also those without a stream. Another thread may have begun a
 * capture that forbids the legacy stream: here that is an error of these calls only. */
static tt_status reserve(struct tt_calls *calls)
{
    for (struct tt_pending_call *call = calls->first; call; call = next_bounce(call))
        TT_TRY(reserve_bounce(call));
    return TT_OK;
}

static void drop(struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        struct tt_staged_part *staged = call->comm->staged;
        if (staged->bounce) tt_task_drop(staged->thread, &staged->bounce->task);
        staged->bounce = NULL;
    }
}

/* ---- Begin ---------------------------------------------------------------------------------- */

static void free_stage(struct tt_pending_call *call)
{
    free(call->stage);
    call->stage = NULL;
}

static struct staged_work *own(const struct tt_work *work)
{
    return (struct staged_work *)(uintptr_t)work;
}

/* A call begins when its stream has come to it, so that what the stream does before takes nothing
 * of its time. */
static tt_status ready(struct tt_work *work)
{
    const struct tt_bounce *bounce = own(work)->bounce;
    /* release: the stream's store (store) */
    const uint32_t in = __atomic_load_n(&bounce->part->words->in, __ATOMIC_ACQUIRE);
    return (int32_t)(in - bounce->number) >= 0 ? TT_OK : TT_IN_PROGRESS;
}

/* While the stream is waited for, the GPU may be lost. */
static tt_status check(struct tt_work *work)
{
    struct tt_gpu_watch *watch = own(work)->bounce->part->watch;
    if (work->state == TT_WORK_ISSUED)
        TT_TRY(tt_gpu_watch_check(watch, work->engine->fabric, work, NULL));
    return own(work)->host->check(work);
}

/* A stream learns of the end of each of its calls; the calling thread waits for the others. */
static void begin(struct tt_pending_call *call)
{
    struct tt_bounce *bounce = call->comm->staged->bounce;
    struct staged_work *mine = &bounce->works[bounce->nworks++];
    struct tt_work *work = call->work = &mine->work;
    tt_carrier_host.begin(call);
    if (mine != bounce->works) mine[-1].work.next = work;
    mine->bounce = bounce;
    mine->host = work->ops;
    mine->ops = *work->ops;
    mine->ops.ready = ready;
    mine->ops.check = check;
    mine->ops.is_woken = false;
    work->ops = &mine->ops;
    work->stream = call->stage->stream;
    if (work->stream)
        tt_stream_begin(work->stream);
    else
        tt_core_enter_call(call->comm);
}

/* ---- What CUDA streams do ------------------------------------------------------------------- */

static tt_status copy_pieces(const struct tt_pending_call *call, bool in)
{
    const struct tt_staged_part *staged = call->comm->staged;
    const struct tt_stage *stage = call->stage;
    const struct tt_stage_piece *piece = stage->pieces + (in ? 0 : stage->nin);
    for (int n = in ? stage->nin : stage->nout; n > 0; n--, piece++) {
        char *own = stage->memory + piece->at;
        TT_TRY(tt_context_stream_copy(staged->context, staged->queue, in ? own : piece->users,
                                      in ? piece->users : own, piece->nbytes));
    }
    return TT_OK;
}

static tt_status store(struct tt_staged_part *staged, uint32_t *word)
{
    return tt_context_stream_store(staged->context, staged->queue, word, staged->number);
}

/* Once: a second store would come when the memory may be freed. */
static tt_status tell_ended(struct tt_staged_part *staged)
{
    if (!staged->must_tell) return TT_OK;
    TT_TRY(store(staged, &staged->words->ended)); /* acquire: has_ended of part.c */
    staged->must_tell = false;
    return TT_OK;
}

/* What is queued later may use the staging memory. */
static tt_status end_bounce(struct tt_staged_part *staged)
{
    TT_TRY(tell_ended(staged));
    return tt_context_event_record(staged->context, staged->order, staged->queue);
}

/* The outputs of calls without a stream are copied by who waits for them, and in that time nothing
 * else of the communicator is queued. */
static tt_status copy_in(const struct tt_pending_call *first)
{
    struct tt_staged_part *staged = first->comm->staged;
    TT_TRY(tt_context_event_wait(staged->context, staged->order, staged->queue));
    staged->last = staged->number;
    staged->must_tell = true;
    for (const struct tt_pending_call *call = first; call; call = next_of_bounce(call))
        TT_TRY(copy_pieces(call, true));
    TT_TRY(store(staged, &staged->words->in)); /* acquire: ready */
    return staged->has_streams ? TT_OK : end_bounce(staged);
}

/* Where the bounce is on the rank's own stream, the streams of its calls follow that. */
static tt_status copy_out(const struct tt_pending_call *first)
{
    struct tt_staged_part *staged = first->comm->staged;
    if (!staged->has_streams) return TT_OK;
    TT_TRY(tt_context_stream_await(staged->context, staged->queue, &staged->words->done,
                                   staged->number));
    for (const struct tt_pending_call *call = first; call; call = next_of_bounce(call))
        if (call->stage->stream) TT_TRY(copy_pieces(call, false));
    TT_TRY(end_bounce(staged));
    if (staged->queue != staged->stream) return TT_OK;
    for (const struct tt_pending_call *call = first; call; call = next_of_bounce(call))
        if (call->stage->stream)
            TT_TRY(tt_context_stream_follow(
                staged->context, tt_gpu_stream_handle(call->stage->stream), staged->queue));
    return TT_OK;
}

/* The driver refused what was to be queued for a bounce, so its communicator fails. What the stream
 * has got may use staging memory: it tells when it has done that, unless it has got nothing. If the
 * driver refuses that too, the staging memory is never freed. */
static void check_queued(const struct tt_pending_call *first, tt_status status)
{
    struct tt_staged_part *staged = first->comm->staged;
    if (!status) return;
    staged->failed = true;
    tt_ignore(tt_core_fail_call(first->comm, status));
    /* The host's part may have ended well before an output is refused. */
    for (const struct tt_pending_call *call = first; call; call = next_of_bounce(call))
        if (call->stage->stream) tt_stream_fail(call->stage->stream, status);
    tt_ignore(tell_ended(staged));
}

static void launch(struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = next_bounce(call)) {
        struct tt_context *context = call->comm->staged->context;
        tt_context_begin_work(context);
        check_queued(call, copy_in(call));
        tt_context_end_work(context);
    }
}

/* The staging threads get the bounces, so that a stream that is full gets room. All that a stream
 * waits for stands before its wait, also where streams share a hardware queue. */
static void follow(struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = next_bounce(call)) {
        struct tt_staged_part *staged = call->comm->staged;
        tt_stream_push(staged->thread, &staged->bounce->task);
        staged->bounce = NULL;
    }
    for (const struct tt_pending_call *call = calls->first; call; call = next_bounce(call))
        if (!call->comm->staged->failed) check_queued(call, copy_out(call));
    for (struct tt_pending_call *call = calls->first; call; call = call->next)
        if (call->stage->stream) free_stage(call);
}

/* ---- Calls without a stream ----------------------------------------------------------------- */

static bool has_run(const struct tt_pending_call *call)
{
    /* release: run */
    const uint32_t done = __atomic_load_n(&call->comm->staged->words->done, __ATOMIC_ACQUIRE);
    return (int32_t)(done - call->bounce) >= 0;
}

static tt_status copy_back(const struct tt_pending_call *call)
{
    const struct tt_staged_part *staged = call->comm->staged;
    TT_TRY(tt_context_enter(staged->context));
    tt_status status = copy_pieces(call, false);
    tt_context_leave(staged->context);
    if (!status) status = tt_context_stream_synchronize(staged->context, staged->queue);
    return status ? tt_core_fail_call(call->comm, status) : TT_OK;
}

/* Notes how the calls without a stream have ended. */
static void note_end(struct tt_calls *calls, tt_status status)
{
    calls->left = status;
    snprintf(calls->left_text, sizeof calls->left_text, "%s", tt_last_error());
}

/* Leaves the calls that have ended. only_failed: those whose communicator has failed, since then or
 * in them, without a call of the driver: their outputs stay as they are. Whether more are waited
 * for. */
static bool leave_ended(struct tt_calls *calls, bool only_failed)
{
    bool waits = false;
    for (struct tt_pending_call *call = calls->first; call; call = call->next) {
        if (!call->stage) continue; /* its communicator may be gone */
        const struct tt_staged_part *staged = call->comm->staged;
        const bool failed = tt_fabric_failure_text(call->comm->fabric)[0];
        waits |= !has_run(call);
        if (!has_run(call) || (only_failed && !failed)) continue;
        /* A communicator may have failed in a later call of another rank. */
        const bool is_bad = only_failed || staged->failed || staged->has_failed;
        const tt_status status = is_bad ? tt_fabric_check(call->comm->fabric) : copy_back(call);
        free_stage(call);
        tt_core_leave_call(call->comm);
        if (status && !calls->left) note_end(calls, status);
    }
    return waits;
}

/* Who aborts a communicator waits for its staged calls: not longer than they need it, because the
 * others of the group may wait until the same thread aborts theirs. */
static void look(struct tt_calls *calls)
{
    leave_ended(calls, true);
}

static tt_status wait(struct tt_calls *calls, tt_status status)
{
    struct tt_pause pause = {0};
    if (status) note_end(calls, status);
    while (leave_ended(calls, false)) tt_pause(&pause);
    if (calls->left) tt_set_last_error(calls->left_text);
    return calls->left;
}

const struct tt_carrier tt_carrier_staged = {.name = "staged",
                                             .work_bytes = sizeof(struct staged_work),
                                             .limits = tt_carrier_limits_of_host,
                                             .load = tt_carrier_load,
                                             .launches_first = true,
                                             .packs = true,
                                             .prepare = tt_stage_prepare,
                                             .enter = tt_carrier_enter,
                                             .leave = tt_carrier_leave,
                                             .gather = gather,
                                             .reserve = reserve,
                                             .drop = drop,
                                             .begin = begin,
                                             .launch = launch,
                                             .follow = follow,
                                             .look = look,
                                             .wait = wait};
