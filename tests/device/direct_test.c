/* Calls that are launched on the user's stream: what reads the rank's own stream elsewhere must
 * know of them. */
#include <pthread.h>

#include "graphs.h"
#include "shim.h"

enum { COUNT = 300, NSTREAMS = 2 };

/* A rank's numbers, of which its calls make sums in place. */
struct part {
    const struct gpu_rank *rank;
    struct both streams[NSTREAMS];
    int *numbers;
};

static void open_part(struct part *part, const struct gpu_rank *rank)
{
    int data[COUNT];
    *part = (struct part){.rank = rank};
    streams_create(rank, part->streams, NSTREAMS);
    part->numbers = (int *)gpu_memory(rank->gpu, sizeof data);
    for (int i = 0; i < COUNT; i++) data[i] = rank->rank + 1;
    gpu_write(rank->gpu, part->numbers, data, sizeof data);
}

static void issue_sum(const struct part *part, const struct both *stream)
{
    CHECK_EQ(tuttiAllReduce(part->numbers, part->numbers, COUNT, tuttiInt32, tuttiSum,
                            part->rank->comm, stream->tutti),
             tuttiSuccess);
}

/* After so many sums of 1 and 2. */
static void check_sums(const struct part *part, int nsums)
{
    int data[COUNT], expected = 3, nwrong = 0;
    for (int i = 1; i < nsums; i++) expected *= 2;
    gpu_read(part->rank->gpu, data, part->numbers, sizeof data);
    for (int i = 0; i < COUNT; i++) nwrong += data[i] != expected;
    CHECK_MESSAGE(!nwrong, "rank %d: %d numbers are wrong, the first is %d, expected %d",
                  part->rank->rank, nwrong, data[0], expected);
}

/* The first rank's streams wait for others; what is behind begins when all ranks are there. */
static void block(const struct part *part, const struct both *stream)
{
    if (part->rank->rank == 0) gpu_block(part->rank->gpu, stream->cuda);
}

static void unblock(const struct part *part)
{
    pthread_barrier_wait(part->rank->arg);
    if (part->rank->rank == 0) gpu_unblock();
}

static void close_part(struct part *part)
{
    streams_destroy(part->rank, part->streams, NSTREAMS);
    gpu_free(part->numbers);
}

/* ---- Calls on other streams ------------------------------------------------------------------ */

static void change_streams(struct gpu_rank *rank)
{
    struct part part;
    open_part(&part, rank);
    block(&part, &part.streams[0]);
    for (int i = 0; i < 6; i++) issue_sum(&part, &part.streams[i / 2 % NSTREAMS]);
    unblock(&part);
    for (int i = 0; i < NSTREAMS; i++)
        CHECK_EQ(tuttiStreamSynchronize(part.streams[i].tutti), tuttiSuccess);
    check_sums(&part, 6);
    close_part(&part);
}

TEST(direct, calls_on_other_streams_follow_those_that_wait_on_the_first)
{
    on_gpus_together(2, 2, NULL, change_streams);
    on_gpus_together(2, 1, NULL, change_streams);
}

/* Without a stream it is launched on the rank's own, which does not know of the user's. */
static void call_without_a_stream(struct gpu_rank *rank)
{
    struct part part;
    const struct both none = {.tutti = NULL};
    open_part(&part, rank);
    issue_sum(&part, &part.streams[0]);
    issue_sum(&part, &none);
    issue_sum(&part, &part.streams[1]);
    CHECK_EQ(tuttiStreamSynchronize(part.streams[1].tutti), tuttiSuccess);
    check_sums(&part, 3);
    close_part(&part);
}

TEST(direct, calls_without_a_stream_come_between_calls_on_streams)
{
    on_gpus_together(2, 2, NULL, call_without_a_stream);
}

static void *issue_apart(void *argument)
{
    const struct part *part = argument;
    gpu_use(part->rank->gpu);
    issue_sum(part, &part->streams[0]);
    CHECK_EQ(tuttiStreamSynchronize(part->streams[0].tutti), tuttiSuccess);
    return NULL;
}

/* One handle, and two streams: the second thread's does not wait for the first one's. */
static void call_from_two_threads(struct gpu_rank *rank)
{
    struct part part, each;
    pthread_t thread;
    open_part(&part, rank);
    each = part;
    if (rank->rank == 0) {
        each.streams[0].cuda = CU_STREAM_PER_THREAD;
        CHECK_EQ(tuttiStreamFromDevice(&each.streams[0].tutti, rank->gpu, CU_STREAM_PER_THREAD),
                 tuttiSuccess);
    }
    block(&each, &each.streams[0]);
    issue_sum(&each, &each.streams[0]);
    REQUIRE(pthread_create(&thread, NULL, issue_apart, &each) == 0);
    unblock(&part);
    pthread_join(thread, NULL);
    CHECK_EQ(tuttiStreamSynchronize(each.streams[0].tutti), tuttiSuccess);
    check_sums(&part, 2);
    if (rank->rank == 0) CHECK_EQ(tuttiStreamDestroy(each.streams[0].tutti), tuttiSuccess);
    close_part(&part);
}

TEST(direct, calls_of_two_threads_on_their_default_streams_follow_one_another)
{
    on_gpus_together(2, 2, NULL, call_from_two_threads);
}

/* Work on the legacy default stream and on a blocking stream waits for one another: neither rank's
 * kernel may wait there for the other one's. */
