/* Captured calls that cannot succeed: what the errors say, and that nothing hangs. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "carrier/kernel/graphs.h"
#include "communicator/communicator.h"
#include "graphs.h"

enum { COUNT = 100 };

static tuttiConfig_t impatient(int timeout_ms)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = timeout_ms;
    return config;
}

static void check_text(const struct gpu_rank *rank, tuttiResult_t result, tuttiResult_t expected,
                       const char *text)
{
    const char *error = tuttiGetLastError(rank->comm);
    CHECK_MESSAGE(result == expected, "rank %d: result %d, expected %d: %s", rank->rank,
                  (int)result, (int)expected, error);
    CHECK_MESSAGE(strstr(error, text), "rank %d: '%s' is not in '%s'", rank->rank, text, error);
}

/* The communicator's failure; a replay that has ended has been looked at. */
static void check_failed(const struct gpu_rank *rank, tuttiResult_t expected, const char *text)
{
    tuttiResult_t result = tuttiSuccess;
    CHECK_EQ(tuttiCommGetAsyncError(rank->comm, &result), tuttiSuccess);
    check_text(rank, result, expected, text);
}

static void wait_for_all(struct gpu_rank *rank)
{
    pthread_barrier_wait(rank->arg);
}

/* What most tests begin with. */
struct one {
    struct both stream;
    float *data;
    CUgraphExec graph;
};

static void open_one(struct gpu_rank *rank, struct one *one)
{
    streams_create(rank, &one->stream, 1);
    one->data = (float *)gpu_memory(rank->gpu, COUNT * sizeof *one->data);
    one->graph = capture_sum(rank, &one->stream, one->data, COUNT);
}

static void close_one(struct gpu_rank *rank, struct one *one)
{
    if (one->graph) CALL(cuGraphExecDestroy, one->graph);
    streams_destroy(rank, &one->stream, 1);
    gpu_free(one->data);
}

static void check_sum(const struct gpu_rank *rank, const struct one *one, tuttiResult_t expected,
                      const char *text)
{
    check_text(rank,
               tuttiAllReduce(one->data, one->data, COUNT, tuttiFloat, tuttiSum, rank->comm, NULL),
               expected, text);
}

static void one_does_not_replay(struct gpu_rank *rank)
{
    struct one one;
    open_one(rank, &one);
    wait_for_all(rank); /* the first replay must succeed */
    replay(one.graph, one.stream.cuda);
    if (rank->rank != 1) {
        replay(one.graph, one.stream.cuda);
        check_failed(rank, tuttiTimeout, "; rank 1 (");
        check_failed(rank, tuttiTimeout, "has not replayed it");
        check_failed(rank, tuttiTimeout, "all_reduce (count 100, float");
    }
    wait_for_all(rank);
    close_one(rank, &one);
}

TEST(device_graph_errors, a_rank_that_does_not_replay_is_named_at_the_deadline)
{
    const tuttiConfig_t config = impatient(3000);
    on_gpus_together(3, 2, &config, one_does_not_replay);
}

static void one_captures(struct gpu_rank *rank)
{
    struct one one = {.graph = NULL};
    if (rank->rank == 1) {
        open_one(rank, &one);
    } else {
        streams_create(rank, &one.stream, 1);
        one.data = (float *)gpu_memory(rank->gpu, COUNT * sizeof *one.data);
        check_sum(rank, &one, tuttiTimeout, "rank 1");
    }
    wait_for_all(rank);
    close_one(rank, &one);
}

TEST(device_graph_errors, a_rank_that_captures_what_the_others_call_is_named_at_the_deadline)
{
    const tuttiConfig_t config = impatient(1500);
    on_gpus_together(2, 1, &config, one_captures);
}

static void replay_and_call(struct gpu_rank *rank)
{
    struct one one;
    open_one(rank, &one);
    if (rank->rank == 1) {
        replay(one.graph, one.stream.cuda);
        check_failed(rank, tuttiInvalidUsage, "ranks disagree");
    } else {
        check_sum(rank, &one, tuttiInvalidUsage, "ranks disagree");
    }
    close_one(rank, &one);
}

TEST(device_graph_errors, a_replay_does_not_match_a_call_without_a_graph)
{
    on_gpus_together(2, 1, NULL, replay_and_call);
}

