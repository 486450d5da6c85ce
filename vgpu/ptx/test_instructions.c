/* INSTRUCTIONS.md, made from the reader: an example of each instruction of PTX ISA 9.0 and what
 * becomes of it. */
#include <shim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vgpu/compute/compute.h>
#include <vgpu/ptx/testing.h>

#define PAGE TUTTI_SOURCE_DIR "/vgpu/ptx/INSTRUCTIONS.md"

/* A line without a ';' is a chapter of the manual. */
static const char *const examples[] = {
    "Integer arithmetic (9.7.1, 9.7.2)",
    "add.u32 %r1, %r2, 5;",
    "add.cc.u32 %r1, %r2, 5;",
    "addc.u32 %r1, %r2, 5;",
    "sub.s64 %rd1, %rd2, 5;",
    "subc.cc.u32 %r1, %r2, %r3;",
    "mul.wide.u32 %rd1, %r2, %r3;",
    "mad.lo.s32 %r1, %r2, %r3, %r4;",
    "madc.hi.u32 %r1, %r2, %r3, %r4;",
    "mul24.lo.u32 %r1, %r2, %r3;",
    "mad24.hi.s32 %r1, %r2, %r3, %r4;",
    "sad.u32 %r1, %r2, %r3, %r4;",
    "div.s32 %r1, %r2, %r3;",
    "rem.u64 %rd1, %rd2, %rd3;",
    "abs.s32 %r1, %r2;",
    "neg.s32 %r1, %r2;",
    "min.relu.s16x2 %r1, %r2, %r3;",
    "max.u32 %r1, %r2, %r3;",
    "popc.b64 %r1, %rd1;",
    "clz.b32 %r1, %r2;",
    "bfind.shiftamt.u32 %r1, %r2;",
    "fns.b32 %r1, %r2, %r3, 1;",
    "brev.b32 %r1, %r2;",
    "bfe.u32 %r1, %r2, 3, 4;",
    "bfi.b32 %r1, %r2, %r3, 4, 5;",
    "szext.wrap.s32 %r1, %r2, %r3;",
    "bmsk.clamp.b32 %r1, %r2, %r3;",
    "dp4a.u32.s32 %r1, %r2, %r3, %r4;",
    "dp2a.lo.s32.u32 %r1, %r2, %r3, %r4;",
    "Floating point (9.7.3 to 9.7.5)",
    "add.rn.ftz.f32 %f1, %f2, %f3;",
    "add.f16x2 %r1, %r2, %r3;",
    "add.rn.bf16 %rs1, %rs2, %rs3;",
    "add.rn.f32x2 %rd1, %rd2, %rd3;",
    "add.rn.f32.f16 %f1, %rs1, %f2;",
    "sub.f64 %d1, %d2, %d3;",
    "mul.f32 %f1, %f2, %f3;",
    "fma.rn.f32 %f1, %f2, %f3, %f4;",
    "fma.rn.oob.f16 %rs1, %rs2, %rs3, %rs4;",
    "fma.rn.f32x2 %rd1, %rd2, %rd3, %rd4;",
    "mad.rn.f32 %f1, %f2, %f3, %f4;",
    "div.full.f32 %f1, %f2, %f3;",
    "div.rn.f64 %d1, %d2, %d3;",
    "abs.f32 %f1, %f2;",
    "neg.f16x2 %r1, %r2;",
    "min.NaN.xorsign.abs.f32 %f1, %f2, %f3;",
    "max.f32 %f1, %f2, %f3, %f4;",
    "rcp.approx.ftz.f64 %d1, %d2;",
    "sqrt.rn.f32 %f1, %f2;",
    "rsqrt.approx.f64 %d1, %d2;",
    "sin.approx.f32 %f1, %f2;",
    "cos.approx.f32 %f1, %f2;",
    "lg2.approx.f32 %f1, %f2;",
    "ex2.approx.ftz.bf16x2 %r1, %r2;",
    "tanh.approx.f16 %rs1, %rs2;",
    "copysign.f64 %d1, %d2, %d3;",
    "testp.subnormal.f32 %p1, %f1;",
    "Comparison and selection (9.7.6, 9.7.7)",
    "set.lt.u32.f32 %r1, %f1, %f2;",
    "setp.geu.f32 %p1|%p2, %f1, %f2;",
    "setp.eq.f16x2 %p1|%p2, %r1, %r2;",
    "selp.f64 %d1, %d2, %d3, %p1;",
    "slct.f32.s32 %f1, %f2, %f3, %r1;",
    "Logic and shifts (9.7.8)",
    "and.b32 %r1, %r2, %r3;",
    "or.pred %p1, %p2, %p3;",
    "xor.b64 %rd1, %rd2, %rd3;",
    "not.b16 %rs1, %rs2;",
    "cnot.b32 %r1, %r2;",
    "lop3.b32 %r1, %r2, %r3, %r4, 0x96;",
    "lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 0x96, %p2;",
    "shf.l.wrap.b32 %r1, %r2, %r3, %r4;",
    "shl.b64 %rd1, %rd2, 3;",
    "shr.s32 %r1, %r2, %r3;",
    "Data movement and conversion (9.7.9)",
    "mov.u32 %r1, %tid.x;",
    "mov.b128 %q1, {%rd1, %rd2};",
    "prmt.b32 %r1, %r2, %r3, 0x5410;",
    "shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1;",
    "cvt.rzi.s32.f32 %r1, %f1;",
    "cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, %f2;",
    "cvt.rna.tf32.f32 %r1, %f1;",
    "cvt.rn.satfinite.f16.f32 %rs1, %f1;",
    "cvt.rs.f16x2.f32 %r1, %f1, %f2, %r2;",
    "cvt.rn.satfinite.e2m1x2.f32 %b1, %f1, %f2;",
    "cvt.pack.sat.u8.s32.b32 %r1, %r2, %r3, %r4;",
    "cvta.to.global.u64 %rd1, %rd2;",
    "isspacep.shared %p1, %rd1;",
    "isspacep.shared::cluster %p1, %rd1;",
    "istypep.texref %p1, %rd1;",
    "ld.global.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1];",
    "ld.acquire.gpu.b128 %q1, [%rd1];",
    "ld.global.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r0}, [%rd1];",
    "ld.global.L2::cache_hint.u32 %r1, [%rd1], %rd2;",
    "ld.shared::cluster.u32 %r1, [%r2];",
    "ldu.global.u32 %r1, [%rd1];",
    "st.release.sys.u32 [%rd1], %r1;",
    "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], %r2, [%r3];",
    "st.bulk.shared::cta [%rd1], %rd2, 0;",
    "multimem.ld_reduce.global.add.f32 %f1, [%rd1];",
    "multimem.st.global.f32 [%rd1], %f1;",
    "multimem.red.global.add.f32 [%rd1], %f1;",
    "prefetch.global.L2 [%rd1];",
    "prefetchu.L1 [%rd1];",
    "applypriority.global.L2::evict_normal [%rd1], 128;",
    "discard.global.L2 [%rd1], 128;",
    "createpolicy.fractional.L2::evict_last.b64 %rd1, 0.5;",
    "mapa.u64 %rd1, %rd2, %r1;",
    "getctarank.u64 %r1, %rd1;",
    "cp.async.ca.shared.global [%r1], [%rd1], 16;",
    "cp.async.commit_group;",
    "cp.async.wait_group 1;",
    "cp.async.wait_all;",
    "cp.async.mbarrier.arrive.noinc.b64 [%r1];",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r3];",
    "cp.async.bulk.prefetch.L2.global [%rd1], %r1;",
    "cp.async.bulk.commit_group;",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], %r2;",
    "tensormap.replace.tile.rank.global.b1024.b32 [%rd1], %r1;",
    "Textures and surfaces (9.7.10, 9.7.11)",
    "tex.1d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd1, {%r1}];",
    "tld4.r.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5,%f6}];",
    "txq.width.b32 %r1, [%rd1];",
    "suld.b.1d.b32.trap %r1, [%rd1, {%r2}];",
    "sust.b.1d.b32.trap [%rd1, {%r2}], %r1;",
    "sured.b.add.1d.u32.trap [%rd1, {%r2}], %r1;",
    "suq.width.b32 %r1, [%rd1];",
    "Control (9.7.12)",
    "bra.uni L;",
    "brx.idx %r1, T;",
    "call F;",
    "ret;",
    "exit;",
    "Synchronisation and communication (9.7.13)",
    "bar.sync 0;",
    "bar.red.popc.u32 %r1, 0, %p1;",
    "bar.arrive 1, 64;",
    "barrier.sync 1, 64;",
    "bar.warp.sync -1;",
    "barrier.cluster.arrive;",
    "barrier.cluster.wait;",
    "membar.gl;",
    "fence.sc.gpu;",
    "fence.acq_rel.cta;",
    "fence.proxy.async;",
    "fence.proxy.tensormap::generic.release.gpu;",
    "atom.global.add.u32 %r1, [%rd1], 1;",
    "atom.cas.b128 %q1, [%rd1], %q2, %q3;",
    "atom.global.v4.f32.add {%f1,%f2,%f3,%f4}, [%rd1], {%f1,%f2,%f3,%f4};",
    "red.release.sys.global.max.s64 [%rd1], %rd2;",
    "red.global.v8.bf16.add.noftz [%rd1], {%rs1,%rs2,%rs3,%rs4,%rs5,%rs6,%rs7,%rs0};",
    ("red.async.relaxed.cluster.global.mbarrier::complete_tx::bytes.shared::cluster.inc.u32 [%r1], "
     "%r2, [%r3];"),
    "vote.sync.ballot.b32 %r1, %p1, -1;",
    "match.all.sync.b32 %r1|%p1, %r2, -1;",
    "activemask.b32 %r1;",
    "redux.sync.add.s32 %r1, %r2, -1;",
    "redux.sync.min.f32 %f1, %f2, -1;",
    "griddepcontrol.wait;",
    "elect.sync %r1|%p1, -1;",
    "mbarrier.init.b64 [%r1], 32;",
    "mbarrier.inval.b64 [%r1];",
    "mbarrier.expect_tx.relaxed.cta.b64 [%r1], %r2;",
    "mbarrier.complete_tx.relaxed.cta.b64 [%r1], %r2;",
    "mbarrier.arrive.b64 %rd1, [%r1];",
    "mbarrier.arrive.expect_tx.b64 %rd1, [%r1], %r2;",
    "mbarrier.arrive_drop.noComplete.b64 %rd1, [%r1], 1;",
    "mbarrier.test_wait.parity.b64 %p1, [%r1], %r2;",
    "mbarrier.try_wait.b64 %p1, [%r1], %rd1, %r2;",
    "mbarrier.pending_count.b64 %r1, %rd1;",
    "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q1;",
    "Matrices (9.7.14 to 9.7.16)",
    "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1,%r2}, [%rd1];",
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f2};",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];",
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%r1};",
    "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;",
    "wgmma.fence.sync.aligned;",
    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;",
    "Stack (9.7.17)",
    "stacksave.u64 %rd1;",
    "stackrestore.u64 %rd1;",
    "alloca.u64 %rd1, %rd2, 16;",
    "Video (9.7.18)",
    "vadd.u32.u32.u32 %r1, %r2, %r3;",
    "vset2.u32.u32.eq %r1, %r2, %r3, %r4;",
    "vabsdiff4.u32.u32.u32.add %r1, %r2, %r3, %r4;",
    "Miscellaneous (9.7.19)",
    "brkpt;",
    "nanosleep.u32 100;",
    "pmevent 7;",
    "setmaxnreg.inc.sync.aligned.u32 64;",
    "trap;",
};

