/* What others find when a call of the kernel is aborted: ranks that read the memory of one that
 * ends, and the host that looks in between. With run_test.c one program. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim.h"
#include "world.h"

enum { COUNT = 32 * 1024, UNTOUCHED = 0xa5, STUCK_S = 40 };

static char ones[COUNT * sizeof(float)];

/* A broadcast of rank 0. All messages are references, so the call is one round. */
static struct world_call call_of(struct job *job, const char *algorithm, int nranks, int copies)
{
    *job = (struct job){.algorithm = tt_algorithm_find(TT_BROADCAST, algorithm),
                        .nranks = nranks,
                        .copies = copies,
                        .count = COUNT,
                        .slot_bytes = COUNT * sizeof(float),
                        .line_bytes = WORLD_LINE_BYTES,
                        .reduction = {.type = TT_FLOAT32, .op = TT_SUM, .nranks = nranks}};
    CHECK(job_make(job));
    return (struct world_call){.job = job, .signature = 5, .apart = true};
}

static void place(struct world *world, const struct world_call *call, struct world_run *run)
{
    char *inputs[JOB_MOST_RANKS];
    memset(ones, 1, sizeof ones);
    for (int r = 0; r < JOB_MOST_RANKS; r++) inputs[r] = ones;
    world_place(world, call, inputs, run);
    for (int r = 0; r < call->job->nranks; r++) /* no message is in a slot */
        run->batch.calls[r].links.slot_bytes = (uint32_t)call->job->slot_bytes;
}

/* Launches these ranks (bits) only. */
static void launch(struct world *world, const struct world_call *call, const struct world_run *run,
                   unsigned ranks)
{
    struct world_run some = *run;
    for (int r = 0; r < call->job->nranks; r++)
        if (!(ranks >> r & 1)) some.batch.calls[r].nblocks = 0;
    world_launch(world, call, &some);
}

static void end(struct world *world, struct world_run *run, struct job *job)
{
    world_abort(world, 1);
    world_wait(world);
    world_remove(world, run);
    world_close(world);
    job_clear(job);
}

static void spin_us(long us)
{
    struct timespec now, start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - start.tv_sec) * 1000000 + (now.tv_nsec - start.tv_nsec) / 1000 < us);
}

static void await_begin(struct world *world, int rank)
{
    const time_t until = time(NULL) + STUCK_S;
    while (!__atomic_load_n(&world->reports[rank]->nbegun, __ATOMIC_ACQUIRE))
        if (time(NULL) > until) {
            CHECK_MESSAGE(false, "the call of rank %d did not begin", rank);
            return;
        }
}

static void wait_for(struct world *world, int rank)
{
    CHECK_EQ(world->cu->StreamSynchronize(world->streams[rank]), CUDA_SUCCESS);
}

static bool untouched(struct world *world, const struct world_run *run, int rank)
{
    static unsigned char got[COUNT * sizeof(float)];
    world_read(world, got, run->outputs[rank], sizeof got);
    for (size_t i = 0; i < sizeof got; i++)
        if (got[i] != UNTOUCHED) return false;
    return true;
}

/* Until the kernel has written some of the first bytes of this memory of the host. */
static void await_bytes(const char *memory)
{
    const time_t until = time(NULL) + STUCK_S;
    for (int i = 0; !__atomic_load_n(&memory[i], __ATOMIC_RELAXED); i = (i + 16) % 4096)
        if (i == 0 && time(NULL) > until) {
            CHECK_MESSAGE(false, "the kernel has written nothing");
            return;
        }
}

/* Rank 1 reads the input of rank 0, which is aborted while it waits for rank 2. As soon as the call
 * of rank 0 has ended, its user writes the memory: a race if rank 1 may still read. */
TEST(run, a_rank_that_is_aborted_waits_for_who_reads_its_memory)
{
    struct world world;
    struct world_run run;
    struct job job;
    void *output = NULL;
    const struct world_call call = call_of(&job, "direct", 3, 1);
    const struct world_config config = {.nranks = 3, .nslots = 4, .reaches = true};
    REQUIRE(world_open(&world, &config));
    place(&world, &call, &run);
    CHECK_EQ(world.cu->MemHostAlloc(&output, sizeof ones,
                                    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
             CUDA_SUCCESS);
    REQUIRE(output);
    memset(output, 0, sizeof ones);
    run.batch.calls[1].origin[TT_OUTPUT] = output;
    launch(&world, &call, &run, 3);
    await_bytes(output);
    world_abort(&world, 1);
    CHECK_EQ(world.cu->MemsetD8Async(run.inputs[0], 2, COUNT, world.streams[0]), CUDA_SUCCESS);
    CHECK_EQ(world.cu->MemsetD8Async(run.outputs[0], 2, COUNT, world.streams[0]), CUDA_SUCCESS);
    world_wait(&world);
    CHECK_EQ(world.cu->MemFreeHost(output), CUDA_SUCCESS);
    end(&world, &run, &job);
}

/* Rank 1 comes when the call of rank 0 has ended by an abort. */
TEST(run, a_message_of_a_rank_that_was_aborted_is_not_read)
{
    struct world world;
    struct world_run run;
    struct job job;
    const struct world_call call = call_of(&job, "direct", 3, 1);
    const struct world_config config = {.nranks = 3, .nslots = 4, .reaches = true};
    REQUIRE(world_open(&world, &config));
    place(&world, &call, &run);
    launch(&world, &call, &run, 1);
    await_begin(&world, 0);
    spin_us(50000);
    __atomic_store_n(&world.reports[0]->abort, 1, __ATOMIC_RELAXED);
    wait_for(&world, 0);
    launch(&world, &call, &run, 2);
    await_begin(&world, 1);
    spin_us(50000);
    world_abort(&world, 1);
    wait_for(&world, 1);
    CHECK_EQ(world.reports[1]->failure, TT_DEVICE_ABORTED);
    CHECK(untouched(&world, &run, 1));
    end(&world, &run, &job);
}

/* The host aborts, and then looks whether the call has begun: if not, it never uses its buffers. */
TEST(run, a_call_whose_beginning_an_aborting_host_does_not_see_uses_no_buffer)
{
    struct world world;
    struct world_run run;
    struct job job;
    const struct world_call call = call_of(&job, "chain", 1, 1);
    const struct world_config config = {.nranks = 1, .nslots = 4, .reaches = true};
    REQUIRE(world_open(&world, &config));
    place(&world, &call, &run);
    struct tt_device_report *report = world.reports[0];
    for (int i = 0; i < 20; i++) {
        *report = (struct tt_device_report){0};
        CHECK_EQ(world.cu->MemsetD8Async(world.states[0], 0, sizeof(struct tt_device_state),
                                         world.streams[0]),
                 CUDA_SUCCESS);
        CHECK_EQ(world.cu->MemsetD8Async(run.outputs[0], UNTOUCHED, sizeof ones, world.streams[0]),
                 CUDA_SUCCESS);
        wait_for(&world, 0);
        launch(&world, &call, &run, 1);
        spin_us(i * 40);
        __atomic_store_n(&report->abort, 1, __ATOMIC_SEQ_CST);
        const uint64_t nbegun = __atomic_load_n(&report->nbegun, __ATOMIC_SEQ_CST);
        wait_for(&world, 0);
        CHECK_MESSAGE(nbegun || untouched(&world, &run, 0),
                      "turn %d: a call that had not begun wrote its output", i);
        if (tt_test_failed()) break;
    }
    end(&world, &run, &job);
}