/* A send after the replay that has failed does not explain its failure. */
static void replay_then_send(struct gpu_rank *rank)
{
    struct one one;
    open_one(rank, &one);
    wait_for_all(rank);
    if (rank->rank == 1)
        CALL(cuGraphLaunch, one.graph, one.stream.cuda);
    else
        (void)tuttiAllReduce(one.data, one.data, COUNT, tuttiFloat, tuttiSum, rank->comm,
                             one.stream.tutti);
    (void)tuttiSend(one.data, 1, tuttiFloat, 1 - rank->rank, rank->comm, one.stream.tutti);
    check_text(rank, tuttiStreamSynchronize(one.stream.tutti), tuttiInvalidUsage, "ranks disagree");
    wait_for_all(rank);
    close_one(rank, &one);
}

TEST(device_graph_errors, a_call_after_a_replay_that_failed_tells_the_failure_of_the_replay)
{
    on_gpus_together(2, 1, NULL, replay_then_send);
}

static void different_replays(struct gpu_rank *rank)
{
    struct one one;
    open_one(rank, &one);
    CUgraphExec other = capture_sum(rank, &one.stream, one.data, COUNT - 1);
    wait_for_all(rank); /* a communicator that has failed captures nothing */
    replay(rank->rank ? other : one.graph, one.stream.cuda);
    check_failed(rank, tuttiInvalidUsage, "from a CUDA graph");
    check_sum(rank, &one, tuttiInvalidUsage, "ranks disagree");
    replay(one.graph, one.stream.cuda); /* ends at once */
    CALL(cuGraphExecDestroy, other);
    close_one(rank, &one);
}

TEST(device_graph_errors, replays_of_different_calls_are_told_apart)
{
    on_gpus_together(3, 2, NULL, different_replays);
}

static void one_aborts(struct gpu_rank *rank)
{
    struct one one;
    open_one(rank, &one);
    wait_for_all(rank);
    if (rank->rank == 1) {
        CHECK_EQ(tuttiCommAbort(rank->comm), tuttiSuccess);
        rank->comm = NULL;
    } else {
        replay(one.graph, one.stream.cuda);
        check_failed(rank, tuttiRemoteError, "rank 1");
    }
    close_one(rank, &one);
}

TEST(device_graph_errors, an_abort_ends_the_replays_that_wait_for_the_rank)
{
    on_gpus_together(3, 2, NULL, one_aborts);
}

/* Else another rank, which looks only after the abort, takes the replay for one that it can go on
 * with, and waits for ever. */
static void an_aborted_replay(struct gpu_rank *rank)
{
    struct one one;
    open_one(rank, &one);
    replay(one.graph, one.stream.cuda);
    CALL(cuStreamSynchronize, one.stream.cuda);
    wait_for_all(rank);
    if (rank->rank == 1) {
        CALL(cuGraphLaunch, one.graph, one.stream.cuda);
        usleep(20000);
        CHECK_EQ(tuttiCommAbort(rank->comm), tuttiSuccess);
        rank->comm = NULL;
    }
    wait_for_all(rank);
    if (rank->comm) {
        const struct tt_rank_record *record = tt_fabric_record(rank->comm->core.fabric, 1);
        CHECK_EQ(record->replays / 2, 1);
        replay(one.graph, one.stream.cuda);
        check_failed(rank, tuttiRemoteError, "rank 1");
    }
    close_one(rank, &one);
}

TEST(device_graph_errors, a_replay_that_is_aborted_does_not_count)
{
    on_gpus_together(3, 2, NULL, an_aborted_replay);
}

static void one_destroys(struct gpu_rank *rank)
{
    struct one one;
    open_one(rank, &one);
    replay(one.graph, one.stream.cuda);
    if (rank->rank == 1) {
        CHECK_EQ(tuttiCommDestroy(rank->comm), tuttiSuccess);
        rank->comm = NULL;
    } else {
        replay(one.graph, one.stream.cuda);
        check_failed(rank, tuttiRemoteError, "has left");
        check_sum(rank, &one, tuttiRemoteError, "left");
    }
    close_one(rank, &one);
}

TEST(device_graph_errors, a_rank_that_destroys_its_communicator_instead_is_named)
{
    on_gpus_together(3, 1, NULL, one_destroys);
}

