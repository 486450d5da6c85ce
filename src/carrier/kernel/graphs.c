/* What graphs of captured calls need: which calls they are, and their tables, which later captures
 * get when the driver has destroyed the graph. */
#include <stdlib.h>

#include "carrier/kernel/graphs.h"
#include "carrier/kernel/exchange.h"
#include "device/device.h"
#include "driver/capture.h"

enum { MOST_CALLS = 1024 };

/* ---- Creation -------------------------------------------------------------------------------- */

/* From now on kernels of this rank may use memory of others. */
static tt_status begin_use(const struct tt_graphs *graphs, const struct tt_group_exchange *exchange)
{
    if (!tt_kernel_may_use_peers(graphs->comm, exchange, TT_NO_TURN))
        return tt_kernel_fail_alone(graphs->comm, exchange, TT_NO_TURN);
    tt_graphs_publish_use(graphs, 1);
    tt_fabric_end_kernel(graphs->comm->fabric);
    return TT_OK;
}

/* Calls that were issued before are before the first replay. */
static tt_status begin(struct tt_graphs *graphs, const struct tt_group_exchange *exchange)
{
    graphs->left = calloc(2 * (size_t)graphs->comm->nranks, sizeof *graphs->left);
    if (!graphs->left) return tt_fail(TT_ERR_SYSTEM, "out of memory for calls of CUDA graphs");
    TT_TRY(tt_share_begin_order(graphs->comm->kernel->place.share));
    TT_TRY(begin_use(graphs, exchange));
    graphs->attended.look = tt_graphs_watch;
    tt_attend(graphs->comm->kernel->queue.attendant, &graphs->attended);
    return TT_OK;
}

tt_status tt_graphs_get(struct tt_comm_core *comm, const struct tt_group_exchange *exchange,
                        struct tt_graphs **out)
{
    struct tt_kernel_part *on = comm->kernel;
    struct tt_graphs *graphs = atomic_load_explicit(&on->graphs, memory_order_relaxed);
    if (!graphs) {
        graphs = calloc(1, sizeof *graphs);
        if (!graphs) return tt_fail(TT_ERR_SYSTEM, "out of memory for calls of CUDA graphs");
        graphs->comm = comm;
        graphs->context = tt_device_context(on->device);
        graphs->life = &on->life;
        pthread_mutex_init(&graphs->lock, NULL);
        const tt_status status = begin(graphs, exchange);
        if (status) {
            tt_graphs_destroy(graphs);
            return status;
        }
        atomic_store_explicit(&on->graphs, graphs, memory_order_release);
    }
    *out = graphs;
    return TT_OK;
}

/* ---- Graphs --------------------------------------------------------------------------------- */

/* After the end of the communicator there is no ring, or nobody to use it again. */
static void free_call(struct tt_graphs *graphs, struct tt_graph_call *call)
{
    if (graphs->comm) tt_device_ring_put(&graphs->comm->kernel->ring, call->table);
    if (graphs->exchange == call->exchange) graphs->exchange = NULL;
    free(call->exchange);
    free(call);
}

/* The driver or the list has it no more. The second of the two frees it. */
static void leave_graph(struct tt_graph *graph)
{
    if (atomic_exchange_explicit(&graph->is_left, true, memory_order_acq_rel)) free(graph);
}

static void free_graph(struct tt_graphs *graphs, struct tt_graph *graph)
{
    while (graph->calls) {
        struct tt_graph_call *call = graph->calls;
        graph->calls = call->next;
        free_call(graphs, call);
    }
    leave_graph(graph);
}

static void free_list(struct tt_graphs *graphs)
{
    while (graphs->list) {
        struct tt_graph *graph = graphs->list;
        graphs->list = graph->next;
        free_graph(graphs, graph);
    }
}

void tt_graphs_destroy(struct tt_graphs *graphs)
{
    if (!graphs) return;
    free_list(graphs);
    pthread_mutex_destroy(&graphs->lock);
    free(graphs->calls);
    free(graphs->left);
    free(graphs);
}

static bool is_any_gone(const struct tt_graphs *graphs)
{
    const struct tt_graph *graph = graphs->list;
    while (graph && !atomic_load_explicit(&graph->gone, memory_order_acquire)) graph = graph->next;
    return graph;
}

/* What a failure says of a call is in its table: so that is looked at first. */
static void forget_gone(struct tt_graphs *graphs)
{
    if (!is_any_gone(graphs)) return;
    pthread_mutex_lock(&graphs->lock);
    if (graphs->comm) tt_graphs_look_locked(graphs);
    for (struct tt_graph **at = &graphs->list; *at;) {
        struct tt_graph *graph = *at;
        if (!atomic_load_explicit(&graph->gone, memory_order_acquire)) { /* release: is_gone */
            at = &graph->next;
            continue;
        }
        *at = graph->next;
        free_graph(graphs, graph);
    }
    pthread_mutex_unlock(&graphs->lock);
}

