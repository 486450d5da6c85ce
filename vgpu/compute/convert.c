/* cvt: between all types. Source: PTX ISA, 9.7.9.21 and 9.7.9.22.
 *
 * The source becomes a number (format.h), which is packed into the destination's type. */
#include <math.h>

#include <vgpu/compute/format.h>
#include <vgpu/compute/handlers.h>
#include <vgpu/compute/lanes.h>

static const struct vg_format *format_of(enum vg_type type)
{
    switch (type) {
    case VG_F16:
    case VG_F16X2:
        return &vg_f16_format;
    case VG_BF16:
    case VG_BF16X2:
        return &vg_bf16_format;
    case VG_F32:
        return &vg_f32_format;
    case VG_E4M3:
    case VG_E4M3X2:
        return &vg_e4m3_format;
    case VG_E5M2:
    case VG_E5M2X2:
        return &vg_e5m2_format;
    default:
        return NULL;
    }
}

static bool is_signed(enum vg_type type)
{
    return type == VG_S8 || type == VG_S16 || type == VG_S32 || type == VG_S64;
}

/* The value of an integer of the type, with its sign extended to 64 bits. */
static inline uint64_t extended(enum vg_type type, uint64_t bits)
{
    const unsigned unused = 64 - vg_integer_bits(type);
    return is_signed(type) ? (uint64_t)((int64_t)(bits << unused) >> unused)
                           : bits << unused >> unused;
}

static struct vg_number unpack(enum vg_type type, uint64_t bits, bool ftz)
{
    if (type == VG_F64) return vg_unpack_double(vg_float64(bits));
    const struct vg_format *f = format_of(type);
    if (f) {
        const uint32_t mask = f == &vg_f32_format
                                  ? UINT32_MAX
                                  : (UINT32_C(2) << (f->exponent_bits + f->fraction_bits)) - 1;
        if (ftz && f == &vg_f32_format && !(bits & 0x7f800000)) bits &= 0x80000000;
        return vg_unpack(f, (uint32_t)bits & mask);
    }
    const uint64_t value = extended(type, bits);
    const bool sign = is_signed(type) && value >> 63;
    return vg_unpack_integer(sign, sign ? 0 - value : value);
}

/* The number rounded to an integer, still a float. */
static struct vg_number integral(struct vg_number x, enum vg_round round)
{
    if (x.kind != VG_KIND_NUMBER || x.exponent >= 63) return x;
    const bool sign = x.sign;
    x.sign = false; /* the magnitude is rounded: down and up change places below zero */
    if (sign && (round == VG_RMI || round == VG_RPI)) round = round == VG_RMI ? VG_RPI : VG_RMI;
    x = vg_unpack_integer(false, vg_to_integer(x, VG_U64, round));
    x.sign = sign;
    return x;
}

static uint64_t pack_double(struct vg_number x, enum vg_round round)
{
    static const struct {
        int bias, fraction_bits;
    } f = {1023, 52};
    const uint64_t sign = (uint64_t)x.sign << 63;
    if (x.kind == VG_KIND_INFINITE) return sign | UINT64_C(0x7ff) << 52;
    if (x.kind == VG_KIND_ZERO) return sign;
    uint64_t kept = x.significand >> 11;
    const uint64_t lost = x.significand & 0x7ff;
    bool up = false;
    switch (round) {
    case VG_RZ:
        break;
    case VG_RM:
        up = lost && x.sign;
        break;
    case VG_RP:
        up = lost && !x.sign;
        break;
    default:
        up = lost > 0x400 || (lost == 0x400 && kept & 1);
    }
    if (x.exponent < 1 - f.bias)
        return sign | vg_bits64(ldexp((double)kept, x.exponent - f.fraction_bits));
    return sign | ((((uint64_t)(x.exponent + f.bias - 1)) << f.fraction_bits) + kept + up);
}

/* Between fp64 and other floats, and from bf16, a NaN keeps its sign and the highest bits of its
 * fraction and, but from bf16, becomes quiet. */
static bool keeps_nan(const struct vg_instr *in, struct vg_number x)
{
    const bool relevant =
        in->type == VG_F64 || in->type2 == VG_F64 || (in->type == VG_F32 && in->type2 == VG_BF16);
    return x.kind == VG_KIND_NAN && relevant && !(in->flags & VG_SAT);
}

