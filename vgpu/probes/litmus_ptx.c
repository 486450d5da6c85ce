/* Makes PTX kernels of litmus tests.
 *
 * A round has 384 instances of the test for each block, each with variables of its own. Role k of
 * the instances of block j runs in block j + k * apart, or, with `same`, in other warps of block j.
 * Blocks (or warps) run the roles in an order that makes all roles of an instance run at about the
 * same time. A barrier over the grid separates rounds; every round has memory of its own. */
#include "litmus.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char litmus_header[] = ".version 8.3\n.target sm_75\n.address_size 64\n";
const char *const litmus_scopes[3] = {"cta", "gpu", "sys"};

const struct litmus_test litmus_tests[] = {
    {"MP", "w x 1, F, W y 1 | R y, F, r x", false},
    {"SB", "W x 1, F, R y | W y 1, F, R x", false},
    {"LB", "R x, F, W y 1 | R y, F, W x 1", false},
    {"S", "w x 2, F, W y 1 | R y, F, w x 1", true},
    {"R", "W x 1, F, W y 1 | W y 2, F, R x", true},
    {"2+2W", "W x 1, F, W y 2 | W y 1, F, W x 2", true},
    {"IRIW", "W x 1 | W y 1 | R x, F, R y | R y, F, R x", false},
    {"WRC", "w x 1 | R x, F, W y 1 | R y, F, r x", false},
    {"RWC", "W x 1 | R x, F, R y | W y 1, F, R x", false},
    {"WWC", "W x 2 | R x, F, W y 1 | R y, F, W x 1", true},
    {"ISA2", "w x 1, F, W y 1 | R y, F, W z 1 | R z, F, r x", false},
    {"Z6.3", "W x 1, F, W y 1 | W y 2, F, W z 1 | R z, F, R x", true},
    {"CoRR", "W x 1 | R x, R x", false},
    {"CoRR2", "W x 1 | W x 2 | R x, R x | R x, R x", false},
    {"CoRW", "R x, W x 1 | W x 2", true},
    {"CoWR", "W x 1, R x | W x 2", true},
    {"CoWW", "W x 1, W x 2 | R x, R x", true},
    {"MP+rmw", "w x 1, F, W y 1 | A y | R y, F, r x", false},
    {"SB+rmw", "A x, F, R y | A y, F, R x", false},
    {"rmw2", "A x | A x", true},
};
const size_t litmus_ntests = sizeof litmus_tests / sizeof *litmus_tests;

const struct litmus_variant litmus_variants[] = {
    {"weak", "st.weak", "ld.weak", "st.weak", "ld.weak", "atom.relaxed.gpu", NULL, false},
    {"volatile", "st.volatile", "ld.volatile", "st.volatile", "ld.volatile", "atom.relaxed.sys",
     NULL, false},
    {"relaxed", "st.relaxed.%s", "ld.relaxed.%s", "st.relaxed.%s", "ld.relaxed.%s",
     "atom.relaxed.%s", NULL, true},
    {"release-acquire", "st.relaxed.%s", "ld.relaxed.%s", "st.release.%s", "ld.acquire.%s",
     "atom.acq_rel.%s", NULL, true},
    {"fence.acq_rel", "st.relaxed.%s", "ld.relaxed.%s", "st.relaxed.%s", "ld.relaxed.%s",
     "atom.relaxed.%s", "fence.acq_rel.%s", true},
    {"fence.sc", "st.relaxed.%s", "ld.relaxed.%s", "st.relaxed.%s", "ld.relaxed.%s",
     "atom.relaxed.%s", "fence.sc.%s", true},
    {"weak data, relaxed flag", "st.weak", "ld.weak", "st.relaxed.%s", "ld.relaxed.%s",
     "atom.relaxed.%s", NULL, true},
    {"weak data, release-acquire flag", "st.weak", "ld.weak", "st.release.%s", "ld.acquire.%s",
     "atom.relaxed.%s", NULL, true},
    {"weak data, relaxed flag, fence.acq_rel", "st.weak", "ld.weak", "st.relaxed.%s",
     "ld.relaxed.%s", "atom.relaxed.%s", "fence.acq_rel.%s", true},
};
const size_t litmus_nvariants = sizeof litmus_variants / sizeof *litmus_variants;

struct writer {
    char *text;
    size_t size, length;
};

static void put(struct writer *to, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    to->length += (size_t)vsnprintf(to->text + to->length, to->size - to->length, format, list);
    va_end(list);
}