TEST(direct, ranks_of_a_group_on_streams_that_wait_for_one_another)
{
    enum { RANKS = 2 };
    struct gpu_rank ranks[RANKS];
    struct part parts[RANKS];
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiUniqueId id;
    config.device = 0;
    config.timeoutMs = 5000;
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct gpu_rank){.rank = r, .nranks = RANKS};
        CHECK_EQ(tuttiCommInitRankConfig(&ranks[r].comm, RANKS, id, r, &config), tuttiSuccess);
    }
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    for (int r = 0; r < RANKS; r++) {
        CUstream blocking = NULL;
        open_part(&parts[r], &ranks[r]);
        if (r) CALL(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
        parts[r].streams[1].cuda = blocking;
        CHECK_EQ(tuttiStreamDestroy(parts[r].streams[1].tutti), tuttiSuccess);
        CHECK_EQ(tuttiStreamFromDevice(&parts[r].streams[1].tutti, 0, blocking), tuttiSuccess);
    }
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < 3; i++)
        for (int r = 0; r < RANKS; r++) issue_sum(&parts[r], &parts[r].streams[1 - i % 2]);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < RANKS; r++) issue_sum(&parts[r], &parts[r].streams[1]);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    for (int r = 0; r < RANKS; r++) {
        CHECK_EQ(tuttiStreamSynchronize(parts[r].streams[1].tutti), tuttiSuccess);
        check_sums(&parts[r], 4);
    }
    for (int r = 0; r < RANKS; r++) {
        CHECK_EQ(tuttiCommDestroy(ranks[r].comm), tuttiSuccess);
        gpu_free(parts[r].numbers);
        CHECK_EQ(tuttiStreamDestroy(parts[r].streams[0].tutti), tuttiSuccess);
        CHECK_EQ(tuttiStreamDestroy(parts[r].streams[1].tutti), tuttiSuccess);
        if (r) CALL(cuStreamDestroy_v2, parts[r].streams[1].cuda);
    }
    gpu_free_all();
}

/* ---- The end --------------------------------------------------------------------------------- */

static void *unblock_later(void *argument)
{
    unblock(argument);
    return NULL;
}

/* The rank's own stream is idle; its memory is used by a call that waits on the user's. */
static void destroy_behind(struct gpu_rank *rank)
{
    struct part part;
    pthread_t thread;
    open_part(&part, rank);
    issue_sum(&part, &part.streams[0]);
    block(&part, &part.streams[0]);
    issue_sum(&part, &part.streams[0]);
    REQUIRE(pthread_create(&thread, NULL, unblock_later, &part) == 0);
    CHECK_EQ(tuttiCommDestroy(rank->comm), tuttiSuccess);
    rank->comm = NULL;
    pthread_join(thread, NULL);
    CHECK_EQ(tuttiStreamSynchronize(part.streams[0].tutti), tuttiSuccess);
    check_sums(&part, 2);
    close_part(&part);
}

TEST(direct, a_communicator_that_is_destroyed_waits_for_calls_on_the_users_stream)
{
    on_gpus_together(2, 2, NULL, destroy_behind);
    on_gpus_together(2, 1, NULL, destroy_behind);
}

/* ---- Graphs ---------------------------------------------------------------------------------- */

/* The first captured call of the communicator comes after calls that were launched on the user's
 * stream, and so does its replay. */
static void capture_behind(struct gpu_rank *rank)
{
    struct part part;
    open_part(&part, rank);
    block(&part, &part.streams[0]);
    issue_sum(&part, &part.streams[0]);
    capture_begin(part.streams[1].cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    issue_sum(&part, &part.streams[1]);
    const CUgraph captured = capture_stop(part.streams[1].cuda);
    pthread_barrier_wait(rank->arg); /* nobody captures */
    const CUgraphExec graph = graph_make(captured);
    CALL(cuGraphLaunch, graph, part.streams[1].cuda);
    issue_sum(&part, &part.streams[0]);
    unblock(&part);
    for (int i = 0; i < NSTREAMS; i++)
        CHECK_EQ(tuttiStreamSynchronize(part.streams[i].tutti), tuttiSuccess);
    check_sums(&part, 3);
    CALL(cuGraphExecDestroy, graph);
    close_part(&part);
}

TEST(direct, the_first_replay_follows_calls_that_wait_on_the_users_stream)
{
    on_gpus_together(2, 2, NULL, capture_behind);
    on_gpus_together(2, 1, NULL, capture_behind);
}

/* ---- Streams that are gone ------------------------------------------------------------------- */

/* The driver may give a later stream the same handle. */
static void destroy_stream(struct gpu_rank *rank)
{
    struct part part;
    open_part(&part, rank);
    block(&part, &part.streams[0]);
    issue_sum(&part, &part.streams[0]);
    gpu_stream_destroy(rank->gpu, part.streams[0].cuda);
    part.streams[0].cuda = gpu_stream(rank->gpu);
    struct both later = {.cuda = part.streams[0].cuda};
    CHECK_EQ(tuttiStreamFromDevice(&later.tutti, rank->gpu, later.cuda), tuttiSuccess);
    issue_sum(&part, &later);
    issue_sum(&part, &part.streams[1]);
    unblock(&part);
    CHECK_EQ(tuttiStreamSynchronize(part.streams[1].tutti), tuttiSuccess);
    check_sums(&part, 3);
    CHECK_EQ(tuttiStreamDestroy(later.tutti), tuttiSuccess);
    close_part(&part);
}

TEST(direct, the_user_may_destroy_a_stream_while_a_call_runs_on_it)
{
    on_gpus_together(2, 2, NULL, destroy_stream);
    on_gpus_together(2, 1, NULL, destroy_stream);
}
