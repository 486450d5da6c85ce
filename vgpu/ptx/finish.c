/* What depends on several modifiers of an instruction: defaults, and combinations that do not
 * exist. */
#include <vgpu/ptx/instructions.h>

static bool is_float(enum vg_type type)
{
    return type == VG_F16 || type == VG_F16X2 || type == VG_BF16 || type == VG_BF16X2 ||
           type == VG_F32 || type == VG_F64;
}

/* .sat clamps only what the destination cannot hold. */
static void finish_cvt(struct vg_reader *r, const struct vg_opcode *opcode, struct vg_instr *in)
{
    const enum vg_type to = (enum vg_type)in->type, from = (enum vg_type)in->type2;
    const uint32_t wide = vg_ptx_type_bytes(to), narrow = vg_ptx_type_bytes(from);
    if (to >= VG_U8 && to <= VG_S64 && from >= VG_U8 && from <= VG_S64 && in->flags & VG_SAT) {
        const bool to_signed = to >= VG_S8, from_signed = from >= VG_S8;
        if (to_signed == from_signed ? wide >= narrow : to_signed && wide > narrow)
            vg_ptx_fail(r, opcode->name.line, "%.60s: expected no .sat, found one: %s holds all %s",
                        opcode->text, vg_ptx_type_name(to), vg_ptx_type_name(from));
    }
    if (is_float(to) && is_float(from) && in->round == VG_ROUND_NONE && wide == narrow &&
        to != from)
        in->round = VG_RN;
    if (r->module->version < 91 && (from == VG_BF16X2 || (to == VG_BF16X2 && from != VG_F32)))
        vg_ptx_fail(r, opcode->name.line, "%.60s: expected .version 9.1 or later, found %u.%u",
                    opcode->text, r->module->version / 10, r->module->version % 10);
    if (to == VG_TF32 && in->round == VG_RNA && in->flags & VG_RELU)
        vg_ptx_fail(r, opcode->name.line, "%.60s: expected .rn or .rz with .relu, found '.rna'",
                    opcode->text);
}

/* 128 bits at most; of global memory also 256 of 4 or 8 elements. */
static void finish_vector(struct vg_reader *r, const struct vg_opcode *opcode,
                          const struct vg_lowering *low)
{
    const struct vg_instr *in = &low->draft.in;
    const uint32_t bytes = vg_ptx_type_bytes((enum vg_type)in->type), all = bytes * in->count;
    const bool global = in->space == VG_GLOBAL || in->space == VG_GENERIC;
    const bool wide =
        all == 32 && (bytes == 4 || bytes == 8) && global && !vg_ptx_is_word(&opcode->name, "ldu");
    if (all > 16 && !wide)
        vg_ptx_fail(r, opcode->name.line,
                    "%.60s: expected a vector of at most 16 bytes, or of 32 bytes of global "
                    "memory (.v8.b32, .v4.b64), found %u",
                    opcode->text, all);
    if (low->evicts && !wide)
        vg_ptx_fail(r, opcode->name.line,
                    "%.60s: expected .v8.b32 or .v4.b64 with .L2::evict_..., found another size",
                    opcode->text);
}

void vg_ptx_finish(struct vg_reader *r, const struct vg_opcode *opcode, struct vg_lowering *low)
{
    struct vg_instr *in = &low->draft.in;
    const enum vg_type type = (enum vg_type)in->type;
    if ((in->op == VG_ADD || in->op == VG_SUB || in->op == VG_MUL || in->op == VG_FMA) &&
        is_float(type) && in->round == VG_ROUND_NONE)
        in->round = VG_RN;
    if (in->op == VG_CVT) finish_cvt(r, opcode, in);
    if (in->op == VG_LD || in->op == VG_ST) finish_vector(r, opcode, low);
    if ((in->op == VG_ATOM || in->op == VG_RED) && low->hint && in->space == VG_SHARED)
        vg_ptx_fail(r, opcode->name.line,
                    "%.60s: expected .global with .L2::cache_hint, found .shared", opcode->text);
    if (in->op == VG_ATOM || in->op == VG_RED) {
        if (in->order == VG_WEAK) in->order = VG_RELAXED;
        if (in->scope == VG_SCOPE_NONE) in->scope = VG_SCOPE_GPU;
    }
    if (in->op == VG_FENCE && in->order == VG_WEAK)
        in->order = vg_ptx_is_word(&opcode->name, "membar") ? VG_SC : VG_ACQ_REL;
    if (in->op == VG_MBARRIER_EXPECT && in->mode && low->draft.dst[0] == VG_DRAFT_NONE)
        low->draft.dst[0] = vg_ptx_register_add(r, VG_B64); /* says that it arrives */
    if ((in->op == VG_LD || in->op == VG_ST || in->op == VG_ATOM) && type == VG_B128)
        in->flags |= VG_B128_ATOMIC;
}

/* The two f32 of a register of 64 bits, in new registers. */
static void unpack(struct vg_reader *r, const struct vg_lowering *low,
                   const struct vg_operand *operand, uint32_t halves[2])
{
    struct vg_draft draft = vg_ptx_draft_make(r, low->draft.in.line, low->draft.guard);
    if (operand->kind != VG_OPERAND_REGISTER || operand->type != VG_B64 || operand->negated)
        vg_ptx_operand_wrong(r, operand, low->opcode, "a register of type .b64");
    draft.in.flags = low->draft.in.flags & VG_GUARD_NOT;
    draft.in.op = VG_UNPACK;
    draft.in.type = VG_B64;
    draft.in.type2 = VG_B32;
    draft.in.count = 2;
    for (unsigned i = 0; i < 2; i++) draft.dst[i] = halves[i] = vg_ptx_register_add(r, VG_F32);
    draft.src[0] = operand->number;
    vg_ptx_draft_add(r, &draft);
}

void vg_ptx_pairs_lower(struct vg_reader *r, struct vg_lowering *low,
                        const struct vg_operand *operands, uint32_t n)
{
    uint32_t halves[3][2], results[2];
    for (uint32_t i = 1; i < n; i++) unpack(r, low, &operands[i], halves[i - 1]);
    for (unsigned half = 0; half < 2; half++) {
        for (uint32_t i = 1; i < n; i++) low->draft.src[i - 1] = halves[i - 1][half];
        low->draft.dst[0] = results[half] = vg_ptx_register_add(r, VG_F32);
        vg_ptx_draft_add(r, &low->draft);
    }
    struct vg_draft *draft = &low->draft;
    draft->in.flags &= VG_GUARD_NOT;
    draft->in.op = VG_PACK;
    draft->in.type = VG_B64;
    draft->in.type2 = VG_B32;
    draft->in.round = VG_ROUND_NONE;
    draft->in.count = 2;
    draft->src[2] = VG_DRAFT_NONE;
    for (unsigned i = 0; i < 2; i++) draft->src[i] = results[i];
    if (operands[0].kind != VG_OPERAND_REGISTER || operands[0].type != VG_B64)
        vg_ptx_operand_wrong(r, &operands[0], low->opcode, "a register of type .b64");
    draft->dst[0] = operands[0].number;
    vg_ptx_draft_add(r, draft);
}
