/* Forms that nvcc makes rarely, as text: what they compute and store. */
#include <shim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vgpu/session/session.h>

#define HEAD ".version 9.0\n.target sm_100\n.address_size 64\n"
#define KERNEL                                                                                     \
    ".visible .entry k(.param .u64 out, .param .u64 in) {\n"                                       \
    ".reg .pred %p<8>; .reg .b16 %h<20>; .reg .b32 %r<20>; .reg .b64 %rd<12>; .reg .f32 %f<20>;\n" \
    "ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in];\n"
#define END "ret;\n}\n"

enum { WORDS = 64 };

/* Runs the kernel by one thread, or nthreads: in holds 0, 1, 2 ... The session, or NULL. */
static struct vs_session *run_with(const struct vg_machine_settings *settings, const char *text,
                                   uint32_t nthreads, int *status, uint32_t **out)
{
    char error[512] = "";
    struct vs_session *s = vs_open(settings, text, strlen(text), error);
    CHECK_MESSAGE(s, "%s\n%s", error, text);
    if (!s) return NULL;
    struct vg_region *to = vs_buffer(s, WORDS * 4, "out", false);
    struct vg_region *from = vs_buffer(s, WORDS * 4, "in", false);
    if (!to || !from) abort();
    for (uint32_t i = 0; i < WORDS; i++) memcpy(from->bytes + (size_t)4 * i, &i, 4);
    *out = (uint32_t *)(void *)to->bytes;
    *status = vs_launch(s, "k", 1, nthreads, 0, (uint64_t[]){to->address, from->address});
    return s;
}

static struct vs_session *run(const char *text, uint32_t nthreads, int *status, uint32_t **out)
{
    const struct vg_machine_settings settings = {.seed = 3, .strict_vectors = true};
    return run_with(&settings, text, nthreads, status, out);
}

TEST(vgpu_forms_run, a_vector_of_256_bits_is_eight_words)
{
    int status;
    uint32_t *out;
    struct vs_session *s = run(
        HEAD KERNEL "ld.global.L2::evict_last.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,_}, [%rd2+32];\n"
                    "st.global.v8.b32 [%rd1], {%r7,%r6,%r5,%r4,%r3,%r2,%r1,99};\n"
                    "ld.global.nc.v4.b64 {%rd2,%rd3,%rd4,%rd5}, [%rd2+64];\n"
                    "st.v4.b64 [%rd1+32], {%rd2,%rd3,%rd4,%rd5};\n" END,
        1, &status, &out);
    if (!s) return;
    CHECK_MESSAGE(status == 0, "%s", s->report);
    for (uint32_t i = 0; i < 7; i++) CHECK_EQ(out[i], 14 - i);
    CHECK_EQ(out[7], 99);
    for (uint32_t i = 0; i < 8; i++) CHECK_EQ(out[8 + i], 16 + i);
    vs_close(s);
}

TEST(vgpu_forms_run, a_vector_of_256_bits_is_aligned_to_its_size)
{
    int status;
    uint32_t *out;
    struct vs_session *s =
        run(HEAD KERNEL "ld.global.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%rd2+16];\n" END, 1,
            &status, &out);
    if (!s) return;
    CHECK(status == 1 && s->fault == VG_FAULT_MISALIGNED);
    CHECK_MESSAGE(strstr(s->report, "multiple of 32"), "%s", s->report);
    vs_close(s);
}

TEST(vgpu_forms_run, each_element_of_a_vector_atomic_is_added)
{
    int status;
    uint32_t *out;
    struct vs_session *s =
        run(HEAD KERNEL "mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f40000000; mov.b16 %h1, 0x3c00;\n"
                        "mov.b32 %r1, 0x3c004000; mov.b16 %h2, 0x4000;\n"
                        "atom.global.v2.f32.add {%f3, _}, [%rd1], {%f1, %f2};\n"
                        "red.global.v4.f32.add [%rd1+16], {%f1, %f2, %f1, %f2};\n"
                        "red.relaxed.gpu.global.add.noftz.v8.f16 [%rd1+32], "
                        "{%h1,%h2,%h1,%h2,%h1,%h2,%h1,%h2};\n"
                        "atom.global.v2.f16x2.max.noftz {%r2, %r3}, [%rd1+48], {%r1, %r1};\n" END,
            4, &status, &out);
    if (!s) return;
    CHECK_MESSAGE(status == 0 && s->races == 0, "%s", s->report);
    const float *f = (const float *)(void *)out;
    CHECK(f[0] == 4 && f[1] == 8 && f[4] == 4 && f[5] == 8 && f[6] == 4 && f[7] == 8);
    for (int i = 8; i < 12; i++) CHECK_EQ(out[i], 0x48004400);
    CHECK(out[12] == 0x3c004000 && out[13] == 0x3c004000);
    vs_close(s);
}

