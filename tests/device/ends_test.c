/* How calls of the kernel end, as the host sees it in the report: what the host may read then, and
 * what ends without the host. With run_test.c one program. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim.h"
#include "world.h"

enum { NRANKS = 3, COUNT = 700, TURNS = 8, STUCK_S = 40 };

static void make(struct job *job, enum tt_collective collective, const char *algorithm,
                 uint32_t protocol)
{
    *job = (struct job){.algorithm = tt_algorithm_find(collective, algorithm),
                        .nranks = NRANKS,
                        .copies = 2,
                        .count = collective == TT_ALL_REDUCE ? COUNT : 50,
                        .protocol = protocol,
                        .slot_bytes = WORLD_SLOT_BYTES,
                        .line_bytes = WORLD_LINE_BYTES,
                        .reduction = {.type = TT_FLOAT32, .op = TT_SUM, .nranks = NRANKS}};
    REQUIRE(job_make(job));
}

/* Looks without a pause, so that what is read next is read at once. False: it took very long. */
static bool await64(const uint64_t *word, uint64_t value)
{
    const time_t until = time(NULL) + STUCK_S;
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value)
        if (time(NULL) > until) return false;
    return true;
}

static bool await_failure(const struct tt_device_report *report)
{
    const time_t until = time(NULL) + STUCK_S;
    while (!__atomic_load_n(&report->failure, __ATOMIC_ACQUIRE))
        if (time(NULL) > until) return false;
    return true;
}

/* Calls whose output is memory of the host. */
static void run_to_host(struct world *world, struct job *job, float *outputs[NRANKS])
{
    static float ones[COUNT];
    char *inputs[NRANKS];
    struct world_run run;
    const struct world_call call = {.job = job, .signature = 5, .apart = true};
    for (int i = 0; i < COUNT; i++) ones[i] = 1;
    for (int r = 0; r < NRANKS; r++) inputs[r] = (char *)ones;
    world_place(world, &call, inputs, &run);
    for (int r = 0; r < NRANKS; r++) run.batch.calls[r].origin[TT_OUTPUT] = (char *)outputs[r];
    for (uint64_t turn = 1; turn <= TURNS; turn++) {
        for (int r = 0; r < NRANKS; r++) memset(outputs[r], 0, COUNT * sizeof(float));
        world_launch(world, &call, &run);
        for (int r = NRANKS - 1; r >= 0; r--) {
            int nwrong = 0;
            CHECK_MESSAGE(await64(&world->reports[r]->nended, turn), "a call did not end");
            for (int i = 0; i < COUNT; i++) nwrong += outputs[r][i] != NRANKS;
            CHECK_MESSAGE(nwrong == 0, "rank %d: %d of %d elements are not there yet", r, nwrong,
                          COUNT);
        }
        world_wait(world);
    }
    world_remove(world, &run);
}

TEST(run, a_host_that_sees_a_call_ended_finds_its_output)
{
    struct world world;
    struct job job;
    const struct world_config config = {.nranks = NRANKS, .nslots = 4, .reaches = true};
    for (uint32_t p = 0; p < TT_NPROTOCOLS; p++) {
        void *outputs[NRANKS] = {NULL};
        make(&job, TT_ALL_REDUCE, "ring", p);
        REQUIRE(world_open(&world, &config));
        for (int r = 0; r < NRANKS; r++)
            CHECK_EQ(world.cu->MemHostAlloc(&outputs[r], COUNT * sizeof(float),
                                            CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
                     CUDA_SUCCESS);
        run_to_host(&world, &job, (float *[]){outputs[0], outputs[1], outputs[2]});
        for (int r = 0; r < NRANKS; r++) CHECK_EQ(world.cu->MemFreeHost(outputs[r]), CUDA_SUCCESS);
        world_close(&world);
        job_clear(&job);
    }
}

/* Launches once; the caller says abort. */
static void launch_failing(struct world *world, const struct world_call *call,
                           struct world_run *run)
{
    static char zeros[4096];
    char *inputs[NRANKS] = {zeros, zeros, zeros};
    world_place(world, call, inputs, run);
    world_launch(world, call, run);
}

/* A reduction to rank 0, whose message from rank 1 is another call's. */
static void fail_at_root(struct world *world, struct job *job, unsigned absent,
                         void (*look)(const struct tt_device_report *report))
{
    const struct world_config config = {.nranks = NRANKS, .nslots = 4, .reaches = true};
    const struct world_call call = {
        .job = job, .signature = 5, .other = 2, .absent = absent, .apart = true};
    struct world_run run;
    REQUIRE(world_open(world, &config));
    launch_failing(world, &call, &run);
    look(world->reports[0]);
    world_abort(world, 1);
    world_wait(world);
    world_remove(world, &run);
    world_close(world);
}

static void look_at_failure(const struct tt_device_report *report)
{
    CHECK_MESSAGE(await_failure(report), "no failure was reported");
    CHECK_EQ(report->peer, 1);
}

static void look_at_end(const struct tt_device_report *report)
{
    CHECK_MESSAGE(await64(&report->nended, 1), "the call did not end by itself");
    CHECK_EQ(__atomic_load_n(&report->failure, __ATOMIC_ACQUIRE), TT_DEVICE_MISMATCH);
    CHECK_EQ(report->peer, 1);
}

TEST(run, a_host_that_sees_a_failure_finds_the_peer)
{
    struct world world;
    struct job job;
    for (uint32_t p = 0; p < TT_NPROTOCOLS; p++) {
        make(&job, TT_REDUCE, "direct", p);
        for (int i = 0; i < TURNS / 2; i++) fail_at_root(&world, &job, 0, look_at_failure);
        job_clear(&job);
    }
}

/* Rank 2 never comes: the thread that waits for its message must hear of the other thread's
 * failure. */
TEST(run, a_failure_ends_the_other_waits_of_its_rank_and_is_there_when_the_call_has_ended)
{
    struct world world;
    struct job job;
    for (uint32_t p = 0; p < TT_NPROTOCOLS; p++) {
        make(&job, TT_REDUCE, "direct", p);
        for (int i = 0; i < TURNS / 2; i++) fail_at_root(&world, &job, 4, look_at_end);
        job_clear(&job);
    }
}
