/* Calls that are captured into CUDA graphs, for tests. */
#ifndef TT_TESTS_DEVICE_GRAPHS_H
#define TT_TESTS_DEVICE_GRAPHS_H

#include "../driver/calls.h"
#include "calls_on_gpu.h"

/* A CUDA stream of the rank's GPU, and the library's for it. */
struct both {
    CUstream cuda;
    tuttiStream_t tutti;
};
/* Makes the GPU's context the thread's own. */
void streams_create(const struct gpu_rank *rank, struct both *streams, int n);
void streams_destroy(const struct gpu_rank *rank, struct both *streams, int n);

void capture_begin(CUstream stream, CUstreamCaptureMode mode);
/* The capture's graph. */
CUgraph capture_stop(CUstream stream);
/* The graph, ready to be launched; the graph itself is destroyed. Not while this thread captures,
 * or another one in mode global. */
CUgraphExec graph_make(CUgraph graph);
/* Both. */
CUgraphExec capture_end(CUstream stream);
/* Launches and waits. */
void replay(CUgraphExec graph, CUstream stream);
/* A graph with one all-reduce of `count` floats at `data`, in place. */
CUgraphExec capture_sum(const struct gpu_rank *rank, const struct both *stream, float *data,
                        size_t count);

/* Fills the input of a call that was placed with other data: later checks expect their result. */
void renew(struct placed *placed, uint64_t salt);
bool is_right(const struct placed *placed);

#endif
