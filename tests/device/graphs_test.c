/* Calls on GPUs that are captured into CUDA graphs and replayed: right, in order with the
 * communicator's other calls, however the user puts graphs together. */
#include "graphs.h"

#include <pthread.h>
#include <unistd.h>

enum { NCALLS = 4 };

static void place_some(struct placed *placed, const struct gpu_rank *rank)
{
    static const int kinds[NCALLS] = {tuttiCollAllReduce, tuttiCollAllGather,
                                      tuttiCollReduceScatter, tuttiCollBroadcast};
    for (int i = 0; i < NCALLS; i++) {
        const struct call call = {.kind = kinds[i],
                                  .count = 2000 >> 2 * i,
                                  .type = i % 2 ? tuttiInt32 : tuttiFloat32,
                                  .op = tuttiSum,
                                  .root = 1 % rank->nranks,
                                  .nranks = rank->nranks};
        place_call(&placed[i], rank, &call, 0);
    }
}

static void check_all(struct placed *placed)
{
    for (int i = 0; i < NCALLS; i++)
        CHECK_MESSAGE(is_right(&placed[i]), "rank %d: wrong: %s", placed[i].rank->rank,
                      call_text(&placed[i].call));
}

/* In each mode of capture, one graph of several calls; other calls in between, also while the
 * stream is being captured. During a capture of mode global no thread of the test makes calls of
 * its own that the mode forbids. */
static void every_mode(struct gpu_rank *rank)
{
    pthread_barrier_t *all = rank->arg;
    struct both streams[2];
    struct placed placed[NCALLS];
    streams_create(rank, streams, 2);
    place_some(placed, rank);
    float *data = (float *)gpu_memory(rank->gpu, 64);
    for (CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
         mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
        pthread_barrier_wait(all);
        capture_begin(streams[0].cuda, mode);
        for (int i = 0; i < NCALLS; i++)
            CHECK_EQ(issue_call(&placed[i], streams[0].tutti), tuttiSuccess);
        CHECK_EQ(tuttiBarrier(rank->comm, streams[0].tutti), tuttiSuccess);
        CHECK_EQ(tuttiAllReduce(data, data, 5 + (size_t)mode, tuttiFloat, tuttiSum, rank->comm,
                                streams[1].tutti),
                 tuttiSuccess);
        CUgraph captured = capture_stop(streams[0].cuda);
        pthread_barrier_wait(all); /* before any rank makes a graph */
        CUgraphExec graph = graph_make(captured);
        for (uint64_t turn = 1; turn <= 2; turn++) {
            for (int i = 0; i < NCALLS; i++) renew(&placed[i], turn * 10 + (uint64_t)mode);
            replay(graph, streams[0].cuda);
            check_all(placed);
        }
        CALL(cuGraphExecDestroy, graph);
    }
    CHECK_EQ(tuttiBarrier(rank->comm, NULL), tuttiSuccess); /* the ranks' turns are in step */
    CHECK_EQ(tuttiStreamSynchronize(streams[1].tutti), tuttiSuccess);
    for (int i = 0; i < NCALLS; i++) (void)check_call(&placed[i]);
    streams_destroy(rank, streams, 2);
    gpu_free(data);
}

TEST(device_graphs, replays_are_right_in_every_mode_of_capture)
{
    on_gpus_together(2, 1, NULL, every_mode);
}

TEST(device_graphs, replays_are_right_among_four_ranks_of_two_gpus)
{
    on_gpus_together(4, 2, NULL, every_mode);
}

/* Two graphs and direct calls on three streams without a wait between them, all in place on the
 * same memory: they follow one another as they were launched. */
