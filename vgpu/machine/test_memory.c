/* Memory instructions: spaces, windows, vectors, atomics, copies beside the thread, faults. */
#include <math.h>
#include <string.h>

#include "builder.h"
#include "shim.h"

enum { A = R, B = R + 1, C = R + 2, D = R + 4, W = R + 8, ADDRESS = R + 20 };

static void run_done(struct builder *b, uint32_t nblocks, uint32_t nthreads)
{
    CHECK_MESSAGE(b_run(b, nblocks, nthreads) == VG_DONE, "%s", b->text);
}

TEST(vgpu_memory, loads_extend_signs_and_zeros)
{
    static const struct {
        enum vg_type type;
        uint32_t want;
    } rows[] = {{VG_S8, 0xffffff81}, {VG_U8, 0x81},    {VG_B8, 0x81},        {VG_S16, 0xffff8281},
                {VG_U16, 0x8281},    {VG_B16, 0x8281}, {VG_B32, 0x84838281}, {VG_F32, 0x84838281}};
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct builder *b = b_create();
        b_kernel(b);
        b_ld(b, rows[i].type, VG_GLOBAL, A, OUT, 4096);
        b_result(b, A);
        b->out[1024] = 0x84838281;
        run_done(b, 1, 3);
        CHECK_MESSAGE(b->out[2] == rows[i].want, "type %d: 0x%x", (int)rows[i].type, b->out[2]);
        b_destroy(b);
    }
}

/* ld.v4 and st.v4, with and without strict vectors, and the address register among the results. */
TEST(vgpu_memory, vectors_move_all_components_in_any_order)
{
    for (int strict = 0; strict < 2; strict++) {
        struct builder *b = b_create();
        b_kernel(b);
        b->settings.strict_vectors = strict != 0;
        struct vg_instr *in = b_alu(b, VG_MAD, VG_U32, ADDRESS, GLOBAL, b_k(b, 32));
        in->mode = VG_MUL_WIDE;
        in->src[2] = OUT;
        b_mov(b, W, ADDRESS); /* keeps the low words */
        in = b_ld(b, VG_B64, VG_GLOBAL, W, ADDRESS, 0);
        in->count = 2;
        in->dst[1] = ADDRESS;
        in = b_alu(b, VG_MAD, VG_U32, C, GLOBAL, b_k(b, 32));
        in->mode = VG_MUL_WIDE;
        in->src[2] = OUT;
        in = b_st(b, VG_B64, VG_GLOBAL, C, 16, ADDRESS);
        in->count = 2;
        in->src[2] = W;
        b_exit(b);
        for (uint32_t i = 0; i < 8 * 64; i++) b->out[i] = i;
        run_done(b, 1, 64);
        bool same = true;
        for (uint32_t i = 0; i < 64; i++) {
            const uint32_t want[8] = {8 * i,     8 * i + 1, 8 * i + 2, 8 * i + 3,
                                      8 * i + 2, 8 * i + 3, 8 * i,     8 * i + 1};
            same = same && memcmp(b->out + 8 * (size_t)i, want, sizeof want) == 0;
        }
        CHECK(same);
        b_destroy(b);
    }
}

TEST(vgpu_memory, accesses_of_16_bytes_move_both_halves)
{
    struct builder *b = b_create();
    b_kernel(b);
    struct vg_instr *in = b_alu(b, VG_MAD, VG_U32, C, GLOBAL, b_k(b, 16));
    in->mode = VG_MUL_WIDE;
    in->src[2] = OUT;
    b_ld(b, VG_B128, VG_GLOBAL, W, C, 0);
    b_st(b, VG_B128, VG_GLOBAL, C, 1024, W);
    b_exit(b);
    for (uint32_t i = 0; i < 256; i++) b->out[i] = i * 77;
    run_done(b, 1, 64);
    CHECK(memcmp(b->out, b->out + 256, 1024) == 0);
    b_destroy(b);
}

