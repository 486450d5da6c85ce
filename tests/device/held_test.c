/* Deadlines and aborts while the driver holds up every thread that calls it: another thread is in
 * a call of the driver that waits for the GPU, and holds the driver's lock (VGPU_DRIVER_LOCK). Rank
 * 1 of two stays away; each call of rank 0 must end at the deadline all the same. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "communicator/communicator.h"
#include "driven.h"
#include "driver/cuda.h"
#include "graphs.h"
#include "shim.h"

/* The machine may be busy. Who waits for the driver would wait for ever. */
enum { DEADLINE_MS = 500, LONG_MS = 600000, PATIENCE_MS = 20000, HELD_MS = 100, LARGE = 30000 };

/* ---- The thread in the driver -----------------------------------------------------------------
 */

/* Calls again and again: each call that finds the GPU waiting waits too. Between two calls other
 * threads get the driver's lock. */
struct holder {
    void (*call)(struct holder *holder);
    pthread_t thread;
    CUfunction function; /* of a kernel that does nothing */
    CUstream stream;     /* of the rank's call */
    _Atomic bool stops;
    _Atomic int64_t since_ns;   /* when its call began */
    _Atomic int64_t longest_ns; /* of its calls that have ended */
};

static void synchronize(struct holder *holder)
{
    (void)holder;
    (void)RESULT(cuCtxSynchronize);
}

static void free_memory(struct holder *holder)
{
    CUdeviceptr memory = 0;
    (void)holder;
    CALL(cuMemAlloc_v2, &memory, 64);
    CALL(cuMemFree_v2, memory);
}

static void launch(struct holder *holder)
{
    CALL(cuLaunchKernel, holder->function, 1, 1, 1, 1, 1, 1, 0, holder->stream, NULL, NULL);
}

static void *hold(void *argument)
{
    struct holder *holder = argument;
    gpu_use(0);
    while (!atomic_load(&holder->stops)) {
        const int64_t since_ns = tt_now_ns();
        atomic_store(&holder->since_ns, since_ns);
        holder->call(holder);
        const int64_t ns = tt_now_ns() - since_ns;
        if (ns > atomic_load(&holder->longest_ns)) atomic_store(&holder->longest_ns, ns);
        tt_test_pause();
    }
    return NULL;
}

static void begin_to_hold(struct holder *holder)
{
    static const char ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                              ".visible .entry nothing() { ret; }\n";
    CUmodule module;
    gpu_use(0);
    CALL(cuModuleLoadData, &module, ptx);
    CALL(cuModuleGetFunction, &holder->function, module, "nothing");
    CHECK(pthread_create(&holder->thread, NULL, hold, holder) == 0);
}

static void end_to_hold(struct holder *holder)
{
    atomic_store(&holder->stops, true);
    pthread_join(holder->thread, NULL);
    const int64_t longest_ns = atomic_load(&holder->longest_ns);
    CHECK_MESSAGE(longest_ns > HELD_MS * INT64_C(1000000),
                  "the driver has held the thread up for %lld us only",
                  (long long)longest_ns / 1000);
}

/* ---- Calls ------------------------------------------------------------------------------------
 */

struct job;
typedef tuttiResult_t (*issue)(struct job *job);

struct job {
    issue call;
    struct driven d;
    struct holder holder;
    float *large;
    CUgraphExec graph;
    int64_t since_ns;
};

static tuttiStream_t stream_of(const struct job *job)
{
    return job->d.streams[0];
}

static tuttiResult_t collective(struct job *job)
{
    return tuttiAllReduce(job->large, job->large, LARGE, tuttiFloat32, tuttiSum, job->d.comms[0],
                          stream_of(job));
}

static tuttiResult_t small_collective(struct job *job)
{
    return tuttiAllReduce(job->large, job->large, 10, tuttiFloat32, tuttiSum, job->d.comms[0],
                          stream_of(job));
}

static tuttiResult_t alone_without_stream(struct job *job)
{
    return tuttiAllReduce(job->large, job->large, LARGE, tuttiFloat32, tuttiSum, job->d.comms[0],
                          NULL);
}

static tuttiResult_t without_stream(struct job *job)
{
    const tuttiResult_t issued = collective(job); /* for which the driver waits */
    return issued ? issued : alone_without_stream(job);
}

static tuttiResult_t messages(struct job *job)
{
    const tuttiComm_t comm = job->d.comms[0];
    const tuttiStream_t stream = stream_of(job);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiSend(job->large, LARGE / 2, tuttiFloat32, 1, comm, stream), tuttiSuccess);
    CHECK_EQ(tuttiRecv(job->large + LARGE / 2, LARGE / 2, tuttiFloat32, 1, comm, stream),
             tuttiSuccess);
    return tuttiGroupEnd();
}

