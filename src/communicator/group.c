/* Issuing calls: at once, in a stream, or together at the end of a group. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "communicator/batches.h"
#include "communicator/graphs.h"
#include "communicator/staged_graphs.h"
#include "executor/exchange.h"

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

tt_status tt_group_check_stream(const char *function, tuttiStream_t stream)
{
    for (int i = 0; i < group.ncalls; i++)
        if (kept_calls()[i].stream == stream)
            return tt_fail(TT_ERR_USAGE,
                           "%s: the open group holds a call on the stream: end the group first",
                           function);
    return TT_OK;
}

static bool begins_in(const void *buffer, const void *memory, size_t nbytes)
{
    return (uintptr_t)buffer - (uintptr_t)memory < nbytes;
}

static bool has_buffer_in(const struct tt_pending_call *held, const void *memory, size_t nbytes)
{
    if (held->stage && held->stage->gpu) return begins_in(held->stage->gpu, memory, nbytes);
    if (held->kind != TT_WORK_COLLECTIVE) return begins_in(held->data, memory, nbytes);
    return begins_in(held->call.input, memory, nbytes) ||
           begins_in(held->call.output, memory, nbytes);
}

tt_status tt_group_check_memory(const char *function, const void *memory, size_t nbytes)
{
    for (int i = 0; i < group.ncalls; i++)
        if (has_buffer_in(&kept_calls()[i], memory, nbytes))
            return tt_fail(TT_ERR_USAGE,
                           "%s: the open group holds a call with a buffer in the memory at %p (%zu "
                           "bytes): end the group first",
                           function, memory, nbytes);
    return TT_OK;
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
static tt_status issue_few(struct tt_pending_call *calls, int ncalls, bool only_p2p,
                           bool are_entered)
{
    struct tt_work works[FEW_CALLS];
    struct tt_engine *engine = &calls[0].comm->engine;
    int nworks = 0;
    if (only_p2p && !are_entered && tt_engine_enter_if_idle(engine)) {
        nworks = run_express(calls, ncalls, works);
        tt_engine_leave(engine);
    } else {
        if (!are_entered) tt_comm_enter_calls(calls, ncalls);
        for (; nworks < ncalls; nworks++) tt_begin_call(&works[nworks], &calls[nworks]);
        tt_comm_leave_calls(calls, ncalls);
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
static tt_status enter_and_capture(struct tt_pending_call *calls, int *ncalls, bool are_entered)
{
    const int nentered = *ncalls;
    tuttiComm_t *entered = malloc((unsigned)nentered * sizeof *entered);
    if (!entered) {
        drop_calls(calls, nentered);
        if (are_entered) tt_comm_leave_calls(calls, nentered);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for a group of %d calls", nentered);
    }
    if (!are_entered) tt_comm_enter_calls(calls, nentered);
    for (int i = 0; i < nentered; i++) entered[i] = calls[i].comm;
    const tt_status status = capture_calls(calls, ncalls);
    if (status)
        drop_calls(calls, *ncalls);
    else
        tt_comm_enter_calls(calls, *ncalls);
    for (int i = 0; i < nentered; i++) tt_comm_leave_call(entered[i]);
    free(entered);
    return status;
}

/* are_entered: the caller has entered the calls. They are left once they have their turns. */
static tt_status issue_all(struct tt_pending_call *calls, int ncalls, bool are_entered)
{
    bool only_p2p;
    if (are_few(calls, ncalls, &only_p2p)) return issue_few(calls, ncalls, only_p2p, are_entered);
    tt_status status = enter_and_capture(calls, &ncalls, are_entered);
    if (status || ncalls < 1) return status;
    struct tt_batch **batches = calloc((unsigned)ncalls, sizeof *batches);
    status = batches ? tt_comm_defer(calls, ncalls)
                     : tt_fail(TT_ERR_SYSTEM, "out of memory for a group of %d calls", ncalls);
    if (!status) status = tt_batches_make(calls, ncalls, batches);
    if (status) {
        drop_calls(calls, ncalls);
        tt_comm_leave_calls(calls, ncalls);
    } else {
        tt_comm_staged_link(calls, ncalls);
        status = tt_batches_launch(calls, ncalls, batches);
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
    return issue_all(pending, 1, false);
}

tt_status tt_issue_alone(tuttiComm_t comm, const struct tt_memo *memo)
{
    struct tt_work work;
    tt_comm_enter_call(comm);
    tt_work_collective(&work, &comm->engine, &memo->call);
    memo->cached->last_turn = work.turn;
    tt_comm_leave_call(comm);
    return tt_run(&work, 1, false);
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
    struct tt_pending_call *calls = kept_calls();
    const bool are_entered = !status && group.ninits; /* an abort waits, also during the inits */
    if (are_entered) {
        tt_comm_enter_calls(calls, group.ncalls);
        status = tt_init_together(group.inits, group.ninits);
    }
    release_programs(calls, group.ncalls);
    if (!status && is_users) count_group(calls, group.ncalls);
    /* From here on the turns of the calls keep their programs, and an abort may free these while
     * the group waits for the calls of another communicator. */
    if (status) {
        drop_calls(calls, group.ncalls);
        if (are_entered) tt_comm_leave_calls(calls, group.ncalls);
    } else if (group.ncalls) {
        status = issue_all(calls, group.ncalls, are_entered);
    }
    forget_group();
    return tt_result(function, status);
}

tuttiResult_t tuttiGroupEnd(void)
{
    return tt_group_end(true);
}
