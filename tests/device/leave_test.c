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

/* Until as many calls of the rank are counted. */
static void await_count(const uint64_t *count, uint64_t ncalls, int rank, const char *what)
{
    const time_t until = time(NULL) + STUCK_S;
    while (__atomic_load_n(count, __ATOMIC_ACQUIRE) < ncalls)
        if (time(NULL) > until) {
            CHECK_MESSAGE(false, "call %d of rank %d did not %s", (int)ncalls, rank, what);
            return;
        }
}

static void await_begin(struct world *world, int rank)
{
    await_count(&world->reports[rank]->nbegun, 1, rank, "begin");
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
static void a_rank_that_is_aborted_waits_for_who_reads_its_memory(bool opens)
{
    struct world world;
    struct world_run run;
    struct job job;
    void *output = NULL;
    const struct world_call call = call_of(&job, "direct", 3, 1);
    const struct world_config config = {
        .nranks = 3, .nslots = 4, .reaches = true, .opens = opens, .system = opens};
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

TEST(run, a_rank_that_is_aborted_waits_for_who_reads_its_memory)
{
    a_rank_that_is_aborted_waits_for_who_reads_its_memory(false);
    a_rank_that_is_aborted_waits_for_who_reads_its_memory(true);
}

/* Rank 1 comes when the call of rank 0 has ended by an abort. */
static void a_message_of_a_rank_that_was_aborted_is_not_read(bool opens)
{
    struct world world;
    struct world_run run;
    struct job job;
    const struct world_call call = call_of(&job, "direct", 3, 1);
    const struct world_config config = {
        .nranks = 3, .nslots = 4, .reaches = true, .opens = opens, .system = opens};
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

TEST(run, a_message_of_a_rank_that_was_aborted_is_not_read)
{
    a_message_of_a_rank_that_was_aborted_is_not_read(false);
    a_message_of_a_rank_that_was_aborted_is_not_read(true);
}

/* Rank 1 has taken the first three messages, which were references, and takes no more. The next
 * three are lines, whose slots have the notes of the first ones; then comes a reference. */
static void a_rank_that_is_aborted_does_not_wait_for_messages_of_earlier_calls(bool opens)
{
    enum { TIMES = 3 };
    struct world world;
    struct world_run runs[2];
    struct job jobs[2];
    const struct world_config config = {
        .nranks = 2, .nslots = 4, .reaches = true, .opens = opens, .system = opens};
    const struct world_call references = call_of(&jobs[0], "direct", 2, 1);
    struct world_call lines = references;
    jobs[1] = jobs[0];
    jobs[1].protocol = TT_PROTOCOL_LINES;
    jobs[1].count = 16;
    CHECK(job_make(&jobs[1]));
    lines.job = &jobs[1];
    REQUIRE(world_open(&world, &config));
    place(&world, &references, &runs[0]);
    place(&world, &lines, &runs[1]);
    const struct tt_device_report *report = world.reports[0];
    for (int i = 0; i < TIMES; i++) launch(&world, &references, &runs[0], 3);
    for (int i = 0; i < TIMES; i++) launch(&world, &lines, &runs[1], 1);
    launch(&world, &references, &runs[0], 1);
    await_count(&report->nbegun, 2 * TIMES + 1, 0, "begin");
    spin_us(50000);
    world_abort(&world, 1);
    await_count(&report->nended, 2 * TIMES + 1, 0, "end");
    CHECK_EQ(report->failure, TT_DEVICE_ABORTED);
    world_abort(&world, 2);
    world_wait(&world);
    world_remove(&world, &runs[1]);
    job_clear(&jobs[1]);
    end(&world, &runs[0], &jobs[0]);
}

TEST(run, a_rank_that_is_aborted_does_not_wait_for_messages_of_earlier_calls)
{
    a_rank_that_is_aborted_does_not_wait_for_messages_of_earlier_calls(false);
    a_rank_that_is_aborted_does_not_wait_for_messages_of_earlier_calls(true);
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

/* ---- Exchanges ------------------------------------------------------------------------------ */

/* A message that a rank sends or receives. */
struct message {
    uint32_t peer, outgoing;
    char *data;
    uint64_t nbytes;
};

enum { SENT = COUNT * sizeof(float), MOST_MESSAGES = 2 };

/* A world of three ranks whose calls are exchanges, a flow a message. */
struct exchanges {
    struct world world;
    struct world_run run;
    struct world_call call;
    struct job job;
    char *output; /* of the host: a kernel that writes there can be watched */
    struct tt_device_exchange *tables[3];
};

static void *pinned(struct world *world, size_t nbytes)
{
    void *memory = NULL;
    CHECK_EQ(world->cu->MemHostAlloc(&memory, nbytes,
                                     CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
             CUDA_SUCCESS);
    if (memory) memset(memory, 0, nbytes);
    return memory;
}

static void open_exchanges(struct exchanges *e, bool opens)
{
    const struct world_config config = {
        .nranks = 3, .nslots = 4, .reaches = true, .opens = opens, .system = opens};
    e->call = call_of(&e->job, "direct", 3, 1);
    REQUIRE(world_open(&e->world, &config));
    place(&e->world, &e->call, &e->run);
    e->output = pinned(&e->world, SENT);
    for (int r = 0; r < 3; r++) {
        struct tt_device_call *call = &e->run.batch.calls[r];
        e->tables[r] = pinned(&e->world, sizeof(struct tt_device_exchange) +
                                             MOST_MESSAGES * (sizeof(struct tt_device_flow) +
                                                              sizeof(struct tt_device_transfer)));
        call->exchange = e->tables[r];
        call->nblocks = 1;
        call->reference_bytes = SENT;
        call->links.slot_bytes = WORLD_SLOT_BYTES;
        call->signature = TT_DEVICE_EXCHANGE_BIT;
    }
}

static void plan(struct exchanges *e, int rank, const struct message *messages, uint32_t n)
{
    struct tt_device_exchange *table = e->tables[rank];
    *table = (struct tt_device_exchange){.nflows = n, .ntransfers = n};
    for (uint32_t i = 0; i < n; i++) {
        const struct message *m = &messages[i];
        tt_device_flows(table)[i] = (struct tt_device_flow){
            .peer = m->peer,
            .outgoing = m->outgoing,
            .end = tt_device_end_at(WORLD_CHANNELS, m->peer, 0, m->outgoing),
            .first = i,
            .number = 1};
        tt_device_transfers(table)[i] =
            (struct tt_device_transfer){.data = m->data, .nbytes = m->nbytes, .nparts = 1};
    }
}

/* What is sent: the input of rank 0. */
static char *input_of(const struct exchanges *e)
{
    return (char *)(uintptr_t)e->run.inputs[0];
}

/* Rank 0 sends its input to rank 1, which receives it in the output. */
static void plan_one(struct exchanges *e)
{
    plan(e, 0, &(struct message){1, true, input_of(e), SENT}, 1);
    plan(e, 1, &(struct message){0, false, e->output, SENT}, 1);
}

static void close_exchanges(struct exchanges *e)
{
    world_abort(&e->world, 1);
    world_wait(&e->world);
    for (int r = 0; r < 3; r++) CHECK_EQ(e->world.cu->MemFreeHost(e->tables[r]), CUDA_SUCCESS);
    CHECK_EQ(e->world.cu->MemFreeHost(e->output), CUDA_SUCCESS);
    end(&e->world, &e->run, &e->job);
}

TEST(run, a_receive_that_is_aborted_is_reported)
{
    struct exchanges e;
    open_exchanges(&e, false);
    plan_one(&e);
    launch(&e.world, &e.call, &e.run, 2);
    await_begin(&e.world, 1);
    spin_us(50000);
    world_abort(&e.world, 1);
    wait_for(&e.world, 1);
    CHECK_EQ(e.world.reports[1]->failure, TT_DEVICE_ABORTED);
    CHECK(e.world.reports[1]->peer <= 0); /* -1: it was aborted before it looked */
    close_exchanges(&e);
}

TEST(run, a_receive_of_a_message_of_another_call_is_a_mismatch)
{
    struct exchanges e;
    open_exchanges(&e, false);
    plan_one(&e);
    e.run.batch.calls[0].signature++;
    launch(&e.world, &e.call, &e.run, 3);
    wait_for(&e.world, 1);
    CHECK_EQ(e.world.reports[1]->failure, TT_DEVICE_MISMATCH);
    CHECK_EQ(e.world.reports[1]->peer, 0);
    CHECK_EQ(tt_device_flows(e.tables[1])->sent, UINT64_MAX);
    close_exchanges(&e);
}

/* As of a broadcast. */
static void a_send_that_is_aborted_waits_for_who_reads_its_memory(bool opens)
{
    struct exchanges e;
    open_exchanges(&e, opens);
    plan_one(&e);
    launch(&e.world, &e.call, &e.run, 3);
    await_bytes(e.output);
    world_abort(&e.world, 1);
    CHECK_EQ(e.world.cu->MemsetD8Async(e.run.inputs[0], 2, SENT, e.world.streams[0]), CUDA_SUCCESS);
    close_exchanges(&e);
}

TEST(run, a_send_that_is_aborted_waits_for_who_reads_its_memory)
{
    a_send_that_is_aborted_waits_for_who_reads_its_memory(false);
    a_send_that_is_aborted_waits_for_who_reads_its_memory(true);
}

static void a_message_of_a_send_that_was_aborted_is_not_read(bool opens)
{
    struct exchanges e;
    open_exchanges(&e, opens);
    plan_one(&e);
    launch(&e.world, &e.call, &e.run, 1);
    await_begin(&e.world, 0);
    spin_us(50000);
    __atomic_store_n(&e.world.reports[0]->abort, 1, __ATOMIC_RELAXED);
    wait_for(&e.world, 0);
    launch(&e.world, &e.call, &e.run, 2);
    await_begin(&e.world, 1);
    spin_us(50000);
    world_abort(&e.world, 1);
    wait_for(&e.world, 1);
    CHECK_EQ(e.world.reports[1]->failure, TT_DEVICE_ABORTED);
    for (size_t i = 0; i < SENT && !tt_test_failed(); i++) CHECK_EQ(e.output[i], 0);
    close_exchanges(&e);
}

TEST(run, a_message_of_a_send_that_was_aborted_is_not_read)
{
    a_message_of_a_send_that_was_aborted_is_not_read(false);
    a_message_of_a_send_that_was_aborted_is_not_read(true);
}

/* Rank 1 has taken the message of rank 0 when it finds that rank 2 sends another length. */
static void a_rank_that_fails_lets_go_whose_message_it_has_taken(bool opens)
{
    struct exchanges e;
    open_exchanges(&e, opens);
    plan(&e, 0, &(struct message){1, true, input_of(&e), SENT}, 1);
    plan(&e, 2, &(struct message){1, true, input_of(&e), 10}, 1);
    plan(&e, 1, (struct message[]){{0, false, e.output, SENT}, {2, false, e.output, 20}}, 2);
    launch(&e.world, &e.call, &e.run, 5);
    await_begin(&e.world, 0);
    await_begin(&e.world, 2);
    spin_us(50000);
    launch(&e.world, &e.call, &e.run, 2);
    wait_for(&e.world, 1);
    CHECK_EQ(e.world.reports[1]->failure, TT_DEVICE_MISMATCH);
    close_exchanges(&e);
}

TEST(run, a_rank_that_fails_lets_go_whose_message_it_has_taken)
{
    a_rank_that_fails_lets_go_whose_message_it_has_taken(false);
    a_rank_that_fails_lets_go_whose_message_it_has_taken(true);
}
