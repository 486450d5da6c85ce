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
    "setmaxnreg",
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
    "discard",
    "fence.proxy.tensormap",
    "fence.proxy.tensormap::generic",
    "fence.acquire",
    "fence.release",
    "createpolicy",
};

bool vg_ptx_is_unsupported(const struct vg_opcode *opcode)
{
    for (unsigned i = 0; i < sizeof vg_ptx_unsupported / sizeof *vg_ptx_unsupported; i++) {
        const size_t length = strlen(vg_ptx_unsupported[i]);
        if (strncmp(opcode->text, vg_ptx_unsupported[i], length) == 0 &&
            (opcode->text[length] == '.' || opcode->text[length] == '\0'))
            return true;
    }
    for (uint32_t i = 0; i < opcode->nmodifiers; i++)
        if (vg_ptx_is_word(&opcode->modifiers[i], ".shared::cluster")) return true;
    return false;
}

const char *vg_ptx_unsupported_text(struct vg_reader *r, struct vg_token token)
{
    char text[160];
    const int n = snprintf(text, sizeof text, "'%.*s' in line %u is not supported", VG_NAMED(token),
                           token.line);
    return vg_ptx_text(r, text, (size_t)n);
}
