/* Checks during a long wait: the deadline, and what each kind of call checks. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "executor/internal.h"

enum {
    FIRST_REPORT_MS = 100,
    REPORT_MS = 1000,
    BEYOND_DEADLINE_MS = 3000, /* for other ranks to name the one that is missing */
};

/* Sends this rank's record to the other hosts when the wait is long. */
static void report(struct tt_engine *engine)
{
    const int64_t now = tt_now_ns();
    atomic_store_explicit(&engine->fabric->record->seen_ns, now, memory_order_relaxed);
    if (!engine->fabric->wires || now < engine->report_ns) return;
    if (engine->report_ns) tt_wires_send_record(engine->fabric->wires);
    engine->report_ns = tt_deadline_ns(engine->report_ns ? REPORT_MS : FIRST_REPORT_MS);
}

/* Without anybody to blame this rank waits a little for the failure of others. */
static bool has_timed_out(const struct tt_work *work)
{
    const int64_t beyond_ns = INT64_C(1000000) * BEYOND_DEADLINE_MS;
    if (!tt_expired(work->deadline_ns)) return false;
    return work->engine->fabric->nranks == 2 || work->ops->knows(work) ||
           tt_expired(work->deadline_ns + beyond_ns);
}

/* Who waits, in what, and for whom. */
struct wait_text {
    char name[128], call[160], missing[640];
};

static void describe_call(const struct tt_work *work, struct wait_text *text)
{
    const struct tt_fabric *fabric = work->engine->fabric;
    text->missing[0] = '\0';
    tt_fabric_name_rank(fabric, fabric->rank, text->name, sizeof text->name);
    work->ops->describe(work, text->call, sizeof text->call);
}

static void describe_wait(const struct tt_work *work, struct wait_text *text)
{
    describe_call(work, text);
    work->ops->missing(work, text->missing, sizeof text->missing);
}

static tt_status time_out(struct tt_work *work)
{
    struct wait_text text;
    describe_wait(work, &text);
    return tt_fabric_fail(work->engine->fabric, TT_ERR_TIMEOUT,
                          "%s waited %lld ms in %s of communicator %s (%s)%s", text.name,
                          (long long)work->timeout_ms, text.call, work->engine->name,
                          tt_timeout_source(work->timeout_ms), text.missing);
}

/* Of calls that wait side by side one speaks for all. mark: as in tt_late_is_due. */
static bool is_to_say(struct tt_work *work, uint64_t mark, int64_t *waited_ms)
{
    struct tt_engine *engine = work->engine;
    if (!tt_late_is_due(&work->late, engine->late_ms, mark, waited_ms) ||
        !tt_expired(engine->quiet_ns))
        return false;
    engine->quiet_ns = tt_deadline_ns(*waited_ms / 2 + 1);
    return true;
}

/* A call without its turn has no deadline: an earlier one may wait for work of the user's. An
 * earlier one that has begun speaks for itself. */
static void say_if_behind(struct tt_work *work)
{
    const struct tt_engine *engine = work->engine;
    const uint64_t done = atomic_load_explicit(work->turns, memory_order_relaxed);
    const unsigned long long nbefore = work->turn - done - 1;
    struct wait_text text;
    int64_t waited_ms;
    if (!nbefore || engine->nbegun || !is_to_say(work, done, &waited_ms)) return;
    describe_call(work, &text);
    TT_WARN("%s has waited %lld ms to begin %s of communicator %s (TUTTI_LATE_MS); %llu earlier %s "
            "not done, the first of which may be queued in a stream behind other work",
            text.name, (long long)waited_ms, text.call, engine->name, nbefore,
            nbefore > 1 ? "calls are" : "call is");
}

static void say_if_late(struct tt_work *work)
{
    const struct tt_engine *engine = work->engine;
    struct wait_text text;
    int64_t waited_ms;
    if (!is_to_say(work, work->progress, &waited_ms)) return;
    describe_wait(work, &text);
    TT_WARN("%s has waited %lld ms in %s of communicator %s (TUTTI_LATE_MS)%s", text.name,
            (long long)waited_ms, text.call, engine->name, text.missing);
}

/* What other ranks have told of one that is gone concerns all waits. */
static tt_status follow_gone(struct tt_engine *engine)
{
    if (!engine->fabric->wires) return TT_OK;
    tt_fabric_follow_gone(engine->fabric);
    return tt_engine_check_gone(engine);
}

tt_status tt_work_check(struct tt_work *work)
{
    const bool started = work->state != TT_WORK_ISSUED;
    if (started && !work->deadline_ns) work->deadline_ns = tt_deadline_ns(work->timeout_ms);
    report(work->engine);
    TT_TRY(tt_fabric_check(work->engine->fabric));
    TT_TRY(work->ops->check(work));
    TT_TRY(follow_gone(work->engine));
    if (started)
        say_if_late(work);
    else
        say_if_behind(work);
    return work->deadline_ns && has_timed_out(work) ? time_out(work) : TT_OK;
}

tt_status tt_engine_check(struct tt_engine *engine, const struct tt_needs *needs)
{
    struct tt_fabric *fabric = engine->fabric;
    if (!tt_engine_try_enter(engine)) return TT_OK;
    const uint64_t next = atomic_load_explicit(&engine->collectives_done, memory_order_relaxed) + 1;
    report(engine);
    tt_status status = tt_fabric_check(fabric);
    if (!status)
        status = tt_fabric_check_peers(fabric, needs->collective ? next : 0,
                                       needs->collective ? -1 : needs->peer, needs->sends);
    if (status) tt_fabric_pass_on(fabric);
    tt_engine_leave(engine);
    return status;
}
