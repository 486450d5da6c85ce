/* Staged calls that are captured into CUDA graphs and replayed: right, in order with the
 * communicator's other calls, and what happens when they cannot succeed. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "communicator/communicator.h"
#include "carrier/staged/graphs.h"
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
    check_success(
        rank, tuttiAllReduce(memory, memory, (size_t)n, tuttiInt32, tuttiSum, rank->comm, stream),
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

/* The stream is busy when the graph is launched: later calls wait for their turn, their caller does
 * not. The other rank has no graph. */
static void behind_other_work(struct gpu_rank *rank)
{
    const bool on_gpu = rank->gpu >= 0;
    struct streams streams[2] = {make_streams(rank), make_streams(rank)};
    int *memory = make_ints(rank, 1, COUNT), *sent = make_ints(rank, 7, COUNT);
    CUgraphExec graph = on_gpu ? capture_sums(rank, &streams[0], memory, COUNT, 1) : NULL;
    if (on_gpu) {
        gpu_block(rank->gpu, streams[0].cuda);
        gpu_fill(rank->gpu, streams[0].cuda, memory, 5, COUNT);
        CALL(cuGraphLaunch, graph, streams[0].cuda);
    } else {
        sum(rank, memory, COUNT, streams[0].stream);
    }
    for (int i = 0; i < 2; i++) sum(rank, memory, COUNT, streams[i % (1 + on_gpu)].stream);
    check_success(rank,
                  on_gpu ? tuttiSend(sent, COUNT, tuttiInt32, 1, rank->comm, streams[1].stream)
                         : tuttiRecv(sent, COUNT, tuttiInt32, 0, rank->comm, streams[0].stream),
                  "message");
    if (on_gpu) {
        CHECK_EQ(tuttiStreamQuery(streams[1].stream), tuttiInProgress);
        gpu_unblock();
    }
    for (int i = 0; i < 2; i++)
        check_success(rank, tuttiStreamSynchronize(streams[i].stream), "synchronize");
    check_ints(rank, memory, 24, COUNT); /* 5 + 1, then twice doubled */
    if (!on_gpu) check_ints(rank, sent, 7, COUNT);
    if (graph) CALL(cuGraphExecDestroy, graph);
    for (int i = 0; i < 2; i++) destroy_streams(rank, &streams[i]);
    gpu_free(memory);
    gpu_free(sent);
}

TEST(staged_graphs, calls_behind_a_replay_get_their_turns_after_it_and_their_caller_does_not_wait)
{
    on_devices(2, (const int[]){0, -1}, NULL, behind_other_work, NULL);
}

/* Graphs come and go, with many calls of a count for each rank, which have tables of their own. */
static void many_graphs(struct gpu_rank *rank)
{
    enum { GRAPHS = 30, CALLS = 300, N = 10, SLACK = 300000 };
    const size_t counts[] = {N, N + 1};
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, 2 * N + 1);
    tuttiCounters_t counters;
    size_t held[2] = {0};
    for (int i = 0; i < GRAPHS; i++) {
        begin_capture(rank, &streams);
        if (i == 0) CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        for (int call = 0; call < (i == 0 ? CALLS : CALLS / 10); call++)
            check_success(rank,
                          tuttiAllGatherV(memory + rank->rank * N, memory, counts, NULL, tuttiInt32,
                                          rank->comm, streams.stream),
                          "all-gather-v");
        if (i == 0) check_success(rank, tuttiGroupEnd(), "group");
        CUgraphExec graph = end_capture(rank, &streams);
        replay(graph, streams.cuda);
        CALL(cuGraphExecDestroy, graph);
        CHECK_EQ(tuttiCommCounters(rank->comm, &counters), tuttiSuccess);
        held[i > 1] = counters.memoryBytes;
    }
    /* The driver may tell late that a graph is gone; a graph has 32 KB. */
    CHECK_MESSAGE(held[1] <= held[0] + SLACK, "rank %d: %zu bytes, then %zu", rank->rank, held[0],
                  held[1]);
    check_ints(rank, memory, 1, 2 * N + 1);
    destroy_streams(rank, &streams);
    gpu_free(memory);
}

