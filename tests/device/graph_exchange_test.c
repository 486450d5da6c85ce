/* Sends, receives and all-to-all with counts, captured into CUDA graphs: programs of calls drawn at
 * random against the same calls without a graph, and what the errors say. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graphs.h"

enum { COUNT = 300 };

/* ---- Programs at random --------------------------------------------------------------------- */

enum { NCALLS = 7, NREPLAYS = 3 };

/* Groups of calls, each on one of two streams of one capture. */
static CUgraphExec capture_program(const struct placed *placed, const struct both streams[2],
                                   uint64_t *state)
{
    CUevent fork = NULL, join = NULL;
    bool grouped = false;
    CALL(cuEventCreate, &fork, CU_EVENT_DISABLE_TIMING);
    CALL(cuEventCreate, &join, CU_EVENT_DISABLE_TIMING);
    capture_begin(streams[0].cuda, CU_STREAM_CAPTURE_MODE_RELAXED);
    CALL(cuEventRecord, fork, streams[0].cuda);
    CALL(cuStreamWaitEvent, streams[1].cuda, fork, 0);
    for (int i = 0; i < NCALLS; i++) {
        if (!grouped && next_number(state) % 3) {
            CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
            grouped = true;
        }
        const tuttiResult_t result = issue_call(&placed[i], streams[next_number(state) % 2].tutti);
        CHECK_MESSAGE(!result, "%s: %s", call_text(&placed[i].call),
                      tuttiGetLastError(placed->rank->comm));
        if (grouped && (i == NCALLS - 1 || next_number(state) % 2)) {
            CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
            grouped = false;
        }
    }
    CALL(cuEventRecord, join, streams[1].cuda);
    CALL(cuStreamWaitEvent, streams[0].cuda, join, 0);
    CALL(cuEventDestroy_v2, fork);
    CALL(cuEventDestroy_v2, join);
    return capture_end(streams[0].cuda);
}

/* Other inputs, and outputs as they were at first. Of a call with a count for each rank the salt
 * draws the counts too. */
static void renew_program(struct placed *placed, uint64_t salt)
{
    for (int i = 0; i < NCALLS; i++) {
        struct placed *p = &placed[i];
        char *wiped = malloc(p->output_bytes + 1);
        memset(wiped, 0xa5, p->output_bytes + 1);
        gpu_write(p->rank->gpu, p->output, wiped, p->output_bytes);
        renew(p, p->call.kind > EXCHANGE ? p->call.salt : salt + (uint64_t)i);
        free(wiped);
    }
}

static void check_program(const struct placed *placed, uint64_t seed, int turn)
{
    for (int i = 0; i < NCALLS; i++)
        CHECK_MESSAGE(is_right(&placed[i]), "rank %d: seed %llu, replay %d: wrong: call %d: %s",
                      placed[i].rank->rank, (unsigned long long)seed, turn, i,
                      call_text(&placed[i].call));
}

/* Every second call is an exchange. Before each replay the calls run without a graph, on the stream
 * that the replay is on, too. */
static void run_program(struct gpu_rank *rank)
{
    const uint64_t seed = *(const uint64_t *)rank->arg;
    uint64_t state = seed;
    struct both streams[2];
    struct placed placed[NCALLS];
    streams_create(rank, streams, 2);
    for (int i = 0; i < NCALLS; i++) {
        struct call call = draw_call(&state, rank->nranks);
        if (i % 2 && call.kind != ALL_TO_ALL_V) call.kind = EXCHANGE;
        place_call(&placed[i], rank, &call, 0);
    }
    CUgraphExec graph = capture_program(placed, streams, &state);
    for (int turn = 0; turn < NREPLAYS; turn++) {
        const uint64_t salt = next_number(&state);
        renew_program(placed, salt);
        if (turn) {
            for (int i = 0; i < NCALLS; i++)
                CHECK_EQ(issue_call(&placed[i], streams[turn % 2].tutti), tuttiSuccess);
            CALL(cuStreamSynchronize, streams[turn % 2].cuda);
            check_program(placed, seed, -turn);
            renew_program(placed, salt + NCALLS);
        }
        replay(graph, streams[turn % 2].cuda);
        check_program(placed, seed, turn);
    }
    CHECK_EQ(tuttiBarrier(rank->comm, NULL), tuttiSuccess);
    CALL(cuGraphExecDestroy, graph);
    for (int i = 0; i < NCALLS; i++) (void)check_call(&placed[i]);
    streams_destroy(rank, streams, 2);
}

