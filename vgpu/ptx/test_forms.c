/* Statements and the compact form that is expected of them. */
#include <shim.h>
#include <stdio.h>
#include <string.h>

#include <vgpu/ptx/testing.h>

/* n: how many instructions the statement makes; `in` is its last one. Fields that are not given are
 * those of an instruction without them. */
#define NONE .round = VG_ROUND_NONE
static const struct {
    const char *text;
    unsigned n;
    struct vg_instr in;
} rows[] = {
    {"add.s32 %r1, %r2, 5;", 1, {.op = VG_ADD, .type = VG_S32, NONE}},
    {"add.f32 %f1, %f2, 0f3F800000;", 1, {.op = VG_ADD, .type = VG_F32, .round = VG_RN}},
    {"add.rz.ftz.sat.f32 %f1, %f2, %f3;",
     1,
     {.op = VG_ADD, .type = VG_F32, .round = VG_RZ, .flags = VG_FTZ | VG_SAT}},
    {"addc.cc.u32 %r1, %r2, %r3;",
     1,
     {.op = VG_ADD, .type = VG_U32, NONE, .flags = VG_CARRY_IN | VG_CARRY_OUT}},
    {"mad.wide.s16 %r1, %rs1, %rs2, %r3;",
     1,
     {.op = VG_MAD, .type = VG_S16, .mode = VG_MUL_WIDE, NONE}},
    {"fma.rn.f64 %d1, %d2, %d3, %d4;", 1, {.op = VG_FMA, .type = VG_F64, .round = VG_RN}},
    {"div.full.f32 %f1, %f2, %f3;", 1, {.op = VG_DIV, .type = VG_F32, NONE, .flags = VG_FULL}},
    {"lop3.and.b32 %r1|%p1, %r2, %r3, %r4, 0xe8, %p2;",
     1,
     {.op = VG_LOP3, .type = VG_B32, .mode = 0xe8, .combine = VG_BOOL_AND, NONE}},
    {"shf.l.clamp.b32 %r1, %r2, %r3, 7;",
     1,
     {.op = VG_SHF, .type = VG_B32, NONE, .flags = VG_SHIFT_LEFT | VG_CLAMP}},
    {"setp.lt.and.ftz.f32 %p1|%p2, %f1, %f2, !%p3;",
     1,
     {.op = VG_SETP,
      .type = VG_F32,
      .compare = VG_LT,
      .combine = VG_BOOL_AND,
      NONE,
      .flags = VG_FTZ | VG_SOURCE_NOT}},
    {"set.ge.u32.f64 %r1, %d1, %d2;",
     1,
     {.op = VG_SET, .type = VG_U32, .type2 = VG_F64, .compare = VG_GE, NONE}},
    {"and.pred %p1, %p2, !%p3;", 2, {.op = VG_AND, .type = VG_PRED, NONE}},
    {"cvt.rn.bf16x2.f32 %r1, %f1, %f2;",
     1,
     {.op = VG_CVT, .type = VG_BF16X2, .type2 = VG_F32, .round = VG_RN}},
    {"cvt.rn.satfinite.relu.e4m3x2.f32 %rs1, %f1, %f2;",
     1,
     {.op = VG_CVT, .type = VG_E4M3X2, .type2 = VG_F32, .round = VG_RN, .flags = VG_SAT | VG_RELU}},
    {"cvt.s8.s32 %r1, %r2;", 1, {.op = VG_CVT, .type = VG_S8, .type2 = VG_S32, NONE, .count = 4}},
    {"cvt.rn.f64.u32 %d1, %r1;",
     1,
     {.op = VG_CVT, .type = VG_F64, .type2 = VG_U32, .round = VG_RN}},
    {"mov.u32 %r1, %ctaid.y;", 2, {.op = VG_MOV, .type = VG_U32, NONE}},
    {"mov.b64 {%r1, _}, %rd1;",
     1,
     {.op = VG_UNPACK, .type = VG_B64, .type2 = VG_B32, NONE, .count = 2}},
    {"mov.b128 %q1, {%rd1, %rd2};",
     1,
     {.op = VG_PACK, .type = VG_B128, .type2 = VG_B64, NONE, .count = 2}},
    {"mov.u64 %rd1, stack+8;", 2, {.op = VG_MOV, .type = VG_U64, NONE}},
    {"ld.param.u64 %rd1, [s+8];",
     1,
     {.op = VG_LD,
      .type = VG_U64,
      .type2 = VG_B64,
      .space = VG_PARAM_SPACE,
      NONE,
      .count = 1,
      .imm = 16}},
    {"ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1+16];",
     1,
     {.op = VG_LD,
      .type = VG_F32,
      .type2 = VG_B64,
      .space = VG_GLOBAL,
      NONE,
      .count = 4,
      .imm = 16,
      .flags = VG_NC}},
    {"ld.volatile.shared.u32 %r1, [%r2];",
     1,
     {.op = VG_LD,
      .type = VG_U32,
      .type2 = VG_B32,
      .space = VG_SHARED,
      .order = VG_RELAXED,
      .scope = VG_SCOPE_SYS,
      NONE,
      .count = 1}},
    {"ld.acquire.sys.global.b128 %q1, [%rd1];",
     1,
     {.op = VG_LD,
      .type = VG_B128,
      .type2 = VG_B64,
      .space = VG_GLOBAL,
      .order = VG_ACQUIRE,
      .scope = VG_SCOPE_SYS,
      NONE,
      .count = 1,
      .flags = VG_B128_ATOMIC}},
    {"ld.s8 %rd1, [%rd2];", 2, {.op = VG_CVT, .type = VG_S64, .type2 = VG_S8, NONE}},
    {"st.local.u8 [stack+3], %r1;",
     1,
     {.op = VG_ST, .type = VG_U8, .type2 = VG_B64, .space = VG_LOCAL, NONE, .count = 1, .imm = 3}},
    {"st.release.cta.shared.u32 [buf+4], 1;",
     1,
     {.op = VG_ST,
      .type = VG_U32,
      .type2 = VG_B32,
      .space = VG_SHARED,
      .order = VG_RELEASE,
      .scope = VG_SCOPE_CTA,
      NONE,
      .count = 1,
      .imm = 4}},
    {"atom.add.acq_rel.sys.global.u64 %rd1, [%rd2], 1;",
     1,
     {.op = VG_ATOM,
      .type = VG_U64,
      .type2 = VG_B64,
      .mode = VG_ATOM_ADD,
      .space = VG_GLOBAL,
      .order = VG_ACQ_REL,
      .scope = VG_SCOPE_SYS,
      NONE}},
    {"red.global.max.s32 [%rd2], -1;",
     1,
     {.op = VG_RED,
      .type = VG_S32,
      .type2 = VG_B64,
      .mode = VG_ATOM_MAX,
      .space = VG_GLOBAL,
      .order = VG_RELAXED,
      .scope = VG_SCOPE_GPU,
      NONE}},
    {"membar.gl;", 1, {.op = VG_FENCE, .order = VG_SC, .scope = VG_SCOPE_GPU, NONE}},
    {"fence.cta;", 1, {.op = VG_FENCE, .order = VG_ACQ_REL, .scope = VG_SCOPE_CTA, NONE}},
    {"fence.proxy.async.shared::cta;", 1, {.op = VG_NOP, NONE}},
    {"fence.proxy.alias;", 1, {.op = VG_FENCE_ALIAS, NONE}},
    {"bar.sync 1, 64;", 1, {.op = VG_BAR_SYNC, NONE, .flags = VG_ALIGNED}},
    {"barrier.cta.red.popc.u32 %r1, 2, !%p1;",
     1,
     {.op = VG_BAR_RED, .type = VG_U32, .mode = VG_REDUCE_POPC, NONE, .flags = VG_SOURCE_NOT}},
    {"shfl.sync.bfly.b32 %f1|%p1, %f2, 1, 31, -1;",
     1,
     {.op = VG_SHFL, .type = VG_B32, .mode = VG_SHFL_BFLY, NONE}},
    {"vote.sync.ballot.b32 %r1, %p1, -1;",
     1,
     {.op = VG_VOTE, .type = VG_B32, .mode = VG_VOTE_BALLOT, NONE}},
    {"cp.async.cg.shared.global [%r1+16], [%rd1+32], 16, %r2;",
     2,
     {.op = VG_CP_ASYNC, .type2 = VG_B32, .space = VG_SHARED, NONE, .count = 16, .imm = 16}},
    {"mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;",
     1,
     {.op = VG_MBARRIER_TRY_WAIT,
      .type = VG_B64,
      .type2 = VG_B32,
      .space = VG_SHARED,
      NONE,
      .flags = VG_PARITY}},
    {"@!%p1 exit;", 1, {.op = VG_EXIT, NONE, .flags = VG_GUARD_NOT}},
};