TEST(staged_graphs, graphs_come_and_go_and_take_no_more_memory)
{
    on_devices(2, (const int[]){0, 1}, NULL, many_graphs, NULL);
}

/* Three ranks of one thread on one stream: none may wait in the graph for one that comes behind. */
TEST(staged_graphs, one_thread_captures_three_ranks_on_one_stream)
{
    enum { NRANKS = 3 };
    const int devices[NRANKS] = {0, 0, 0};
    tuttiComm_t comms[NRANKS] = {NULL};
    struct gpu_rank ranks[NRANKS];
    int *memory[NRANKS];
    REQUIRE(tuttiCommInitAll(comms, NRANKS, devices) == tuttiSuccess);
    for (int r = 0; r < NRANKS; r++) {
        ranks[r] = (struct gpu_rank){.rank = r, .nranks = NRANKS, .comm = comms[r]};
        memory[r] = make_ints(&ranks[r], 1 + r, COUNT);
    }
    struct streams streams = make_streams(&ranks[0]);
    begin_capture(&ranks[0], &streams);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int twice = 0; twice < 2; twice++)
        for (int r = 0; r < NRANKS; r++) sum(&ranks[r], memory[r], COUNT, streams.stream);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CUgraphExec graph = end_capture(&ranks[0], &streams);
    for (int i = 0; i < 2; i++) CALL(cuGraphLaunch, graph, streams.cuda);
    CALL(cuStreamSynchronize, streams.cuda);
    for (int r = 0; r < NRANKS; r++) check_ints(&ranks[r], memory[r], 162, COUNT);
    for (int r = 0; r < NRANKS; r++) CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
    replay(graph, streams.cuda); /* of communicators that are gone: it does nothing */
    for (int r = 0; r < NRANKS; r++) {
        check_ints(&ranks[r], memory[r], 162, COUNT);
        gpu_free(memory[r]);
    }
    CALL(cuGraphExecDestroy, graph);
    destroy_streams(&ranks[0], &streams);
    gpu_free_all();
}

/* As tt_stage_graphs_end does first. */
static void close_graphs(tuttiComm_t comm)
{
    struct tt_stage_graphs *graphs = comm->core.staged->graphs;
    pthread_mutex_lock(&graphs->lock);
    graphs->closing = true;
    pthread_mutex_unlock(&graphs->lock);
    while (!atomic_load(&graphs->closed)) tt_test_pause();
}

TEST(staged_graphs, a_replay_that_begins_while_its_communicator_goes_does_nothing)
{
    struct gpu_rank rank = {.nranks = 1};
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiUniqueId id;
    config.device = 0;
    int *in = make_ints(&rank, 1, COUNT), *out = make_ints(&rank, 0, COUNT);
    struct streams streams = make_streams(&rank);
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    REQUIRE(tuttiCommInitRankConfig(&rank.comm, 1, id, 0, &config) == tuttiSuccess);
    begin_capture(&rank, &streams);
    check_success(&rank,
                  tuttiAllReduce(in, out, COUNT, tuttiInt32, tuttiSum, rank.comm, streams.stream),
                  "all-reduce");
    CUgraphExec graph = end_capture(&rank, &streams);
    replay(graph, streams.cuda);
    check_ints(&rank, out, 1, COUNT);
    gpu_fill(0, streams.cuda, out, 7, COUNT);
    CALL(cuStreamSynchronize, streams.cuda);
    close_graphs(rank.comm);
    for (int i = 0; i < 10; i++) replay(graph, streams.cuda);
    CHECK_EQ(tuttiCommDestroy(rank.comm), tuttiSuccess);
    check_ints(&rank, out, 7, COUNT);
    CALL(cuGraphExecDestroy, graph);
    destroy_streams(&rank, &streams);
    gpu_free(in);
    gpu_free(out);
    gpu_free_all();
}

/* ---- Errors --------------------------------------------------------------------------------- */

