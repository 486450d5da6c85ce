/* Runs the replays of captured staged calls, and calls that get their turns among them. */
#include "carrier/staged/graphs.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/pause.h"
#include "carrier/gpu_watch.h"
#include "carrier/launched.h"
#include "carrier/staged/copies.h"
#include "carrier/staged/replay.h"

/* How often the staging thread looks whether a replay has begun: all the time for BRIEF_NS after
 * one has run, then every PAUSE_NS, and more rarely when none has run for LONG_NS. */
enum { BRIEF_NS = 50000, PAUSE_NS = 50000, LONG_NS = 100000000, RARE_NS = 1000000 };

static bool has_failed(const struct tt_comm_core *comm)
{
    return tt_fabric_failure_text(comm->fabric)[0];
}

/* Whether it is time again to look at what takes system calls. */
static bool is_time(int64_t *looked_ns)
{
    const int64_t now_ns = tt_now_ns();
    if (now_ns - *looked_ns < RARE_NS) return false;
    *looked_ns = now_ns;
    return true;
}

/* ---- Runs ----------------------------------------------------------------------------------- */

static void add_call(struct tt_stage_run *run, const struct tt_pending_call *of)
{
    struct tt_pending_call *call = &run->calls[run->ncalls++];
    *call = *of;
    call->is_deferred = true;
    if (call->kind != TT_CALL_COLLECTIVE || tt_call_has_table(of)) return;
    call->kept = *of->call.binding;
    call->call.binding = &call->kept;
}

struct tt_stage_run *tt_stage_run_make(const struct tt_pending_call *first)
{
    size_t n = 0;
    for (const struct tt_pending_call *call = first; call; call = call->next)
        n += tt_are_one_run(call, first);
    struct tt_stage_run *run = calloc(1, sizeof *run + n * sizeof run->calls[0]);
    struct tt_staged_work *works = calloc(n, sizeof *works);
    if (!run || !works) {
        free(works);
        free(run);
        return NULL;
    }
    run->works = works;
    for (const struct tt_pending_call *call = first; call; call = call->next)
        if (tt_are_one_run(call, first)) add_call(run, call);
    return run;
}

void tt_stage_run_free(struct tt_stage_run *run)
{
    if (run) free(run->works);
    free(run);
}

void tt_stage_run_hold(const struct tt_stage_run *run)
{
    struct tt_engine *engine = &run->calls[0].comm->engine;
    atomic_fetch_add_explicit(&engine->outstanding, 1, memory_order_relaxed);
    tt_replay_hold(run);
}

static void begin(struct tt_stage_run *run, bool replays)
{
    struct tt_engine *engine = &run->calls[0].comm->engine;
    tt_engine_enter(engine); /* who takes turns */
    for (int i = 0; i < run->ncalls; i++) {
        struct tt_pending_call *pending = &run->calls[i];
        tt_staged_begin(&run->works[i], pending);
        if (!replays) run->works[i].work.stream = pending->stream;
        if (i) run->works[i - 1].work.next = &run->works[i].work;
    }
    tt_engine_leave(engine);
}

/* The calls have their own deadlines: while they run, settle() does not count the time. */
static tt_status run_calls(struct tt_stage_run *run, bool replays)
{
    struct tt_stage_graphs *graphs = run->calls[0].comm->staged->graphs;
    atomic_fetch_add_explicit(&graphs->nruns, 1, memory_order_relaxed);
    begin(run, replays);
    const tt_status status = tt_run(&run->works[0].work, true);
    atomic_fetch_add_explicit(&graphs->nruns, 1, memory_order_relaxed);
    return status;
}

/* One of the streams has come to its call. */
static bool is_any_ready(const struct tt_stage_run *run)
{
    int i = 0;
    while (i < run->ncalls) {
        const struct tt_stage *stage = run->calls[i++].stage;
        /* release: the stream's store (tell_ready of streams.c) */
        if (__atomic_load_n(&stage->words->ready, __ATOMIC_ACQUIRE) == stage->number) return true;
    }
    return false;
}

/* ---- Replays -------------------------------------------------------------------------------- */