static bool same(const struct vg_instr *a, const struct vg_instr *b)
{
    return a->op == b->op && a->type == b->type && a->type2 == b->type2 && a->round == b->round &&
           a->compare == b->compare && a->combine == b->combine && a->mode == b->mode &&
           a->order == b->order && a->scope == b->scope && a->space == b->space &&
           a->count == b->count && a->flags == b->flags && a->imm == b->imm;
}

static struct vg_module *read_statement(const char *statement)
{
    char text[2048];
    strcpy(text, KERNEL);
    strcat(text, statement);
    strcat(text, "\n" END);
    return vg_test_read(text);
}

TEST(vgpu_ptx_forms, statements_become_the_expected_instructions)
{
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct vg_module *module = read_statement(rows[i].text);
        if (!module) continue;
        const struct vg_function *kernel = &module->functions[0];
        CHECK_MESSAGE(kernel->ninstrs == rows[i].n + 1, "%s makes %u instructions", rows[i].text,
                      kernel->ninstrs - 1);
        CHECK_MESSAGE(same(&kernel->code[kernel->ninstrs - 2], &rows[i].in),
                      "%s has another form (op %u, flags %x)", rows[i].text,
                      kernel->code[kernel->ninstrs - 2].op,
                      kernel->code[kernel->ninstrs - 2].flags);
        vg_module_destroy(module);
    }
}

