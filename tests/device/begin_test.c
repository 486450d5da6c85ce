/* An abort that races with the begin of a call of several blocks. A kernel stands for the host:
 * unlike the host, it stores and looks at times that the seed decides, and a race between what it
 * does to the call's memory and what the call does is reported. With run_test.c one program. */
#include <stddef.h>
#include <string.h>

#include "shim.h"
#include "world.h"

enum { NRANKS = 3, COUNT = 700, COPIES = 4, TURNS = 12, STEP = 40 };

/* Waits for a number of turns, says abort, and looks whether the second call has begun. Where it
 * has not, the victim, memory that the call uses, is written to. */
static const char aborter[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry abort(.param .u64 word, .param .u64 nbegun, .param .u64 victim, .param .u32 "
    "turns)\n"
    "{\n"
    "    .reg .b64 %w, %n, %v, %begun;\n    .reg .b32 %turns, %old;\n    .reg .pred %p;\n"
    "    ld.param.u64 %w, [word];\n"
    "    ld.param.u64 %n, [nbegun];\n"
    "    ld.param.u64 %v, [victim];\n"
    "    ld.param.u32 %turns, [turns];\n"
    "wait:\n"
    "    sub.u32 %turns, %turns, 1;\n"
    "    setp.ne.u32 %p, %turns, 0;\n"
    "    @%p bra wait;\n"
    "    st.relaxed.sys.global.u64 [%w], 2;\n"
    "    fence.sc.sys;\n"
    "    ld.relaxed.sys.global.u64 %begun, [%n];\n"
    "    setp.ne.u64 %p, %begun, 1;\n"
    "    @%p ret;\n"
    "    ld.global.u32 %old, [%v];\n"
    "    st.global.u32 [%v], %old;\n"
    "    ret;\n"
    "}\n";

/* On the other GPU than the call's. */
static void load_aborter(struct world *world, CUmodule *module, CUfunction *function)
{
    CUcontext context;
    CHECK_EQ(world->cu->CtxPushCurrent(world->contexts[1]), CUDA_SUCCESS);
    CHECK_EQ(world->cu->ModuleLoadDataEx(module, aborter, 0, NULL, NULL), CUDA_SUCCESS);
    CHECK_EQ(world->cu->ModuleGetFunction(function, *module, "abort"), CUDA_SUCCESS);
    CHECK_EQ(world->cu->CtxPopCurrent(&context), CUDA_SUCCESS);
}

static void launch_aborter(struct world *world, CUfunction function, bool replayed, void *victim,
                           uint32_t turns)
{
    struct tt_device_report *report = world->reports[0];
    uint64_t *word = replayed ? &report->closed : &report->abort, *nbegun = &report->nbegun;
    CUcontext context;
    CHECK_EQ(world->cu->CtxPushCurrent(world->contexts[1]), CUDA_SUCCESS);
    CHECK_EQ(world->cu->LaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, world->streams[1],
                                     (void *[]){&word, &nbegun, &victim, &turns}, NULL),
             CUDA_SUCCESS);
    CHECK_EQ(world->cu->CtxPopCurrent(&context), CUDA_SUCCESS);
}

static int count_ones(const struct world *world, CUdeviceptr from)
{
    static float output[COUNT];
    int n = 0;
    world_read(world, output, from, sizeof output);
    for (int i = 0; i < COUNT; i++) n += output[i] == 1;
    return n;
}

/* Rank 0 of a broadcast, which waits for nobody, and beside it the abort. replayed: the call is of
 * a graph that is closed: not even its program may be read. */
static void race(struct job *job, bool replayed, int turn)
{
    static float ones[COUNT];
    char *inputs[NRANKS] = {(char *)ones, (char *)ones, (char *)ones};
    const struct world_config config = {
        .nranks = NRANKS, .nslots = 4, .reaches = true, .system = true, .ngpus = 2};
    const struct world_call call = {
        .job = job, .signature = 5, .absent = 6, .reference_bytes = SIZE_MAX};
    struct world world;
    struct world_run run;
    CUmodule module = NULL;
    CUfunction function = NULL;
    for (int i = 0; i < COUNT; i++) ones[i] = 1;
    REQUIRE(world_open(&world, &config));
    load_aborter(&world, &module, &function);
    world_place(&world, &call, inputs, &run);
    struct tt_device_call *mine = &run.batch.calls[0];
    mine->number = !replayed;
    mine->captured = replayed;
    world_launch(&world, &call, &run);
    world_wait(&world);
    CHECK_EQ(count_ones(&world, run.outputs[0]), COUNT);
    CHECK_EQ(world.cu->MemsetD8Async(run.outputs[0], 0, COUNT * sizeof(float), world.streams[0]),
             CUDA_SUCCESS);
    CHECK_EQ(world.cu->StreamSynchronize(world.streams[0]), CUDA_SUCCESS);
    if (!replayed) mine->number = 2;
    void *victim = replayed ? (void *)(uintptr_t)mine->program.memory : mine->origin[TT_OUTPUT];
    if (turn % 2) world_launch(&world, &call, &run);
    launch_aborter(&world, function, replayed, victim, 1 + STEP * (uint32_t)(turn / 2));
    if (turn % 2 == 0) world_launch(&world, &call, &run);
    world_wait(&world);
    const struct tt_device_report *report = world.reports[0];
    const int n = count_ones(&world, run.outputs[0]);
    CHECK_EQ(report->nbegun, 2);
    CHECK_EQ(report->nended, 2);
    /* Its blocks agree. */
    CHECK_EQ(n, report->failure ? 0 : COUNT);
    CHECK(!report->failure || report->failure == TT_DEVICE_ABORTED);
    world_remove(&world, &run);
    CHECK_EQ(world.cu->ModuleUnload(module), CUDA_SUCCESS);
    world_close(&world);
}

static void race_all(bool replayed)
{
    for (uint32_t p = 0; p < TT_NPROTOCOLS; p++) {
        struct job job = {.algorithm = tt_algorithm_find(TT_BROADCAST, "chain"),
                          .nranks = NRANKS,
                          .copies = COPIES,
                          .count = COUNT,
                          .protocol = p,
                          .slot_bytes = WORLD_SLOT_BYTES,
                          .line_bytes = WORLD_LINE_BYTES,
                          .reduction = {.type = TT_FLOAT32, .op = TT_SUM, .nranks = NRANKS}};
        REQUIRE(job_make(&job));
        for (int i = 0; i < TURNS; i++) race(&job, replayed, i);
        job_clear(&job);
    }
}

TEST(begin, all_blocks_of_a_call_see_an_abort_or_the_host_sees_the_call)
{
    race_all(false);
}

TEST(begin, a_replay_reads_nothing_once_graphs_are_closed_and_it_was_not_seen)
{
    race_all(true);
}