/* One generic load where lanes point into global, shared and local memory. */
TEST(vgpu_memory, generic_addresses_reach_global_shared_and_local_memory)
{
    struct builder *b = b_create();
    b_kernel(b);
    b->f->shared_bytes = 256;
    b->f->local_bytes = 16;
    b_st(b, VG_B32, VG_SHARED, b_k(b, 64), 0, b_k(b, 222));
    b_alu(b, VG_ADDRESS_LOCAL, VG_B64, D, VG_NONE, VG_NONE)->imm = 8;
    b_st(b, VG_B32, VG_LOCAL, VG_NONE, 8, TID);
    b_alu(b, VG_CVTA, VG_U64, D, D, VG_NONE)->space = VG_LOCAL;
    b_alu(b, VG_ADD, VG_U64, W, OUT, b_k64(b, 4096));
    b_alu(b, VG_AND, VG_B32, A, TID, b_k(b, 3));
    b_setp(b, VG_EQ, 0, A, b_k(b, 0));
    b_setp(b, VG_EQ, 1, A, b_k(b, 1));
    b_guard(b_alu(b, VG_MOV, VG_B64, W, b_k64(b, VG_SHARED_WINDOW + 64), VG_NONE), 0, false);
    b_guard(b_alu(b, VG_MOV, VG_B64, W, D, VG_NONE), 1, false);
    b_ld(b, VG_B32, VG_GENERIC, B, W, 0);
    b_alu(b, VG_ISSPACEP, VG_U64, 2, W, VG_NONE)->space = VG_SHARED;
    b_guard(b_alu(b, VG_ADD, VG_U32, B, B, b_k(b, 1000)), 2, false);
    b_result(b, B);
    b->out[1024] = 333;
    run_done(b, 1, 32);
    for (uint32_t i = 0; i < 32; i++) CHECK_EQ(b->out[i], i % 4 == 0 ? 1222 : i % 4 == 1 ? i : 333);
    b_destroy(b);
}

/* Integer atomics of 4 blocks of 64 threads on one word against the sequential result. */
TEST(vgpu_memory, integer_atomics_equal_the_sequential_result)
{
    static const struct {
        enum vg_atom mode;
        enum vg_type type;
        uint32_t start, want;
    } rows[] = {{VG_ATOM_ADD, VG_U32, 5, 5 + 255 * 128},
                {VG_ATOM_MIN, VG_S32, 100, (uint32_t)-5},
                {VG_ATOM_MAX, VG_U32, 3, 255},
                {VG_ATOM_OR, VG_B32, 0, 255},
                {VG_ATOM_XOR, VG_B32, 9, 9},
                {VG_ATOM_AND, VG_B32, 0xff, 0},
                {VG_ATOM_ADD, VG_F32, 0x3f800000, 0},
                {VG_ATOM_INC, VG_U32, 0, 0},
                {VG_ATOM_DEC, VG_U32, 7, 0}};
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct builder *b = b_create();
        b_kernel(b);
        uint16_t operand = GLOBAL;
        uint32_t want = rows[i].want;
        if (rows[i].type == VG_S32) {
            b_alu(b, VG_SUB, VG_U32, A, GLOBAL, b_k(b, 5));
            operand = A;
        }
        if (rows[i].type == VG_F32) { /* 256 times 0.5 */
            const float sum = 129;
            operand = b_k(b, 0x3f000000);
            memcpy(&want, &sum, 4);
        }
        if (rows[i].mode == VG_ATOM_INC) operand = b_k(b, 6), want = 256 % 7;
        if (rows[i].mode == VG_ATOM_DEC) operand = b_k(b, 9), want = (7 + 10 * 30 - 256) % 10;
        b_atom(b, rows[i].mode, rows[i].type, VG_GLOBAL, VG_NONE, OUT, operand);
        b_exit(b);
        b->out[0] = rows[i].start;
        run_done(b, 4, 64);
        CHECK_MESSAGE(b->out[0] == want, "row %u: 0x%x, expected 0x%x", i, b->out[0], want);
        b_destroy(b);
    }
}

TEST(vgpu_memory, atomics_return_each_old_value_once)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_atom(b, VG_ATOM_ADD, VG_U32, VG_GLOBAL, A, OUT, b_k(b, 1));
    struct vg_instr *in = b_alu(b, VG_MAD, VG_U32, C, A, b_k(b, 4));
    in->mode = VG_MUL_WIDE;
    in->src[2] = OUT;
    b_st(b, VG_B32, VG_GLOBAL, C, 4096, b_k(b, 1));
    b_exit(b);
    run_done(b, 4, 100);
    CHECK_EQ(b->out[0], 400);
    for (uint32_t i = 0; i < 400; i++) CHECK_EQ(b->out[1024 + i], 1);
    b_destroy(b);
}

/* docs/cuda-measured.md: atom.add.f32 flushes denormals on global memory, on shared it does not. */
TEST(vgpu_memory, float_atomics_flush_denormals_on_global_memory_only)
{
    struct builder *b = b_create();
    b_kernel(b);
    b->f->shared_bytes = 16;
    b_setp(b, VG_EQ, 0, TID, b_k(b, 0));
    b_guard(b_st(b, VG_B32, VG_SHARED, b_k(b, 0), 0, b_k(b, 3)), 0, false);
    b_atom(b, VG_ATOM_ADD, VG_F32, VG_GLOBAL, VG_NONE, OUT, b_k(b, 5));
    b_atom(b, VG_ATOM_ADD, VG_F32, VG_SHARED, VG_NONE, b_k(b, 0), b_k(b, 5));
    b_ld(b, VG_B32, VG_SHARED, A, b_k(b, 0), 0);
    b_st(b, VG_B32, VG_GLOBAL, OUT, 4, A);
    b_exit(b);
    b->out[0] = 3;
    run_done(b, 1, 1);
    CHECK_EQ(b->out[0], 0);
    CHECK_EQ(b->out[1], 8);
    b_destroy(b);
}

