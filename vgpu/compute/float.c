/* fp32 and fp64 arithmetic in every rounding. Source: PTX ISA, 9.7.3; NaNs as an H100 gives them
 * (docs/cuda-measured.md).
 *
 * fp32: the exact value, or the value rounded to odd, is a double, which is packed once (format.h).
 * fp64 in another rounding than to nearest sets the host's rounding. */
#include <fenv.h>
#include <math.h>

#include <vgpu/compute/format.h>
#include <vgpu/compute/handlers.h>
#include <vgpu/compute/lanes.h>

enum { NAN32 = 0x7fffffff };
#define NAN64 UINT64_C(0xfff8000000000000)

static inline uint32_t flushed(uint32_t bits)
{
    return bits & 0x7f800000 ? bits : bits & 0x80000000;
}

static inline uint32_t canonical(float x)
{
    return x != x ? (uint32_t)NAN32 : vg_bits32(x);
}

/* Clamped to [0, 1]; NaN gives 0. */
static inline uint32_t saturated(uint32_t bits)
{
    const float x = vg_float32(bits);
    if (!(x > 0)) return 0;
    return x > 1 ? vg_bits32(1) : bits;
}

/* A sum of zero takes its sign from the rounding, if its parts have different signs. */
static double sum_of(double x, double y, enum vg_round round)
{
    const double sum = vg_odd_add(x, y);
    if (sum == 0 && signbit(x) != signbit(y)) return round == VG_RM ? -0.0 : 0.0;
    return sum;
}

static double exact(const struct vg_instr *in, double a, double b, double c)
{
    switch ((enum vg_op)in->op) {
    case VG_ADD:
        return sum_of(a, b, in->round);
    case VG_SUB:
        return sum_of(a, -b, in->round);
    case VG_MUL:
        return a * b;
    case VG_FMA:
    case VG_MAD:
        return sum_of(a * b, c, in->round);
    case VG_DIV:
        return vg_odd_divide(a, b);
    case VG_RCP:
        return vg_odd_divide(1, a);
    default:
        return vg_odd_sqrt(a);
    }
}

static uint32_t one32(const struct vg_instr *in, uint32_t a, uint32_t b, uint32_t c)
{
    if (in->flags & VG_FTZ) a = flushed(a), b = flushed(b), c = flushed(c);
    const double value =
        exact(in, (double)vg_float32(a), (double)vg_float32(b), (double)vg_float32(c));
    const enum vg_round round = in->round == VG_ROUND_NONE ? VG_RN : in->round;
    uint32_t bits = vg_pack(&vg_f32_format, vg_unpack_double(value), round, false);
    if (in->flags & VG_FTZ && vg_is_small(&vg_f32_format, value, round)) bits &= 0x80000000;
    return in->flags & VG_SAT ? saturated(bits) : bits;
}

VG_HANDLER(any32, vg_u32, one32(in, a[i], b[i], c[i]))

/* The common ones: to nearest, nothing flushed. */
static inline vg_f32 *as_float(const vg_u32 *units)
{
    return (vg_f32 *)(uintptr_t)units;
}
#define VALUE(x) (as_float(x)[i])
VG_HANDLER(add32, vg_u32, canonical(VALUE(a) + VALUE(b)))
VG_HANDLER(sub32, vg_u32, canonical(VALUE(a) - VALUE(b)))
VG_HANDLER(mul32, vg_u32, canonical(VALUE(a) * VALUE(b)))
VG_HANDLER(fma32, vg_u32,
           canonical((float)vg_odd_add((double)VALUE(a) * (double)VALUE(b), (double)VALUE(c))))
VG_HANDLER(div32, vg_u32, canonical(VALUE(a) / VALUE(b)))
VG_HANDLER(rcp32, vg_u32, canonical(1 / VALUE(a)))
VG_HANDLER(sqrt32, vg_u32, canonical(sqrtf(VALUE(a))))

