/* Streams that share a hardware queue, and calls that wait inside the driver.
 *
 * 1. While one stream waits (for an event, for a word, or with a kernel behind another one), do
 *    kernels of other streams run? CUDA_DEVICE_MAX_CONNECTIONS says how many queues streams share.
 * 2. While a thread is in a call that waits for a kernel (cuMemFree), do calls of another return?
 * 3. How many launches fit behind a kernel that waits? When one more blocks, do the calls of
 *    another thread return?
 *
 * A kernel that waits ends by itself after some seconds, so nothing hangs for ever. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

enum { NSTREAMS = 48, MOST_LAUNCHES = 4096, RELAXED_SYS = 3 };

static CUfunction wait_kernel, put_kernel, empty_kernel, wide_kernel;
static CUstream holder, other;
static atomic_uint *word, *started, *puts_done;
static unsigned *turns;
static CUdeviceptr copied;

static void open_kernels(const char *connections)
{
    if (connections) setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections, 1);
    driver_open(true);
    const CUmodule calls = load_module("calls.fatbin");
    wait_kernel = get_function(load_module("visible.fatbin"), "wait_for_change");
    put_kernel = get_function(calls, "put");
    empty_kernel = get_function(calls, "nothing");
    wide_kernel = get_function(calls, "nothing_wide");
    word = mapped_alloc(4096);
    started = mapped_alloc(4096);
    turns = mapped_alloc(4096);
    copied = device_alloc(4096);
    puts_done = mapped_alloc(NSTREAMS * sizeof *puts_done);
    CHECK(cu.StreamCreate(&holder, CU_STREAM_NON_BLOCKING));
    CHECK(cu.StreamCreate(&other, CU_STREAM_NON_BLOCKING));
}

static void launch(CUfunction function, CUstream stream, void **arguments)
{
    CHECK(cu.LaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

/* A kernel that waits for *word, at most `seconds`, begins to run on `holder`. */
static void begin_wait(double seconds)
{
    int kind = RELAXED_SYS;
    unsigned long long stay = (unsigned long long)(seconds * 1e9);
    atomic_store(word, 0);
    atomic_store(started, 0);
    launch(wait_kernel, holder, (void *[]){&word, &kind, &stay, &started, &turns});
    while (!atomic_load(started)) {
    }
}

static void end_wait(void)
{
    atomic_store(word, 1);
    CHECK(cu.StreamSynchronize(holder));
}

/* All kernels run once, so that no first use is measured. */
static void warm_up(void)
{
    unsigned one = 1, *to = (unsigned *)puts_done;
    char wide[4000] = {0};
    begin_wait(1);
    end_wait();
    launch(put_kernel, other, (void *[]){&to, &one});
    launch(empty_kernel, other, NULL);
    launch(wide_kernel, other, (void *[]){wide});
    CHECK(cu.StreamSynchronize(other));
    atomic_store(puts_done, 0);
}

/* ---- 1. Kernels of other streams ------------------------------------------------------------ */

enum manner { EVENT, VALUE, KERNEL };
static const char *const manners[] = {"cuStreamWaitEvent", "cuStreamWaitValue32",
                                      "a kernel behind one that waits on the same stream"};

static int count_done(int n)
{
    int done = 0;
    for (int i = 0; i < n; i++) done += atomic_load(&puts_done[i]) != 0;
    return done;
}

/* A kernel that waits for *word, at most 3 s. It writes to words of its own. */
static void launch_wait(CUstream stream, int number)
{
    int kind = RELAXED_SYS;
    unsigned long long stay = 3000000000u;
    atomic_uint *its_start = started + 1 + number;
    unsigned *its_turns = turns + 1 + number;
    launch(wait_kernel, stream, (void *[]){&word, &kind, &stay, &its_start, &its_turns});
}

