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
    const bool collects = call->kind == TT_CALL_COLLECTIVE, wrote = of->kind == TT_CALL_COLLECTIVE;
    if (!tt_extents_overlap(of->stage->out, call->stage->in) &&
        !tt_extents_overlap(of->stage->out, call->stage->scalar))
        return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "communicator %s: a %s of a group uses what a %s of the group writes, "
                   "and they go through memory of the host, where all inputs of a group are read "
                   "first: put them into two groups",
                   call->comm->name, collects ? "collective" : "message",
                   wrote ? "collective" : "message");
}

/* Messages run behind all collectives of their communicator in the group, and those of another
 * communicator in the order of the group, as on one stream. */
static tt_status gather(struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        TT_TRY(refuse_capture(call));
    for (const struct tt_pending_call *of = calls->first; of; of = of->next) {
        const bool collects = of->kind == TT_CALL_COLLECTIVE;
        bool is_behind = false;
        if (!of->stage->out.nbytes) continue;
        for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
            const bool is_of_one = call->comm == of->comm;
            const bool sends = call->kind != TT_CALL_COLLECTIVE;
            if (call == of)
                is_behind = true;
            else if (is_of_one ? collects && (is_behind || sends) : is_behind)
                TT_TRY(refuse_use(call, of));
        }
    }
    return TT_OK;
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

static tt_status take_bounce(const struct tt_pending_call *first)
{
    struct tt_staged_part *staged = first->comm->staged;
    size_t n = 0;
    for (const struct tt_pending_call *call = first; call; call = call->next)
        n += call->comm == first->comm;
    struct tt_bounce *bounce = (struct tt_bounce *)tt_task_take(
        staged->thread, sizeof *bounce + n * sizeof bounce->works[0]);
    if (!bounce) return tt_fail(TT_ERR_SYSTEM, "out of memory for a group of %zu calls", n);
    bounce->task.run = run;
    bounce->part = staged;
    bounce->number = staged->number + (uint32_t)n;
    bounce->nworks = 0;
    staged->bounce = bounce;
    staged->used = TT_STAGE_ALIGNMENT;
    staged->queue = tt_gpu_stream_handle(first->stream);
    staged->has_streams = staged->failed = staged->has_told = false;
    return TT_OK;
}

/* The next call of the same communicator, behind `call` in the list. */
static const struct tt_pending_call *next_of_bounce(const struct tt_pending_call *call)
{
    const struct tt_pending_call *next = call->next;
    while (next && next->comm != call->comm) next = next->next;
    return next;
}

static bool is_first(const struct tt_calls *calls, const struct tt_pending_call *of)
{
    const struct tt_pending_call *call = calls->first;
    while (call->comm != of->comm) call = call->next;
    return call == of;
}

/* Where the bounce is on the rank's own stream, that follows the streams of its calls. */
static tt_status follow_users(const struct tt_pending_call *first)
{
    const struct tt_staged_part *staged = first->comm->staged;
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
    for (struct tt_pending_call *call = calls->first; call; call = call->next) {
        struct tt_staged_part *staged = call->comm->staged;
        char *memory;
        if (!staged->bounce) TT_TRY(take_bounce(call));
        TT_TRY(tt_stage_memory(staged, call->stage->nbytes, &memory));
        tt_stage_place(call, memory);
        staged->has_streams |= call->stream != NULL;
        if (!call->stream || tt_gpu_stream_handle(call->stream) != staged->queue)
            staged->queue = staged->stream;
        call->work = &staged->bounce->works[staged->bounce->nworks++].work;
        call->is_awaited = !call->stream;
        call->bounce = staged->bounce->number;
        call->stage->stream = call->stream;
        call->stream = staged->thread;
    }
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (is_first(calls, call)) TT_TRY(follow_users(call));
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

/* A stream learns of the end of each of its calls. */
static void begin(struct tt_pending_call *call)
{
    struct tt_bounce *bounce = call->comm->staged->bounce;
    struct staged_work *mine = own(call->work);
    struct tt_work *work = call->work;
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
    if (work->stream) tt_stream_begin(work->stream);
}

/* ---- What CUDA streams do ------------------------------------------------------------------- */

/* Where the bounce is on the rank's own stream, the streams of its calls follow that. */
static tt_status lead_users(const struct tt_pending_call *first)
{
    const struct tt_staged_part *staged = first->comm->staged;
    if (staged->queue != staged->stream) return TT_OK;
    for (const struct tt_pending_call *call = first; call; call = next_of_bounce(call))
        if (call->stage->stream)
            TT_TRY(tt_context_stream_follow(
                staged->context, tt_gpu_stream_handle(call->stage->stream), staged->queue));
    return TT_OK;
}

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
    if (staged->has_told || staged->last != staged->number) return TT_OK;
    TT_TRY(store(staged, &staged->words->ended)); /* acquire: has_ended of part.c */
    staged->has_told = true;
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
    for (const struct tt_pending_call *call = first; call; call = next_of_bounce(call))
        TT_TRY(copy_pieces(call, true));
    TT_TRY(store(staged, &staged->words->in)); /* acquire: ready */
    return staged->has_streams ? TT_OK : end_bounce(staged);
}

