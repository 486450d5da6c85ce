/* The wait loop: where works of the host wait for other ranks. (Express calls wait in express.c;
 * carriers of calls on GPUs wait for their kernels, copies and replays themselves.) */
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "executor/internal.h"

enum {
    SPIN_TURNS =
        4000, /* with a core for each rank: about 20 us before the core is offered to others */
    LOOK_TURNS = 64,               /* how often a wait looks at the clock and the failure record */
    EXAMINE_NS = 1000000,          /* system calls and the deadline: every millisecond */
    SLEEP_AFTER_NS = 1000000,      /* waking costs tens of microseconds: only after a long wait */
    POLITE_SLEEP_AFTER_NS = 50000, /* also where sockets wake, and the kernel's part of it needs
                                    * the core */
    SLEEP_NS = 50000,
};

struct wait {
    unsigned turns;
    bool spin, polite;
    int64_t since_ns, examined_ns; /* 0: not looked yet */
    void (*look)(void *arg);       /* the caller's; NULL: none */
    void *arg;
};

/* The first failure of the works. Its text is this thread's last error until the next one fails. */
struct failure {
    tt_status status;
    char text[TT_ERROR_TEXT];
};

/* Called after each look at an operation, before the next can fail. */
static void note_failure(struct failure *first, const struct tt_work *work)
{
    if (first->status || !tt_work_is_done(work) || !work->status) return;
    first->status = work->status;
    snprintf(first->text, sizeof first->text, "%s", tt_last_error());
}

/* Sleeps a little; bytes from other hosts end the sleep. */
static void sleep_for_events(struct tt_work *works)
{
    for (const struct tt_work *work = works; work; work = work->next) {
        struct tt_engine *engine = work->engine;
        if (tt_work_is_done(work) || !engine->fabric->wires ||
            atomic_exchange_explicit(&engine->busy, true, memory_order_acquire))
            continue;
        tt_wires_wait(engine->fabric->wires, SLEEP_NS / 1000);
        tt_engine_leave(engine);
        return;
    }
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
}

/* The engine of an operation that is done may be gone: its communicator may have been aborted or
 * destroyed. */
static bool by_sockets(const struct tt_work *works)
{
    for (const struct tt_work *work = works; work; work = work->next) {
        if (tt_work_is_done(work)) continue;
        const struct tt_wires *wires = work->engine->fabric->wires;
        if (wires && tt_wires_by_sockets(wires)) return true;
    }
    return false;
}

static void examine_all(struct tt_work *works, struct failure *first)
{
    for (struct tt_work *work = works; work; work = work->next) {
        tt_work_examine(work);
        note_failure(first, work);
    }
}

static void look_around(struct wait *wait, struct tt_work *works, struct failure *first)
{
    const int64_t now = tt_now_ns();
    if (!wait->since_ns) wait->since_ns = wait->examined_ns = now;
    if (now - wait->examined_ns >= EXAMINE_NS) {
        wait->examined_ns = now;
        examine_all(works, first);
        if (wait->look) wait->look(wait->arg);
    }
    const bool soon = wait->polite || by_sockets(works);
    if (now - wait->since_ns >= (soon ? POLITE_SLEEP_AFTER_NS : SLEEP_AFTER_NS))
        sleep_for_events(works);
}

static void wait_a_turn(struct wait *wait, struct tt_work *works, struct failure *first)
{
    wait->turns++;
    if (wait->spin && wait->turns < SPIN_TURNS) {
        tt_cpu_relax();
        return;
    }
    sched_yield();
    if (wait->turns % LOOK_TURNS == 0) look_around(wait, works, first);
}

static bool may_spin(const struct tt_work *works)
{
    for (const struct tt_work *work = works; work; work = work->next)
        if (work->engine->fabric->oversubscribed) return false;
    return true;
}

/* Advances everything once; sums what moved. */
static bool advance_all(struct tt_work *works, uint64_t *progress, struct failure *first)
{
    bool waiting = false;
    for (struct tt_work *work = works; work; work = work->next) {
        waiting |= tt_work_advance(work) == TT_IN_PROGRESS;
        *progress += work->progress;
        note_failure(first, work);
    }
    return waiting;
}

static tt_status run(struct tt_work *works, struct wait wait)
{
    struct failure first;
    uint64_t before = 0;
    first.status = TT_OK; /* the text is not cleared: every call comes here */
    for (;;) {
        uint64_t progress = 0;
        if (!advance_all(works, &progress, &first)) break;
        if (progress != before) {
            before = progress;
            wait.turns = 0;
            wait.since_ns = 0;
        }
        wait_a_turn(&wait, works, &first);
    }
    if (first.status) tt_set_last_error(first.text);
    return first.status;
}

tt_status tt_run(struct tt_work *works, bool polite)
{
    return run(works, (struct wait){.spin = !polite && may_spin(works), .polite = polite});
}

tt_status tt_run_and_look(struct tt_work *works, void (*look)(void *arg), void *arg)
{
    return run(works, (struct wait){.spin = may_spin(works), .look = look, .arg = arg});
}
