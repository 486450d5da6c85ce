/* Instructions that only compute: from registers to registers, lane by lane. */
#ifndef VGPU_COMPUTE_H
#define VGPU_COMPUTE_H

#include <vgpu/code.h>

/* Who computes the instruction; NULL: nobody does, it belongs to the machine (memory, control,
 * synchronisation, special registers) or its combination of type and modifiers does not exist. */
vg_compute *vg_compute_find(const struct vg_instr *in);

#endif