/* What the reader and the handlers make of the line. */
static const char *state_of(const char *line)
{
    static char state[400];
    char text[4096], error[256];
    struct vg_module *module = NULL;
    const int n = snprintf(
        text, sizeof text,
        ".version 9.0\n.target sm_100\n.address_size 64\n.func F() {\nret;\n}\n.entry k() {\n"
        ".reg .pred %%p<8>; .reg .b8 %%b<2>; .reg .b16 %%rs<8>; .reg .b32 %%r<8>; .reg .b64 "
        "%%rd<8>;\n"
        ".reg .f32 %%f<8>; .reg .f64 %%d<8>; .reg .b128 %%q<4>;\nL: nanosleep.u32 1;\n"
        "T: .branchtargets L;\n%s\nret;\n}\n",
        line);
    if (vg_ptx_read(text, (size_t)n, &module, error) != 0) {
        snprintf(state, sizeof state, "not read: %s", error);
        return state;
    }
    const struct vg_function *kernel = &module->functions[1];
    strcpy(state, kernel->unsupported ? "refused by kernel" : "runs");
    for (uint32_t i = 0; i < kernel->ninstrs; i++) {
        const struct vg_instr *in = &kernel->code[i];
        const bool computes =
            in->op < VG_SPECIAL || in->op == VG_PRMT || in->op == VG_CVT || in->op == VG_CVT_PACK;
        if (computes && !vg_compute_find(in)) strcpy(state, "refused by kernel");
    }
    vg_module_destroy(module);
    return state;
}

