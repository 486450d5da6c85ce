/* Captures staged calls into CUDA graphs. */
#include <stdio.h>
#include <stdlib.h>

#include "carrier/gpu_stream.h"
#include "carrier/staged/replay.h"
#include "driver/capture.h"

/* The calls of a group with one communicator and one capture. */
struct taken {
    struct tt_comm_core *comm;
    struct tt_capture capture; /* of all of its streams, as they were before the group */
    struct tt_stage_graphs *graphs;
    struct tt_stage_graph *graph;
    struct tt_replay *replay;
    void *begins, *last; /* the node that stores the words, NULL: not added; the last node */
};

/* All captured calls of a group. */
struct captured {
    int ntaken;
    struct taken taken[];
};

static struct tt_context *context_of(const struct taken *taken)
{
    return taken->comm->staged->context;
}

static void *stream_of(const struct tt_pending_call *call)
{
    return tt_gpu_stream_handle(call->stream);
}

static bool is_captured(const struct tt_pending_call *call)
{
    return call->capture;
}

void tt_replay_hold(const struct tt_stage_run *run)
{
    for (int i = 0; i < run->ncalls; i++)
        if (run->calls[i].kind == TT_CALL_COLLECTIVE)
            atomic_fetch_add_explicit(&run->calls[i].cached->nheld, 1, memory_order_relaxed);
}

void tt_replay_release(const struct tt_stage_run *run)
{
    for (int i = 0; i < run->ncalls; i++)
        if (run->calls[i].kind == TT_CALL_COLLECTIVE) /* acquire: has_calls of select.c */
            atomic_fetch_sub_explicit(&run->calls[i].cached->nheld, 1, memory_order_release);
}

void tt_replay_close(const struct tt_replay *replay)
{
    for (int i = 0; i < replay->run->ncalls; i++)
        __atomic_store_n(&replay->run->calls[i].stage->words->closed, 1, __ATOMIC_RELEASE);
}

/* ---- Graphs that are gone ------------------------------------------------------------------- */

static size_t bytes_of(const struct tt_stage_run *run)
{
    return sizeof(struct tt_replay) +
           (size_t)run->ncalls * (sizeof run->calls[0] + sizeof run->works[0]);
}

/* The graph's nodes will never run again: other calls may use the words. */
static void free_replay(struct tt_replay *replay, bool comm_lives)
{
    struct tt_stage_run *run = replay->run;
    for (int i = 0; i < run->ncalls; i++) {
        const struct tt_pending_call *pending = &run->calls[i];
        const bool has_table = pending->call.binding != &pending->kept;
        if (pending->kind == TT_CALL_COLLECTIVE && has_table && replay->owns)
            free((void *)(uintptr_t)pending->call.binding);
        tt_stage_release(pending->stage);
    }
    if (comm_lives) run->calls[0].comm->staged->held_bytes -= bytes_of(run);
    if (comm_lives && replay->owns) tt_replay_release(run);
    tt_stage_run_free(run);
    free(replay);
}

static void free_graph(struct tt_stage_graph *graph, bool comm_lives)
{
    while (graph->replays) {
        struct tt_replay *replay = graph->replays;
        graph->replays = replay->next;
        free_replay(replay, comm_lives);
    }
    free(graph);
}

static bool is_running_locked(const struct tt_stage_graphs *graphs,
                              const struct tt_stage_graph *graph)
{
    const struct tt_replay *replay = graph->replays;
    while (replay && replay != graphs->running) replay = replay->next;
    return replay;
}

/* The staging thread may still be at the end of a replay whose graph is gone. */
static void forget_gone(struct tt_stage_graphs *graphs)
{
    pthread_mutex_lock(&graphs->lock);
    for (struct tt_stage_graph **at = &graphs->list; *at;) {
        struct tt_stage_graph *graph = *at;
        /* release: is_gone */
        if (!atomic_load_explicit(&graph->gone, memory_order_acquire) ||
            is_running_locked(graphs, graph)) {
            at = &graph->next;
            continue;
        }
        *at = graph->next;
        free_graph(graph, graphs->comm);
    }
    pthread_mutex_unlock(&graphs->lock);
}

bool tt_stage_graphs_are_gone(struct tt_stage_graphs *graphs)
{
    if (!graphs) return true;
    forget_gone(graphs);
    return !graphs->list;
}

/* Called by the driver. */
static void is_gone(void *argument)
{
    struct tt_stage_graph *graph = argument;
    atomic_store_explicit(&graph->gone, true, memory_order_release); /* acquire: forget_gone */
}

/* ---- Preparing: what can fail before a graph grows ------------------------------------------- */

/* From now on calls of the communicator get their turns among replays. */
static tt_status get_graphs(struct tt_comm_core *comm, struct tt_stage_graphs **out)
{
    struct tt_staged_part *staged = comm->staged;
    if (!staged->graphs) {
        struct tt_stage_graphs *graphs = calloc(1, sizeof *graphs);
        if (!graphs) return tt_fail(TT_ERR_SYSTEM, "out of memory for calls of CUDA graphs");
        graphs->comm = comm;
        pthread_mutex_init(&graphs->lock, NULL);
        staged->graphs = graphs;
        comm->gate = &tt_staged_gate;
        tt_stream_watch(staged->thread, tt_replays_look, graphs);
    }
    *out = staged->graphs;
    return TT_OK;
}