static uint64_t kept_nan(const struct vg_instr *in, uint64_t bits)
{
    if (in->flags & VG_FTZ && in->type2 == VG_F32) bits = 0x7fffffff;
    static const struct vg_format f64 = {.exponent_bits = 11, .fraction_bits = 52};
    const struct vg_format *from = in->type2 == VG_F64 ? &f64 : format_of(in->type2);
    const struct vg_format *to = in->type == VG_F64 ? &f64 : format_of(in->type);
    const uint64_t sign = bits >> (from->exponent_bits + from->fraction_bits) & 1;
    uint64_t fraction = (bits & ((UINT64_C(1) << from->fraction_bits) - 1))
                        << (64 - from->fraction_bits);
    if (in->type2 != VG_BF16) fraction |= UINT64_C(1) << 63;
    const uint64_t exponent = (UINT64_C(1) << to->exponent_bits) - 1;
    return sign << (to->exponent_bits + to->fraction_bits) | exponent << to->fraction_bits |
           fraction >> (64 - to->fraction_bits);
}

/* The rounding of the result; .rni and its like have rounded the number already. */
static enum vg_round packing(const struct vg_instr *in)
{
    return in->round >= VG_RNI ? VG_RN : in->round;
}

static uint32_t limited(const struct vg_instr *in, const struct vg_format *f, struct vg_number x)
{
    const bool satfinite = in->flags & VG_SAT &&
                           (f == &vg_e4m3_format || f == &vg_e5m2_format || in->type == VG_BF16X2 ||
                            in->type == VG_F16X2 || in->type == VG_TF32);
    const uint32_t sign = UINT32_C(1) << (f->exponent_bits + f->fraction_bits);
    uint32_t bits = vg_pack(f, x, packing(in), satfinite);
    if (in->flags & VG_FTZ && f == &vg_f32_format && !(bits & 0x7f800000)) bits &= 0x80000000;
    if (x.kind == VG_KIND_NAN) return in->flags & VG_SAT && !satfinite ? 0 : f->nan;
    if (in->flags & VG_RELU && bits & sign) return 0;
    if (in->flags & VG_SAT && !satfinite) {
        const uint32_t one = ((UINT32_C(1) << (f->exponent_bits - 1)) - 1) << f->fraction_bits;
        if (bits & sign) return 0;
        if (bits > one) return one;
    }
    return bits;
}

static uint32_t to_tf32(const struct vg_instr *in, uint32_t bits)
{
    struct vg_number x = vg_unpack(&vg_f32_format, bits);
    if (x.kind == VG_KIND_NAN && in->round == VG_RNA) return bits & 0xffffe000;
    return limited(in, &vg_tf32_format, x) << 13;
}

static uint64_t to_integer(const struct vg_instr *in, struct vg_number x)
{
    const bool narrow_source = in->type2 != VG_F64;
    if (x.kind == VG_KIND_NAN) {
        if (vg_integer_bits(in->type) == 64) return UINT64_C(1) << 63;
        return narrow_source || vg_integer_bits(in->type) < 32 ? 0 : UINT64_C(0x80000000);
    }
    return vg_to_integer(x, in->type, in->round);
}

static bool is_float(enum vg_type type)
{
    return vg_integer_bits(type) == 0;
}

static uint64_t one(const struct vg_instr *in, uint64_t bits)
{
    const enum vg_type to = in->type, from = in->type2;
    if (to == VG_TF32) return to_tf32(in, (uint32_t)bits);
    if (!is_float(to) && !is_float(from)) {
        const uint64_t value = extended(from, bits);
        if (!(in->flags & VG_SAT)) return extended(to, value);
        const bool sign = is_signed(from) && value >> 63;
        return vg_to_integer(vg_unpack_integer(sign, sign ? 0 - value : value), to, VG_RZI);
    }
    struct vg_number x = unpack(from, bits, in->flags & VG_FTZ);
    if (!is_float(to)) return to_integer(in, x);
    if (keeps_nan(in, x)) return kept_nan(in, bits);
    if (in->round >= VG_RNI && in->round != VG_ROUND_NONE) x = integral(x, in->round);
    if (to == VG_F64) return pack_double(x, packing(in));
    return limited(in, format_of(to), x);
}

/* What of the result the destination's register holds: count is its bytes where it is wider than
 * the type. */
static uint64_t kept(const struct vg_instr *in)
{
    const unsigned nbytes =
        in->count > vg_type_bytes(in->type) ? in->count : vg_type_bytes(in->type);
    return nbytes == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * nbytes) - 1;
}

static void any(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)
{
    void *d = vg_unit(r, in->dst[0]);
    const void *a = vg_unit(r, in->src[0]);
    const bool from64 = vg_type_bytes(in->type2) == 8,
               to64 = vg_type_bytes(in->type) == 8 || in->count == 8;
    const uint64_t mask = kept(in);
    uint64_t wait[VG_LANES];
    VG_EACH_LANE(
        lanes, wait[i] = one(in, from64 ? ((const vg_u64 *)a)[i] : ((const vg_u32 *)a)[i]) & mask);
    if (to64)
        VG_EACH_LANE(lanes, ((vg_u64 *)d)[i] = wait[i]);
    else
        VG_EACH_LANE(lanes, ((vg_u32 *)d)[i] = (uint32_t)wait[i]);
}