TEST(vgpu_memory, half_atomics_round_to_nearest)
{
    static const struct {
        enum vg_type type;
        uint32_t start, add, want;
    } rows[] = {{VG_F16, 0x3c00, 0x1000, 0x3c00},  /* 1 + 2^-11: a tie, to even */
                {VG_F16, 0x3c01, 0x1000, 0x3c02},  /* a tie, to even, upward */
                {VG_F16, 0x7bff, 0x7bff, 0x7c00},  /* overflow */
                {VG_F16, 0x0001, 0x0001, 0x0002},  /* subnormals */
                {VG_BF16, 0x3f80, 0x3b80, 0x3f80}, /* 1 + 2^-8: a tie */
                {VG_BF16, 0x3f81, 0x3b80, 0x3f82},
                {VG_F16X2, 0x3c013c00, 0x10001000, 0x3c023c00},
                {VG_F16, 0, 0, 0},
                {VG_F16, 0x3c00, 0xbc00, 0},
                {VG_F16, 0x8000, 0x8000, 0x8000},
                {VG_BF16, 0x3f80, 0xbf80, 0},
                {VG_F16X2, 0, 0x3c00, 0x3c00}};
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct builder *b = b_create();
        b_kernel(b);
        b_atom(b, VG_ATOM_ADD, rows[i].type, VG_GLOBAL, A, OUT, b_k(b, rows[i].add));
        b_exit(b);
        b->out[0] = rows[i].start;
        run_done(b, 1, 1);
        CHECK_MESSAGE(b->out[0] == rows[i].want, "row %u: 0x%x", i, b->out[0]);
        b_destroy(b);
    }
}

TEST(vgpu_memory, faults_of_addresses_say_where_and_by_how_much)
{
    static const struct {
        int64_t imm;
        const char *text;
    } rows[] = {{B_OUTPUT, "reads 4 bytes at 0x700000100000, 4 bytes beyond the end of cuMemAlloc "
                           "(allocation 7, 1048576 bytes at 0x700000000000)"},
                {-8, "reads 4 bytes at 0x6ffffffffff8, 8 bytes before the begin of cuMemAlloc "
                     "(allocation 7, 1048576 bytes at 0x700000000000)"},
                {2, "reads 4 bytes at 0x700000000002, which is not a multiple of 4"}};
    for (unsigned i = 0; i < 3; i++) {
        struct builder *b = b_create();
        b_kernel(b);
        b_ld(b, VG_B32, VG_GLOBAL, A, OUT, rows[i].imm);
        b_exit(b);
        CHECK(b_run(b, 1, 1) == VG_FAULTED);
        CHECK_EQ(b->fault, i == 2 ? VG_FAULT_MISALIGNED : VG_FAULT_ADDRESS);
        const char *at = strstr(b->text, "reads");
        CHECK_MESSAGE(at != NULL && strncmp(at, rows[i].text, strlen(rows[i].text)) == 0, "%s",
                      b->text);
        CHECK_MESSAGE(strstr(b->text, "kernel k, block (0,0,0), thread (0,0,0): ") == b->text, "%s",
                      b->text);
        b_destroy(b);
    }
}

TEST(vgpu_memory, an_off_by_one_tail_is_found_in_the_thread_that_makes_it)
{
    struct builder *b = b_create();
    b_kernel(b);
    b->buffer.nbytes = 4 * 100;
    b_result(b, TID);
    CHECK(b_run(b, 1, 101) == VG_FAULTED);
    CHECK_STR(b->text, "kernel k, block (0,0,0), thread (100,0,0): writes 4 bytes at "
                       "0x700000000190, 4 bytes beyond the end of cuMemAlloc (allocation 7, 400 "
                       "bytes at 0x700000000000)\n  at PTX line 8");
    b_destroy(b);
}

