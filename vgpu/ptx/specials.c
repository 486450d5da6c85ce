/* Names of special registers. */
#include <vgpu/memory.h>
#include <vgpu/ptx/operands.h>

#include <string.h>

/* VG_SPECIALS + n: always n. Blocks are their own clusters: what is known of a cluster follows. */
enum { ZERO = VG_SPECIALS, ONE = VG_SPECIALS + 1, RESERVED = VG_SPECIALS + VG_RESERVED_SHARED };

static const struct {
    const char *name;
    uint32_t number; /* of .x */
    bool vector;
    enum vg_type type;
} specials[] = {
    {"%tid", VG_TID_X, true, VG_U32},
    {"%ntid", VG_NTID_X, true, VG_U32},
    {"%ctaid", VG_CTAID_X, true, VG_U32},
    {"%nctaid", VG_NCTAID_X, true, VG_U32},
    {"%laneid", VG_LANEID, false, VG_U32},
    {"%warpid", VG_WARPID, false, VG_U32},
    {"%nwarpid", VG_NWARPID, false, VG_U32},
    {"%smid", VG_SMID, false, VG_U32},
    {"%nsmid", VG_NSMID, false, VG_U32},
    {"%gridid", VG_GRIDID, false, VG_U64},
    {"%lanemask_eq", VG_LANEMASK_EQ, false, VG_U32},
    {"%lanemask_le", VG_LANEMASK_LE, false, VG_U32},
    {"%lanemask_lt", VG_LANEMASK_LT, false, VG_U32},
    {"%lanemask_ge", VG_LANEMASK_GE, false, VG_U32},
    {"%lanemask_gt", VG_LANEMASK_GT, false, VG_U32},
    {"%clock", VG_CLOCK, false, VG_U32},
    {"%clock_hi", VG_CLOCK_HI, false, VG_U32},
    {"%clock64", VG_CLOCK64, false, VG_U64},
    {"%globaltimer", VG_GLOBALTIMER, false, VG_U64},
    {"%globaltimer_lo", VG_GLOBALTIMER_LO, false, VG_U32},
    {"%globaltimer_hi", VG_GLOBALTIMER_HI, false, VG_U32},
    {"%dynamic_smem_size", VG_DYNAMIC_SMEM_SIZE, false, VG_U32},
    {"%total_smem_size", VG_TOTAL_SMEM_SIZE, false, VG_U32},
    {"%aggr_smem_size", VG_TOTAL_SMEM_SIZE, false, VG_U32},
    {"%clusterid", VG_CTAID_X, true, VG_U32},
    {"%nclusterid", VG_NCTAID_X, true, VG_U32},
    {"%cluster_ctaid", ZERO, true, VG_U32},
    {"%cluster_nctaid", ONE, true, VG_U32},
    {"%cluster_ctarank", ZERO, false, VG_U32},
    {"%cluster_nctarank", ONE, false, VG_U32},
    {"%current_graph_exec", ZERO, false, VG_U64},
    {"%reserved_smem_offset_begin", RESERVED, false, VG_U32},
    {"%reserved_smem_offset_end", RESERVED + VG_RESERVED_BYTES, false, VG_U32},
    {"%reserved_smem_offset_cap", VG_SPECIALS + VG_RESERVED_BYTES, false, VG_U32},
    {"%reserved_smem_offset_0", RESERVED, false, VG_U32},
    {"%reserved_smem_offset_1", RESERVED + VG_RESERVED_BYTES / 2, false, VG_U32},
};

/* %envreg registers that nobody sets are 0. */
static uint32_t environment(const struct vg_token *name)
{
    if (vg_ptx_is_word(name, "%envreg1")) return VG_WORKSPACE_HI;
    return vg_ptx_is_word(name, "%envreg2") ? (uint32_t)VG_WORKSPACE_LO : (uint32_t)ZERO;
}

bool vg_ptx_special_named(const struct vg_token *name, const struct vg_token *part,
                          uint32_t *number, enum vg_type *type)
{
    if (!part && name->length > 3 &&
        (memcmp(name->text, "%pm", 3) == 0 ||
         (name->length > 7 && memcmp(name->text, "%envreg", 7) == 0))) {
        *number = environment(name);
        *type = name->length > 5 && memcmp(name->text + name->length - 3, "_64", 3) == 0 ? VG_U64
                                                                                         : VG_U32;
        return true;
    }
    for (unsigned i = 0; i < sizeof specials / sizeof *specials; i++) {
        if (!vg_ptx_is_word(name, specials[i].name)) continue;
        uint32_t at = 0;
        if (specials[i].vector) {
            if (!part) return false;
            while (at < 4 && part->text[1] != "xyzw"[at]) at++;
            if (part->length != 2 || at == 4) return false;
        } else if (part) {
            return false;
        }
        *number = at == 3 ? (uint32_t)ZERO : specials[i].number;
        if (at < 3 && *number < VG_SPECIALS) *number += at;
        *type = specials[i].type;
        return true;
    }
    return false;
}