/* TT_GRAPH_SEEDS=N runs N of them, TT_GRAPH_FIRST the first. */
TEST(device_graph_exchange, random_programs_are_right)
{
    const char *number = getenv("TT_GRAPH_SEEDS"), *first = getenv("TT_GRAPH_FIRST");
    const uint64_t begin = first ? strtoull(first, NULL, 0) : 3;
    for (uint64_t seed = begin; seed < begin + (number ? strtoull(number, NULL, 0) : 2); seed++) {
        uint64_t arg = seed;
        on_gpus(1 + (int)((seed + 2) % 4), 1 + (int)(seed % 2), NULL, run_program, &arg);
    }
}

/* ---- Pipelines ------------------------------------------------------------------------------ */

/* Fills the memory of a rank with a number. */
static void set(const struct gpu_rank *rank, int *memory, int value, size_t count)
{
    int *data = malloc(count * sizeof *data);
    for (size_t i = 0; i < count; i++) data[i] = value;
    gpu_write(rank->gpu, memory, data, count * sizeof *data);
    free(data);
}

static bool holds(const struct gpu_rank *rank, const int *memory, int value, size_t count)
{
    int *data = malloc(count * sizeof *data);
    size_t i = 0;
    gpu_read(rank->gpu, data, memory, count * sizeof *data);
    while (i < count && data[i] == value) i++;
    free(data);
    return i == count;
}

/* From the first rank to the last and back, one of two pipelines with messages of several parts;
 * sends and receives outside of groups. Ranks destroy their communicators when they have done their
 * part. */
