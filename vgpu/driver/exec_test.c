/* Executable graphs: replays, changes, order, nodes of each kind. */
#include "testing.h"

#include <string.h>

/* add(memory, 1); memory = copy of words; add(memory, 5), captured or run in vt.stream. */
static void work(const uint32_t *words)
{
    CUdeviceptr at = vt.memory;
    uint32_t one = 1, five = 5;
    OK(cuMemcpyHtoDAsync(at, words, 8 * sizeof *words, vt.stream));
    OK(vt_launch(vt.add, 8, vt.stream, (void *[]){&at, &one}));
    at += 8 * sizeof *words;
    OK(cuMemcpyDtoDAsync(at, vt.memory, 8 * sizeof *words, vt.stream));
    OK(vt_launch(vt.add, 8, vt.stream, (void *[]){&at, &five}));
}

static void expect(uint32_t first)
{
    for (unsigned i = 0; i < 8; i++) {
        CHECK_EQ(vt_word(i), first + i + 1);
        CHECK_EQ(vt_word(8 + i), first + i + 6);
    }
}

GRAPH_TEST(exec, a_replayed_graph_gives_the_same_as_the_stream)
{
    uint32_t words[8];
    CUgraph graph;
    for (uint32_t i = 0; i < 8; i++) words[i] = 100 + i;
    work(words);
    OK(cuStreamSynchronize(vt.stream));
    expect(100);
    OK(cuStreamBeginCapture(vt.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    work(words);
    OK(cuStreamEndCapture(vt.stream, &graph));
    expect(100); /* nothing ran */
    vt_set_word(0, 0);
    CUgraphExec exec = vt_instantiate(graph);
    for (uint32_t turn = 0; turn < 4; turn++) {
        for (uint32_t i = 0; i < 8; i++) words[i] = 1000 * turn + i; /* read at each launch */
        vt_replay(exec);
        expect(1000 * turn);
    }
}

GRAPH_TEST(exec, a_sequence_number_in_device_memory_counts_the_launches)
{
    CUgraph graph = vt_graph();
    CUdeviceptr counter = vt.memory, log = vt.memory + 4;
    void *params[] = {&counter, &log};
    CUgraphNode first = vt_kernel(graph, vt.next, 1, params, NULL, 0);
    vt_kernel(graph, vt.next, 1, params, &first, 1);
    CUgraphExec exec = vt_instantiate(graph);
    for (int i = 0; i < 20; i++) OK(cuGraphLaunch(exec, i % 3 ? vt.stream : vt.other));
    CHECK_EQ(vt_word(0), 40);
    for (unsigned i = 0; i < 40; i++) CHECK_EQ(vt_word(1 + i), i + 1);
}

GRAPH_TEST(exec, it_is_a_snapshot_of_the_graph)
{
    CUgraph graph = vt_graph();
    CUgraphNode node = vt_store(graph, vt.memory, 1, NULL, 0);
    CUgraphExec exec = vt_instantiate(graph);
    CUDA_KERNEL_NODE_PARAMS p;
    CUdeviceptr at = vt.memory;
    uint32_t two = 2;
    OK(cuGraphKernelNodeGetParams(node, &p));
    p.kernelParams = (void *[]){&at, &two};
    OK(cuGraphKernelNodeSetParams(node, &p));
    vt_store(graph, vt.memory + 4, 3, &node, 1);
    vt_replay(exec);
    CHECK_EQ(vt_word(0), 1);
    CHECK_EQ(vt_word(1), 0);
    vt_replay(vt_instantiate(graph));
    CHECK_EQ(vt_word(0), 2);
    CHECK_EQ(vt_word(1), 3);
}

GRAPH_TEST(exec, its_nodes_take_new_parameters)
{
    CUgraph graph = vt_graph();
    CUdeviceptr at = vt.memory;
    uint32_t value = 20, source = 5, later = 6;
    CUgraphNode copy, fill, add;
    CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = &source,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                       .dstDevice = at,
                       .WidthInBytes = 4,
                       .Height = 1,
                       .Depth = 1};
    CUDA_MEMSET_NODE_PARAMS f = {
        .dst = at + 4, .value = 7, .elementSize = 4, .width = 2, .height = 1};
    OK(cuGraphAddMemcpyNode(&copy, graph, NULL, 0, &c, vt.context));
    OK(cuGraphAddMemsetNode(&fill, graph, NULL, 0, &f, vt.context));
    add = vt_kernel(graph, vt.add, 3, (void *[]){&at, &value}, (CUgraphNode[]){copy, fill}, 2);
    CUgraphExec exec = vt_instantiate(graph);
    vt_replay(exec);
    CHECK_EQ(vt_word(0), 25);
    CHECK_EQ(vt_word(2), 27);
    CUDA_KERNEL_NODE_PARAMS k;
    OK(cuGraphKernelNodeGetParams(add, &k));
    value = 30;
    k.kernelParams = (void *[]){&at, &value};
    OK(cuGraphExecKernelNodeSetParams(exec, add, &k));
    c.srcHost = &later;
    OK(cuGraphExecMemcpyNodeSetParams(exec, copy, &c, vt.context));
    f.value = 8;
    OK(cuGraphExecMemsetNodeSetParams(exec, fill, &f, vt.context));
    vt_replay(exec);
    CHECK_EQ(vt_word(0), 36);
    CHECK_EQ(vt_word(2), 38);
    c.dstMemoryType = CU_MEMORYTYPE_HOST; /* another kind of memory */
    c.dstHost = &source;
    CHECK_EQ(cuGraphExecMemcpyNodeSetParams(exec, copy, &c, vt.context), CUDA_ERROR_INVALID_VALUE);
    f.height = 2;
    f.pitch = 16;
    CHECK_EQ(cuGraphExecMemsetNodeSetParams(exec, fill, &f, vt.context), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphExecMemsetNodeSetParams(exec, copy, &f, vt.context), CUDA_ERROR_INVALID_VALUE);
    vt_replay(exec);
    CHECK_EQ(vt_word(0), 36);
}

GRAPH_TEST(exec, a_disabled_node_does_nothing_and_keeps_the_order)
{
    CUgraph graph = vt_graph();
    CUdeviceptr at = vt.memory;
    uint32_t one = 1;
    CUgraphNode a = vt_store(graph, at, 5, NULL, 0), b = vt_store(graph, at, 7, &a, 1);
    vt_kernel(graph, vt.add, 1, (void *[]){&at, &one}, &b, 1);
    CUgraphExec exec = vt_instantiate(graph);
    unsigned enabled = 7;
    OK(cuGraphNodeSetEnabled(exec, b, 0));
    OK(cuGraphNodeGetEnabled(exec, b, &enabled));
    CHECK_EQ(enabled, 0);
    vt_replay(exec);
    CHECK_EQ(vt_word(0), 6);
    OK(cuGraphNodeSetEnabled(exec, b, 1));
    vt_replay(exec);
    CHECK_EQ(vt_word(0), 8);
}

static CUgraph chain(uint32_t value, bool longer, bool fill)
{
    CUgraph graph = vt_graph();
    CUgraphNode a = vt_store(graph, vt.memory, value, NULL, 0), b = NULL;
    const CUDA_MEMSET_NODE_PARAMS f = {
        .dst = vt.memory + 4, .value = value, .elementSize = 4, .width = 1, .height = 1};
    if (fill)
        OK(cuGraphAddMemsetNode(&b, graph, &a, 1, &f, vt.context));
    else
        b = vt_store(graph, vt.memory + 4, value, &a, 1);
    if (longer) vt_store(graph, vt.memory + 8, value, &b, 1);
    return graph;
}

GRAPH_TEST(exec, a_graph_of_the_same_shape_updates_it_and_another_one_does_not)
{
    CUgraphExec exec = vt_instantiate(chain(1, false, false));
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphExecUpdate(exec, chain(2, false, false), &info));
    CHECK_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    vt_replay(exec);
    CHECK_EQ(vt_word(0), 2);
    CHECK_EQ(vt_word(1), 2);
    CHECK_EQ(cuGraphExecUpdate(exec, chain(3, true, false), &info),
             CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    CHECK(info.errorNode == NULL);
    CHECK_EQ(cuGraphExecUpdate(exec, chain(3, false, true), &info),
             CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    CHECK(info.errorNode != NULL);
    CUgraph unordered = vt_graph();
    vt_store(unordered, vt.memory, 4, NULL, 0);
    vt_store(unordered, vt.memory + 4, 4, NULL, 0);
    CHECK_EQ(cuGraphExecUpdate(exec, unordered, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    vt_replay(exec);
    CHECK_EQ(vt_word(0), 2);
}

GRAPH_TEST(exec, child_graphs_run_in_their_place_and_are_updated)
{
    CUgraph child = vt_graph(), graph = vt_graph(), other = vt_graph();
    CUdeviceptr counter = vt.memory, log = vt.memory + 4;
    void *params[] = {&counter, &log};
    CUgraphNode inner = vt_kernel(child, vt.next, 1, params, NULL, 0), node;
    vt_kernel(child, vt.next, 1, params, &inner, 1);
    CUgraphNode before = vt_kernel(graph, vt.next, 1, params, NULL, 0);
    OK(cuGraphAddChildGraphNode(&node, graph, &before, 1, child));
    vt_kernel(graph, vt.next, 1, params, &node, 1);
    CUgraphExec exec = vt_instantiate(graph);
    vt_replay(exec);
    vt_replay(exec);
    CHECK_EQ(vt_word(0), 8);
    for (unsigned i = 0; i < 8; i++) CHECK_EQ(vt_word(1 + i), i + 1);
    CUdeviceptr far = vt.memory + 400;
    void *elsewhere[] = {&far, &log};
    inner = vt_kernel(other, vt.next, 1, elsewhere, NULL, 0);
    CHECK_EQ(cuGraphExecChildGraphNodeSetParams(exec, node, other),
             CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    vt_kernel(other, vt.next, 1, elsewhere, &inner, 1);
    OK(cuGraphExecChildGraphNodeSetParams(exec, node, other));
    vt_replay(exec);
    CHECK_EQ(vt_word(0), 10);
    CHECK_EQ(vt_word(100), 2);
}

struct note {
    int n;
    uint32_t seen[4];
    const volatile uint32_t *word;
    CUresult inside;
};

static void CUDA_CB note_word(void *arg)
{
    struct note *note = arg;
    CUdeviceptr memory;
    note->seen[note->n++ & 3] = *note->word;
    note->inside = cuMemAlloc(&memory, 16);
}

GRAPH_TEST(exec, host_nodes_run_between_the_nodes_before_and_after_and_may_not_call_cuda)
{
    CUgraph graph = vt_graph();
    CUgraphNode copy, host;
    uint32_t word = 0;
    struct note note = {.word = &word};
    CUdeviceptr at = vt.memory;
    uint32_t one = 1;
    CUgraphNode add = vt_kernel(graph, vt.add, 1, (void *[]){&at, &one}, NULL, 0);
    const CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                             .srcDevice = at,
                             .dstMemoryType = CU_MEMORYTYPE_HOST,
                             .dstHost = &word,
                             .WidthInBytes = 4,
                             .Height = 1,
                             .Depth = 1};
    OK(cuGraphAddMemcpyNode(&copy, graph, &add, 1, &c, vt.context));
    const CUDA_HOST_NODE_PARAMS h = {note_word, &note};
    OK(cuGraphAddHostNode(&host, graph, &copy, 1, &h));
    vt_kernel(graph, vt.add, 1, (void *[]){&at, &one}, &host, 1);
    CUgraphExec exec = vt_instantiate(graph);
    for (int i = 0; i < 3; i++) vt_replay(exec);
    CHECK_EQ(note.n, 3);
    for (uint32_t i = 0; i < 3; i++) CHECK_EQ(note.seen[i], 2 * i + 1);
    CHECK_EQ(note.inside, CUDA_ERROR_NOT_PERMITTED);
    CHECK_EQ(vt_word(0), 6);
}

GRAPH_TEST(exec, launches_of_one_are_ordered_and_of_two_are_not)
{
    volatile uint32_t *words = vt_mapped(64);
    CUdeviceptr at = (uintptr_t)words, counter = vt.memory + 64, log = vt.memory + 68;
    uint32_t one = 1;
    CUgraph graph = vt_graph();
    CUgraphNode wait = vt_kernel(graph, vt.meet, 1, (void *[]){&at, &one}, NULL, 0);
    vt_kernel(graph, vt.next, 1, (void *[]){&counter, &log}, &wait, 1);
    CUgraphExec exec = vt_instantiate(graph);
    OK(cuGraphLaunch(exec, vt.stream));
    OK(cuGraphLaunch(exec, vt.other));
    CHECK_EQ(cuStreamQuery(vt.stream), CUDA_ERROR_NOT_READY);
    CHECK_EQ(cuStreamQuery(vt.other), CUDA_ERROR_NOT_READY);
    CUgraphExec second = vt_instantiate(chain(9, false, false));
    CUstream third;
    OK(cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
    OK(cuGraphLaunch(second, third));
    OK(cuStreamSynchronize(third)); /* though the first one still waits */
    CHECK_EQ(cuStreamQuery(vt.stream), CUDA_ERROR_NOT_READY);
    words[0] = 1;
    OK(cuStreamSynchronize(vt.other));
    OK(cuStreamQuery(vt.stream)); /* it was before the other one */
    CHECK_EQ(vt_word(0), 9);
    CHECK_EQ(vt_word(16), 2);
}

static void event_nodes(unsigned flags)
{
    volatile uint32_t *words = vt_mapped(64);
    CUdeviceptr at = (uintptr_t)words;
    uint32_t one = 1;
    CUevent event;
    CUgraph graph = vt_graph(), waiter = vt_graph();
    CUgraphNode node;
    CUstream stream = vt_stream(CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | flags));
    CUgraphNode wait = vt_kernel(graph, vt.meet, 1, (void *[]){&at, &one}, NULL, 0);
    CUgraphNode store = vt_store(graph, vt.memory, 3, &wait, 1);
    OK(cuGraphAddEventRecordNode(&node, graph, &store, 1, event));
    OK(cuGraphAddEventWaitNode(&node, waiter, NULL, 0, event));
    CUdeviceptr to = vt.memory + 4, from = vt.memory;
    vt_kernel(waiter, vt.move, 1, (void *[]){&to, &from}, &node, 1);
    CUgraphExec first = vt_instantiate(graph), second = vt_instantiate(waiter);
    OK(cuGraphLaunch(first, vt.stream));
    OK(cuGraphLaunch(second, vt.other));
    OK(cuStreamWaitEvent(stream, event, 0));
    CHECK_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    for (int i = 0; i < 100; i++) CHECK_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    words[0] = 1;
    OK(cuStreamSynchronize(vt.other));
    OK(cuStreamSynchronize(stream));
    OK(cuEventQuery(event));
    CHECK_EQ(vt_word(1), 3);
}

GRAPH_TEST(exec, event_nodes_record_and_wait_at_each_launch)
{
    event_nodes(0);
}

GRAPH_TEST(exec, nodes_record_and_wait_for_events_of_several_processes)
{
    event_nodes(CU_EVENT_INTERPROCESS);
}

GRAPH_TEST(exec, memory_operations_wait_and_write)
{
    volatile uint32_t *words = vt_mapped(64);
    CUgraph graph = vt_graph();
    CUgraphNode node;
    CUstreamBatchMemOpParams ops[2];
    memset(ops, 0, sizeof ops);
    ops[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    ops[0].waitValue.address = (uintptr_t)words;
    ops[0].waitValue.value = 4;
    ops[0].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    ops[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ops[1].writeValue.address = (uintptr_t)(words + 1);
    ops[1].writeValue.value = 6;
    const CUDA_BATCH_MEM_OP_NODE_PARAMS p = {vt.context, 2, ops, 0};
    OK(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &p));
    OK(cuGraphLaunch(vt_instantiate(graph), vt.stream));
    CHECK_EQ(cuStreamQuery(vt.stream), CUDA_ERROR_NOT_READY);
    CHECK_EQ(words[1], 0);
    words[0] = 5;
    OK(cuStreamSynchronize(vt.stream));
    CHECK_EQ(words[1], 6);
}

GRAPH_TEST(exec, copies_of_boxes_move_each_row_of_each_slice)
{
    unsigned char box[4][3][8], back[2 * 2 * 4];
    CUgraph graph = vt_graph();
    CUgraphNode copy, second;
    for (unsigned z = 0; z < 4; z++)
        for (unsigned y = 0; y < 3; y++)
            for (unsigned x = 0; x < 8; x++) box[z][y][x] = (unsigned char)(z * 64 + y * 16 + x);
    const CUDA_MEMCPY3D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                              .srcHost = box,
                              .srcPitch = 8,
                              .srcHeight = 3,
                              .srcXInBytes = 2,
                              .srcY = 1,
                              .srcZ = 1,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstDevice = vt.memory,
                              .dstPitch = 4,
                              .dstHeight = 2,
                              .WidthInBytes = 4,
                              .Height = 2,
                              .Depth = 2};
    const CUDA_MEMCPY3D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = vt.memory,
                               .dstMemoryType = CU_MEMORYTYPE_HOST,
                               .dstHost = back,
                               .WidthInBytes = sizeof back,
                               .Height = 1,
                               .Depth = 1};
    OK(cuGraphAddMemcpyNode(&copy, graph, NULL, 0, &in, vt.context));
    OK(cuGraphAddMemcpyNode(&second, graph, &copy, 1, &out, vt.context));
    vt_replay(vt_instantiate(graph));
    for (unsigned z = 0; z < 2; z++)
        for (unsigned y = 0; y < 2; y++)
            for (unsigned x = 0; x < 4; x++)
                CHECK_EQ(back[(z * 2 + y) * 4 + x], box[z + 1][y + 1][x + 2]);
}
