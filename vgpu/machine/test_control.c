/* Control flow: divergent branches, loops, tables, calls, recursion, exits. Each kernel's result is
 * compared with the same computation in C, lane by lane. */
#include <stdio.h>
#include <string.h>

#include "builder.h"
#include "shim.h"

enum { A = R, B = R + 1, C = R + 2, D = R + 4, W = R + 8 };

/* Runs with several seeds and compares out[i] with want(i). */
static void compare(struct builder *b, uint32_t nblocks, uint32_t nthreads,
                    uint32_t (*want)(uint32_t i))
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        b->settings.seed = seed;
        memset(b->out, 0xee, B_OUTPUT);
        const enum vg_progress progress = b_run(b, nblocks, nthreads);
        CHECK_MESSAGE(progress == VG_DONE, "seed %d: progress %d: %s", (int)seed, (int)progress,
                      b->text);
        for (uint32_t i = 0; i < nblocks * nthreads; i++)
            if (b->out[i] != want(i)) {
                CHECK_MESSAGE(false, "seed %d, thread %u: %u, expected %u", (int)seed, i, b->out[i],
                              want(i));
                break;
            }
    }
}

static uint32_t index_times_three(uint32_t i)
{
    return i * 3;
}

TEST(vgpu_control, threads_of_a_partial_last_warp_run)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_alu(b, VG_MUL, VG_U32, A, GLOBAL, b_k(b, 3));
    b_result(b, A);
    compare(b, 3, 77, index_times_three);
    b_destroy(b);
}

static uint32_t nested(uint32_t i)
{
    const uint32_t lane = i % 64;
    uint32_t x = 0;
    if (lane & 1) {
        x += 1;
        if (lane & 2)
            x += 10;
        else
            x += 20;
    } else {
        x += 2;
    }
    return x + 100;
}

TEST(vgpu_control, nested_branches_reach_every_lane_and_join)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_mov(b, A, b_k(b, 0));
    b_alu(b, VG_AND, VG_B32, B, TID, b_k(b, 1));
    b_setp(b, VG_EQ, 0, B, b_k(b, 0));
    struct vg_instr *even = b_bra(b, 0, false);
    b_alu(b, VG_ADD, VG_U32, A, A, b_k(b, 1));
    b_alu(b, VG_AND, VG_B32, B, TID, b_k(b, 2));
    b_setp(b, VG_EQ, 1, B, b_k(b, 0));
    struct vg_instr *no = b_bra(b, 1, false);
    b_alu(b, VG_ADD, VG_U32, A, A, b_k(b, 10));
    struct vg_instr *join = b_bra(b, VG_NONE, false);
    b_land(b, no);
    b_alu(b, VG_ADD, VG_U32, A, A, b_k(b, 20));
    struct vg_instr *join2 = b_bra(b, VG_NONE, false);
    b_land(b, even);
    b_alu(b, VG_ADD, VG_U32, A, A, b_k(b, 2));
    b_land(b, join);
    b_land(b, join2);
    /* All lanes are one fragment again: activemask says so. */
    b_alu(b, VG_ACTIVEMASK, VG_B32, C, VG_NONE, VG_NONE);
    b_setp(b, VG_EQ, 2, C, b_k(b, UINT32_MAX));
    b_guard(b_alu(b, VG_ADD, VG_U32, A, A, b_k(b, 100)), 2, false);
    b_result(b, A);
    compare(b, 2, 64, nested);
    b_destroy(b);
}

static uint32_t triangle(uint32_t i)
{
    const uint32_t n = i % 32;
    return n * (n + 1) / 2;
}

TEST(vgpu_control, loops_with_other_trip_counts_in_each_lane)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_mov(b, A, b_k(b, 0));
    b_mov(b, B, LANE);
    const uint32_t top = b_here(b);
    b_setp(b, VG_EQ, 0, B, b_k(b, 0));
    struct vg_instr *out = b_bra(b, 0, false);
    b_alu(b, VG_ADD, VG_U32, A, A, B);
    b_alu(b, VG_SUB, VG_U32, B, B, b_k(b, 1));
    b_bra(b, VG_NONE, false)->target = top;
    b_land(b, out);
    b_result(b, A);
    compare(b, 2, 96, triangle);
    b_destroy(b);
}

static uint32_t table(uint32_t i)
{
    return 100 + i % 5;
}

TEST(vgpu_control, a_branch_table_sends_each_lane_to_its_target)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_alu(b, VG_REM, VG_U32, A, GLOBAL, b_k(b, 5));
    struct vg_instr *brx = b_alu(b, VG_BRX, VG_U32, VG_NONE, A, VG_NONE);
    brx->count = 5;
    struct vg_instr *ends[5];
    for (uint32_t k = 0; k < 5; k++) {
        b->targets[k] = b_here(b);
        b_mov(b, B, b_k(b, 100 + k));
        ends[k] = b_bra(b, VG_NONE, false);
    }
    for (int k = 0; k < 5; k++) b_land(b, ends[k]);
    b->module.ntargets = 5;
    b_result(b, B);
    compare(b, 1, 128, table);

    brx->count = 3;
    CHECK(b_run(b, 1, 32) == VG_FAULTED);
    CHECK_STR(b->text, "kernel k, block (0,0,0), thread (3,0,0): brx.idx with index 3, the table "
                       "has 3 targets\n  at PTX line 9");
    b_destroy(b);
}

