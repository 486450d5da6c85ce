/* What the files that lower instructions share. */
#ifndef VGPU_PTX_INSTRUCTIONS_H
#define VGPU_PTX_INSTRUCTIONS_H

#include <vgpu/ptx/calls.h>
#include <vgpu/ptx/forms.h>
#include <vgpu/ptx/operands.h>

struct vg_opcode {
    struct vg_token name, modifiers[VG_MAX_MODIFIERS]; /* modifiers with their dots */
    uint32_t nmodifiers;
    char text[64]; /* name and modifiers, for errors */
};

/* Instructions that the table of forms cannot say: mov, bra, brx, call. True: it was one. */
bool vg_ptx_special_read(struct vg_reader *r, const struct vg_opcode *opcode,
                         struct vg_lowering *low);
/* Defaults and checks that depend on several modifiers. */
void vg_ptx_finish(struct vg_reader *r, const struct vg_opcode *opcode, struct vg_lowering *low);
/* Whether the opcode is in the list of what exists but is not supported. */
bool vg_ptx_is_unsupported(const struct vg_opcode *opcode);

#endif