TEST(vgpu_ptx_instructions, the_page_says_what_the_reader_does_with_each_instruction)
{
    size_t nbytes = 0;
    char *page = malloc(1 << 16), *committed = vg_test_file(PAGE, &nbytes);
    REQUIRE(page);
    size_t n = (size_t)sprintf(
        page,
        "# Instructions of PTX ISA 9.0\n\nMade by test_instructions.c. \"refused by kernel\": "
        "the module is loaded, and a kernel that holds the\ninstruction fails when it is "
        "launched. What neither stands here nor in the manual is refused in that way too.\n");
    for (unsigned i = 0; i < sizeof examples / sizeof *examples; i++) {
        if (!strchr(examples[i], ';')) {
            n += (size_t)sprintf(page + n, "\n## %s\n\n| example | state |\n|---|---|\n",
                                 examples[i]);
            continue;
        }
        const char *state = state_of(examples[i]);
        CHECK_MESSAGE(strncmp(state, "not read", 8) != 0, "%s %s", examples[i], state);
        n += (size_t)sprintf(page + n, "| `");
        for (const char *c = examples[i]; *c; c++)
            n += (size_t)sprintf(page + n, *c == '|' ? "\\|" : "%c", *c);
        n += (size_t)sprintf(page + n, "` | %s |\n", state);
    }
    const bool same = committed && nbytes == n && memcmp(page, committed, n) == 0;
    if (!same) {
        const char *path = "INSTRUCTIONS.md";
        FILE *file = fopen(path, "w");
        if (file) {
            fwrite(page, 1, n, file);
            fclose(file);
        }
        tt_test_fail(__FILE__, __LINE__, "%s is another one: copy ./%s there", PAGE, path);
    }
    free(page);
    free(committed);
}