/* Called by the driver. */
static void is_gone(void *argument)
{
    struct tt_graph *graph = argument;
    atomic_store_explicit(&graph->gone, true, memory_order_release); /* acquire: forget_gone */
    leave_graph(graph);
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
        pthread_mutex_lock(&graphs->lock);
        graph->next = graphs->list;
        graphs->list = graph;
        tt_graphs_note_locked(graphs);
        pthread_mutex_unlock(&graphs->lock);
    }
    *out = graph;
    return TT_OK;
}

static bool are_there_locked(const struct tt_graphs *graphs)
{
    const struct tt_graph *graph = graphs->list;
    /* release: is_gone */
    while (graph && atomic_load_explicit(&graph->gone, memory_order_acquire)) graph = graph->next;
    return graph;
}

void tt_graphs_note_locked(struct tt_graphs *graphs)
{
    atomic_store_explicit(&graphs->life->may_replay, are_there_locked(graphs),
                          memory_order_relaxed);
}

bool tt_graphs_are_there(const struct tt_kernel_part *on)
{
    struct tt_graphs *graphs = on->graphs;
    if (!graphs) return false;
    pthread_mutex_lock(&graphs->lock);
    const bool there = are_there_locked(graphs);
    pthread_mutex_unlock(&graphs->lock);
    return there;
}

bool tt_graphs_have_ended(const struct tt_kernel_part *on)
{
    return !on->graphs || tt_kernel_has_ended(&on->life);
}

bool tt_graphs_are_gone(const struct tt_kernel_part *on)
{
    struct tt_graphs *graphs = on->graphs;
    if (!graphs) return true;
    forget_gone(graphs);
    return !graphs->list;
}

/* ---- Numbers of calls ----------------------------------------------------------------------- */

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

static uint64_t take_number(struct tt_graphs *graphs, const struct tt_pending_call *pending)
{
    pthread_mutex_lock(&graphs->lock);
    const uint64_t number = pending->kind == TT_CALL_EXCHANGE
                                ? TT_GRAPH_EXCHANGE_BIT | ++graphs->nexchanges
                                : number_locked(graphs, &pending->call.entry);
    pthread_mutex_unlock(&graphs->lock);
    return number;
}

struct tt_group_exchange *tt_graphs_exchange_locked(const struct tt_graphs *graphs, uint64_t number)
{
    if (!(number & TT_GRAPH_EXCHANGE_BIT)) return NULL;
    for (const struct tt_graph *graph = graphs->list; graph; graph = graph->next)
        for (const struct tt_graph_call *call = graph->calls; call; call = call->next)
            if (call->number == number) return call->exchange;
    return NULL;
}

static bool needs_left(const struct tt_graphs *graphs, const struct tt_group_exchange *exchange)
{
    int i = 0;
    while (i < exchange->ncalls && !graphs->left[exchange->calls[i].peer]) i++;
    return i < exchange->ncalls;
}

bool tt_graphs_needs_left_locked(const struct tt_graphs *graphs, uint64_t number)
{
    if (!number || !graphs->nleft) return false;
    const struct tt_group_exchange *exchange = tt_graphs_exchange_locked(graphs, number);
    return !exchange || needs_left(graphs, exchange);
}

/* ---- Calls ---------------------------------------------------------------------------------- */

tt_status tt_graphs_make_call(struct tt_graphs *graphs, const struct tt_pending_call *pending,
                              struct tt_graph_call **call)
{
    struct tt_graph_call *made = malloc(sizeof *made);
    if (!made) return tt_fail(TT_ERR_SYSTEM, "out of memory for a call of a CUDA graph");
    *made = (struct tt_graph_call){.number = take_number(graphs, pending)};
    *call = made;
    return TT_OK;
}

void tt_graphs_add_call(struct tt_graphs *graphs, struct tt_graph *graph,
                        struct tt_graph_call *call)
{
    if (!call->table) {
        free(call);
        return;
    }
    pthread_mutex_lock(&graphs->lock);
    call->next = graph->calls;
    graph->calls = call;
    if (call->exchange && needs_left(graphs, call->exchange)) call->exchange->table->closed = 1;
    pthread_mutex_unlock(&graphs->lock);
}

void tt_graphs_drop_call(struct tt_graphs *graphs, struct tt_graph_call *call)
{
    if (!call) return;
    tt_device_ring_put(&graphs->comm->kernel->ring, call->table);
    free(call);
}
