/* Watches the replays of captured calls. */
#include "carrier/kernel/graphs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "carrier/gpu_watch.h"
#include "carrier/launched.h"
#include "device/device.h"

enum {
    IDLE_MS = 10,  /* between two looks of the attendant while no replay runs */
    BUSY_MS = 1,   /* while one runs */
    END_MS = 3000, /* how long the end waits for a kernel that was told to end */
    /* How long the kernel of a collective has to end after the connection with a rank of another
     * host has ended: that rank's part may be done */
    LOST_MS = 500,
    /* How often ranks of other hosts are told of replays, and of one that runs for long */
    TELL_MS = 100,
    TELL_AGAIN_MS = 1000
};

/* ---- What the kernels report ---------------------------------------------------------------- */

/* Calls follow one another, and what a call stores at its begin stands before its nbegun:
 * `replays`, read behind nbegun, is of that call or of a later one. nended is read last: while it
 * lags behind, no later call can have begun. A collective whose `replays` is even again has done
 * its part, also where nended lags behind: no rank is missed for it. */
struct tt_seen_replays tt_graphs_read(const struct tt_device_report *report)
{
    struct tt_seen_replays seen = {.nbegun = tt_read_word(&report->nbegun)};
    seen.captured = tt_read_word(&report->captured);
    seen.replays = tt_read_word(&report->replays);
    seen.is_exchange = seen.captured & TT_GRAPH_EXCHANGE_BIT;
    seen.runs = tt_read_word(&report->nended) < seen.nbegun && seen.captured &&
                (seen.is_exchange || seen.replays % 2);
    return seen;
}

/* For the other ranks. */
static void publish(const struct tt_graphs *graphs, const struct tt_seen_replays *seen)
{
    atomic_store_explicit(&graphs->comm->fabric->record->replays, seen->replays,
                          memory_order_release);
}

static uint64_t replays_of(const struct tt_comm_core *comm, int rank)
{
    return atomic_load_explicit(&tt_fabric_record(comm->fabric, rank)->replays,
                                memory_order_acquire);
}

/* Whether the rank has done its part of the next collective of a replay. */
static bool has_more(const struct tt_comm_core *comm, int rank, const struct tt_seen_replays *seen)
{
    return replays_of(comm, rank) / 2 > seen->replays / 2;
}

bool tt_graphs_has_replayed(const struct tt_comm_core *comm, int rank)
{
    return replays_of(comm, rank) / 2 >= replays_of(comm, comm->rank) / 2;
}

/* ---- Failures ------------------------------------------------------------------------------- */

/* Makes graphs->exchange the exchange of this number. False: it is none, or its graph is gone. */
static bool find_exchange_locked(struct tt_graphs *graphs, uint64_t captured)
{
    const struct tt_group_exchange *exchange = tt_graphs_exchange_locked(graphs, captured);
    if (!exchange) return false;
    if (graphs->exchange != exchange) graphs->gone.until_ns = 0;
    graphs->exchange = exchange;
    return true;
}

static void describe_locked(struct tt_graphs *graphs, uint64_t captured, char *text, size_t size)
{
    snprintf(text, size, "a call");
    if (find_exchange_locked(graphs, captured))
        tt_exchange_describe(graphs->exchange, text, size);
    else if (captured && captured <= graphs->ncalls)
        tt_call_describe(&graphs->calls[captured - 1], text, size);
}

static void fail(const struct tt_graphs *graphs, tt_status status, const char *text)
{
    struct tt_engine *engine = &graphs->comm->engine;
    tt_engine_enter(engine);
    tt_ignore(tt_fabric_fail(engine->fabric, status, "%s", text));
    tt_engine_leave(engine);
}

enum { MESSAGE = 900 };

/* A replay has ended without its result. captured: which call. */
static void fail_replay_locked(struct tt_graphs *graphs, uint64_t captured)
{
    const struct tt_comm_core *comm = graphs->comm;
    const struct tt_device_report *report = graphs->life->report;
    char mine[128], peer[128], call[240], text[MESSAGE];
    const uint32_t failure = __atomic_load_n(&report->failure, __ATOMIC_ACQUIRE);
    tt_fabric_name_rank(comm->fabric, comm->rank, mine, sizeof mine);
    describe_locked(graphs, captured, call, sizeof call);
    if (failure == TT_DEVICE_MISMATCH && find_exchange_locked(graphs, captured)) {
        tt_engine_enter(&graphs->comm->engine);
        tt_ignore(tt_exchange_mismatch(graphs->exchange, comm->fabric, report));
        tt_engine_leave(&graphs->comm->engine);
    } else if (failure == TT_DEVICE_MISMATCH) {
        tt_fabric_name_rank(comm->fabric, report->peer, peer, sizeof peer);
        snprintf(text, sizeof text,
                 "ranks disagree in communicator %s: %s replayed %s from a CUDA graph, %s made "
                 "another call, or the same one without a graph (all ranks capture a call, or none "
                 "does; all replay in the same order)",
                 comm->name, mine, call, peer);
        fail(graphs, TT_ERR_USAGE, text);
    } else {
        snprintf(text, sizeof text,
                 "GPU %d: a replay of %s ended with failure %u in part %u, step %u; this is a "
                 "defect of tutti: please report it",
                 comm->gpu, call, failure, report->channel, report->step);
        fail(graphs, TT_ERR_INTERNAL, text);
    }
}