/* The watchers see that rank 2 has left; sends and receives of the others go on. */
static void others_go_on(struct gpu_rank *rank)
{
    struct one one;
    open_one(rank, &one);
    replay(one.graph, one.stream.cuda);
    if (rank->rank == 2) {
        CHECK_EQ(tuttiCommDestroy(rank->comm), tuttiSuccess);
        rank->comm = NULL;
    }
    for (int i = 0; i < 3 && rank->comm; i++) {
        usleep(30000);
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        CHECK_EQ(tuttiSend(one.data, 1, tuttiFloat, 1 - rank->rank, rank->comm, NULL),
                 tuttiSuccess);
        CHECK_EQ(tuttiRecv(one.data + 1, 1, tuttiFloat, 1 - rank->rank, rank->comm, NULL),
                 tuttiSuccess);
        check_text(rank, tuttiGroupEnd(), tuttiSuccess, "");
    }
    wait_for_all(rank); /* what follows fails the communicator */
    if (rank->comm) {
        replay(one.graph, one.stream.cuda);
        check_failed(rank, tuttiRemoteError, "left");
    }
    wait_for_all(rank);
    close_one(rank, &one);
}

TEST(device_graph_errors, a_rank_that_leaves_ends_replays_but_no_messages_of_the_others)
{
    on_gpus_together(3, 2, NULL, others_go_on);
}

/* Ranks that end at different times: what the last ones still do is right. */
static void leave_early(struct gpu_rank *rank)
{
    enum { ROUNDS = 5 };
    struct one one;
    float start[COUNT], got[COUNT];
    open_one(rank, &one);
    for (int i = 0; i < COUNT; i++) start[i] = 1;
    gpu_write(rank->gpu, one.data, start, sizeof start);
    for (int i = 0; i < ROUNDS; i++) {
        if (rank->rank == 1) usleep(20000);
        CALL(cuGraphLaunch, one.graph, one.stream.cuda);
    }
    CALL(cuStreamSynchronize, one.stream.cuda);
    CHECK_EQ(tuttiCommDestroy(rank->comm), tuttiSuccess);
    rank->comm = NULL;
    gpu_read(rank->gpu, got, one.data, sizeof got);
    float expected = 1;
    for (int i = 0; i < ROUNDS; i++) expected *= (float)rank->nranks;
    CHECK(got[0] == expected && got[COUNT - 1] == expected);
    replay(one.graph, one.stream.cuda); /* after its communicator's end it does nothing */
    gpu_read(rank->gpu, got, one.data, sizeof got);
    CHECK(got[0] == expected && got[COUNT - 1] == expected);
    close_one(rank, &one);
}

TEST(device_graph_errors, a_replay_after_the_communicators_end_does_nothing)
{
    on_gpus_together(3, 2, NULL, leave_early);
    on_gpus_together(2, 1, NULL, leave_early); /* memory of the first one is used again */
}