struct litmus_shape litmus_shape(const struct litmus_test *test)
{
    struct litmus_shape shape = {.nroles = 1};
    for (const char *at = test->text; *at; at++) {
        if (*at == '|') shape.nroles++;
        if (*at == 'R' || *at == 'r' || *at == 'A') shape.nloads++;
        if (*at >= 'x' && *at <= 'z' && *at - 'x' >= shape.nvariables)
            shape.nvariables = *at - 'x' + 1;
    }
    return shape;
}

/* The instance of this role, and the addresses of its variables in %rd20 (x), 21, 22. */
static void put_role_begin(struct writer *to, int role, int nroles, int nvariables)
{
    put(to, "ROLE%d:\n", role);
    /* Another block: block - role * apart; the same: warp - role * apart, modulo 12. */
    put(to,
        "mul.lo.u32 %%r20, %%apart, %d;\n"
        "sub.u32 %%r21, %%block, %%r20;\nadd.u32 %%r21, %%r21, %%nblocks;\n"
        "add.u32 %%r21, %%r21, %%nblocks;\nadd.u32 %%r21, %%r21, %%nblocks;\n"
        "rem.u32 %%r21, %%r21, %%nblocks;\n"
        "sub.u32 %%r22, %%warp, %%r20;\nadd.u32 %%r22, %%r22, 1200;\nrem.u32 %%r22, %%r22, 12;\n"
        "selp.u32 %%r21, %%block, %%r21, %%issame;\nselp.u32 %%r22, %%r22, %%warp, %%issame;\n"
        "xor.b32 %%r23, %%lane, %d;\n"
        "mad.lo.u32 %%r24, %%r21, 12, %%r22;\nmad.lo.u32 %%inst, %%r24, 32, %%r23;\n",
        role, role * 7 % 32);
    for (int v = 0; v < nvariables; v++)
        put(to,
            "mad.lo.u32 %%r25, %%inst, %d, %d;\nmad.lo.u32 %%r25, %%r25, %%odd, 12345;\n"
            "and.b32 %%r25, %%r25, %%mask;\nmul.wide.u32 %%rd19, %%r25, %%stride;\n"
            "add.u64 %%rd%d, %%base, %%rd19;\n",
            nvariables, v, 20 + v);
    (void)nroles;
}

static void put_op(struct writer *to, const char *op, const struct litmus_variant *variant,
                   const char *scope, int *nloads)
{
    char name[64];
    const char kind = op[0];
    if (kind == 'F') {
        if (!variant->fence) return;
        snprintf(name, sizeof name, variant->fence, scope);
        put(to, "%s;\n", name);
        return;
    }
    const int variable = 20 + op[2] - 'x';
    const char *format = kind == 'W'   ? variant->flag_store
                         : kind == 'w' ? variant->data_store
                         : kind == 'R' ? variant->flag_load
                         : kind == 'r' ? variant->data_load
                                       : variant->add;
    if (!format) return; /* the variant has no such instruction */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(name, sizeof name, format, scope);
#pragma GCC diagnostic pop
    if (kind == 'W' || kind == 'w')
        put(to, "%s.global.u32 [%%rd%d], %c;\n", name, variable, op[4]);
    else if (kind == 'A')
        put(to, "%s.global.add.u32 %%v%d, [%%rd%d], 1;\n", name, (*nloads)++, variable);
    else
        put(to, "%s.global.u32 %%v%d, [%%rd%d];\n", name, (*nloads)++, variable);
}

/* All roles' operations; loaded values go to out[inst * loads + number]. */
static void put_roles(struct writer *to, const struct litmus_test *test,
                      const struct litmus_variant *variant, const char *scope)
{
    const struct litmus_shape shape = litmus_shape(test);
    const char *at = test->text;
    int nloads = 0;
    for (int role = 0; role < shape.nroles; role++) {
        const int first = nloads;
        put_role_begin(to, role, shape.nroles, shape.nvariables);
        while (*at && *at != '|') {
            put_op(to, at, variant, scope, &nloads);
            while (*at && *at != ',' && *at != '|') at++;
            while (*at == ',' || *at == ' ') at++;
        }
        if (*at) at += 2;
        for (int i = first; i < nloads; i++)
            put(to,
                "mad.lo.u32 %%r26, %%inst, %d, %d;\nmul.wide.u32 %%rd18, %%r26, 4;\n"
                "add.u64 %%rd18, %%outbase, %%rd18;\nst.global.u32 [%%rd18], %%v%d;\n",
                shape.nloads, i, i);
        put(to, "bra PHASE_END;\n");
    }
}