TEST(vgpu_ptx_forms, an_unsupported_instruction_fails_only_the_kernels_that_reach_it)
{
    struct vg_module *module = vg_test_read(
        HEAD ".func f() {\nwgmma.fence.sync.aligned;\nret;\n}\n.entry a() {\ncall f;\nret;\n}\n"
             ".entry b() {\nret;\n}\n");
    REQUIRE(module);
    CHECK(strstr(module->functions[1].unsupported, "wgmma.fence.sync.aligned"));
    CHECK(strstr(module->functions[1].unsupported, "line 5"));
    CHECK(!module->functions[2].unsupported);
    vg_module_destroy(module);
}

/* What may come with a later PTX is well-formed and unknown. */
TEST(vgpu_ptx_forms, an_unknown_instruction_fails_only_its_kernel)
{
    static const struct {
        const char *head, *line;
    } unknown[] = {
        {HEAD, "frob.sync.u32 {%r1, _}, [%rd1, {%r1, 5}], 0f3F800000, !%p1;"},
        {HEAD, "frob;"},
        {HEAD, "add.frob.u32 %r1, %r1, %r1;"},
        {HEAD, "add.u99 %r1, %r1, %r1;"},
        {".version 9.1\n.target sm_90\n.address_size 64\n", "add.approx.u32 %r1, %r1, %r1;"},
        {".version 9.0\n.target sm_100\n.address_size 64\n", "add.f32.f16 %f1, %rs1, %f1;"},
    };
    for (unsigned i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "%s.entry a() {\n.reg .b32 %%r<2>; .reg .b64 %%rd<2>; .reg .pred %%p<2>;\n"
                 ".reg .f32 %%f<2>; .reg .b16 %%rs<2>;\n%s\nret;\n}\n.entry b() {\nret;\n}\n",
                 unknown[i].head, unknown[i].line);
        struct vg_module *module = vg_test_read(text);
        if (!module) continue;
        const char *reason = module->functions[0].unsupported;
        CHECK_MESSAGE(reason && strstr(reason, "line 7") && strstr(reason, "not supported"),
                      "%s: %s", unknown[i].line, reason ? reason : "runs");
        CHECK(!module->functions[1].unsupported);
        vg_module_destroy(module);
    }
}

