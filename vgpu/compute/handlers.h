/* The files of compute/: each chooses among its own handlers. */
#ifndef VGPU_HANDLERS_H
#define VGPU_HANDLERS_H

#include <vgpu/code.h>

vg_compute *vg_integer_find(const struct vg_instr *in);
vg_compute *vg_product_find(
    const struct vg_instr *in); /* MUL, MAD, MUL24, MAD24, DP4A, DP2A, SAD of integers */
vg_compute *vg_carry_find(const struct vg_instr *in); /* .cc, addc, subc, madc */
vg_compute *vg_bits_find(const struct vg_instr *in);
vg_compute *
vg_field_find(const struct vg_instr *in); /* BFE, BFI, SZEXT, BMSK, BFIND, FNS, PRMT, SHF */
vg_compute *vg_float_find(const struct vg_instr *in);
vg_compute *vg_approx_find(const struct vg_instr *in);
vg_compute *vg_half_find(const struct vg_instr *in);
vg_compute *vg_compare_find(const struct vg_instr *in);
vg_compute *vg_convert_find(const struct vg_instr *in);
vg_compute *vg_move_find(const struct vg_instr *in);

#endif
