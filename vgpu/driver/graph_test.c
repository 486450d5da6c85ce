/* Graphs as structures: nodes, edges, parameters, clones. */
#include "testing.h"

#include <string.h>
#include <sys/mman.h>

static CUgraphNode empty(CUgraph graph, const CUgraphNode *before, size_t n)
{
    CUgraphNode node = NULL;
    OK(cuGraphAddEmptyNode(&node, graph, before, n));
    return node;
}

static size_t count_nodes(CUgraph graph)
{
    size_t n = 99;
    OK(cuGraphGetNodes(graph, NULL, &n));
    return n;
}

GRAPH_TEST(graph, nodes_and_edges_are_listed_in_the_order_in_which_they_were_added)
{
    CUgraph graph = vt_graph();
    CUgraphNode a = empty(graph, NULL, 0), b = empty(graph, &a, 1), c = empty(graph, &a, 1);
    CUgraphNode d = empty(graph, (CUgraphNode[]){b, c}, 2);
    CUgraphNode nodes[8], from[8], to[8];
    CUgraphEdgeData data[8];
    size_t n = 8;
    OK(cuGraphGetNodes(graph, nodes, &n));
    CHECK_EQ(n, 4);
    CHECK(nodes[0] == a && nodes[1] == b && nodes[2] == c && nodes[3] == d && !nodes[4]);
    n = 8;
    OK(cuGraphGetRootNodes(graph, nodes, &n));
    CHECK(n == 1 && nodes[0] == a);
    n = 8;
    OK(cuGraphGetEdges(graph, from, to, data, &n));
    CHECK_EQ(n, 4);
    CHECK(from[0] == a && to[0] == b && from[2] == b && to[2] == d && from[3] == c && to[3] == d);
    n = 1;
    OK(cuGraphNodeGetDependencies(d, nodes, NULL, &n));
    CHECK(n == 1 && nodes[0] == b);
    OK(cuGraphNodeGetDependentNodes(a, NULL, NULL, &n));
    CHECK_EQ(n, 2);
    OK(cuGraphDestroy(graph));
}