static void in_order(struct gpu_rank *rank)
{
    enum { COUNT = 700, ROUNDS = 3 };
    struct both streams[3];
    float start[COUNT], got[COUNT];
    streams_create(rank, streams, 3);
    float *data = (float *)gpu_memory(rank->gpu, sizeof start);
    for (int i = 0; i < COUNT; i++) start[i] = (float)i;
    gpu_write(rank->gpu, data, start, sizeof start);
    CHECK_EQ(tuttiBroadcast(data, data, COUNT, tuttiFloat, 0, rank->comm, streams[2].tutti),
             tuttiSuccess);
    CUgraphExec graphs[2] = {capture_sum(rank, &streams[0], data, COUNT),
                             capture_sum(rank, &streams[1], data, COUNT)};
    for (int round = 0; round < ROUNDS; round++) {
        CALL(cuGraphLaunch, graphs[0], streams[0].cuda);
        CALL(cuGraphLaunch, graphs[1], streams[1].cuda);
        CHECK_EQ(
            tuttiAllReduce(data, data, COUNT, tuttiFloat, tuttiAvg, rank->comm, streams[2].tutti),
            tuttiSuccess);
        CALL(cuGraphLaunch, graphs[0], streams[1].cuda); /* the same one on another stream */
    }
    for (int i = 0; i < 3; i++) CALL(cuStreamSynchronize, streams[i].cuda);
    gpu_read(rank->gpu, got, data, sizeof got);
    float factor = 1;
    for (int i = 0; i < 3 * ROUNDS; i++) factor *= (float)rank->nranks;
    int nwrong = 0;
    for (int i = 0; i < COUNT; i++) nwrong += got[i] != start[i] * factor;
    CHECK_EQ(nwrong, 0);
    for (int i = 0; i < 2; i++) CALL(cuGraphExecDestroy, graphs[i]);
    streams_destroy(rank, streams, 3);
    gpu_free(data);
}

TEST(device_graphs, replays_and_other_calls_follow_one_another_in_the_order_of_their_launches)
{
    on_gpus(2, 2, NULL, in_order, NULL);
}

