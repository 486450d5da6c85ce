/* Capture: streams whose work becomes nodes of a graph.
 *
 * Each stream of a capture has a set of nodes after which its next node stands: the last node that
 * it captured, and more after it waited for events. An event that is recorded in a capture takes a
 * copy of the set; a stream that waits for such an event becomes a stream of the capture and adds
 * the event's nodes to its own. A call that breaks a rule spoils the capture: all its streams
 * refuse work until cuStreamEndCapture. Which calls break which rule was measured on an H100
 * (vgpu/probes/calls_capture.c). */
#include <vgpu/driver/capture.h>
#include <vgpu/driver/run.h>

#include <stdlib.h>
#include <string.h>

static struct vd_capture *captures; /* that have not ended */
_Thread_local CUstreamCaptureMode vd_thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static void put(struct vd_capture *capture)
{
    if (!capture || --capture->refs) return;
    free(capture->edges);
    free(capture);
}

struct vd_member *vd_capture_member(struct CUstream_st *stream)
{
    struct vd_capture *capture = stream->capture;
    for (uint32_t i = 0; i < capture->nmembers; i++)
        if (capture->members[i].stream == stream) return &capture->members[i];
    return NULL;
}

static CUresult spoil(struct vd_capture *capture, CUresult result)
{
    capture->spoilt = true;
    return result;
}

/* Nodes that are there already are left out. */
static CUresult join(struct vd_nodes *to, struct CUgraphNode_st *const *nodes, uint32_t n)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < n && result == CUDA_SUCCESS; i++)
        if (!vd_nodes_has(to, nodes[i])) result = vd_nodes_add(to, nodes[i]);
    return result;
}

static CUresult add_member(struct vd_capture *capture, struct CUstream_st *stream)
{
    if (capture->nmembers == capture->room) {
        const uint32_t room = capture->room ? 2 * capture->room : 4;
        struct vd_member *members = realloc(capture->members, room * sizeof *members);
        if (!members) return CUDA_ERROR_OUT_OF_MEMORY;
        capture->members = members;
        capture->room = room;
    }
    capture->members[capture->nmembers++] = (struct vd_member){.stream = stream};
    stream->capture = capture;
    return CUDA_SUCCESS;
}

/* All its streams work as before. */
static void finish(struct vd_capture *capture, bool free_graph)
{
    struct vd_capture **at = &captures;
    while (*at != capture) at = &(*at)->next;
    *at = capture->next;
    for (uint32_t i = 0; i < capture->nmembers; i++) {
        capture->members[i].stream->capture = NULL;
        free(capture->members[i].nodes.at);
    }
    free(capture->members);
    capture->members = NULL;
    capture->nmembers = 0;
    capture->graph->captures--;
    if (free_graph && capture->own_graph) vd_graph_free(capture->graph, NULL);
    capture->graph = NULL;
    capture->ended = true;
    put(capture);
}

