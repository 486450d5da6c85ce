/* Captures calls on device memory into CUDA graphs. */
#include <stdlib.h>

#include "communicator/graphs.h"
#include "driver/capture.h"

/* Part of the signature of captured calls. The calls of a graph have no turn on the host: were a
 * replay to match a call without a graph, the turns of the ranks would get out of step. */
enum { GRAPH_SIGNATURE = 0x5a17c9e3 };
static_assert(!((uint32_t)GRAPH_SIGNATURE & TT_DEVICE_EXCHANGE_BIT), "the bit stays clear");

/* A call that is captured. */
struct taken {
    const struct tt_pending_call *call;
    struct tt_capture capture; /* as it was before the group */
    void *last;                /* the call's last node */
};

static struct tt_context *context_of(const struct tt_pending_call *call)
{
    return tt_device_context(call->comm->on_gpu->device);
}

static void *stream_of(const struct tt_pending_call *call)
{
    return tt_stream_device_stream((const struct tt_stream *)call->stream);
}

static tt_status is_captured(const struct tt_pending_call *call, bool *captured)
{
    *captured = false;
    if (!call->on_device || !call->stream) return TT_OK;
    TT_TRY(tt_context_stream_capturing(context_of(call), stream_of(call), captured));
    if (!*captured || call->kind != TT_WORK_EXCHANGE) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "a CUDA stream is being captured into a graph, and tuttiSend, tuttiRecv and "
                   "tuttiAlltoAllV cannot be captured yet: call them outside of the capture");
}

/* Adds a node to a list without repetition that has room. */
static void add_to(void **nodes, size_t *nnodes, void *node)
{
    for (size_t i = 0; i < *nnodes; i++)
        if (nodes[i] == node) return;
    nodes[(*nnodes)++] = node;
}

/* The first call of a communicator in a graph waits for the communicator's calls before the launch;
 * the others follow the one before. */
static tt_status add_nodes(struct taken *taken)
{
    const struct tt_pending_call *call = taken->call;
    struct tt_capture *capture = &taken->capture;
    const struct tt_comm_device *on = call->comm->on_gpu;
    struct tt_context *context = context_of(call);
    struct tt_device_batch batch = {.ncalls = 1, .nthreads = on->nthreads};
    struct tt_graphs *graphs;
    struct tt_graph *graph;
    void *node;
    TT_TRY(tt_graphs_get(call->comm, &graphs));
    TT_TRY(tt_graphs_find(graphs, capture->id, capture->graph, &graph));
    call->cached->is_captured = true;
    TT_TRY(tt_comm_device_fill(call, &batch.calls[0]));
    batch.calls[0].number = 0;
    batch.calls[0].captured = tt_graphs_number(graphs, &call->call.entry);
    batch.calls[0].signature ^= GRAPH_SIGNATURE;
    if (graph->last) {
        add_to(capture->after, &capture->nafter, graph->last);
    } else {
        TT_TRY(tt_capture_add_wait(context, capture->graph, capture->after, capture->nafter,
                                   graphs->order, &node));
        capture->after[0] = node;
        capture->nafter = 1;
    }
    TT_TRY(tt_device_add_node(on->device, capture->graph, capture->after, capture->nafter, &batch,
                              &node));
    TT_TRY(tt_capture_add_record(context, capture->graph, &node, 1, graphs->order, &taken->last));
    graph->last = taken->last;
    return TT_OK;
}

/* The streams follow the calls, which do not follow one another: those of several ranks on one
 * stream run side by side. */
static tt_status lead_streams(const struct taken *taken, int ntaken)
{
    for (int i = 0; i < ntaken; i++) {
        const struct tt_pending_call *call = taken[i].call;
        bool first = true;
        for (int j = 0; j < i; j++) first = first && stream_of(taken[j].call) != stream_of(call);
        TT_TRY(tt_capture_follow(context_of(call), stream_of(call), taken[i].last, first));
    }
    return TT_OK;
}

static tt_status check(const struct tt_pending_call *call)
{
    TT_TRY(tt_fabric_check(call->comm->fabric));
    return tt_comm_absent_rank(call->comm, NULL) < 0 ? TT_OK : tt_comm_fail_alone(call->comm, NULL);
}

/* All captures are looked at before the first grows. */
static tt_status capture_all(struct taken *taken, int ntaken)
{
    for (int i = 0; i < ntaken; i++) {
        const struct tt_pending_call *call = taken[i].call;
        TT_TRY(check(call));
        TT_TRY(tt_capture_open(context_of(call), stream_of(call), &taken[i].capture));
    }
    for (int i = 0; i < ntaken; i++) TT_TRY(add_nodes(&taken[i]));
    return lead_streams(taken, ntaken);
}

static tt_status capture(const struct tt_pending_call *calls, int ncalls, const bool *captured)
{
    int ntaken = 0;
    if (ncalls < 1) return TT_OK;
    struct taken *taken = calloc((size_t)ncalls, sizeof *taken);
    if (!taken) return tt_fail(TT_ERR_SYSTEM, "out of memory to capture %d calls", ncalls);
    for (int i = 0; i < ncalls; i++)
        if (captured[i]) taken[ntaken++].call = &calls[i];
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
    int nleft = 0, first = 0;
    bool is = false;
    if (*ncalls < 1) return TT_OK;
    while (first < *ncalls && !is) TT_TRY(is_captured(&calls[first++], &is));
    if (!is) return TT_OK;
    bool *captured = calloc((size_t)*ncalls, sizeof *captured);
    if (!captured) return tt_fail(TT_ERR_SYSTEM, "out of memory to capture %d calls", *ncalls);
    tt_status status = TT_OK;
    for (int i = 0; i < *ncalls && !status; i++) status = is_captured(&calls[i], &captured[i]);
    if (!status) status = capture(calls, *ncalls, captured);
    for (int i = 0; i < *ncalls && !status; i++) {
        if (!captured[i])
            calls[nleft++] = calls[i];
        else if (calls[i].call.binding->table_at) /* its kernel has a table of its own */
            free((void *)(uintptr_t)calls[i].call.binding);
    }
    if (!status) *ncalls = nleft;
    free(captured);
    return status;
}
