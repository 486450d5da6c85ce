/* Comparisons and choices. Source: PTX ISA, 9.7.6 and 9.7.7. */
#include <math.h>

#include <vgpu/compute/format.h>
#include <vgpu/compute/handlers.h>
#include <vgpu/compute/lanes.h>

/* How two values stand to each other: one bit each. */
enum { LESS = 1, EQUAL = 2, GREATER = 4, UNORDERED = 8 };

static const uint8_t accepted[] = {
    [VG_EQ] = EQUAL,
    [VG_NE] = LESS | GREATER,
    [VG_LT] = LESS,
    [VG_LE] = LESS | EQUAL,
    [VG_GT] = GREATER,
    [VG_GE] = GREATER | EQUAL,
    [VG_LO] = LESS,
    [VG_LS] = LESS | EQUAL,
    [VG_HI] = GREATER,
    [VG_HS] = GREATER | EQUAL,
    [VG_EQU] = EQUAL | UNORDERED,
    [VG_NEU] = LESS | GREATER | UNORDERED,
    [VG_LTU] = LESS | UNORDERED,
    [VG_LEU] = LESS | EQUAL | UNORDERED,
    [VG_GTU] = GREATER | UNORDERED,
    [VG_GEU] = GREATER | EQUAL | UNORDERED,
    [VG_NUM] = LESS | EQUAL | GREATER,
    [VG_NAN] = UNORDERED,
};

#define ORDER(x, y) ((x) < (y) ? LESS : (x) == (y) ? EQUAL : (x) > (y) ? GREATER : UNORDERED)

static inline double value(const struct vg_format *f, uint32_t bits, bool ftz)
{
    const double x = vg_value(f, bits);
    if (ftz && !(bits & ((UINT32_C(1) << f->exponent_bits) - 1) << f->fraction_bits))
        return copysign(0, x);
    return x;
}

/* A mask of the lanes in which a comparison holds. type: of the operands. */
#define LOOP(U, x, y)                                                                              \
    do {                                                                                           \
        const U *a = vg_unit(r, in->src[0]), *b = vg_unit(r, in->src[1]);                          \
        VG_EACH_LANE(lanes, result |= (uint32_t)((yes & ORDER(x, y)) != 0) << i);                  \
    } while (0)

static uint32_t compare_floats(struct vg_registers *r, const struct vg_instr *in, enum vg_type type,
                               uint32_t lanes)
{
    const bool ftz = in->flags & VG_FTZ;
    const unsigned yes = accepted[in->compare];
    uint32_t result = 0;
    switch (type) {
    case VG_F16:
        LOOP(vg_u32, value(&vg_f16_format, a[i], ftz), value(&vg_f16_format, b[i], ftz));
        break;
    case VG_BF16:
        LOOP(vg_u32, value(&vg_bf16_format, a[i], ftz), value(&vg_bf16_format, b[i], ftz));
        break;
    case VG_F64:
        LOOP(vg_f64, a[i], b[i]);
        break;
    default:
        if (ftz)
            LOOP(vg_u32, value(&vg_f32_format, a[i], true), value(&vg_f32_format, b[i], true));
        else
            LOOP(vg_f32, a[i], b[i]);
    }
    return result;
}

static uint32_t compare(struct vg_registers *r, const struct vg_instr *in, enum vg_type type,
                        uint32_t lanes)
{
    const unsigned yes = accepted[in->compare];
    const bool is_unsigned = in->compare >= VG_LO && in->compare <= VG_HS;
    uint32_t result = 0;
    switch (type) {
    case VG_S16:
        if (is_unsigned)
            LOOP(vg_u32, (uint16_t)a[i], (uint16_t)b[i]);
        else
            LOOP(vg_u32, (int16_t)a[i], (int16_t)b[i]);
        break;
    case VG_B16:
    case VG_U16:
        LOOP(vg_u32, (uint16_t)a[i], (uint16_t)b[i]);
        break;
    case VG_S32:
        if (is_unsigned)
            LOOP(vg_u32, a[i], b[i]);
        else
            LOOP(vg_u32, (int32_t)a[i], (int32_t)b[i]);
        break;
    case VG_B32:
    case VG_U32:
        LOOP(vg_u32, a[i], b[i]);
        break;
    case VG_S64:
        if (is_unsigned)
            LOOP(vg_u64, a[i], b[i]);
        else
            LOOP(vg_u64, (int64_t)a[i], (int64_t)b[i]);
        break;
    case VG_B64:
    case VG_U64:
        LOOP(vg_u64, a[i], b[i]);
        break;
    default:
        return compare_floats(r, in, type, lanes);
    }
    return result;
}

/* Pairs: a predicate for each half. */
static void compare_pairs(struct vg_registers *r, const struct vg_instr *in, enum vg_type type,
                          uint32_t lanes, uint32_t result[2])
{
    const struct vg_format *f = type == VG_F16X2 ? &vg_f16_format : &vg_bf16_format;
    const vg_u32 *a = vg_unit(r, in->src[0]), *b = vg_unit(r, in->src[1]);
    const unsigned yes = accepted[in->compare];
    const bool ftz = in->flags & VG_FTZ;
    for (unsigned half = 0; half < 2; half++) {
        const unsigned shift = 16 * half;
        result[half] = 0;
        VG_EACH_LANE(lanes, {
            const double x = value(f, a[i] >> shift & 0xffff, ftz),
                         y = value(f, b[i] >> shift & 0xffff, ftz);
            result[half] |= (uint32_t)((yes & ORDER(x, y)) != 0) << i;
        });
    }
}

