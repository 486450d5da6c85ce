/* fp16 and bf16 arithmetic, alone and in pairs. Source: PTX ISA, 9.7.4.
 *
 * A sum or product of two is computed in double, exactly or rounded to odd, and packed once. */
#include <math.h>

#include <vgpu/compute/format.h>
#include <vgpu/compute/handlers.h>
#include <vgpu/compute/lanes.h>

static inline uint32_t exponent_of(const struct vg_format *f)
{
    return ((UINT32_C(1) << f->exponent_bits) - 1) << f->fraction_bits;
}

static inline uint32_t flushed(const struct vg_format *f, uint32_t bits)
{
    return bits & exponent_of(f) ? bits : bits & 0x8000;
}

static inline bool is_nan(const struct vg_format *f, uint32_t bits)
{
    return (bits & 0x7fff) > exponent_of(f);
}

static double exact(const struct vg_instr *in, double a, double b, double c)
{
    switch ((enum vg_op)in->op) {
    case VG_ADD:
        return vg_odd_add(a, b);
    case VG_SUB:
        return vg_odd_add(a, -b);
    case VG_MUL:
        return a * b;
    default:
        return vg_odd_add(a * b, c);
    }
}

static uint32_t arithmetic(const struct vg_format *f, const struct vg_instr *in, uint32_t a,
                           uint32_t b, uint32_t c)
{
    if (in->flags & VG_FTZ) a = flushed(f, a), b = flushed(f, b), c = flushed(f, c);
    const double value = exact(in, vg_value(f, a), vg_value(f, b), vg_value(f, c));
    const enum vg_round round = in->round == VG_ROUND_NONE ? VG_RN : in->round;
    uint32_t bits = vg_pack(f, vg_unpack_double(value), round, false);
    if (in->flags & VG_FTZ && vg_is_small(f, value, round)) bits &= 0x8000;
    if (is_nan(f, bits)) return in->flags & VG_SAT ? 0 : f->nan;
    const uint32_t one = (exponent_of(f) >> 1) & exponent_of(f);
    if (in->flags & (VG_SAT | VG_RELU) && bits & 0x8000) return 0;
    return in->flags & VG_SAT && bits > one ? one : bits;
}

/* -0 is less than 0; a NaN is left out, or with .NaN wins. */
static uint32_t extreme(const struct vg_format *f, const struct vg_instr *in, uint32_t a,
                        uint32_t b)
{
    if (in->flags & VG_FTZ) a = flushed(f, a), b = flushed(f, b);
    const uint32_t sign = (a ^ b) & 0x8000;
    if (in->flags & VG_ABS_FLAG) a &= 0x7fff, b &= 0x7fff;
    const bool no_a = is_nan(f, a), no_b = is_nan(f, b);
    if ((no_a && no_b) || ((no_a || no_b) && in->flags & VG_PROPAGATE)) return f->nan;
    uint32_t result;
    if (no_a || no_b) {
        result = no_a ? b : a;
    } else {
        const int x = a & 0x8000 ? -(int)(a & 0x7fff) - 1 : (int)a,
                  y = b & 0x8000 ? -(int)(b & 0x7fff) - 1 : (int)b;
        result = (x < y) == (in->op == VG_MIN) ? a : b;
    }
    return in->flags & VG_ABS_FLAG ? result | sign : result;
}

static uint32_t sign_of(const struct vg_format *f, const struct vg_instr *in, uint32_t a)
{
    if (in->flags & VG_FTZ) a = flushed(f, a);
    if (is_nan(f, a)) return f->nan;
    return in->op == VG_ABS ? a & 0x7fff : a ^ 0x8000;
}

static uint32_t one(const struct vg_format *f, const struct vg_instr *in, uint32_t a, uint32_t b,
                    uint32_t c)
{
    switch ((enum vg_op)in->op) {
    case VG_MIN:
    case VG_MAX:
        return extreme(f, in, a, b);
    case VG_ABS:
    case VG_NEG:
        return sign_of(f, in, a);
    default:
        return arithmetic(f, in, a, b, c);
    }
}

#define ONE(f) one(f, in, a[i] & 0xffff, b[i] & 0xffff, c[i] & 0xffff)
#define PAIR(f) (ONE(f) | one(f, in, a[i] >> 16, b[i] >> 16, c[i] >> 16) << 16)
VG_HANDLER(any_f16, vg_u32, ONE(&vg_f16_format))
VG_HANDLER(any_bf16, vg_u32, ONE(&vg_bf16_format))
VG_HANDLER(any_f16x2, vg_u32, PAIR(&vg_f16_format))
VG_HANDLER(any_bf16x2, vg_u32, PAIR(&vg_bf16_format))

vg_compute *vg_half_find(const struct vg_instr *in)
{
    switch ((enum vg_op)in->op) {
    case VG_ADD:
    case VG_SUB:
    case VG_MUL:
    case VG_FMA:
    case VG_MIN:
    case VG_MAX:
    case VG_ABS:
    case VG_NEG:
        break;
    default:
        return NULL;
    }
    switch ((enum vg_type)in->type) {
    case VG_F16:
        return any_f16;
    case VG_F16X2:
        return any_f16x2;
    case VG_BF16:
        return any_bf16;
    case VG_BF16X2:
        return any_bf16x2;
    default:
        return NULL;
    }
}