TEST(vgpu_ptx_forms, a_call_finds_its_parameters_in_the_callers_frame)
{
    struct vg_module *module = vg_test_read(
        HEAD ".func (.param .b32 r) f(.param .b64 a) {\n.reg .b32 %r<2>;\nld.param.u32 %r1, [a];\n"
             "st.param.b32 [r], %r1;\nret;\n}\n.entry k() {\n.reg .b64 %rd<2>; .reg .b32 %r<2>;\n"
             ".local .b64 x;\n{ .param .b64 p; .param .b32 q;\nst.param.b64 [p], %rd1;\n"
             "call.uni (q), f, (p);\nld.param.b32 %r1, [q]; }\nret;\n}\n");
    REQUIRE(module);
    const struct vg_function *f = &module->functions[0], *k = &module->functions[1];
    CHECK_EQ(f->params[1].offset, 8);
    CHECK_EQ(f->code[1].imm, 8);
    CHECK_EQ(k->ninstrs, 4);
    CHECK_EQ(k->code[1].op, VG_CALL);
    CHECK_EQ(k->code[1].imm, 16);
    CHECK_EQ(k->code[0].imm, 16);
    CHECK_EQ(k->code[2].imm, 24);
    vg_module_destroy(module);
}

TEST(vgpu_ptx_forms, variables_of_scopes_share_the_frame)
{
    struct vg_module *module = vg_test_read(
        HEAD ".func f(.param .b64 a) {\nret;\n}\n.entry k() {\n.reg .b64 %rd<2>;\n.local .b64 x;\n"
             "{ .param .b64 p;\nst.param.b64 [p], %rd1;\ncall.uni f, (p); }\n"
             "{ .local .b8 y[40]; { .param .b64 p;\nst.param.b64 [p], %rd1;\ncall.uni f, (p); } }\n"
             ".local .b64 z;\nst.local.b64 [z], %rd1;\nret;\n}\n");
    REQUIRE(module);
    const struct vg_function *k = &module->functions[1];
    CHECK_EQ(k->code[1].imm, 16); /* behind x and z */
    CHECK_EQ(k->code[3].imm, 64); /* behind y, which is behind x and z */
    CHECK_EQ(k->code[4].imm, 8);
    CHECK_EQ(k->local_bytes, 80);
    vg_module_destroy(module);
}

TEST(vgpu_ptx_forms, registers_share_units_when_their_lives_do_not_meet)
{
    struct vg_module *module = read_statement(
        "mov.u32 %r1, 1; mov.u32 %r2, 2;\nL: add.u32 %r3, %r1, 1; st.global.u32 [%rd1], %r3;\n"
        "add.u32 %r4, %r2, 1; st.global.u32 [%rd1], %r4; setp.eq.u32 %p1, %r2, 3;\n@%p1 bra L;");
    REQUIRE(module);
    const struct vg_function *kernel = &module->functions[0];
    const struct vg_instr *code = kernel->code;
    CHECK_EQ(code[2].dst[0], code[4].dst[0]); /* %r3 and %r4 */
    CHECK(code[2].dst[0] != code[0].dst[0]);  /* %r1 lives around the loop */
    CHECK(code[4].dst[0] != code[0].dst[0]);
    CHECK_EQ(kernel->nunits, 5);
    CHECK_EQ(code[7].target, 2);
    vg_module_destroy(module);
}