static void pipeline(struct gpu_rank *rank)
{
    const size_t count = *(const size_t *)rank->arg;
    struct both stream;
    const int last = rank->nranks - 1, r = rank->rank;
    streams_create(rank, &stream, 1);
    int *memory = (int *)gpu_memory(rank->gpu, count * sizeof *memory);
    capture_begin(stream.cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (r > 0) CHECK_EQ(tuttiRecv(memory, count, tuttiInt32, r - 1, rank->comm, stream.tutti), 0);
    if (r < last) {
        CHECK_EQ(tuttiSend(memory, count, tuttiInt32, r + 1, rank->comm, stream.tutti), 0);
        CHECK_EQ(tuttiRecv(memory, count, tuttiInt32, r + 1, rank->comm, stream.tutti), 0);
    }
    if (r > 0) CHECK_EQ(tuttiSend(memory, count, tuttiInt32, r - 1, rank->comm, stream.tutti), 0);
    CUgraphExec graph = capture_end(stream.cuda);
    for (int turn = 1; turn <= 2; turn++) {
        set(rank, memory, r ? 0 : turn, count);
        replay(graph, stream.cuda);
        CHECK(holds(rank, memory, turn, count));
    }
    CHECK_EQ(tuttiCommDestroy(rank->comm), tuttiSuccess);
    rank->comm = NULL;
    CALL(cuGraphExecDestroy, graph);
    streams_destroy(rank, &stream, 1);
    gpu_free(memory);
}

TEST(device_graph_exchange, a_pipeline_of_sends_and_receives_is_right_until_each_rank_leaves)
{
    size_t count = 66000;
    on_gpus(2, 2, NULL, pipeline, &count);
    count = 500;
    on_gpus(4, 1, NULL, pipeline, &count);
}

/* What both do with one another: rank 0 replays its sends, rank 1 receives without a graph. */
static void half_captured(struct gpu_rank *rank)
{
    struct both streams[2];
    CUgraphExec graph = NULL;
    streams_create(rank, streams, 2);
    int *memory = (int *)gpu_memory(rank->gpu, 3 * COUNT * sizeof *memory);
    for (int i = 0; i < 3; i++) set(rank, memory + i * COUNT, 10 * rank->rank + i, COUNT);
    if (!rank->rank) capture_begin(streams[0].cuda, CU_STREAM_CAPTURE_MODE_RELAXED);
    for (int turn = 0; turn < (rank->rank ? 2 : 1); turn++) {
        /* In one group: of rank 0 the send is captured, and the receive is not. */
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        CHECK_EQ(tuttiSend(memory, COUNT, tuttiInt32, 1 - rank->rank, rank->comm,
                           streams[rank->rank].tutti),
                 tuttiSuccess);
        CHECK_EQ(tuttiRecv(memory + (turn + 1) * COUNT, COUNT, tuttiInt32, 1 - rank->rank,
                           rank->comm, streams[1].tutti),
                 tuttiSuccess);
        CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    }
    if (!rank->rank) {
        graph = capture_end(streams[0].cuda);
        CALL(cuGraphLaunch, graph, streams[0].cuda);
        CHECK_EQ(tuttiRecv(memory + 2 * COUNT, COUNT, tuttiInt32, 1, rank->comm, streams[1].tutti),
                 tuttiSuccess);
        CALL(cuGraphLaunch, graph, streams[0].cuda);
        CALL(cuStreamSynchronize, streams[0].cuda);
    }
    CHECK_EQ(tuttiStreamSynchronize(streams[1].tutti), tuttiSuccess);
    for (int i = 1; i < 3; i++) CHECK(holds(rank, memory + i * COUNT, 10 - 10 * rank->rank, COUNT));
    if (graph) CALL(cuGraphExecDestroy, graph);
    streams_destroy(rank, streams, 2);
    gpu_free(memory);
}

TEST(device_graph_exchange, a_send_of_a_graph_reaches_a_receive_without_a_graph)
{
    on_gpus(2, 2, NULL, half_captured, NULL);
}

/* Graphs that are made and destroyed, whose tables later ones get. */
static void many_graphs(struct gpu_rank *rank)
{
    struct both stream;
    const size_t counts[2] = {COUNT, COUNT / 3};
    size_t sent[2], received[2];
    for (int r = 0; r < 2; r++) {
        sent[r] = counts[r ^ rank->rank];
        received[r] = counts[r ^ rank->rank];
    }
    streams_create(rank, &stream, 1);
    int *memory = (int *)gpu_memory(rank->gpu, 4 * COUNT * sizeof *memory);
    for (int i = 0; i < 12; i++) {
        set(rank, memory, rank->rank + i, 2 * COUNT);
        capture_begin(stream.cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        CHECK_EQ(tuttiAlltoAllV(memory, sent, NULL, memory + 2 * COUNT, received, NULL, tuttiInt32,
                                rank->comm, stream.tutti),
                 tuttiSuccess);
        CUgraphExec graph = capture_end(stream.cuda);
        if (i % 3) replay(graph, stream.cuda);
        if (i % 3) CHECK(holds(rank, memory + 2 * COUNT, i, received[0]));
        CALL(cuGraphExecDestroy, graph);
    }
    streams_destroy(rank, &stream, 1);
    gpu_free(memory);
}

TEST(device_graph_exchange, graphs_come_and_go)
{
    on_gpus(2, 1, NULL, many_graphs, NULL);
}

/* ---- Errors --------------------------------------------------------------------------------- */

static void check_failed(const struct gpu_rank *rank, tuttiResult_t expected, const char *text)
{
    tuttiResult_t result = tuttiSuccess;
    CHECK_EQ(tuttiCommGetAsyncError(rank->comm, &result), tuttiSuccess);
    const char *error = tuttiGetLastError(rank->comm);
    CHECK_MESSAGE(result == expected && strstr(error, text), "rank %d: %d, '%s' is not in '%s'",
                  rank->rank, (int)result, text, error);
}

/* A graph of one message from rank `from` to rank `to`. */
static CUgraphExec capture_message(const struct gpu_rank *rank, const struct both *stream,
                                   int *memory, size_t count, int from, int to)
{
    tuttiResult_t result = tuttiSuccess;
    capture_begin(stream->cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (rank->rank == from)
        result = tuttiSend(memory, count, tuttiInt32, to, rank->comm, stream->tutti);
    if (rank->rank == to)
        result = tuttiRecv(memory, count, tuttiInt32, from, rank->comm, stream->tutti);
    CHECK_MESSAGE(!result, "rank %d: %s", rank->rank, tuttiGetLastError(rank->comm));
    return capture_end(stream->cuda);
}

struct case_of_error {
    struct both stream;
    int *memory;
    CUgraphExec graph;
};

static void begin(struct gpu_rank *rank, struct case_of_error *c, size_t count)
{
    streams_create(rank, &c->stream, 1);
    c->memory = (int *)gpu_memory(rank->gpu, COUNT * sizeof *c->memory);
    c->graph = capture_message(rank, &c->stream, c->memory, count, 0, 1);
    pthread_barrier_wait(rank->arg);
}

static void end(struct gpu_rank *rank, struct case_of_error *c)
{
    pthread_barrier_wait(rank->arg);
    CALL(cuGraphExecDestroy, c->graph);
    streams_destroy(rank, &c->stream, 1);
    gpu_free(c->memory);
}

/* Once both have replayed it; then the other one does not. */
static void one_replays(struct gpu_rank *rank)
{
    struct case_of_error c;
    begin(rank, &c, COUNT);
    replay(c.graph, c.stream.cuda);
    pthread_barrier_wait(rank->arg);
    if (rank->rank == 1) {
        replay(c.graph, c.stream.cuda);
        check_failed(rank, tuttiTimeout, "in a replay of a CUDA graph, receive from 0");
        check_failed(rank, tuttiTimeout, "; rank 0 (");
        check_failed(rank, tuttiTimeout, "has not yet sent all that this rank receives");
    }
    end(rank, &c);
}

TEST(device_graph_exchange, a_peer_that_does_not_replay_is_named_at_the_deadline)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 2000;
    on_gpus_together(2, 1, &config, one_replays);
}

/* Only rank 0 captures its part. */
static void one_captures(struct gpu_rank *rank)
{
    struct both stream;
    streams_create(rank, &stream, 1);
    int *memory = (int *)gpu_memory(rank->gpu, COUNT * sizeof *memory);
    CUgraphExec graph = rank->rank ? NULL : capture_message(rank, &stream, memory, COUNT, 0, 1);
    if (rank->rank) {
        CHECK_EQ(tuttiRecv(memory, COUNT, tuttiInt32, 0, rank->comm, NULL), tuttiTimeout);
        check_failed(rank, tuttiTimeout, "; rank 0 (");
    }
    pthread_barrier_wait(rank->arg);
    if (graph) CALL(cuGraphExecDestroy, graph);
    streams_destroy(rank, &stream, 1);
    gpu_free(memory);
}

TEST(device_graph_exchange, a_rank_that_captures_what_the_other_calls_is_named_at_the_deadline)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 1500;
    on_gpus_together(2, 2, &config, one_captures);
}

static void different_lengths(struct gpu_rank *rank)
{
    struct case_of_error c;
    begin(rank, &c, rank->rank ? COUNT : COUNT - 1);
    replay(c.graph, c.stream.cuda);
    check_failed(rank, tuttiInvalidUsage, "rank 0 (");
    check_failed(rank, tuttiInvalidUsage, "sends 1196 bytes, rank 1");
    check_failed(rank, tuttiInvalidUsage, "receives 1200 bytes: give both the same count");
    end(rank, &c);
}

TEST(device_graph_exchange, replays_of_messages_of_different_lengths_are_told)
{
    on_gpus_together(2, 1, NULL, different_lengths);
}

/* Rank 0 replays a sum, whose short messages have channels of their own, rank 1 the message that it
 * has captured: as without graphs, the deadline tells. */
static void another_graph(struct gpu_rank *rank)
{
    struct case_of_error c;
    begin(rank, &c, COUNT);
    CUgraphExec sum = capture_sum(rank, &c.stream, (float *)c.memory, COUNT);
    pthread_barrier_wait(rank->arg);
    replay(rank->rank ? c.graph : sum, c.stream.cuda);
    check_failed(rank, tuttiTimeout, "; rank ");
    check_failed(rank, tuttiTimeout, "replay");
    pthread_barrier_wait(rank->arg);
    CALL(cuGraphExecDestroy, sum);
    end(rank, &c);
}

TEST(device_graph_exchange, a_peer_that_replays_a_collective_is_named_at_the_deadline)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 1500;
    on_gpus_together(2, 1, &config, another_graph);
}