/* A rank is gone that has not done its part of the exchange that runs. */
static bool check_exchange_locked(struct tt_graphs *graphs, const struct tt_seen_replays *seen)
{
    if (!seen->runs || !find_exchange_locked(graphs, seen->captured)) return false;
    if (graphs->running != seen->nbegun) graphs->gone.until_ns = 0;
    tt_engine_enter(&graphs->comm->engine);
    const tt_status status =
        tt_exchange_check(graphs->exchange, graphs->comm->fabric, &graphs->gone);
    tt_engine_leave(&graphs->comm->engine);
    return status < 0;
}

static bool is_gone(const struct tt_comm_core *comm, int rank)
{
    const uint32_t state =
        atomic_load_explicit(&tt_fabric_record(comm->fabric, rank)->state, memory_order_acquire);
    return state == TT_RANK_LEFT || state == TT_RANK_ABORTED;
}

/* The connection with a rank of another host that the replay needs has ended, for long enough:
 * *text says how. Neither this nor tell_hosts_locked waits for the engine: the thread that has it
 * may have been interrupted for good, by a signal whose handler ends the process. The next look
 * comes soon. */
static bool find_lost_locked(struct tt_graphs *graphs, const struct tt_seen_replays *seen,
                             char *text, size_t size)
{
    const struct tt_comm_core *comm = graphs->comm;
    const char *lost = NULL;
    if (!comm->fabric->wires || !seen->runs || seen->is_exchange) return false;
    if (!tt_engine_try_enter(&graphs->comm->engine)) return false;
    for (int r = 0; r < comm->nranks && !lost; r++)
        if (!is_gone(comm, r) && !has_more(comm, r, seen)) lost = tt_fabric_lost(comm->fabric, r);
    if (lost) snprintf(text, size, "%s", lost);
    tt_engine_leave(&graphs->comm->engine);
    if (!lost) graphs->lost_ns = 0;
    if (lost && (graphs->running != seen->nbegun || !graphs->lost_ns))
        graphs->lost_ns = tt_deadline_ns(LOST_MS);
    return lost && tt_expired(graphs->lost_ns);
}

/* A rank is gone that the replay needs. False: none. *left: one has left or aborted that this
 * replay does not need. */
static bool check_peers_locked(struct tt_graphs *graphs, const struct tt_seen_replays *seen,
                               bool *left)
{
    const struct tt_comm_core *comm = graphs->comm;
    char text[MESSAGE];
    for (int r = 0; r < comm->nranks; r++) {
        const struct tt_rank_record *record = tt_fabric_record(comm->fabric, r);
        if (r == comm->rank) continue;
        const uint32_t state = atomic_load_explicit(&record->state, memory_order_acquire);
        const bool needed = seen->runs && !seen->is_exchange && !has_more(comm, r, seen);
        const bool dead = needed && state == TT_RANK_HERE && tt_fabric_is_dead(comm->fabric, r);
        const bool gone = state == TT_RANK_LEFT || state == TT_RANK_ABORTED;
        *left = *left || gone;
        if (!dead && (!gone || !needed)) continue;
        char name[128];
        tt_fabric_name_rank(comm->fabric, r, name, sizeof name);
        snprintf(text, sizeof text, "%s %s", name, tt_kernel_how_gone(comm, r));
        fail(graphs, TT_ERR_REMOTE, text);
        return true;
    }
    if (!find_lost_locked(graphs, seen, text, sizeof text))
        return check_exchange_locked(graphs, seen);
    fail(graphs, TT_ERR_REMOTE, text);
    return true;
}

/* Who has not begun the replay that this rank is in. Ranks of other hosts tell those with which
 * they have a connection. */
