/* Hardware queues: what holds up kernels of other streams, what does not, and how many launches
 * have room. Counts are those of vgpu/probes/queues.c on an H100 (docs/cuda-measured.md). */
#include "testing.h"

#include <pthread.h>
#include <sched.h>
#include <shim.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WAITING = 40, OTHERS = 16, LOOKS = 1000 };

enum manner { EVENT, VALUE, KERNEL };

/* What a body is to do, set before it runs in a child; and of the child: */
static struct {
    enum manner manner;
    int nwaiting;
    int least, most; /* of the other streams' kernels that run while the streams wait */
    volatile uint32_t *word, *done;
    CUstream holder;
} probe;

static CUdeviceptr address(volatile uint32_t *word)
{
    return (CUdeviceptr)(uintptr_t)word;
}

/* A kernel that runs until the host writes 1 to the word. */
static void begin_wait(void)
{
    probe.word = vt_mapped(4096);
    probe.done = vt_mapped(4096);
    probe.holder = vt_stream(CU_STREAM_NON_BLOCKING);
    OK(vt_await(address(probe.word), 1, address(probe.word + 1), probe.holder));
}

static void end_wait(void)
{
    *probe.word = 1;
    OK(cuCtxSynchronize());
}

static int count_done(int n)
{
    int done = 0;
    for (int i = 0; i < n; i++) done += probe.done[i] != 0;
    return done;
}

/* Each call runs some steps. */
static void let_run(int looks)
{
    for (int i = 0; i < looks; i++) CHECK_EQ(cuStreamQuery(probe.holder), CUDA_ERROR_NOT_READY);
}

static void make_wait(CUstream stream, CUevent event, int number)
{
    if (probe.manner == EVENT) OK(cuStreamWaitEvent(stream, event, 0));
    if (probe.manner == VALUE)
        OK(cuStreamWaitValue32(stream, address(probe.word), 1, CU_STREAM_WAIT_VALUE_EQ));
    if (probe.manner == KERNEL)
        OK(vt_await(address(probe.word), 1, address(probe.word + 2 + number), stream));
    OK(vt_put(address(probe.word + 100 + number), 1, stream));
}

static void others_run(void)
{
    CUstream waiting[MOST_WAITING], others[OTHERS];
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < probe.nwaiting; i++) waiting[i] = vt_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < OTHERS; i++) others[i] = vt_stream(CU_STREAM_NON_BLOCKING);
    begin_wait();
    OK(cuEventRecord(event, probe.holder));
    for (int i = 0; i < probe.nwaiting; i++) make_wait(waiting[i], event, i);
    for (int i = 0; i < OTHERS; i++) {
        OK(vt_put(address(probe.done + i), 1, others[i]));
        while (probe.least == OTHERS && !probe.done[i]) let_run(1);
    }
    let_run(LOOKS);
    const int done = count_done(OTHERS);
    CHECK_MESSAGE(done >= probe.least && done <= probe.most, "%d of %d ran, expected %d to %d",
                  done, OTHERS, probe.least, probe.most);
    end_wait();
    CHECK_EQ(count_done(OTHERS), OTHERS);
}

/* Where all run, each runs before the next is launched: on hardware a kernel takes the time of two
 * launches, here it is slower. */
static void check_probe(const char *queues, int nwaiting, int least, int most)
{
    for (int manner = EVENT; manner <= KERNEL; manner++) {
        probe.manner = (enum manner)manner;
        probe.nwaiting = nwaiting;
        probe.least = least;
        probe.most = most;
        vt_quiet((const char *[]){queues, "VGPU_SEED=1", "VGPU_IDLE_MS=60000", NULL}, others_run);
    }
}

TEST(vgpu_queues, streams_that_wait_hold_up_others_when_they_have_all_queues)
{
    check_probe("VGPU_QUEUES=1", 1, 0, 0);
    check_probe("VGPU_QUEUES=8", 8, 0, 0);
    check_probe("VGPU_QUEUES=32", 40, 0, 0);
}

TEST(vgpu_queues, streams_that_wait_hold_up_no_others_while_there_are_queues)
{
    check_probe("VGPU_QUEUES=8", 1, OTHERS, OTHERS);
    check_probe("VGPU_QUEUES=8", 4, OTHERS, OTHERS);
    check_probe("VGPU_QUEUES=32", 8, OTHERS, OTHERS);
}

