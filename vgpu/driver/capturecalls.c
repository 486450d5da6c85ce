/* The exported functions about capture. */
#define __CUDA_API_VERSION_INTERNAL /* all versions of each function */
#include <vgpu/driver/capture.h>

#include <stdlib.h>
#include <string.h>

static bool is_legacy(const struct CUstream_st *stream)
{
    return stream == &stream->context->legacy;
}

static bool mode_is(CUstreamCaptureMode mode)
{
    return (unsigned)mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

static CUresult begin(CUstream handle, bool per_thread, CUstreamCaptureMode mode,
                      struct CUgraph_st *graph, const struct vd_nodes *after)
{
    struct CUstream_st *stream;
    const CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (!mode_is(mode)) return CUDA_ERROR_INVALID_VALUE;
    if (is_legacy(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    return vd_capture_begin(stream, mode, graph, after);
}

static CUresult begin_new(CUstream stream, bool per_thread, CUstreamCaptureMode mode)
{
    return begin(stream, per_thread, mode, NULL, &(struct vd_nodes){0});
}

CUresult CUDAAPI cuStreamBeginCapture(CUstream stream)
{
    VD_ENTER();
    return vd_leave(begin_new(stream, false, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

CUresult CUDAAPI cuStreamBeginCapture_ptsz(CUstream stream)
{
    VD_ENTER();
    return vd_leave(begin_new(stream, true, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    VD_ENTER();
    return vd_leave(begin_new(stream, false, mode));
}

CUresult CUDAAPI cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    VD_ENTER();
    return vd_leave(begin_new(stream, true, mode));
}

static CUresult begin_to(CUstream stream, bool per_thread, CUgraph graph, const CUgraphNode *nodes,
                         const CUgraphEdgeData *data, size_t n, CUstreamCaptureMode mode,
                         const char *function)
{
    if (!vd_graph_is(graph) || !vd_nodes_are_of(graph, nodes, n)) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vd_edge_data_check(data, n, function);
    if (result != CUDA_SUCCESS) return result;
    struct vd_nodes after = {0};
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++)
        result = vd_nodes_add(&after, nodes[i]);
    if (result == CUDA_SUCCESS) result = begin(stream, per_thread, mode, graph, &after);
    free(after.at);
    return result;
}

CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                             const CUgraphNode *nodes, const CUgraphEdgeData *data,
                                             size_t n, CUstreamCaptureMode mode)
{
    VD_ENTER();
    return vd_leave(begin_to(stream, false, graph, nodes, data, n, mode, __func__));
}

CUresult CUDAAPI cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                                  const CUgraphNode *nodes,
                                                  const CUgraphEdgeData *data, size_t n,
                                                  CUstreamCaptureMode mode)
{
    VD_ENTER();
    return vd_leave(begin_to(stream, true, graph, nodes, data, n, mode, __func__));
}

static CUresult end(CUstream handle, bool per_thread, CUgraph *graph)
{
    struct CUstream_st *stream;
    const CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    return vd_capture_end(stream, graph);
}

CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    VD_ENTER();
    return vd_leave(end(stream, false, graph));
}

CUresult CUDAAPI cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    VD_ENTER();
    return vd_leave(end(stream, true, graph));
}

/* What a query wants to know; NULL: not that. */
struct info {
    CUstreamCaptureStatus *status;
    cuuint64_t *number;
    CUgraph *graph;
    const CUgraphNode **nodes;
    const CUgraphEdgeData **edges;
    size_t *n;
};

/* Zeros for all nodes of a stream: no edge has data. */
static CUresult give_edges(struct vd_capture *capture, uint32_t n, const CUgraphEdgeData **edges)
{
    free(capture->edges);
    capture->edges = calloc(n + 1u, sizeof *capture->edges);
    *edges = capture->edges;
    return capture->edges ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult get_info(CUstream handle, bool per_thread, const struct info *info)
{
    struct CUstream_st *stream;
    const CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (!info->status || (info->edges && !info->nodes)) return CUDA_ERROR_INVALID_VALUE;
    if (is_legacy(stream) && vd_capture_blocks_legacy(stream->context))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    struct vd_capture *capture = stream->capture;
    *info->status = !capture          ? CU_STREAM_CAPTURE_STATUS_NONE
                    : capture->spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (!capture || capture->spoilt) return CUDA_SUCCESS;
    const struct vd_nodes *nodes = &vd_capture_member(stream)->nodes;
    if (info->number) *info->number = capture->number;
    if (info->graph) *info->graph = capture->graph;
    if (info->nodes) *info->nodes = nodes->at;
    if (info->n) *info->n = nodes->n;
    return info->edges ? give_edges(capture, nodes->n, info->edges) : CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    VD_ENTER();
    return vd_leave(get_info(stream, false, &(struct info){.status = status}));
}

CUresult CUDAAPI cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *status)
{
    VD_ENTER();
    return vd_leave(get_info(stream, true, &(struct info){.status = status}));
}

CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status,
                                        cuuint64_t *number)
{
    VD_ENTER();
    return vd_leave(get_info(stream, false, &(struct info){.status = status, .number = number}));
}

CUresult CUDAAPI cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus *status,
                                             cuuint64_t *number)
{
    VD_ENTER();
    return vd_leave(get_info(stream, true, &(struct info){.status = status, .number = number}));
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status,
                                           cuuint64_t *number, CUgraph *graph,
                                           const CUgraphNode **nodes, size_t *n)
{
    VD_ENTER();
    const struct info info = {status, number, graph, nodes, NULL, n};
    return vd_leave(get_info(stream, false, &info));
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus *status,
                                                cuuint64_t *number, CUgraph *graph,
                                                const CUgraphNode **nodes, size_t *n)
{
    VD_ENTER();
    const struct info info = {status, number, graph, nodes, NULL, n};
    return vd_leave(get_info(stream, true, &info));
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status,
                                           cuuint64_t *number, CUgraph *graph,
                                           const CUgraphNode **nodes, const CUgraphEdgeData **edges,
                                           size_t *n)
{
    VD_ENTER();
    const struct info info = {status, number, graph, nodes, edges, n};
    return vd_leave(get_info(stream, false, &info));
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus *status,
                                                cuuint64_t *number, CUgraph *graph,
                                                const CUgraphNode **nodes,
                                                const CUgraphEdgeData **edges, size_t *n)
{
    VD_ENTER();
    const struct info info = {status, number, graph, nodes, edges, n};
    return vd_leave(get_info(stream, true, &info));
}