/* ---- pairs: the first source gives the high half ---- */

static uint32_t packed(const struct vg_instr *in, uint32_t high, uint32_t low)
{
    const struct vg_format *f = format_of(in->type);
    const unsigned half = in->type == VG_E4M3X2 || in->type == VG_E5M2X2 ? 8 : 16;
    const enum vg_type from = in->type2 == VG_F16X2    ? VG_F16
                              : in->type2 == VG_BF16X2 ? VG_BF16
                                                       : VG_F32;
    const bool ftz = in->flags & VG_FTZ;
    return limited(in, f, unpack(from, high, ftz)) << half | limited(in, f, unpack(from, low, ftz));
}

VG_HANDLER(pair_of_two, vg_u32, packed(in, a[i], b[i]))
VG_HANDLER(pair_of_pair, vg_u32, packed(in, a[i] >> 16, a[i] & 0xffff))

static uint32_t widened(const struct vg_instr *in, uint32_t bits)
{
    const enum vg_type from = in->type2 == VG_E4M3X2 ? VG_E4M3 : VG_E5M2;
    const struct vg_format *f = format_of(in->type);
    return limited(in, f, unpack(from, bits >> 8 & 0xff, false)) << 16 |
           limited(in, f, unpack(from, bits & 0xff, false));
}

VG_HANDLER(pair_of_fp8, vg_u32, widened(in, a[i]))

static vg_compute *find_pair(const struct vg_instr *in)
{
    if (in->type2 == VG_E4M3X2 || in->type2 == VG_E5M2X2)
        return in->type == VG_F16X2 || in->type == VG_BF16X2 ? pair_of_fp8 : NULL;
    if (in->type2 == VG_F32) return pair_of_two;
    return in->type2 == VG_F16X2 || in->type2 == VG_BF16X2 ? pair_of_pair : NULL;
}

/* cvt.pack: two integers of 32 bits, clamped, above one another; below 16 bits a piece the third
 * source lies above both. */
static uint32_t clamped(int32_t x, unsigned bits, bool sign)
{
    const int64_t most = (INT64_C(1) << (sign ? bits - 1 : bits)) - 1, least = sign ? -most - 1 : 0;
    const int64_t value = x > most ? most : x < least ? least : x;
    return (uint32_t)value & ((UINT32_C(1) << bits) - 1);
}

static uint32_t pack_integers(const struct vg_instr *in, uint32_t a, uint32_t b, uint32_t c)
{
    const unsigned bits = in->count;
    const uint32_t both =
        clamped((int32_t)a, bits, in->mode) << bits | clamped((int32_t)b, bits, in->mode);
    return bits == 16 ? both : c << 2 * bits | both;
}

VG_HANDLER(integers, vg_u32, pack_integers(in, a[i], b[i], in->count == 16 ? 0 : c[i]))

/* ---- the common ones ---- */

VG_HANDLER_MIXED(u32_to_64, vg_u64, vg_u32, vg_u32, vg_u32, a[i])
VG_HANDLER_MIXED(s32_to_64, vg_u64, vg_u32, vg_u32, vg_u32, (int64_t)(int32_t)a[i])
VG_HANDLER_MIXED(low_32, vg_u32, vg_u64, vg_u32, vg_u32, a[i])
VG_HANDLER(bf16_to_f32, vg_u32, a[i] << 16)

static vg_compute *find_common(const struct vg_instr *in)
{
    if (in->count || in->flags & (VG_SAT | VG_FTZ | VG_RELU)) return NULL;
    const unsigned to = vg_integer_bits(in->type), from = vg_integer_bits(in->type2);
    if (to == 64 && from == 32) return is_signed(in->type2) ? s32_to_64 : u32_to_64;
    if (to == 32 && from == 64) return low_32;
    return in->type == VG_F32 && in->type2 == VG_BF16 ? bf16_to_f32 : NULL;
}

vg_compute *vg_convert_find(const struct vg_instr *in)
{
    if (in->op == VG_CVT_PACK) return integers;
    switch ((enum vg_type)in->type) {
    case VG_F16X2:
    case VG_BF16X2:
    case VG_E4M3X2:
    case VG_E5M2X2:
        return find_pair(in);
    case VG_PRED:
    case VG_B128:
    case VG_U16X2:
    case VG_S16X2:
        return NULL;
    case VG_TF32:
        return in->type2 == VG_F32 ? any : NULL;
    default:
        break;
    }
    if (in->type2 == VG_PRED || in->type2 == VG_B128 || in->type2 >= VG_TF32) return NULL;
    vg_compute *common = find_common(in);
    return common ? common : any;
}
