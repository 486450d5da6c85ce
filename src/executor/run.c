/* The wait loop. Calls of the host wait here for other ranks (express ones look for a while in
 * collective.c first), staged calls also for their CUDA streams, and calls that kernels carry,
 * where they have no stream, for their kernels. Of those on CUDA streams the attendant looks at the
 * kernels (carrier/kernel/attendant.h). The carriers wait themselves for replays, and for staged
 * calls without a stream.
 *
 * A wait looks at once again (spins), where there is a core for each rank; then it yields the core
 * between two looks; then it sleeps. It sleeps after a millisecond, and, where other programs use
 * the cores (the machine is crowded), as soon as it has spun: there a thread that yields gives a
 * whole time slice to another program, once for each message, while one that sleeps gets the core
 * back as soon as it is woken. Slow yields that follow one another soon show that the machine is
 * crowded. After a while the wait tries yields again; some quick yields in a row show that the
 * machine is no longer crowded. */
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "executor/internal.h"
#include "executor/stream.h"

enum {
    /* A turn takes 0.02 to 0.5 us, by the call: so these are times. */
    SPIN_NS = 20000, /* with a core for each rank, then the core is offered to others */
    /* Where the machine is crowded, and the time that a wait spins is missing when it is woken: on
     * the core of another rank, which may be the one that is awaited, and on a core of its own,
     * where it costs a wake to sleep. */
    SHARED_SPIN_NS = 2500,
    CROWDED_SPIN_NS = 250000,
    LOOK_TURNS = 64,               /* how often a wait that yields looks at the failure record */
    EXAMINE_NS = 1000000,          /* system calls and the deadline: every millisecond */
    SLEEP_AFTER_NS = 1000000,      /* waking costs tens of microseconds: only after a long wait */
    POLITE_SLEEP_AFTER_NS = 50000, /* also where sockets wake, and the kernel's part of it needs
                                    * the core */
    SLEEP_NS = 50000,              /* where nobody wakes this rank */
    MOST_SLEEP_NS = 1000000,       /* where somebody does: failures and deadlines are seen */
    SLOW_YIELD_NS = 200000,
    SHARED_SLOW_YIELD_NS = 2000000, /* ranks share cores: one that copies a long message is no
                                     * other program */
    /* How long waits sleep after a slow yield; twice as long each time that the first yields after
     * it are slow again. */
    CROWDED_NS = 20000000,
    MOST_CROWDED_NS = 320000000,
    QUICK_YIELDS = 8,
    /* Slow yields with so many times as much time between them do not count: sleeping costs more.
     */
    RARE = 4,
};

struct wait {
    unsigned turns;
    bool spin, polite, hurried;
    bool one_queue;                /* the works are (is_one_queue) */
    int64_t begin_ns;              /* of the first turn since something moved */
    int64_t spin_ns;               /* how long it spins from then on */
    int64_t since_ns, examined_ns; /* 0: not looked yet */
    struct tt_sleep *sleep;        /* armed (transport/host/sleep.h); NULL: not */
    uint32_t nwakes;               /* of that sleep */
    void (*look)(void *arg);       /* the caller's; NULL: none */
    void *arg;
};

/* The first failure of the works. Its text is this thread's last error until the next one fails. */
struct failure {
    tt_status status;
    char text[TT_ERROR_TEXT];
};