static CUresult update(CUstream handle, bool per_thread, const CUgraphNode *nodes,
                       const CUgraphEdgeData *data, size_t n, unsigned flags)
{
    struct CUstream_st *stream;
    CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
    if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (stream->capture->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!vd_nodes_are_of(stream->capture->graph, nodes, n)) return CUDA_ERROR_INVALID_VALUE;
    result = vd_edge_data_check(data, n, "cuStreamUpdateCaptureDependencies");
    if (result != CUDA_SUCCESS) return result;
    struct vd_nodes set = {0};
    struct vd_nodes *old = &vd_capture_member(stream)->nodes;
    for (uint32_t i = 0; i < old->n && flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES; i++)
        if (result == CUDA_SUCCESS) result = vd_nodes_add(&set, old->at[i]);
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++)
        if (!vd_nodes_has(&set, nodes[i])) result = vd_nodes_add(&set, nodes[i]);
    if (result != CUDA_SUCCESS) {
        free(set.at);
        return result;
    }
    free(old->at);
    *old = set;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes, size_t n,
                                                   unsigned flags)
{
    VD_ENTER();
    return vd_leave(update(stream, false, nodes, NULL, n, flags));
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies_ptsz(CUstream stream, CUgraphNode *nodes,
                                                        size_t n, unsigned flags)
{
    VD_ENTER();
    return vd_leave(update(stream, true, nodes, NULL, n, flags));
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *nodes,
                                                      const CUgraphEdgeData *data, size_t n,
                                                      unsigned flags)
{
    VD_ENTER();
    return vd_leave(update(stream, false, nodes, data, n, flags));
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream stream, CUgraphNode *nodes,
                                                           const CUgraphEdgeData *data, size_t n,
                                                           unsigned flags)
{
    VD_ENTER();
    return vd_leave(update(stream, true, nodes, data, n, flags));
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    VD_ENTER();
    if (!mode || !mode_is(*mode)) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUstreamCaptureMode before = vd_thread_mode;
    vd_thread_mode = *mode;
    *mode = before;
    return vd_leave(CUDA_SUCCESS);
}
