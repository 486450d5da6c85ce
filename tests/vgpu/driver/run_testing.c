/* See run_testing.h. */
#include "run_testing.h"

#include <shim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 60 };

static const char ptx[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry append(.param .u64 log, .param .u32 id)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [log]; ld.param.u32 %r1, [id];\n"
    "  atom.relaxed.gpu.global.add.u32 %r2, [%rd1], 1;\n"
    "  add.u32 %r2, %r2, 1; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2;\n"
    "  st.relaxed.gpu.global.u32 [%rd1], %r1; ret; }\n"
    ".visible .entry await(.param .u64 word, .param .u32 value, .param .u64 then)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1, [word]; ld.param.u32 %r1, [value]; ld.param.u64 %rd2, [then];\n"
    "L: ld.acquire.sys.global.u32 %r2, [%rd1]; setp.ne.u32 %p1, %r2, %r1; @%p1 bra L;\n"
    "  mov.u32 %r3, 1; st.release.sys.global.u32 [%rd2], %r3; ret; }\n"
    ".visible .entry set(.param .u64 word, .param .u32 value)\n"
    "{ .reg .u32 %r<2>; .reg .u64 %rd<2>;\n"
    "  ld.param.u64 %rd1, [word]; ld.param.u32 %r1, [value];\n"
    "  st.release.sys.global.u32 [%rd1], %r1; ret; }\n"
    ".visible .entry turns(.param .u64 mine, .param .u64 theirs, .param .u32 n)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1, [mine]; ld.param.u64 %rd2, [theirs]; ld.param.u32 %r1, [n];\n"
    "  mov.u32 %r2, 0;\n"
    "N: add.u32 %r2, %r2, 1; st.release.gpu.global.u32 [%rd1], %r2;\n"
    "W: ld.acquire.gpu.global.u32 %r3, [%rd2]; setp.lt.u32 %p1, %r3, %r2; @%p1 bra W;\n"
    "  setp.lt.u32 %p1, %r2, %r1; @%p1 bra N; ret; }\n"
    ".visible .entry put(.param .u64 word, .param .u32 value)\n"
    "{ .reg .u32 %r<2>; .reg .u64 %rd<2>;\n"
    "  ld.param.u64 %rd1, [word]; ld.param.u32 %r1, [value]; st.global.u32 [%rd1], %r1; ret; }\n"
    ".visible .entry fail() { trap; }\n"
    ".visible .entry nine(.param .u8 a, .param .u64 b, .param .u32 c, .param .u64 out)\n"
    "{ .reg .u16 %h<2>; .reg .u32 %r<2>; .reg .u64 %rd<5>;\n"
    "  ld.param.u8 %h1, [a]; ld.param.u64 %rd2, [b]; ld.param.u32 %r1, [c];\n"
    "  ld.param.u64 %rd4, [out]; cvt.u64.u16 %rd1, %h1; cvt.u64.u32 %rd3, %r1;\n"
    "  st.global.u64 [%rd4], %rd1; st.global.u64 [%rd4+8], %rd2; st.global.u64 [%rd4+16], %rd3;\n"
    "  ret; }\n";

CUfunction rt_append, rt_await, rt_set, rt_turns, rt_put, rt_trap, rt_nine;

static void open_device(void)
{
    static const struct {
        const char *name;
        CUfunction *function;
    } kernels[] = {{"append", &rt_append}, {"await", &rt_await}, {"set", &rt_set},
                   {"turns", &rt_turns},   {"put", &rt_put},     {"fail", &rt_trap},
                   {"nine", &rt_nine}};
    CUcontext context;
    CUmodule module;
    CHECK_EQ(cuInit(0), CUDA_SUCCESS);
    CHECK_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    CHECK_EQ(cuModuleLoadData(&module, ptx), CUDA_SUCCESS);
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        CHECK_EQ(cuModuleGetFunction(kernels[i].function, module, kernels[i].name), CUDA_SUCCESS);
}

static void child(const char *const settings[], void (*body)(void), int errors)
{
    for (int i = 0; settings != NULL && settings[i] != NULL; i++)
        putenv((char *)(uintptr_t)settings[i]);
    dup2(errors, STDERR_FILENO);
    alarm(SECONDS);
    open_device();
    body();
    fflush(stdout);
    if (tt_test_failed()) _exit(1);
    exit(0); /* reports may change the status */
}

int rt_run(const char *const settings[], void (*body)(void), char *text, size_t room)
{
    int status = 0;
    const int errors = memfd_create("errors", MFD_CLOEXEC);
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) child(settings, body, errors);
    waitpid(pid, &status, 0);
    const ssize_t n = pread(errors, text, room - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    close(errors);
    const int result = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    CHECK_MESSAGE(result == 0 || result == 86, "the child ended with status 0x%x\n%s", status,
                  text);
    return result;
}

void rt_quiet(const char *const settings[], void (*body)(void))
{
    char text[4096];
    CHECK_MESSAGE(rt_run(settings, body, text, sizeof text) == 0, "%s", text);
}

CUresult rt_launch(CUfunction kernel, CUstream stream, void **params)
{
    return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

CUstream rt_stream(unsigned flags)
{
    CUstream stream = NULL;
    CHECK_EQ(cuStreamCreate(&stream, flags), CUDA_SUCCESS);
    return stream;
}

CUdeviceptr rt_device(size_t nbytes)
{
    CUdeviceptr memory = 0;
    CHECK_EQ(cuMemAlloc(&memory, nbytes), CUDA_SUCCESS);
    CHECK_EQ(cuMemsetD8(memory, 0, nbytes), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    return memory;
}

volatile uint32_t *rt_mapped(size_t nbytes)
{
    void *bytes = NULL;
    CHECK_EQ(cuMemHostAlloc(&bytes, nbytes, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
    memset(bytes, 0, nbytes);
    return bytes;
}

uint32_t rt_word(CUdeviceptr memory, int at)
{
    uint32_t word = 0;
    CHECK_EQ(cuMemcpyDtoH(&word, memory + 4 * (unsigned)at, 4), CUDA_SUCCESS);
    return word;
}