/* -0 is less than 0; a NaN is left out, or with .NaN wins. */
static uint32_t extreme32(const struct vg_instr *in, uint32_t a, uint32_t b)
{
    if (in->flags & VG_FTZ) a = flushed(a), b = flushed(b);
    const uint32_t sign = (a ^ b) & 0x80000000;
    if (in->flags & VG_ABS_FLAG) a &= 0x7fffffff, b &= 0x7fffffff;
    const bool no_a = (a & 0x7fffffff) > 0x7f800000, no_b = (b & 0x7fffffff) > 0x7f800000;
    if ((no_a && no_b) || ((no_a || no_b) && in->flags & VG_PROPAGATE)) return NAN32;
    uint32_t result;
    if (no_a || no_b) {
        result = no_a ? b : a;
    } else {
        const int64_t x = a & 0x80000000 ? -(int64_t)(a & 0x7fffffff) - 1 : (int64_t)a;
        const int64_t y = b & 0x80000000 ? -(int64_t)(b & 0x7fffffff) - 1 : (int64_t)b;
        result = (x < y) == (in->op == VG_MIN) ? a : b;
    }
    return in->flags & VG_ABS_FLAG ? result | sign : result;
}

VG_HANDLER(extremes32, vg_u32, extreme32(in, a[i], b[i]))

static inline uint32_t magnitude32(const struct vg_instr *in, uint32_t a)
{
    if (in->flags & VG_FTZ) a = flushed(a);
    if ((a & 0x7fffffff) > 0x7f800000) return NAN32;
    return in->op == VG_ABS ? a & 0x7fffffff : a ^ 0x80000000;
}

VG_HANDLER(sign32, vg_u32, magnitude32(in, a[i]))
VG_HANDLER(copysign32, vg_u32, (a[i] & 0x80000000) | (b[i] & 0x7fffffff))
VG_HANDLER(copysign64, vg_u64, (a[i] & UINT64_C(1) << 63) | (b[i] & ~(UINT64_C(1) << 63)))

/* ---- fp64 ---- */

static int host_rounding(unsigned round)
{
    switch (round) {
    case VG_RZ:
        return FE_TOWARDZERO;
    case VG_RM:
        return FE_DOWNWARD;
    case VG_RP:
        return FE_UPWARD;
    default:
        return FE_TONEAREST;
    }
}

/* The operands are volatile: the compiler must not compute with them before the rounding is set. */
static double native(enum vg_op op, volatile double a, volatile double b, volatile double c)
{
    volatile double result;
    switch (op) {
    case VG_ADD:
        result = a + b;
        break;
    case VG_SUB:
        result = a - b;
        break;
    case VG_MUL:
        result = a * b;
        break;
    case VG_FMA:
    case VG_MAD:
        result = fma(a, b, c);
        break;
    case VG_DIV:
        result = a / b;
        break;
    case VG_RCP:
        result = 1 / a;
        break;
    default:
        result = sqrt(a);
    }
    return result;
}

/* A NaN is one of the operands, made quiet: b before a or c; div, a sequence of instructions, takes
 * a. */
static inline uint64_t with_nan(double result, double a, double b, double c)
{
    if (result == result) return vg_bits64(result);
    const double first = b != b ? b : c != c ? c : a;
    return first != first ? vg_bits64(first) | UINT64_C(1) << 51 : NAN64;
}

static void any64(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)
{
    vg_u64 *d = vg_unit(r, in->dst[0]);
    const vg_f64 *a = vg_unit(r, in->src[0]), *b = vg_unit(r, in->src[1]),
                 *c = vg_unit(r, in->src[2]);
    const bool two = in->op != VG_RCP && in->op != VG_SQRT,
               three = in->op == VG_FMA || in->op == VG_MAD;
    const int before = fegetround();
    fesetround(host_rounding(in->round));
    VG_EACH_LANE(lanes, {
        const double y = two ? b[i] : 0, z = three ? c[i] : 0;
        const double result = native(in->op, a[i], y, z);
        d[i] = in->op == VG_DIV ? with_nan(result, y, a[i], z) : with_nan(result, a[i], y, z);
    });
    fesetround(before);
}

#define VALUE64(x) (((const vg_f64 *)(x))[i])
VG_HANDLER(add64, vg_u64, with_nan(VALUE64(a) + VALUE64(b), VALUE64(a), VALUE64(b), 0))
VG_HANDLER(sub64, vg_u64, with_nan(VALUE64(a) - VALUE64(b), VALUE64(a), VALUE64(b), 0))
VG_HANDLER(mul64, vg_u64, with_nan(VALUE64(a) * VALUE64(b), VALUE64(a), VALUE64(b), 0))

static uint64_t extreme64(const struct vg_instr *in, uint64_t a, uint64_t b)
{
    const double x = vg_float64(a), y = vg_float64(b);
    if (x != x && y != y) return b | UINT64_C(1) << 51;
    if (x != x) return b;
    if (y != y) return a;
    if (x == y) return (in->op == VG_MIN) == (a >> 63 != 0) ? a : b;
    return (x < y) == (in->op == VG_MIN) ? a : b;
}

