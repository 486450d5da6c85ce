/* Issues calls: takes those of a group, or one, through the phases of their carriers. */
#include "communicator/issue.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"
#include "communicator/calling.h"
#include "executor/express.h"
#include "executor/stream.h"

void tt_enter_calls(const struct tt_pending_call *calls, int ncalls)
{
    for (int i = 0; i < ncalls; i++) tt_core_enter_call(calls[i].comm);
}

void tt_let_go(const struct tt_pending_call *calls, int ncalls, enum tt_call_hold hold)
{
    if (hold == TT_HOLD_CALL) return;
    for (int i = 0; i < ncalls; i++)
        if (hold == TT_HOLD_COUNT)
            tt_core_leave_call(calls[i].comm);
        else if (i == 0 || calls[i].comm != calls[i - 1].comm)
            tt_comm_end_call(tt_comm_of(calls[i].comm));
}

/* ---- Few calls of the host without streams --------------------------------------------------- */

/* Small messages for which there is room, or that have come, are done express. Of the others the
 * works are begun; returns their number. */
static int run_express(struct tt_pending_call *calls, int ncalls, struct tt_work *works)
{
    bool may[] = {[TT_CALL_SEND] = true, [TT_CALL_RECV] = true};
    int nworks = 0;
    for (int i = 0; i < ncalls; i++) {
        struct tt_pending_call *call = &calls[i];
        if (may[call->kind] && tt_p2p_express(&call->comm->engine, call->kind == TT_CALL_SEND,
                                              call->data, call->nbytes, call->peer))
            continue;
        may[call->kind] = false; /* later ones must not overtake it */
        call->work = &works[nworks++];
        tt_carrier_host.begin(call);
    }
    return nworks;
}

/* only_p2p: and all of one communicator. */
static bool are_few(const struct tt_pending_call *calls, int ncalls, bool *only_p2p)
{
    *only_p2p = true;
    if (ncalls > TT_FEW_CALLS) return false;
    for (int i = 0; i < ncalls; i++) {
        if (calls[i].stream || calls[i].carrier != &tt_carrier_host) return false;
        *only_p2p =
            *only_p2p && calls[i].kind != TT_CALL_COLLECTIVE && calls[i].comm == calls[0].comm;
    }
    return true;
}

/* Issues a few calls, without memory of the heap. */
static tt_status issue_few(struct tt_pending_call *calls, int ncalls, bool only_p2p,
                           enum tt_call_hold hold)
{
    struct tt_work works[TT_FEW_CALLS];
    struct tt_engine *engine = &calls[0].comm->engine;
    int nworks = 0;
    if (only_p2p && tt_engine_enter_if_idle(engine)) {
        nworks = run_express(calls, ncalls, works);
        tt_engine_leave(engine);
    } else {
        const tt_status status = tt_check_calls_may_wait(calls, ncalls);
        if (status) tt_drop_calls(calls, ncalls);
        if (status) tt_let_go(calls, ncalls, hold);
        TT_TRY(status);
        for (; nworks < ncalls; nworks++) {
            calls[nworks].work = &works[nworks];
            tt_carrier_host.begin(&calls[nworks]);
        }
    }
    tt_let_go(calls, ncalls, hold);
    for (int i = 0; i < nworks - 1; i++) works[i].next = &works[i + 1];
    return nworks ? tt_run(works, false) : TT_OK;
}

/* ---- All others: by carrier ------------------------------------------------------------------ */

enum { FEW_BYTES = 2048 }; /* of works of calls without streams: memory of the stack */

/* A carrier and its calls of the group. */
struct part {
    const struct tt_carrier *carrier;
    struct tt_comm_core *core; /* of the first of them */
    struct tt_calls calls;
    void *captured;
    bool is_entered;
};

struct issue {
    struct tt_pending_call *calls; /* of the group, in its order */
    int ncalls, nparts;
    struct part parts[TT_NCARRIERS];
    struct tt_work *own; /* of calls without streams: the first */
    char *memory;        /* of the works of calls without streams */
    _Alignas(_Alignof(max_align_t)) char few[FEW_BYTES];
};

static struct part *part_of(struct issue *issue, const struct tt_pending_call *call)
{
    int i = 0;
    while (i < issue->nparts && issue->parts[i].carrier != call->carrier) i++;
    struct part *part = &issue->parts[i];
    if (i < issue->nparts) return part;
    issue->nparts++;
    part->carrier = call->carrier;
    part->core = call->comm;
    part->captured = NULL;
    part->is_entered = false;
    tt_calls_init(&part->calls);
    return part;
}

