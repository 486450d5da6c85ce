/* What another GPU finds in the report of a call that has failed and goes on, or of a replay: a
 * watcher, unlike the host, looks at a time that the seed decides. With run_test.c one program. */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <vgpu/traffic.h>

#include "shim.h"
#include "world.h"

enum { NRANKS = 3, COUNT = 50, TURNS = 5, LOOKS = 1000, STUCK_S = 40 };

/* Before the calls, since loading a module waits for all kernels. Gives a watcher's memory, of the
 * host and zero. */
static void *load_watcher(struct world *world, const char *text, size_t nbytes, CUmodule *module,
                          CUfunction *watch)
{
    void *memory = NULL;
    CHECK_EQ(world->cu->MemHostAlloc(&memory, nbytes,
                                     CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
             CUDA_SUCCESS);
    memset(memory, 0, nbytes);
    CHECK_EQ(world->cu->ModuleLoadDataEx(module, text, 0, NULL, NULL), CUDA_SUCCESS);
    CHECK_EQ(world->cu->ModuleGetFunction(watch, *module, "watch"), CUDA_SUCCESS);
    return memory;
}

static void launch_watcher(struct world *world, CUfunction watch, CUstream stream, int rank,
                           void *memory)
{
    void *report = world->reports[rank];
    CHECK_EQ(world->cu->LaunchKernel(watch, 1, 1, 1, 1, 1, 1, 0, stream,
                                     (void *[]){&report, &memory}, NULL),
             CUDA_SUCCESS);
}

static void unload_watcher(struct world *world, CUmodule module, void *memory)
{
    CHECK_EQ(world->cu->ModuleUnload(module), CUDA_SUCCESS);
    CHECK_EQ(world->cu->MemFreeHost(memory), CUDA_SUCCESS);
}

/* ---- A call that has failed ------------------------------------------------------------------ */

/* What the watcher has seen, and whether it is to end without. Memory of the host. */
struct seen {
    uint64_t sound;
    int32_t peer;
    uint32_t done, stop;
};

/* Waits for report->failure, and copies what was written before. */
static const char watcher[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry watch(.param .u64 report, .param .u64 seen)\n"
    "{\n"
    "    .reg .b64 %r, %s, %sound;\n    .reg .b32 %failure, %stop, %peer;\n    .reg .pred %p;\n"
    "    ld.param.u64 %r, [report];\n"
    "    ld.param.u64 %s, [seen];\n"
    "look:\n"
    "    ld.relaxed.sys.global.u32 %stop, [%s+16];\n"
    "    setp.ne.u32 %p, %stop, 0;\n"
    "    @%p ret;\n"
    "    ld.acquire.sys.global.u32 %failure, [%r+80];\n"
    "    setp.eq.u32 %p, %failure, 0;\n"
    "    @%p bra look;\n"
    "    ld.relaxed.sys.global.u64 %sound, [%r+56];\n"
    "    ld.relaxed.sys.global.u32 %peer, [%r+84];\n"
    "    st.relaxed.sys.global.u64 [%s], %sound;\n"
    "    st.relaxed.sys.global.u32 [%s+8], %peer;\n"
    "    st.release.sys.global.u32 [%s+12], 1;\n"
    "    ret;\n"
    "}\n";
static_assert(offsetof(struct tt_device_report, sound) == 56 &&
                  offsetof(struct tt_device_report, failure) == 80 &&
                  offsetof(struct tt_device_report, peer) == 84,
              "as in the watcher");
static_assert(offsetof(struct seen, peer) == 8 && offsetof(struct seen, done) == 12 &&
                  offsetof(struct seen, stop) == 16,
              "as in the watcher");

static __typeof__(vgpu_traffic) *traffic_of;

/* Looks of threads that wait, on all GPUs. */
static uint64_t looks(void)
{
    uint64_t n = 0;
    for (int gpu = 0; gpu < WORLD_GPUS; gpu++) {
        struct vgpu_traffic traffic;
        CHECK_EQ(traffic_of(gpu, &traffic), 0);
        n += traffic.waited / sizeof(uint64_t);
    }
    return n;
}

/* Until both wait for others. False: it took very long. */
static bool await_begin(const struct world *world)
{
    const time_t until = time(NULL) + STUCK_S;
    for (int r = 0; r < 2; r++)
        while (__atomic_load_n(&world->reports[r]->nbegun, __ATOMIC_ACQUIRE) < 2)
            if (time(NULL) > until) return false;
    const struct timespec moment = {.tv_nsec = 2000000};
    const uint64_t before = looks();
    for (uint64_t now = before, then = 0; now != then && now < before + LOOKS; now = looks()) {
        then = now;
        nanosleep(&moment, NULL);
    }
    return true;
}

static bool await_seen(const struct seen *seen)
{
    const time_t until = time(NULL) + STUCK_S;
    while (!__atomic_load_n(&seen->done, __ATOMIC_ACQUIRE))
        if (time(NULL) > until) return false;
    return true;
}

/* A reduction to rank 0, of which rank 2 is absent the second time. Rank 0 has taken the reference
 * of rank 1 and waits; so rank 1, which is aborted, goes on waiting after its report. */
static void abort_second(struct job *job)
{
    static char zeros[COUNT * sizeof(float)];
    char *inputs[NRANKS] = {zeros, zeros, zeros};
    const struct world_config config = {
        .nranks = NRANKS, .nslots = 4, .reaches = true, .system = true, .ngpus = 2};
    const struct world_call call = {.job = job, .signature = 5};
    struct world world;
    struct world_run run;
    CUmodule module = NULL;
    CUfunction watch = NULL;
    REQUIRE(world_open(&world, &config));
    struct seen *seen = load_watcher(&world, watcher, sizeof *seen, &module, &watch);
    world_place(&world, &call, inputs, &run);
    for (uint64_t number = 1; number <= 2; number++) {
        for (int r = 0; r < NRANKS; r++) run.batch.calls[r].number = number;
        if (number == 2) run.batch.calls[2].nblocks = 0;
        world_launch(&world, &call, &run);
    }
    launch_watcher(&world, watch, world.streams[2], 1, seen);
    CHECK_MESSAGE(await_begin(&world), "the second call did not begin");
    __atomic_store_n(&world.reports[1]->abort, 1, __ATOMIC_RELAXED);
    CHECK_MESSAGE(await_seen(seen), "no failure was reported");
    __atomic_store_n(&seen->stop, 1, __ATOMIC_RELAXED);
    CHECK_EQ(seen->peer, -1);
    CHECK_EQ(seen->sound, 1);
    world_abort(&world, 1);
    world_wait(&world);
    world_remove(&world, &run);
    unload_watcher(&world, module, seen);
    world_close(&world);
}

TEST(report, who_sees_the_failure_of_a_call_that_goes_on_finds_the_rest)
{
    struct job job = {.algorithm = tt_algorithm_find(TT_REDUCE, "direct"),
                      .nranks = NRANKS,
                      .copies = 1,
                      .count = COUNT,
                      .slot_bytes = WORLD_SLOT_BYTES,
                      .line_bytes = WORLD_LINE_BYTES,
                      .reduction = {.type = TT_FLOAT32, .op = TT_SUM, .nranks = NRANKS}};
    void *symbol = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "vgpu_traffic");
    REQUIRE(symbol);
    memcpy(&traffic_of, &symbol, sizeof symbol);
    REQUIRE(job_make(&job));
    for (int i = 0; i < TURNS; i++) abort_second(&job);
    job_clear(&job);
}

/* ---- Replays --------------------------------------------------------------------------------- */

enum {
    NREPLAYS = 60,
    CAPTURED = 100 /* plus its number: the word that a replay stores of its graph */
};

/* How often a watcher has found a number, and a word that the kernel had stored before it old. */
struct stale {
    uint64_t begins, ends;
    uint64_t looks; /* at numbers of replays */
    uint32_t stop;
};

static const char stale_watcher[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry watch(.param .u64 report, .param .u64 stale)\n"
    "{\n"
    "    .reg .b64 %r, %s, %number, %word, %begins, %ends, %looks;\n    .reg .b32 %stop;\n"
    "    .reg .pred %p, %q;\n"
    "    ld.param.u64 %r, [report];\n"
    "    ld.param.u64 %s, [stale];\n"
    "    mov.u64 %begins, 0;\n"
    "    mov.u64 %ends, 0;\n"
    "    mov.u64 %looks, 0;\n"
    "look:\n"
    "    ld.relaxed.sys.global.u32 %stop, [%s+24];\n"
    "    setp.ne.u32 %p, %stop, 0;\n"
    "    @%p bra end;\n"
    "    ld.acquire.sys.global.u64 %number, [%r+64];\n"
    "    ld.relaxed.sys.global.u64 %word, [%r+120];\n"
    "    setp.ne.u64 %q, %number, 0;\n"
    "    @%q add.u64 %looks, %looks, 1;\n"
    "    add.u64 %number, %number, 100;\n"
    "    setp.lt.and.u64 %p, %word, %number, %q;\n"
    "    @%p add.u64 %begins, %begins, 1;\n"
    "    ld.relaxed.sys.global.u64 %word, [%r+112];\n"
    "    add.u64 %word, %word, 201;\n"
    "    add.u64 %number, %number, %number;\n"
    "    setp.lt.and.u64 %p, %word, %number, %q;\n"
    "    @%p add.u64 %begins, %begins, 1;\n"
    "    ld.acquire.sys.global.u64 %number, [%r+72];\n"
    "    ld.relaxed.sys.global.u64 %word, [%r+112];\n"
    "    shr.u64 %word, %word, 1;\n"
    "    setp.lt.u64 %p, %word, %number;\n"
    "    @%p add.u64 %ends, %ends, 1;\n"
    "    bra look;\n"
    "end:\n"
    "    st.relaxed.sys.global.u64 [%s], %begins;\n"
    "    st.relaxed.sys.global.u64 [%s+8], %ends;\n"
    "    st.relaxed.sys.global.u64 [%s+16], %looks;\n"
    "    ret;\n"
    "}\n";
static_assert(offsetof(struct tt_device_report, nbegun) == 64 &&
                  offsetof(struct tt_device_report, nended) == 72 &&
                  offsetof(struct tt_device_report, replays) == 112 &&
                  offsetof(struct tt_device_report, captured) == 120 && CAPTURED == 100,
              "as in the watcher");
static_assert(offsetof(struct stale, ends) == 8 && offsetof(struct stale, looks) == 16 &&
                  offsetof(struct stale, stop) == 24,
              "as in the watcher");

/* Each rank's report is watched by the other rank's GPU: only others find what a kernel stores to
 * memory of the host leaving the buffers of its GPU word by word. */
static void begin_watchers(struct world *world, struct stale *stale[2], CUmodule modules[2],
                           CUstream streams[2])
{
    for (int r = 0; r < 2; r++) {
        CUfunction watch;
        CUcontext was;
        CHECK_EQ(world->cu->CtxPushCurrent(world->contexts[r]), CUDA_SUCCESS);
        stale[r] = load_watcher(world, stale_watcher, sizeof *stale[r], &modules[r], &watch);
        CHECK_EQ(world->cu->StreamCreate(&streams[r], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        launch_watcher(world, watch, streams[r], 1 - r, stale[r]);
        CHECK_EQ(world->cu->CtxPopCurrent(&was), CUDA_SUCCESS);
    }
}

static void end_watchers(struct world *world, struct stale *stale[2], CUmodule modules[2],
                         CUstream streams[2])
{
    for (int r = 0; r < 2; r++) {
        CUcontext was;
        __atomic_store_n(&stale[r]->stop, 1, __ATOMIC_RELEASE);
        CHECK_EQ(world->cu->CtxPushCurrent(world->contexts[r]), CUDA_SUCCESS);
        CHECK_EQ(world->cu->StreamSynchronize(streams[r]), CUDA_SUCCESS);
        CHECK_EQ(stale[r]->begins, 0);
        CHECK_EQ(stale[r]->ends, 0);
        CHECK(stale[r]->looks > 0);
        CHECK_EQ(world->cu->StreamDestroy(streams[r]), CUDA_SUCCESS);
        unload_watcher(world, modules[r], stale[r]);
        CHECK_EQ(world->cu->CtxPopCurrent(&was), CUDA_SUCCESS);
    }
}

TEST(report, who_sees_the_number_of_a_replay_finds_what_was_stored_before)
{
    struct job job = {.algorithm = tt_algorithm_find(TT_ALL_REDUCE, "meet"),
                      .nranks = 2,
                      .copies = 1,
                      .count = COUNT,
                      .slot_bytes = WORLD_SLOT_BYTES,
                      .line_bytes = WORLD_LINE_BYTES,
                      .protocol = TT_PROTOCOL_LINES,
                      .reduction = {.type = TT_FLOAT32, .op = TT_SUM, .nranks = 2}};
    static char zeros[COUNT * sizeof(float)];
    char *inputs[2] = {zeros, zeros};
    const struct world_config config = {
        .nranks = 2, .nslots = 4, .reaches = true, .system = true, .ngpus = 2};
    struct stale *stale[2];
    CUmodule modules[2];
    CUstream streams[2];
    struct world world;
    struct world_run run;
    REQUIRE(job_make(&job));
    const struct world_call call = {.job = &job, .signature = 5};
    REQUIRE(world_open(&world, &config));
    begin_watchers(&world, stale, modules, streams);
    world_place(&world, &call, inputs, &run);
    for (uint64_t number = 1; number <= NREPLAYS; number++) {
        for (int r = 0; r < 2; r++) run.batch.calls[r].captured = CAPTURED + number;
        world_launch(&world, &call, &run);
        for (int r = 0; r < 2; r++)
            CHECK_EQ(world.cu->StreamSynchronize(world.streams[r]), CUDA_SUCCESS);
    }
    end_watchers(&world, stale, modules, streams);
    world_remove(&world, &run);
    world_close(&world);
    job_clear(&job);
}
