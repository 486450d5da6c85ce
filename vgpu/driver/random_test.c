/* Random programs that are right (random_program.h) run without a report and with the right values;
 * with an edge left out many are reported.
 *
 * TUTTI_TEST_PROGRAMS asks for more, TUTTI_TEST_SEED for others, TUTTI_TEST_LIST=1 prints each
 * program before it runs. */
#include "random_program.h"
#include "testing.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROGRAMS = 40, WRONG = 20, LENGTH = 40, BYTES = 4 * VR_WORDS, FLAG_BYTES = 64 };

#define HEAD ".version 8.0\n.target sm_75\n.address_size 64\n"
#define SET(number, text)                                                                          \
    ".visible .entry set" #number "(.param .u64 f) { .reg .u32 %r<2>; .reg .u64 %d<2>;\n"          \
    "ld.param.u64 %d1, [f]; mov.u32 %r1, 1; " text " ret; }\n"
#define AWAIT(number, load, fence)                                                                 \
    ".visible .entry await" #number                                                                \
    "(.param .u64 f) { .reg .u32 %r<2>; .reg .u64 %d<2>; .reg .pred %p<2>;\n"                      \
    "ld.param.u64 %d1, [f];\n"                                                                     \
    "W: " load " setp.eq.u32 %p1, %r1, 0; @%p1 bra W; " fence " ret; }\n"

static const char ptx[] = HEAD
    ".visible .entry step(.param .u64 out, .param .u64 a, .param .u64 b, .param .u32 k,\n"
    " .param .u32 n, .param .u64 set, .param .u64 count) {\n"
    ".reg .u32 %r<12>; .reg .u64 %d<9>; .reg .pred %p<5>;\n"
    "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;\n"
    "mad.lo.u32 %r4, %r2, %r3, %r1; ld.param.u32 %r5, [n];\n"
    "setp.ge.u32 %p1, %r4, %r5; @%p1 bra N;\n"
    "ld.param.u64 %d1, [out]; ld.param.u64 %d2, [a]; ld.param.u64 %d3, [b];\n"
    "mul.wide.u32 %d4, %r4, 4; add.u64 %d1, %d1, %d4; add.u64 %d2, %d2, %d4;\n"
    "add.u64 %d3, %d3, %d4; ld.global.u32 %r6, [%d2]; ld.global.u32 %r7, [%d3];\n"
    "ld.param.u32 %r8, [k]; mul.lo.u32 %r6, %r6, 3; add.u32 %r6, %r6, %r7;\n"
    "add.u32 %r6, %r6, %r8; st.global.u32 [%d1], %r6;\n"
    "N: bar.sync 0; setp.ne.u32 %p2, %r1, 0; ld.param.u64 %d5, [set];\n"
    "setp.eq.u64 %p3, %d5, 0; or.pred %p2, %p2, %p3; @%p2 bra E;\n"
    "ld.param.u64 %d6, [count]; mov.u32 %r9, %nctaid.x; sub.u32 %r9, %r9, 1;\n"
    "atom.acq_rel.gpu.global.add.u32 %r10, [%d6], 1;\n"
    "setp.ne.u32 %p4, %r10, %r9; @%p4 bra E;\n"
    "mov.u32 %r11, 1; st.release.sys.global.u32 [%d5], %r11;\n"
    "E: ret; }\n" SET(0, "st.release.sys.global.u32 [%d1], %r1;")
        SET(1, "fence.acq_rel.sys; st.relaxed.sys.global.u32 [%d1], %r1;")
            SET(2, "red.release.sys.global.add.u32 [%d1], %r1;")
                SET(3, "fence.sc.sys; st.volatile.global.u32 [%d1], %r1;")
                    SET(4, "st.release.gpu.global.u32 [%d1], %r1;")
                        AWAIT(0, "ld.acquire.sys.global.u32 %r1, [%d1];", "")
                            AWAIT(1, "ld.relaxed.sys.global.u32 %r1, [%d1];", "fence.acq_rel.sys;")
                                AWAIT(2, "atom.acquire.sys.global.add.u32 %r1, [%d1], 0;", "")
                                    AWAIT(3, "ld.volatile.global.u32 %r1, [%d1];", "fence.sc.sys;")
                                        AWAIT(4, "ld.acquire.gpu.global.u32 %r1, [%d1];", "");

static struct vr_program program;
static bool is_right; /* no edge was left out: values count */

static CUcontext contexts[VR_GPUS];
static struct {
    CUfunction step, set[5], await[5];
    CUdeviceptr counts;
} gpu[VR_GPUS];
static CUstream streams[VR_STREAMS], side[VR_THREADS][VR_GPUS][2];
static CUdeviceptr buffers[VR_BUFFERS], flags[3];
static CUevent events[VR_OPS];
static atomic_int done[VR_THREADS]; /* numbers of operations below have been done by the thread */