static tuttiResult_t replay_graph(struct job *job)
{
    (void)RESULT(cuGraphLaunch, job->graph, job->d.device_streams[0]);
    return tuttiSuccess;
}

/* ---- Tests ------------------------------------------------------------------------------------
 */

/* holds: NULL: there is no such thread. */
static bool begin(struct job *job, int timeout_ms, void (*holds)(struct holder *), issue call)
{
    *job = (struct job){.call = call, .holder.call = holds};
    if (!driven_begin_with(&job->d, 2, 1, timeout_ms)) return false;
    const struct gpu_rank rank = {.nranks = 2, .comm = job->d.comms[0]};
    job->large = (float *)gpu_memory(0, LARGE * sizeof(float));
    job->holder.stream = job->d.device_streams[0];
    if (call == replay_graph) {
        const struct both stream = {job->d.device_streams[0], stream_of(job)};
        gpu_use(0);
        job->graph = capture_sum(&rank, &stream, job->large, LARGE);
    }
    if (holds) begin_to_hold(&job->holder);
    job->since_ns = tt_now_ns();
    return true;
}

static void end(struct job *job)
{
    const int64_t ms = (tt_now_ns() - job->since_ns) / 1000000;
    CHECK_MESSAGE(ms < PATIENCE_MS, "the call ended after %lld ms", (long long)ms);
    if (job->holder.call) end_to_hold(&job->holder);
    if (job->graph) CALL(cuGraphExecDestroy, job->graph);
    for (int r = 0; r < job->d.nranks; r++)
        if (job->d.comms[r]) CHECK_EQ(tuttiCommAbort(job->d.comms[r]), tuttiSuccess);
    for (int r = 0; r < job->d.nranks; r++) {
        (void)tuttiStreamSynchronize(job->d.streams[r]);
        CHECK_EQ(tuttiStreamDestroy(job->d.streams[r]), tuttiSuccess);
        gpu_stream_destroy(0, job->d.device_streams[r]);
        gpu_free(job->d.memory[r]);
    }
    gpu_free(job->large);
    gpu_free_all();
}

static void await_failure(const struct job *job, tuttiResult_t *result)
{
    const int64_t deadline_ns = tt_deadline_ns(PATIENCE_MS);
    while (!*result && !tt_expired(deadline_ns))
        CHECK_EQ(tuttiCommGetAsyncError(job->d.comms[0], result), tuttiSuccess);
}

static void comes_to_the_deadline(issue call, void (*holds)(struct holder *))
{
    struct job job;
    if (!begin(&job, DEADLINE_MS, holds, call)) return;
    tuttiResult_t result = call(&job);
    if (call == replay_graph) await_failure(&job, &result);
    if (!result) result = tuttiStreamSynchronize(stream_of(&job));
    CHECK_MESSAGE(result == tuttiTimeout, "result %d: %s", (int)result,
                  tuttiGetLastError(job.d.comms[0]));
    end(&job);
}

/* Waits until the call has begun, and until the driver holds the thread up. A thread that does not
 * get a core looks as if it were held: it is no sign that the call has begun. */
static void await_hold(const struct job *job)
{
    const struct tt_engine *engine = &job->d.comms[0]->core.engine;
    const int64_t deadline_ns = tt_deadline_ns(PATIENCE_MS);
    bool has_begun = job->call == replay_graph; /* which is no call of the communicator */
    int64_t ns = 0;
    while ((!has_begun || ns < HELD_MS * INT64_C(1000000)) && !tt_expired(deadline_ns)) {
        tt_test_pause();
        has_begun = has_begun || atomic_load(&engine->outstanding);
        const int64_t since_ns = atomic_load(&job->holder.since_ns);
        ns = since_ns ? tt_now_ns() - since_ns : 0;
    }
    CHECK_MESSAGE(has_begun, "the call has not begun");
    CHECK_MESSAGE(ns >= HELD_MS * INT64_C(1000000), "the driver does not hold the thread up");
}

/* The thread that makes the call may be in the driver too. */
static void *make_call(void *argument)
{
    struct job *job = argument;
    gpu_use(0);
    const tuttiResult_t result = job->call(job);
    CHECK_MESSAGE(result == tuttiSuccess || result == tuttiRemoteError, "result %d", (int)result);
    return NULL;
}