static void sort(struct issue *issue, struct tt_pending_call *calls, int ncalls)
{
    issue->calls = calls;
    issue->ncalls = ncalls;
    issue->nparts = 0;
    issue->own = NULL;
    issue->memory = NULL;
    for (int i = 0; i < ncalls; i++) {
        calls[i].work = NULL;
        calls[i].is_gone = false;
        calls[i].capture = 0;
        tt_calls_add(&part_of(issue, &calls[i])->calls, &calls[i]);
    }
    for (int i = 0; i < issue->nparts; i++) issue->parts[i].calls.has_others = issue->nparts > 1;
}

/* Parts of which calls are left. */
static struct part *next_part(struct issue *issue, struct part *part)
{
    struct part *const end = issue->parts + issue->nparts;
    part = part ? part + 1 : issue->parts;
    while (part < end && !part->calls.first) part++;
    return part < end ? part : NULL;
}

/* What calls have of their own, and what the carriers have for them. Keeps the last error. */
static void drop(struct issue *issue)
{
    char text[TT_ERROR_TEXT];
    snprintf(text, sizeof text, "%s", tt_last_error());
    for (struct part *part = NULL; (part = next_part(issue, part));)
        if (part->carrier->drop) part->carrier->drop(&part->calls);
    for (int i = 0; i < issue->ncalls; i++)
        if (!issue->calls[i].is_gone) tt_call_free_own(&issue->calls[i]);
    tt_set_last_error(text);
}

void tt_tell_failure(const struct tt_pending_call *calls, int ncalls, tt_status status)
{
    char text[TT_ERROR_TEXT];
    snprintf(text, sizeof text, "%s", tt_last_error());
    for (int i = 0; i < ncalls; i++) {
        tt_ignore(tt_core_tell_failure(calls[i].comm, status));
        tt_set_last_error(text);
    }
}

void tt_drop_calls(struct tt_pending_call *calls, int ncalls)
{
    struct issue issue;
    if (!ncalls) return;
    sort(&issue, calls, ncalls);
    drop(&issue);
}

/* ---- Before the calls begin ------------------------------------------------------------------ */

static tt_status enter(struct issue *issue)
{
    for (struct part *part = NULL; (part = next_part(issue, part));) {
        if (part->carrier->enter) TT_TRY(part->carrier->enter(part->core));
        part->is_entered = part->carrier->enter;
    }
    return TT_OK;
}

static void leave(struct issue *issue)
{
    for (int i = issue->nparts - 1; i >= 0; i--)
        if (issue->parts[i].is_entered) issue->parts[i].carrier->leave(issue->parts[i].core);
}

static tt_status gather(struct issue *issue)
{
    for (struct part *part = NULL; (part = next_part(issue, part));)
        if (part->carrier->gather) TT_TRY(part->carrier->gather(&part->calls));
    return TT_OK;
}

static tt_status capture(struct issue *issue)
{
    for (struct part *part = NULL; (part = next_part(issue, part));)
        if (part->carrier->capture) TT_TRY(part->carrier->capture(&part->calls, &part->captured));
    return TT_OK;
}

static void end_capture(struct issue *issue, bool holds)
{
    for (int i = 0; i < issue->nparts; i++)
        if (issue->parts[i].captured)
            issue->parts[i].carrier->captured(issue->parts[i].captured, holds);
}

static size_t bytes_of_work(const struct part *part)
{
    enum { UNIT = _Alignof(max_align_t) };
    return (part->carrier->work_bytes + UNIT - 1) / UNIT * UNIT;
}

/* Memory for the works of calls without a stream. */
static tt_status reserve_own(struct issue *issue)
{
    size_t nbytes = 0, at = 0;
    for (struct part *part = NULL; (part = next_part(issue, part));)
        for (const struct tt_pending_call *call = part->calls.first; call; call = call->next)
            if (!call->stream) nbytes += bytes_of_work(part);
    char *memory = issue->few;
    if (nbytes > sizeof issue->few) memory = issue->memory = malloc(nbytes);
    if (!memory)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for a group of %d calls", issue->ncalls);
    for (struct part *part = NULL; (part = next_part(issue, part));)
        for (struct tt_pending_call *call = part->calls.first; call; call = call->next) {
            if (call->stream) continue;
            call->work = (struct tt_work *)(void *)(memory + at);
            at += bytes_of_work(part);
        }
    return TT_OK;
}

