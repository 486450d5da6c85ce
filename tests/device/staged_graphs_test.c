/* Staged calls that are captured into CUDA graphs and replayed: right, in order with the
 * communicator's other calls, and what happens when they cannot succeed. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graphs.h"
#include "on_streams.h"

enum { COUNT = 3000 };

static CUgraphExec end_capture(const struct gpu_rank *rank, const struct streams *streams)
{
    gpu_use(rank->gpu);
    return capture_end(streams->cuda);
}

static void begin_capture(const struct gpu_rank *rank, const struct streams *streams)
{
    gpu_use(rank->gpu);
    capture_begin(streams->cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static void sum(const struct gpu_rank *rank, int *memory, int n, tuttiStream_t stream)
{
    check_success(rank, tuttiAllReduce(memory, memory, (size_t)n, tuttiInt32, tuttiSum, rank->comm,
                                       stream),
                  "all-reduce");
}

/* A graph with ncalls sums in place. */
static CUgraphExec capture_sums(const struct gpu_rank *rank, const struct streams *streams,
                                int *memory, int n, int ncalls)
{
    begin_capture(rank, streams);
    for (int i = 0; i < ncalls; i++) sum(rank, memory, n, streams->stream);
    return end_capture(rank, streams);
}

/* ---- Results -------------------------------------------------------------------------------- */

/* Ranks on GPUs replay, the others make the same calls; among other calls on streams and without,
 * and without a wait in between. */
static void mixed(struct gpu_rank *rank)
{
    enum { ROUNDS = 3 };
    const bool on_gpu = rank->gpu >= 0;
    struct streams streams[2] = {make_streams(rank), make_streams(rank)};
    int *memory = make_ints(rank, 1, COUNT), *here = make_ints(&(struct gpu_rank){.gpu = -1}, 1, 4);
    CUgraphExec graph = on_gpu ? capture_sums(rank, &streams[0], memory, COUNT, 2) : NULL;
    int expected = 1, on_host = 1;
    for (int i = 0; i < ROUNDS; i++) {
        if (on_gpu)
            CALL(cuGraphLaunch, graph, streams[i % 2].cuda);
        else
            for (int call = 0; call < 2; call++) sum(rank, memory, COUNT, streams[0].stream);
        sum(rank, memory, COUNT, on_gpu ? streams[(i + 1) % 2].stream : streams[0].stream);
        if (on_gpu)
            CALL(cuGraphLaunch, graph, streams[0].cuda);
        else
            for (int call = 0; call < 2; call++) sum(rank, memory, COUNT, streams[0].stream);
        if (i == 1) sum(rank, here, 4, NULL);
        if (i == 2 && on_gpu) sum(rank, memory, COUNT, NULL);
        if (i == 2 && !on_gpu) sum(rank, memory, COUNT, streams[0].stream);
        for (int call = 0; call < (i == 2 ? 6 : 5); call++) expected *= rank->nranks;
        if (i == 1) on_host *= rank->nranks;
    }
    for (int i = 0; i < 2; i++)
        check_success(rank, tuttiStreamSynchronize(streams[i].stream), "synchronize");
    check_ints(rank, memory, expected, COUNT);
    check_ints(&(struct gpu_rank){.gpu = -1}, here, on_host, 4);
    if (graph) CALL(cuGraphExecDestroy, graph);
    for (int i = 0; i < 2; i++) destroy_streams(rank, &streams[i]);
    gpu_free(memory);
    gpu_free(here);
}

TEST(staged_graphs, replays_and_other_calls_run_in_the_order_of_their_launches)
{
    on_devices(2, (const int[]){0, -1}, NULL, mixed, NULL);
    on_devices(3, (const int[]){0, -1, 1}, NULL, mixed, NULL);
}
