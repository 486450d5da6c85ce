/* Kernels for the tests of the runtime. */
#include "testing.h"

char rt_add, rt_trap, rt_counter, rt_await, rt_meet, rt_big, rt_absent, rt_variable;

static const char ptx[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .global .align 4 .u32 variable[4] = {7, 8, 9, 10};\n"
    ".visible .entry add(.param .u64 at, .param .u32 value)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [value];\n"
    "  mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2;\n"
    "  ld.global.u32 %r3, [%rd1]; add.u32 %r3, %r3, %r1; st.global.u32 [%rd1], %r3; ret; }\n"
    ".visible .entry stop() { trap; ret; }\n"
    ".visible .entry counter(.param .u64 out)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [out]; ld.global.u32 %r1, [variable]; st.global.u32 [%rd1], %r1;\n"
    "  add.u32 %r1, %r1, 1; st.global.u32 [variable], %r1; ret; }\n"
    ".visible .entry await(.param .u64 word)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1, [word];\n"
    "L: ld.acquire.sys.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; ret; }\n"
    ".visible .entry meet(.param .u64 out)\n"
    "{ .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<6>;\n"
    "  ld.param.u64 %rd1, [out]; mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2;\n"
    "  cvt.u64.u32 %rd2, %r2; cvt.u64.u32 %rd3, %r1; bfi.b64 %rd2, %rd3, %rd2, 32, 32;\n"
    "  mov.u32 %r3, %ctaid.x; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd4, %rd1, %rd4;\n"
    "  mov.u32 %r5, %nctaid.x; atom.add.u32 %r4, [%rd2+4], 1;\n"
    "L: ld.volatile.u32 %r4, [%rd2+4]; setp.lt.u32 %p1, %r4, %r5; @%p1 bra L;\n"
    "  st.global.u32 [%rd4], %r4; ret; }\n"
    ".visible .entry big()\n"
    "{ .reg .u32 %r<2>; .shared .align 4 .b8 room[1000]; st.shared.u32 [room], 1; ret; }\n";

/* As in the programs of nvcc. */
static const struct {
    uint32_t magic, version;
    const void *fat, *others;
} wrapper = {0x466243b1, 1, ptx, NULL};

static void add(void **fat, char *host, const char *name)
{
    __cudaRegisterFunction(fat, host, host, name, -1, NULL, NULL, NULL, NULL, NULL);
}

void rt_register(void)
{
    void **fat = __cudaRegisterFatBinary((void *)(uintptr_t)&wrapper);
    add(fat, &rt_add, "add");
    add(fat, &rt_trap, "stop");
    add(fat, &rt_counter, "counter");
    add(fat, &rt_await, "await");
    add(fat, &rt_meet, "meet");
    add(fat, &rt_big, "big");
    add(fat, &rt_absent, "absent");
    __cudaRegisterVar(fat, &rt_variable, &rt_variable, "variable", 0, 16, 0, 0);
    __cudaRegisterFatBinaryEnd(fat);
}

static void (*running)(void);

static void registered(void)
{
    rt_register();
    running();
}

int rt_run_text(void (*body)(void), char *text, size_t room)
{
    running = body;
    return vt_run_unopened((const char *[]){"VGPU_DEVICES=2", NULL}, registered, text, room);
}

void rt_run(void (*body)(void))
{
    char text[4096];
    CHECK_MESSAGE(rt_run_text(body, text, sizeof text) == 0 && text[0] == '\0', "%s", text);
}

cudaError_t rt_launch(const char *kernel, unsigned grid, unsigned block, cudaStream_t stream,
                      void **args)
{
    cudaKernel_t handle = NULL;
    dim3 grid_dim, block_dim;
    size_t shared = 1;
    cudaStream_t taken = NULL;
    CHECK_EQ(__cudaPushCallConfiguration((dim3){grid, 1, 1}, (dim3){block, 1, 1}, 0, stream), 0);
    FINE(__cudaGetKernel(&handle, kernel));
    FINE(__cudaPopCallConfiguration(&grid_dim, &block_dim, &shared, &taken));
    return __cudaLaunchKernel(handle, grid_dim, block_dim, args, shared, taken);
}

uint32_t *rt_words(size_t count)
{
    void *memory = NULL;
    FINE(cudaMalloc(&memory, count * sizeof(uint32_t)));
    FINE(cudaMemset(memory, 0, count * sizeof(uint32_t)));
    FINE(cudaDeviceSynchronize()); /* a fill of device memory is not awaited */
    return memory;
}

uint32_t rt_word(const uint32_t *memory)
{
    uint32_t value = UINT32_MAX;
    FINE(cudaDeviceSynchronize());
    FINE(cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}