/* Branches of one capture; the graph twice in a graph, and instantiated twice. */
static void nested(struct gpu_rank *rank)
{
    struct both streams[2];
    struct placed placed[NCALLS];
    CUevent fork = NULL, join = NULL;
    CUgraph child = NULL, parent = NULL;
    CUgraphNode first = NULL, second = NULL;
    CUgraphExec made[2] = {NULL};
    streams_create(rank, streams, 2);
    place_some(placed, rank);
    CALL(cuEventCreate, &fork, CU_EVENT_DISABLE_TIMING);
    CALL(cuEventCreate, &join, CU_EVENT_DISABLE_TIMING);
    capture_begin(streams[0].cuda, CU_STREAM_CAPTURE_MODE_RELAXED);
    CALL(cuEventRecord, fork, streams[0].cuda);
    CALL(cuStreamWaitEvent, streams[1].cuda, fork, 0);
    CHECK_EQ(issue_call(&placed[0], streams[1].tutti), tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(issue_call(&placed[1], streams[0].tutti), tuttiSuccess);
    CHECK_EQ(issue_call(&placed[2], streams[1].tutti), tuttiSuccess);
    CHECK_EQ(issue_call(&placed[3], streams[0].tutti), tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CALL(cuEventRecord, join, streams[1].cuda);
    CALL(cuStreamWaitEvent, streams[0].cuda, join, 0);
    CALL(cuStreamEndCapture, streams[0].cuda, &child);
    CALL(cuGraphCreate, &parent, 0);
    CALL(cuGraphAddChildGraphNode, &first, parent, NULL, 0, child);
    CALL(cuGraphAddChildGraphNode, &second, parent, &first, 1, child);
    for (int i = 0; i < 2; i++) CALL(cuGraphInstantiateWithFlags, &made[i], i ? parent : child, 0);
    CALL(cuGraphDestroy, child);
    CALL(cuGraphDestroy, parent);
    for (uint64_t turn = 1; turn <= 2; turn++) {
        for (int i = 0; i < NCALLS; i++) renew(&placed[i], turn);
        CALL(cuGraphLaunch, made[turn % 2], streams[0].cuda);
        replay(made[(turn + 1) % 2], streams[1].cuda);
        CALL(cuStreamSynchronize, streams[0].cuda);
        check_all(placed);
    }
    for (int i = 0; i < 2; i++) CALL(cuGraphExecDestroy, made[i]);
    CALL(cuEventDestroy_v2, fork);
    CALL(cuEventDestroy_v2, join);
    for (int i = 0; i < NCALLS; i++) (void)check_call(&placed[i]);
    streams_destroy(rank, streams, 2);
}

TEST(device_graphs, branches_child_graphs_and_groups_are_right)
{
    on_gpus(2, 2, NULL, nested, NULL);
}

/* A group of calls on two streams, of which each fills the buffer of the other one's call before,
 * and copies it afterwards. Behind the group the streams join. */
static void crosswise(struct gpu_rank *rank)
{
    enum { N = 400 };
    struct both streams[2];
    unsigned *data[2], *copy[2], got[N];
    CUevent fork = NULL;
    int nwrong = 0;
    streams_create(rank, streams, 2);
    for (int i = 0; i < 2; i++) {
        data[i] = (unsigned *)gpu_memory(rank->gpu, sizeof got);
        copy[i] = (unsigned *)gpu_memory(rank->gpu, sizeof got);
    }
    CALL(cuEventCreate, &fork, CU_EVENT_DISABLE_TIMING);
    capture_begin(streams[0].cuda, CU_STREAM_CAPTURE_MODE_RELAXED);
    CALL(cuEventRecord, fork, streams[0].cuda);
    CALL(cuStreamWaitEvent, streams[1].cuda, fork, 0);
    for (unsigned i = 0; i < 2; i++)
        gpu_fill(rank->gpu, streams[1 - i].cuda, data[i], 1 + i + 10 * (unsigned)rank->rank, N);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(tuttiAllReduce(data[i], data[i], N, tuttiUint32, tuttiSum, rank->comm,
                                streams[i].tutti),
                 tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    for (int i = 0; i < 2; i++)
        CALL(cuMemcpyDtoDAsync_v2, (CUdeviceptr)copy[i], (CUdeviceptr)data[i], sizeof got,
             streams[1 - i].cuda);
    CALL(cuEventRecord, fork, streams[1].cuda);
    CALL(cuStreamWaitEvent, streams[0].cuda, fork, 0);
    CUgraphExec graph = capture_end(streams[0].cuda);
    for (int turn = 0; turn < 2; turn++) {
        replay(graph, streams[0].cuda);
        for (unsigned i = 0; i < 2; i++) {
            gpu_read(rank->gpu, got, copy[i], sizeof got);
            for (int k = 0; k < N; k++) nwrong += got[k] != 12 + 2 * i;
        }
    }
    CHECK_EQ(nwrong, 0);
    CALL(cuGraphExecDestroy, graph);
    CALL(cuEventDestroy_v2, fork);
    for (int i = 0; i < 2; i++) {
        gpu_free(data[i]);
        gpu_free(copy[i]);
    }
    streams_destroy(rank, streams, 2);
}

TEST(device_graphs, streams_of_a_group_come_before_all_of_its_calls_and_follow_all)
{
    on_gpus(2, 1, NULL, crosswise, NULL);
}

/* One thread captures the calls of two ranks of a GPU on one stream: their kernels must run side by
 * side. */
TEST(device_graphs, one_thread_captures_several_ranks_on_one_stream)
{
    enum { NRANKS = 2 };
    const int devices[NRANKS] = {0, 0};
    tuttiComm_t comms[NRANKS] = {NULL};
    struct gpu_rank ranks[NRANKS];
    struct placed placed[NRANKS][NCALLS];
    struct both stream;
    REQUIRE(tuttiCommInitAll(comms, NRANKS, devices) == tuttiSuccess);
    for (int r = 0; r < NRANKS; r++) {
        ranks[r] = (struct gpu_rank){r, NRANKS, 0, comms[r], NULL};
        place_some(placed[r], &ranks[r]);
    }
    streams_create(&ranks[0], &stream, 1);
    capture_begin(stream.cuda, CU_STREAM_CAPTURE_MODE_GLOBAL);
    for (int i = 0; i < NCALLS; i += 2) {
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        for (int k = i; k < i + 2; k++)
            for (int r = 0; r < NRANKS; r++)
                CHECK_EQ(issue_call(&placed[r][k], stream.tutti), tuttiSuccess);
        CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    }
    CUgraphExec graph = capture_end(stream.cuda);
    for (uint64_t turn = 1; turn <= 2; turn++) {
        for (int r = 0; r < NRANKS; r++)
            for (int i = 0; i < NCALLS; i++) renew(&placed[r][i], turn);
        replay(graph, stream.cuda);
        for (int r = 0; r < NRANKS; r++) check_all(placed[r]);
    }
    CALL(cuGraphExecDestroy, graph);
    for (int r = 0; r < NRANKS; r++)
        for (int i = 0; i < NCALLS; i++) (void)check_call(&placed[r][i]);
    for (int r = 0; r < NRANKS; r++) CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
    streams_destroy(&ranks[0], &stream, 1);
    gpu_free_all();
}

/* The scalar of a pre-multiplied sum is read by each replay. */
static void changing_scalar(struct gpu_rank *rank)
{
    enum { COUNT = 50 };
    struct both stream;
    tuttiRedOp_t op;
    float ones[COUNT], got[COUNT];
    streams_create(rank, &stream, 1);
    float *data = (float *)gpu_memory(rank->gpu, sizeof ones);
    float *out = (float *)gpu_memory(rank->gpu, sizeof ones);
    float *scalar = (float *)gpu_memory(rank->gpu, sizeof *scalar);
    for (int i = 0; i < COUNT; i++) ones[i] = 1;
    gpu_write(rank->gpu, data, ones, sizeof ones);
    CHECK_EQ(tuttiRedOpCreatePreMulSum(&op, scalar, tuttiFloat, tuttiScalarDevice, rank->comm),
             tuttiSuccess);
    capture_begin(stream.cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CHECK_EQ(tuttiAllReduce(data, out, COUNT, tuttiFloat, op, rank->comm, stream.tutti),
             tuttiSuccess);
    CUgraphExec graph = capture_end(stream.cuda);
    CHECK_EQ(tuttiRedOpDestroy(op, rank->comm), tuttiSuccess);
    for (int turn = 2; turn < 5; turn++) {
        gpu_write(rank->gpu, scalar, &(float){(float)turn}, sizeof *scalar);
        replay(graph, stream.cuda);
        gpu_read(rank->gpu, got, out, sizeof got);
        CHECK(got[0] == (float)(turn * rank->nranks) && got[COUNT - 1] == got[0]);
    }
    CALL(cuGraphExecDestroy, graph);
    streams_destroy(rank, &stream, 1);
    gpu_free(data);
    gpu_free(out);
    gpu_free(scalar);
}

TEST(device_graphs, a_scalar_in_device_memory_may_change_between_replays)
{
    on_gpus(2, 1, NULL, changing_scalar, NULL);
}

/* More programs than the communicator keeps, and larger scratch memory, after the capture. */
static void later_calls(struct gpu_rank *rank)
{
    struct both stream;
    struct placed placed[NCALLS];
    streams_create(rank, &stream, 1);
    place_some(placed, rank);
    capture_begin(stream.cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (int i = 0; i < NCALLS; i++) CHECK_EQ(issue_call(&placed[i], stream.tutti), tuttiSuccess);
    CUgraphExec graph = capture_end(stream.cuda);
    char *data = gpu_memory(rank->gpu, 1 << 16);
    for (int kind = 0; kind < tuttiCollBarrier; kind++)
        for (int root = 0; root < rank->nranks; root++)
            for (size_t count = 1; count < 10000; count *= 100) {
                struct placed other;
                const struct call call = {.kind = kind,
                                          .count = count,
                                          .type = tuttiInt32,
                                          .op = tuttiSum,
                                          .root = root,
                                          .nranks = rank->nranks};
                place_call(&other, rank, &call, 0);
                CHECK_EQ(issue_call(&other, NULL), tuttiSuccess);
                CHECK(check_call(&other));
            }
    for (int i = 0; i < NCALLS; i++) renew(&placed[i], 5);
    replay(graph, stream.cuda);
    check_all(placed);
    CALL(cuGraphExecDestroy, graph);
    for (int i = 0; i < NCALLS; i++) (void)check_call(&placed[i]);
    streams_destroy(rank, &stream, 1);
    gpu_free(data);
}

TEST(device_graphs, what_a_graph_needs_stays_when_other_calls_need_room)
{
    on_gpus(2, 1, NULL, later_calls, NULL);
}

/* Captures, and forgets, a call of each algorithm and root: more programs than the communicator
 * keeps. Returns how many there were. */
static int capture_all_programs(struct gpu_rank *rank, const struct both *stream, char *data)
{
    int n = 0;
    for (tuttiCollective_t kind = 0; kind < tuttiCollBarrier; kind++)
        for (int i = 0; tuttiAlgorithmName(kind, i); i++) {
            const char *name = tuttiAlgorithmName(kind, i);
            if (!tuttiAlgorithmFits(kind, name, rank->nranks, NULL)) continue;
            CHECK_EQ(tuttiCommSetAlgorithm(rank->comm, kind, name), tuttiSuccess);
            for (int root = 0; root < (tuttiCollectiveHasRoot(kind) ? rank->nranks : 1); root++) {
                const struct call call = {.kind = (int)kind,
                                          .count = 20,
                                          .type = tuttiInt32,
                                          .op = tuttiSum,
                                          .root = root,
                                          .nranks = rank->nranks};
                const struct placed placed = {.call = call,
                                              .rank = rank,
                                              .input = data,
                                              .output = data + 2048,
                                              .op = tuttiSum};
                capture_begin(stream->cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
                CHECK_EQ(issue_call(&placed, stream->tutti), tuttiSuccess);
                CALL(cuGraphExecDestroy, capture_end(stream->cuda));
                n++;
            }
        }
    return n;
}

static void capture_again_and_again(struct gpu_rank *rank)
{
    size_t all, before = 0, after = 0;
    struct both stream;
    if (rank->rank == 0) {
        char *data = gpu_memory(rank->gpu, 4096);
        streams_create(rank, &stream, 1);
        CHECK(capture_all_programs(rank, &stream, data) > 40);
        CALL(cuMemGetInfo_v2, &before, &all);
        for (int i = 0; i < 2; i++) (void)capture_all_programs(rank, &stream, data);
        CALL(cuMemGetInfo_v2, &after, &all);
        CHECK_EQ(before, after);
        streams_destroy(rank, &stream, 1);
        gpu_free(data);
    }
    pthread_barrier_wait(rank->arg);
}

TEST(device_graphs, captures_again_and_again_take_no_more_device_memory)
{
    on_gpus_together(2, 2, NULL, capture_again_and_again);
}

/* One gather in place of counts (0 1 2 ...) rotated by `shift`, element i of rank r is r * 100 + i
 * + shift. */
static tuttiResult_t gather(const struct gpu_rank *rank, int *memory, size_t shift,
                            tuttiStream_t stream)
{
    size_t counts[MOST_RANKS], before = 0;
    const size_t n = (size_t)rank->nranks;
    for (size_t r = 0; r < n; r++) {
        counts[r] = (r + shift) % n * 50;
        if ((int)r < rank->rank) before += counts[r];
    }
    return tuttiAllGatherV(memory + before, memory, counts, NULL, tuttiInt32, rank->comm, stream);
}

static int wrong_elements(const struct gpu_rank *rank, const int *memory, size_t shift, bool write)
{
    enum { ROOM = MOST_RANKS * MOST_RANKS * 50 };
    int data[ROOM], nwrong = 0;
    size_t at = 0;
    const size_t n = (size_t)rank->nranks;
    if (!write) gpu_read(rank->gpu, data, memory, sizeof data);
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < (r + shift) % n * 50; i++, at++) {
            const int right = (int)(r * 100 + i + shift);
            nwrong += !write && data[at] != right;
            data[at] = (int)r == rank->rank ? right : -1;
        }
    if (write) gpu_write(rank->gpu, (void *)(uintptr_t)memory, data, at * sizeof *data);
    return nwrong;
}

/* Two captured calls whose counts differ, with many direct ones between their replays, which take
 * the memory of each other's tables. */
static void counts_of_their_own(struct gpu_rank *rank)
{
    enum { NDIRECT = 6 };
    struct both stream;
    int *memory[3];
    streams_create(rank, &stream, 1);
    for (int i = 0; i < 3; i++) memory[i] = (int *)gpu_memory(rank->gpu, 1 << 16);
    capture_begin(stream.cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (size_t i = 0; i < 2; i++) CHECK_EQ(gather(rank, memory[i], i, stream.tutti), tuttiSuccess);
    CUgraphExec graph = capture_end(stream.cuda);
    for (size_t turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < 2; i++) (void)wrong_elements(rank, memory[i], i, true);
        for (size_t i = 0; i < NDIRECT; i++)
            CHECK_EQ(gather(rank, memory[2], 2 + i % 2, stream.tutti), tuttiSuccess);
        replay(graph, stream.cuda);
        for (size_t i = 0; i < 2; i++) CHECK_EQ(wrong_elements(rank, memory[i], i, false), 0);
    }
    CHECK_EQ(tuttiStreamSynchronize(stream.tutti), tuttiSuccess);
    CALL(cuGraphExecDestroy, graph);
    streams_destroy(rank, &stream, 1);
    for (int i = 0; i < 3; i++) gpu_free(memory[i]);
}

TEST(device_graphs, captured_calls_keep_their_count_for_each_rank)
{
    on_gpus(3, 2, NULL, counts_of_their_own, NULL);
}

/* ---- The end -------------------------------------------------------------------------------- */

static void CUDA_CB come_late(void *unused)
{
    (void)unused;
    usleep(30000);
}

/* Nobody waits for the stream before the communicator's end: the driver frees a graph that was
 * destroyed when its launches have ended. */
static void launch_and_leave(struct gpu_rank *rank)
{
    enum { ROUNDS = 5, COUNT = 1000 };
    struct both stream;
    static const float one = 1;
    float got, expected = 1;
    streams_create(rank, &stream, 1);
    float *data = (float *)gpu_memory(rank->gpu, COUNT * sizeof *data);
    gpu_write(rank->gpu, data + COUNT - 1, &one, sizeof one);
    CUgraphExec graph = capture_sum(rank, &stream, data, COUNT);
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 2 == rank->rank % 2) CALL(cuLaunchHostFunc, stream.cuda, come_late, NULL);
        CALL(cuGraphLaunch, graph, stream.cuda);
        expected *= (float)rank->nranks;
    }
    CALL(cuGraphExecDestroy, graph);
    CHECK_EQ(tuttiCommDestroy(rank->comm), tuttiSuccess);
    rank->comm = NULL;
    CALL(cuStreamSynchronize, stream.cuda);
    gpu_read(rank->gpu, &got, data + COUNT - 1, sizeof got);
    CHECK_MESSAGE(got == expected, "%g, expected %g", (double)got, (double)expected);
    streams_destroy(rank, &stream, 1);
    gpu_free(data);
}

TEST(device_graphs, replays_that_were_launched_run_before_the_communicator_ends)
{
    on_gpus_together(2, 1, NULL, launch_and_leave);
    on_gpus_together(4, 2, NULL, launch_and_leave);
}