TEST(vgpu_forms_run, pairs_of_floats_and_the_maximum_of_three)
{
    int status;
    uint32_t *out;
    struct vs_session *s = run(
        HEAD KERNEL "mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f40000000; mov.f32 %f3, 0f40400000;\n"
                    "mov.b64 %rd3, {%f1, %f2}; mov.b64 %rd4, {%f2, %f3};\n"
                    "add.rn.f32x2 %rd5, %rd3, %rd4; st.global.b64 [%rd1], %rd5;\n"
                    "fma.rn.f32x2 %rd5, %rd3, %rd4, %rd5; st.global.b64 [%rd1+8], %rd5;\n"
                    "sub.f32x2 %rd3, %rd3, %rd4; st.global.b64 [%rd1+16], %rd3;\n"
                    "max.f32 %f4, %f1, %f3, %f2; min.f32 %f5, %f3, %f2, %f1;\n"
                    "st.global.v2.f32 [%rd1+24], {%f4, %f5};\n" END,
        1, &status, &out);
    if (!s) return;
    const float expected[8] = {3, 5, 5, 11, -1, -1, 3, 1};
    CHECK_MESSAGE(status == 0, "%s", s->report);
    CHECK(memcmp(out, expected, sizeof expected) == 0);
    vs_close(s);
}

/* '_' for each kind of result that may be missing. */
TEST(vgpu_forms_run, an_underscore_takes_a_result_that_nobody_wants)
{
    int status;
    uint32_t *out;
    struct vs_session *s = run(
        HEAD KERNEL "atom.global.add.u32 _, [%rd1], 5; atom.global.exch.b64 _, [%rd1+8], 7;\n"
                    "ld.global.v4.u32 {_, %r1, _, %r2}, [%rd2]; mov.b64 {_, %r3}, %rd2;\n"
                    "setp.eq.u32 _|%p1, %r1, 1; setp.eq.u32 %p2|_, %r1, 1;\n"
                    "shfl.sync.idx.b32 %r4|_, %r2, 0, 31, 1; elect.sync _|%p3, 1;\n"
                    "selp.u32 %r5, 1, 0, %p1; selp.u32 %r6, 1, 0, %p2; selp.u32 %r7, 1, 0, %p3;\n"
                    "st.global.v4.u32 [%rd1+16], {%r4, %r5, %r6, %r7};\n" END,
        1, &status, &out);
    if (!s) return;
    CHECK_MESSAGE(status == 0, "%s", s->report);
    CHECK(out[0] == 5 && out[2] == 7);
    CHECK(out[4] == 3 && out[5] == 0 && out[6] == 1 && out[7] == 1);
    vs_close(s);
}

/* Variables of other kernels take no room, and a kernel's own lie behind the module's it uses. */
TEST(vgpu_forms_run, a_kernel_has_only_the_shared_variables_that_it_uses)
{
    int status;
    uint32_t *out;
    struct vs_session *s =
        run(HEAD
            ".shared .align 4 .b8 huge[40000];\n.shared .align 4 .b8 mine[8];\n"
            ".func f() {\n.shared .align 4 .b8 more[12];\n.reg .b32 %r<2>;\nmov.u32 %r1, more;\n"
            "st.shared.u32 [%r1], %r1;\nret;\n}\n"
            ".entry other() {\n.reg .b32 %r<2>;\nmov.u32 %r1, huge;\n"
            "st.shared.u32 [%r1], %r1;\ncall f;\nret;\n}\n" KERNEL
            ".shared .align 4 .b8 own[4];\nmov.u32 %r1, own; mov.u32 %r2, mine;\n"
            "st.shared.u32 [own], 1; st.shared.u32 [mine+4], 2;\n"
            "ld.shared.u32 %r3, [%r1]; ld.shared.u32 %r4, [%r2+4]; mov.u32 %r5, %total_smem_size;\n"
            "st.global.u32 [%rd1], %r3; st.global.u32 [%rd1+4], %r4;\n"
            "st.global.u32 [%rd1+8], %r5;\n" END,
            1, &status, &out);
    if (!s) return;
    CHECK_MESSAGE(status == 0, "%s", s->report);
    CHECK(out[0] == 1 && out[1] == 2);
    CHECK_EQ(out[2], 12);
    vs_close(s);
}