/* Called after each look at a work, before the next can fail. */
static void note_failure(struct failure *first, const struct tt_work *work)
{
    if (first->status || !tt_work_is_done(work) || !work->status) return;
    first->status = work->status;
    snprintf(first->text, sizeof first->text, "%s", tt_last_error());
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

/* In one queue, only the work whose turn is next: those behind it cannot have begun. */
static void examine(struct tt_work *works, bool one_queue, struct failure *first)
{
    for (struct tt_work *work = works; work; work = work->next) {
        tt_work_examine(work);
        note_failure(first, work);
        if (one_queue && !tt_work_is_done(work)) return;
    }
}

static void look_around(struct wait *wait, struct tt_work *works, struct failure *first)
{
    const int64_t now = tt_now_ns();
    if (!wait->since_ns) wait->since_ns = wait->examined_ns = now;
    if (now - wait->examined_ns < EXAMINE_NS) return;
    wait->examined_ns = now;
    examine(works, wait->one_queue, first);
    if (wait->look) wait->look(wait->arg);
}

/* Whether the wait has lasted so long that it sleeps, also where yields are quick. */
static bool is_long(const struct wait *wait, const struct tt_work *works, int64_t now_ns)
{
    if (!wait->since_ns) return false;
    const int64_t after_ns =
        wait->polite || by_sockets(works) ? POLITE_SLEEP_AFTER_NS : SLEEP_AFTER_NS;
    return now_ns - wait->since_ns >= after_ns;
}

/* ---- Yields --------------------------------------------------------------------------------- */

static bool is_crowded(const struct tt_engine *engine, int64_t now_ns)
{
    const int64_t until_ns = atomic_load_explicit(&engine->crowded_until_ns, memory_order_relaxed);
    return until_ns && now_ns < until_ns;
}

static void note_slow_yield(struct tt_engine *engine, int64_t begin_ns, int64_t now_ns)
{
    int64_t for_ns = 2 * atomic_load_explicit(&engine->crowded_ns, memory_order_relaxed);
    const int64_t before_ns =
        atomic_exchange_explicit(&engine->slow_yield_ns, now_ns, memory_order_relaxed);
    /* An old state says nothing: waits that end while they spin do not yield. */
    if (begin_ns - before_ns > MOST_CROWDED_NS + RARE * (now_ns - begin_ns)) for_ns = 0;
    if (!for_ns && begin_ns - before_ns > RARE * (now_ns - begin_ns)) return;
    if (for_ns < CROWDED_NS) for_ns = CROWDED_NS;
    if (for_ns > MOST_CROWDED_NS) for_ns = MOST_CROWDED_NS;
    atomic_store_explicit(&engine->nquick, 0, memory_order_relaxed);
    atomic_store_explicit(&engine->crowded_ns, for_ns, memory_order_relaxed);
    atomic_store_explicit(&engine->crowded_until_ns, now_ns + for_ns, memory_order_relaxed);
}

static void note_quick_yield(struct tt_engine *engine)
{
    if (!atomic_load_explicit(&engine->crowded_ns, memory_order_relaxed)) return;
    if (atomic_fetch_add_explicit(&engine->nquick, 1, memory_order_relaxed) + 1 < QUICK_YIELDS)
        return;
    atomic_store_explicit(&engine->crowded_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&engine->crowded_until_ns, 0, memory_order_relaxed);
}

static void yield(struct tt_engine *engine)
{
    const int64_t begin_ns = tt_now_ns();
    sched_yield();
    const int64_t end_ns = tt_now_ns();
    const bool shared = engine->fabric->oversubscribed;
    if (end_ns - begin_ns > (shared ? SHARED_SLOW_YIELD_NS : SLOW_YIELD_NS))
        note_slow_yield(engine, begin_ns, end_ns);
    else
        note_quick_yield(engine);
}

/* ---- Sleep ---------------------------------------------------------------------------------- */

/* The sleep from which another rank of the host wakes this one, whatever the works wait for. NULL:
 * something may come that wakes nobody: from another host, from a GPU, or from another thread of
 * this rank. */
static struct tt_sleep *sleep_of(const struct tt_work *works)
{
    const struct tt_engine *engine = NULL;
    bool awaits_turn = false; /* another thread may have the call before */
    int nworks = 0;
    for (const struct tt_work *work = works; work; work = work->next) {
        if (tt_work_is_done(work)) continue;
        if (engine && work->engine != engine) return NULL;
        awaits_turn = awaits_turn || work->state == TT_WORK_ISSUED;
        if (!work->ops->is_woken || work->state == TT_WORK_WITHDRAWING) return NULL;
        engine = work->engine;
        nworks++;
    }
    const bool mine = engine && !engine->fabric->wires &&
                      (!awaits_turn ||
                       atomic_load_explicit(&engine->outstanding, memory_order_relaxed) == nworks);
    return mine ? &engine->fabric->host.sleep : NULL;
}

static void arm(struct wait *wait, struct tt_work *works)
{
    struct tt_sleep *sleep = sleep_of(works);
    if (!sleep || !tt_sleep_arm(sleep, &wait->nwakes)) return;
    for (struct tt_work *work = works; work; work = work->next) work->passed_over = false;
    wait->sleep = sleep;
}

/* Sleeps a little; bytes from other hosts end the sleep. */
static void sleep_for_events(struct tt_work *works)
{
    for (const struct tt_work *work = works; work; work = work->next) {
        struct tt_engine *engine = work->engine;
        if (tt_work_is_done(work) || !engine->fabric->wires ||
            atomic_load_explicit(&engine->is_driven, memory_order_relaxed) ||
            !tt_engine_try_enter(engine))
            continue;
        tt_wires_wait(engine->fabric->wires, SLEEP_NS / 1000);
        tt_engine_leave(engine);
        return;
    }
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
}

/* The sleep was armed before this turn's look at all works, which has moved nothing. Works that
 * another thread passed over were not looked at: that thread may need the core to leave the engine.
 */
static void sleep_until_woken(struct wait *wait, struct tt_work *works)
{
    bool looked = true;
    for (const struct tt_work *work = works; work; work = work->next)
        looked = looked && (tt_work_is_done(work) || !work->passed_over);
    if (looked && sleep_of(works) == wait->sleep)
        tt_sleep_wait(wait->sleep, wait->nwakes, MOST_SLEEP_NS);
    else
        sleep_for_events(works);
    wait->sleep = NULL;
}

/* Whether a call may wait for one that lies in a stream of this process: for an earlier one of its
 * communicator, or for that of another rank. */
static bool may_need_streams(const struct tt_work *works)
{
    for (const struct tt_work *work = works; work; work = work->next)
        if (!tt_work_is_done(work) &&
            (work->state == TT_WORK_ISSUED || work->engine->fabric->shares_process))
            return true;
    return false;
}

/* Lazy streams begin with what the call may wait for; once, as threads are woken for that. */
static void hurry_streams(struct wait *wait, const struct tt_work *works)
{
    if (!wait->hurried && may_need_streams(works)) tt_streams_hurry();
    wait->hurried = true;
}

/* Notes the core of this rank, which waits. Whether another rank of the host began to wait there
 * last, and is likely to be there still: whoever is woken runs on the core of who has woken it. */
static bool shares_core(const struct tt_fabric *fabric)
{
    const struct tt_rank_record *records = fabric->segment->header->records;
    const uint32_t core = (uint32_t)sched_getcpu() + 1;
    bool shares = false;
    if (atomic_load_explicit(&fabric->record->core, memory_order_relaxed) != core)
        atomic_store_explicit(&fabric->record->core, core, memory_order_relaxed);
    for (int r = 0; r < fabric->nlocal; r++)
        shares |= r != fabric->local &&
                  atomic_load_explicit(&records[r].core, memory_order_relaxed) == core;
    return shares;
}

/* Who else may need this core: the kernel, for its part of sockets, another thread of this rank
 * that has the call before, or another rank. */
static int64_t spin_ns(const struct tt_work *works, int64_t now_ns)
{
    if (!is_crowded(works->engine, now_ns)) return SPIN_NS;
    const bool shares =
        by_sockets(works) || works->state == TT_WORK_ISSUED || shares_core(works->engine->fabric);
    return shares ? SHARED_SPIN_NS : CROWDED_SPIN_NS;
}

/* The first of the works is not done. */
static void wait_a_turn(struct wait *wait, struct tt_work *works, struct failure *first)
{
    const int64_t now_ns = tt_now_ns();
    if (!wait->turns++) {
        wait->begin_ns = now_ns;
        wait->spin_ns = wait->spin ? spin_ns(works, now_ns) : 0;
    }
    const int64_t waited_ns = now_ns - wait->begin_ns;
    if (wait->sleep || waited_ns >= SPIN_NS) hurry_streams(wait, works);
    if (waited_ns < wait->spin_ns) {
        tt_cpu_relax();
        return;
    }
    if (wait->sleep) {
        sleep_until_woken(wait, works);
        look_around(wait, works, first);
        return;
    }
    if (is_crowded(works->engine, now_ns) || is_long(wait, works, now_ns)) {
        arm(wait, works);
        if (wait->sleep) return; /* to look again */
        hurry_streams(wait, works);
        sleep_for_events(works);
        look_around(wait, works, first);
        return;
    }
    yield(works->engine);
    if (wait->turns % LOOK_TURNS == 0) look_around(wait, works, first);
}

static bool may_spin(const struct tt_work *works)
{
    for (const struct tt_work *work = works; work; work = work->next)
        if (!tt_work_is_done(work) && work->engine->fabric->oversubscribed) return false;
    return true;
}

/* Whether each work has its turn after the one before, as the collectives of a communicator do. A
 * group's calls are listed by carrier, which need not be the order of their turns. */
static bool is_one_queue(const struct tt_work *works)
{
    for (const struct tt_work *work = works; work && work->next; work = work->next)
        if (work->next->turns != work->turns || work->next->turn < work->turn) return false;
    return true;
}

/* Advances everything once, in one queue what has its turn; sums what moved. */
static bool advance_all(struct tt_work *works, bool one_queue, uint64_t *progress,
                        struct failure *first)
{
    bool waiting = false;
    for (struct tt_work *work = works; work && !(waiting && one_queue); work = work->next) {
        waiting |= tt_work_advance(work) == TT_IN_PROGRESS;
        *progress += work->progress;
        note_failure(first, work);
    }
    return waiting;
}

/* Whether the first look may come to where a thread can be cancelled: to calls of sockets. Who
 * opens, passes or closes a descriptor sees to that itself (base/private_fd.h). */
static bool may_be_cancelled(const struct tt_work *works)
{
    while (works && (tt_work_is_done(works) || !works->engine->fabric->wires)) works = works->next;
    return works != NULL;
}

static tt_status run(struct tt_work *works, struct wait wait)
{
    struct failure first;
    uint64_t before = 0, left = 0; /* what moved; of the works that were left behind */
    wait.one_queue = is_one_queue(works);
    bool is_kept = may_be_cancelled(works); /* the thread, whatever cancels it */
    int cancels = is_kept ? tt_cancel_put_off() : 0;
    first.status = TT_OK; /* the text is not cleared: every call comes here */
    for (;;) {
        uint64_t progress = left;
        if (!advance_all(works, wait.one_queue, &progress, &first)) break;
        for (; tt_work_is_done(works); works = works->next) left += works->progress;
        if (progress != before) {
            before = progress;
            wait.turns = 0;
            wait.hurried = false;
            wait.since_ns = 0;
            wait.sleep = NULL;
        }
        if (!is_kept) cancels = tt_cancel_put_off();
        is_kept = true;
        wait_a_turn(&wait, works, &first);
    }
    if (is_kept) tt_cancel_allow(cancels);
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
