/* Several communicators on a GPU that cannot hold the blocks of all their calls at the same time:
 * those that find no room take turns. The GPU has one multiprocessor. */
#include <pthread.h>
#include <string.h>

#include "calls_on_gpu.h"
#include "graphs.h"
#include "shim.h"

/* Ranks that are threads, communicators, and numbers that a call adds up: enough for two blocks. */
enum { RANKS = 2, COMMS = 6, N = 6000 };

/* What a rank has of each communicator. */
struct part {
    int gpu, rank, ncomms;
    tuttiComm_t comms[COMMS];
    int *memory[COMMS];
    void *device_streams[COMMS];
    tuttiStream_t streams[COMMS];
};

static void take_memory(struct part *part)
{
    static int data[N];
    for (int c = 0; c < part->ncomms; c++) {
        part->memory[c] = (int *)gpu_memory(part->gpu, sizeof data);
        part->device_streams[c] = gpu_stream(part->gpu);
        CHECK_EQ(tuttiStreamFromDevice(&part->streams[c], part->gpu, part->device_streams[c]),
                 tuttiSuccess);
    }
}

static void fill(struct part *part)
{
    for (int c = 0; c < part->ncomms; c++)
        gpu_fill(part->gpu, part->device_streams[c], part->memory[c],
                 (unsigned)(1 + c + 10 * part->rank), N);
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

static void give_memory(struct part *part)
{
    for (int c = 0; c < part->ncomms; c++) {
        CHECK_EQ(tuttiStreamDestroy(part->streams[c]), tuttiSuccess);
        gpu_stream_destroy(part->gpu, part->device_streams[c]);
        gpu_free(part->memory[c]);
        CHECK_EQ(tuttiCommDestroy(part->comms[c]), tuttiSuccess);
    }
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

static void make_comms(struct thread *thread)
{
    struct part *part = &thread->part;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = part->gpu;
    for (int c = 0; c < part->ncomms; c++)
        check_success(part,
                      c && thread->job->splits
                          ? tuttiCommSplit(part->comms[0], 0, 0, &part->comms[c], NULL)
                          : tuttiCommInitRankConfig(&part->comms[c], RANKS, thread->job->ids[c],
                                                    part->rank, &config),
                      "init");
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

static void with_threads(bool splits, void (*body)(struct thread *thread))
{
    struct job job = {.splits = splits};
    struct thread threads[RANKS];
    pthread_t handles[RANKS];
    pthread_barrier_init(&job.all, NULL, RANKS);
    for (int c = 0; c < COMMS; c++) CHECK_EQ(tuttiGetUniqueId(&job.ids[c]), tuttiSuccess);
    for (int r = 0; r < RANKS; r++) {
        threads[r] =
            (struct thread){.part = {.rank = r, .ncomms = COMMS}, .job = &job, .body = body};
        CHECK(pthread_create(&handles[r], NULL, run, &threads[r]) == 0);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(handles[r], NULL);
    pthread_barrier_destroy(&job.all);
    gpu_free_all();
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