static void list_missing(const struct tt_comm_core *comm, uint64_t replay, char *text, size_t size)
{
    size_t used = 0;
    int missing = 0, unheard = -1, nunheard = 0;
    char name[128];
    for (int r = 0; r < comm->nranks; r++) {
        if (r == comm->rank || replays_of(comm, r) >= 2 * replay - 1) continue;
        if (tt_is_unheard(comm->fabric, r)) {
            unheard = r;
            nunheard++;
            continue;
        }
        if (missing++ >= 4) continue;
        tt_fabric_name_rank(comm->fabric, r, name, sizeof name);
        used += (size_t)snprintf(text + used, size - used, "; %s has not replayed it", name);
    }
    if (missing > 4) snprintf(text + used, size - used, "; %d more have not", missing - 4);
    if (missing) return; /* of the unheard ones nothing bad is known */
    if (nunheard == 1) {
        tt_fabric_name_rank(comm->fabric, unheard, name, sizeof name);
        snprintf(text, size, "; it is not known here whether %s has begun it", name);
    } else if (nunheard)
        snprintf(text, size, "; it is not known here whether %d ranks of other hosts have begun it",
                 nunheard);
    else
        snprintf(text, size, "; every rank has begun it, or another call");
}

/* "rank 0 (...) VERB MS ms in replay number 3 ..., CALL, of communicator world (SETTING); ...". */
static void describe_wait_locked(struct tt_graphs *graphs, const struct tt_seen_replays *seen,
                                 const char *verb, int64_t waited_ms, const char *setting,
                                 char text[2 * MESSAGE])
{
    const struct tt_comm_core *comm = graphs->comm;
    char name[128], call[240], number[64], missing[MESSAGE] = "";
    tt_fabric_name_rank(comm->fabric, comm->rank, name, sizeof name);
    describe_locked(graphs, seen->captured, call, sizeof call);
    if (find_exchange_locked(graphs, seen->captured)) {
        tt_engine_enter(&graphs->comm->engine);
        tt_exchange_missing(graphs->exchange, comm->fabric, missing, sizeof missing);
        tt_engine_leave(&graphs->comm->engine);
        snprintf(number, sizeof number, "a replay of a CUDA graph");
    } else {
        list_missing(comm, seen->replays / 2 + 1, missing, sizeof missing);
        snprintf(number, sizeof number, "replay number %llu of collectives of CUDA graphs",
                 (unsigned long long)(seen->replays / 2 + 1));
    }
    snprintf(text, 2 * MESSAGE, "%s %s %lld ms in %s, %s, of communicator %s (%s)%s", name, verb,
             (long long)waited_ms, number, call, comm->name, setting, missing);
}

static void time_out_locked(struct tt_graphs *graphs, const struct tt_seen_replays *seen)
{
    char text[2 * MESSAGE];
    const int64_t timeout_ms = tt_engine_timeout(&graphs->comm->engine);
    describe_wait_locked(graphs, seen, "waited", timeout_ms, tt_timeout_source(timeout_ms), text);
    fail(graphs, TT_ERR_TIMEOUT, text);
}

static void say_if_late_locked(struct tt_graphs *graphs, const struct tt_seen_replays *seen)
{
    char text[2 * MESSAGE];
    int64_t waited_ms;
    if (!tt_late_is_due(&graphs->late, graphs->comm->engine.late_ms, seen->nbegun, &waited_ms))
        return;
    describe_wait_locked(graphs, seen, "has waited", waited_ms, "TUTTI_LATE_MS", text);
    TT_WARN("%s", text);
}

static void check_deadline_locked(struct tt_graphs *graphs, const struct tt_seen_replays *seen)
{
    if (graphs->running != seen->nbegun)
        graphs->deadline_ns = tt_deadline_ns(tt_engine_timeout(&graphs->comm->engine));
    graphs->running = seen->nbegun;
    say_if_late_locked(graphs, seen);
    if (tt_expired(graphs->deadline_ns)) time_out_locked(graphs, seen);
}

static void check_gpu_locked(const struct tt_graphs *graphs)
{
    tt_ignore(tt_gpu_watch_check_outside(graphs->life->watch, &graphs->comm->engine,
                                         "a replay of a CUDA graph"));
}

/* ---- Looking ------------------------------------------------------------------------------ */

void tt_graphs_publish_use(const struct tt_graphs *graphs, uint32_t captured)
{
    atomic_store_explicit(&graphs->comm->fabric->record->captured, captured,
                          memory_order_release); /* acquire: tt_fabric_is_used_by */
}

