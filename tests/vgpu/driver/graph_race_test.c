/* Races between nodes: those without a path between them are reported in several seeds, ordered
 * ones never. A process with a report exits with status 86. */
#include "graph_testing.h"

#include <stdio.h>

enum { SEEDS = 8, REPORTED = 86 };

static void expect(void (*body)(void), int status)
{
    for (int i = 1; i <= SEEDS; i++) {
        char seed[16];
        snprintf(seed, sizeof seed, "%d", i);
        const int got = gt_run(body, seed);
        CHECK_MESSAGE(got == status, "seed %d: exit status %d, expected %d", i, got, status);
    }
}

static void two_stores(bool ordered)
{
    CUgraph graph = gt_graph();
    CUgraphNode a = gt_store(graph, gt.memory, 1, NULL, 0);
    gt_store(graph, gt.memory, 2, &a, ordered);
    gt_replay(gt_instantiate(graph));
}

static void two_unordered_stores(void)
{
    two_stores(false);
}

static void two_ordered_stores(void)
{
    two_stores(true);
}

TEST(graph_race, two_kernels_without_an_edge_between_them_are_reported)
{
    expect(two_unordered_stores, REPORTED);
}

TEST(graph_race, two_kernels_with_an_edge_between_them_are_not)
{
    expect(two_ordered_stores, 0);
}

/* a -> b -> c and a -> d -> c: only b and d run at the same time. */
static void diamond(CUdeviceptr at_d)
{
    CUgraph graph = gt_graph();
    CUdeviceptr at = gt.memory;
    uint32_t one = 1;
    void *params[] = {&at, &one}, *params_d[] = {&at_d, &one};
    CUgraphNode a = gt_kernel(graph, gt.add, 4, params, NULL, 0);
    CUgraphNode b = gt_kernel(graph, gt.add, 2, params, &a, 1);
    CUgraphNode d = gt_kernel(graph, gt.add, 2, params_d, &a, 1);
    gt_kernel(graph, gt.add, 4, params, (CUgraphNode[]){b, d}, 2);
    CUgraphExec exec = gt_instantiate(graph);
    for (int i = 0; i < 3; i++) OK(cuGraphLaunch(exec, gt.stream));
    OK(cuStreamSynchronize(gt.stream));
}

static void diamond_apart(void)
{
    diamond(gt.memory + 8);
    for (unsigned i = 0; i < 4; i++) CHECK_EQ(gt_word(i), 9);
}

static void diamond_overlapping(void)
{
    diamond(gt.memory + 4);
}

TEST(graph_race, branches_that_touch_other_words_are_silent_over_several_launches)
{
    expect(diamond_apart, 0);
}

TEST(graph_race, branches_that_touch_the_same_word_are_reported)
{
    expect(diamond_overlapping, REPORTED);
}

/* A captured fork: with or without the wait that makes the second kernel follow the first one. */
static void fork_and_join(bool late)
{
    CUevent fork_event, join_event;
    CUgraph graph;
    CUdeviceptr at = gt.memory;
    uint32_t one = 1;
    void *params[] = {&at, &one};
    OK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture(gt.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (!late) OK(cuEventRecord(fork_event, gt.stream));
    OK(gt_launch(gt.add, 4, gt.stream, params));
    if (late) OK(cuEventRecord(fork_event, gt.stream));
    OK(cuStreamWaitEvent(gt.other, fork_event, 0));
    OK(gt_launch(gt.add, 4, gt.other, params));
    OK(cuEventRecord(join_event, gt.other));
    OK(cuStreamWaitEvent(gt.stream, join_event, 0));
    OK(gt_launch(gt.add, 4, gt.stream, params));
    OK(cuStreamEndCapture(gt.stream, &graph));
    gt_replay(gt_instantiate(graph));
}

static void fork_too_early(void)
{
    fork_and_join(false);
}

static void fork_right(void)
{
    fork_and_join(true);
    CHECK_EQ(gt_word(0), 3);
}

TEST(graph_race, an_event_recorded_too_early_in_a_capture_is_reported)
{
    expect(fork_too_early, REPORTED);
}

TEST(graph_race, an_event_recorded_behind_the_kernel_is_silent)
{
    expect(fork_right, 0);
}

static void one_exec_in_two_streams(void)
{
    CUgraph graph = gt_graph();
    gt_store(graph, gt.memory, 1, NULL, 0);
    CUgraphExec exec = gt_instantiate(graph);
    OK(cuGraphLaunch(exec, gt.stream));
    OK(cuGraphLaunch(exec, gt.other));
    OK(cuCtxSynchronize());
}

static void two_execs_in_two_streams(void)
{
    CUgraph graph = gt_graph();
    gt_store(graph, gt.memory, 1, NULL, 0);
    OK(cuGraphLaunch(gt_instantiate(graph), gt.stream));
    OK(cuGraphLaunch(gt_instantiate(graph), gt.other));
    OK(cuCtxSynchronize());
}

TEST(graph_race, launches_of_one_executable_graph_are_ordered)
{
    expect(one_exec_in_two_streams, 0);
}

TEST(graph_race, launches_of_two_executable_graphs_in_two_streams_are_not)
{
    expect(two_execs_in_two_streams, REPORTED);
}

/* A launch of a graph is ordered with the work before and after it in its stream. */
static void between_kernels(void)
{
    CUdeviceptr at = gt.memory;
    uint32_t one = 1;
    void *params[] = {&at, &one};
    CUgraph graph = gt_graph();
    CUgraphNode child;
    CUgraph inner = gt_graph();
    gt_kernel(inner, gt.add, 4, params, NULL, 0);
    OK(cuGraphAddChildGraphNode(&child, graph, NULL, 0, inner));
    CUgraphExec exec = gt_instantiate(graph);
    OK(gt_launch(gt.add, 4, gt.stream, params));
    OK(cuGraphLaunch(exec, gt.stream));
    OK(gt_launch(gt.add, 4, gt.stream, params));
    OK(cuStreamSynchronize(gt.stream));
    CHECK_EQ(gt_word(0), 3);
}

TEST(graph_race, a_launch_is_ordered_with_its_stream)
{
    expect(between_kernels, 0);
}