static CUdeviceptr memory(int on, size_t nbytes)
{
    OK(cuCtxSetCurrent(contexts[on < 0 ? 0 : on]));
    return on < 0 ? (CUdeviceptr)vt_mapped(nbytes) : vt_device(nbytes);
}

/* Of VMM, for both GPUs. */
static CUdeviceptr mapped(int on)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at = 0;
    CUmemAccessDesc access = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access.location.id = 1 - on;
    OK(cuCtxSetCurrent(contexts[on]));
    OK(vt_map(on, 2 << 20, &handle, &at));
    OK(cuMemSetAccess(at, 2 << 20, &access, 1));
    OK(cuMemsetD8(at, 0, BYTES));
    OK(cuCtxSynchronize());
    return at;
}

/* The third buffer of each GPU is of VMM, that of the host is the program's own. */
static CUdeviceptr buffer_of(int b)
{
    static uint32_t own[1024] __attribute__((aligned(4096)));
    if (b % 3 != 2) return memory(vr_gpu_of_buffer(b), BYTES);
    if (vr_gpu_of_buffer(b) >= 0) return mapped(vr_gpu_of_buffer(b));
    OK(cuMemHostRegister(own, sizeof own, CU_MEMHOSTREGISTER_PORTABLE));
    return (CUdeviceptr)own;
}

static CUdeviceptr flag_at(int flag)
{
    return flags[flag % 3] + (CUdeviceptr)(FLAG_BYTES * (flag / 3));
}

static void open_gpu(int d)
{
    CUmodule module;
    char name[24];
    OK(cuDevicePrimaryCtxRetain(&contexts[d], d));
    OK(cuCtxSetCurrent(contexts[d]));
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&gpu[d].step, module, "step"));
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "set%d", i);
        OK(cuModuleGetFunction(&gpu[d].set[i], module, name));
        snprintf(name, sizeof name, "await%d", i);
        OK(cuModuleGetFunction(&gpu[d].await[i], module, name));
    }
    OK(cuStreamCreate(&streams[3 * d], CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&streams[3 * d + 1], CU_STREAM_DEFAULT));
    streams[3 * d + 2] = CU_STREAM_LEGACY;
    for (int i = 0; i < 2 * VR_THREADS; i++)
        OK(cuStreamCreate(&side[i / 2][d][i % 2], CU_STREAM_NON_BLOCKING));
    gpu[d].counts = vt_device(VR_FLAGS * 4);
}

static void open_all(void)
{
    OK(cuInit(0));
    for (int d = 0; d < VR_GPUS; d++) open_gpu(d);
    for (int d = 0; d < VR_GPUS; d++) {
        OK(cuCtxSetCurrent(contexts[d]));
        OK(cuCtxEnablePeerAccess(contexts[1 - d], 0));
    }
    for (int b = 0; b < VR_BUFFERS; b++) buffers[b] = buffer_of(b);
    for (int i = 0; i < 3; i++)
        flags[i] = memory(vr_gpu_of_flag(i), FLAG_BYTES * (VR_FLAGS / 3 + 2));
}

/* --- operations --- */

static void check_values(const uint32_t *is, const uint32_t *expected, const char *what)
{
    int i = 0;
    while (i < VR_WORDS && is[i] == expected[i]) i++;
    if (i < VR_WORDS && is_right)
        CHECK_MESSAGE(false, "%s: word %d is %u and not %u", what, i, is[i], expected[i]);
}

static void run_step(const struct vr_op *op, CUstream stream, int out, const int in[2], uint32_t k)
{
    const int d = vr_gpu_of_stream(op->stream);
    uint32_t n = VR_WORDS;
    CUdeviceptr set = op->set >= 0 ? flag_at(op->set) : 0,
                count = gpu[d].counts + (CUdeviceptr)(op->set >= 0 ? 4 * op->set : 0);
    const unsigned nthreads = (VR_WORDS + op->blocks - 1) / op->blocks;
    OK(cuLaunchKernel(
        gpu[d].step, op->blocks, 1, 1, nthreads, 1, 1, 0, stream,
        (void *[]){&buffers[out], &buffers[in[0]], &buffers[in[1]], &k, &n, &set, &count}, NULL));
}

static void CUDA_CB host_step(void *arg)
{
    const struct vr_op *op = arg;
    const uint32_t *a = (const uint32_t *)buffers[op->in[0]],
                   *b = (const uint32_t *)buffers[op->in[1]];
    uint32_t *out = (uint32_t *)buffers[op->out];
    for (int i = 0; i < VR_WORDS; i++) out[i] = 3 * a[i] + b[i] + op->k;
}