/* Captures that come to nothing. */
static void abandoned(struct gpu_rank *rank)
{
    struct both streams[2];
    float data[COUNT];
    CUgraph graph = NULL;
    streams_create(rank, streams, 2);
    float *here = (float *)gpu_memory(rank->gpu, sizeof data);
    for (int i = 0; i < COUNT; i++) data[i] = 1;
    gpu_write(rank->gpu, here, data, sizeof data);
    for (int spoil = 0; spoil < 2; spoil++) {
        capture_begin(streams[0].cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        CHECK_EQ(
            tuttiAllReduce(here, here, COUNT, tuttiFloat, tuttiSum, rank->comm, streams[0].tutti),
            tuttiSuccess);
        if (spoil) {
            CHECK(RESULT(cuStreamSynchronize, streams[0].cuda) != CUDA_SUCCESS);
            CHECK_EQ(tuttiAllReduce(here, here, COUNT, tuttiFloat, tuttiSum, rank->comm,
                                    streams[0].tutti),
                     tuttiInvalidUsage);
            CHECK(strstr(tuttiGetLastError(rank->comm), "has failed already"));
        }
        (void)RESULT(cuStreamEndCapture, streams[0].cuda, &graph);
        if (!spoil) CALL(cuGraphDestroy, graph);
    }
    CHECK_EQ(tuttiAllReduce(here, here, COUNT, tuttiFloat, tuttiSum, rank->comm, streams[0].tutti),
             tuttiSuccess);
    CHECK_EQ(tuttiStreamSynchronize(streams[0].tutti), tuttiSuccess);
    CHECK_EQ(tuttiBarrier(rank->comm, NULL), tuttiSuccess);
    gpu_read(rank->gpu, data, here, sizeof data);
    CHECK(data[0] == (float)rank->nranks && data[COUNT - 1] == data[0]);
    streams_destroy(rank, streams, 2);
    gpu_free(here);
}

TEST(device_graph_errors, an_abandoned_capture_leaves_the_communicator_as_it_was)
{
    on_gpus_together(2, 2, NULL, abandoned);
}

/* A blocking stream is captured, and a call comes for the legacy stream. */
static void legacy(struct gpu_rank *rank)
{
    CUstream blocking = NULL;
    gpu_use(rank->gpu);
    float *here = (float *)gpu_memory(rank->gpu, COUNT * sizeof *here);
    CALL(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
    capture_begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    check_text(rank, tuttiAllReduce(here, here, COUNT, tuttiFloat, tuttiSum, rank->comm, NULL),
               tuttiInvalidUsage, "legacy default stream");
    CALL(cuGraphExecDestroy, capture_end(blocking));
    CALL(cuStreamDestroy_v2, blocking);
    CHECK_EQ(tuttiAllReduce(here, here, COUNT, tuttiFloat, tuttiSum, rank->comm, NULL),
             tuttiSuccess);
    gpu_free(here);
}

TEST(device_graph_errors, a_capture_that_forbids_the_legacy_stream_is_told)
{
    on_gpus_together(1, 1, NULL, legacy);
}

/* The capture of the blocking stream begins in the group of the call. */
static void legacy_in_group(struct gpu_rank *rank)
{
    CUstream blocking = NULL;
    tuttiStream_t stream;
    gpu_use(rank->gpu);
    float *here = (float *)gpu_memory(rank->gpu, COUNT * sizeof *here);
    CALL(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
    CHECK_EQ(tuttiStreamFromDevice(&stream, rank->gpu, CU_STREAM_LEGACY), tuttiSuccess);
    for (int i = 0; i < 2; i++) {
        tuttiStream_t on = i ? stream : NULL;
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        CHECK_EQ(tuttiAllReduce(here, here, COUNT, tuttiFloat, tuttiSum, rank->comm, on),
                 tuttiSuccess);
        capture_begin(blocking, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        check_text(rank, tuttiGroupEnd(), tuttiInvalidUsage, "legacy default stream");
        CALL(cuGraphExecDestroy, capture_end(blocking));
        CHECK_EQ(tuttiAllReduce(here, here, COUNT, tuttiFloat, tuttiSum, rank->comm, on),
                 tuttiSuccess);
        CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
    }
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    CALL(cuStreamDestroy_v2, blocking);
    gpu_free(here);
}

TEST(device_graph_errors, a_capture_in_a_group_that_forbids_the_legacy_stream_is_told)
{
    on_gpus_together(2, 2, NULL, legacy_in_group);
}

/* ---- Forked children ------------------------------------------------------------------------ */

static bool is_refused(void)
{
    tuttiComm_t comm = NULL;
    const tuttiResult_t result = make_alone(&comm);
    return result == tuttiInvalidUsage && strstr(tuttiGetLastError(NULL), "before it forked");
}

/* A communicator is gone, and leaves memory to a graph; then the graph goes. Of the lock that a
 * thread of the parent holds the child would never hear again, and the memory is not the child's.
 */
TEST(device_graph_errors, a_forked_child_leaves_its_parents_graphs_and_is_told_why_it_has_no_gpu)
{
    struct gpu_rank rank = {.nranks = 1};
    struct one one;
    int how = -1;
    REQUIRE(make_alone(&rank.comm) == tuttiSuccess);
    open_one(&rank, &one);
    struct tt_graphs *graphs = rank.comm->core.kernel->graphs;
    pthread_mutex_t *lock = &graphs->lock;
    _Atomic bool *gone = &graphs->list->gone;
    CHECK_EQ(tuttiCommDestroy(rank.comm), tuttiSuccess);
    close_one(&rank, &one);
    while (!atomic_load(gone)) tt_test_pause();
    pthread_mutex_lock(lock);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        const bool good = is_refused();
        if (!good) fprintf(stderr, "in the child: %s\n", tuttiGetLastError(NULL));
        _exit(good ? 0 : 1);
    }
    CHECK(child > 0 && waitpid(child, &how, 0) == child);
    CHECK_MESSAGE(WIFEXITED(how) && WEXITSTATUS(how) == 0, "the child ended with %#x", how);
    pthread_mutex_unlock(lock);
    CHECK_EQ(make_alone(&rank.comm), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(rank.comm), tuttiSuccess);
    gpu_free_all();
}
