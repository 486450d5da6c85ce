/* Calls that are captured into CUDA graphs, for tests. */
#include "graphs.h"

#include <stdlib.h>
#include <string.h>

void streams_create(const struct gpu_rank *rank, struct both *streams, int n)
{
    gpu_use(rank->gpu);
    for (int i = 0; i < n; i++) {
        streams[i].cuda = gpu_stream(rank->gpu);
        CHECK_EQ(tuttiStreamFromDevice(&streams[i].tutti, rank->gpu, streams[i].cuda),
                 tuttiSuccess);
    }
}

void streams_destroy(const struct gpu_rank *rank, struct both *streams, int n)
{
    for (int i = 0; i < n; i++) {
        CHECK_EQ(tuttiStreamDestroy(streams[i].tutti), tuttiSuccess);
        gpu_stream_destroy(rank->gpu, streams[i].cuda);
    }
}

void capture_begin(CUstream stream, CUstreamCaptureMode mode)
{
    CALL(cuStreamBeginCapture_v2, stream, mode);
}

CUgraph capture_stop(CUstream stream)
{
    CUgraph graph = NULL;
    CALL(cuStreamEndCapture, stream, &graph);
    return graph;
}

CUgraphExec graph_make(CUgraph graph)
{
    CUgraphExec made = NULL;
    CALL(cuGraphInstantiateWithFlags, &made, graph, 0);
    CALL(cuGraphDestroy, graph);
    return made;
}

CUgraphExec capture_end(CUstream stream)
{
    return graph_make(capture_stop(stream));
}

void replay(CUgraphExec graph, CUstream stream)
{
    CALL(cuGraphLaunch, graph, stream);
    CALL(cuStreamSynchronize, stream);
}

CUgraphExec capture_sum(const struct gpu_rank *rank, const struct both *stream, float *data,
                        size_t count)
{
    capture_begin(stream->cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    const tuttiResult_t result =
        tuttiAllReduce(data, data, count, tuttiFloat32, tuttiSum, rank->comm, stream->tutti);
    CHECK_MESSAGE(!result, "rank %d: %s", rank->rank, tuttiGetLastError(rank->comm));
    return capture_end(stream->cuda);
}

void renew(struct placed *placed, uint64_t salt)
{
    char *data = malloc(placed->input_bytes + 1);
    placed->call.salt = salt;
    call_input(&placed->call, placed->rank->rank, data);
    gpu_write(placed->rank->gpu, placed->input, data, placed->input_bytes);
    free(data);
}

bool is_right(const struct placed *placed)
{
    char *got = malloc(placed->output_bytes + 1), *expected = malloc(placed->output_bytes + 1);
    memset(expected, 0xa5, placed->output_bytes + 1); /* gaps between blocks */
    call_expected(&placed->call, placed->rank->rank, expected);
    gpu_read(placed->rank->gpu, got, placed->output, placed->output_bytes);
    const bool right = !memcmp(got, expected, placed->output_bytes);
    free(got);
    free(expected);
    return right;
}