/* Two branches of a capture, and a step behind both. */
static void run_graph(const struct vr_op *op, CUstream stream)
{
    CUstream *own = side[op->thread][vr_gpu_of_stream(op->stream)];
    const int turned[] = {op->in[1], op->in[0]}, both[] = {op->out, op->out2};
    CUevent fork, end;
    CUgraph graph;
    CUgraphExec exec;
    OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture(own[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuEventRecord(fork, own[0]));
    OK(cuStreamWaitEvent(own[1], fork, 0));
    run_step(op, own[0], op->out, op->in, op->k);
    run_step(op, own[1], op->out2, turned, op->k + 1);
    OK(cuEventRecord(end, own[1]));
    OK(cuStreamWaitEvent(own[0], end, 0));
    run_step(op, own[0], op->out, both, op->k + 2);
    OK(cuStreamEndCapture(own[0], &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuEventDestroy(fork));
    OK(cuEventDestroy(end));
}

static void fill_words(uint32_t *words, uint32_t k)
{
    for (uint32_t i = 0; i < VR_WORDS; i++) words[i] = k + i;
}

static void run_data(const struct vr_op *op, CUstream stream)
{
    uint32_t words[VR_WORDS];
    const CUdeviceptr out = op->out >= 0 ? buffers[op->out] : 0,
                      in = op->in[0] >= 0 ? buffers[op->in[0]] : 0;
    switch (op->kind) {
    case VR_STEP:
        run_step(op, stream, op->out, op->in, op->k);
        break;
    case VR_COPY:
        OK(cuMemcpyAsync(out, in, BYTES, stream));
        break;
    case VR_FILL:
        OK(cuMemsetD32Async(out, op->k, VR_WORDS, stream));
        break;
    case VR_HOSTF:
        OK(cuLaunchHostFunc(stream, host_step, (void *)(uintptr_t)op));
        break;
    case VR_PEER:
        OK(cuMemcpyPeerAsync(out, contexts[vr_gpu_of_buffer(op->out)], in,
                             contexts[vr_gpu_of_buffer(op->in[0])], BYTES, stream));
        break;
    case VR_GRAPH:
        run_graph(op, stream);
        break;
    case VR_CHECK:
        check_values((const uint32_t *)in, op->expected, "the host's memory");
        break;
    case VR_STORE:
        fill_words((uint32_t *)out, op->k);
        break;
    case VR_FETCH:
        OK(cuMemcpyDtoH(words, in, BYTES));
        check_values(words, op->expected, "a copy");
        break;
    default: /* VR_PUT */
        fill_words(words, op->k);
        OK(vr_is_legacy(op->stream) ? cuMemcpyHtoD(out, words, BYTES)
                                    : cuMemcpyHtoDAsync(out, words, BYTES, stream));
    }
}

static void set_flag(const struct vr_op *op, CUstream stream)
{
    const int d = vr_gpu_of_stream(op->stream);
    CUdeviceptr at = flag_at(op->flag);
    if (op->k == VR_WRITE)
        OK(cuStreamWriteValue32(stream, at, 1, 0));
    else
        OK(vt_launch(gpu[d].set[op->k], 1, stream, (void *[]){&at}));
}

static void await_flag(const struct vr_op *op, CUstream stream, uint32_t way)
{
    const int d = vr_gpu_of_stream(op->stream);
    CUdeviceptr at = flag_at(op->flag);
    if (way == VR_WAIT)
        OK(cuStreamWaitValue32(stream, at, 1, CU_STREAM_WAIT_VALUE_GEQ));
    else
        OK(vt_launch(gpu[d].await[way], 1, stream, (void *[]){&at}));
}

/* The host looks at its own memory, or copies the flag. */
static void poll_flag(const struct vr_op *op)
{
    const int d = vr_gpu_of_flag(op->flag) < 0 ? 0 : vr_gpu_of_flag(op->flag);
    const CUdeviceptr at = flag_at(op->flag);
    CUresult result = CUDA_SUCCESS;
    uint32_t word = 0;
    OK(cuCtxSetCurrent(contexts[d]));
    while (word == 0 && (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)) {
        if (vr_gpu_of_flag(op->flag) < 0 && op->k == 0) {
            word = __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE);
            result = cuStreamQuery(side[op->thread][d][0]);
        } else {
            result = cuMemcpyDtoHAsync(&word, at, 4, side[op->thread][d][0]);
            if (result == CUDA_SUCCESS) result = cuStreamSynchronize(side[op->thread][d][0]);
        }
    }
    OK(result);
}

static void wait_for_stream(const struct vr_op *op, CUstream stream)
{
    CUevent event;
    if (op->k == VR_SYNCS) return;
    if (op->k == VR_STREAM) {
        OK(cuStreamSynchronize(stream));
        return;
    }
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(event, stream));
    CUresult result = op->k == VR_EVENT ? cuEventSynchronize(event) : cuEventQuery(event);
    while (result == CUDA_ERROR_NOT_READY) result = cuEventQuery(event);
    OK(result);
    OK(cuEventDestroy(event));
}

