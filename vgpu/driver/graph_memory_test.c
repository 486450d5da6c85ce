/* Memory that graphs allocate (cuMemAllocAsync, captured): who may free it, and when a launch may
 * allocate it again. */
#include "testing.h"

#include <string.h>

/* A graph that allocates 64 bytes, stores the value there, and frees them where asked for. */
static CUgraph graph_that_allocates(CUdeviceptr *fresh, uint32_t value, bool frees)
{
    CUgraph graph = NULL;
    OK(cuStreamBeginCapture(vt.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(fresh, 64, vt.stream));
    OK(vt_launch(vt.put, 1, vt.stream, (void *[]){fresh, &value}));
    if (frees) OK(cuMemFreeAsync(*fresh, vt.stream));
    OK(cuStreamEndCapture(vt.stream, &graph));
    return graph;
}

GRAPH_TEST(graph_memory, that_was_freed_outside_is_allocated_again_by_the_next_launch)
{
    CUdeviceptr fresh;
    CUgraphExec exec = vt_instantiate(graph_that_allocates(&fresh, 12, false));
    for (int i = 0; i < 4; i++) {
        vt_replay(exec);
        CHECK_EQ(vt_read(fresh, 0), 12);
        OK(cuMemsetD8(fresh, 0, 64)); /* it is the program's until it is freed */
        OK(i % 2 ? cuMemFree(fresh) : cuMemFreeAsync(fresh, vt.stream));
    }
    OK(cuGraphExecDestroy(exec));
}

GRAPH_TEST(graph_memory, cannot_be_allocated_by_two_launches)
{
    CUdeviceptr fresh;
    CUgraphExec exec = vt_instantiate(graph_that_allocates(&fresh, 12, false));
    OK(cuGraphLaunch(exec, vt.stream));
    CHECK_EQ(cuGraphLaunch(exec, vt.stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamSynchronize(vt.stream));
    CHECK_EQ(cuGraphLaunch(exec, vt.stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeAsync(fresh, vt.stream));
    OK(cuGraphLaunch(exec, vt.stream));
}

GRAPH_TEST(graph_memory, is_freed_by_the_next_launch_when_asked_for)
{
    CUdeviceptr fresh;
    CUgraphExec exec;
    OK(cuGraphInstantiate(&exec, graph_that_allocates(&fresh, 12, false),
                          CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    for (int i = 0; i < 3; i++) OK(cuGraphLaunch(exec, vt.stream));
    OK(cuStreamSynchronize(vt.stream));
    CHECK_EQ(vt_read(fresh, 0), 12);
    OK(cuMemFree(fresh));
    vt_replay(exec);
    CHECK_EQ(vt_read(fresh, 0), 12);
}

GRAPH_TEST(graph_memory, that_is_not_allocated_cannot_be_freed)
{
    CUdeviceptr fresh;
    CUgraphExec exec = vt_instantiate(graph_that_allocates(&fresh, 12, false));
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(cuMemFree(fresh), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQ(cuMemFreeAsync(fresh, vt.stream), CUDA_ERROR_INVALID_VALUE);
        vt_replay(exec);
        OK(cuMemFreeAsync(fresh, vt.stream));
    }
}

GRAPH_TEST(graph_memory, that_its_own_graph_frees_cannot_be_freed_outside)
{
    CUdeviceptr fresh;
    CUgraphExec exec = vt_instantiate(graph_that_allocates(&fresh, 12, true));
    for (int i = 0; i < 2; i++) {
        vt_replay(exec);
        CHECK_EQ(cuMemFree(fresh), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQ(cuMemFreeAsync(fresh, vt.stream), CUDA_ERROR_INVALID_VALUE);
    }
}

GRAPH_TEST(graph_memory, may_be_freed_by_another_graph)
{
    CUdeviceptr fresh;
    CUgraph second;
    CUgraphExec exec = vt_instantiate(graph_that_allocates(&fresh, 12, false));
    OK(cuStreamBeginCapture(vt.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemFreeAsync(fresh, vt.stream));
    OK(cuStreamEndCapture(vt.stream, &second));
    CUgraphExec frees = vt_instantiate(second);
    for (int i = 0; i < 2; i++) {
        vt_replay(exec);
        CHECK_EQ(vt_read(fresh, 0), 12);
        vt_replay(frees);
        CHECK_EQ(cuMemFree(fresh), CUDA_ERROR_INVALID_VALUE);
    }
}

GRAPH_TEST(graph_memory, outlives_its_graph_until_it_is_freed)
{
    CUdeviceptr fresh;
    CUgraph graph = graph_that_allocates(&fresh, 12, false);
    CUgraphExec exec = vt_instantiate(graph);
    OK(cuGraphLaunch(exec, vt.stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuStreamSynchronize(vt.stream));
    CHECK_EQ(vt_read(fresh, 0), 12);
    OK(cuMemFreeAsync(fresh, vt.stream));
    CHECK_EQ(cuMemFreeAsync(fresh, vt.stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSynchronize());
}

static void used_after_it_was_freed(void)
{
    CUdeviceptr fresh;
    CUgraphExec exec = vt_instantiate(graph_that_allocates(&fresh, 12, false));
    vt_replay(exec);
    OK(cuMemFreeAsync(fresh, vt.stream));
    uint32_t value = 3;
    OK(vt_launch(vt.put, 1, vt.stream, (void *[]){&fresh, &value}));
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(graph_memory, that_was_freed_outside_is_not_used_before_it_is_allocated_again)
{
    CHECK_EQ(vt_run_graphs(used_after_it_was_freed, "1"), 86);
}
