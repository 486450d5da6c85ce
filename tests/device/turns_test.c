/* Several communicators on a GPU that cannot hold the blocks of all their calls at the same time:
 * those that find no room take turns. The GPU has one multiprocessor. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "calls_on_gpu.h"
#include "communicator/communicator.h"
#include "carrier/kernel/kernel.h"
#include "graphs.h"
#include "shim.h"

/* Ranks that are threads, communicators, and numbers that a call adds up. */
enum { RANKS = 2, COMMS = 6, N = 500 };

/* What a rank has of each communicator. */
struct part {
    int gpu, rank, ncomms;
    tuttiComm_t comms[COMMS];
    int *memory[COMMS];
    void *device_streams[COMMS];
    tuttiStream_t streams[COMMS];
};

static void take_memory_of(struct part *part, int c)
{
    part->memory[c] = (int *)gpu_memory(part->gpu, N * sizeof(int));
    part->device_streams[c] = gpu_stream(part->gpu);
    CHECK_EQ(tuttiStreamFromDevice(&part->streams[c], part->gpu, part->device_streams[c]),
             tuttiSuccess);
}

static void take_memory(struct part *part)
{
    for (int c = 0; c < part->ncomms; c++) take_memory_of(part, c);
}

static void fill_of(struct part *part, int c)
{
    gpu_fill(part->gpu, part->device_streams[c], part->memory[c],
             (unsigned)(1 + c + 10 * part->rank), N);
}

static void fill(struct part *part)
{
    for (int c = 0; c < part->ncomms; c++) fill_of(part, c);
}

static void check_success(const struct part *part, tuttiResult_t result, const char *what)
{
    CHECK_MESSAGE(result == tuttiSuccess, "rank %d: %s: %s", part->rank, what,
                  tuttiGetLastError(NULL));
}

/* In place, each communicator on a stream of its own. */
static void issue(struct part *part, int c)
{
    check_success(part,
                  tuttiAllReduce(part->memory[c], part->memory[c], N, tuttiInt32, tuttiSum,
                                 part->comms[c], part->streams[c]),
                  "all-reduce");
}

static void check(struct part *part, int nranks, int ncalls)
{
    static _Thread_local int data[N];
    for (int c = 0; c < part->ncomms; c++) {
        int expected = 0, nwrong = 0;
        for (int r = 0; r < nranks; r++) expected += 1 + c + 10 * r;
        for (int i = 1; i < ncalls; i++) expected *= nranks;
        check_success(part, tuttiStreamSynchronize(part->streams[c]), "synchronize");
        gpu_read(part->gpu, data, part->memory[c], sizeof data);
        for (int i = 0; i < N; i++) nwrong += data[i] != expected;
        CHECK_EQ(nwrong, 0);
    }
}

/* end: tuttiCommDestroy or tuttiCommAbort. */
static void give_memory_by(struct part *part, tuttiResult_t (*end)(tuttiComm_t comm))
{
    for (int c = 0; c < part->ncomms; c++) {
        CHECK_EQ(tuttiStreamDestroy(part->streams[c]), tuttiSuccess);
        gpu_stream_destroy(part->gpu, part->device_streams[c]);
        gpu_free(part->memory[c]);
        CHECK_EQ(end(part->comms[c]), tuttiSuccess);
    }
}

static void give_memory(struct part *part)
{
    give_memory_by(part, tuttiCommDestroy);
}

/* ---- Ranks that are threads ----------------------------------------------------------------- */

struct job {
    tuttiUniqueId ids[COMMS];
    bool splits; /* the communicators are split from the first */
    pthread_barrier_t all;
};

struct thread {
    struct part part;
    struct job *job;
    void (*body)(struct thread *thread);
};

