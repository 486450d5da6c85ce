/* One memory mapped at two addresses: fence.proxy.alias, and races between them. */
#include "testing.h"

#include <stdio.h>
#include <string.h>

enum { SIZE = 2 << 20, SEEDS = 6 };

#define HEAD ".version 8.0\n.target sm_75\n.address_size 64\n"

static CUdeviceptr first, second;

static void map_twice(void)
{
    CUmemGenericAllocationHandle handle;
    OK(vt_map(0, SIZE, &handle, &first));
    OK(vt_map_handle(0, SIZE, handle, &second));
    OK(cuMemsetD32(first, 0, SIZE / 4));
    OK(cuCtxSynchronize());
}

/* Block 0 stores i at the first address and loads it at the second one, n times. */
static void store_and_load(const char *fence)
{
    static char ptx[2048];
    CUmodule module;
    CUfunction kernel;
    uint32_t n = 50;
    snprintf(ptx, sizeof ptx,
             HEAD ".visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n) {\n"
                  ".reg .u32 %%r<4>; .reg .u64 %%d<3>; .reg .pred %%p<3>;\n"
                  "ld.param.u64 %%d1, [a]; ld.param.u64 %%d2, [b]; ld.param.u32 %%r1, [n];\n"
                  "mov.u32 %%r2, 0;\n"
                  "N: add.u32 %%r2, %%r2, 1; st.global.u32 [%%d1], %%r2;\n"
                  "%s ld.global.u32 %%r3, [%%d2]; %s\n"
                  "setp.eq.u32 %%p1, %%r2, %%r3; @%%p1 bra G; st.global.u32 [%%d2+128], %%r2;\n"
                  "G: setp.ne.u32 %%p2, %%r2, %%r1; @%%p2 bra N; ret; }\n",
             fence, fence);
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&kernel, module, "k"));
    map_twice();
    OK(vt_launch(kernel, 1, NULL, (void *[]){&first, &second, &n}));
    OK(cuCtxSynchronize());
}

static void fenced(void)
{
    store_and_load("fence.proxy.alias;");
    CHECK_EQ(vt_read(second, 32), 0);
}

static void fenced_by_membar(void)
{
    store_and_load("membar.proxy.alias;");
    CHECK_EQ(vt_read(second, 32), 0);
}

static void unfenced(void)
{
    store_and_load("fence.acq_rel.gpu;");
}

TEST(vgpu_alias, a_fence_makes_a_store_visible_at_the_other_address)
{
    for (int seed = 1; seed <= SEEDS; seed++) {
        char setting[32];
        snprintf(setting, sizeof setting, "VGPU_SEED=%d", seed);
        vt_quiet((const char *[]){setting, NULL}, fenced);
        vt_quiet((const char *[]){setting, NULL}, fenced_by_membar);
    }
}

TEST(vgpu_alias, a_forgotten_fence_is_reported)
{
    char text[4096];
    CHECK_EQ(vt_run(NULL, unfenced, text, sizeof text), 86);
    CHECK_MESSAGE(strstr(text, "another address of the same memory") != NULL &&
                      strstr(text, "Put fence.proxy.alias between") != NULL,
                  "%s", text);
}

/* Kernels, copies and fills at both addresses, one behind another. */
static void in_order(void)
{
    uint32_t words[2] = {0};
    map_twice();
    OK(vt_put(first, 5, NULL));
    OK(vt_move(second + 128, second, NULL));
    OK(cuMemcpyDtoD(second + 256, first + 128, 4));
    OK(cuMemsetD32(second + 260, 6, 1));
    OK(cuMemcpyDtoH(words, first + 256, sizeof words));
    CHECK_EQ(words[0], 5);
    CHECK_EQ(words[1], 6);
    OK(cuMemUnmap(first, SIZE));
    OK(vt_put(second, 7, NULL));
    CHECK_EQ(vt_read(second, 0), 7);
}

static void without_order(void)
{
    const CUstream stream = vt_stream(CU_STREAM_NON_BLOCKING),
                   other = vt_stream(CU_STREAM_NON_BLOCKING);
    map_twice();
    OK(vt_put(first + 4096, 5, stream));
    OK(cuMemsetD32Async(second, 6, SIZE / 4, other));
    OK(cuCtxSynchronize());
}

TEST(vgpu_alias, work_of_two_streams_races_and_that_of_one_does_not)
{
    char text[4096];
    vt_quiet(NULL, in_order);
    CHECK_EQ(vt_run(NULL, without_order, text, sizeof text), 86);
    CHECK_MESSAGE(strstr(text, "another address of the same memory") != NULL, "%s", text);
}