/* f(local 0: n) = n < 2 ? n : f(n - 1) + f(n - 2), its parameter and result in the caller's frame
 */
static void build_fibonacci(struct builder *b, uint32_t index)
{
    b->f->param_bytes = 8;
    b->f->local_bytes = 16;
    b_ld(b, VG_B32, VG_PARAM_SPACE, 10, VG_NONE, 0);
    b_setp(b, VG_GE, 3, 10, b_k(b, 2));
    struct vg_instr *more = b_bra(b, 3, false);
    b_st(b, VG_B32, VG_PARAM_SPACE, VG_NONE, 4, 10);
    b_add(b, VG_RET, VG_B32);
    b_land(b, more);
    for (uint32_t k = 1; k <= 2; k++) {
        b_alu(b, VG_SUB, VG_U32, 11, 10, b_k(b, k));
        b_st(b, VG_B32, VG_LOCAL, VG_NONE, 0, 11);
        b_add(b, VG_CALL, VG_B32)->target = index;
        b_ld(b, VG_B32, VG_LOCAL, (uint16_t)(11 + k), VG_NONE, 4);
    }
    b_alu(b, VG_ADD, VG_U32, 12, 12, 13);
    b_st(b, VG_B32, VG_PARAM_SPACE, VG_NONE, 4, 12);
    b_add(b, VG_RET, VG_B32);
}

static uint32_t fibonacci(uint32_t i)
{
    uint32_t x = 0, y = 1;
    for (i %= 13; i > 0; i--) {
        const uint32_t z = x + y;
        x = y;
        y = z;
    }
    return x;
}

static void build_caller(struct builder *b, uint32_t callee)
{
    b_kernel(b);
    b->f->local_bytes = 8;
    b_alu(b, VG_REM, VG_U32, A, GLOBAL, b_k(b, 13));
    b_st(b, VG_B32, VG_LOCAL, VG_NONE, 0, A);
    b_add(b, VG_CALL, VG_B32)->target = callee;
    b_ld(b, VG_B32, VG_LOCAL, B, VG_NONE, 4);
    b_result(b, B);
}

TEST(vgpu_control, recursion_of_other_depth_in_each_lane)
{
    struct builder *b = b_create();
    build_caller(b, 1);
    build_fibonacci(b, b_function(b, "fibonacci"));
    compare(b, 2, 64, fibonacci);
    b_destroy(b);
}

TEST(vgpu_control, recursion_beyond_the_stack_is_a_fault)
{
    struct builder *b = b_create();
    build_caller(b, 1);
    build_fibonacci(b, b_function(b, "fibonacci"));
    b->local = 128;
    CHECK(b_run(b, 1, 32) == VG_FAULTED);
    CHECK_EQ(b->fault, VG_FAULT_STACK);
    CHECK_MESSAGE(strstr(b->text, "deep of fibonacci needs") != NULL, "%s", b->text);
    CHECK_MESSAGE(strstr(b->text, "\n  in fibonacci, called at PTX line") != NULL, "%s", b->text);
    b_destroy(b);
}

static uint32_t called(uint32_t i)
{
    return i % 3 == 0 ? i * 2 : i % 3 == 1 ? i + 1000 : 7;
}

/* Two functions whose frames differ in width run in turn in lanes of one warp; one keeps a register
 * of 64 bits where the other has ones of 32. */