static void make_comm(struct thread *thread, int c)
{
    struct part *part = &thread->part;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = part->gpu;
    check_success(part,
                  c && thread->job->splits
                      ? tuttiCommSplit(part->comms[0], 0, 0, &part->comms[c], NULL)
                      : tuttiCommInitRankConfig(&part->comms[c], RANKS, thread->job->ids[c],
                                                part->rank, &config),
                  "init");
}

static void make_comms(struct thread *thread)
{
    for (int c = 0; c < thread->part.ncomms; c++) make_comm(thread, c);
}

static void *run(void *argument)
{
    struct thread *thread = argument;
    make_comms(thread);
    take_memory(&thread->part);
    fill(&thread->part);
    thread->body(thread);
    pthread_barrier_wait(&thread->job->all);
    give_memory(&thread->part);
    return NULL;
}

static void with_some_comms(int ncomms, bool splits, void (*body)(struct thread *thread))
{
    struct job job = {.splits = splits};
    struct thread threads[RANKS];
    pthread_t handles[RANKS];
    pthread_barrier_init(&job.all, NULL, RANKS);
    for (int c = 0; c < COMMS; c++) CHECK_EQ(tuttiGetUniqueId(&job.ids[c]), tuttiSuccess);
    for (int r = 0; r < RANKS; r++) {
        threads[r] =
            (struct thread){.part = {.rank = r, .ncomms = ncomms}, .job = &job, .body = body};
        CHECK(pthread_create(&handles[r], NULL, run, &threads[r]) == 0);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(handles[r], NULL);
    pthread_barrier_destroy(&job.all);
    await_gone_graphs(0);
    gpu_free_all();
}

static void with_threads(bool splits, void (*body)(struct thread *thread))
{
    with_some_comms(COMMS, splits, body);
}

/* The kernels of one rank would take all of the GPU, and wait for those of the other. */
static void one_after_the_other(struct thread *thread)
{
    for (int r = 0; r < RANKS; r++) {
        for (int c = 0; r == thread->part.rank && c < COMMS; c++) issue(&thread->part, c);
        pthread_barrier_wait(&thread->job->all);
    }
    check(&thread->part, RANKS, 1);
}

TEST(turns, communicators_whose_calls_do_not_fit_together_take_turns)
{
    with_threads(false, one_after_the_other);
}

TEST(turns, split_communicators_take_turns_with_their_parent)
{
    with_threads(true, one_after_the_other);
}

/* Rank 0's calls are a group of several launches, which must not alternate: rank 1 makes all calls
 * of one communicator before those of the next. */
static void one_in_a_group(struct thread *thread)
{
    enum { CALLS = 10 };
    const bool groups = thread->part.rank == 0;
    if (groups) CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int c = 0; c < COMMS; c++)
        for (int i = 0; i < CALLS; i++) issue(&thread->part, c);
    if (groups) CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    check(&thread->part, RANKS, CALLS);
}

TEST(turns, a_group_launches_all_calls_of_a_communicator_before_the_next_ones)
{
    with_threads(false, one_in_a_group);
}

/* The first communicator's call is launched on the user's stream, which waits; the others join its
 * share, and their calls come after it. */
static void join_behind(struct thread *thread)
{
    struct part *part = &thread->part;
    if (part->rank == 0) gpu_block(part->gpu, part->device_streams[0]);
    issue(part, 0);
    for (int c = part->ncomms; c < COMMS; c++) {
        make_comm(thread, c);
        take_memory_of(part, c);
        fill_of(part, c);
        part->ncomms = c + 1;
        issue(part, c);
    }
    pthread_barrier_wait(&thread->job->all);
    if (part->rank == 0) gpu_unblock();
    check(part, RANKS, 1);
}

TEST(turns, communicators_that_join_a_share_come_after_calls_on_the_users_stream)
{
    with_some_comms(1, false, join_behind);
}

/* ---- Captured ------------------------------------------------------------------------------- */

/* Each call is a graph of its own, or all are branches of one, which nothing but their turns puts
 * in an order. Returns the number of graphs. */
