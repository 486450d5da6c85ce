/* Captures calls on device memory into CUDA graphs. */
#include <stdio.h>
#include <stdlib.h>

#include "carrier/gpu_stream.h"
#include "carrier/kernel/exchange.h"
#include "carrier/kernel/graphs.h"
#include "device/device.h"
#include "driver/capture.h"

/* Part of the signature of captured calls. The calls of a graph have no turn on the host: were a
 * replay to match a call without a graph, the turns of the ranks would get out of step. */
enum { GRAPH_SIGNATURE = 0x5a17c9e3 };
static_assert(!((uint32_t)GRAPH_SIGNATURE & TT_DEVICE_EXCHANGE_BIT), "the bit stays clear");

/* A call that is captured. */
struct taken {
    struct tt_pending_call *call;
    struct tt_capture capture; /* as it was before the group */
    struct taken *first; /* with the same exchange, whose node is also this call's; or itself */
    struct tt_graphs *graphs;
    struct tt_graph *graph;
    struct tt_graph_call *made;   /* what the graph keeps */
    struct tt_device_call device; /* what the kernel gets */
    int priority;                 /* of the most urgent stream among those of its node's calls */
    void *node, *last;            /* of the kernel, NULL: not added; the call's last node */
};

/* All captured calls of a group. */
struct captured {
    int ntaken;
    struct taken taken[];
};

static struct tt_context *context_of(const struct tt_pending_call *call)
{
    return call->comm->context;
}

static void *stream_of(const struct tt_pending_call *call)
{
    return tt_gpu_stream_handle(call->stream);
}

/* ---- Preparing: what can fail before a graph grows ------------------------------------------- */

static tt_status fill_exchange(struct taken *taken)
{
    const struct tt_pending_call *call = taken->call;
    struct tt_group_exchange *exchange = call->exchange;
    TT_TRY(tt_kernel_bind_exchange(call));
    TT_TRY(tt_kernel_fill_exchange(call, &taken->device));
    taken->made->table = exchange->table;
    taken->made->exchange = exchange;
    return TT_OK;
}

static tt_status fill_collective(struct taken *taken)
{
    taken->call->cached->is_captured = true;
    TT_TRY(tt_kernel_fill(taken->call, 0, &taken->device));
    taken->made->table = (void *)(uintptr_t)taken->device.blocks;
    taken->device.signature ^= GRAPH_SIGNATURE;
    return TT_OK;
}

static tt_status prepare(struct taken *taken)
{
    const struct tt_pending_call *call = taken->call;
    TT_TRY(tt_graphs_get(call->comm, call->exchange, &taken->graphs));
    TT_TRY(tt_graphs_find(taken->graphs, taken->capture.id, taken->capture.graph, &taken->graph));
    if (taken->first != taken) return TT_OK;
    TT_TRY(tt_graphs_make_call(taken->graphs, call, &taken->made));
    TT_TRY(call->exchange ? fill_exchange(taken) : fill_collective(taken));
    taken->device.number = 0;
    taken->device.captured = taken->made->number;
    return TT_OK;
}

/* Adds a node to a list without repetition that has room. */
static void add_to(void **nodes, size_t *nnodes, void *node)
{
    for (size_t i = 0; i < *nnodes; i++)
        if (nodes[i] == node) return;
    nodes[(*nnodes)++] = node;
}

/* The first call of a rank in a graph follows all streams of the rank's calls in the group; the
 * others follow it. */
static tt_status join_streams(struct taken *first, const struct taken *taken)
{
    struct tt_capture *to = &first->capture;
    const struct tt_capture *from = &taken->capture;
    if (to == from) return TT_OK;
    void **after = realloc(to->after, (to->nafter + from->nafter + 1) * sizeof *after);
    if (!after) return tt_fail(TT_ERR_SYSTEM, "out of memory for the nodes of a graph");
    to->after = after;
    for (size_t i = 0; i < from->nafter; i++) add_to(after, &to->nafter, from->after[i]);
    return TT_OK;
}

static struct taken *first_of_rank(struct taken *taken, const struct taken *like)
{
    while (taken->call->comm != like->call->comm || taken->capture.id != like->capture.id) taken++;
    return taken;
}

static tt_status check(const struct tt_pending_call *call)
{
    TT_TRY(tt_fabric_check(call->comm->fabric));
    return tt_kernel_absent_rank(call->comm, call->exchange, TT_NO_TURN) < 0
               ? TT_OK
               : tt_kernel_fail_alone(call->comm, call->exchange, TT_NO_TURN);
}

static tt_status prepare_all(struct taken *taken, int ntaken)
{
    for (int i = 0; i < ntaken; i++) {
        const struct tt_pending_call *call = taken[i].call;
        taken[i].first = &taken[i];
        for (int j = i - 1; j >= 0 && call->exchange; j--)
            if (taken[j].call->exchange == call->exchange) taken[i].first = &taken[j];
        const int priority = tt_gpu_stream_priority(call->stream);
        if (priority < taken[i].first->priority) taken[i].first->priority = priority;
        TT_TRY(check(call));
        TT_TRY(tt_capture_open(context_of(call), stream_of(call), &taken[i].capture));
        TT_TRY(join_streams(first_of_rank(taken, &taken[i]), &taken[i]));
    }
    for (int i = 0; i < ntaken; i++) TT_TRY(prepare(&taken[i]));
    return TT_OK;
}

/* ---- Nodes ---------------------------------------------------------------------------------- */

/* For two more nodes. */
static tt_status make_room(struct tt_capture *capture)
{
    void **after = realloc(capture->after, (capture->nafter + 2) * sizeof *after);
    if (!after) return tt_fail(TT_ERR_SYSTEM, "out of memory for the nodes of a graph");
    capture->after = after;
    return TT_OK;
}