TEST(vgpu_control, calls_of_other_functions_in_one_warp_keep_their_registers)
{
    struct builder *b = b_create();
    b_kernel(b);
    b->f->local_bytes = 16;
    b_alu(b, VG_REM, VG_U32, A, GLOBAL, b_k(b, 3));
    b_mov(b, B, b_k(b, 7));
    b_setp(b, VG_EQ, 0, A, b_k(b, 2));
    struct vg_instr *end = b_bra(b, 0, false);
    b_st(b, VG_B32, VG_LOCAL, VG_NONE, 0, GLOBAL);
    /* indirect: function 1 or 2 by lane */
    b_alu(b, VG_ADD, VG_U32, C, A, b_k(b, 1));
    struct vg_instr *in = b_alu(b, VG_MUL, VG_U32, D, C, b_k(b, 16));
    in->mode = VG_MUL_WIDE;
    b_alu(b, VG_ADD, VG_U64, D, D, b_k64(b, UINT64_C(1) << 52));
    in = b_alu(b, VG_CALL, VG_B32, VG_NONE, D, VG_NONE);
    in->target = VG_INDIRECT;
    b_ld(b, VG_B32, VG_LOCAL, B, VG_NONE, 8);
    b_land(b, end);
    b_result(b, B);

    b_function(b, "wide"); /* result = 2 * x through registers of 64 bits */
    b->f->param_bytes = 12;
    b->f->nunits = 6;
    b_ld(b, VG_B32, VG_PARAM_SPACE, 0, VG_NONE, 0);
    b_alu(b, VG_CVT, VG_U64, 2, 0, VG_NONE)->type2 = VG_U32;
    for (int k = 0; k < 40; k++) b_alu(b, VG_ADD, VG_U64, 2, 2, b_k64(b, 1));
    b_add(b, VG_NANOSLEEP, VG_B32); /* lets the other function run in between */
    b_alu(b, VG_ADD, VG_U64, 2, 2, 2);
    b_alu(b, VG_SUB, VG_U64, 2, 2, b_k64(b, 80));
    b_alu(b, VG_CVT, VG_U32, 4, 2, VG_NONE)->type2 = VG_U64;
    b_st(b, VG_B32, VG_PARAM_SPACE, VG_NONE, 8, 4);
    b_add(b, VG_RET, VG_B32);

    b_function(b, "narrow");
    b->f->param_bytes = 12;
    b->f->nunits = 6;
    for (uint16_t k = 0; k < 6; k++) b_ld(b, VG_B32, VG_PARAM_SPACE, k, VG_NONE, 0);
    b_add(b, VG_NANOSLEEP, VG_B32);
    b_alu(b, VG_ADD, VG_U32, 3, 3, b_k(b, 1000));
    b_st(b, VG_B32, VG_PARAM_SPACE, VG_NONE, 8, 3);
    b_add(b, VG_RET, VG_B32);
    compare(b, 1, 96, called);
    b_destroy(b);
}

static uint32_t early(uint32_t i)
{
    return i % 4 == 1 ? 5 : 0xeeeeeeee;
}

TEST(vgpu_control, lanes_exit_in_divergent_code)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_alu(b, VG_AND, VG_B32, A, TID, b_k(b, 1));
    b_setp(b, VG_EQ, 0, A, b_k(b, 0));
    b_guard(b_add(b, VG_EXIT, VG_B32), 0, false); /* even threads */
    b_alu(b, VG_AND, VG_B32, A, TID, b_k(b, 2));
    b_setp(b, VG_EQ, 1, A, b_k(b, 0));
    struct vg_instr *stay = b_bra(b, 1, false);
    b_add(b, VG_RET, VG_B32); /* a kernel's ret is an exit */
    b_land(b, stay);
    b_result(b, b_k(b, 5));
    compare(b, 1, 50, early);
    b_destroy(b);
}

/* while (atomicCAS(lock, 0, 1) != 0); counter++; lock = 0; with all lanes of a warp: the lanes that
 * wait run first by position, and must let the owner go on. */
TEST(vgpu_control, a_spin_lock_within_one_warp_makes_progress)
{
    struct builder *b = b_create();
    b_kernel(b);
    const uint32_t top = b_here(b);
    struct vg_instr *in = b_atom(b, VG_ATOM_CAS, VG_B32, VG_GLOBAL, A, OUT, b_k(b, 0));
    in->src[2] = b_k(b, 1);
    in->order = VG_ACQUIRE;
    b_setp(b, VG_NE, 0, A, b_k(b, 0));
    b_bra(b, 0, false)->target = top;
    b_ld(b, VG_B32, VG_GLOBAL, B, OUT, 4);
    b_alu(b, VG_ADD, VG_U32, B, B, b_k(b, 1));
    b_st(b, VG_B32, VG_GLOBAL, OUT, 4, B);
    in = b_atom(b, VG_ATOM_EXCH, VG_B32, VG_GLOBAL, A, OUT, b_k(b, 0));
    in->order = VG_RELEASE;
    b_exit(b);
    b->settings.patience = 100;
    for (b->settings.seed = 1; b->settings.seed < 4; b->settings.seed++) {
        memset(b->out, 0, 16);
        CHECK_MESSAGE(b_run(b, 2, 64) == VG_DONE, "%s", b->text);
        CHECK_EQ(b->out[1], 128);
    }
    b_destroy(b);
}

TEST(vgpu_control, faults_name_the_source_line_with_its_inlining)
{
    struct builder *b = b_create();
    b_kernel(b);
    b->places[0] = (struct vg_place){.line = 40, .inlined_at = 1, .function = "inner"};
    b->places[1] = (struct vg_place){.line = 80, .inlined_at = UINT32_MAX};
    b->module.nplaces = 2;
    b_setp(b, VG_EQ, 0, TID, b_k(b, 33));
    struct vg_instr *in = b_add(b, VG_TRAP, VG_B32);
    b_guard(in, 0, false);
    in->place = 0;
    b_exit(b);
    CHECK(b_run(b, 3, 64) == VG_FAULTED);
    CHECK_EQ(b->fault, VG_FAULT_TRAP);
    const char *rest = strstr(b->text, "thread");
    REQUIRE(rest != NULL);
    CHECK_STR(rest, "thread (33,0,0): trap\n  at kernel.cu:40 in inner (PTX line 9), inlined at "
                    "kernel.cu:80");
    b_destroy(b);
}
