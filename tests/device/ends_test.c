/* How calls of the kernel end, as the host sees it in the report: what the host may read then, and
 * what ends without the host. With run_test.c one program. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim.h"
#include "world.h"

enum { NRANKS = 3, COUNT = 700, TURNS = 8, STUCK_S = 40 };

static void make(struct job *job, enum tt_collective collective, const char *algorithm,
                 uint32_t protocol, int copies)
{
    *job = (struct job){.algorithm = tt_algorithm_find(collective, algorithm),
                        .nranks = NRANKS,
                        .copies = copies,
                        .count = collective == TT_REDUCE ? 50 : COUNT,
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

/* Launches all ranks at once: what they store reaches the host late and in any order, until the
 * last of them ends. */
static void launch(struct world *world, struct job *job, unsigned absent, struct world_run *run)
{
    static float ones[COUNT];
    char *inputs[NRANKS];
    const struct world_config config = {.nranks = NRANKS, .nslots = 4, .reaches = true};
    const struct world_call call = {
        .job = job, .signature = 5, .absent = absent, .reference_bytes = SIZE_MAX};
    for (int i = 0; i < COUNT; i++) ones[i] = 1;
    for (int r = 0; r < NRANKS; r++) inputs[r] = (char *)ones;
    REQUIRE(world_open(world, &config));
    world_place(world, &call, inputs, run);
    for (int r = 0; r < NRANKS; r++) run->batch.calls[r].number = 1;
}

/* memory: of the host; NULL: none. */
static void end(struct world *world, struct world_run *run, void *memory)
{
    world_abort(world, 1);
    world_wait(world);
    world_remove(world, run);
    if (memory) CHECK_EQ(world->cu->MemFreeHost(memory), CUDA_SUCCESS);
    world_close(world);
}