GRAPH_TEST(graph, wrong_edges_are_refused_and_change_nothing)
{
    CUgraph graph = vt_graph(), other = vt_graph();
    CUgraphNode a = empty(graph, NULL, 0), b = empty(graph, &a, 1), c = empty(graph, NULL, 0);
    CUgraphNode foreign = empty(other, NULL, 0), none = NULL;
    size_t n;
    CHECK_EQ(cuGraphAddDependencies(graph, &a, &b, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphAddDependencies(graph, &a, &a, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphAddDependencies(graph, &a, &foreign, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphAddDependencies(graph, (CUgraphNode[]){a, a}, (CUgraphNode[]){c, b}, NULL, 2),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphRemoveDependencies(graph, &a, &c, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphAddEmptyNode(&none, graph, &foreign, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphAddEmptyNode(&none, graph, (CUgraphNode[]){a, a}, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(count_nodes(graph), 3);
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &n));
    CHECK_EQ(n, 1);
    const CUgraphEdgeData programmatic = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                          .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    CHECK_EQ(cuGraphAddDependencies(graph, &a, &c, &programmatic, 1), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGraphRemoveDependencies(graph, &a, &b, NULL, 1));
    OK(cuGraphNodeGetDependencies(b, NULL, NULL, &n));
    CHECK_EQ(n, 0);
}

GRAPH_TEST(graph, a_cycle_is_found_when_the_graph_is_instantiated)
{
    CUgraph graph = vt_graph();
    CUgraphNode a = empty(graph, NULL, 0), b = empty(graph, &a, 1), c = empty(graph, &b, 1);
    CUgraphExec exec = NULL;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    OK(cuGraphAddDependencies(graph, &c, &a, NULL, 1));
    CHECK_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphInstantiateWithParams(&exec, graph, &params), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(params.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
    CHECK(params.hErrNode_out == a || params.hErrNode_out == b || params.hErrNode_out == c);
    OK(cuGraphRemoveDependencies(graph, &b, &c, NULL, 1));
    OK(cuGraphInstantiateWithParams(&exec, graph, &params));
    CHECK_EQ(params.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
    CHECK(params.hErrNode_out == NULL);
}

GRAPH_TEST(graph, a_destroyed_node_takes_its_edges_along)
{
    CUgraph graph = vt_graph();
    CUgraphNode a = empty(graph, NULL, 0), b = empty(graph, &a, 1), c = empty(graph, &b, 1);
    CUgraphNodeType type;
    size_t n;
    OK(cuGraphDestroyNode(b));
    CHECK_EQ(cuGraphNodeGetType(b, &type), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(count_nodes(graph), 2);
    OK(cuGraphNodeGetDependencies(c, NULL, NULL, &n));
    CHECK_EQ(n, 0);
    OK(cuGraphNodeGetDependentNodes(a, NULL, NULL, &n));
    CHECK_EQ(n, 0);
    OK(cuGraphDestroy(graph));
    CHECK_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphDestroyNode(a), CUDA_ERROR_INVALID_VALUE);
}

GRAPH_TEST(graph, a_clone_has_nodes_of_its_own_that_are_found_by_the_original)
{
    CUgraph graph = vt_graph(), clone = NULL, child = vt_graph(), inner = NULL;
    CUgraphNode in_child = vt_store(child, vt.memory, 1, NULL, 0), parent, found = NULL;
    CUgraphNode a = vt_store(graph, vt.memory + 4, 2, NULL, 0);
    OK(cuGraphAddChildGraphNode(&parent, graph, &a, 1, child));
    OK(cuGraphClone(&clone, graph));
    CUgraphNode late = empty(graph, NULL, 0);
    CHECK_EQ(count_nodes(clone), 2);
    OK(cuGraphNodeFindInClone(&found, a, clone));
    CHECK(found != a);
    CHECK_EQ(cuGraphNodeFindInClone(&found, late, clone), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphNodeFindInClone(&found, a, graph), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphChildGraphNodeGetGraph(parent, &inner));
    OK(cuGraphNodeFindInClone(&found, in_child, inner));
    CHECK_EQ(cuGraphDestroy(inner), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(child));
    vt_replay(vt_instantiate(clone));
    CHECK_EQ(vt_word(0), 1);
    CHECK_EQ(vt_word(1), 2);
    OK(cuGraphDestroy(clone));
}

static void CUDA_CB host_function(void *arg)
{
    (void)arg;
}

GRAPH_TEST(graph, parameters_come_back_as_they_were_set)
{
    CUgraph graph = vt_graph();
    CUgraphNode node;
    CUdeviceptr at = vt.memory;
    uint32_t value = 7;
    CUDA_KERNEL_NODE_PARAMS kernel;
    node = vt_kernel(graph, vt.put, 5, (void *[]){&at, &value}, NULL, 0);
    value = 8; /* the node has its own copy */
    OK(cuGraphKernelNodeGetParams(node, &kernel));
    CHECK(kernel.func == vt.put && kernel.blockDimX == 5 && kernel.gridDimX == 1);
    CHECK_EQ(*(uint64_t *)kernel.kernelParams[0], at);
    CHECK_EQ(*(uint32_t *)kernel.kernelParams[1], 7);
    kernel.blockDimX = 3;
    OK(cuGraphKernelNodeSetParams(node, &kernel));
    OK(cuGraphKernelNodeGetParams(node, &kernel));
    CHECK_EQ(kernel.blockDimX, 3);
    CHECK_EQ(*(uint32_t *)kernel.kernelParams[1], 7);
    const CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = at, .value = 3, .elementSize = 2, .width = 4, .height = 1};
    CUDA_MEMSET_NODE_PARAMS fill_back;
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, vt.context));
    OK(cuGraphMemsetNodeGetParams(node, &fill_back));
    CHECK(fill_back.dst == at && fill_back.value == 3 && fill_back.elementSize == 2 &&
          fill_back.width == 4 && fill_back.height == 1);
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                .srcHost = &value,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = at,
                                .WidthInBytes = 4,
                                .Height = 1,
                                .Depth = 1};
    CUDA_MEMCPY3D copy_back;
    OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, vt.context));
    OK(cuGraphMemcpyNodeGetParams(node, &copy_back));
    CHECK(!memcmp(&copy, &copy_back, sizeof copy));
    const CUDA_HOST_NODE_PARAMS host = {host_function, &value};
    CUDA_HOST_NODE_PARAMS host_back;
    OK(cuGraphAddHostNode(&node, graph, NULL, 0, &host));
    OK(cuGraphHostNodeGetParams(node, &host_back));
    CHECK(host_back.fn == host_function && host_back.userData == &value);
    CHECK_EQ(cuGraphMemsetNodeGetParams(node, &fill_back), CUDA_ERROR_INVALID_VALUE);
}

GRAPH_TEST(graph, nodes_of_any_kind_are_made_by_one_call)
{
    CUgraph graph = vt_graph();
    CUgraphNode a, b;
    CUdeviceptr at = vt.memory;
    uint32_t value = 9;
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_MEMSET,
        .memset = {
            .dst = at, .value = 5, .elementSize = 4, .width = 2, .height = 1, .ctx = vt.context}};
    OK(cuGraphAddNode(&a, graph, NULL, NULL, 0, &params));
    params = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_KERNEL,
                                 .kernel = {.func = vt.add,
                                            .gridDimX = 1,
                                            .gridDimY = 1,
                                            .gridDimZ = 1,
                                            .blockDimX = 2,
                                            .blockDimY = 1,
                                            .blockDimZ = 1,
                                            .kernelParams = (void *[]){&at, &value}}};
    OK(cuGraphAddNode(&b, graph, &a, NULL, 1, &params));
    CUgraphExec exec = vt_instantiate(graph);
    vt_replay(exec);
    CHECK_EQ(vt_word(1), 14);
    value = 1;
    OK(cuGraphExecNodeSetParams(exec, b, &params));
    vt_replay(exec);
    CHECK_EQ(vt_word(1), 6);
    OK(cuGraphNodeSetParams(b, &params));
    CHECK_EQ(cuGraphNodeSetParams(a, &params), CUDA_ERROR_INVALID_VALUE);
}