/* Rank 2 has left: messages between the others go on, those with rank 2 end with an error, which
 * names it, also when rank 0 has left since. */
static void one_leaves(struct gpu_rank *rank)
{
    struct case_of_error c;
    begin(rank, &c, COUNT);
    CUgraphExec gone = capture_message(rank, &c.stream, c.memory, COUNT, 1, 2);
    replay(gone, c.stream.cuda);
    if (rank->rank == 2) {
        CHECK_EQ(tuttiCommDestroy(rank->comm), tuttiSuccess);
        rank->comm = NULL;
    }
    pthread_barrier_wait(rank->arg);
    for (int turn = 0; turn < 3 && rank->comm; turn++) {
        usleep(15000); /* more than the watcher's pause */
        set(rank, c.memory, 5 * rank->rank + turn, COUNT);
        replay(c.graph, c.stream.cuda);
        CHECK(holds(rank, c.memory, turn, COUNT));
    }
    CUgraphExec later = rank->comm ? capture_message(rank, &c.stream, c.memory, 7, 0, 1) : NULL;
    if (later) replay(later, c.stream.cuda);
    if (rank->comm) check_failed(rank, tuttiSuccess, "");
    pthread_barrier_wait(rank->arg);
    if (rank->rank == 0) {
        CHECK_EQ(tuttiCommDestroy(rank->comm), tuttiSuccess);
        rank->comm = NULL;
    }
    pthread_barrier_wait(rank->arg);
    if (rank->rank == 1) {
        replay(gone, c.stream.cuda);
        check_failed(rank, tuttiRemoteError, "rank 2 (");
        check_failed(rank, tuttiRemoteError, "has left");
    }
    CALL(cuGraphExecDestroy, gone);
    if (later) CALL(cuGraphExecDestroy, later);
    end(rank, &c);
}

TEST(device_graph_exchange, a_rank_that_leaves_ends_the_replays_that_need_it_and_no_others)
{
    on_gpus_together(3, 2, NULL, one_leaves);
}

/* The peer is dead to the replay: it aborts while the other waits in the kernel. */
static void one_aborts(struct gpu_rank *rank)
{
    struct case_of_error c;
    begin(rank, &c, COUNT);
    if (rank->rank == 0) {
        usleep(20000);
        CHECK_EQ(tuttiCommAbort(rank->comm), tuttiSuccess);
        rank->comm = NULL;
    } else {
        replay(c.graph, c.stream.cuda);
        check_failed(rank, tuttiRemoteError, "rank 0");
    }
    end(rank, &c);
}

TEST(device_graph_exchange, an_abort_ends_a_replay_that_waits_for_the_rank)
{
    on_gpus_together(2, 1, NULL, one_aborts);
}