static void execute(const struct vr_op *op)
{
    const CUstream stream = op->stream >= 0 ? streams[op->stream] : NULL;
    if (op->stream >= 0) OK(cuCtxSetCurrent(contexts[vr_gpu_of_stream(op->stream)]));
    switch (op->kind) {
    case VR_RECORD:
        OK(cuEventCreate(&events[op->flag], CU_EVENT_DISABLE_TIMING));
        OK(cuEventRecord(events[op->flag], stream));
        break;
    case VR_AFTER:
        OK(cuStreamWaitEvent(stream, events[op->flag], 0));
        OK(cuEventDestroy(events[op->flag]));
        break;
    case VR_SET:
        set_flag(op, stream);
        break;
    case VR_AWAIT:
        await_flag(op, stream, op->k);
        break;
    case VR_LATE:
        await_flag(op, stream, op->k % VR_NARROWLY);
        fill_words((uint32_t *)buffers[op->out], op->k);
        __atomic_store_n((uint32_t *)flag_at(op->flag), 1, __ATOMIC_RELEASE);
        break;
    case VR_SYNC:
        wait_for_stream(op, stream);
        break;
    case VR_POLL:
        poll_flag(op);
        break;
    case VR_JOIN:
        while (atomic_load_explicit(&done[op->k], memory_order_acquire) <= op->other) sched_yield();
        break;
    default:
        run_data(op, stream);
    }
}

static void *run_thread(void *arg)
{
    const int thread = (int)(intptr_t)arg;
    for (int i = 0; i < program.nops; i++) {
        if (program.op[i].thread == thread) execute(&program.op[i]);
        atomic_store_explicit(&done[thread], i + 1, memory_order_release);
    }
    return NULL;
}

static void run_program(void)
{
    pthread_t threads[VR_THREADS];
    uint32_t words[VR_WORDS];
    open_all();
    for (intptr_t t = 1; t < VR_THREADS; t++)
        CHECK_EQ(pthread_create(&threads[t], NULL, run_thread, (void *)t), 0);
    run_thread(NULL);
    for (int t = 1; t < VR_THREADS; t++) pthread_join(threads[t], NULL);
    for (int d = 0; d < VR_GPUS; d++) {
        OK(cuCtxSetCurrent(contexts[d]));
        OK(cuCtxSynchronize());
    }
    for (int b = 0; b < VR_BUFFERS; b++) {
        OK(cuMemcpy((CUdeviceptr)words, buffers[b], BYTES));
        check_values(words, program.final[b], "a buffer at the end");
    }
}

/* --- tests --- */

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static int run_one(uint64_t seed, int left_out, char *text, size_t room)
{
    static const char *const ways[] = {"VGPU_READS=random", "VGPU_READS=oldest",
                                       "VGPU_BLOCK_ORDER=shuffled", "VGPU_LATE=100",
                                       "VGPU_DEPTH=2"};
    char name[48];
    vr_generate(&program, seed, LENGTH, left_out);
    is_right = left_out < 0;
    if (getenv("TUTTI_TEST_LIST") != NULL) vr_print(&program);
    for (int t = 0; t < VR_THREADS; t++) atomic_store(&done[t], 0);
    snprintf(name, sizeof name, "VGPU_SEED=%llu", (unsigned long long)seed);
    const char *way = ways[seed % (sizeof ways / sizeof *ways)];
    return vt_run_unopened((const char *[]){name, "VGPU_DEVICES=2", way, NULL}, run_program, text,
                           room);
}

TEST(vgpu_random, right_programs_run_without_a_report)
{
    char text[4096];
    const uint64_t first = setting("TUTTI_TEST_SEED", 1),
                   n = setting("TUTTI_TEST_PROGRAMS", PROGRAMS);
    int nops = 0, nedges = 0;
    for (uint64_t seed = first; seed < first + n && !tt_test_failed(); seed++) {
        const int status = run_one(seed, -1, text, sizeof text);
        CHECK_MESSAGE(status == 0, "TUTTI_TEST_SEED=%llu: status %d\n%s", (unsigned long long)seed,
                      status, text);
        nops += program.nops;
        nedges += program.nedges;
    }
    printf("%llu programs, %d operations, %d edges\n", (unsigned long long)n, nops, nedges);
}

TEST(vgpu_random, programs_without_one_of_their_edges_are_reported)
{
    char text[4096];
    int reported = 0;
    for (uint64_t seed = 1; seed <= WRONG; seed++) {
        vr_generate(&program, seed, LENGTH, -1);
        reported += run_one(seed, (int)(seed % (uint64_t)program.nedges), text, sizeof text) == 86;
    }
    printf("%d of %d programs were reported\n", reported, WRONG);
    CHECK(4 * reported >= WRONG);
}
