/* Issuing calls: at once, in a stream, or together at the end of a group. */
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "communicator/graphs.h"
#include "communicator/staged_graphs.h"
#include "executor/exchange.h"
#include "executor/stream.h"

enum { FEW_CALLS = 4 };

/* This thread's open group. Few calls need no memory but this. */
static _Thread_local struct {
    int depth;
    tt_status failed; /* of the first call that failed, with its function and text */
    const char *function;
    int ncalls, ninits;
    struct tt_pending_call few[FEW_CALLS];
    struct tt_binding few_bindings[FEW_CALLS];
    /* In place of the few, where there are more; NULL: there are not */
    struct tt_pending_call *calls;
    struct tt_binding *bindings; /* of the calls, while the group is open */
    int calls_room, bindings_room;
    struct tt_pending_init *inits;
    int inits_room;
    char error[TT_ERROR_TEXT];
} group;

static struct tt_pending_call *kept_calls(void)
{
    return group.calls ? group.calls : group.few;
}

static struct tt_binding *kept_bindings(void)
{
    return group.calls ? group.bindings : group.few_bindings;
}

bool tt_in_group(void)
{
    return group.depth > 0;
}

tuttiResult_t tt_group_result(const char *function, tt_status status)
{
    const tuttiResult_t result = tt_result(function, status);
    if (group.depth == 0 || status >= 0 || group.failed) return result;
    group.failed = status;
    group.function = function;
    snprintf(group.error, sizeof group.error, "%s", tt_last_error());
    return result;
}

/* Its binding is memory of the call's own. */
static bool has_table(const struct tt_pending_call *pending)
{
    return pending->kind == TT_WORK_COLLECTIVE && pending->call.binding->table_at;
}

/* The calls of a group on one stream; those on streams of a GPU: all of one communicator, which run
 * side by side, so that none waits behind another one's turn. Freed by who runs it. */
struct batch {
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
static void begin_in(struct batch *batch, struct tt_pending_call *pending)
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
    struct batch *batch = (struct batch *)task;
    const tt_status status =
        batch->deferred ? tt_stage_run(batch->deferred) : tt_run(batch->works, batch->nworks, true);
    free(batch);
    return status;
}

static void end_attended(struct tt_attended_works *works)
{
    free((char *)works - offsetof(struct batch, attended));
}

static bool share_batch(const struct tt_pending_call *a, const struct tt_pending_call *b)
{
    if (!gpus_stream(a) || !gpus_stream(b)) return a->stream == b->stream;
    return a->comm == b->comm;
}

static struct batch *make_batch(const struct tt_pending_call *calls, int ncalls,
                                const struct tt_pending_call *first)
{
    int nworks = 0;
    for (int i = 0; i < ncalls; i++) nworks += share_batch(&calls[i], first);
    struct batch *batch = malloc(sizeof *batch + (size_t)nworks * sizeof batch->works[0]);
    if (!batch) return NULL;
    batch->task.run = run_batch;
    batch->nworks = 0;
    batch->deferred = first->deferred ? tt_stage_run_make(calls, ncalls, first) : NULL;
    if (!first->deferred || batch->deferred) return batch;
    free(batch);
    return NULL;
}

static void free_batch(struct batch *batch)
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

/* batches[i] = the batch of the i-th call, which others may share. Nothing can fail after that:
 * once the calls have their turns, each stream gets its batch. */
static tt_status make_batches(const struct tt_pending_call *calls, int ncalls,
                              struct batch **batches)
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

/* Until the calls have their turns, a communicator may have nothing outstanding: an abort by
 * another thread waits until they are left. */
static void enter_calls(const struct tt_pending_call *calls, int ncalls)
{
    for (int i = 0; i < ncalls; i++) tt_comm_enter_call(calls[i].comm);
}

static void leave_calls(const struct tt_pending_call *calls, int ncalls)
{
    for (int i = 0; i < ncalls; i++) tt_comm_leave_call(calls[i].comm);
}

/* Of calls on a GPU's stream. */
static void push_batch(tuttiComm_t comm, struct batch *batch)
{
    if (!comm->on_gpu) {
        tt_stream_push(comm->staged->attendant, &batch->task);
        return;
    }
    batch->attended = (struct tt_attended_works){
        .works = batch->works, .nworks = batch->nworks, .done = end_attended};
    tt_attended_push(&comm->on_gpu->queue, &batch->attended);
}

/* Hands the streams their batches, then runs the calls without a stream here. Turns are taken in
 * the order of the calls, whatever their streams. */
static tt_status launch_batches(struct tt_pending_call *calls, int ncalls, struct batch **batches)
{
    struct batch *own = NULL;
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
    leave_calls(calls, ncalls);
    if (!own) return TT_OK;
    const tt_status status = tt_run(own->works, own->nworks, false);
    free(own);
    return tt_comm_staged_finish(calls, ncalls, status);
}

/* Small messages for which there is room, or that have come, are done in a straight line. Of the
 * others the works are begun; returns their number. */
