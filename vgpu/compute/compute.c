/* Which file computes an instruction. */
#include <vgpu/compute/compute.h>

#include <vgpu/compute/handlers.h>

static vg_compute *find_number(const struct vg_instr *in)
{
    switch ((enum vg_type)in->type) {
    case VG_F32:
    case VG_F64:
        return in->flags & (VG_APPROX | VG_FULL) ? vg_approx_find(in) : vg_float_find(in);
    case VG_F16:
    case VG_F16X2:
    case VG_BF16:
    case VG_BF16X2:
        return vg_half_find(in);
    default:
        return in->flags & (VG_CARRY_IN | VG_CARRY_OUT) ? vg_carry_find(in) : vg_integer_find(in);
    }
}

vg_compute *vg_compute_find(const struct vg_instr *in)
{
    switch ((enum vg_op)in->op) {
    case VG_ADD:
    case VG_SUB:
    case VG_DIV:
    case VG_REM:
    case VG_ABS:
    case VG_NEG:
    case VG_MIN:
    case VG_MAX:
        return find_number(in);
    case VG_MUL:
    case VG_MAD:
        if (in->type >= VG_F16 && in->type <= VG_F64) return find_number(in);
        return in->flags & (VG_CARRY_IN | VG_CARRY_OUT) ? vg_carry_find(in) : vg_product_find(in);
    case VG_MUL24:
    case VG_MAD24:
    case VG_SAD:
    case VG_DP4A:
    case VG_DP2A:
        return vg_product_find(in);
    case VG_FMA:
    case VG_TESTP:
    case VG_COPYSIGN:
        return find_number(in);
    case VG_RCP:
    case VG_SQRT:
        return in->flags & VG_APPROX ? vg_approx_find(in) : vg_float_find(in);
    case VG_RSQRT:
    case VG_SIN:
    case VG_COS:
    case VG_LG2:
    case VG_EX2:
    case VG_TANH:
        return vg_approx_find(in);
    case VG_AND:
    case VG_OR:
    case VG_XOR:
    case VG_NOT:
    case VG_CNOT:
    case VG_LOP3:
    case VG_SHL:
    case VG_SHR:
    case VG_POPC:
    case VG_CLZ:
    case VG_BREV:
        return vg_bits_find(in);
    case VG_BFIND:
    case VG_FNS:
    case VG_BFE:
    case VG_BFI:
    case VG_SZEXT:
    case VG_BMSK:
    case VG_SHF:
    case VG_PRMT:
        return vg_field_find(in);
    case VG_SET:
    case VG_SETP:
    case VG_SELP:
    case VG_SLCT:
        return vg_compare_find(in);
    case VG_CVT:
    case VG_CVT_PACK:
        return vg_convert_find(in);
    case VG_MOV:
    case VG_PACK:
    case VG_UNPACK:
        return vg_move_find(in);
    default:
        return NULL;
    }
}
