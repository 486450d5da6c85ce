/* What exists but is not supported: it fails when its kernel is launched. */
#include <vgpu/ptx/instructions.h>

#include <stdio.h>
#include <string.h>

const char *const vg_ptx_unsupported[] = {
    "wmma",
    "mma",
    "wgmma",
    "ldmatrix",
    "stmatrix",
    "movmatrix",
    "tcgen05",
    "tensormap",
    "multimem",
    "mapa",
    "getctarank",
    "cp.async.bulk",
    "cp.reduce",
    "st.async",
    "st.bulk",
    "red.async",
    "tex",
    "tld4",
    "txq",
    "suld",
    "sust",
    "sured",
    "suq",
    "istypep",
    "vadd",
    "vsub",
    "vabsdiff",
    "vmin",
    "vmax",
    "vshl",
    "vshr",
    "vmad",
    "vset",
    "vadd2",
    "vsub2",
    "vavrg2",
    "vabsdiff2",
    "vmin2",
    "vmax2",
    "vset2",
    "vadd4",
    "vsub4",
    "vavrg4",
    "vabsdiff4",
    "vmin4",
    "vmax4",
    "vset4",
    "barrier.cluster",
    "clusterlaunchcontrol",
    "fence.proxy.tensormap",
    "fence.proxy.tensormap::generic",
    "fence.proxy.async::generic",
    "fence.acquire.sync_restrict",
    "fence.release.sync_restrict",
    "mbarrier.complete_tx",
    "mbarrier.arrive_drop.expect_tx",
    "redux.sync.min.abs",
};

bool vg_ptx_is_unsupported(const struct vg_opcode *opcode)
{
    for (unsigned i = 0; i < sizeof vg_ptx_unsupported / sizeof *vg_ptx_unsupported; i++) {
        const size_t length = strlen(vg_ptx_unsupported[i]);
        if (strncmp(opcode->text, vg_ptx_unsupported[i], length) == 0 &&
            (opcode->text[length] == '.' || opcode->text[length] == '\0'))
            return true;
    }
    const bool asks = vg_ptx_is_word(&opcode->name, "isspacep"); /* a block is its own cluster */
    const bool reduce = vg_ptx_is_word(&opcode->name, "redux");
    static const char *const words[] = {".shared::cluster", ".oob",    ".tensormap", ".e2m1x2",
                                        ".e2m3x2",          ".e3m2x2", ".ue8m0x2"};
    for (uint32_t i = 0; i < opcode->nmodifiers; i++) {
        const struct vg_token *modifier = &opcode->modifiers[i];
        for (unsigned j = 0; j < sizeof words / sizeof *words; j++)
            if (vg_ptx_is_word(modifier, words[j]) && !(asks && j == 0)) return true;
        if (vg_ptx_is_word(&opcode->name, "cvt") && vg_ptx_is_word(modifier, ".satfinite"))
            return true; /* of f16 and bf16: VG_SAT means .sat there */
        if (reduce && vg_ptx_is_word(modifier, ".f32")) return true;
    }
    return false;
}

const char *vg_ptx_unsupported_text(struct vg_reader *r, struct vg_token token)
{
    char text[160];
    const int n = snprintf(text, sizeof text, "'%.*s' in line %u is not supported", VG_NAMED(token),
                           token.line);
    return vg_ptx_text(r, text, (size_t)n);
}