/* A replay that begins from now on sees the word and ends; so does what runs. */
static void close_locked(struct tt_graphs *graphs)
{
    if (graphs->closed) return;
    tt_kernel_abort(graphs->life, &graphs->grace_ns);
    (void)__atomic_exchange_n(&graphs->life->report->closed, 2, __ATOMIC_SEQ_CST);
    if (!tt_kernel_has_stopped(graphs->life)) return;
    graphs->closed = true;
    tt_graphs_publish_use(graphs, 0);
}

/* Calls that need a rank which has left end at once from now on. */
static void close_to_left_locked(const struct tt_graphs *graphs)
{
    (void)__atomic_exchange_n(&graphs->life->report->closed, 1, __ATOMIC_SEQ_CST);
    for (const struct tt_graph *graph = graphs->list; graph; graph = graph->next)
        for (const struct tt_graph_call *call = graph->calls; call; call = call->next)
            if (call->exchange && tt_graphs_needs_left_locked(graphs, call->number))
                (void)__atomic_exchange_n(&call->exchange->table->closed, 1, __ATOMIC_SEQ_CST);
}

/* Ranks of this host that have left. */
static uint32_t count_left_beside(const struct tt_graphs *graphs)
{
    uint32_t n = 0;
    for (int r = 0; r < graphs->comm->nranks; r++)
        n += graphs->left[r] && tt_fabric_is_local(graphs->comm->fabric, r);
    return n;
}

/* A rank that leaves waits for this rank to stop using its memory: no replay that needs the rank
 * can succeed from then on. But it may have done its part of one that has begun; so first the ranks
 * are looked at, then whether a replay runs. What a rank of another host has sent before it left is
 * here: replays go on that it has done its part of. */
static void note_left_locked(struct tt_graphs *graphs, const struct tt_seen_replays *seen)
{
    const struct tt_comm_core *comm = graphs->comm;
    bool *now = graphs->left + comm->nranks;
    uint32_t n = 0;
    for (int r = 0; r < comm->nranks; r++) {
        now[r] = r != comm->rank && is_gone(comm, r) &&
                 (tt_fabric_is_local(comm->fabric, r) || !has_more(comm, r, seen));
        n += now[r];
    }
    if (n != graphs->nleft && !tt_graphs_read(graphs->life->report).runs) {
        memcpy(graphs->left, now, (size_t)comm->nranks * sizeof *now);
        graphs->nleft = n;
        close_to_left_locked(graphs);
    }
    if (!graphs->nleft) return;
    if (tt_kernel_has_ended(graphs->life) ||
        !tt_graphs_needs_left_locked(graphs, tt_read_word(&graphs->life->report->captured)))
        tt_graphs_publish_use(graphs, 1 + count_left_beside(graphs));
}

static bool has_failed(const struct tt_graphs *graphs)
{
    return tt_fabric_failure_text(graphs->comm->fabric)[0];
}

/* replay: which call has ended. Ranks that it does not need may have left too. */
static void fail_left_locked(const struct tt_graphs *graphs, uint64_t replay)
{
    char name[128], text[256];
    const struct tt_group_exchange *exchange = tt_graphs_exchange_locked(graphs, replay);
    int rank = tt_kernel_absent_rank(graphs->comm, exchange, TT_NO_TURN);
    if (rank < 0) rank = tt_kernel_absent_rank(graphs->comm, NULL, TT_NO_TURN);
    tt_fabric_name_rank(graphs->comm->fabric, rank, name, sizeof name);
    snprintf(text, sizeof text, "%s %s; a CUDA graph was replayed after that", name,
             tt_kernel_how_gone(graphs->comm, rank));
    fail(graphs, TT_ERR_REMOTE, text);
}

/* Ranks of other hosts learn of replays by records. */
static void tell_hosts_locked(struct tt_graphs *graphs, const struct tt_seen_replays *seen)
{
    struct tt_engine *engine = &graphs->comm->engine;
    const uint64_t replays = tt_fabric_told_replays(engine->fabric);
    const bool again = replays == graphs->told;
    if (!engine->fabric->wires || (again && !seen->runs) ||
        tt_now_ns() - graphs->told_ns < (again ? TELL_AGAIN_MS : TELL_MS) * INT64_C(1000000))
        return;
    if (!tt_engine_try_enter(engine)) return;
    if (tt_wires_send_record(engine->fabric->wires)) graphs->told = replays;
    graphs->told_ns = tt_now_ns();
    tt_engine_leave(engine);
}