static float *host_memory(const struct world *world)
{
    void *memory = NULL;
    CHECK_EQ(world->cu->MemHostAlloc(&memory, COUNT * sizeof(float),
                                     CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
             CUDA_SUCCESS);
    memset(memory, 0, COUNT * sizeof(float));
    return memory;
}

static int count_of(const float *output, float value)
{
    int n = 0;
    for (int i = 0; i < COUNT; i++) n += output[i] == value;
    return n;
}

/* A broadcast along a line, of which rank 1 is absent: rank 0 ends, rank 2 waits. */
static void end_first(struct job *job)
{
    struct world world;
    struct world_run run;
    launch(&world, job, 2, &run);
    float *output = host_memory(&world);
    run.batch.calls[0].origin[TT_OUTPUT] = (char *)output;
    world_launch(&world, &(struct world_call){.job = job}, &run);
    CHECK_MESSAGE(await64(&world.reports[0]->ended, 1), "the call of rank 0 did not end");
    CHECK_EQ(count_of(output, 1), COUNT);
    end(&world, &run, output);
}

TEST(run, a_host_that_sees_a_call_ended_finds_its_output)
{
    struct job job;
    for (uint32_t p = 0; p < TT_NPROTOCOLS; p++) {
        make(&job, TT_BROADCAST, "chain", p, 2);
        for (int i = 0; i < TURNS; i++) end_first(&job);
        job_clear(&job);
    }
}

/* The second call of rank 1 is another one. Rank 2, which takes from it, fails; rank 0 waits. */
static void fail_second(struct job *job)
{
    struct world world;
    struct world_run run;
    const struct world_call call = {.job = job};
    launch(&world, job, 0, &run);
    const struct tt_device_report *report = world.reports[2];
    world_launch(&world, &call, &run);
    for (int r = 0; r < NRANKS; r++) {
        run.batch.calls[r].number = 2;
        run.batch.calls[r].signature += r == 1;
    }
    world_launch(&world, &call, &run);
    CHECK_MESSAGE(await_failure(report), "no failure was reported");
    const int32_t peer = report->peer;
    const uint64_t sound = report->sound;
    CHECK_EQ(peer, 1);
    CHECK_EQ(sound, 1);
    end(&world, &run, NULL);
}

TEST(run, a_host_that_sees_a_failure_finds_the_peer_and_which_calls_came_before)
{
    struct job job;
    for (uint32_t p = 0; p < TT_NPROTOCOLS; p++) {
        make(&job, TT_ALL_REDUCE, "ring", p, 2);
        for (int i = 0; i < 2; i++) fail_second(&job);
        job_clear(&job);
    }
}

/* A reduction to rank 0: the message of rank 1 is another call's, and rank 2 never comes. The
 * thread that waits for it must hear of the other thread's failure. */
static void fail_at_root(struct job *job)
{
    struct world world;
    struct world_run run;
    launch(&world, job, 4, &run);
    const struct tt_device_report *report = world.reports[0];
    run.batch.calls[1].signature++;
    world_launch(&world, &(struct world_call){.job = job}, &run);
    CHECK_MESSAGE(await64(&report->ended, 1), "the call did not end by itself");
    CHECK_EQ(__atomic_load_n(&report->failure, __ATOMIC_ACQUIRE), TT_DEVICE_MISMATCH);
    CHECK_EQ(report->peer, 1);
    end(&world, &run, NULL);
}

TEST(run, a_failure_ends_the_other_waits_of_its_rank)
{
    struct job job;
    for (uint32_t p = 0; p < TT_NPROTOCOLS; p++) {
        make(&job, TT_REDUCE, "direct", p, 2);
        fail_at_root(&job);
        job_clear(&job);
    }
}

/* Rank 0 of a broadcast, alone, after the host has said abort. */
TEST(run, a_call_that_begins_after_an_abort_uses_no_buffer)
{
    struct job job;
    for (uint32_t p = 0; p < TT_NPROTOCOLS; p++) {
        struct world world;
        struct world_run run;
        make(&job, TT_BROADCAST, "chain", p, 2);
        launch(&world, &job, 6, &run);
        float *output = host_memory(&world);
        run.batch.calls[0].origin[TT_OUTPUT] = (char *)output;
        world_abort(&world, 1);
        world_launch(&world, &(struct world_call){.job = &job}, &run);
        world_wait(&world);
        CHECK_EQ(world.reports[0]->ended, 1);
        CHECK_EQ(world.reports[0]->failure, TT_DEVICE_ABORTED);
        CHECK_EQ(count_of(output, 0), COUNT);
        end(&world, &run, output);
        job_clear(&job);
    }
}

/* Rank 0 has sent all by reference, and waits for readers that never come. */
TEST(run, abort_ends_the_wait_for_readers_of_references)
{
    struct job job;
    struct world world;
    struct world_run run;
    make(&job, TT_BROADCAST, "direct", TT_PROTOCOL_SLOTS, 2);
    launch(&world, &job, 6, &run);
    run.batch.calls[0].reference_bytes = 0;
    world_launch(&world, &(struct world_call){.job = &job}, &run);
    CHECK_MESSAGE(await64(&world.reports[0]->nbegun, 1), "the call did not begin");
    end(&world, &run, NULL);
    job_clear(&job);
}

/* ---- Calls of a rank in one launch ---------------------------------------------------------- */

/* Each rank's second call takes the output of its first. */
static void chain_calls(struct world_run *both, const struct world_run *first,
                        const struct world_run *second)
{
    uint32_t nblocks = 0;
    memset(both, 0, sizeof *both);
    for (int r = 0; r < NRANKS; r++) {
        struct tt_device_call *calls = &both->batch.calls[2 * r];
        calls[0] = first->batch.calls[r];
        calls[1] = second->batch.calls[r];
        calls[1].origin[TT_INPUT] = calls[0].origin[TT_OUTPUT];
        calls[1].follows = 1;
        calls[0].first_block = calls[1].first_block = nblocks;
        for (uint32_t i = 0; i < 2; i++) calls[i].number = i + 1;
        nblocks += calls[calls[0].nblocks < calls[1].nblocks].nblocks;
    }
    both->batch.ncalls = 2 * NRANKS;
}

static void run_chained(struct job *job, struct job *next)
{
    static float ones[COUNT];
    float *outputs[NRANKS];
    char *inputs[NRANKS];
    struct world world;
    struct world_run first, second, both;
    const struct world_config config = {.nranks = NRANKS, .nslots = 4, .reaches = true};
    for (int i = 0; i < COUNT; i++) ones[i] = 1;
    for (int r = 0; r < NRANKS; r++) inputs[r] = (char *)ones;
    REQUIRE(world_open(&world, &config));
    world_place(&world, &(struct world_call){.job = job, .signature = 5}, inputs, &first);
    world_place(&world, &(struct world_call){.job = next, .signature = 6}, inputs, &second);
    chain_calls(&both, &first, &second);
    for (int r = 0; r < NRANKS; r++) {
        outputs[r] = host_memory(&world);
        both.batch.calls[2 * r + 1].origin[TT_OUTPUT] = (char *)outputs[r];
    }
    world_launch(&world, &(struct world_call){.job = job}, &both);
    world_wait(&world);
    for (int r = 0; r < NRANKS; r++) {
        CHECK_EQ(world.reports[r]->ended, 2);
        CHECK_EQ(world.reports[r]->nended, 2);
        CHECK_EQ(world.reports[r]->failure, TT_DEVICE_FINE);
        CHECK_EQ(count_of(outputs[r], NRANKS * NRANKS), COUNT);
        CHECK_EQ(world.cu->MemFreeHost(outputs[r]), CUDA_SUCCESS);
    }
    world_remove(&world, &first);
    world_remove(&world, &second);
    world_close(&world);
}

/* Other blocks of a rank may be far behind; the calls have other numbers of blocks. */
TEST(run, a_call_that_follows_in_the_same_launch_finds_the_output_of_the_one_before)
{
    struct job jobs[2];
    for (uint32_t p = 0; p < TT_NPROTOCOLS; p++)
        for (int copies = 1; copies <= 2; copies++) {
            make(&jobs[0], TT_ALL_REDUCE, "ring", p, copies);
            make(&jobs[1], TT_ALL_REDUCE, "parallel", p, 3 - copies);
            run_chained(&jobs[0], &jobs[1]);
            for (int i = 0; i < 2; i++) job_clear(&jobs[i]);
        }
}