/* The store is that of a node, and the last one of it. */
static bool has_begun(const struct tt_replay *replay)
{
    if (replay->dropped) return false;
    for (int i = replay->run->ncalls - 1; i >= 0; i--) {
        const struct tt_stage_words *words = replay->run->calls[i].stage->words;
        if (__atomic_load_n(&words->ready, __ATOMIC_ACQUIRE) != TT_REPLAY_BEGUN) return false;
    }
    return true;
}

/* None after the end: its nodes have passed, and the communicator goes. */
static struct tt_replay *find_begun_locked(const struct tt_stage_graphs *graphs)
{
    if (atomic_load_explicit(&graphs->closed, memory_order_relaxed)) return NULL;
    for (const struct tt_stage_graph *graph = graphs->list; graph; graph = graph->next)
        for (struct tt_replay *replay = graph->replays; replay; replay = replay->next)
            if (has_begun(replay)) return replay;
    return NULL;
}

/* What the failure has left of copies may still come: so nothing begins after it. */
static void run_replay(const struct tt_comm_core *comm, const struct tt_replay *replay)
{
    struct tt_stage_run *run = replay->run;
    if (!has_failed(comm)) {
        tt_ignore(run_calls(run, true)); /* a failure is the communicator's */
        return;
    }
    for (int i = 0; i < run->ncalls; i++)
        __atomic_store_n(&run->calls[i].stage->words->ready, TT_REPLAY_ENDED, __ATOMIC_RELEASE);
}

static void close_locked(struct tt_stage_graphs *graphs)
{
    for (const struct tt_stage_graph *graph = graphs->list; graph; graph = graph->next)
        for (const struct tt_replay *replay = graph->replays; replay; replay = replay->next)
            tt_replay_close(replay);
    /* acquire: tt_stage_graphs_end */
    atomic_store_explicit(&graphs->closed, true, memory_order_release);
}

static int64_t pause_of(const struct tt_stage_graphs *graphs)
{
    const int64_t since_ns = tt_now_ns() - graphs->moved_ns;
    return since_ns < BRIEF_NS ? 0 : since_ns < LONG_NS ? PAUSE_NS : RARE_NS;
}

int64_t tt_replays_look(void *argument)
{
    struct tt_stage_graphs *graphs = argument;
    pthread_mutex_lock(&graphs->lock);
    struct tt_replay *replay = find_begun_locked(graphs);
    graphs->running = replay;
    if (!replay && graphs->closing) close_locked(graphs);
    pthread_mutex_unlock(&graphs->lock);
    if (!replay) return pause_of(graphs);
    run_replay(graphs->comm, replay);
    pthread_mutex_lock(&graphs->lock);
    graphs->running = NULL;
    pthread_mutex_unlock(&graphs->lock);
    graphs->moved_ns = tt_now_ns();
    return 0;
}

/* ---- Calls among replays -------------------------------------------------------------------- */

/* Replays that were launched before have run when a stream has come to its call; those that are
 * launched later have not begun. There is no deadline: what the streams do before takes nothing of
 * a call's time. A stream of a GPU that is lost never comes. */
static void await_turn(const struct tt_stage_run *run)
{
    struct tt_comm_core *comm = run->calls[0].comm;
    const struct tt_staged_part *staged = comm->staged;
    struct tt_pause pause = {0};
    int64_t looked_ns = tt_now_ns();
    while (!is_any_ready(run) && !has_failed(comm)) {
        if (!tt_replays_look(staged->graphs)) pause = (struct tt_pause){0}; /* a replay has run */
        tt_pause(&pause);
        if (!is_time(&looked_ns)) continue;
        if (tt_gpu_watch_look(staged->watch) < 0) return;
        tt_engine_look(&comm->engine);
        for (int i = 0; i < run->ncalls; i++)
            if (tt_staged_check_ranks(&run->calls[i])) return;
    }
}

tt_status tt_stage_run(struct tt_stage_run *run)
{
    struct tt_engine *engine = &run->calls[0].comm->engine;
    await_turn(run);
    const tt_status status = run_calls(run, false);
    tt_replay_release(run);
    tt_stage_run_free(run);
    atomic_fetch_sub_explicit(&engine->outstanding, 1, memory_order_release);
    return status;
}

