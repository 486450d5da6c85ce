/* Calls of tutti.h on GPUs, captured ones too, while the counts of their links pass 2^31 and 2^32.
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/config.h"
#include "communicator/communicator.h"
#include "carrier/kernel/kernel.h"
#include "counts.h"
#include "graphs.h"

enum { NBOUNDARIES = 2, NCALLS = 5, NREPLAYS = 4, COUNT = 1000 };

static const uint32_t boundaries[NBOUNDARIES] = {1u << 31, 0};

static void read_memory(void *arg, void *to, const void *from, size_t nbytes)
{
    gpu_read(*(const int *)arg, to, from, nbytes);
}

static void write_memory(void *arg, void *to, const void *from, size_t nbytes)
{
    gpu_write(*(const int *)arg, to, from, nbytes);
}

/* By all ranks. */
static void count_from(struct gpu_rank *rank, uint32_t count)
{
    const struct counts_access access = {read_memory, write_memory, &rank->gpu};
    pthread_barrier_wait(rank->arg);
    counts_set(tt_device_room_links(rank->comm->core.kernel->room), &access, count, true);
    pthread_barrier_wait(rank->arg);
}

static void pass_by_calls(struct gpu_rank *rank, uint32_t boundary)
{
    for (uint32_t k = 1; k <= 3; k += 2) {
        count_from(rank, boundary - k);
        CHECK_EQ(random_calls_on_gpu(rank, boundary + k, NCALLS), 0);
    }
}

/* Replays of an all-reduce by lines, one by slots, and a send and a receive. */
static void pass_by_graph(struct gpu_rank *rank, uint32_t boundary)
{
    static const int kinds[] = {tuttiCollAllReduce, tuttiCollAllReduce, EXCHANGE};
    static const size_t counts[] = {5, COUNT, COUNT};
    enum { N = 3 };
    struct both stream;
    struct placed placed[N];
    streams_create(rank, &stream, 1);
    for (int i = 0; i < N; i++) {
        const struct call call = {.kind = kinds[i],
                                  .count = counts[i],
                                  .type = tuttiInt32,
                                  .op = tuttiSum,
                                  .root = 1,
                                  .nranks = rank->nranks};
        place_call(&placed[i], rank, &call, 0);
    }
    capture_begin(stream.cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (int i = 0; i < N; i++) CHECK_EQ(issue_call(&placed[i], stream.tutti), tuttiSuccess);
    CUgraphExec graph = capture_end(stream.cuda);
    count_from(rank, boundary - 5);
    for (uint64_t turn = 1; turn <= NREPLAYS; turn++) {
        for (int i = 0; i < N; i++) renew(&placed[i], turn);
        replay(graph, stream.cuda);
        for (int i = 0; i < N; i++)
            CHECK_MESSAGE(is_right(&placed[i]), "rank %d: replay %d past %#x is wrong: %s",
                          rank->rank, (int)turn, boundary, call_text(&placed[i].call));
    }
    CALL(cuGraphExecDestroy, graph);
    for (int i = 0; i < N; i++) (void)check_call(&placed[i]);
    streams_destroy(rank, &stream, 1);
}

static void pass(struct gpu_rank *rank)
{
    for (int i = 0; i < NBOUNDARIES; i++) {
        pass_by_calls(rank, boundaries[i]);
        pass_by_graph(rank, boundaries[i]);
    }
    for (int kind = 0; kind < tuttiCollBarrier; kind++)
        CHECK_EQ(tuttiCommSetAlgorithm(rank->comm, (tuttiCollective_t)kind, "meet"), tuttiSuccess);
    for (int i = 0; i < NBOUNDARIES; i++) pass_by_calls(rank, boundaries[i]);
}

TEST(device_wrap, calls_and_graphs_are_right_while_counts_pass_their_ends)
{
    static const char *const slots[] = {"2", "8"};
    setenv("TUTTI_DEVICE_LINE_BYTES", "2K", 1);
    for (int i = 0; i < 2 && !tt_test_failed(); i++) {
        setenv("TUTTI_DEVICE_SLOTS", slots[i], 1);
        tt_config_reload();
        on_gpus_together(3, 2, NULL, pass);
    }
    unsetenv("TUTTI_DEVICE_SLOTS");
    unsetenv("TUTTI_DEVICE_LINE_BYTES");
    tt_config_reload();
}
