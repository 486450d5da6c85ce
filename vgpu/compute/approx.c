/* Approximations: .approx and .full. Each is computed in double and rounded, well within the
 * manual's bounds; an H100's own values differ in the last places. Source: PTX ISA, 9.7.3
 * and 9.7.4. */
#include <math.h>

#include <vgpu/compute/format.h>
#include <vgpu/compute/handlers.h>
#include <vgpu/compute/lanes.h>

static inline float flushed(float x)
{
    return fpclassify(x) == FP_SUBNORMAL ? copysignf(0, x) : x;
}

/* A divisor from 2^126 on gives 0, or NaN for an infinite dividend: div.approx multiplies by the
 * reciprocal, which is flushed there. */
static double quotient(const struct vg_instr *in, double a, double b)
{
    const double large = fabs(b);
    if (in->flags & VG_APPROX && large >= 0x1p126 && large < (double)INFINITY)
        return isinf(a) ? (double)NAN : copysign(0, a) * copysign(1, b);
    return a / b;
}

static double function(const struct vg_instr *in, double a, double b)
{
    switch ((enum vg_op)in->op) {
    case VG_DIV:
        return quotient(in, a, b);
    case VG_RCP:
        return 1 / a;
    case VG_SQRT:
        return sqrt(a);
    case VG_RSQRT:
        return 1 / sqrt(a);
    case VG_SIN:
        return sin(a);
    case VG_COS:
        return cos(a);
    case VG_LG2:
        return log2(a);
    case VG_EX2:
        return exp2(a);
    default:
        return tanh(a);
    }
}

static uint32_t one32(const struct vg_instr *in, float a, float b)
{
    const bool ftz = in->flags & VG_FTZ;
    if (ftz) a = flushed(a), b = flushed(b);
    float result = (float)function(in, (double)a, (double)b);
    if (ftz) result = flushed(result);
    return result != result ? 0x7fffffff : vg_bits32(result);
}

VG_HANDLER(any32, vg_u32, one32(in, vg_float32(a[i]), vg_float32(b[i])))

/* rcp.approx.ftz.f64, rsqrt.approx.ftz.f64: the high 32 bits of the operand give those of the
 * result. */
static uint64_t high_half(const struct vg_instr *in, uint64_t bits)
{
    const double a = vg_float64(bits & UINT64_C(0xffffffff00000000));
    if (a != a) return UINT64_C(0x7fffffff00000000);
    if (fpclassify(a) == FP_SUBNORMAL || a == 0)
        return UINT64_C(0x7ff0000000000000) | (bits & UINT64_C(1) << 63);
    const double result = in->op == VG_RCP ? 1 / a : 1 / sqrt(a);
    if (result != result) return UINT64_C(0x7fffffff00000000);
    if (fpclassify(result) == FP_SUBNORMAL) return vg_bits64(copysign(0, result));
    return (vg_bits64(result) + UINT64_C(0x80000000)) & UINT64_C(0xffffffff00000000);
}

VG_HANDLER(high64, vg_u64, high_half(in, a[i]))

static uint64_t rsqrt_of(uint64_t bits)
{
    const double result = 1 / sqrt(vg_float64(bits));
    return result != result ? UINT64_C(0x7ff8000000000000) : vg_bits64(result);
}

VG_HANDLER(rsqrt64, vg_u64, rsqrt_of(a[i]))

/* ex2 and tanh of the narrow types. */
static uint32_t narrow(const struct vg_format *f, const struct vg_instr *in, uint32_t bits)
{
    double a = vg_value(f, bits);
    if (in->flags & VG_FTZ && !(bits & ((UINT32_C(1) << f->exponent_bits) - 1) << f->fraction_bits))
        a = copysign(0, a);
    uint32_t result =
        vg_pack(f, vg_unpack_double(in->op == VG_EX2 ? exp2(a) : tanh(a)), VG_RN, false);
    const uint32_t exponent = ((UINT32_C(1) << f->exponent_bits) - 1) << f->fraction_bits;
    if (in->flags & VG_FTZ && !(result & exponent)) result &= 0x8000;
    return result;
}

#define BOTH(f) (narrow(f, in, a[i] & 0xffff) | narrow(f, in, a[i] >> 16) << 16)
VG_HANDLER(narrow_f16, vg_u32, narrow(&vg_f16_format, in, a[i]))
VG_HANDLER(narrow_bf16, vg_u32, narrow(&vg_bf16_format, in, a[i]))
VG_HANDLER(narrow_f16x2, vg_u32, BOTH(&vg_f16_format))
VG_HANDLER(narrow_bf16x2, vg_u32, BOTH(&vg_bf16_format))

vg_compute *vg_approx_find(const struct vg_instr *in)
{
    if (in->type == VG_F64) {
        if (in->op == VG_RSQRT) return in->flags & VG_FTZ ? high64 : rsqrt64;
        return in->op == VG_RCP && in->flags & VG_FTZ ? high64 : NULL;
    }
    if (in->type == VG_F32) return any32;
    if (in->op != VG_EX2 && in->op != VG_TANH) return NULL;
    switch ((enum vg_type)in->type) {
    case VG_F16:
        return narrow_f16;
    case VG_F16X2:
        return narrow_f16x2;
    case VG_BF16:
        return narrow_bf16;
    case VG_BF16X2:
        return narrow_bf16x2;
    default:
        return NULL;
    }
}