static int capture_each(struct part *part, CUgraphExec *graphs)
{
    for (int c = 0; c < COMMS; c++) {
        capture_begin(part->device_streams[c], CU_STREAM_CAPTURE_MODE_RELAXED);
        issue(part, c);
        graphs[c] = capture_end(part->device_streams[c]);
    }
    return COMMS;
}

static int capture_together(struct part *part, CUgraphExec *graphs)
{
    CUevent event = NULL;
    CUstream first = part->device_streams[0];
    CALL(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    capture_begin(first, CU_STREAM_CAPTURE_MODE_RELAXED);
    CALL(cuEventRecord, event, first);
    for (int c = 1; c < COMMS; c++) CALL(cuStreamWaitEvent, part->device_streams[c], event, 0);
    for (int c = 0; c < COMMS; c++) issue(part, c);
    for (int c = 1; c < COMMS; c++) {
        CALL(cuEventRecord, event, part->device_streams[c]);
        CALL(cuStreamWaitEvent, first, event, 0);
    }
    graphs[0] = capture_end(first);
    CALL(cuEventDestroy_v2, event);
    return 1;
}

/* Replays, and the same calls without graphs behind them. */
static void replay_with(struct thread *thread,
                        int (*capture)(struct part *part, CUgraphExec *graphs))
{
    struct part *part = &thread->part;
    CUgraphExec graphs[COMMS];
    gpu_use(part->gpu);
    for (int c = 0; c < COMMS; c++) CALL(cuStreamSynchronize, part->device_streams[c]);
    const int n = capture(part, graphs);
    for (int r = 0; r < RANKS; r++) {
        for (int g = 0; r == part->rank && g < n; g++)
            CALL(cuGraphLaunch, graphs[g], part->device_streams[g]);
        for (int c = 0; r == part->rank && n > 1 && c < COMMS; c++) issue(part, c);
        pthread_barrier_wait(&thread->job->all);
    }
    check(part, RANKS, n > 1 ? 2 : 1);
    for (int g = 0; g < n; g++) CALL(cuGraphExecDestroy, graphs[g]);
}

static void replay_each(struct thread *thread)
{
    replay_with(thread, capture_each);
}

static void replay_together(struct thread *thread)
{
    replay_with(thread, capture_together);
}

TEST(turns, replays_take_turns_with_calls_and_one_another)
{
    with_threads(false, replay_each);
}

TEST(turns, branches_of_one_graph_take_turns)
{
    with_threads(true, replay_together);
}

/* A communicator has shares until its graphs are gone. Others that are made meanwhile, perhaps with
 * memory that it gave back, have nothing to do with these. */
TEST(turns, a_communicator_that_is_gone_keeps_its_shares_until_its_graphs_are)
{
    enum { GRAPHS = 30 };
    CUgraphExec graphs[GRAPHS];
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = 0;
    gpu_use(0);
    for (int i = 0; i < GRAPHS; i++) {
        struct part part = {.ncomms = 1};
        tuttiUniqueId id;
        CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
        REQUIRE(tuttiCommInitRankConfig(&part.comms[0], 1, id, 0, &config) == tuttiSuccess);
        REQUIRE(part.comms[0]->core.kernel != NULL);
        CHECK_EQ(part.comms[0]->core.kernel->place.team->nmembers, 1);
        take_memory(&part);
        capture_begin(part.device_streams[0], CU_STREAM_CAPTURE_MODE_RELAXED);
        issue(&part, 0);
        graphs[i] = capture_end(part.device_streams[0]);
        /* A destroy waits two seconds for a graph that is kept (carrier/launched.h). */
        give_memory_by(&part, i ? tuttiCommAbort : tuttiCommDestroy);
    }
    for (int i = 0; i < GRAPHS; i++) CALL(cuGraphExecDestroy, graphs[i]);
    await_gone_graphs(0);
    gpu_free_all();
}

/* ---- Ranks that one thread drives ----------------------------------------------------------- */

/* All calls of a rank before those of the other. */
TEST(turns, a_group_of_one_threads_ranks_ends)
{
    enum { CALLS = 2 };
    struct part parts[RANKS];
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = 0;
    for (int r = 0; r < RANKS; r++) parts[r] = (struct part){.rank = r, .ncomms = COMMS};
    for (int c = 0; c < COMMS; c++) {
        tuttiUniqueId id;
        CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        for (int r = 0; r < RANKS; r++)
            CHECK_EQ(tuttiCommInitRankConfig(&parts[r].comms[c], RANKS, id, r, &config),
                     tuttiSuccess);
        CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    }
    for (int r = 0; r < RANKS; r++) take_memory(&parts[r]);
    for (int r = 0; r < RANKS; r++) fill(&parts[r]);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < RANKS; r++)
        for (int c = 0; c < COMMS; c++)
            for (int i = 0; i < CALLS; i++) issue(&parts[r], c);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    for (int r = 0; r < RANKS; r++) check(&parts[r], RANKS, CALLS);
    for (int r = 0; r < RANKS; r++) give_memory(&parts[r]);
    gpu_free_all();
}

