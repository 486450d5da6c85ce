/* Latencies: launches, graphs, stream memory operations, flags between blocks and with the host,
 * fences. Times in us, medians. */
#include "speed.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CUmodule speed_module;

void speed_row(const char *name, double *times, int count)
{
    const double middle = median(times, count);
    row_begin("speed", name);
    row_number("us", middle);
    row_number("us_least", times[0]);
    row_number("us_most", times[count - 1]);
    row_number("runs", count);
    row_end();
}

enum { RUNS = 200 };

static void CUDA_CB on_host(void *argument)
{
    (void)argument;
}

static CUgraphExec graph_of(CUstream stream, CUfunction empty, int nkernels)
{
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < nkernels; i++)
        CHECK(cu.LaunchKernel(empty, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    CHECK(cu.StreamEndCapture(stream, &graph));
    CHECK(cu.GraphInstantiate(&exec, graph, 0));
    return exec;
}

static void launches(void)
{
    CUfunction empty = get_function(speed_module, "empty");
    CUstream stream;
    CUevent event;
    double times[RUNS];
    CHECK(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUgraphExec one = graph_of(stream, empty, 1), hundred = graph_of(stream, empty, 100);
    CUdeviceptr memory = device_alloc(4096);
    CHECK(cu.GraphLaunch(one, stream));
    CHECK(cu.GraphLaunch(hundred, stream));
    CHECK(cu.StreamSynchronize(stream));
#define LAUNCH cu.LaunchKernel(empty, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL)
#define TIMED(name, count, body)                                                                   \
    for (int r = 0; r < RUNS; r++) {                                                               \
        CHECK(cu.StreamSynchronize(stream));                                                       \
        const double begin = now_us();                                                             \
        for (int i = 0; i < (count); i++) CHECK(body);                                             \
        times[r] = (now_us() - begin) / (count);                                                   \
    }                                                                                              \
    speed_row(name, times, RUNS)
#define ENDED(name, body)                                                                          \
    for (int r = 0; r < RUNS; r++) {                                                               \
        CHECK(cu.StreamSynchronize(stream));                                                       \
        const double begin = now_us();                                                             \
        CHECK(body);                                                                               \
        CHECK(cu.StreamSynchronize(stream));                                                       \
        times[r] = now_us() - begin;                                                               \
    }                                                                                              \
    speed_row(name, times, RUNS)
    TIMED("kernel launch, the call", 20, LAUNCH);
    TIMED("cooperative launch, the call", 20,
          cu.LaunchCooperativeKernel(empty, 1, 1, 1, 32, 1, 1, 0, stream, NULL));
    TIMED("kernel launch, a stream of 500, each", 500, LAUNCH);
    ENDED("kernel launch to cuStreamSynchronize", LAUNCH);
    ENDED("cooperative launch to cuStreamSynchronize",
          cu.LaunchCooperativeKernel(empty, 1, 1, 1, 32, 1, 1, 0, stream, NULL));
    TIMED("graph launch of 1 kernel, the call", 20, cu.GraphLaunch(one, stream));
    ENDED("graph launch of 1 kernel to cuStreamSynchronize", cu.GraphLaunch(one, stream));
    ENDED("graph launch of 100 kernels to cuStreamSynchronize", cu.GraphLaunch(hundred, stream));
    TIMED("cuStreamWriteValue32, the call", 20, cu.StreamWriteValue32(stream, memory, 1, 0));
    ENDED("cuStreamWriteValue32 to cuStreamSynchronize",
          cu.StreamWriteValue32(stream, memory, 1, 0));
    TIMED("cuStreamWaitValue32 that holds, the call", 20,
          cu.StreamWaitValue32(stream, memory, 1, CU_STREAM_WAIT_VALUE_EQ));
    TIMED("cuEventRecord, the call", 20, cu.EventRecord(event, stream));
    TIMED("cuStreamWaitEvent, the call", 20, cu.StreamWaitEvent(stream, event, 0));
    ENDED("cuLaunchHostFunc to cuStreamSynchronize", cu.LaunchHostFunc(stream, on_host, NULL));
    ENDED("cuMemsetD32Async of 4 bytes to cuStreamSynchronize",
          cu.MemsetD32Async(memory, 0, 1, stream));
    TIMED("cuStreamSynchronize, idle", 20, cu.StreamSynchronize(stream));
    for (int r = 0; r < 20; r++) {
        CUdeviceptr some;
        const double begin = now_us();
        CHECK(cu.MemAlloc(&some, 64 << 20));
        CHECK(cu.MemFree(some));
        times[r] = now_us() - begin;
    }
    speed_row("cuMemAlloc and cuMemFree of 64 MiB", times, 20);
}

/* A stream waits for a word of the host, then writes one. */
static void stream_words(void)
{
    atomic_uint *words = mapped_alloc(4096);
    CUstream stream;
    double times[RUNS];
    CHECK(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned r = 0; r < RUNS; r++) {
        CHECK(cu.StreamWaitValue32(stream, (uintptr_t)words, r + 1, CU_STREAM_WAIT_VALUE_EQ));
        CHECK(cu.StreamWriteValue32(stream, (uintptr_t)(words + 64), r + 1, 0));
        const double begin = now_us();
        while (now_us() - begin < 30) {
        }
        const double start = now_us();
        atomic_store(words, r + 1);
        while (atomic_load(words + 64) != r + 1) {
        }
        times[r] = now_us() - start;
    }
    speed_row("host word, cuStreamWaitValue32, cuStreamWriteValue32, host word", times, RUNS);
}

static void ping_pongs(void)
{
    static const struct {
        const char *name;
        unsigned apart;
        int sys, host;
    } cases[] = {
        {"ping-pong of 2 blocks, release/acquire.gpu, device memory, round trip", 1, 0, 0},
        {"ping-pong of blocks 0 and 131, .gpu, round trip", 131, 0, 0},
        {"ping-pong of 2 blocks, release/acquire.sys, device memory, round trip", 1, 1, 0},
        {"ping-pong of 2 blocks, relaxed.gpu, device memory, round trip", 1, 2, 0},
        {"ping-pong of blocks 0 and 131, relaxed.gpu, round trip", 131, 2, 0},
        {"ping-pong of 2 blocks, .sys, mapped host memory, round trip", 1, 1, 1},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double times[11];
        unsigned *done = mapped_alloc(4096), nturns = cases[c].host ? 1000 : 10000;
        for (int r = 0; r < 11; r++) {
            CUdeviceptr words = cases[c].host ? (uintptr_t)mapped_alloc(4096) : device_alloc(4096);
            int sys = cases[c].sys;
            unsigned apart = cases[c].apart;
            const double begin = now_us();
            CHECK(cu.LaunchKernel(get_function(speed_module, "ping_pong"), 132, 1, 1, 1, 1, 1, 0,
                                  NULL, (void *[]){&words, &nturns, &sys, &apart, &done}, NULL));
            CHECK(cu.CtxSynchronize());
            times[r] = (now_us() - begin) / nturns;
            if (done[0] != nturns) die("%s ended after %u turns", cases[c].name, done[0]);
        }
        speed_row(cases[c].name, times, 11);
    }
}

/* The host plays against a kernel. */
static void host_ping_pong(const char *name)
{
    enum { TURNS = 2000 };
    atomic_uint *host = mapped_alloc(4096), *answer = mapped_alloc(4096);
    unsigned side = 1, nturns = TURNS, *done = mapped_alloc(64);
    unsigned long long stay = 1000000000, *none = NULL;
    double times[TURNS];
    /* The host's words begin with a value that no turn waits for. */
    atomic_store(host, 0xffffffffu);
    CHECK(cu.LaunchKernel(get_function(speed_module, "one_side"), 1, 1, 1, 1, 1, 1, 0, NULL,
                          (void *[]){&answer, &host, &side, &nturns, &stay, &done, &none}, NULL));
    for (unsigned i = 0; i < TURNS; i++) {
        const double begin = now_us();
        atomic_store_explicit(host, 2 * i + 1, memory_order_release);
        while (atomic_load_explicit(answer, memory_order_acquire) != 2 * i + 2)
            if (now_us() - begin > 3e6) die("%s: no answer", name);
        times[i] = now_us() - begin;
    }
    CHECK(cu.CtxSynchronize());
    speed_row(name, times, TURNS);
}

static void device_operations(void)
{
    static const char *const names[] = {
        "fence.acq_rel.cta", "fence.acq_rel.gpu", "fence.acq_rel.sys", "fence.sc.cta",
        "fence.sc.gpu",      "fence.sc.sys",      "atom.add.gpu",      "atom.add.sys",
        "ld.weak, L1",       "ld.relaxed.gpu",    "ld.acquire.gpu",    "ld.acquire.sys",
        "st.relaxed.gpu",    "st.release.gpu",    "st.release.sys",    "atom.cas.gpu",
        "bar.sync of 256",   "ld.relaxed.sys",
    };
    CUdeviceptr memory = device_alloc(1 << 20);
    char *host = mapped_alloc(1 << 20);
    long long *ticks = mapped_alloc(4096);
    for (int place = 0; place < 2; place++)
        for (int which = 0; which < (int)(sizeof names / sizeof *names); which++)
            for (int dirty = 0; dirty < 2; dirty++) {
                int n = 500;
                CUdeviceptr word = place ? (uintptr_t)host : memory, other = word + 65536;
                double values[9];
                char name[96];
                for (int r = 0; r < 9; r++) {
                    CHECK(cu.LaunchKernel(
                        get_function(speed_module, "latency"), 1, 1, 1, 256, 1, 1, 0, NULL,
                        (void *[]){&which, &word, &other, &n, &dirty, &ticks}, NULL));
                    CHECK(cu.CtxSynchronize());
                    values[r] = (double)ticks[0] / n;
                }
                snprintf(name, sizeof name, "%s%s", names[which],
                         dirty ? ", after a store to another line" : "");
                row_begin("speed", name);
                row_text("memory", place ? "mapped host" : "device");
                row_number("ticks", median(values, 9));
                row_end();
            }
}

/* Whether blocks begin in the order of their index. */
static void block_order(unsigned nthreads)
{
    enum { BLOCKS = 20000 };
    static unsigned order[BLOCKS];
    CUdeviceptr counter = device_alloc(64), memory = device_alloc(sizeof order);
    CHECK(cu.LaunchKernel(get_function(speed_module, "start_order"), BLOCKS, 1, 1, nthreads, 1, 1,
                          0, NULL, (void *[]){&counter, &memory}, NULL));
    CHECK(cu.MemcpyDtoH(order, memory, sizeof order));
    unsigned later = 0, farthest = 0;
    for (unsigned b = 0; b < BLOCKS; b++) {
        const unsigned ahead = b > order[b] ? b - order[b] : order[b] - b;
        later += b && order[b] < order[b - 1];
        if (ahead > farthest) farthest = ahead;
    }
    row_begin("speed", "order in which 20000 blocks begin");
    row_number("threads", nthreads);
    row_number("blocks_before_the_one_of_lower_index", later);
    row_number("farthest_from_index", farthest);
    row_end();
}

int main(void)
{
    driver_open(true);
    speed_module = load_module("speed.fatbin");
    launches();
    stream_words();
    block_order(32);
    block_order(1024);
    device_operations();
    ping_pongs();
    host_ping_pong("host and kernel, words in host memory, round trip");
    speed_kernels();
    speed_copies();
    return 0;
}
