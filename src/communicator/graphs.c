/* Watches the replays of captured calls, and keeps what their graphs need. */
#include "communicator/graphs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "driver/capture.h"
#include "executor/kernel_run.h"

enum {
    IDLE_MS = 10,  /* between two looks of the attendant while no replay runs */
    BUSY_MS = 1,   /* while one runs */
    END_MS = 3000, /* how long the end waits for a kernel that was told to end */
    MOST_CALLS = 1024
};

/* ---- What the kernels report ---------------------------------------------------------------- */

struct seen {
    uint64_t nbegun, nreplayed, captured;
    bool runs; /* a replay, the call that began last */
};

static uint64_t read_word(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* nended is read last: while it lags behind, no later call can have begun. */
static struct seen read_report(const struct tt_device_report *report)
{
    struct seen seen = {.nbegun = read_word(&report->nbegun)};
    seen.captured = read_word(&report->captured);
    seen.nreplayed = read_word(&report->nreplayed);
    seen.runs = read_word(&report->nended) < seen.nbegun && seen.captured;
    return seen;
}

/* For the other ranks: twice the replays that have ended, and 1 if one runs. */
static void publish(const struct tt_graphs *graphs, const struct seen *seen)
{
    atomic_store_explicit(&graphs->comm->fabric->record->replays, 2 * seen->nreplayed + seen->runs,
                          memory_order_release);
}

static uint64_t replays_of(const struct tuttiComm *comm, int rank)
{
    return atomic_load_explicit(&tt_fabric_record(comm->fabric, rank)->replays,
                                memory_order_acquire);
}

bool tt_graphs_has_replayed(const struct tuttiComm *comm, int rank)
{
    return replays_of(comm, rank) / 2 >= replays_of(comm, comm->rank) / 2;
}

/* ---- Failures ------------------------------------------------------------------------------- */

static void describe_locked(const struct tt_graphs *graphs, uint64_t captured, char *text,
                            size_t size)
{
    snprintf(text, size, "a call");
    if (captured && captured <= graphs->ncalls)
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
static void fail_replay_locked(const struct tt_graphs *graphs, uint64_t captured)
{
    const struct tuttiComm *comm = graphs->comm;
    const struct tt_device_report *report = graphs->report;
    char mine[128], peer[128], call[240], text[MESSAGE];
    const uint32_t failure = __atomic_load_n(&report->failure, __ATOMIC_ACQUIRE);
    tt_fabric_name_rank(comm->fabric, comm->rank, mine, sizeof mine);
    describe_locked(graphs, captured, call, sizeof call);
    if (failure == TT_DEVICE_MISMATCH) {
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

/* A rank is gone that the replay needs, or has aborted. False: none. *left: one has left that this
 * replay does not need. */
static bool check_peers_locked(const struct tt_graphs *graphs, const struct seen *seen, bool *left)
{
    const struct tuttiComm *comm = graphs->comm;
    for (int r = 0; r < comm->nranks; r++) {
        const struct tt_rank_record *record = tt_fabric_record(comm->fabric, r);
        if (r == comm->rank) continue;
        const uint32_t state = atomic_load_explicit(&record->state, memory_order_acquire);
        const bool needed = seen->runs && replays_of(comm, r) / 2 <= seen->nreplayed;
        const bool dead = needed && state == TT_RANK_HERE && tt_fabric_is_dead(comm->fabric, r);
        *left = *left || state == TT_RANK_LEFT;
        if (!dead && state != TT_RANK_ABORTED && (state != TT_RANK_LEFT || !needed)) continue;
        char name[128], text[MESSAGE];
        tt_fabric_name_rank(comm->fabric, r, name, sizeof name);
        snprintf(text, sizeof text, "%s %s", name,
                 dead                       ? "has died"
                 : state == TT_RANK_ABORTED ? "aborted the communicator"
                                            : "has left: it destroyed its communicator");
        fail(graphs, TT_ERR_REMOTE, text);
        return true;
    }
    return false;
}

/* Who has not begun the replay that this rank is in. */
static void list_missing(const struct tuttiComm *comm, uint64_t replay, char *text, size_t size)
{
    size_t used = 0;
    int missing = 0;
    for (int r = 0; r < comm->nranks; r++) {
        char name[128];
        if (r == comm->rank || replays_of(comm, r) >= 2 * replay - 1 || missing++ >= 4) continue;
        tt_fabric_name_rank(comm->fabric, r, name, sizeof name);
        used += (size_t)snprintf(text + used, size - used, "; %s has not replayed it", name);
    }
    if (missing > 4)
        snprintf(text + used, size - used, "; %d more have not", missing - 4);
    else if (!missing)
        snprintf(text, size, "; every rank has begun it");
}

static void check_deadline_locked(struct tt_graphs *graphs, const struct seen *seen)
{
    const struct tuttiComm *comm = graphs->comm;
    char name[128], call[240], missing[MESSAGE], text[2 * MESSAGE];
    if (graphs->running != seen->nbegun) graphs->deadline_ns = tt_deadline_ns(comm->timeout_ms);
    graphs->running = seen->nbegun;
    if (!tt_expired(graphs->deadline_ns)) return;
    tt_fabric_name_rank(comm->fabric, comm->rank, name, sizeof name);
    describe_locked(graphs, seen->captured, call, sizeof call);
    list_missing(comm, seen->nreplayed + 1, missing, sizeof missing);
    snprintf(text, sizeof text,
             "%s waited %lld ms in replay number %llu of calls of CUDA graphs, %s, of communicator "
             "%s (TUTTI_TIMEOUT_MS)%s",
             name, (long long)comm->timeout_ms, (unsigned long long)seen->nreplayed + 1, call,
             comm->name, missing);
    fail(graphs, TT_ERR_TIMEOUT, text);
}

static void check_gpu_locked(const struct tt_graphs *graphs)
{
    struct tt_engine *engine = &graphs->comm->engine;
    if (tt_context_stream_query(graphs->context, graphs->stream) >= 0) return;
    tt_engine_enter(engine);
    tt_ignore(tt_check_gpu(engine->fabric, graphs->context, graphs->stream));
    tt_engine_leave(engine);
}

/* ---- Looking ------------------------------------------------------------------------------ */

/* A replay that begins from now on sees the word and ends. abort: so does what runs. */
static void close_locked(struct tt_graphs *graphs, bool abort)
{
    if (graphs->closed) return;
    if (abort) tt_kernel_abort(graphs->report, &graphs->grace_ns);
    (void)__atomic_exchange_n(&graphs->report->closed, 1, __ATOMIC_SEQ_CST);
    if (!tt_kernel_has_stopped(graphs->report, graphs->context, graphs->stream)) return;
    graphs->closed = true;
    tt_fabric_give_back(graphs->comm->fabric);
}

static bool has_failed(const struct tt_graphs *graphs)
{
    return tt_fabric_failure_text(graphs->comm->fabric)[0];
}

/* A rank that leaves waits for this rank to stop using its memory: no replay can succeed from then
 * on, but those that it has ended its part of go on, and so do sends and receives of the others. */
static void look_locked(struct tt_graphs *graphs, struct seen *seen)
{
    bool left = false;
    *seen = read_report(graphs->report);
    publish(graphs, seen);
    if (!has_failed(graphs) && !check_peers_locked(graphs, seen, &left)) {
        const uint32_t failure = __atomic_load_n(&graphs->report->failure, __ATOMIC_ACQUIRE);
        const uint64_t replay = failure ? read_word(&graphs->report->replay) : 0;
        if (failure == TT_DEVICE_ABORTED && left)
            fail(graphs, TT_ERR_REMOTE,
                 "a CUDA graph was replayed after a rank had left: it "
                 "destroyed its communicator");
        else if (failure != TT_DEVICE_ABORTED && replay)
            fail_replay_locked(graphs, replay);
        else if (seen->runs)
            check_deadline_locked(graphs, seen);
        if (seen->runs) check_gpu_locked(graphs);
    }
    const bool failed = has_failed(graphs);
    if (failed || (left && !seen->runs)) close_locked(graphs, failed);
}

static int64_t watch(struct tt_attended *attended)
{
    struct tt_graphs *graphs = (struct tt_graphs *)attended;
    struct seen seen;
    pthread_mutex_lock(&graphs->lock);
    look_locked(graphs, &seen);
    const bool busy = seen.runs || (has_failed(graphs) && !graphs->closed);
    pthread_mutex_unlock(&graphs->lock);
    return (busy ? BUSY_MS : IDLE_MS) * INT64_C(1000000);
}

void tt_graphs_look(tuttiComm_t comm)
{
    struct seen seen;
    struct tt_graphs *graphs =
        comm->on_gpu ? atomic_load_explicit(&comm->on_gpu->graphs, memory_order_acquire) : NULL;
    if (!graphs) return;
    pthread_mutex_lock(&graphs->lock);
    look_locked(graphs, &seen);
    pthread_mutex_unlock(&graphs->lock);
}

/* ---- Graphs and their calls ----------------------------------------------------------------- */

static void forget_gone(struct tt_graphs *graphs)
{
    for (struct tt_graph **at = &graphs->list; *at;) {
        struct tt_graph *graph = *at;
        if (!atomic_load_explicit(&graph->gone, memory_order_acquire)) { /* release: is_gone */
            at = &graph->next;
            continue;
        }
        *at = graph->next;
        free(graph);
    }
}

/* Called by the driver. */
static void is_gone(void *argument)
{
    struct tt_graph *graph = argument;
    atomic_store_explicit(&graph->gone, true, memory_order_release); /* acquire: forget_gone */
}

tt_status tt_graphs_find(struct tt_graphs *graphs, uint64_t capture, void *handle,
                         struct tt_graph **out)
{
    forget_gone(graphs);
    struct tt_graph *graph = graphs->list;
    while (graph && graph->capture != capture) graph = graph->next;
    if (!graph) {
        graph = calloc(1, sizeof *graph);
        if (!graph) return tt_fail(TT_ERR_SYSTEM, "out of memory for the entry of a CUDA graph");
        graph->capture = capture;
        const tt_status status = tt_capture_keep(graphs->context, handle, is_gone, graph);
        if (status) {
            free(graph);
            return status;
        }
        graph->next = graphs->list;
        graphs->list = graph;
    }
    *out = graph;
    return TT_OK;
}

static bool is_same(const struct tt_call_entry *a, const struct tt_call_entry *b)
{
    return a->count == b->count && a->algorithm == b->algorithm && a->collective == b->collective &&
           a->type == b->type && a->op == b->op && a->root == b->root;
}

static uint64_t number_locked(struct tt_graphs *graphs, const struct tt_call_entry *call)
{
    for (uint32_t i = 0; i < graphs->ncalls; i++)
        if (is_same(&graphs->calls[i], call)) return i + 1;
    if (graphs->ncalls == graphs->room && graphs->room < MOST_CALLS) {
        const uint32_t room = graphs->room ? 2 * graphs->room : 16;
        struct tt_call_entry *calls = realloc(graphs->calls, room * sizeof *calls);
        if (calls) {
            graphs->calls = calls;
            graphs->room = room;
        }
    }
    if (graphs->ncalls == graphs->room) return MOST_CALLS + 1; /* messages do not describe it */
    graphs->calls[graphs->ncalls++] = *call;
    return graphs->ncalls;
}

uint64_t tt_graphs_number(struct tt_graphs *graphs, const struct tt_call_entry *call)
{
    pthread_mutex_lock(&graphs->lock);
    const uint64_t number = number_locked(graphs, call);
    pthread_mutex_unlock(&graphs->lock);
    return number;
}

/* ---- Begin and end -------------------------------------------------------------------------- */

/* Calls that were issued before are before the first replay. */
static tt_status begin(struct tt_graphs *graphs)
{
    TT_TRY(tt_context_event_create(graphs->context, &graphs->order));
    TT_TRY(tt_context_event_record(graphs->context, graphs->order, graphs->stream));
    if (!tt_comm_may_use_peers(graphs->comm, NULL)) return tt_comm_fail_alone(graphs->comm, NULL);
    graphs->attended.look = watch;
    tt_attend(graphs->comm->on_gpu->queue.attendant, &graphs->attended);
    return TT_OK;
}

tt_status tt_graphs_get(tuttiComm_t comm, struct tt_graphs **out)
{
    struct tt_comm_device *on = comm->on_gpu;
    struct tt_graphs *graphs = atomic_load_explicit(&on->graphs, memory_order_relaxed);
    if (!graphs) {
        graphs = calloc(1, sizeof *graphs);
        if (!graphs) return tt_fail(TT_ERR_SYSTEM, "out of memory for calls of CUDA graphs");
        graphs->comm = comm;
        graphs->context = tt_device_context(on->device);
        graphs->report = on->report;
        graphs->stream = on->stream;
        pthread_mutex_init(&graphs->lock, NULL);
        const tt_status status = begin(graphs);
        if (status) {
            tt_graphs_destroy(graphs);
            return status;
        }
        atomic_store_explicit(&on->graphs, graphs, memory_order_release);
    }
    *out = graphs;
    return TT_OK;
}

/* The attendant ends the wait: it closes the graphs after a failure, for example at the deadline.
 */
static bool is_waited_for(struct tt_graphs *graphs)
{
    pthread_mutex_lock(&graphs->lock);
    const bool waits = read_report(graphs->report).runs && !graphs->closed;
    pthread_mutex_unlock(&graphs->lock);
    return waits;
}

static bool close_now(struct tt_graphs *graphs)
{
    pthread_mutex_lock(&graphs->lock);
    close_locked(graphs, true);
    const bool closed = graphs->closed;
    pthread_mutex_unlock(&graphs->lock);
    return closed;
}

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = BUSY_MS * 1000000L}, NULL);
}

void tt_graphs_end(struct tt_comm_device *on)
{
    struct tt_graphs *graphs = on->graphs;
    if (!graphs) return;
    while (is_waited_for(graphs)) pause_briefly();
    tt_unattend(on->queue.attendant, &graphs->attended);
    const struct seen seen = read_report(graphs->report);
    publish(graphs, &seen);
    const int64_t deadline_ns = tt_deadline_ns(END_MS);
    while (!close_now(graphs) && !tt_expired(deadline_ns)) pause_briefly();
    if (!graphs->closed) tt_fabric_give_back(graphs->comm->fabric);
    graphs->comm = NULL;
}

bool tt_graphs_have_ended(const struct tt_comm_device *on)
{
    return !on->graphs || tt_kernel_has_ended(on->report);
}

bool tt_graphs_are_gone(const struct tt_comm_device *on)
{
    struct tt_graphs *graphs = on->graphs;
    if (!graphs) return true;
    forget_gone(graphs);
    return !graphs->list;
}

void tt_graphs_destroy(struct tt_graphs *graphs)
{
    if (!graphs) return;
    tt_context_event_destroy(graphs->context, graphs->order);
    pthread_mutex_destroy(&graphs->lock);
    free(graphs->calls);
    free(graphs);
}