/* Messages run behind collectives, as by kernels. */
static bool is_in_pass(const struct tt_pending_call *call, int pass)
{
    return (call->kind != TT_CALL_COLLECTIVE) == pass;
}

static tt_status copy_out(const struct tt_pending_call *first)
{
    struct tt_staged_part *staged = first->comm->staged;
    if (!staged->has_streams) return TT_OK;
    TT_TRY(tt_context_stream_await(staged->context, staged->queue, &staged->words->done,
                                   staged->number));
    for (int pass = 0; pass < 2; pass++)
        for (const struct tt_pending_call *call = first; call; call = next_of_bounce(call))
            if (call->stage->stream && is_in_pass(call, pass)) TT_TRY(copy_pieces(call, false));
    TT_TRY(end_bounce(staged));
    return lead_users(first);
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
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        struct tt_staged_part *staged = call->comm->staged;
        tt_context_begin_work(staged->context);
        staged->number = call->bounce;
        if (call->is_awaited) tt_core_enter_call(call->comm);
        if (is_first(calls, call)) check_queued(call, copy_in(call));
        tt_context_end_work(staged->context);
    }
}

/* The staging threads get the bounces, so that a stream that is full gets room. All that a stream
 * waits for stands before its wait, also where streams share a hardware queue. */
static void follow(struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        struct tt_staged_part *staged = call->comm->staged;
        if (staged->bounce) tt_stream_push(staged->thread, &staged->bounce->task);
        staged->bounce = NULL;
    }
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (is_first(calls, call) && !call->comm->staged->failed)
            check_queued(call, copy_out(call));
    for (struct tt_pending_call *call = calls->first; call; call = call->next)
        if (!call->is_awaited) free_stage(call);
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
    TT_TRY(enter(call->comm));
    tt_status status = copy_pieces(call, false);
    leave(call->comm);
    if (!status) status = tt_context_stream_synchronize(staged->context, staged->queue);
    return status ? tt_core_fail_call(call->comm, status) : TT_OK;
}

/* Leaves the calls that have ended. only_failed: those whose communicator has failed, since then or
 * in them, without a call of the driver: their outputs stay as they are. Whether more are waited
 * for. */
static bool leave_pass(struct tt_calls *calls, bool only_failed, int pass)
{
    bool waits = false;
    for (struct tt_pending_call *call = calls->first; call; call = call->next) {
        const struct tt_staged_part *staged = call->comm->staged;
        if (!call->is_awaited || !is_in_pass(call, pass)) continue;
        const bool failed = tt_fabric_failure_text(call->comm->fabric)[0];
        waits = waits || !has_run(call);
        if (!has_run(call) || (only_failed && !failed)) continue;
        /* A communicator may have failed in a later call of another rank. */
        const bool is_bad = only_failed || staged->failed || staged->has_failed;
        const tt_status status = is_bad ? tt_fabric_check(call->comm->fabric) : copy_back(call);
        call->is_awaited = false;
        free_stage(call);
        tt_core_leave_call(call->comm);
        if (!status || calls->left) continue;
        calls->left = status;
        snprintf(calls->left_text, sizeof calls->left_text, "%s", tt_last_error());
    }
    return waits;
}

static bool leave_ended(struct tt_calls *calls, bool only_failed)
{
    bool waits = false;
    for (int pass = 0; pass < 2; pass++) waits = leave_pass(calls, only_failed, pass) || waits;
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
    if (status) {
        calls->left = status;
        snprintf(calls->left_text, sizeof calls->left_text, "%s", tt_last_error());
    }
    while (leave_ended(calls, false)) tt_pause(&pause);
    if (calls->left) tt_set_last_error(calls->left_text);
    return calls->left;
}

const struct tt_carrier tt_carrier_staged = {.name = "staged",
                                             .work_bytes = sizeof(struct staged_work),
                                             .limits = limits,
                                             .load = tt_carrier_load,
                                             .launches_first = true,
                                             .packs = true,
                                             .prepare = tt_stage_prepare,
                                             .enter = enter,
                                             .leave = leave,
                                             .gather = gather,
                                             .reserve = reserve,
                                             .drop = drop,
                                             .begin = begin,
                                             .launch = launch,
                                             .follow = follow,
                                             .look = look,
                                             .wait = wait};