static tt_status time_out(struct tt_comm_core *comm)
{
    const int64_t timeout_ms = tt_engine_timeout(&comm->engine);
    const tt_status status =
        tt_fail(TT_ERR_TIMEOUT,
                "waited %lld ms in a call of communicator %s that is not on a CUDA stream "
                "(%s): it follows the communicator's calls on CUDA streams and the "
                "CUDA graphs that were launched before, and a CUDA stream has not come to them",
                (long long)timeout_ms, comm->name, tt_timeout_source(timeout_ms));
    return tt_core_fail_call(comm, status);
}

/* Waits until the calls on CUDA streams and the replays that were launched before have ended. The
 * caller cannot go on, and perhaps a stream waits for what it would do next: so there is a
 * deadline, for the time in which none of them runs, and the caller does not ask the driver itself,
 * which may wait for that stream. */
static tt_status settle(const struct tt_pending_call *call)
{
    struct tt_comm_core *comm = call->comm;
    const struct tt_staged_part *staged = comm->staged;
    const _Atomic int *outstanding = &comm->engine.outstanding;
    int64_t deadline_ns = tt_deadline_ns(tt_engine_timeout(&comm->engine)), looked_ns = tt_now_ns();
    struct tt_pause pause = {0};
    unsigned nruns = 0;
    int left = 0;
    tt_status status;
    while ((status = tt_copier_query(staged->copier, staged->order)) == TT_IN_PROGRESS) {
        tt_pause(&pause);
        if (!is_time(&looked_ns)) continue;
        tt_engine_look(&comm->engine); /* no call may run that reads what other hosts send */
        TT_TRY(tt_staged_check_ranks(call));
        const unsigned now = atomic_load_explicit(&staged->graphs->nruns, memory_order_relaxed);
        const int still = atomic_load_explicit(outstanding, memory_order_relaxed);
        if (now != nruns || now % 2 || still != left)
            deadline_ns = tt_deadline_ns(tt_engine_timeout(&comm->engine));
        nruns = now;
        left = still;
        if (tt_expired(deadline_ns)) return time_out(comm);
    }
    return status < 0 ? tt_core_fail_call(comm, status) : TT_OK;
}

/* All calls of the group with this communicator get their turns later, or none does. */
static tt_status admit(struct tt_pending_call *calls, int ncalls, struct tt_comm_core *comm)
{
    const struct tt_pending_call *first = NULL;
    bool all = true;
    for (int i = 0; i < ncalls; i++) {
        const struct tt_pending_call *call = &calls[i];
        if (call->comm != comm || call->is_gone) continue;
        if (!first) first = call;
        all = all && call->stage && call->stream;
    }
    for (int i = 0; i < ncalls; i++)
        if (calls[i].comm == comm) calls[i].is_deferred = all;
    return first && !all ? settle(first) : TT_OK;
}

const struct tt_gate tt_staged_gate = {.admit = admit};

/* ---- The end -------------------------------------------------------------------------------- */

static bool may_run(struct tt_stage_graphs *graphs, struct tt_launched *wait)
{
    const struct tt_comm_core *comm = graphs->comm;
    const unsigned nruns = atomic_load_explicit(&graphs->nruns, memory_order_relaxed);
    return !has_failed(comm) && !atomic_load(&comm->fabric->aborted) &&
           tt_launched_may_run(wait, nruns, nruns % 2);
}

void tt_stage_graphs_end(struct tt_comm_core *comm)
{
    struct tt_stage_graphs *graphs = comm->staged ? comm->staged->graphs : NULL;
    struct tt_launched wait = {0};
    struct tt_pause pause = {0};
    if (!graphs) return;
    while (!tt_stage_graphs_are_gone(graphs) && may_run(graphs, &wait)) tt_pause(&pause);
    pthread_mutex_lock(&graphs->lock);
    graphs->closing = true;
    pthread_mutex_unlock(&graphs->lock);
    pause = (struct tt_pause){0};
    /* release: close_locked */
    while (!atomic_load_explicit(&graphs->closed, memory_order_acquire)) tt_pause(&pause);
    tt_stream_watch(comm->staged->thread, NULL, NULL);
    graphs->comm = NULL;
}

void tt_stage_graphs_destroy(struct tt_stage_graphs *graphs)
{
    if (!graphs) return;
    pthread_mutex_destroy(&graphs->lock);
    free(graphs);
}