VG_HANDLER(extremes64, vg_u64, extreme64(in, a[i], b[i]))

static uint64_t sign64(const struct vg_instr *in, uint64_t a)
{
    const uint64_t sign = UINT64_C(1) << 63;
    if (vg_float64(a) != vg_float64(a)) return a | UINT64_C(1) << 51;
    return in->op == VG_ABS ? a & ~sign : a ^ sign;
}

VG_HANDLER(signs64, vg_u64, sign64(in, a[i]))

/* ---- testp ---- */

static bool is(enum vg_testp what, const struct vg_format *f, uint32_t bits)
{
    const struct vg_number x = vg_unpack(f, bits);
    const bool finite = x.kind == VG_KIND_NUMBER || x.kind == VG_KIND_ZERO;
    const bool subnormal = x.kind == VG_KIND_NUMBER && !(bits & 0x7f800000);
    switch (what) {
    case VG_FINITE:
        return finite;
    case VG_INFINITE:
        return x.kind == VG_KIND_INFINITE;
    case VG_NUMBER:
        return x.kind != VG_KIND_NAN;
    case VG_NOTANUMBER:
        return x.kind == VG_KIND_NAN;
    case VG_NORMAL:
        return x.kind == VG_KIND_NUMBER && !subnormal;
    default:
        return subnormal || x.kind == VG_KIND_ZERO;
    }
}

static bool is64(enum vg_testp what, double x)
{
    const int class = fpclassify(x);
    switch (what) {
    case VG_FINITE:
        return isfinite(x);
    case VG_INFINITE:
        return class == FP_INFINITE;
    case VG_NUMBER:
        return class != FP_NAN;
    case VG_NOTANUMBER:
        return class == FP_NAN;
    case VG_NORMAL:
        return class == FP_NORMAL;
    default:
        return class == FP_SUBNORMAL || class == FP_ZERO;
    }
}

static void testp(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)
{
    const vg_u32 *a = vg_unit(r, in->src[0]);
    const vg_f64 *wide = vg_unit(r, in->src[0]);
    const bool is_64 = in->type == VG_F64;
    uint32_t result = 0;
    VG_EACH_LANE(lanes, {
        const bool yes = is_64 ? is64(in->mode, wide[i]) : is(in->mode, &vg_f32_format, a[i]);
        result |= (uint32_t)yes << i;
    });
    vg_set_mask(r, in->dst[0], lanes, result);
}

static vg_compute *find32(const struct vg_instr *in)
{
    const bool plain =
        (in->round == VG_RN || in->round == VG_ROUND_NONE) && !(in->flags & (VG_FTZ | VG_SAT));
    switch ((enum vg_op)in->op) {
    case VG_ADD:
        return plain ? add32 : any32;
    case VG_SUB:
        return plain ? sub32 : any32;
    case VG_MUL:
        return plain ? mul32 : any32;
    case VG_FMA:
    case VG_MAD:
        return plain ? fma32 : any32;
    case VG_DIV:
        return plain ? div32 : any32;
    case VG_RCP:
        return plain ? rcp32 : any32;
    case VG_SQRT:
        return plain ? sqrt32 : any32;
    case VG_MIN:
    case VG_MAX:
        return extremes32;
    case VG_ABS:
    case VG_NEG:
        return sign32;
    case VG_COPYSIGN:
        return copysign32;
    case VG_TESTP:
        return testp;
    default:
        return NULL;
    }
}

static vg_compute *find64(const struct vg_instr *in)
{
    const bool plain = in->round == VG_RN || in->round == VG_ROUND_NONE;
    switch ((enum vg_op)in->op) {
    case VG_ADD:
        return plain ? add64 : any64;
    case VG_SUB:
        return plain ? sub64 : any64;
    case VG_MUL:
        return plain ? mul64 : any64;
    case VG_FMA:
    case VG_MAD:
    case VG_DIV:
    case VG_RCP:
    case VG_SQRT:
        return any64;
    case VG_MIN:
    case VG_MAX:
        return extremes64;
    case VG_ABS:
    case VG_NEG:
        return signs64;
    case VG_COPYSIGN:
        return copysign64;
    case VG_TESTP:
        return testp;
    default:
        return NULL;
    }
}

vg_compute *vg_float_find(const struct vg_instr *in)
{
    return in->type == VG_F32 ? find32(in) : in->type == VG_F64 ? find64(in) : NULL;
}