static void check_failed(const struct gpu_rank *rank, tuttiResult_t expected, const char *text)
{
    tuttiResult_t result = tuttiSuccess;
    CHECK_EQ(tuttiCommGetAsyncError(rank->comm, &result), tuttiSuccess);
    check_error(rank, result, expected, text);
}

/* A group is captured as a whole or not at all: the graph of one that failed does nothing. */
static void bad_group(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, COUNT);
    begin_capture(rank, &streams);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    sum(rank, memory, COUNT, streams.stream);
    check_error(rank,
                tuttiAllReduce(memory, memory, 5, (tuttiDataType_t)99, tuttiSum, rank->comm,
                               streams.stream),
                tuttiInvalidArgument, "type 99");
    CHECK_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
    CUgraphExec graph = end_capture(rank, &streams);
    replay(graph, streams.cuda);
    check_ints(rank, memory, 1, COUNT);
    CALL(cuGraphExecDestroy, graph);
    sum(rank, memory, COUNT, streams.stream);
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    check_ints(rank, memory, rank->nranks, COUNT);
    destroy_streams(rank, &streams);
    gpu_free(memory);
}

TEST(staged_graph_errors, a_group_that_fails_leaves_nothing_in_the_graph)
{
    on_devices(2, (const int[]){0, 1}, NULL, bad_group, NULL);
}

/* Once all have replayed; then rank 1, which has a GPU or none, does not come. */
static void one_stays_away(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, COUNT);
    CUgraphExec graph = rank->gpu >= 0 ? capture_sums(rank, &streams, memory, COUNT, 1) : NULL;
    if (graph)
        replay(graph, streams.cuda);
    else
        sum(rank, memory, COUNT, NULL);
    check_ints(rank, memory, rank->nranks, COUNT);
    pthread_barrier_wait(rank->arg);
    if (rank->rank != 1) {
        replay(graph, streams.cuda);
        check_failed(rank, tuttiTimeout, "replayed from a CUDA graph");
        check_failed(rank, tuttiTimeout, "rank 1 (");
        replay(graph, streams.cuda); /* ends at once */
    }
    pthread_barrier_wait(rank->arg);
    if (graph) CALL(cuGraphExecDestroy, graph);
    destroy_streams(rank, &streams);
    gpu_free(memory);
}

TEST(staged_graph_errors, a_rank_that_does_not_come_to_a_replay_is_named_at_the_deadline)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 700;
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, 3);
    on_devices(3, (const int[]){0, -1, 1}, &config, one_stays_away, &all);
    on_devices(3, (const int[]){0, 0, 1}, &config, one_stays_away, &all);
    pthread_barrier_destroy(&all);
}

static void different_counts(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, COUNT);
    CUgraphExec graph = capture_sums(rank, &streams, memory, COUNT - rank->rank, 1);
    pthread_barrier_wait(rank->arg); /* a communicator that has failed captures nothing */
    replay(graph, streams.cuda);
    check_failed(rank, tuttiInvalidUsage, "ranks disagree");
    CALL(cuGraphExecDestroy, graph);
    destroy_streams(rank, &streams);
    gpu_free(memory);
}

TEST(staged_graph_errors, ranks_that_replay_different_calls_get_an_error_that_shows_both)
{
    on_gpus_together(2, 1, NULL, different_counts);
}

/* ---- Streams that do not go on -------------------------------------------------------------- */

/* A graph that was launched, and whose stream does nothing until gpu_unblock. */
static CUgraphExec launch_behind(struct gpu_rank *rank, const struct streams *streams, int *memory)
{
    CUgraphExec graph = capture_sums(rank, streams, memory, COUNT, 1);
    gpu_block(rank->gpu, streams->cuda);
    CALL(cuGraphLaunch, graph, streams->cuda);
    return graph;
}

static void go_on(struct gpu_rank *rank, struct streams *streams, CUgraphExec graph, int *memory)
{
    gpu_unblock();
    CALL(cuStreamSynchronize, streams->cuda);
    CALL(cuGraphExecDestroy, graph);
    destroy_streams(rank, streams);
    gpu_free(memory);
}