CUresult vd_capture_begin(struct CUstream_st *stream, CUstreamCaptureMode mode,
                          struct CUgraph_st *graph, const struct vd_nodes *after)
{
    static uint64_t ncaptures;
    struct vd_capture *capture = calloc(1, sizeof *capture);
    struct CUgraph_st *into = graph ? graph : vd_graph_new();
    if (!capture || !into) {
        free(capture);
        if (!graph) vd_graph_free(into, NULL);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *capture = (struct vd_capture){.next = captures,
                                   .graph = into,
                                   .own_graph = !graph,
                                   .number = ++ncaptures,
                                   .mode = mode,
                                   .thread = vd_this_thread(),
                                   .refs = 1};
    captures = capture;
    into->captures++;
    CUresult result = add_member(capture, stream);
    if (result == CUDA_SUCCESS) result = join(&capture->members[0].nodes, after->at, after->n);
    if (result != CUDA_SUCCESS) finish(capture, true);
    return result;
}

/* Every other stream's nodes must be before, or be, the last ones of the first stream. */
static bool is_joined(const struct vd_capture *capture)
{
    const uint64_t mark = vd_graph_mark(&capture->members[0].nodes);
    for (uint32_t i = 1; i < capture->nmembers; i++)
        for (uint32_t k = 0; k < capture->members[i].nodes.n; k++)
            if (capture->members[i].nodes.at[k]->mark != mark) return false;
    return true;
}

CUresult vd_capture_end(struct CUstream_st *stream, struct CUgraph_st **graph)
{
    struct vd_capture *capture = stream->capture;
    CUresult result = CUDA_SUCCESS;
    *graph = NULL;
    if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (stream != capture->members[0].stream)
        return spoil(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != vd_this_thread())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (capture->spoilt)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!is_joined(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    else
        *graph = capture->graph;
    finish(capture, result != CUDA_SUCCESS);
    return result;
}

/* The stream's next node is this one. */
static CUresult follow(struct CUstream_st *stream, struct CUgraphNode_st *node)
{
    struct vd_nodes *nodes = &vd_capture_member(stream)->nodes;
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < nodes->n && result == CUDA_SUCCESS; i++)
        result = vd_edge_add(nodes->at[i], node);
    nodes->n = 0;
    if (result == CUDA_SUCCESS) result = vd_nodes_add(nodes, node);
    return result == CUDA_SUCCESS ? result : spoil(stream->capture, result);
}

CUresult vd_capture_add(struct CUstream_st *stream, struct vd_op *op)
{
    struct CUgraphNode_st *node;
    if (stream->capture->spoilt) {
        vd_op_clear(op);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    const CUresult result = vd_node_of_op(stream->capture->graph, stream->context, op, &node);
    if (result != CUDA_SUCCESS) return result;
    if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) node->work.priority = stream->priority;
    return follow(stream, node);
}

CUresult vd_capture_external(struct CUstream_st *stream, struct CUevent_st *event, bool wait)
{
    if (stream->capture->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    struct CUgraphNode_st *node =
        vd_node_new(stream->capture->graph,
                    wait ? CU_GRAPH_NODE_TYPE_WAIT_EVENT : CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    if (!node) return CUDA_ERROR_OUT_OF_MEMORY;
    node->work.context = stream->context;
    node->work.event = event;
    return follow(stream, node);
}

void vd_capture_forget(struct CUevent_st *event)
{
    put(event->capture);
    event->capture = NULL;
    free(event->nodes);
    event->nodes = NULL;
    event->nnodes = 0;
}

CUresult vd_capture_record(struct CUstream_st *stream, struct CUevent_st *event)
{
    if (stream->capture->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    const struct vd_nodes *nodes = &vd_capture_member(stream)->nodes;
    struct CUgraphNode_st **copy = malloc((nodes->n + 1) * sizeof *copy);
    if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
    if (nodes->n) memcpy(copy, nodes->at, nodes->n * sizeof *copy);
    vd_capture_forget(event);
    event->nodes = copy;
    event->nnodes = nodes->n;
    event->capture = stream->capture;
    event->capture->refs++;
    return CUDA_SUCCESS;
}

CUresult vd_capture_wait(struct CUstream_st *stream, struct CUevent_st *event)
{
    struct vd_capture *of_event = event->capture;
    CUresult result = CUDA_SUCCESS;
    if (stream->capture && stream->capture->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (of_event && of_event->ended) return CUDA_ERROR_INVALID_VALUE;
    if (!of_event)
        return event->record ? spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
                             : CUDA_SUCCESS;
    if (of_event->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->capture && stream->capture != of_event) {
        spoil(stream->capture, CUDA_SUCCESS);
        return spoil(of_event, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (stream == &stream->context->legacy)
        return spoil(of_event, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (!stream->capture) result = add_member(of_event, stream);
    if (result == CUDA_SUCCESS)
        result = join(&vd_capture_member(stream)->nodes, event->nodes, event->nnodes);
    return result == CUDA_SUCCESS ? result : spoil(of_event, result);
}

CUresult vd_capture_unsafe(void)
{
    CUresult result = CUDA_SUCCESS;
    if (vd_thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    for (struct vd_capture *capture = captures; capture; capture = capture->next) {
        const bool forbids = capture->thread == vd_this_thread()
                                 ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                 : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                       vd_thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (forbids) result = spoil(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    return result;
}

/* Whether a stream of the capture waits for the context's legacy stream, and that one for it. */
static bool has_blocking(const struct vd_capture *capture, const struct CUctx_st *context)
{
    for (uint32_t i = 0; i < capture->nmembers; i++) {
        const struct CUstream_st *stream = capture->members[i].stream;
        if (stream->context == context && !(stream->flags & CU_STREAM_NON_BLOCKING)) return true;
    }
    return false;
}

bool vd_capture_blocks_legacy(const struct CUctx_st *context)
{
    for (const struct vd_capture *capture = captures; capture; capture = capture->next)
        if (has_blocking(capture, context)) return true;
    return false;
}

CUresult vd_capture_implicit(struct CUctx_st *context)
{
    CUresult result = CUDA_SUCCESS;
    for (struct vd_capture *capture = captures; capture; capture = capture->next)
        if (has_blocking(capture, context))
            result = spoil(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    return result;
}

CUresult vd_capture_waited(struct CUstream_st *stream)
{
    if (stream->capture && stream->capture->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->capture) return spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (stream == &stream->context->legacy) {
        const CUresult result = vd_capture_implicit(stream->context);
        if (result != CUDA_SUCCESS) return result;
    }
    return vd_capture_unsafe();
}

CUresult vd_capture_synchronize(struct CUctx_st *context)
{
    CUresult result = CUDA_SUCCESS;
    for (struct vd_capture *capture = captures; capture; capture = capture->next)
        for (uint32_t i = 0; i < capture->nmembers; i++)
            if (capture->members[i].stream->context == context)
                result = spoil(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return result;
}

CUresult vd_capture_event(struct CUevent_st *event)
{
    if (event->capture && event->capture->ended) return CUDA_ERROR_INVALID_VALUE;
    if (event->capture) return spoil(event->capture, CUDA_ERROR_CAPTURED_EVENT);
    return vd_capture_unsafe();
}

void vd_capture_leave(struct CUstream_st *stream)
{
    struct vd_capture *capture = stream->capture;
    if (!capture) return;
    if (capture->members[0].stream == stream) {
        finish(capture, true);
        return;
    }
    struct vd_member *member = vd_capture_member(stream);
    free(member->nodes.at);
    *member = capture->members[--capture->nmembers];
    stream->capture = NULL;
    spoil(capture, CUDA_SUCCESS);
}