TEST(vgpu_queues, streams_that_wait_hold_up_some_when_there_are_hardly_enough_queues)
{
    check_probe("VGPU_QUEUES=8", 7, 1, OTHERS - 1);
    check_probe("VGPU_QUEUES=16", 15, 1, OTHERS - 1);
    check_probe("VGPU_QUEUES=32", 31, 1, OTHERS - 1);
}

TEST(vgpu_queues, there_are_eight)
{
    check_probe("VGPU_SEED=1", 4, OTHERS, OTHERS);
    check_probe("VGPU_SEED=1", 8, 0, 0);
}

static const char *const one_queue[] = {"VGPU_QUEUES=1", NULL};
static const char *const two_queues[] = {"VGPU_QUEUES=2", NULL};

/* Kernels at the head of a queue, records of events, and their ends. */
static void what_passes(void)
{
    CUevent event;
    const CUstream a = vt_stream(CU_STREAM_NON_BLOCKING), b = vt_stream(CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    begin_wait();
    OK(cuEventRecord(event, probe.holder)); /* ends when the kernel does */
    OK(vt_put(address(probe.done), 1, a));
    OK(cuStreamSynchronize(a));
    OK(cuEventRecord(event, a)); /* has ended, so a wait for it ends too */
    OK(cuStreamWaitEvent(probe.holder, event, 0));
    OK(vt_put(address(probe.done + 1), 1, b));
    OK(cuStreamSynchronize(b));
    CHECK_EQ(count_done(2), 2);
    end_wait();
}

TEST(vgpu_queues, kernels_and_records_hold_up_nothing)
{
    vt_quiet(one_queue, what_passes);
}

/* Two kernels that wait for one another, in both orders of each turn. */
static void side_by_side(void)
{
    CUdeviceptr words = vt_device(512), mine = words, theirs = words + 256;
    uint32_t n = 50;
    const CUstream a = vt_stream(CU_STREAM_NON_BLOCKING), b = vt_stream(CU_STREAM_NON_BLOCKING);
    OK(vt_launch(vt.turns, 1, a, (void *[]){&mine, &theirs, &n}));
    OK(vt_launch(vt.turns, 1, b, (void *[]){&theirs, &mine, &n}));
    OK(cuCtxSynchronize());
    CHECK_EQ(vt_read(words, 0), 50);
}

TEST(vgpu_queues, kernels_of_two_streams_run_side_by_side_in_one_queue)
{
    vt_quiet(one_queue, side_by_side);
}

/* The stream that waits keeps its queue; another one takes the queue that is less used, each time
 * that it gets work. */
static void least_used(void)
{
    const CUstream waits = vt_stream(CU_STREAM_NON_BLOCKING),
                   other = vt_stream(CU_STREAM_NON_BLOCKING);
    begin_wait(); /* then the holder waits for itself: its queue stands still */
    OK(vt_put(address(probe.word + 2), 1, probe.holder));
    for (int i = 0; i < 20; i++) {
        OK(vt_put(address(probe.done + i), 1, other));
        OK(cuStreamSynchronize(other));
    }
    CHECK_EQ(count_done(20), 20);
    OK(cuStreamWaitValue32(waits, address(probe.word), 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(vt_put(address(probe.done + 20), 1, other));
    let_run(LOOKS);
    CHECK_EQ(count_done(21), 20);
    end_wait();
    CHECK_EQ(count_done(21), 21);
}

TEST(vgpu_queues, a_stream_with_new_work_takes_the_least_used_queue)
{
    vt_quiet(two_queues, least_used);
}

/* A kernel waits for one that stands in the same queue behind a wait for the first kernel. With a
 * queue for each stream it need not. */
static void crossing(void)
{
    CUevent event;
    CUdeviceptr words = vt_device(512), mine = words, theirs = words + 256;
    uint32_t n = 2;
    const CUstream a = vt_stream(CU_STREAM_NON_BLOCKING), b = vt_stream(CU_STREAM_NON_BLOCKING),
                   c = vt_stream(CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(vt_launch(vt.turns, 1, a, (void *[]){&mine, &theirs, &n}));
    OK(cuEventRecord(event, a));
    OK(cuStreamWaitEvent(b, event, 0));
    OK(vt_launch(vt.turns, 1, c, (void *[]){&theirs, &mine, &n}));
    (void)cuCtxSynchronize();
}

TEST(vgpu_queues, a_wait_that_holds_up_what_it_waits_for_is_a_deadlock)
{
    char text[4096];
    CHECK_EQ(vt_run(one_queue, crossing, text, sizeof text), 86);
    CHECK_MESSAGE(strstr(text, "vgpu: deadlock: ") != NULL, "%s", text);
    vt_quiet((const char *[]){"VGPU_QUEUES=3", NULL}, crossing);
}

/* The queues of two GPUs are not the same. */
static void two_gpus(void)
{
    CHECK(vt_open(2));
    begin_wait();
    OK(vt_put(address(probe.word + 2), 1, probe.holder));
    vt_current(1);
    const CUdeviceptr there = vt_device(512);
    OK(vt_put(there, 7, NULL));
    CHECK_EQ(vt_read(there, 0), 7);
    vt_current(0);
    end_wait();
}

TEST(vgpu_queues, each_gpu_has_its_own)
{
    vt_quiet((const char *[]){"VGPU_QUEUES=1", "VGPU_DEVICES=2", NULL}, two_gpus);
}

/* A graph is in the queue with its beginning only. */
static void graphs(void)
{
    const CUstream other = vt_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr word = address(vt_mapped(64)), then = word + 4;
    uint32_t one = 1;
    void *params[] = {&word, &one, &then};
    const CUgraph graph = vt_graph();
    const CUgraphNode first = vt_kernel(graph, vt.await, 1, params, NULL, 0);
    vt_store(graph, vt.memory, 5, &first, 1);
    OK(cuGraphLaunch(vt_instantiate(graph), vt.stream));
    OK(vt_put(vt.memory + 4, 6, other));
    OK(cuStreamSynchronize(other));
    *(volatile uint32_t *)(uintptr_t)word = 1;
    CHECK_EQ(vt_word(0), 5);
    CHECK_EQ(vt_word(1), 6);
}

TEST(vgpu_queues, the_nodes_of_a_graph_hold_up_nothing)
{
    setenv("VGPU_QUEUES", "1", 1);
    CHECK_EQ(vt_run_graphs(graphs, "1"), 0);
    unsetenv("VGPU_QUEUES");
}

/* ---- Room for launches ---------------------------------------------------------------------- */

enum { ROOM = 5, LAUNCHES = 12 };

static atomic_int nlaunched;

static void *launch_many(void *context)
{
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < LAUNCHES; i++) {
        OK(vt_put(address(probe.done + i), 1, probe.holder));
        atomic_store(&nlaunched, i + 1);
    }
    return NULL;
}

static void full_queue(void)
{
    pthread_t thread;
    const CUstream other = vt_stream(CU_STREAM_NON_BLOCKING);
    begin_wait();
    let_run(LOOKS); /* the kernel is out of its queue */
    REQUIRE(pthread_create(&thread, NULL, launch_many, vt.context) == 0);
    while (atomic_load(&nlaunched) < ROOM) sched_yield();
    for (int i = 0; i < LOOKS; i++) { /* these have another queue */
        OK(vt_put(address(probe.done + LAUNCHES), 1, other));
        OK(cuStreamSynchronize(other));
    }
    CHECK_EQ(atomic_load(&nlaunched), ROOM);
    *probe.word = 1;
    pthread_join(thread, NULL);
    OK(cuCtxSynchronize());
    CHECK_EQ(count_done(LAUNCHES), LAUNCHES);
}

TEST(vgpu_queues, a_launch_waits_for_room_and_those_of_other_streams_do_not)
{
    vt_quiet((const char *[]){"VGPU_LAUNCHES=5", "VGPU_STALL_MS=60000", NULL}, full_queue);
}

static void a_thousand(void)
{
    begin_wait();
    let_run(LOOKS);
    for (int i = 0; i < 1021; i++) OK(vt_put(address(probe.done), 1, probe.holder));
    end_wait();
}

TEST(vgpu_queues, a_thousand_launches_have_room)
{
    vt_quiet(NULL, a_thousand);
}
