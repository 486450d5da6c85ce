/* Captures calls on device memory into CUDA graphs. */
#include <stdio.h>
#include <stdlib.h>

#include "communicator/graphs.h"
#include "communicator/staged.h"
#include "driver/capture.h"
#include "executor/exchange.h"

/* Part of the signature of captured calls. The calls of a graph have no turn on the host: were a
 * replay to match a call without a graph, the turns of the ranks would get out of step. */
enum { GRAPH_SIGNATURE = 0x5a17c9e3 };
static_assert(!((uint32_t)GRAPH_SIGNATURE & TT_DEVICE_EXCHANGE_BIT), "the bit stays clear");

/* A call that is captured. */
struct taken {
    const struct tt_pending_call *call;
    struct tt_capture capture; /* as it was before the group */
    struct taken *first; /* with the same exchange, whose node is also this call's; or itself */
    struct tt_graphs *graphs;
    struct tt_graph *graph;
    struct tt_graph_call *made;   /* what the graph keeps */
    struct tt_device_call device; /* what the kernel gets */
    int priority;                 /* of the most urgent stream among those of its node's calls */
    void *node, *last;            /* of the kernel, NULL: not added; the call's last node */
};

static struct tt_context *context_of(const struct tt_pending_call *call)
{
    const struct tuttiComm *comm = call->comm;
    return comm->staged ? comm->staged->context : tt_device_context(comm->on_gpu->device);
}

static void *stream_of(const struct tt_pending_call *call)
{
    return tt_stream_device_stream((const struct tt_stream *)call->stream);
}

tt_status tt_comm_find_captures(struct tt_pending_call *calls, int ncalls)
{
    for (int i = 0; i < ncalls; i++) {
        struct tt_pending_call *call = &calls[i];
        bool is = false;
        call->capture = 0;
        if ((!call->on_device && !call->stage) || !call->stream) continue;
        TT_TRY(tt_context_stream_capturing(context_of(call), stream_of(call), &is));
        if (is) TT_TRY(tt_capture_find(context_of(call), stream_of(call), &call->capture));
        if (is && call->stage && !call->stage->captured)
            return tt_fail(TT_ERR_USAGE, "the capture of a CUDA stream has begun inside a group, "
                                         "after a call on that stream: begin it before the group");
    }
    return TT_OK;
}

/* ---- Preparing: what can fail before a graph grows ------------------------------------------- */

static tt_status fill_exchange(struct taken *taken)
{
    const struct tt_pending_call *call = taken->call;
    struct tt_group_exchange *exchange = call->exchange;
    exchange->kernel =
        (struct tt_kernel_run){.report = call->comm->on_gpu->report, .context = context_of(call)};
    TT_TRY(tt_comm_exchange_fill(call, &taken->device));
    taken->made->table = exchange->table;
    taken->made->exchange = exchange;
    return TT_OK;
}

static tt_status fill_collective(struct taken *taken)
{
    taken->call->cached->is_captured = true;
    TT_TRY(tt_comm_device_fill(taken->call, &taken->device));
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
    return tt_comm_absent_rank(call->comm, call->exchange) < 0
               ? TT_OK
               : tt_comm_fail_alone(call->comm, call->exchange);
}

static tt_status prepare_all(struct taken *taken, int ntaken)
{
    for (int i = 0; i < ntaken; i++) {
        const struct tt_pending_call *call = taken[i].call;
        taken[i].first = &taken[i];
        for (int j = i - 1; j >= 0 && call->exchange; j--)
            if (taken[j].call->exchange == call->exchange) taken[i].first = &taken[j];
        const int priority = tt_stream_priority((struct tt_stream *)call->stream);
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
    const struct tt_comm_device *on = taken->call->comm->on_gpu;
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
    const struct tt_comm_device *on = taken->call->comm->on_gpu;
    if (taken->node && tt_device_empty_node(on->device, taken->node)) {
        taken->made->exchange = NULL; /* the group's */
        tt_graphs_add_call(taken->graphs, taken->graph, taken->made);
    } else {
        tt_graphs_drop_call(taken->graphs, taken->made);
    }
}

/* ---- The calls of a group ------------------------------------------------------------------- */

static tt_status capture_all(struct taken *taken, int ntaken)
{
    char text[TT_ERROR_TEXT];
    tt_status status = prepare_all(taken, ntaken);
    if (!status) status = add_all(taken, ntaken);
    if (status) snprintf(text, sizeof text, "%s", tt_last_error());
    for (int i = 0; i < ntaken; i++) {
        if (status)
            drop(&taken[i]);
        else if (taken[i].made)
            tt_graphs_add_call(taken[i].graphs, taken[i].graph, taken[i].made);
    }
    if (status) tt_set_last_error(text);
    return status;
}

static tt_status capture(const struct tt_pending_call *calls, int ncalls)
{
    int ntaken = 0;
    struct taken *taken = calloc((size_t)ncalls, sizeof *taken);
    if (!taken) return tt_fail(TT_ERR_SYSTEM, "out of memory to capture %d calls", ncalls);
    for (int i = 0; i < ncalls; i++)
        if (calls[i].capture) taken[ntaken++].call = &calls[i];
    for (int i = 0; i < ntaken; i++) tt_comm_enter_call(taken[i].call->comm);
    const tt_status status = capture_all(taken, ntaken);
    for (int i = 0; i < ntaken; i++) {
        tt_comm_leave_call(taken[i].call->comm);
        tt_capture_close(&taken[i].capture);
    }
    free(taken);
    return status;
}

tt_status tt_comm_capture(struct tt_pending_call *calls, int *ncalls)
{
    int nleft = 0, ncaptured = 0;
    for (int i = 0; i < *ncalls; i++) ncaptured += calls[i].capture != 0;
    if (!ncaptured) return TT_OK;
    TT_TRY(capture(calls, *ncalls));
    for (int i = 0; i < *ncalls; i++) {
        if (!calls[i].capture)
            calls[nleft++] = calls[i];
        else if (!calls[i].exchange && calls[i].call.binding->table_at)
            free((void *)(uintptr_t)calls[i].call.binding); /* its kernel has a table of its own */
    }
    *ncalls = nleft;
    return TT_OK;
}