GRAPH_TEST(graph, wrong_parameters_are_refused)
{
    CUgraph graph = vt_graph();
    CUgraphNode node;
    uint32_t word = 0;
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = vt.memory, .elementSize = 3, .width = 4, .height = 1};
    CHECK_EQ(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, vt.context),
             CUDA_ERROR_INVALID_VALUE);
    fill.elementSize = 4;
    fill.width = VT_WORDS + 1;
    CHECK_EQ(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, vt.context),
             CUDA_ERROR_INVALID_VALUE);
    fill.width = 1;
    CHECK_EQ(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, NULL), CUDA_ERROR_INVALID_CONTEXT);
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = &word,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = vt.memory,
                          .WidthInBytes = 4,
                          .Height = 0,
                          .Depth = 1};
    CHECK_EQ(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, vt.context),
             CUDA_ERROR_INVALID_VALUE);
    copy.Height = 1;
    copy.dstXInBytes = VT_WORDS * 4;
    CHECK_EQ(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, vt.context),
             CUDA_ERROR_INVALID_VALUE);
    const CUDA_HOST_NODE_PARAMS host = {NULL, NULL};
    CHECK_EQ(cuGraphAddHostNode(&node, graph, NULL, 0, &host), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphAddChildGraphNode(&node, graph, NULL, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphAddEventRecordNode(&node, graph, NULL, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    const CUDA_KERNEL_NODE_PARAMS kernel = {.func = vt.put,
                                            .gridDimX = 0,
                                            .gridDimY = 1,
                                            .gridDimZ = 1,
                                            .blockDimX = 1,
                                            .blockDimY = 1,
                                            .blockDimZ = 1,
                                            .kernelParams = (void *[]){&vt.memory, &word}};
    CHECK(cuGraphAddKernelNode(&node, graph, NULL, 0, &kernel) != CUDA_SUCCESS);
    CHECK_EQ(count_nodes(graph), 0);
}

/* n bytes that end where no memory is, filled with the value. */
static void *before_the_end(size_t n, const void *value, size_t nbytes)
{
    const size_t room = (n + 4095) / 4096 * 4096;
    char *pages =
        mmap(NULL, room + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && mprotect(pages + room, 4096, PROT_NONE) == 0);
    for (size_t i = 0; i + nbytes <= n; i += nbytes) memcpy(pages + room - n + i, value, nbytes);
    return pages + room - n;
}

GRAPH_TEST(graph, counts_beyond_what_the_graph_has_are_refused_before_arrays_are_read)
{
    CUgraph graph = vt_graph(), other = vt_graph();
    CUgraphNode a = empty(graph, NULL, 0), b = empty(graph, NULL, 0), node;
    const CUgraphNode *as = before_the_end(4096, &a, sizeof a);
    CUgraphNode *bs = before_the_end(4096, &b, sizeof b);
    const CUgraphEdgeData *data = before_the_end(4096, &(CUgraphEdgeData){0}, sizeof *data);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    const size_t counts[] = {SIZE_MAX, SIZE_MAX / 8, UINT32_MAX, 1000};
    OK(cuStreamBeginCaptureToGraph(vt.stream, other, NULL, NULL, 0,
                                   CU_STREAM_CAPTURE_MODE_RELAXED));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const size_t n = counts[i];
        const CUresult wrong[] = {cuGraphAddNode(&node, graph, as, data, n, &params),
                                  cuGraphAddEmptyNode(&node, graph, as, n),
                                  cuGraphAddDependencies(graph, as, bs, data, n),
                                  cuGraphRemoveDependencies(graph, as, bs, data, n),
                                  cuStreamUpdateCaptureDependencies(
                                      vt.stream, bs, data, n, CU_STREAM_SET_CAPTURE_DEPENDENCIES),
                                  cuStreamBeginCaptureToGraph(vt.other, graph, as, data, n,
                                                              CU_STREAM_CAPTURE_MODE_RELAXED)};
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
            CHECK_MESSAGE(wrong[k] == CUDA_ERROR_INVALID_VALUE, "call %zu with %zu: error %d", k, n,
                          (int)wrong[k]);
    }
    CHECK_EQ(count_nodes(graph), 2);
    OK(cuGraphAddDependencies(graph, &a, &b, data, 1));
    OK(cuStreamEndCapture(vt.stream, &other));
}

GRAPH_TEST(graph, kinds_that_are_not_supported_are_refused)
{
    CUgraph graph = vt_graph();
    CUgraphNode node;
    CUgraphConditionalHandle handle;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.bytesize = 64};
    CHECK_EQ(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(cuGraphAddMemFreeNode(&node, graph, NULL, 0, vt.memory), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(cuGraphConditionalHandleCreate(&handle, graph, vt.context, 0, 0),
             CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(count_nodes(graph), 0);
    CUgraphExec exec;
    CHECK_EQ(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH),
             CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(cuGraphInstantiate(&exec, graph, 1u << 20), CUDA_ERROR_INVALID_VALUE);
}

GRAPH_TEST(graph, a_kernel_of_an_unloaded_module_cannot_be_cloned)
{
    CUgraph graph = vt_graph(), clone;
    CUgraphNode node;
    CUgraphExec exec;
    vt_store(graph, vt.memory, 1, NULL, 0);
    OK(cuModuleUnload(vt.module));
    CHECK_EQ(cuGraphClone(&clone, graph), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuGraphAddChildGraphNode(&node, graph, NULL, 0, graph), CUDA_ERROR_INVALID_HANDLE);
    OK(cuGraphDebugDotPrint(graph, "/dev/null", 0));
    OK(cuGraphDestroy(graph));
}

GRAPH_TEST(graph, a_child_graph_may_be_moved_into_its_node)
{
    CUgraph graph = vt_graph(), child = vt_graph(), back = NULL;
    CUgraphNode a = empty(graph, NULL, 0), node;
    vt_store(child, vt.memory, 1, NULL, 0);
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_GRAPH,
        .graph = {.graph = child, .ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE}};
    CHECK_EQ(cuGraphAddNode(&node, graph, (CUgraphNode[]){a, a}, NULL, 2, &params),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(count_nodes(child), 1); /* it is still the program's */
    params.graph.graph = graph;
    CHECK_EQ(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params), CUDA_ERROR_INVALID_VALUE);
    params.graph.graph = child;
    OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    OK(cuGraphChildGraphNodeGetGraph(node, &back));
    CHECK(back == child);
    CHECK_EQ(cuGraphDestroy(child), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params), CUDA_ERROR_INVALID_VALUE);
    params.graph.graph = graph; /* a graph inside of itself */
    CHECK_EQ(cuGraphAddNode(&node, child, NULL, NULL, 0, &params), CUDA_ERROR_INVALID_VALUE);
    vt_replay(vt_instantiate(graph));
    CHECK_EQ(vt_word(0), 1);
    OK(cuGraphDestroy(graph));
    CHECK_EQ(cuGraphGetNodes(child, NULL, &(size_t){0}), CUDA_ERROR_INVALID_VALUE);
}