static int run_express(struct tt_pending_call *calls, int ncalls, struct tt_work *works)
{
    bool may[] = {[TT_WORK_SEND] = true, [TT_WORK_RECV] = true};
    int nworks = 0;
    for (int i = 0; i < ncalls; i++) {
        if (may[calls[i].kind] && tt_p2p_express(&calls[i].comm->engine, calls[i].kind,
                                                 calls[i].data, calls[i].nbytes, calls[i].peer))
            continue;
        may[calls[i].kind] = false; /* later ones must not overtake it */
        tt_begin_call(&works[nworks++], &calls[i]);
    }
    return nworks;
}

/* only_p2p: and all of one communicator. */
static bool are_few(const struct tt_pending_call *calls, int ncalls, bool *only_p2p)
{
    *only_p2p = true;
    if (ncalls > FEW_CALLS) return false;
    for (int i = 0; i < ncalls; i++) {
        if (calls[i].stream || calls[i].on_device || calls[i].stage ||
            tt_comm_replays(calls[i].comm))
            return false;
        *only_p2p =
            *only_p2p && calls[i].kind != TT_WORK_COLLECTIVE && calls[i].comm == calls[0].comm;
    }
    return true;
}

/* Few calls without streams need no memory of their own. While this thread holds the engine, an
 * abort by another one waits for it. */
static tt_status issue_few(struct tt_pending_call *calls, int ncalls, bool only_p2p)
{
    struct tt_work works[FEW_CALLS];
    struct tt_engine *engine = &calls[0].comm->engine;
    int nworks = 0;
    if (only_p2p && tt_engine_enter_if_idle(engine)) {
        nworks = run_express(calls, ncalls, works);
        tt_engine_leave(engine);
    } else {
        enter_calls(calls, ncalls);
        for (; nworks < ncalls; nworks++) tt_begin_call(&works[nworks], &calls[nworks]);
        leave_calls(calls, ncalls);
    }
    return nworks ? tt_run(works, nworks, false) : TT_OK;
}

/* Calls that will not be issued: nobody else frees their tables of blocks, exchanges and staging
 * memory. */
static void drop_calls(const struct tt_pending_call *calls, int ncalls)
{
    for (int i = 0; i < ncalls; i++) {
        if (has_table(&calls[i])) free((void *)(uintptr_t)calls[i].call.binding);
        if (calls[i].kind == TT_WORK_EXCHANGE) tt_exchange_release(calls[i].exchange);
        tt_stage_drop(calls[i].stage);
    }
}

static tt_status capture_calls(struct tt_pending_call *calls, int *ncalls)
{
    struct tt_staged_capture *staged;
    TT_TRY(tt_comm_find_captures(calls, *ncalls));
    TT_TRY(tt_comm_gather_exchanges(calls, ncalls));
    TT_TRY(tt_comm_capture_staged(calls, ncalls, &staged));
    const tt_status status = tt_comm_capture(calls, ncalls);
    tt_comm_captured_staged(staged, !status);
    return status;
}

/* Leaves the calls entered that are not captured; after a failure there are none. The list of calls
 * changes, so that of who is entered in the meantime is one of its own. */
static tt_status enter_and_capture(struct tt_pending_call *calls, int *ncalls)
{
    const int nentered = *ncalls;
    tuttiComm_t *entered = malloc((unsigned)nentered * sizeof *entered);
    for (int i = 0; entered && i < nentered; i++) tt_comm_enter_call(entered[i] = calls[i].comm);
    const tt_status status =
        entered ? capture_calls(calls, ncalls)
                : tt_fail(TT_ERR_SYSTEM, "out of memory for a group of %d calls", nentered);
    if (status)
        drop_calls(calls, *ncalls);
    else
        enter_calls(calls, *ncalls);
    for (int i = 0; entered && i < nentered; i++) tt_comm_leave_call(entered[i]);
    free(entered);
    return status;
}

static tt_status issue_all(struct tt_pending_call *calls, int ncalls)
{
    bool only_p2p;
    if (are_few(calls, ncalls, &only_p2p)) return issue_few(calls, ncalls, only_p2p);
    tt_status status = enter_and_capture(calls, &ncalls);
    if (status || ncalls < 1) return status;
    struct batch **batches = calloc((unsigned)ncalls, sizeof *batches);
    status = batches ? tt_comm_defer(calls, ncalls)
                     : tt_fail(TT_ERR_SYSTEM, "out of memory for a group of %d calls", ncalls);
    if (!status) status = make_batches(calls, ncalls, batches);
    if (status) {
        drop_calls(calls, ncalls);
        leave_calls(calls, ncalls);
    } else {
        tt_comm_staged_link(calls, ncalls);
        status = launch_batches(calls, ncalls, batches);
    }
    free(batches);
    return status;
}

/* Room for one more element of `size` bytes in a growing array, which may hold keys: the memory
 * that it leaves is wiped. */
static tt_status make_room(void **array, int used, int *room, size_t size)
{
    if (used < *room) return TT_OK;
    const int more = *room ? 2 * *room : 16;
    void *grown = malloc((size_t)more * size);
    if (!grown) return tt_fail(TT_ERR_SYSTEM, "out of memory for a group of %d calls", more);
    if (used) {
        memcpy(grown, *array, (size_t)used * size);
        sodium_memzero(*array, (size_t)used * size);
    }
    free(*array);
    *array = grown;
    *room = more;
    return TT_OK;
}

