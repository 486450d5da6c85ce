/* Captures: modes, forks and joins, misuse. What an H100 returned is in
 * vgpu/probes/results/h100.json; the conformance test compares all of that, these tests what the
 * rows do not say. */
#include "testing.h"

#include <pthread.h>
#include <string.h>

static CUstreamCaptureStatus status_of(CUstream stream)
{
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)9;
    OK(cuStreamIsCapturing(stream, &status));
    return status;
}

static void begin(CUstream stream, CUstreamCaptureMode mode)
{
    OK(cuStreamBeginCapture(stream, mode));
}

static CUgraph end(CUstream stream)
{
    CUgraph graph = NULL;
    OK(cuStreamEndCapture(stream, &graph));
    CHECK(graph != NULL);
    return graph;
}

static void expect_spoilt(CUstream stream)
{
    CUgraph graph = (CUgraph)&graph;
    CHECK_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CHECK_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(graph == NULL);
    CHECK_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

static CUresult store(CUstream stream, unsigned index, uint32_t value)
{
    CUdeviceptr at = vt.memory + 4 * index;
    return vt_launch(vt.put, 1, stream, (void *[]){&at, &value});
}

static size_t count_nodes(CUgraph graph)
{
    size_t n = 99;
    OK(cuGraphGetNodes(graph, NULL, &n));
    return n;
}

static CUevent new_event(void)
{
    CUevent event = NULL;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

/* ---- modes ---- */

struct call {
    CUstreamCaptureMode capture, thread;
    bool own; /* the thread that captures calls */
    CUresult expected;
};

static void *call_alloc(void *arg)
{
    struct call *call = arg;
    CUstreamCaptureMode mode = call->thread;
    CUdeviceptr memory;
    OK(cuCtxSetCurrent(vt.context));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK_EQ(cuMemAlloc(&memory, 16), call->expected);
    mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK_EQ(mode, call->thread);
    return NULL;
}

GRAPH_TEST(capture, unsafe_calls_are_refused_by_mode_of_capture_and_of_thread)
{
    const CUstreamCaptureMode G = CU_STREAM_CAPTURE_MODE_GLOBAL,
                              T = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                              R = CU_STREAM_CAPTURE_MODE_RELAXED;
    const CUresult bad = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    const struct call calls[] = {{G, G, true, bad},  {G, T, true, bad}, {G, R, true, 0},
                                 {T, G, true, bad},  {T, T, true, bad}, {T, R, true, 0},
                                 {R, G, true, 0},    {R, T, true, 0},   {R, R, true, 0},
                                 {G, G, false, bad}, {G, T, false, 0},  {G, R, false, 0},
                                 {T, G, false, 0},   {T, T, false, 0},  {R, G, false, 0}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct call call = calls[i];
        pthread_t thread;
        begin(vt.stream, call.capture);
        if (call.own) {
            call_alloc(&call);
        } else {
            CHECK_EQ(pthread_create(&thread, NULL, call_alloc, &call), 0);
            pthread_join(thread, NULL);
        }
        if (call.expected == bad)
            expect_spoilt(vt.stream);
        else
            OK(cuGraphDestroy(end(vt.stream)));
    }
    CUstreamCaptureMode mode = (CUstreamCaptureMode)9;
    CHECK_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_VALUE);
}

static void *end_elsewhere(void *arg)
{
    CUgraph graph = NULL;
    OK(cuCtxSetCurrent(vt.context));
    CHECK_EQ(cuStreamEndCapture(vt.stream, &graph), *(CUresult *)arg);
    return NULL;
}

GRAPH_TEST(capture, only_a_relaxed_one_may_end_in_another_thread)
{
    pthread_t thread;
    CUresult expected = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    begin(vt.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    pthread_create(&thread, NULL, end_elsewhere, &expected);
    pthread_join(thread, NULL);
    end(vt.stream);
    begin(vt.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    expected = CUDA_SUCCESS;
    pthread_create(&thread, NULL, end_elsewhere, &expected);
    pthread_join(thread, NULL);
    CHECK_EQ(status_of(vt.stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

static void *capture_elsewhere(void *arg)
{
    CUgraph graph = NULL;
    CUstream stream;
    OK(cuCtxSetCurrent(vt.context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 50; i++) {
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        OK(store(stream, *(unsigned *)arg, i));
        OK(store(stream, *(unsigned *)arg, i + 1));
        OK(cuStreamEndCapture(stream, &graph));
        CHECK_EQ(count_nodes(graph), 2);
        CUgraphExec exec = vt_instantiate(graph);
        OK(cuGraphLaunch(exec, stream));
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(graph));
        OK(cuStreamSynchronize(stream));
    }
    return NULL;
}

GRAPH_TEST(capture, threads_capture_and_replay_side_by_side)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    unsigned index[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        index[i] = i;
        CHECK_EQ(pthread_create(&threads[i], NULL, capture_elsewhere, &index[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < THREADS; i++) CHECK_EQ(vt_word(i), 50);
}

GRAPH_TEST(capture, waiting_for_the_context_spoils_every_capture)
{
    begin(vt.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    begin(vt.other, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_spoilt(vt.stream);
    expect_spoilt(vt.other);
    OK(cuCtxSynchronize());
}

/* ---- streams and events ---- */

GRAPH_TEST(capture, a_fork_that_is_joined_gives_edges_and_a_graph_that_runs)
{
    CUevent fork_event = new_event(), join_event = new_event();
    CUgraphNode nodes[8];
    size_t n = 8;
    begin(vt.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(store(vt.stream, 0, 1));
    OK(cuEventRecord(fork_event, vt.stream));
    OK(cuStreamWaitEvent(vt.other, fork_event, 0));
    OK(store(vt.other, 1, 2));
    OK(store(vt.stream, 2, 3));
    OK(cuEventRecord(join_event, vt.other));
    OK(cuStreamWaitEvent(vt.stream, join_event, 0));
    OK(store(vt.stream, 1, 4));
    CUgraph graph = end(vt.stream);
    CHECK_EQ(status_of(vt.other), CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuGraphGetNodes(graph, nodes, &n));
    CHECK_EQ(n, 4);
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &n));
    CHECK_EQ(n, 4); /* a diamond */
    OK(cuGraphNodeGetDependencies(nodes[3], NULL, NULL, &n));
    CHECK_EQ(n, 2);
    vt_replay(vt_instantiate(graph));
    CHECK_EQ(vt_word(0), 1);
    CHECK_EQ(vt_word(1), 4);
    CHECK_EQ(vt_word(2), 3);
}

GRAPH_TEST(capture, work_behind_the_join_makes_the_fork_unjoined)
{
    CUevent fork_event = new_event(), join_event = new_event();
    CUgraph graph;
    begin(vt.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuEventRecord(fork_event, vt.stream));
    OK(cuStreamWaitEvent(vt.other, fork_event, 0));
    OK(store(vt.other, 1, 2));
    OK(cuEventRecord(join_event, vt.other));
    OK(cuStreamWaitEvent(vt.stream, join_event, 0));
    OK(store(vt.other, 2, 3));
    CHECK_EQ(cuStreamEndCapture(vt.stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    OK(store(vt.other, 2, 3)); /* both work as before */
    OK(store(vt.stream, 3, 4));
    CHECK_EQ(vt_word(2), 3);
}

GRAPH_TEST(capture, isolation_merge_and_unmatched_ends_spoil_it)
{
    CUevent outside = new_event(), inside = new_event();
    CUgraph graph;
    OK(cuEventRecord(outside, vt.other));
    begin(vt.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK_EQ(cuStreamWaitEvent(vt.stream, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    CHECK_EQ(store(vt.stream, 0, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    expect_spoilt(vt.stream);
    begin(vt.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    begin(vt.other, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuEventRecord(inside, vt.stream));
    CHECK_EQ(cuStreamWaitEvent(vt.other, inside, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    expect_spoilt(vt.stream);
    expect_spoilt(vt.other);
    begin(vt.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuEventRecord(inside, vt.stream));
    OK(cuStreamWaitEvent(vt.other, inside, 0));
    CHECK_EQ(cuStreamEndCapture(vt.other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    expect_spoilt(vt.stream);
    CHECK_EQ(cuStreamWaitEvent(vt.other, inside, 0), CUDA_ERROR_INVALID_VALUE); /* it has ended */
    OK(cuEventRecord(inside, vt.other));
    OK(cuStreamWaitEvent(vt.stream, inside, 0));
    OK(cuStreamSynchronize(vt.stream));
}

GRAPH_TEST(capture, the_legacy_stream_waits_for_blocking_streams_only)
{
    CUstream blocking;
    CUevent event = new_event();
    CUstreamCaptureStatus status;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK_EQ(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK_EQ(status_of(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK_EQ(store(NULL, 0, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    expect_spoilt(blocking);
    begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUgraph graph = NULL;
    OK(cuGraphCreate(&graph, 0));
    CHECK_EQ(cuGraphLaunch(vt_instantiate(graph), NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    expect_spoilt(blocking);
    begin(vt.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(store(NULL, 0, 1));
    OK(cuEventRecord(event, vt.stream));
    OK(cuStreamWaitEvent(blocking, event, 0)); /* a blocking stream joins */
    CHECK_EQ(store(NULL, 0, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    expect_spoilt(vt.stream);
}

/* ---- what a program may ask and change ---- */

GRAPH_TEST(capture, its_state_is_told_and_its_dependencies_are_changed)
{
    CUstreamCaptureStatus status;
    cuuint64_t first = 0, second = 0;
    CUgraph graph = NULL;
    const CUgraphNode *nodes = NULL;
    const CUgraphEdgeData *data = NULL;
    size_t n = 9;
    OK(cuStreamGetCaptureInfo(vt.stream, &status, &first, &graph, &nodes, &data, &n));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE && n == 9);
    CHECK_EQ(cuStreamUpdateCaptureDependencies(vt.stream, NULL, NULL, 0, 0),
             CUDA_ERROR_ILLEGAL_STATE);
    begin(vt.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(store(vt.stream, 0, 1));
    OK(cuStreamGetCaptureInfo(vt.stream, &status, &first, &graph, &nodes, &data, &n));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && n == 1 && graph != NULL);
    const CUgraphEdgeData none = {0};
    CHECK(!memcmp(data, &none, sizeof none));
    CUgraphNode captured = nodes[0], by_hand = vt_store(graph, vt.memory + 4, 2, NULL, 0);
    CHECK_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphDestroyNode(captured), CUDA_ERROR_INVALID_VALUE);
    CUgraphExec exec;
    CHECK_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamUpdateCaptureDependencies(vt.stream, &by_hand, NULL, 1,
                                         CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    OK(store(vt.stream, 1, 3));
    OK(cuStreamGetCaptureInfo(vt.stream, &status, NULL, NULL, &nodes, NULL, &n));
    OK(cuGraphNodeGetDependencies(nodes[0], NULL, NULL, &n));
    CHECK_EQ(n, 2);
    OK(cuStreamUpdateCaptureDependencies(vt.stream, &captured, NULL, 1,
                                         CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    OK(store(vt.stream, 2, 4));
    OK(cuStreamGetCaptureInfo(vt.stream, &status, NULL, NULL, &nodes, NULL, &n));
    CUgraphNode before = NULL;
    n = 1;
    OK(cuGraphNodeGetDependencies(nodes[0], &before, NULL, &n));
    CHECK(n == 1 && before == captured);
    CHECK(end(vt.stream) == graph);
    begin(vt.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuStreamGetCaptureInfo(vt.stream, &status, &second, NULL, NULL, NULL, NULL));
    CHECK(first != second);
    OK(cuGraphDestroy(end(vt.stream)));
    vt_replay(vt_instantiate(graph));
    CHECK_EQ(vt_word(1), 3);
    CHECK_EQ(vt_word(2), 4);
}

GRAPH_TEST(capture, it_can_add_to_a_graph_that_exists)
{
    CUgraph graph = NULL, back = NULL;
    size_t n;
    OK(cuGraphCreate(&graph, 0));
    CUgraphNode node = vt_store(graph, vt.memory, 1, NULL, 0), next[2];
    OK(cuStreamBeginCaptureToGraph(vt.stream, graph, &node, NULL, 1,
                                   CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(store(vt.stream, 0, 2));
    OK(cuStreamEndCapture(vt.stream, &back));
    CHECK(back == graph);
    n = 2;
    OK(cuGraphNodeGetDependentNodes(node, next, NULL, &n));
    CHECK_EQ(n, 1);
    OK(cuStreamBeginCaptureToGraph(vt.stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_EQ(cuStreamQuery(vt.stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_spoilt(vt.stream);
    CHECK_EQ(count_nodes(graph), 2); /* the graph is the program's, and stays */
    vt_replay(vt_instantiate(graph));
    CHECK_EQ(vt_word(0), 2);
    OK(cuGraphDestroy(graph));
}

GRAPH_TEST(capture, external_events_are_nodes)
{
    CUevent event = new_event();
    CUgraphNode nodes[3];
    CUgraphNodeType type;
    CUevent back = NULL;
    size_t n = 3;
    begin(vt.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuStreamWaitEvent(vt.stream, event, CU_EVENT_WAIT_EXTERNAL));
    OK(store(vt.stream, 0, 1));
    OK(cuEventRecordWithFlags(event, vt.stream, CU_EVENT_RECORD_EXTERNAL));
    CUgraph graph = end(vt.stream);
    OK(cuGraphGetNodes(graph, nodes, &n));
    CHECK_EQ(n, 3);
    OK(cuGraphNodeGetType(nodes[0], &type));
    CHECK_EQ(type, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    OK(cuGraphNodeGetType(nodes[2], &type));
    CHECK_EQ(type, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    OK(cuGraphEventRecordNodeGetEvent(nodes[2], &back));
    CHECK(back == event);
    CUgraphExec exec = vt_instantiate(graph);
    OK(cuGraphLaunch(exec, vt.stream));
    OK(cuEventSynchronize(event));
    CHECK_EQ(vt_word(0), 1);
    OK(cuEventDestroy(event));
    CHECK_EQ(cuGraphLaunch(exec, vt.stream), CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph);
CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *status);
CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream);

GRAPH_TEST(capture, names_of_per_thread_streams_mean_the_thread_s_own_stream)
{
    CUgraph graph = NULL;
    CUstreamCaptureStatus status;
    CHECK_EQ(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
             CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_EQ(status_of(CU_STREAM_PER_THREAD), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(store(CU_STREAM_PER_THREAD, 0, 5));
    OK(cuStreamIsCapturing_ptsz(NULL, &status));
    CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuStreamEndCapture_ptsz(NULL, &graph));
    CHECK_EQ(count_nodes(graph), 1);
    OK(cuGraphLaunch_ptsz(vt_instantiate(graph), NULL));
    CHECK_EQ(vt_word(0), 5);
}

/* ---- abandoned ---- */

GRAPH_TEST(capture, a_destroyed_stream_abandons_it)
{
    CUstream stream, forked;
    CUevent event = new_event();
    CUdeviceptr memory;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&forked, CU_STREAM_NON_BLOCKING));
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(store(stream, 0, 1));
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(forked, event, 0));
    OK(cuStreamDestroy(stream));
    OK(cuMemAlloc(&memory, 16));
    CHECK_EQ(status_of(forked), CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK_EQ(cuEventQuery(event), CUDA_ERROR_INVALID_VALUE);
    OK(store(forked, 0, 2));
    CHECK_EQ(vt_word(0), 2);
    begin(vt.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuEventRecord(event, vt.stream));
    OK(cuStreamWaitEvent(forked, event, 0));
    OK(cuStreamDestroy(forked));
    expect_spoilt(vt.stream);
    OK(cuEventDestroy(event));
}

GRAPH_TEST(capture, a_context_that_is_reset_abandons_it)
{
    CUevent event = new_event();
    begin(vt.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuEventRecord(event, vt.stream));
    OK(cuStreamWaitEvent(vt.other, event, 0));
    OK(store(vt.other, 0, 1));
    OK(cuDevicePrimaryCtxReset(0));
    vt_open_graphs();
    OK(store(vt.stream, 0, 3));
    CHECK_EQ(vt_word(0), 3);
}

GRAPH_TEST(capture, a_graph_in_which_a_capture_adds_nodes_cannot_be_destroyed)
{
    CUgraph graph = NULL, child = NULL, inner = NULL;
    CUgraphNode node;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&child, 0));
    OK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    OK(cuGraphChildGraphNodeGetGraph(node, &inner));
    OK(cuStreamBeginCaptureToGraph(vt.stream, inner, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphDestroyNode(node), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphInstantiate(&(CUgraphExec){NULL}, graph, 0), CUDA_ERROR_INVALID_VALUE);
    OK(store(vt.stream, 0, 7));
    CHECK(end(vt.stream) == inner);
    vt_replay(vt_instantiate(graph));
    CHECK_EQ(vt_word(0), 7);
    OK(cuGraphDestroy(graph));
}

GRAPH_TEST(capture, a_process_may_end_while_it_captures)
{
    CUevent event = new_event();
    begin(vt.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(store(vt.stream, 0, 1));
    OK(cuEventRecord(event, vt.stream));
    OK(cuStreamWaitEvent(vt.other, event, 0));
    OK(store(vt.other, 0, 1));
}
