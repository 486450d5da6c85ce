/* Executable graphs and what they name: destroyed while they run, unloaded, failed. */
#include "testing.h"

#include <stdatomic.h>

GRAPH_TEST(exec_life, graph_and_executable_graph_may_be_destroyed_while_it_runs)
{
    volatile uint32_t *words = vt_mapped(64);
    CUdeviceptr at = (uintptr_t)words;
    uint32_t one = 1;
    CUgraph graph = vt_graph();
    CUgraphNode wait = vt_kernel(graph, vt.meet, 1, (void *[]){&at, &one}, NULL, 0);
    vt_store(graph, vt.memory, 3, &wait, 1);
    CUgraphExec exec = vt_instantiate(graph);
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(exec, vt.stream));
    OK(cuGraphExecDestroy(exec));
    CHECK_EQ(cuGraphLaunch(exec, vt.stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
    words[0] = 1;
    OK(cuStreamSynchronize(vt.stream));
    CHECK_EQ(vt_word(0), 3);
}

static void CUDA_CB count(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

/* The destructor runs on another thread. */
static void wait_for(atomic_int *counter, int value)
{
    while (atomic_load(counter) < value) OK(cuCtxSynchronize());
}

GRAPH_TEST(exec_life, user_objects_live_as_long_as_what_holds_them)
{
    volatile uint32_t *words = vt_mapped(64);
    CUdeviceptr at = (uintptr_t)words;
    uint32_t one = 1;
    atomic_int gone = 0;
    CUuserObject object;
    CUgraph graph = vt_graph(), clone;
    vt_kernel(graph, vt.meet, 1, (void *[]){&at, &one}, NULL, 0);
    OK(cuUserObjectCreate(&object, &gone, count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    OK(cuGraphClone(&clone, graph));
    CUgraphExec exec = vt_instantiate(graph);
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(exec, vt.stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(clone));
    CHECK_EQ(atomic_load(&gone), 0); /* the launch runs */
    words[0] = 1;
    wait_for(&gone, 1);
    OK(cuUserObjectCreate(&object, &gone, count, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    graph = vt_graph();
    OK(cuGraphRetainUserObject(graph, object, 1, 0));
    OK(cuUserObjectRelease(object, 2));
    CHECK_EQ(cuGraphReleaseUserObject(graph, object, 2), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphReleaseUserObject(graph, object, 1));
    wait_for(&gone, 2);
    CHECK_EQ(cuUserObjectRetain(object, 1), CUDA_ERROR_INVALID_VALUE);
}

static void graph_that_fails_while_it_is_destroyed(void)
{
    volatile uint32_t *words = vt_mapped(64);
    CUdeviceptr at = (uintptr_t)words;
    uint32_t one = 1;
    static atomic_int gone;
    CUuserObject object;
    CUgraph graph = vt_graph();
    CUgraphNode wait = vt_kernel(graph, vt.meet, 1, (void *[]){&at, &one}, NULL, 0);
    vt_kernel(graph, vt.trap, 1, NULL, &wait, 1);
    OK(cuUserObjectCreate(&object, &gone, count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    CUgraphExec exec = vt_instantiate(graph);
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(exec, vt.stream));
    OK(cuGraphExecDestroy(exec));
    CHECK_EQ(atomic_load(&gone), 0); /* the launch runs */
    words[0] = 1;
    CHECK_EQ(cuStreamSynchronize(vt.stream), CUDA_ERROR_LAUNCH_FAILED);
    for (int i = 0; i < 1000000 && atomic_load(&gone) == 0; i++)
        CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(atomic_load(&gone), 1);
}

TEST(exec_life, a_user_object_is_destroyed_after_its_context_failed)
{
    CHECK_EQ(vt_run_graphs(graph_that_fails_while_it_is_destroyed, "1"), 86);
}

GRAPH_TEST(exec_life, a_kernel_of_an_unloaded_module_is_an_error_at_the_launch)
{
    CUgraph graph = vt_graph();
    vt_store(graph, vt.memory, 1, NULL, 0);
    CUgraphExec exec = vt_instantiate(graph);
    OK(cuModuleUnload(vt.module));
    CHECK_EQ(cuGraphLaunch(exec, vt.stream), CUDA_ERROR_INVALID_HANDLE);
    OK(cuStreamSynchronize(vt.stream));
}

GRAPH_TEST(exec_life, a_node_of_a_destroyed_context_is_an_error_at_the_launch)
{
    CUcontext second;
    CUgraph graph = vt_graph();
    CUgraphNode node;
    const CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = vt.memory, .value = 1, .elementSize = 4, .width = 1, .height = 1};
    OK(cuCtxCreate(&second, NULL, 0, 0));
    OK(cuCtxSetCurrent(vt.context));
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, second));
    CUgraphExec exec = vt_instantiate(graph);
    vt_replay(exec);
    CHECK_EQ(vt_word(0), 1);
    OK(cuCtxDestroy(second));
    CHECK_EQ(cuGraphLaunch(exec, vt.stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_EQ(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, second),
             CUDA_ERROR_INVALID_CONTEXT);
    OK(cuStreamSynchronize(vt.stream));
}

GRAPH_TEST(exec_life, a_node_of_a_reset_primary_context_is_an_error_at_the_launch)
{
    CUcontext second;
    CUstream stream;
    CUgraph graph = vt_graph();
    CUgraphNode node;
    const CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = vt.memory, .value = 1, .elementSize = 4, .width = 1, .height = 1};
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, vt.context));
    CUgraphExec exec = vt_instantiate(graph);
    OK(cuCtxCreate(&second, NULL, 0, 0));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuDevicePrimaryCtxReset(0));
    CHECK_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuStreamSynchronize(stream));
}

static void graph_that_fails(void)
{
    atomic_int called = 0;
    CUgraph graph = vt_graph();
    CUgraphNode host;
    CUgraphNode bad = vt_store(graph, 64, 1, NULL, 0); /* nobody's address */
    const CUDA_HOST_NODE_PARAMS h = {count, &called};
    OK(cuGraphAddHostNode(&host, graph, &bad, 1, &h));
    vt_store(graph, vt.memory, 1, &host, 1);
    CUgraphExec exec = vt_instantiate(graph);
    OK(cuGraphLaunch(exec, vt.stream));
    CHECK_EQ(cuStreamSynchronize(vt.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_EQ(cuGraphLaunch(exec, vt.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_EQ(atomic_load(&called), 0);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

TEST(exec_life, a_kernel_that_fails_in_a_graph_ends_the_launch_and_the_context)
{
    CHECK_EQ(vt_run_graphs(graph_that_fails, "1"), 86);
}

GRAPH_TEST(exec_life, memory_of_allocation_nodes_is_there_in_each_launch)
{
    CUgraph graph;
    CUdeviceptr fresh = 0, to = vt.memory;
    uint32_t value = 12;
    OK(cuStreamBeginCapture(vt.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&fresh, 64, vt.stream));
    OK(vt_launch(vt.put, 1, vt.stream, (void *[]){&fresh, &value}));
    OK(vt_launch(vt.move, 1, vt.stream, (void *[]){&to, &fresh}));
    OK(cuMemFreeAsync(fresh, vt.stream));
    CHECK_EQ(cuMemFreeAsync(fresh, vt.stream), CUDA_ERROR_INVALID_VALUE); /* twice */
    OK(cuStreamEndCapture(vt.stream, &graph));
    CUgraphExec exec = vt_instantiate(graph);
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < 3; i++) {
        vt_set_word(0, 0);
        vt_replay(exec);
        CHECK_EQ(vt_word(0), 12);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuCtxSynchronize());
}