/* The stream has something to wait for, and a kernel behind that. */
static void make_wait(CUstream stream, enum manner manner, CUevent event, int number)
{
    if (manner == EVENT) CHECK(cu.StreamWaitEvent(stream, event, 0));
    if (manner == VALUE)
        CHECK(
            cu.StreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)word, 1, CU_STREAM_WAIT_VALUE_EQ));
    if (manner == KERNEL) launch_wait(stream, number);
    launch(empty_kernel, stream, NULL);
}

/* nwaiting streams wait; each of n others has one kernel. */
static void others_run(const char *connections, enum manner manner, int nwaiting, int n)
{
    CUstream waiting[NSTREAMS], streams[NSTREAMS];
    CUevent event;
    unsigned one = 1;
    open_kernels(connections);
    warm_up();
    CHECK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < nwaiting; i++) CHECK(cu.StreamCreate(&waiting[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < n; i++) CHECK(cu.StreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    begin_wait(3);
    CHECK(cu.EventRecord(event, holder));
    for (int i = 0; i < nwaiting; i++) make_wait(waiting[i], manner, event, i);
    for (int i = 0; i < n; i++) {
        unsigned *to = (unsigned *)&puts_done[i];
        launch(put_kernel, streams[i], (void *[]){&to, &one});
    }
    const double begin = now_us();
    while (count_done(n) < n && now_us() - begin < 200e3) {
    }
    const int done = count_done(n);
    const double us = now_us() - begin;
    const bool still = cu.StreamQuery(holder) == CUDA_ERROR_NOT_READY;
    end_wait();
    CHECK(cu.CtxSynchronize());
    row_begin("queues", "kernels of other streams while some streams wait");
    row_text("CUDA_DEVICE_MAX_CONNECTIONS", connections ? connections : "not set");
    row_text("wait", manners[manner]);
    row_number("streams_that_wait", nwaiting);
    row_number("other_streams", n);
    row_number("ran_at_once", done);
    row_number("us", us);
    row_text("wait_was_over", still ? "no" : "yes");
    row_number("ran_afterwards", count_done(n) - done);
    row_end();
}

/* ---- Calls of two threads ------------------------------------------------------------------- */

/* A call that a thread makes; what it works on is made before. */
struct call {
    const char *name;
    CUresult (*make)(void);
};

static CUdeviceptr memory;
static void *pinned;
static CUmodule unloaded;
static CUevent event_of_other;

static CUresult free_memory(void)
{
    return cu.MemFree(memory);
}

static CUresult free_pinned(void)
{
    return cu.MemFreeHost(pinned);
}

static CUresult unload(void)
{
    return cu.ModuleUnload(unloaded);
}

static CUresult synchronize_context(void)
{
    return cu.CtxSynchronize();
}

static CUresult synchronize_holder(void)
{
    return cu.StreamSynchronize(holder);
}

static CUresult query_holder(void)
{
    return cu.StreamQuery(holder);
}

static CUresult query_other(void)
{
    return cu.StreamQuery(other);
}

static CUresult query_event(void)
{
    return cu.EventQuery(event_of_other);
}

static CUresult record_event(void)
{
    return cu.EventRecord(event_of_other, other);
}

static CUresult wait_event(void)
{
    return cu.StreamWaitEvent(other, event_of_other, 0);
}

static CUresult launch_empty(void)
{
    return cu.LaunchKernel(empty_kernel, 1, 1, 1, 1, 1, 1, 0, other, NULL, NULL);
}

static CUresult ask_pointer(void)
{
    unsigned type;
    return cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  (CUdeviceptr)(uintptr_t)word);
}

static CUresult ask_capture(void)
{
    CUstreamCaptureStatus status;
    return cu.StreamIsCapturing(other, &status);
}

static CUresult allocate(void)
{
    CUdeviceptr more;
    return cu.MemAlloc(&more, 1 << 20);
}

static CUresult allocate_pinned(void)
{
    void *more;
    return cu.MemHostAlloc(&more, 4096, CU_MEMHOSTALLOC_DEVICEMAP);
}

static CUresult copy_to_device(void)
{
    return cu.MemcpyAsync(copied, (CUdeviceptr)(uintptr_t)turns, sizeof *turns, other);
}

static CUresult write_word(void)
{
    return cu.StreamWriteValue32(other, (CUdeviceptr)(uintptr_t)puts_done, 0, 0);
}

static CUresult push_context(void)
{
    CUcontext context;
    const CUresult result = cu.CtxPushCurrent(driver_context);
    return result ? result : cu.CtxPopCurrent(&context);
}

static const struct call blockers[] = {{"cuMemFree", free_memory},
                                       {"cuMemFreeHost", free_pinned},
                                       {"cuModuleUnload", unload},
                                       {"cuCtxSynchronize", synchronize_context},
                                       {"cuStreamSynchronize", synchronize_holder}};
static const struct call asked[] = {{"cuStreamQuery of the stream", query_holder},
                                    {"cuStreamQuery of another stream", query_other},
                                    {"cuEventQuery", query_event},
                                    {"cuCtxPushCurrent and cuCtxPopCurrent", push_context},
                                    {"cuPointerGetAttribute", ask_pointer},
                                    {"cuStreamIsCapturing", ask_capture},
                                    {"cuEventRecord", record_event},
                                    {"cuStreamWaitEvent", wait_event},
                                    {"cuLaunchKernel", launch_empty},
                                    {"cuMemcpyAsync from pinned memory", copy_to_device},
                                    {"cuStreamWriteValue32", write_word},
                                    {"cuMemHostAlloc", allocate_pinned},
                                    {"cuMemAlloc", allocate}};
enum { NBLOCKERS = sizeof blockers / sizeof *blockers, NASKED = sizeof asked / sizeof *asked };

/* A thread that makes a call. */
struct caller {
    const struct call *call;
    pthread_t thread;
    atomic_bool begun, ended;
    CUresult result;
    double us;
};

static void *make_call(void *argument)
{
    struct caller *caller = argument;
    CHECK(cu.CtxSetCurrent(driver_context));
    atomic_store(&caller->begun, true);
    const double begin = now_us();
    caller->result = caller->call->make();
    caller->us = now_us() - begin;
    atomic_store(&caller->ended, true);
    return NULL;
}

static void begin_call(struct caller *caller, const struct call *call)
{
    *caller = (struct caller){.call = call};
    if (pthread_create(&caller->thread, NULL, make_call, caller)) die("no thread");
    while (!atomic_load(&caller->begun)) {
    }
}

static bool ends_within(struct caller *caller, double us)
{
    const double begin = now_us();
    while (!atomic_load(&caller->ended) && now_us() - begin < us) usleep(100);
    return atomic_load(&caller->ended);
}

static void print_asked(const char *name, const char *key, const char *value, struct caller *caller,
                        bool returned)
{
    row_begin("queues", name);
    row_text(key, value);
    row_text("call", caller->call->name);
    row_text("returns", returned ? "at once" : "when the kernel has ended");
    row_result("result", caller->result);
    row_number("us", caller->us);
    row_end();
}

/* ---- 2. A thread that waits in the driver --------------------------------------------------- */

static void calls_beside(const struct call *blocker)
{
    for (int i = 0; i < NASKED; i++) {
        struct caller waits, asks;
        memory = device_alloc(1 << 20);
        pinned = mapped_alloc(1 << 20);
        unloaded = load_module("speed.fatbin");
        begin_wait(3);
        begin_call(&waits, blocker);
        const bool blocks = !ends_within(&waits, 20e3);
        begin_call(&asks, &asked[i]);
        const bool returned = ends_within(&asks, 100e3);
        end_wait();
        pthread_join(waits.thread, NULL);
        pthread_join(asks.thread, NULL);
        print_asked("a call while another thread is in one that waits for a kernel",
                    blocks ? "the_other_waits_in" : "the_other_does_not_wait_in", blocker->name,
                    &asks, returned);
    }
}

static void held_driver(const struct call *blocker)
{
    open_kernels(NULL);
    warm_up();
    CHECK(cu.EventCreate(&event_of_other, CU_EVENT_DISABLE_TIMING));
    calls_beside(blocker);
}

/* ---- 3. A full queue of launches ------------------------------------------------------------ */

static atomic_int nlaunched;
static enum { EMPTY, WIDE, WITH_EVENTS } what_is_launched;
static const char *const launched_names[] = {"cuLaunchKernel", "cuLaunchKernel, 4 KB of parameters",
                                             "cuStreamWaitEvent, cuLaunchKernel, cuEventRecord"};

static CUresult launch_many(void)
{
    char wide[4000] = {0};
    for (int i = 0; i < MOST_LAUNCHES; i++) {
        CUresult result = CUDA_SUCCESS;
        if (what_is_launched == WITH_EVENTS) result = cu.StreamWaitEvent(holder, event_of_other, 0);
        if (!result)
            result = cu.LaunchKernel(what_is_launched == WIDE ? wide_kernel : empty_kernel, 1, 1, 1,
                                     1, 1, 1, 0, holder, (void *[]){wide}, NULL);
        if (!result && what_is_launched == WITH_EVENTS)
            result = cu.EventRecord(event_of_other, holder);
        if (result) return result;
        atomic_store(&nlaunched, i + 1);
    }
    return CUDA_SUCCESS;
}

/* Waits until the launches have stopped for a tenth of a second, or are all made. */
static bool stops(struct caller *launches)
{
    int before = -1;
    while (!ends_within(launches, 100e3)) {
        const int now = atomic_load(&nlaunched);
        if (now == before) return true;
        before = now;
    }
    return false;
}

static void full_queue(int what)
{
    static const struct call many = {"launches", launch_many};
    what_is_launched = what;
    open_kernels(NULL);
    warm_up();
    CHECK(cu.EventCreate(&event_of_other, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < NASKED; i++) {
        struct caller launches, asks;
        atomic_store(&nlaunched, 0);
        begin_wait(3);
        begin_call(&launches, &many);
        const bool full = stops(&launches);
        const int fitted = atomic_load(&nlaunched);
        begin_call(&asks, &asked[i]);
        const bool returned = ends_within(&asks, 100e3);
        end_wait();
        pthread_join(launches.thread, NULL);
        pthread_join(asks.thread, NULL);
        CHECK(launches.result);
        CHECK(cu.CtxSynchronize());
        char text[96];
        snprintf(text, sizeof text, full ? "blocks after %d" : "does not block, %d", fitted);
        row_begin("queues", "launches behind a kernel that waits");
        row_text("launched", launched_names[what]);
        row_text("launching", text);
        row_end();
        print_asked("a call while the launches of another thread", "launches", text, &asks,
                    returned);
    }
}

/* ---- Parts, each in a process of its own ---------------------------------------------------- */

static const struct {
    const char *connections;
    int nwaiting;
} others[] = {{"1", 1},  {NULL, 1},  {NULL, 4},  {NULL, 6},  {NULL, 7},  {NULL, 8},
              {"32", 8}, {"32", 30}, {"32", 31}, {"32", 32}, {"32", 40}, {"16", 15}};
enum {
    NOTHERS = 3 * sizeof others / sizeof *others,
    NPARTS = NOTHERS + NBLOCKERS + 3,
};

static void part(int i)
{
    if (i < NOTHERS)
        others_run(others[i / 3].connections, (enum manner)(i % 3), others[i / 3].nwaiting, 16);
    else if (i < NOTHERS + NBLOCKERS)
        held_driver(&blockers[i - NOTHERS]);
    else
        full_queue(i - NOTHERS - NBLOCKERS);
}

int main(void)
{
    for (int i = 0; i < NPARTS; i++) {
        fflush(stdout);
        const pid_t child = fork();
        if (!child) {
            alarm(40);
            part(i);
            fflush(stdout);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (status) fprintf(stderr, "part %d of the probe failed: status %d\n", i, status);
    }
    return 0;
}
