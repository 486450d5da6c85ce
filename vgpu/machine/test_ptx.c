/* Kernels that nvcc compiled (kernels/kernels.cu), read, lowered and run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "builder.h"
#include "shim.h"

enum { TEXT = 1 << 20, N = 4096 };

/* Reads kernels.ptx; NULL: the test has failed. */
static struct vg_module *read_kernels(void)
{
    const char *path = TUTTI_SOURCE_DIR "/vgpu/machine/kernels/kernels.ptx";
    struct vg_module *module = NULL;
    char error[256] = "";
    char *text = malloc(TEXT);
    FILE *file = fopen(path, "r");
    if (text != NULL && file != NULL) {
        const size_t nbytes = fread(text, 1, TEXT - 1, file);
        text[nbytes] = '\0';
        if (vg_ptx_read(text, nbytes, &module, error) != 0) module = NULL;
    }
    if (file != NULL) fclose(file);
    free(text);
    CHECK_MESSAGE(module != NULL, "%s: %s", path, error);
    return module;
}

/* Runs a kernel (out, a, b, N) of the file: out is at 0 of the buffer, a and b behind it. */
static void run_kernel(struct builder *b, const char *name, uint32_t nblocks, uint32_t nthreads)
{
    struct vg_module *module = read_kernels();
    if (module == NULL) return;
    const uint64_t params[4] = {B_ADDRESS, B_ADDRESS + 4 * N, B_ADDRESS + 8 * N, N};
    b->ran = module;
    b->kernel = NULL;
    b->params = params;
    for (uint32_t i = 0; i < module->nfunctions; i++)
        if (strcmp(module->functions[i].name, name) == 0) b->kernel = &module->functions[i];
    CHECK_MESSAGE(b->kernel != NULL, "no kernel %s", name);
    if (b->kernel != NULL)
        CHECK_MESSAGE(b_run(b, nblocks, nthreads) == VG_DONE, "%s: %s", name, b->text);
    CHECK_EQ(b->model_counts.races, 0);
    vg_module_destroy(module);
}

TEST(vgpu_ptx_run, a_fold_adds_vectors_with_and_without_the_model)
{
    for (int off = 0; off < 2; off++) {
        struct builder *b = b_create();
        float *x = (float *)(void *)b->out;
        b->settings.model.off = off != 0;
        b->settings.strict_vectors = off == 0;
        for (int i = 0; i < N; i++) x[N + i] = (float)i, x[2 * N + i] = 0.5f;
        run_kernel(b, "fold", 3, 96);
        int wrong = 0;
        for (int i = 0; i < N; i++) wrong += x[i] != (float)i + 0.5f;
        CHECK_EQ(wrong, 0);
        b_destroy(b);
    }
}

TEST(vgpu_ptx_run, a_reduction_by_shuffles_and_shared_memory)
{
    struct builder *b = b_create();
    for (uint32_t i = 0; i < N; i++) b->out[N + i] = i;
    run_kernel(b, "reduce", 4, 256);
    for (int i = 0; i < 4; i++) CHECK_EQ(b->out[i], N * (N - 1) / 2);
    b_destroy(b);
}

TEST(vgpu_ptx_run, recursion_and_calls_by_address)
{
    static const uint32_t fibonacci[10] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34};
    struct builder *b = b_create();
    b->local = 2048;
    run_kernel(b, "calls", 1, 64);
    for (uint32_t i = 0; i < 64; i++) {
        CHECK_EQ(b->out[2 * i], fibonacci[i % 10]);
        CHECK_EQ((int32_t)b->out[2 * i + 1], i % 2 == 0 ? 2 * (int32_t)i : -(int32_t)i);
    }
    b_destroy(b);
}

