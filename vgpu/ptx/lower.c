/* Instructions that the table of forms cannot say: mov, bra, brx. */
#include <vgpu/ptx/instructions.h>

#include <string.h>

/* mov.b64 {a, b}, c and c, {a, b} */
static void mov_vector(struct vg_reader *r, struct vg_lowering *low, const struct vg_operand *to,
                       const struct vg_operand *from)
{
    static const enum vg_type by_bytes[] = {[1] = VG_B8, [2] = VG_B16, [4] = VG_B32, [8] = VG_B64};
    struct vg_instr *in = &low->draft.in;
    const enum vg_type type = (enum vg_type)in->type;
    const struct vg_operand *vector = to->kind == VG_OPERAND_VECTOR ? to : from;
    const uint32_t n = vector->nelements, bytes = n ? vg_ptx_type_bytes(type) / n : 0;
    if ((n && vector->elements[0].kind == VG_OPERAND_SPECIAL) || (n != 2 && n != 4) || !bytes ||
        vg_ptx_type_bytes(type) % n)
        vg_ptx_operand_wrong(r, vector, low->opcode,
                             "a vector of 2 or 4 elements that fill the type");
    const enum vg_type part = by_bytes[bytes];
    in->count = (uint8_t)n;
    in->type2 = (uint8_t)part;
    in->op = to == vector ? VG_UNPACK : VG_PACK;
    for (uint32_t i = 0; i < n; i++) {
        if (to == vector)
            low->draft.dst[i] = vg_ptx_destination(r, low, &to->elements[i], part, false);
        else
            low->draft.src[i] = vg_ptx_source(r, low, &from->elements[i], part, false);
    }
    if (to == vector)
        low->draft.src[0] = vg_ptx_source(r, low, from, type, false);
    else
        low->draft.dst[0] = vg_ptx_destination(r, low, to, type, false);
    vg_ptx_lowered(r, low);
}

/* mov.v4.u32 {a, b, c, d}, {e, f, g, h}: a move each. The sources are read first. */
static void mov_elements(struct vg_reader *r, struct vg_lowering *low, const struct vg_operand *to,
                         const struct vg_operand *from, uint32_t count)
{
    const enum vg_type type = (enum vg_type)low->draft.in.type;
    uint32_t sources[4];
    if (to->kind != VG_OPERAND_VECTOR || from->kind != VG_OPERAND_VECTOR ||
        to->nelements != count || from->nelements != count)
        vg_ptx_operand_wrong(r, to, low->opcode, "two vectors of as many elements");
    for (unsigned pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < count; i++) {
            low->draft.src[0] =
                pass ? sources[i] : vg_ptx_source(r, low, &from->elements[i], type, false);
            low->draft.dst[0] = pass ? vg_ptx_destination(r, low, &to->elements[i], type, false)
                                     : vg_ptx_register_add(r, type);
            sources[i] = low->draft.dst[0];
            vg_ptx_draft_add(r, &low->draft);
        }
}