static struct tt_seen_replays look_locked(struct tt_graphs *graphs)
{
    bool left = false;
    const struct tt_seen_replays seen = tt_graphs_read(graphs->life->report);
    publish(graphs, &seen);
    tell_hosts_locked(graphs, &seen);
    if (!has_failed(graphs) && !check_peers_locked(graphs, &seen, &left)) {
        const uint32_t failure = __atomic_load_n(&graphs->life->report->failure, __ATOMIC_ACQUIRE);
        const uint64_t replay = failure ? tt_read_word(&graphs->life->report->replay) : 0;
        if (failure == TT_DEVICE_ABORTED && left)
            fail_left_locked(graphs, replay);
        else if (failure != TT_DEVICE_ABORTED && replay)
            fail_replay_locked(graphs, replay);
        else if (seen.runs)
            check_deadline_locked(graphs, &seen);
        if (seen.runs) check_gpu_locked(graphs);
    }
    if (has_failed(graphs))
        close_locked(graphs);
    else if (left)
        note_left_locked(graphs, &seen);
    return seen;
}

void tt_graphs_look_locked(struct tt_graphs *graphs)
{
    (void)look_locked(graphs);
}

int64_t tt_graphs_watch(struct tt_attended *attended)
{
    struct tt_graphs *graphs = (struct tt_graphs *)attended;
    pthread_mutex_lock(&graphs->lock);
    const struct tt_seen_replays seen = look_locked(graphs);
    tt_graphs_note_locked(graphs);
    const bool busy = seen.runs || (has_failed(graphs) && !graphs->closed);
    pthread_mutex_unlock(&graphs->lock);
    return (busy ? BUSY_MS : IDLE_MS) * INT64_C(1000000);
}

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = BUSY_MS * 1000000L}, NULL);
}

void tt_graphs_tell(struct tt_comm_core *comm)
{
    struct tt_graphs *graphs = tt_graphs_of(comm);
    const int64_t deadline_ns = tt_deadline_ns(100 * BUSY_MS);
    while (graphs && pthread_mutex_trylock(&graphs->lock)) {
        if (tt_expired(deadline_ns)) return;
        pause_briefly();
    }
    if (!graphs) return;
    const struct tt_seen_replays seen = tt_graphs_read(graphs->life->report);
    publish(graphs, &seen);
    tell_hosts_locked(graphs, &seen);
    pthread_mutex_unlock(&graphs->lock);
}

void tt_graphs_look(struct tt_comm_core *comm)
{
    struct tt_graphs *graphs = tt_graphs_of(comm);
    if (!graphs) return;
    pthread_mutex_lock(&graphs->lock);
    tt_graphs_look_locked(graphs);
    pthread_mutex_unlock(&graphs->lock);
}

/* ---- The end --------------------------------------------------------------------------------- */

/* The attendant ends the wait: it closes the graphs after a failure, for example at the deadline.
 */
static bool is_waited_for(struct tt_graphs *graphs)
{
    pthread_mutex_lock(&graphs->lock);
    const bool waits = tt_graphs_read(graphs->life->report).runs && !graphs->closed;
    pthread_mutex_unlock(&graphs->lock);
    return waits;
}

static bool may_run(struct tt_graphs *graphs, struct tt_launched *wait)
{
    pthread_mutex_lock(&graphs->lock);
    const struct tt_seen_replays seen = tt_graphs_read(graphs->life->report);
    const bool ended = graphs->closed || has_failed(graphs);
    pthread_mutex_unlock(&graphs->lock);
    return !ended && !atomic_load(&graphs->comm->fabric->aborted) &&
           tt_launched_may_run(wait, seen.nbegun, seen.runs);
}

static bool close_now(struct tt_graphs *graphs)
{
    pthread_mutex_lock(&graphs->lock);
    close_locked(graphs);
    const bool closed = graphs->closed;
    pthread_mutex_unlock(&graphs->lock);
    return closed;
}

void tt_graphs_await(struct tt_kernel_part *on)
{
    struct tt_launched wait = {0};
    if (!on->graphs) return;
    while (!tt_graphs_are_gone(on) && may_run(on->graphs, &wait)) pause_briefly();
}

void tt_graphs_end(struct tt_kernel_part *on)
{
    struct tt_graphs *graphs = on->graphs;
    if (!graphs) return;
    while (is_waited_for(graphs)) pause_briefly();
    tt_unattend(on->queue.attendant, &graphs->attended);
    const struct tt_seen_replays seen = tt_graphs_read(graphs->life->report);
    publish(graphs, &seen);
    const int64_t deadline_ns = tt_deadline_ns(END_MS);
    /* Where that fails, a replay may still use memory of others; the record goes on saying so. */
    while (!close_now(graphs) && !tt_expired(deadline_ns)) pause_briefly();
    graphs->comm = NULL;
}
