/* What the files that lower instructions share. */
#ifndef VGPU_PTX_INSTRUCTIONS_H
#define VGPU_PTX_INSTRUCTIONS_H

#include <vgpu/ptx/calls.h>
#include <vgpu/ptx/forms.h>
#include <vgpu/ptx/operands.h>

struct vg_opcode {
    struct vg_token name, modifiers[VG_MAX_MODIFIERS]; /* modifiers with their dots */
    uint32_t nmodifiers, length; /* length: of name and modifiers, in the PTX */
    char text[64];               /* name and modifiers, for errors */
};

/* What the tables of forms were compared with: ptxas of this version, for this architecture. */
enum { VG_PTX_VERSION = 90, VG_PTX_TARGET = 90 };

/* match.c: the opcode's form; NULL: it is not supported, or of a later PTX. Sets in the draft what
 * the form and the modifiers say. */
const struct vg_form *vg_ptx_form_apply(struct vg_reader *r, const struct vg_opcode *opcode,
                                        struct vg_lowering *low);

/* Instructions that the table of forms cannot say: mov, bra, brx, call. True: it was one. */
bool vg_ptx_special_read(struct vg_reader *r, const struct vg_opcode *opcode,
                         struct vg_lowering *low);
/* Defaults and checks that depend on several modifiers. */
void vg_ptx_finish(struct vg_reader *r, const struct vg_opcode *opcode, struct vg_lowering *low);
/* An instruction of .f32x2: unpacks the operands, computes twice, packs. */
void vg_ptx_pairs_lower(struct vg_reader *r, struct vg_lowering *low,
                        const struct vg_operand *operands, uint32_t n);
/* Whether the opcode is in the list of what exists but is not supported. */
bool vg_ptx_is_unsupported(const struct vg_opcode *opcode);

#endif