static void mov_read(struct vg_reader *r, const struct vg_opcode *opcode, struct vg_lowering *low)
{
    struct vg_operand operands[VG_MAX_OPERANDS];
    enum vg_type type = VG_PRED;
    uint32_t at = 0, count = 0;
    if (opcode->nmodifiers == 2) {
        count = vg_ptx_is_word(&opcode->modifiers[0], ".v2")   ? 2
                : vg_ptx_is_word(&opcode->modifiers[0], ".v4") ? 4
                                                               : 0;
        at = count ? 1 : 0;
    }
    if (opcode->nmodifiers != at + 1 ||
        !vg_ptx_type_named(opcode->modifiers[at].text, opcode->modifiers[at].length, &type) ||
        type == VG_B8 || type == VG_U8 || type == VG_S8 ||
        (type > VG_S64 && type != VG_F32 && type != VG_F64 && type != VG_F16 && type != VG_BF16))
        vg_ptx_fail(r, opcode->name.line, "%.60s: expected one type behind mov, found '%.*s'",
                    opcode->text,
                    opcode->nmodifiers ? (int)opcode->modifiers[opcode->nmodifiers - 1].length : 0,
                    opcode->nmodifiers ? opcode->modifiers[opcode->nmodifiers - 1].text : "");
    low->draft.in.op = VG_MOV;
    low->specials = low->symbols = true;
    low->draft.in.type = (uint8_t)type;
    const uint32_t n = vg_ptx_operands_read(r, operands);
    if (n != 2)
        vg_ptx_fail(r, opcode->name.line, "%.60s: expected 2 operands, found %u", opcode->text, n);
    if (count) {
        mov_elements(r, low, &operands[0], &operands[1], count);
    } else if (operands[0].kind == VG_OPERAND_VECTOR || operands[1].kind == VG_OPERAND_VECTOR) {
        mov_vector(r, low, &operands[0], &operands[1]);
    } else {
        if (operands[0].kind == VG_OPERAND_SINK)
            vg_ptx_operand_wrong(r, &operands[0], opcode->text, "a register");
        low->draft.dst[0] = vg_ptx_destination(r, low, &operands[0], type, false);
        low->draft.src[0] = vg_ptx_source(r, low, &operands[1], type, false);
        vg_ptx_lowered(r, low);
    }
}

/* bra{.uni} label; */
static void bra_read(struct vg_reader *r, const struct vg_opcode *opcode, struct vg_lowering *low)
{
    if (opcode->nmodifiers > 1 ||
        (opcode->nmodifiers == 1 && !vg_ptx_is_word(&opcode->modifiers[0], ".uni")))
        vg_ptx_fail(r, opcode->name.line, "%.60s: expected '.uni', found '%.*s'", opcode->text,
                    VG_NAMED(opcode->modifiers[opcode->nmodifiers - 1]));
    const struct vg_token label = vg_ptx_expect_name(r, "a label");
    vg_ptx_expect(r, ';', "behind the label");
    low->draft.in.op = VG_BRA;
    vg_ptx_label_use(r, &label, false, r->ndrafts);
    vg_ptx_draft_add(r, &low->draft);
}

/* brx.idx{.uni} index, table; */
static void brx_read(struct vg_reader *r, const struct vg_opcode *opcode, struct vg_lowering *low)
{
    struct vg_operand operands[VG_MAX_OPERANDS];
    if (opcode->nmodifiers < 1 || opcode->nmodifiers > 2 ||
        !vg_ptx_is_word(&opcode->modifiers[0], ".idx") ||
        (opcode->nmodifiers == 2 && !vg_ptx_is_word(&opcode->modifiers[1], ".uni")))
        vg_ptx_fail(r, opcode->name.line, "%.60s: expected '.idx' and '.uni', found '%.*s'",
                    opcode->text, VG_NAMED(opcode->name));
    if (vg_ptx_operands_read(r, operands) != 2)
        vg_ptx_fail(r, opcode->name.line, "%.60s: expected 2 operands, found others", opcode->text);
    if (operands[1].kind != VG_OPERAND_SYMBOL || operands[1].symbol->kind != VG_SYMBOL_TARGETS)
        vg_ptx_operand_wrong(r, &operands[1], opcode->text, "a label of .branchtargets");
    low->draft.in.op = VG_BRX;
    low->draft.in.type = VG_U32;
    low->draft.src[0] = vg_ptx_source(r, low, &operands[0], VG_U32, false);
    low->draft.in.target = operands[1].symbol->number;
    low->draft.in.imm = operands[1].symbol->count;
    vg_ptx_draft_add(r, &low->draft);
}

bool vg_ptx_special_read(struct vg_reader *r, const struct vg_opcode *opcode,
                         struct vg_lowering *low)
{
    if (vg_ptx_is_word(&opcode->name, "mov"))
        mov_read(r, opcode, low);
    else if (vg_ptx_is_word(&opcode->name, "bra"))
        bra_read(r, opcode, low);
    else if (vg_ptx_is_word(&opcode->name, "brx"))
        brx_read(r, opcode, low);
    else if (vg_ptx_is_word(&opcode->name, "call"))
        vg_ptx_call_read(r, &low->draft);
    else
        return false;
    return true;
}
