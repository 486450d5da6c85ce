/* Races between nodes: those without a path between them are reported in several seeds, ordered
 * ones never. A process with a report exits with status 86. */
#include "testing.h"

#include <stdio.h>

enum { SEEDS = 8, REPORTED = 86 };

static void expect(void (*body)(void), int status)
{
    for (int i = 1; i <= SEEDS; i++) {
        char seed[16];
        snprintf(seed, sizeof seed, "%d", i);
        const int got = vt_run_graphs(body, seed);
        CHECK_MESSAGE(got == status, "seed %d: exit status %d, expected %d", i, got, status);
    }
}

static void two_stores(bool ordered)
{
    CUgraph graph = vt_graph();
    CUgraphNode a = vt_store(graph, vt.memory, 1, NULL, 0);
    vt_store(graph, vt.memory, 2, &a, ordered);
    vt_replay(vt_instantiate(graph));
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
    CUgraph graph = vt_graph();
    CUdeviceptr at = vt.memory;
    uint32_t one = 1;
    void *params[] = {&at, &one}, *params_d[] = {&at_d, &one};
    CUgraphNode a = vt_kernel(graph, vt.add, 4, params, NULL, 0);
    CUgraphNode b = vt_kernel(graph, vt.add, 2, params, &a, 1);
    CUgraphNode d = vt_kernel(graph, vt.add, 2, params_d, &a, 1);
    vt_kernel(graph, vt.add, 4, params, (CUgraphNode[]){b, d}, 2);
    CUgraphExec exec = vt_instantiate(graph);
    for (int i = 0; i < 3; i++) OK(cuGraphLaunch(exec, vt.stream));
    OK(cuStreamSynchronize(vt.stream));
}

static void diamond_apart(void)
{
    diamond(vt.memory + 8);
    for (unsigned i = 0; i < 4; i++) CHECK_EQ(vt_word(i), 9);
}

static void diamond_overlapping(void)
{
    diamond(vt.memory + 4);
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
    CUdeviceptr at = vt.memory;
    uint32_t one = 1;
    void *params[] = {&at, &one};
    OK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture(vt.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (!late) OK(cuEventRecord(fork_event, vt.stream));
    OK(vt_launch(vt.add, 4, vt.stream, params));
    if (late) OK(cuEventRecord(fork_event, vt.stream));
    OK(cuStreamWaitEvent(vt.other, fork_event, 0));
    OK(vt_launch(vt.add, 4, vt.other, params));
    OK(cuEventRecord(join_event, vt.other));
    OK(cuStreamWaitEvent(vt.stream, join_event, 0));
    OK(vt_launch(vt.add, 4, vt.stream, params));
    OK(cuStreamEndCapture(vt.stream, &graph));
    vt_replay(vt_instantiate(graph));
}

static void fork_too_early(void)
{
    fork_and_join(false);
}

static void fork_right(void)
{
    fork_and_join(true);
    CHECK_EQ(vt_word(0), 3);
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
    CUgraph graph = vt_graph();
    vt_store(graph, vt.memory, 1, NULL, 0);
    CUgraphExec exec = vt_instantiate(graph);
    OK(cuGraphLaunch(exec, vt.stream));
    OK(cuGraphLaunch(exec, vt.other));
    OK(cuCtxSynchronize());
}

static void two_execs_in_two_streams(void)
{
    CUgraph graph = vt_graph();
    vt_store(graph, vt.memory, 1, NULL, 0);
    OK(cuGraphLaunch(vt_instantiate(graph), vt.stream));
    OK(cuGraphLaunch(vt_instantiate(graph), vt.other));
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
    CUdeviceptr at = vt.memory;
    uint32_t one = 1;
    void *params[] = {&at, &one};
    CUgraph graph = vt_graph();
    CUgraphNode child;
    CUgraph inner = vt_graph();
    vt_kernel(inner, vt.add, 4, params, NULL, 0);
    OK(cuGraphAddChildGraphNode(&child, graph, NULL, 0, inner));
    CUgraphExec exec = vt_instantiate(graph);
    OK(vt_launch(vt.add, 4, vt.stream, params));
    OK(cuGraphLaunch(exec, vt.stream));
    OK(vt_launch(vt.add, 4, vt.stream, params));
    OK(cuStreamSynchronize(vt.stream));
    CHECK_EQ(vt_word(0), 3);
}

TEST(graph_race, a_launch_is_ordered_with_its_stream)
{
    expect(between_kernels, 0);
}