/* The first call of a share in a graph waits for the share's calls before the launch; the others
 * follow the one before, and that of the communicator. */
static tt_status add_nodes(struct taken *taken)
{
    struct tt_capture *capture = &taken->capture;
    const struct tt_kernel_part *on = taken->call->comm->kernel;
    struct tt_context *context = context_of(taken->call);
    struct tt_graph *graph = taken->graph;
    struct tt_share *share = on->place.share;
    void *before = tt_share_captured(share, capture->id), *wait;
    if (taken->first != taken) {
        taken->last = taken->first->last;
        return TT_OK;
    }
    if (graph->last || before) {
        TT_TRY(make_room(capture));
        if (graph->last) add_to(capture->after, &capture->nafter, graph->last);
        if (before) add_to(capture->after, &capture->nafter, before);
    } else {
        TT_TRY(tt_capture_add_wait(context, capture->graph, capture->after, capture->nafter,
                                   share->order, &wait));
        capture->after[0] = wait;
        capture->nafter = 1;
    }
    const struct tt_device_batch batch = {.ncalls = 1,
                                          .nthreads = on->nthreads,
                                          .priority = taken->priority,
                                          .calls = {taken->device}};
    TT_TRY(tt_device_add_node(on->device, capture->graph, capture->after, capture->nafter, &batch,
                              &taken->node));
    TT_TRY(tt_capture_add_record(context, capture->graph, &taken->node, 1, share->order,
                                 &taken->last));
    graph->last = taken->last;
    tt_share_capture(share, capture->id, taken->last);
    return TT_OK;
}

/* The streams follow the last call of each rank that has calls on them, and so all calls of it.
 * Those of several ranks on one stream run side by side. */
static tt_status lead_streams(const struct taken *taken, int ntaken)
{
    for (int i = 0; i < ntaken; i++) {
        const struct tt_pending_call *call = taken[i].call;
        bool first = true, follows = false;
        for (int j = 0; j < i; j++) {
            if (stream_of(taken[j].call) != stream_of(call)) continue;
            first = false;
            follows = follows || taken[j].graph == taken[i].graph;
        }
        if (!follows)
            TT_TRY(
                tt_capture_follow(context_of(call), stream_of(call), taken[i].graph->last, first));
    }
    return TT_OK;
}

static tt_status add_all(struct taken *taken, int ntaken)
{
    for (int i = 0; i < ntaken; i++) TT_TRY(add_nodes(&taken[i]));
    return lead_streams(taken, ntaken);
}

/* After a failure. Nodes that stay in a graph have no call, or, where the driver does not allow
 * that, one whose table must stay too. */
static void drop(struct taken *taken)
{
    if (!taken->made) return;
    const struct tt_kernel_part *on = taken->call->comm->kernel;
    if (taken->node && tt_device_empty_node(on->device, taken->node)) {
        taken->made->exchange = NULL; /* the group's */
        tt_graphs_add_call(taken->graphs, taken->graph, taken->made);
    } else {
        tt_graphs_drop_call(taken->graphs, taken->made);
    }
}

/* ---- The calls of a group ------------------------------------------------------------------- */

static tt_status capture_all(struct captured *captured)
{
    TT_TRY(prepare_all(captured->taken, captured->ntaken));
    return add_all(captured->taken, captured->ntaken);
}

static int count_captured(const struct tt_calls *calls)
{
    int n = 0;
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        n += call->capture != 0;
    return n;
}

/* The host of a rank without a GPU has its turn in each call, of which replays have none. */
static tt_status check_mixed(const struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (call->capture && call->comm->fabric->mixed.is_mixed)
            return tt_fail(TT_ERR_USAGE,
                           "calls of communicator %s cannot be captured into a CUDA graph: some of "
                           "its ranks have no GPU, and kernels run the calls of the others: "
                           "capture no calls of it",
                           call->comm->name);
    return TT_OK;
}

tt_status tt_kernel_capture(struct tt_calls *calls, void **out)
{
    const int n = count_captured(calls);
    if (!n) return TT_OK;
    TT_TRY(check_mixed(calls));
    struct captured *captured = calloc(1, sizeof *captured + (size_t)n * sizeof captured->taken[0]);
    if (!captured) return tt_fail(TT_ERR_SYSTEM, "out of memory to capture %d calls", n);
    for (struct tt_pending_call *call = calls->first; call; call = call->next)
        if (call->capture) captured->taken[captured->ntaken++].call = call;
    const tt_status status = capture_all(captured);
    if (status) {
        tt_kernel_captured(captured, false);
        return status;
    }
    for (int i = 0; i < captured->ntaken; i++) captured->taken[i].call->is_gone = true;
    tt_calls_drop_gone(calls);
    *out = captured;
    return TT_OK;
}

/* What is captured has memory of its own; the exchange of a call whose capture does not hold is
 * still the call's, which is dropped here. */
static void end(struct taken *taken, bool holds)
{
    const struct tt_pending_call *call = taken->call;
    if (!holds)
        drop(taken);
    else if (taken->made)
        tt_graphs_add_call(taken->graphs, taken->graph, taken->made);
    tt_capture_close(&taken->capture);
    if (!call->is_gone) return;
    if (tt_call_has_table(call)) free((void *)(uintptr_t)call->call.binding);
    if (!holds && call->exchange) tt_exchange_release(call->exchange);
}

void tt_kernel_captured(void *argument, bool holds)
{
    struct captured *captured = argument;
    char text[TT_ERROR_TEXT];
    if (!captured) return;
    if (!holds) snprintf(text, sizeof text, "%s", tt_last_error());
    for (int i = 0; i < captured->ntaken; i++) end(&captured->taken[i], holds);
    if (!holds) tt_set_last_error(text);
    free(captured);
}