/* The graph of the capture, listed now if it is a new one. */
static tt_status find_graph(struct taken *taken)
{
    struct tt_stage_graphs *graphs = taken->graphs;
    forget_gone(graphs);
    struct tt_stage_graph *graph = graphs->list;
    while (graph && graph->capture != taken->capture.id) graph = graph->next;
    if (!graph) {
        graph = calloc(1, sizeof *graph);
        if (!graph) return tt_fail(TT_ERR_SYSTEM, "out of memory for the entry of a CUDA graph");
        graph->capture = taken->capture.id;
        const tt_status status =
            tt_capture_keep(context_of(taken), taken->capture.graph, is_gone, graph);
        if (status) {
            free(graph);
            return status;
        }
        pthread_mutex_lock(&graphs->lock);
        graph->next = graphs->list;
        graphs->list = graph;
        pthread_mutex_unlock(&graphs->lock);
    }
    taken->graph = graph;
    return TT_OK;
}

/* Adds a node to a list without repetition that has room. */
static void add_to(void **nodes, size_t *nnodes, void *node)
{
    for (size_t i = 0; i < *nnodes; i++)
        if (nodes[i] == node) return;
    nodes[(*nnodes)++] = node;
}

/* The calls follow all of their streams. */
static tt_status join_stream(struct taken *taken, const struct tt_pending_call *call)
{
    struct tt_capture *to = &taken->capture, from;
    TT_TRY(tt_capture_open(context_of(taken), stream_of(call), &from));
    void **after = realloc(to->after, (to->nafter + from.nafter + 1) * sizeof *after);
    if (!after) {
        tt_capture_close(&from);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for the nodes of a graph");
    }
    to->id = from.id;
    to->graph = from.graph;
    to->after = after;
    for (size_t i = 0; i < from.nafter; i++) add_to(after, &to->nafter, from.after[i]);
    tt_capture_close(&from);
    return TT_OK;
}

static tt_status make_replay(struct taken *taken, const struct tt_pending_call *first)
{
    struct tt_replay *replay = calloc(1, sizeof *replay);
    if (replay) replay->run = tt_stage_run_make(first);
    if (!replay || !replay->run) {
        free(replay);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for calls of a CUDA graph");
    }
    taken->replay = replay;
    taken->comm->staged->held_bytes += bytes_of(replay->run);
    for (int i = 0; i < replay->run->ncalls; i++) tt_stage_keep(replay->run->calls[i].stage);
    return TT_OK;
}

static bool is_first(const struct tt_calls *calls, const struct tt_pending_call *of)
{
    const struct tt_pending_call *call = calls->first;
    while (!tt_are_one_run(call, of)) call = call->next;
    return call == of;
}

static tt_status prepare(struct taken *taken, const struct tt_pending_call *first)
{
    taken->comm = first->comm;
    TT_TRY(tt_fabric_check(first->comm->fabric));
    TT_TRY(get_graphs(first->comm, &taken->graphs));
    for (const struct tt_pending_call *call = first; call; call = call->next)
        if (tt_are_one_run(call, first)) TT_TRY(join_stream(taken, call));
    TT_TRY(find_graph(taken));
    return make_replay(taken, first);
}

/* ---- Nodes ---------------------------------------------------------------------------------- */

/* Chains nodes of TT_MOST_WORDS words each. waits: for the words, else they are stored. */
static tt_status add_words(struct taken *taken, bool waits, void **after, size_t nafter,
                           void **node)
{
    const struct tt_stage_run *run = taken->replay->run;
    for (int i = 0; i < run->ncalls;) {
        uint32_t *narrow[TT_MOST_WORDS];
        uint64_t *wide[TT_MOST_WORDS];
        size_t n = 0;
        for (; i < run->ncalls && n < TT_MOST_WORDS; i++, n++) {
            struct tt_stage_words *words = run->calls[i].stage->words;
            narrow[n] = &words->ready;
            wide[n] = (uint64_t *)(void *)words;
        }
        TT_TRY(waits ? tt_capture_add_awaits(context_of(taken), taken->capture.graph, after, nafter,
                                             wide, n, TT_REPLAY_PASSES, node)
                     : tt_capture_add_stores(context_of(taken), taken->capture.graph, after, nafter,
                                             narrow, n, TT_REPLAY_BEGUN, node));
        after = node;
        nafter = 1;
    }
    return TT_OK;
}

/* The first call of a communicator in a graph waits for the communicator's calls before the launch;
 * the others follow the one before. */