static uint32_t combined(const struct vg_instr *in, uint32_t holds, uint32_t other)
{
    switch ((enum vg_bool)in->combine) {
    case VG_BOOL_AND:
        return holds & other;
    case VG_BOOL_OR:
        return holds | other;
    case VG_BOOL_XOR:
        return holds ^ other;
    default:
        return holds;
    }
}

static uint32_t third(const struct vg_registers *r, const struct vg_instr *in)
{
    if (in->combine == VG_BOOL_NONE) return 0;
    return in->flags & VG_SOURCE_NOT ? ~vg_mask(r, in->src[2]) : vg_mask(r, in->src[2]);
}

/* setp p|q, a, b, c: p = (a op b) bool c, q = !(a op b) bool c; of pairs: p for the low half, q for
 * the high one. */
static void setp(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)
{
    const uint32_t other = third(r, in);
    if (in->type == VG_F16X2 || in->type == VG_BF16X2) {
        uint32_t holds[2];
        compare_pairs(r, in, in->type, lanes, holds);
        vg_set_mask(r, in->dst[0], lanes, combined(in, holds[0], other));
        vg_set_mask(r, in->dst[1], lanes, combined(in, holds[1], other));
        return;
    }
    const uint32_t holds = compare(r, in, in->type, lanes);
    vg_set_mask(r, in->dst[0], lanes, combined(in, holds, other));
    vg_set_mask(r, in->dst[1], lanes, combined(in, ~holds, other));
}

static uint32_t truth(enum vg_type type)
{
    switch (type) {
    case VG_F32:
        return 0x3f800000;
    case VG_F16:
        return 0x3c00;
    case VG_BF16:
        return 0x3f80;
    case VG_F16X2:
        return 0x3c00;
    case VG_BF16X2:
        return 0x3f80;
    case VG_U16:
    case VG_S16:
        return 0xffff;
    default:
        return UINT32_MAX;
    }
}

static void set(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)
{
    const uint32_t other = third(r, in), yes = truth(in->type);
    vg_u32 *d = vg_unit(r, in->dst[0]);
    uint32_t holds[2] = {0, 0};
    if (in->type2 == VG_F16X2 || in->type2 == VG_BF16X2) {
        compare_pairs(r, in, in->type2, lanes, holds);
        const uint32_t half = yes == UINT32_MAX ? 0xffff : yes;
        const uint32_t low = combined(in, holds[0], other), high = combined(in, holds[1], other);
        VG_EACH_LANE(lanes, d[i] = (low >> i & 1 ? half : 0) | (high >> i & 1 ? half << 16 : 0));
        return;
    }
    const uint32_t result = combined(in, compare(r, in, in->type2, lanes), other);
    VG_EACH_LANE(lanes, d[i] = result >> i & 1 ? yes : 0);
}

static void selp(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)
{
    const uint32_t chosen = vg_mask(r, in->src[2]);
    vg_u32 *d = vg_unit(r, in->dst[0]);
    const vg_u32 *a = vg_unit(r, in->src[0]), *b = vg_unit(r, in->src[1]);
    VG_EACH_LANE(lanes, d[i] = chosen >> i & 1 ? a[i] : b[i]);
}

static void selp64(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)
{
    const uint32_t chosen = vg_mask(r, in->src[2]);
    vg_u64 *d = vg_unit(r, in->dst[0]);
    const vg_u64 *a = vg_unit(r, in->src[0]), *b = vg_unit(r, in->src[1]);
    VG_EACH_LANE(lanes, d[i] = chosen >> i & 1 ? a[i] : b[i]);
}

/* slct: a where c >= 0, else b; a NaN is not. */
static inline bool not_negative(const struct vg_instr *in, uint32_t c)
{
    if (in->type2 == VG_S32) return (int32_t)c >= 0;
    return value(&vg_f32_format, c, in->flags & VG_FTZ) >= 0;
}

VG_HANDLER(slct, vg_u32, not_negative(in, c[i]) ? a[i] : b[i])
VG_HANDLER_MIXED(slct64, vg_u64, vg_u64, vg_u64, vg_u32, not_negative(in, c[i]) ? a[i] : b[i])

vg_compute *vg_compare_find(const struct vg_instr *in)
{
    const bool is_64 =
        in->type == VG_B64 || in->type == VG_U64 || in->type == VG_S64 || in->type == VG_F64;
    switch ((enum vg_op)in->op) {
    case VG_SETP:
        return setp;
    case VG_SET:
        return set;
    case VG_SELP:
        return in->type == VG_PRED ? NULL : is_64 ? selp64 : selp;
    case VG_SLCT:
        return is_64 ? slct64 : slct;
    default:
        return NULL;
    }
}