static void is_aborted(issue call, void (*holds)(struct holder *))
{
    struct job job;
    pthread_t thread;
    if (!begin(&job, LONG_MS, holds, call)) return;
    CHECK(pthread_create(&thread, NULL, make_call, &job) == 0);
    await_hold(&job);
    job.since_ns = tt_now_ns();
    CHECK_EQ(tuttiCommAbort(job.d.comms[0]), tuttiSuccess);
    job.d.comms[0] = NULL;
    pthread_join(thread, NULL);
    end(&job);
}

#define HELD(what, call)                                                                           \
    TEST(held_by_synchronize, what)                                                                \
    {                                                                                              \
        comes_to_the_deadline(call, synchronize);                                                  \
    }                                                                                              \
    TEST(held_by_free, what)                                                                       \
    {                                                                                              \
        comes_to_the_deadline(call, free_memory);                                                  \
    }                                                                                              \
    TEST(held_by_full_queue, what)                                                                 \
    {                                                                                              \
        comes_to_the_deadline(call, launch);                                                       \
    }
#define ABORTED(what, call)                                                                        \
    TEST(held_by_synchronize, what)                                                                \
    {                                                                                              \
        is_aborted(call, synchronize);                                                             \
    }                                                                                              \
    TEST(held_by_free, what)                                                                       \
    {                                                                                              \
        is_aborted(call, free_memory);                                                             \
    }                                                                                              \
    TEST(held_by_full_queue, what)                                                                 \
    {                                                                                              \
        is_aborted(call, launch);                                                                  \
    }
HELD(a_collective_ends_at_the_deadline, collective)
HELD(a_small_collective_ends_at_the_deadline, small_collective)
HELD(messages_end_at_the_deadline, messages)
HELD(a_call_without_a_stream_ends_at_the_deadline, without_stream)
HELD(a_replay_ends_at_the_deadline, replay_graph)
ABORTED(an_abort_ends_a_collective, collective)
ABORTED(an_abort_ends_a_small_collective, small_collective)
ABORTED(an_abort_ends_messages, messages)
ABORTED(an_abort_ends_a_replay, replay_graph)

/* A driver that holds up the thread that launches, until the launched kernel has ended. */
static __typeof__(cuEventRecord) *real_record;
static _Atomic bool records;

static CUresult CUDAAPI wait_and_record(CUevent event, CUstream stream)
{
    atomic_store(&records, true);
    (void)RESULT(cuCtxSynchronize);
    return real_record(event, stream);
}

static void is_launched_slowly(issue call)
{
    struct job job;
    if (!begin(&job, DEADLINE_MS, NULL, call)) return;
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    real_record = driver->EventRecord;
    driver->EventRecord = wait_and_record;
    tuttiResult_t result = call(&job);
    if (!result) result = tuttiStreamSynchronize(stream_of(&job));
    CHECK_MESSAGE(result == tuttiTimeout, "result %d: %s", (int)result,
                  tuttiGetLastError(job.d.comms[0]));
    driver->EventRecord = real_record;
    end(&job);
}

TEST(held_launches, a_collective_ends_at_the_deadline)
{
    is_launched_slowly(collective);
}

TEST(held_launches, messages_end_at_the_deadline)
{
    is_launched_slowly(messages);
}

TEST(held_launches, a_call_without_a_stream_ends_at_the_deadline)
{
    is_launched_slowly(alone_without_stream);
}

/* The call cannot end without rank 1, which aborts while the driver holds up the thread of rank 0.
 */
static void loses_its_peer(issue call)
{
    struct job job;
    pthread_t thread;
    if (!begin(&job, 2 * PATIENCE_MS, NULL, call)) return;
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    real_record = driver->EventRecord;
    atomic_store(&records, false);
    driver->EventRecord = wait_and_record;
    CHECK(pthread_create(&thread, NULL, make_call, &job) == 0);
    const int64_t deadline_ns = tt_deadline_ns(PATIENCE_MS);
    while (!atomic_load(&records) && !tt_expired(deadline_ns)) tt_test_pause();
    CHECK(atomic_load(&records));
    job.since_ns = tt_now_ns();
    CHECK_EQ(tuttiCommAbort(job.d.comms[1]), tuttiSuccess);
    job.d.comms[1] = NULL;
    pthread_join(thread, NULL);
    CHECK_EQ(tuttiStreamSynchronize(stream_of(&job)), tuttiRemoteError);
    CHECK_MESSAGE(strstr(tuttiGetLastError(job.d.comms[0]), "aborted the communicator"), "%s",
                  tuttiGetLastError(job.d.comms[0]));
    driver->EventRecord = real_record;
    end(&job);
}

TEST(held_launches, a_collective_ends_when_a_peer_aborts)
{
    loses_its_peer(collective);
}

TEST(held_launches, messages_end_when_a_peer_aborts)
{
    loses_its_peer(messages);
}