static tt_status reserve(struct issue *issue)
{
    TT_TRY(reserve_own(issue));
    for (struct part *part = NULL; (part = next_part(issue, part));)
        if (part->carrier->reserve) TT_TRY(part->carrier->reserve(&part->calls));
    return TT_OK;
}

/* All that can fail. All calls that are to be captured are, or none. */
static tt_status prepare(struct issue *issue)
{
    TT_TRY(tt_check_calls_may_wait(issue->calls, issue->ncalls));
    TT_TRY(enter(issue));
    TT_TRY(gather(issue));
    tt_status status = capture(issue);
    if (!status) status = reserve(issue);
    end_capture(issue, !status);
    return status;
}

/* ---- Begin, and run -------------------------------------------------------------------------- */

/* One that was gathered is carried out with others, but its carrier may order it among those of
 * other carriers. */
static void begin(struct tt_pending_call *call)
{
    if (call->is_gone && call->carrier->begin_gathered) call->carrier->begin_gathered(call);
    if (!call->is_gone) call->carrier->begin(call);
}

static void launch(struct issue *issue, bool first)
{
    for (struct part *part = NULL; (part = next_part(issue, part));)
        if (part->carrier->launch && part->carrier->launches_first == first)
            part->carrier->launch(&part->calls);
}

/* The calls get their turns, and whoever runs them gets them. */
static void start(struct issue *issue)
{
    for (int i = 0; i < issue->ncalls; i++) begin(&issue->calls[i]);
    launch(issue, true);
    launch(issue, false);
    for (struct part *part = NULL; (part = next_part(issue, part));)
        if (part->carrier->follow) part->carrier->follow(&part->calls);
}

/* Calls that are refused have begun: they end with their communicators' failure. */
static tt_status find_refused(struct issue *issue, char text[TT_ERROR_TEXT])
{
    tt_status status = TT_OK;
    for (struct part *part = NULL; !status && (part = next_part(issue, part));)
        if (part->carrier->find_refused) status = part->carrier->find_refused(&part->calls);
    if (status) snprintf(text, TT_ERROR_TEXT, "%s", tt_last_error());
    return status;
}

/* The works of calls without streams. */
static void link_own(struct issue *issue)
{
    struct tt_work **last = &issue->own;
    for (struct part *part = NULL; (part = next_part(issue, part));)
        for (const struct tt_pending_call *call = part->calls.first; call; call = call->next) {
            if (call->stream) continue;
            *last = call->work;
            last = &call->work->next;
        }
}

static void look(void *argument)
{
    struct issue *issue = argument;
    for (struct part *part = NULL; (part = next_part(issue, part));)
        if (part->carrier->look) part->carrier->look(&part->calls);
}

static tt_status run_own(struct issue *issue)
{
    tt_status status = TT_OK;
    if (issue->own) {
        look(issue);
        status = tt_run_and_look(issue->own, look, issue);
    }
    for (int i = 0; i < issue->nparts; i++) /* also where look has left all calls */
        if (issue->parts[i].carrier->wait)
            status = issue->parts[i].carrier->wait(&issue->parts[i].calls, status);
    return status;
}

static tt_status issue_by_carrier(struct tt_pending_call *calls, int ncalls, enum tt_call_hold hold)
{
    struct issue issue;
    char text[TT_ERROR_TEXT];
    tt_status refused = TT_OK;
    TT_CANCELS_WAIT; /* a call may wait for memory, or for its launch */
    sort(&issue, calls, ncalls);
    tt_status status = prepare(&issue);
    if (status) {
        drop(&issue);
        tt_tell_failure(calls, ncalls, status);
    } else {
        start(&issue);
        refused = find_refused(&issue, text);
        link_own(&issue);
    }
    leave(&issue);
    tt_let_go(calls, ncalls, hold);
    if (!status) status = run_own(&issue);
    if (refused && !status) tt_set_last_error(text);
    free(issue.memory);
    for (int i = 0; i < issue.nparts; i++) free(issue.parts[i].calls.memory);
    return status ? status : refused;
}

tt_status tt_issue_calls(struct tt_pending_call *calls, int ncalls, enum tt_call_hold hold)
{
    bool only_p2p;
    return are_few(calls, ncalls, &only_p2p) ? issue_few(calls, ncalls, only_p2p, hold)
                                             : issue_by_carrier(calls, ncalls, hold);
}