TEST(vgpu_memory, freed_read_only_undefined_and_shared_faults)
{
    struct builder *b = b_create();
    unsigned char defined[B_OUTPUT / 8] = {0xff};
    b_kernel(b);
    b_ld(b, VG_B32, VG_GLOBAL, A, OUT, 8);
    b_st(b, VG_B32, VG_GLOBAL, OUT, 0, A);
    b_exit(b);
    b->buffer.freed = true;
    CHECK(b_run(b, 1, 1) == VG_FAULTED);
    CHECK_MESSAGE(strstr(b->text, "after they were freed: offset 8 of cuMemAlloc (allocation 7") !=
                      NULL,
                  "%s", b->text);
    b->buffer.freed = false;
    b->buffer.readonly = true;
    CHECK(b_run(b, 1, 1) == VG_FAULTED);
    CHECK_MESSAGE(strstr(b->text, "writes to 0x700000000000, which is read-only: cuMemAlloc") !=
                      NULL,
                  "%s", b->text);
    b->buffer.readonly = false;
    b->buffer.defined = defined;
    CHECK(b_run(b, 1, 1) == VG_FAULTED);
    CHECK_EQ(b->fault, VG_FAULT_UNDEFINED);
    CHECK_MESSAGE(strstr(b->text, "reads 4 bytes at 0x700000000008, which nobody has written: "
                                  "offset 8 of cuMemAlloc") != NULL,
                  "%s", b->text);
    b->buffer.defined = NULL;
    b->code[0][7].space = VG_SHARED;
    b->code[0][7].src[0] = b_k(b, 4);
    b->code[0][7].type2 = VG_B32;
    b->functions[0].shared_bytes = 8;
    CHECK(b_run(b, 1, 1) == VG_FAULTED);
    CHECK_MESSAGE(strstr(b->text, "reads 4 bytes at 0xc of shared memory, the block has 8 bytes") !=
                      NULL,
                  "%s", b->text);
    b_destroy(b);
}

/* atom.add.noftz.f16x2 is two atomic accesses of 16 bits: one of 32 bits races with it, one of 16
 * does not. */
TEST(vgpu_memory, packed_atomics_are_two_accesses_of_16_bits)
{
    for (int wide = 0; wide < 2; wide++) {
        struct builder *b = b_create();
        b_kernel(b);
        b_setp(b, VG_EQ, 0, CTA, b_k(b, 0));
        struct vg_instr *in =
            b_atom(b, VG_ATOM_ADD, VG_BF16X2, VG_GLOBAL, A, OUT, b_k(b, 0x3f803f80));
        in->scope = VG_SCOPE_GPU;
        b_guard(in, 0, false);
        in = b_ld(b, wide ? VG_B32 : VG_B16, VG_GLOBAL, B, OUT, wide ? 0 : 2);
        in->order = VG_RELAXED;
        in->scope = VG_SCOPE_GPU;
        b_guard(in, 0, true);
        b_exit(b);
        for (b->settings.seed = 1; b->settings.seed < 10; b->settings.seed++) {
            b->out[0] = 0x40003f80;
            run_done(b, 2, 1);
            CHECK_EQ(b->out[0], 0x40404000);
            CHECK_EQ(b->model_counts.races, wide);
        }
        b_destroy(b);
    }
}

/* mbarrier: 64 threads arrive, all wait for the phase, then read what the others stored. */
TEST(vgpu_memory, mbarriers_complete_when_all_have_arrived)
{
    struct builder *b = b_create();
    b_kernel(b);
    b->f->shared_bytes = 1024;
    b_setp(b, VG_EQ, 0, TID, b_k(b, 0));
    struct vg_instr *in = b_alu(b, VG_MBARRIER_INIT, VG_B64, VG_NONE, b_k(b, 0), b_k(b, 64));
    in->type2 = VG_B32;
    b_guard(in, 0, false);
    b_sync(b, b_k(b, 0), VG_NONE);
    b_alu(b, VG_SHL, VG_B32, A, TID, b_k(b, 2));
    b_st(b, VG_B32, VG_SHARED, A, 8, TID);
    in = b_alu(b, VG_MBARRIER_ARRIVE, VG_B64, W, b_k(b, 0), VG_NONE);
    in->type2 = VG_B32;
    const uint32_t top = b_here(b);
    in = b_alu(b, VG_MBARRIER_TRY_WAIT, VG_B64, 1, b_k(b, 0), W);
    in->type2 = VG_B32;
    b_bra(b, 1, true)->target = top;
    b_alu(b, VG_SUB, VG_U32, A, b_k(b, 252), A);
    b_ld(b, VG_B32, VG_SHARED, B, A, 8);
    b_result(b, B);
    for (b->settings.seed = 1; b->settings.seed < 5; b->settings.seed++) {
        run_done(b, 1, 64);
        for (uint32_t i = 0; i < 64; i++) CHECK_EQ(b->out[i], 63 - i);
        CHECK_EQ(b->model_counts.races, 0);
    }
    b_destroy(b);
}