/* A register that many blocks use before they branch to one: each is met twice. */
TEST(vgpu_ptx_forms, a_predicate_outlives_many_branches_to_one_place)
{
    enum { BRANCHES = 40 };
    char text[BRANCHES * 80 + 512];
    size_t n = (size_t)snprintf(text, sizeof text,
                                "%s.entry k() {\n.reg .pred %%p<3>; .reg .b32 %%r<4>;\n"
                                "mov.u32 %%r2, %%tid.x; setp.eq.u32 %%p1, %%r2, 0;\n",
                                HEAD);
    for (int i = 0; i < BRANCHES; i++)
        n +=
            (size_t)snprintf(text + n, sizeof text - n,
                             "add.u32 %%r3, %%r3, %%r2; setp.gt.u32 %%p2, %%r3, 9; @%%p2 bra L;\n");
    snprintf(text + n, sizeof text - n, "L: add.u32 %%r3, %%r3, %%r2;\n@%%p1 trap;\nret;\n}\n");
    struct vg_module *module = vg_test_read(text);
    REQUIRE(module);
    const struct vg_function *kernel = &module->functions[0];
    uint16_t first = VG_NONE;
    for (uint32_t i = 0; i < kernel->ninstrs; i++) {
        const struct vg_instr *in = &kernel->code[i];
        if (in->op == VG_SETP && first == VG_NONE)
            first = in->dst[0];
        else if (in->op == VG_SETP)
            CHECK(in->dst[0] != first);
        if (in->op == VG_TRAP) CHECK_EQ(in->guard, first);
    }
    CHECK_EQ(kernel->npredicates, 2);
    vg_module_destroy(module);
}

TEST(vgpu_ptx_forms, dynamic_shared_memory_follows_the_static_one)
{
    struct vg_module *module =
        vg_test_read(HEAD ".extern .shared .align 16 .b8 more[];\n.entry k() {\n.reg .b32 %r<2>;\n"
                          ".shared .b32 x[3];\nmov.u32 %r1, more; mov.u32 %r1, x;\nret;\n}\n");
    REQUIRE(module);
    const struct vg_function *kernel = &module->functions[0];
    CHECK_EQ(kernel->shared_bytes, 16);
    CHECK_EQ(module->constants[kernel->code[0].src[0] & 0x7fff][31], 16);
    CHECK_EQ(module->constants[kernel->code[1].src[0] & 0x7fff][31], 0);
    vg_module_destroy(module);
}

/* What the process has in memory. */
static size_t resident(void)
{
    unsigned long pages = 0, all;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%lu %lu", &all, &pages) == 2);
    if (file != NULL) fclose(file);
    return pages << 12;
}

/* What the reader knows of the opcodes of a text, and of its names, goes when it has been read. */
TEST(vgpu_ptx_forms, a_small_module_keeps_little_of_what_its_reader_used)
{
    enum { MODULES = 64, MOST_KIB = 64 };
    static const char text[] =
        KERNEL "add.s32 %r1, %r2, 5; sub.s32 %r1, %r2, %r3; mul.lo.s32 %r1, %r2, %r3;\n"
               "and.b32 %r1, %r2, %r3; or.b32 %r1, %r2, %r3; xor.b32 %r1, %r2, %r3;\n"
               "min.u32 %r1, %r2, %r3; max.u32 %r1, %r2, %r3; shl.b32 %r1, %r2, 3;\n"
               "add.f32 %f1, %f2, %f3; mul.f32 %f1, %f2, %f3; fma.rn.f32 %f1, %f2, %f3, %f4;\n"
               "add.f64 %d1, %d2, %d3; mul.f64 %d1, %d2, %d3; mov.u32 %r1, %r2;\n"
               "setp.gt.u32 %p1, %r1, 9; selp.b32 %r1, %r2, %r3, %p1; cvt.u64.u32 %rd1, %r1;\n" END;
    struct vg_module *modules[MODULES + 1];
    if (tt_test_sanitized()) SKIP("a sanitizer has memory of its own beside");
    modules[MODULES] = vg_test_read(text);
    const size_t before = resident();
    for (int i = 0; i < MODULES; i++) modules[i] = vg_test_read(text);
    const size_t each = (resident() - before) / MODULES;
    CHECK_MESSAGE(each < MOST_KIB << 10, "%zu KiB stay of each module", each >> 10);
    for (int i = 0; i <= MODULES; i++) vg_module_destroy(modules[i]);
}