/* Room for one more call, in memory of the heap when there are more than few. */
static tt_status make_call_room(void)
{
    void *calls = group.calls, *bindings = group.bindings;
    const int used = group.calls ? group.ncalls : 0;
    if (!calls && group.ncalls < FEW_CALLS) return TT_OK;
    TT_TRY(make_room(&bindings, used, &group.bindings_room, sizeof *group.bindings));
    group.bindings = bindings;
    TT_TRY(make_room(&calls, used, &group.calls_room, sizeof *group.calls));
    if (!group.calls) {
        memcpy(calls, group.few, sizeof group.few);
        memcpy(bindings, group.few_bindings, sizeof group.few_bindings);
    }
    group.calls = calls;
    return TT_OK;
}

static tt_status keep_call(const struct tt_pending_call *pending)
{
    TT_TRY(make_call_room());
    if (pending->kind == TT_WORK_COLLECTIVE) {
        kept_bindings()[group.ncalls] = *pending->call.binding;
        pending->cached->nheld++;
    }
    kept_calls()[group.ncalls++] = *pending;
    return TT_OK;
}

tt_status tt_issue(struct tt_pending_call *pending)
{
    if (tt_in_group()) {
        const tt_status status = keep_call(pending);
        if (status) drop_calls(pending, 1);
        return status;
    }
    return issue_all(pending, 1);
}

tt_status tt_issue_express(tuttiComm_t comm, tuttiStream_t stream, const struct tt_memo *memo)
{
    if (memo->express.kind && !stream && !tt_in_group() && !tt_comm_replays(comm) &&
        tt_engine_enter_if_idle(&comm->engine))
        return tt_express_run(&memo->express, &comm->engine, &memo->call);
    return tt_issue(&(struct tt_pending_call){.comm = comm,
                                              .stream = stream,
                                              .kind = TT_WORK_COLLECTIVE,
                                              .call = memo->call,
                                              .cached = memo->cached});
}

tt_status tt_issue_init(const struct tt_pending_init *init)
{
    if (!tt_in_group()) return tt_init_together(init, 1);
    void *inits = group.inits;
    TT_TRY(make_room(&inits, group.ninits, &group.inits_room, sizeof *init));
    group.inits = inits;
    group.inits[group.ninits++] = *init;
    return TT_OK;
}

tuttiResult_t tuttiGroupStart(void)
{
    group.depth++;
    return tuttiSuccess;
}

/* The calls find their bindings where these are now, and hold their programs no longer. */
static void release_programs(struct tt_pending_call *calls, int ncalls)
{
    struct tt_binding *bindings = kept_bindings();
    for (int i = 0; i < ncalls; i++) {
        if (calls[i].kind != TT_WORK_COLLECTIVE) continue;
        if (!bindings[i].table_at) calls[i].call.binding = &bindings[i];
        calls[i].cached->nheld--;
    }
}

static void forget_group(void)
{
    if (group.inits) {
        sodium_memzero(group.inits, (size_t)group.ninits * sizeof *group.inits);
        free(group.inits);
        group.inits = NULL;
        group.inits_room = 0;
    }
    if (group.bindings) {
        free(group.calls);
        free(group.bindings);
        group.calls = NULL;
        group.bindings = NULL;
        group.calls_room = group.bindings_room = 0;
    }
    group.failed = TT_OK;
    group.ncalls = group.ninits = 0;
}

/* Counts the group once for each communicator. */
static void count_group(const struct tt_pending_call *calls, int ncalls)
{
    for (int i = 0; i < ncalls; i++) {
        struct tt_call_counts *counts = &calls[i].comm->counts;
        counts->groups += !counts->is_grouped;
        counts->is_grouped = true;
    }
    for (int i = 0; i < ncalls; i++) calls[i].comm->counts.is_grouped = false;
}

tuttiResult_t tt_group_end(bool is_users)
{
    static const char name[] = "tuttiGroupEnd";
    if (group.depth == 0)
        return tt_result(
            name, tt_fail(TT_ERR_USAGE, "tuttiGroupEnd without tuttiGroupStart in this thread"));
    if (--group.depth > 0) return tuttiSuccess;
    tt_status status = group.failed; /* then nothing of the group is issued */
    const char *function = status ? group.function : name;
    if (status) tt_set_last_error(group.error);
    if (!status && group.ninits) status = tt_init_together(group.inits, group.ninits);
    struct tt_pending_call *calls = kept_calls();
    release_programs(calls, group.ncalls);
    if (!status && is_users) count_group(calls, group.ncalls);
    /* From here on the turns of the calls keep their programs, and an abort may free these while
     * the group waits for the calls of another communicator. */
    if (status)
        drop_calls(calls, group.ncalls);
    else if (group.ncalls)
        status = issue_all(calls, group.ncalls);
    forget_group();
    return tt_result(function, status);
}

tuttiResult_t tuttiGroupEnd(void)
{
    return tt_group_end(true);
}
