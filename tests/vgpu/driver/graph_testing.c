/* See graph_testing.h. */
#include "graph_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct gt gt;

static const char ptx[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry store(.param .u64 at, .param .u32 value)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [value];\n"
    "  st.global.u32 [%rd1], %r1; ret; }\n"
    ".visible .entry add(.param .u64 at, .param .u32 value)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [value];\n"
    "  mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2;\n"
    "  ld.global.u32 %r3, [%rd1]; add.u32 %r3, %r3, %r1; st.global.u32 [%rd1], %r3; ret; }\n"
    ".visible .entry next(.param .u64 counter, .param .u64 log)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [counter]; ld.param.u64 %rd2, [log];\n"
    "  ld.global.u32 %r1, [%rd1]; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd2, %rd2, %rd3;\n"
    "  add.u32 %r1, %r1, 1; st.global.u32 [%rd2], %r1; st.global.u32 [%rd1], %r1; ret; }\n"
    ".visible .entry move(.param .u64 to, .param .u64 from)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [to]; ld.param.u64 %rd2, [from];\n"
    "  mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4;\n"
    "  add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;\n"
    "  ld.global.u32 %r2, [%rd2]; st.global.u32 [%rd1], %r2; ret; }\n"
    ".visible .entry await(.param .u64 at, .param .u32 value)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [value];\n"
    "  mov.u32 %r2, 1; st.release.sys.global.u32 [%rd1+4], %r2;\n"
    "again: ld.acquire.sys.global.u32 %r3, [%rd1]; setp.ne.u32 %p1, %r3, %r1;\n"
    "  @%p1 bra again; ret; }\n";

void gt_open(void)
{
    CUdevice device;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&gt.context, device));
    OK(cuCtxSetCurrent(gt.context));
    OK(cuModuleLoadData(&gt.module, ptx));
    OK(cuModuleGetFunction(&gt.store, gt.module, "store"));
    OK(cuModuleGetFunction(&gt.add, gt.module, "add"));
    OK(cuModuleGetFunction(&gt.next, gt.module, "next"));
    OK(cuModuleGetFunction(&gt.move, gt.module, "move"));
    OK(cuModuleGetFunction(&gt.await, gt.module, "await"));
    OK(cuStreamCreate(&gt.stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&gt.other, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&gt.memory, GT_WORDS * sizeof(uint32_t)));
    const uint32_t zeros[GT_WORDS] = {0};
    OK(cuMemcpyHtoD(gt.memory, zeros, sizeof zeros));
}

int gt_run(void (*body)(void), const char *seed)
{
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        setenv("VGPU_SEED", seed, 1);
        gt_open();
        if (!tt_test_failed()) body();
        fflush(NULL);
        if (tt_test_failed()) _exit(1); /* not 86, whatever was reported */
        exit(0);                        /* the virtual GPU makes it 86 if it has reported */
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

CUresult gt_launch(CUfunction function, unsigned nthreads, CUstream stream, void **params)
{
    return cuLaunchKernel(function, 1, 1, 1, nthreads, 1, 1, 0, stream, params, NULL);
}

CUgraph gt_graph(void)
{
    CUgraph graph = NULL;
    OK(cuGraphCreate(&graph, 0));
    return graph;
}

CUgraphNode gt_kernel(CUgraph graph, CUfunction function, unsigned nthreads, void **params,
                      const CUgraphNode *before, size_t n)
{
    CUgraphNode node = NULL;
    const CUDA_KERNEL_NODE_PARAMS p = {.func = function,
                                       .gridDimX = 1,
                                       .gridDimY = 1,
                                       .gridDimZ = 1,
                                       .blockDimX = nthreads,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .kernelParams = params};
    OK(cuGraphAddKernelNode(&node, graph, before, n, &p));
    return node;
}

CUgraphNode gt_store(CUgraph graph, CUdeviceptr at, uint32_t value, const CUgraphNode *before,
                     size_t n)
{
    return gt_kernel(graph, gt.store, 1, (void *[]){&at, &value}, before, n);
}

volatile uint32_t *gt_mapped_words(void)
{
    void *words = NULL;
    OK(cuMemHostAlloc(&words, 16 * sizeof(uint32_t), CU_MEMHOSTALLOC_DEVICEMAP));
    memset(words, 0, 16 * sizeof(uint32_t));
    return words;
}

uint32_t gt_word(unsigned index)
{
    uint32_t word = 0;
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(&word, gt.memory + 4 * index, sizeof word));
    return word;
}

void gt_set_word(unsigned index, uint32_t value)
{
    OK(cuMemcpyHtoD(gt.memory + 4 * index, &value, sizeof value));
}

CUgraphExec gt_instantiate(CUgraph graph)
{
    CUgraphExec exec = NULL;
    OK(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

void gt_replay(CUgraphExec exec)
{
    OK(cuGraphLaunch(exec, gt.stream));
    OK(cuStreamSynchronize(gt.stream));
}
