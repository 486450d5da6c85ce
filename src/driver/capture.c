/* Captures of streams into CUDA graphs. */
#include "driver/capture.h"

#include <stdlib.h>
#include <string.h>

#include "driver/context_internal.h"

/* ---- Captures ------------------------------------------------------------------------------- */

/* In the context. */
static tt_status copy_nodes(struct tt_capture *capture, const CUgraphNode *nodes, size_t n)
{
    capture->after = malloc((n + 1) * sizeof *capture->after);
    if (!capture->after) return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu nodes of a graph", n);
    for (size_t i = 0; i < n; i++) capture->after[i] = nodes[i];
    capture->nafter = n;
    return TT_OK;
}

/* In the context. nodes: [capture->nafter], the driver's, until its next call for the stream. */
static tt_status get_info(struct tt_context *context, CUstream stream, struct tt_capture *capture,
                          const CUgraphNode **nodes)
{
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;
    cuuint64_t id = 0;
    /* Asked for because the driver refuses to leave out what is no default (LOSSY_QUERY). What is
     * added behind the nodes waits for all of each, whatever the user's next work would wait for.
     */
    const CUgraphEdgeData *edges = NULL;
    const CUresult result = context->cu->StreamGetCaptureInfo(stream, &status, &id, &graph, nodes,
                                                              &edges, &capture->nafter);
    if (result != CUDA_SUCCESS) return tt_cuda_fail(result, "cuStreamGetCaptureInfo");
    if (status == CU_STREAM_CAPTURE_STATUS_NONE) return TT_OK;
    if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return tt_fail(TT_ERR_USAGE, "the capture of the CUDA stream into a graph has failed "
                                     "already: end it (cuStreamEndCapture says why)");
    capture->id = id;
    capture->graph = graph;
    return TT_OK;
}

/* In the context. */
static tt_status open_capture(struct tt_context *context, CUstream stream,
                              struct tt_capture *capture)
{
    const CUgraphNode *nodes = NULL;
    TT_TRY(get_info(context, stream, capture, &nodes));
    return capture->id ? copy_nodes(capture, nodes, capture->nafter) : TT_OK;
}

tt_status tt_capture_find(struct tt_context *context, void *stream, uint64_t *id)
{
    const CUgraphNode *nodes = NULL;
    struct tt_capture capture = {.id = 0};
    TT_TRY(tt_context_enter(context));
    const tt_status status = get_info(context, stream, &capture, &nodes);
    tt_context_leave(context);
    *id = capture.id;
    return status;
}

tt_status tt_capture_open(struct tt_context *context, void *stream, struct tt_capture *capture)
{
    *capture = (struct tt_capture){.id = 0};
    TT_TRY(tt_context_enter(context));
    const tt_status status = open_capture(context, stream, capture);
    tt_context_leave(context);
    return status;
}

void tt_capture_close(struct tt_capture *capture)
{
    free(capture->after);
    capture->after = NULL;
}

tt_status tt_capture_follow(struct tt_context *context, void *stream, void *node, bool alone)
{
    CUgraphNode one = node;
    TT_TRY(tt_context_enter(context));
    const CUresult result = context->cu->StreamUpdateCaptureDependencies(
        stream, &one, NULL, 1,
        alone ? CU_STREAM_SET_CAPTURE_DEPENDENCIES : CU_STREAM_ADD_CAPTURE_DEPENDENCIES);
    tt_context_leave(context);
    return result == CUDA_SUCCESS ? TT_OK
                                  : tt_cuda_fail(result, "cuStreamUpdateCaptureDependencies");
}

/* What the driver calls when its object is gone. gone NULL: the graph never had it. */
struct keeping {
    void (*gone)(void *arg);
    void *arg;
};

static void CUDA_CB end_keeping(void *argument)
{
    const struct keeping keeping = *(struct keeping *)argument;
    free(argument);
    if (keeping.gone) keeping.gone(keeping.arg);
}