static tt_status add_begin(struct taken *taken)
{
    struct tt_capture *capture = &taken->capture;
    void *wait;
    if (taken->graph->last) {
        add_to(capture->after, &capture->nafter, taken->graph->last);
    } else {
        TT_TRY(tt_capture_add_wait(context_of(taken), capture->graph, capture->after,
                                   capture->nafter, taken->comm->staged->order, &wait));
        capture->after[0] = wait;
        capture->nafter = 1;
    }
    return add_words(taken, false, capture->after, capture->nafter, &taken->begins);
}

/* Waits when all calls of the group in this graph have begun, so that no rank waits for another
 * one's node that comes behind its own. */
static tt_status add_end(struct taken *all, int ntaken, struct taken *taken)
{
    size_t nafter = 0;
    void *wait;
    void **after = calloc((size_t)ntaken, sizeof *after);
    if (!after) return tt_fail(TT_ERR_SYSTEM, "out of memory for the nodes of a graph");
    for (int i = 0; i < ntaken; i++)
        if (all[i].capture.id == taken->capture.id) add_to(after, &nafter, all[i].begins);
    tt_status status = add_words(taken, true, after, nafter, &wait);
    if (!status)
        status = tt_capture_add_record(context_of(taken), taken->capture.graph, &wait, 1,
                                       taken->comm->staged->order, &taken->last);
    free(after);
    if (!status) taken->graph->last = taken->last;
    return status;
}

static const struct taken *find_taken(const struct taken *taken, const struct tt_pending_call *call)
{
    while (taken->comm != call->comm || taken->capture.id != call->capture) taken++;
    return taken;
}

/* The streams follow the calls; those of several ranks on one stream run side by side. */
static tt_status lead_streams(const struct taken *taken, const struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        bool first = true;
        if (!is_captured(call)) continue;
        for (const struct tt_pending_call *other = calls->first; other != call; other = other->next)
            first = first && !(is_captured(other) && stream_of(other) == stream_of(call));
        const struct taken *of = find_taken(taken, call);
        TT_TRY(tt_capture_follow(context_of(of), stream_of(call), of->last, first));
    }
    return TT_OK;
}

/* ---- The calls of a group ------------------------------------------------------------------- */

static tt_status capture_all(struct captured *captured, const struct tt_calls *calls)
{
    struct taken *taken = captured->taken;
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (is_captured(call) && is_first(calls, call))
            TT_TRY(prepare(&taken[captured->ntaken++], call));
    for (int i = 0; i < captured->ntaken; i++) TT_TRY(add_begin(&taken[i]));
    for (int i = 0; i < captured->ntaken; i++) TT_TRY(add_end(taken, captured->ntaken, &taken[i]));
    return lead_streams(taken, calls);
}

/* The replay is the graph's from now on. */
static void add_replay(const struct taken *taken)
{
    pthread_mutex_lock(&taken->graphs->lock);
    struct tt_replay **at = &taken->graph->replays;
    while (*at) at = &(*at)->next;
    *at = taken->replay;
    pthread_mutex_unlock(&taken->graphs->lock);
}

/* Nodes that stay in a graph, because CUDA does not allow to remove them, pass at once; their words
 * stay as long as the graph. */
static void drop(const struct taken *taken)
{
    if (!taken->replay) return;
    taken->replay->dropped = true;
    tt_replay_close(taken->replay);
    if (taken->begins)
        add_replay(taken);
    else
        free_replay(taken->replay, true);
}

static void free_captured(struct captured *captured)
{
    for (int i = 0; i < captured->ntaken; i++) tt_capture_close(&captured->taken[i].capture);
    free(captured);
}

/* The calls stay the caller's, but for the words that a graph has. */
static void fail(struct captured *captured, struct tt_calls *calls)
{
    char text[TT_ERROR_TEXT];
    snprintf(text, sizeof text, "%s", tt_last_error());
    for (int i = 0; i < captured->ntaken; i++) drop(&captured->taken[i]);
    for (struct tt_pending_call *call = calls->first; call; call = call->next)
        if (is_captured(call) && call->stage->is_kept) call->stage = NULL;
    free_captured(captured);
    tt_set_last_error(text);
}

tt_status tt_staged_capture(struct tt_calls *calls, void **out)
{
    int n = 0;
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        n += is_captured(call);
    if (!n) return TT_OK;
    struct captured *captured = calloc(1, sizeof *captured + (size_t)n * sizeof captured->taken[0]);
    if (!captured) return tt_fail(TT_ERR_SYSTEM, "out of memory to capture %d calls", n);
    const tt_status status = capture_all(captured, calls);
    if (status) {
        fail(captured, calls);
        return status;
    }
    for (struct tt_pending_call *call = calls->first; call; call = call->next)
        call->is_gone = is_captured(call);
    tt_calls_drop_gone(calls);
    *out = captured;
    return TT_OK;
}

void tt_staged_captured(void *argument, bool holds)
{
    struct captured *captured = argument;
    if (!captured) return;
    for (int i = 0; i < captured->ntaken; i++) {
        struct taken *taken = &captured->taken[i];
        taken->replay->owns = true;
        tt_replay_hold(taken->replay->run);
        if (holds)
            add_replay(taken);
        else
            drop(taken);
    }
    free_captured(captured);
}