/* ---- What a rank says of itself ------------------------------------------------------------- */

static void find_links(void *found, const char *line)
{
    double mib = 0;
    int most = 0, nblocks = 0;
    const char *at = strstr(line, "by kernels of ");
    if (!at || sscanf(at, "by kernels of at most %d blocks; its links have %lf MiB of %d MiB",
                      &nblocks, &mib, &most) != 3)
        return;
    *(bool *)found = nblocks == 2 && mib > 0 && mib <= most && most == 256;
}

static void describe_links(struct gpu_rank *rank)
{
    bool found = false;
    CHECK_EQ(tuttiDescribe(tuttiDescribeLinks, rank->comm, find_links, &found), tuttiSuccess);
    CHECK(found);
}

TEST(turns, a_rank_says_how_many_blocks_and_how_much_memory_it_has)
{
    on_gpus(RANKS, 1, NULL, describe_links, NULL);
}

/* ---- No room -------------------------------------------------------------------------------- */

static void find_reason(void *found, const char *line)
{
    *(bool *)found =
        *(bool *)found ||
        strstr(line, "communicators of this process have 4 of the 4 blocks of threads") ||
        strstr(line, "kernels cannot run for rank"); /* as the others are told */
}

/* Of threads that have no rank with whose calls those of the communicator could take turns. */
static void call_through_the_host(struct gpu_rank *rank)
{
    bool found = false;
    int data[4] = {1, 2, 3, 4};
    int *memory = (int *)gpu_memory(rank->gpu, sizeof data);
    gpu_write(rank->gpu, memory, data, sizeof data);
    CHECK_EQ(tuttiAllReduce(memory, memory, 4, tuttiInt32, tuttiSum, rank->comm, NULL),
             tuttiSuccess);
    gpu_read(rank->gpu, data, memory, sizeof data);
    CHECK_EQ(data[3], 8);
    CHECK_EQ(tuttiDescribe(tuttiDescribeLinks, rank->comm, find_reason, &found), tuttiSuccess);
    CHECK(found);
    gpu_free(memory);
}

static void others_call(struct thread *thread)
{
    if (thread->part.rank == 0) on_gpus(RANKS, 1, NULL, call_through_the_host, NULL);
    pthread_barrier_wait(&thread->job->all);
    one_after_the_other(thread);
}

TEST(turns, a_communicator_without_room_or_turns_goes_through_the_host)
{
    setenv("TUTTI_DEVICE_KERNELS", "1", 1); /* which these tests require otherwise */
    tt_config_reload();
    with_threads(false, others_call);
    setenv("TUTTI_DEVICE_KERNELS", "require", 1);
    tt_config_reload();
}