/* The caller would let the stream go on after the call. */
static void behind_its_own_graph(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, COUNT), here[4] = {0};
    CUgraphExec graph = launch_behind(rank, &streams, memory);
    check_error(rank, tuttiAllReduce(here, here, 4, tuttiInt32, tuttiSum, rank->comm, NULL),
                tuttiTimeout, "a CUDA stream has not come to them");
    go_on(rank, &streams, graph, memory);
}

TEST(staged_graph_errors, a_call_of_the_host_behind_a_stream_that_does_not_go_on_ends_in_time)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 300;
    on_devices(1, (const int[]){0}, &config, behind_its_own_graph, NULL);
}

/* The slow calls together take longer than a call may take. */
static void behind_slow_calls(struct gpu_rank *rank)
{
    enum { TIMES = 5, MS = 300 };
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, COUNT), here[4] = {1};
    CUgraphExec graph = rank->gpu >= 0 ? capture_sums(rank, &streams, memory, COUNT, 1) : NULL;
    for (int i = 0; i < TIMES; i++) {
        if (!graph) usleep(MS * 1000);
        if (graph && i % 2)
            CALL(cuGraphLaunch, graph, streams.cuda);
        else
            sum(rank, memory, COUNT, streams.stream);
        if (!graph) check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    }
    sum(&(struct gpu_rank){.rank = rank->rank, .comm = rank->comm}, here, 1, NULL);
    CHECK_EQ(here[0], 2);
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    check_ints(rank, memory, 1 << TIMES, COUNT);
    if (graph) CALL(cuGraphExecDestroy, graph);
    destroy_streams(rank, &streams);
    gpu_free(memory);
}

TEST(staged_graphs, a_call_of_the_host_waits_while_calls_before_it_run_one_after_the_other)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 1200;
    on_devices(2, (const int[]){0, -1}, &config, behind_slow_calls, NULL);
}

/* Rank 1 leaves when rank 0 waits, or soon will: with the call of the host, or with one on a stream
 * that follows the graph. */
static void one_leaves(struct gpu_rank *rank, bool on_stream)
{
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, COUNT), here[4] = {0};
    if (rank->rank == 1) {
        pthread_barrier_wait(rank->arg);
        CHECK_EQ(tuttiCommDestroy(rank->comm), tuttiSuccess);
        rank->comm = NULL;
        destroy_streams(rank, &streams);
        gpu_free(memory);
        return;
    }
    CUgraphExec graph = launch_behind(rank, &streams, memory);
    tuttiResult_t result = tuttiSuccess;
    if (on_stream) sum(rank, memory, COUNT, streams.stream);
    pthread_barrier_wait(rank->arg);
    if (!on_stream) result = tuttiAllReduce(here, here, 4, tuttiInt32, tuttiSum, rank->comm, NULL);
    const int64_t deadline_ns = tt_deadline_ns(20000);
    while (!result && !tt_expired(deadline_ns))
        CHECK_EQ(tuttiCommGetAsyncError(rank->comm, &result), tuttiSuccess);
    check_error(rank, result, tuttiRemoteError, "rank 1 ");
    if (on_stream) CHECK_EQ(tuttiStreamSynchronize(streams.stream), tuttiRemoteError);
    go_on(rank, &streams, graph, memory);
}

static void one_leaves_a_call(struct gpu_rank *rank)
{
    one_leaves(rank, false);
}

static void one_leaves_a_stream(struct gpu_rank *rank)
{
    one_leaves(rank, true);
}

TEST(staged_graph_errors, a_rank_that_leaves_ends_calls_whose_streams_have_not_come_to_them)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 20000;
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, 2);
    on_devices(2, (const int[]){0, -1}, &config, one_leaves_a_call, &all);
    on_devices(2, (const int[]){0, -1}, &config, one_leaves_a_stream, &all);
    pthread_barrier_destroy(&all);
}