static void put_prologue(struct writer *to, const char *name, const struct litmus_shape *shape)
{
    put(to,
        ".visible .entry %s(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u32 p3, "
        ".param .u32 p4, .param .u32 p5, .param .u32 p6, .param .u32 p7, .param .u32 p8, "
        ".param .u32 p9)\n{\n"
        ".reg .u64 %%rd<32>, %%base, %%outbase, %%counter, %%roundbytes;\n"
        ".reg .u32 %%r<32>, %%v<8>, %%block, %%nblocks, %%warp, %%lane, %%inst, %%odd, %%mask, "
        "%%stride, %%apart, %%jitter, %%nrounds, %%round, %%phase, %%role, %%goal;\n"
        ".reg .pred %%p<8>, %%issame;\n"
        "ld.param.u64 %%base, [p0];\nld.param.u64 %%outbase, [p1];\nld.param.u64 %%counter, [p2];\n"
        "ld.param.u32 %%mask, [p3];\nld.param.u32 %%stride, [p4];\nld.param.u32 %%odd, [p5];\n"
        "ld.param.u32 %%apart, [p6];\nld.param.u32 %%r1, [p7];\nsetp.ne.u32 %%issame, %%r1, 0;\n"
        "ld.param.u32 %%jitter, [p8];\nld.param.u32 %%nrounds, [p9];\n"
        "mov.u32 %%block, %%ctaid.x;\nmov.u32 %%nblocks, %%nctaid.x;\nmov.u32 %%r2, %%tid.x;\n"
        "shr.u32 %%warp, %%r2, 5;\nand.b32 %%lane, %%r2, 31;\nmov.u32 %%round, 0;\n"
        "mov.u32 %%goal, 0;\nadd.u32 %%r3, %%mask, 1;\nmul.wide.u32 %%roundbytes, %%r3, "
        "%%stride;\n",
        name);
    /* The barrier over the grid. */
    put(to, "ROUND:\nadd.u32 %%goal, %%goal, %%nblocks;\nbar.sync 0;\nsetp.ne.u32 %%p1, %%r2, 0;\n"
            "@%%p1 bra WAITED;\natom.relaxed.gpu.global.add.u32 %%r4, [%%counter], 1;\n"
            "SPIN:\nld.relaxed.gpu.global.u32 %%r4, [%%counter];\nsetp.lt.u32 %%p2, %%r4, %%goal;\n"
            "@%%p2 bra SPIN;\nWAITED:\nbar.sync 0;\n");
    /* A delay of 0 to `jitter` turns, other for each warp and round. */
    put(to,
        "mad.lo.u32 %%r5, %%block, 12, %%warp;\nmad.lo.u32 %%r5, %%round, 977, %%r5;\n"
        "mul.lo.u32 %%r5, %%r5, 2654435761;\nshr.u32 %%r5, %%r5, 16;\n"
        "and.b32 %%r5, %%r5, %%jitter;\nDELAY:\nsetp.eq.u32 %%p3, %%r5, 0;\n@%%p3 bra DELAYED;\n"
        "sub.u32 %%r5, %%r5, 1;\nmov.u32 %%r6, %%clock;\nbra DELAY;\nDELAYED:\n"
        "mov.u32 %%phase, 0;\n");
    put(to,
        "PHASE:\nselp.u32 %%r7, %%warp, %%block, %%issame;\nadd.u32 %%role, %%r7, %%phase;\n"
        "rem.u32 %%role, %%role, %d;\n",
        shape->nroles);
    for (int role = 0; role < shape->nroles; role++)
        put(to, "setp.eq.u32 %%p4, %%role, %d;\n@%%p4 bra ROLE%d;\n", role, role);
}

size_t litmus_ptx(const struct litmus_test *test, const struct litmus_variant *variant,
                  const char *scope, const char *name, char *text, size_t size)
{
    struct writer to = {.text = text, .size = size};
    const struct litmus_shape shape = litmus_shape(test);
    put_prologue(&to, name, &shape);
    put_roles(&to, test, variant, scope);
    put(&to,
        "PHASE_END:\nadd.u32 %%phase, %%phase, 1;\nsetp.lt.u32 %%p5, %%phase, %d;\n"
        "@%%p5 bra PHASE;\nadd.u64 %%base, %%base, %%roundbytes;\n"
        "mul.lo.u32 %%r8, %%nblocks, %d;\nmul.wide.u32 %%rd17, %%r8, 4;\n"
        "add.u64 %%outbase, %%outbase, %%rd17;\nadd.u32 %%round, %%round, 1;\n"
        "setp.lt.u32 %%p6, %%round, %%nrounds;\n@%%p6 bra ROUND;\nret;\n}\n",
        shape.nroles, 384 * shape.nloads);
    return to.length;
}