/* As grid_group::sync() of cooperative groups: by a word of the grid's workspace. */
TEST(vgpu_ptx_run, a_cooperative_grid_has_a_workspace_for_its_barrier)
{
    static const char text[] =
        ".version 9.0\n.target sm_75\n.address_size 64\n.entry k(.param .u64 out) {\n"
        ".reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<6>;\n"
        "ld.param.u64 %rd1, [out]; mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2;\n"
        "cvt.u64.u32 %rd2, %r2; cvt.u64.u32 %rd3, %r1; bfi.b64 %rd2, %rd3, %rd2, 32, 32;\n"
        "mov.u32 %r3, %ctaid.x; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd4, %rd1, %rd4;\n"
        "st.global.u32 [%rd4], 7; membar.gl; atom.add.u32 %r4, [%rd2+4], 1;\n"
        "L: ld.volatile.u32 %r4, [%rd2+4]; setp.lt.u32 %p1, %r4, 4; @%p1 bra L; membar.gl;\n"
        "xor.b32 %r3, %r3, 3; mul.wide.u32 %rd5, %r3, 4; add.s64 %rd5, %rd1, %rd5;\n"
        "ld.global.u32 %r5, [%rd5]; add.u32 %r5, %r5, 1; st.global.u32 [%rd4+64], %r5;\nret;\n}\n";
    for (int round = 0; round < 2; round++) {
        struct builder *b = b_create();
        struct vg_module *module = NULL;
        const uint64_t params[1] = {B_ADDRESS};
        char error[256] = "";
        CHECK_MESSAGE(vg_ptx_read(text, strlen(text), &module, error) == 0, "%s", error);
        b->ran = module;
        b->kernel = module != NULL ? &module->functions[0] : NULL;
        b->params = params;
        b->cooperative = round == 0;
        const enum vg_progress progress = module != NULL ? b_run(b, 4, 1) : VG_FAULTED;
        CHECK_MESSAGE(progress == (round == 0 ? VG_DONE : VG_FAULTED), "%s", b->text);
        for (int i = 0; i < 4; i++) CHECK_EQ(b->out[16 + i], round == 0 ? 8 : 0);
        CHECK_EQ(b->model_counts.races, 0);
        vg_module_destroy(module);
        b_destroy(b);
    }
}

/* As tiles of several warps of cooperative groups, from sm_80 on: their barrier and what they
 * exchange lie in shared memory of the system, beside the block's own. */
TEST(vgpu_ptx_run, a_block_has_shared_memory_of_the_system)
{
    static const char text[] =
        ".version 9.0\n.target sm_80\n.address_size 64\n.entry k(.param .u64 out) {\n"
        ".shared .align 4 .u32 own;\n"
        ".reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<6>;\n"
        "ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %reserved_smem_offset_1;\n"
        "mov.u32 %r5, %reserved_smem_offset_begin; mov.u32 %r6, %reserved_smem_offset_end;\n"
        "mov.u32 %r7, %reserved_smem_offset_cap;\n"
        "cvt.u64.u32 %rd2, %r2; cvta.shared.u64 %rd2, %rd2; setp.ne.u32 %p1, %r1, 0;\n"
        "@!%p1 st.shared.u32 [own], 7; @%p1 red.add.shared.u32 [%r2], 5; bar.sync 0;\n"
        "mov.u32 %r3, own; cvt.u64.u32 %rd3, %r3; cvta.shared.u64 %rd3, %rd3;\n"
        "@%p1 mov.u64 %rd3, %rd2; ld.u32 %r4, [%rd3];\n" /* the two in one instruction */
        "mul.wide.u32 %rd4, %r1, 4; add.s64 %rd4, %rd1, %rd4; st.global.u32 [%rd4], %r4;\n"
        "sub.u32 %r8, %r6, %r5; setp.eq.u32 %p1, %r8, %r7; selp.u32 %r8, 1, 0, %p1;\n"
        "st.global.u32 [%rd4+64], %r8; ret;\n}\n";
    struct builder *b = b_create();
    struct vg_module *module = NULL;
    const uint64_t params[1] = {B_ADDRESS};
    char error[256] = "";
    CHECK_MESSAGE(vg_ptx_read(text, strlen(text), &module, error) == 0, "%s", error);
    b->ran = module;
    b->kernel = module != NULL ? &module->functions[0] : NULL;
    b->params = params;
    const enum vg_progress progress = module != NULL ? b_run(b, 1, 4) : VG_FAULTED;
    CHECK_MESSAGE(progress == VG_DONE, "%s", b->text);
    for (int i = 0; i < 4; i++) CHECK_EQ(b->out[i], i == 0 ? 7 : 15);
    for (int i = 0; i < 4; i++) CHECK_EQ(b->out[16 + i], 1);
    CHECK_EQ(b->model_counts.races, 0);
    vg_module_destroy(module);
    b_destroy(b);
}

TEST(vgpu_ptx_run, a_spin_lock_counts_every_thread)
{
    struct builder *b = b_create();
    b->settings.patience = 100;
    for (b->settings.seed = 1; b->settings.seed < 4; b->settings.seed++) {
        b->out[0] = 0;
        run_kernel(b, "spin", 3, 64);
        CHECK_EQ(b->out[0], 192);
    }
    b_destroy(b);
}

TEST(vgpu_ptx_run, printf_of_a_compiled_kernel)
{
    struct builder *b = b_create();
    run_kernel(b, "hello", 1, 2);
    CHECK_STR(b->printed, "thread 0 of hello: 0.00 4096\nthread 1 of hello: 1.50 4096\n");
    b_destroy(b);
}