static void never_ends(const char *body, uint32_t spin_limit, bool reported)
{
    char text[2048];
    int status;
    uint32_t *out;
    struct vg_machine_settings settings = {.seed = 3, .spin_limit = spin_limit};
    snprintf(text, sizeof text, "%s%s%s%s", HEAD, KERNEL, body, END);
    struct vs_session *s = run_with(&settings, text, 64, &status, &out);
    if (!s) return;
    if (reported)
        CHECK_MESSAGE(status == 1 && strstr(s->report, "without any effect") &&
                          strstr(s->report, "line"),
                      "%s: %d %s", body, status, s->report);
    else
        CHECK_MESSAGE(status == 0, "%s: %s", body, s->report);
    vs_close(s);
}

TEST(vgpu_forms_run, a_loop_that_comes_back_to_where_it_was_is_a_fault)
{
    never_ends("L: bra L;\n", 0, true);
    never_ends("L: nanosleep.u32 100; bra L;\n", 0, true);
    never_ends("mov.u32 %r2, %tid.x; setp.eq.u32 %p1, %r2, 5;\nL: xor.b32 %r1, %r1, 1;\n"
               "@%p1 bra L;\n",
               0, true);
}

TEST(vgpu_forms_run, a_loop_that_only_looks_at_the_time_is_a_fault_at_the_limit)
{
    never_ends("L: mov.u32 %r1, %clock; bra L;\n", 200000, true);
    never_ends("L: mov.u64 %rd3, %globaltimer; nanosleep.u32 100; bra L;\n", 200000, true);
    never_ends("L: add.u32 %r1, %r1, 1; bra L;\n", 200000, true);
}

TEST(vgpu_forms_run, a_long_computation_is_no_fault)
{
    never_ends("mov.u32 %r1, 0;\nL: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 40000;\n"
               "@%p1 bra L;\nst.global.u32 [%rd1], %r1; mov.u32 %r1, 0;\n"
               "M: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 40000;\n@%p1 bra M;\n",
               0, false);
}

/* A second of the GPU's clock is no second of the host's, nor near the limit. */
TEST(vgpu_forms_run, a_wait_for_a_time_ends)
{
    never_ends("mov.u64 %rd3, %clock64; add.u64 %rd3, %rd3, 2000000000;\n"
               "L: mov.u64 %rd4, %clock64; setp.lt.u64 %p1, %rd4, %rd3;\n@%p1 bra L;\n",
               0, false);
    never_ends("mov.u64 %rd3, %globaltimer; add.u64 %rd3, %rd3, 10000000000;\n"
               "L: nanosleep.u32 1000; mov.u64 %rd4, %globaltimer;\n"
               "setp.lt.u64 %p1, %rd4, %rd3;\n@%p1 bra L;\n",
               0, false);
}

/* The pieces of alloca lie above the frames of calls: neither may reach the other. */
TEST(vgpu_forms_run, alloca_and_calls_share_the_stack)
{
    static const char function[] = ".func f(.param .u64 p) {\n.local .align 8 .b8 x[512];\n"
                                   ".reg .b64 %rd<3>; .reg .b32 %r<3>;\nmov.u64 %rd1, x;\n"
                                   "cvta.local.u64 %rd1, %rd1; st.u32 [%rd1+508], 77;\n"
                                   "ret;\n}\n";
    static const char body[] = "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 3; add.u32 %r2, %r2, SIZE;\n"
                               "cvt.u64.u32 %rd3, %r2; alloca.u64 %rd4, %rd3, 64;\n"
                               "and.b64 %rd6, %rd4, 63; st.local.u32 [%rd4], 5;\n"
                               "{ .param .b64 a; st.param.b64 [a], %rd4; call f, (a); }\n"
                               "ld.local.u32 %r3, [%rd4]; st.global.u32 [%rd1], %r3;\n"
                               "st.global.u64 [%rd1+8], %rd6;\n";
    for (int fits = 0; fits < 2; fits++) {
        char text[4096];
        int status;
        uint32_t *out;
        const char *size = strstr(body, "SIZE");
        snprintf(text, sizeof text, "%s%s%s%.*s%s%s%s", HEAD, function, KERNEL, (int)(size - body),
                 body, fits ? "100" : "700", size + 4, END);
        struct vs_session *s = run(text, 1, &status, &out);
        if (!s) return;
        if (fits)
            CHECK_MESSAGE(status == 0 && out[0] == 5 && out[2] == 0, "%u %u %s", out[0], out[2],
                          s->report);
        else
            CHECK_MESSAGE(status == 1 && s->fault == VG_FAULT_STACK, "%d %s", status, s->report);
        vs_close(s);
    }
}
