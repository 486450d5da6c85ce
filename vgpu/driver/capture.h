/* A capture: streams whose work becomes nodes of a graph instead of items. */
#ifndef VGPU_CAPTURE_H
#define VGPU_CAPTURE_H

#include <vgpu/driver/graph.h>

/* A stream of the capture. The next node stands after `nodes`. */
struct vd_member {
    struct CUstream_st *stream;
    struct vd_nodes nodes;
};

struct vd_capture {
    struct vd_capture *next; /* of the captures that have not ended */
    struct CUgraph_st *graph;
    bool own_graph; /* made by the capture, which frees the graph when it fails */
    uint64_t number;
    CUstreamCaptureMode mode;
    uint64_t thread; /* that began it */
    bool spoilt, ended;
    struct vd_member *members; /* the first is the stream in which it began, and ends */
    uint32_t nmembers, room;
    CUgraphEdgeData *edges; /* zeros, for cuStreamGetCaptureInfo_v3 */
    uint32_t refs;          /* until it has ended, and of each event that was recorded in it last */
};

/* Begins in the stream. graph NULL: a new one. */
CUresult vd_capture_begin(struct CUstream_st *stream, CUstreamCaptureMode mode,
                          struct CUgraph_st *graph, const struct vd_nodes *after);
/* Ends in the stream. *graph: what was captured, or NULL with the error. */
CUresult vd_capture_end(struct CUstream_st *stream, struct CUgraph_st **graph);
struct vd_member *vd_capture_member(struct CUstream_st *stream);
/* A blocking stream of the context captures. */
bool vd_capture_blocks_legacy(const struct CUctx_st *context);
/* The calling thread's mode, for calls that are unsafe during captures. */
extern _Thread_local CUstreamCaptureMode vd_thread_mode;

#endif