/* In the context. Takes the keeping over. */
static tt_status keep(struct tt_context *context, CUgraph graph, struct keeping *keeping)
{
    const struct tt_cuda *cu = context->cu;
    CUuserObject object;
    CUresult result =
        cu->UserObjectCreate(&object, keeping, end_keeping, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (result != CUDA_SUCCESS) {
        free(keeping);
        return tt_cuda_fail(result, "cuUserObjectCreate");
    }
    result = cu->GraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    if (result == CUDA_SUCCESS) return TT_OK;
    keeping->gone = NULL;
    cu->UserObjectRelease(object, 1);
    return tt_cuda_fail(result, "cuGraphRetainUserObject");
}

tt_status tt_capture_keep(struct tt_context *context, void *graph, void (*gone)(void *arg),
                          void *arg)
{
    TT_TRY(tt_context_enter(context));
    struct keeping *keeping = malloc(sizeof *keeping);
    if (keeping) *keeping = (struct keeping){gone, arg};
    const tt_status status =
        keeping ? keep(context, graph, keeping)
                : tt_fail(TT_ERR_SYSTEM, "out of memory for the entry of a CUDA graph");
    tt_context_leave(context);
    return status;
}

static tt_status add_event_node(struct tt_context *context, void *graph, void *const *after,
                                size_t nafter, void *event, void **node, bool waits)
{
    const struct tt_cuda *cu = context->cu;
    CUgraphNode made;
    TT_TRY(tt_context_enter(context));
    const CUresult result = (waits ? cu->GraphAddEventWaitNode : cu->GraphAddEventRecordNode)(
        &made, graph, (const CUgraphNode *)after, nafter, event);
    tt_context_leave(context);
    if (result != CUDA_SUCCESS)
        return tt_cuda_fail(result,
                            waits ? "cuGraphAddEventWaitNode" : "cuGraphAddEventRecordNode");
    *node = made;
    return TT_OK;
}

tt_status tt_capture_add_wait(struct tt_context *context, void *graph, void *const *after,
                              size_t nafter, void *event, void **node)
{
    return add_event_node(context, graph, after, nafter, event, node, true);
}

tt_status tt_capture_add_record(struct tt_context *context, void *graph, void *const *after,
                                size_t nafter, void *event, void **node)
{
    return add_event_node(context, graph, after, nafter, event, node, false);
}

/* ---- Events --------------------------------------------------------------------------------- */

tt_status tt_context_event_create(struct tt_context *context, void **event)
{
    CUevent made;
    TT_TRY(tt_context_enter(context));
    const CUresult result = context->cu->EventCreate(&made, CU_EVENT_DISABLE_TIMING);
    tt_context_leave(context);
    if (result != CUDA_SUCCESS) return tt_cuda_fail(result, "cuEventCreate");
    *event = made;
    return TT_OK;
}

void tt_context_event_destroy(struct tt_context *context, void *event)
{
    if (!event || tt_context_enter(context)) return;
    context->cu->EventDestroy(event);
    tt_context_leave(context);
}

tt_status tt_context_event_record(struct tt_context *context, void *event, void *stream)
{
    int64_t deadline_ns = 0;
    CUresult result;
    TT_TRY(tt_context_enter(context));
    do result = context->cu->EventRecord(event, stream);
    while (tt_cuda_is_to_repeat(context->cu, result, &deadline_ns));
    tt_context_leave(context);
    return result == CUDA_SUCCESS ? TT_OK : tt_cuda_fail(result, "cuEventRecord");
}

tt_status tt_context_event_wait(struct tt_context *context, void *event, void *stream)
{
    int64_t deadline_ns = 0;
    CUresult result;
    TT_TRY(tt_context_enter(context));
    do result = context->cu->StreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT);
    while (tt_cuda_is_to_repeat(context->cu, result, &deadline_ns));
    tt_context_leave(context);
    return result == CUDA_SUCCESS ? TT_OK : tt_cuda_fail(result, "cuStreamWaitEvent");
}

tt_status tt_context_event_query(struct tt_context *context, void *event)
{
    CUstreamCaptureMode mode;
    TT_TRY(tt_context_enter_aside(context, &mode));
    const CUresult result = context->cu->EventQuery(event);
    tt_context_leave_aside(context, mode);
    if (result == CUDA_ERROR_NOT_READY) return TT_IN_PROGRESS;
    return result == CUDA_SUCCESS ? TT_OK : tt_cuda_fail(result, "cuEventQuery");
}

bool tt_context_is_over(const struct tt_context *context)
{
    int ngpus;
    return context->cu->DeviceGetCount(&ngpus) == CUDA_ERROR_DEINITIALIZED;
}
