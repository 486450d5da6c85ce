/* See format.h. */
#include <vgpu/compute/format.h>

#include <math.h>

#include <vgpu/compute/lanes.h>

const struct vg_format vg_f16_format = {5, 10, false, 0x7fff};
const struct vg_format vg_bf16_format = {8, 7, false, 0x7fff};
const struct vg_format vg_f32_format = {8, 23, false, 0x7fffffff};
const struct vg_format vg_tf32_format = {8, 10, false, 0x3ffff};
const struct vg_format vg_e4m3_format = {4, 3, true, 0x7f};
const struct vg_format vg_e5m2_format = {5, 2, false, 0x7f};

static struct vg_number unpack_parts(bool sign, uint64_t exponent, uint64_t fraction,
                                     int exponent_bits, int fraction_bits, bool no_infinity)
{
    const uint64_t most = (UINT64_C(1) << exponent_bits) - 1;
    const int bias = (int)(most >> 1);
    struct vg_number x = {.kind = VG_KIND_NUMBER, .sign = sign};
    if (exponent == most && !no_infinity) {
        x.kind = fraction ? VG_KIND_NAN : VG_KIND_INFINITE;
        return x;
    }
    if (no_infinity && exponent == most && fraction == (UINT64_C(1) << fraction_bits) - 1) {
        x.kind = VG_KIND_NAN;
        return x;
    }
    if (exponent == 0) {
        if (fraction == 0) {
            x.kind = VG_KIND_ZERO;
            return x;
        }
        const int shift = __builtin_clzll(fraction);
        x.significand = fraction << shift;
        x.exponent = 1 - bias - fraction_bits + 63 - shift;
        return x;
    }
    x.significand = (UINT64_C(1) << 63) | fraction << (63 - fraction_bits);
    x.exponent = (int)exponent - bias;
    return x;
}

struct vg_number vg_unpack_double(double value)
{
    const uint64_t bits = vg_bits64(value);
    return unpack_parts(bits >> 63, bits >> 52 & 0x7ff, bits & ((UINT64_C(1) << 52) - 1), 11, 52,
                        false);
}

struct vg_number vg_unpack(const struct vg_format *f, uint32_t bits)
{
    const uint32_t fraction = bits & ((UINT32_C(1) << f->fraction_bits) - 1);
    const uint32_t exponent = bits >> f->fraction_bits & ((UINT32_C(1) << f->exponent_bits) - 1);
    return unpack_parts(bits >> (f->fraction_bits + f->exponent_bits) & 1, exponent, fraction,
                        f->exponent_bits, f->fraction_bits, f->no_infinity);
}

struct vg_number vg_unpack_integer(bool sign, uint64_t magnitude)
{
    struct vg_number x = {.kind = VG_KIND_ZERO};
    if (magnitude == 0) return x;
    const int shift = __builtin_clzll(magnitude);
    x = (struct vg_number){VG_KIND_NUMBER, sign, 63 - shift, magnitude << shift};
    return x;
}

/* Shifts right by n bits and rounds what is shifted out. */
static uint64_t shift_and_round(uint64_t significand, int n, bool sign, enum vg_round round)
{
    if (n <= 0) return significand;
    const uint64_t kept = n > 63 ? 0 : significand >> n;
    const uint64_t half = n > 64 ? 0 : UINT64_C(1) << (n - 1);
    const uint64_t lost = n > 63 ? significand : significand & ((UINT64_C(1) << n) - 1);
    if (lost == 0) return kept;
    bool up = false;
    switch (round) {
    case VG_RZ:
    case VG_RZI:
        break;
    case VG_RM:
    case VG_RMI:
        up = sign;
        break;
    case VG_RP:
    case VG_RPI:
        up = !sign;
        break;
    case VG_RNA:
        up = n <= 64 && lost >= half;
        break;
    default:
        up = n <= 64 && (lost > half || (lost == half && (kept & 1)));
    }
    return kept + up;
}

static uint32_t largest(const struct vg_format *f)
{
    const uint32_t infinity = ((UINT32_C(1) << f->exponent_bits) - 1) << f->fraction_bits;
    return f->no_infinity ? f->nan - 1 : infinity - 1;
}

static uint32_t overflow(const struct vg_format *f, bool sign, enum vg_round round, bool finite)
{
    const uint32_t signs = (uint32_t)sign << (f->exponent_bits + f->fraction_bits);
    const bool to_infinity =
        round == VG_RN || round == VG_RNA || (round == VG_RM && sign) || (round == VG_RP && !sign);
    if (finite || !to_infinity) return signs | largest(f);
    return signs | (f->no_infinity ? f->nan : largest(f) + 1);
}

uint32_t vg_pack(const struct vg_format *f, struct vg_number x, enum vg_round round, bool finite)
{
    const int bias = (1 << (f->exponent_bits - 1)) - 1;
    const uint32_t signs = (uint32_t)x.sign << (f->exponent_bits + f->fraction_bits);
    if (x.kind == VG_KIND_NAN) return f->nan;
    if (x.kind == VG_KIND_ZERO) return signs;
    if (x.kind == VG_KIND_INFINITE)
        return signs | (finite ? largest(f) : f->no_infinity ? f->nan : largest(f) + 1);
    const int least = 1 - bias;
    const int below = x.exponent < least ? least - x.exponent : 0;
    const uint64_t rounded =
        shift_and_round(x.significand, 63 - f->fraction_bits + below, x.sign, round);
    if (below)
        return signs |
               (uint32_t)rounded; /* a carry into the exponent gives the least normal number */
    const uint64_t exponent = (uint64_t)(x.exponent + bias);
    const uint64_t bits = ((exponent - 1) << f->fraction_bits) + rounded;
    if (bits > largest(f)) return overflow(f, x.sign, round, finite);
    return signs | (uint32_t)bits;
}

bool vg_is_small(const struct vg_format *f, double exact, enum vg_round round)
{
    const int bias = (1 << (f->exponent_bits - 1)) - 1;
    const double least = ldexp(1, 1 - bias),
                 up = ldexp(1, bias); /* the least normal number goes to 2 */
    if (!(fabs(exact) < least)) return false;
    const uint32_t shifted = vg_pack(f, vg_unpack_double(exact * up), round, false);
    return fabs(vg_value(f, shifted)) < 2;
}

static void bounds(enum vg_type type, uint64_t *most, uint64_t *least)
{
    static const uint8_t bits[VG_TYPES] = {
        [VG_U8] = 8,   [VG_S8] = 8,   [VG_U16] = 16, [VG_S16] = 16,
        [VG_U32] = 32, [VG_S32] = 32, [VG_U64] = 64, [VG_S64] = 64};
    const bool is_signed = type == VG_S8 || type == VG_S16 || type == VG_S32 || type == VG_S64;
    const unsigned n = bits[type] - (is_signed ? 1u : 0u);
    *most = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
    *least = is_signed ? *most + 1 : 0; /* a magnitude */
}

uint64_t vg_to_integer(struct vg_number x, enum vg_type type, enum vg_round round)
{
    uint64_t most, least, magnitude;
    bounds(type, &most, &least);
    if (x.kind == VG_KIND_ZERO) return 0;
    if (x.kind == VG_KIND_NAN) return type == VG_S64 || type == VG_U64 ? UINT64_C(1) << 63 : 0;
    if (x.kind == VG_KIND_INFINITE || x.exponent > 63)
        magnitude = UINT64_MAX;
    else
        magnitude = shift_and_round(x.significand, 63 - x.exponent, x.sign, round);
    if (x.sign) return magnitude > least ? -least : -magnitude;
    return magnitude > most ? most : magnitude;
}

double vg_value(const struct vg_format *f, uint32_t bits)
{
    const struct vg_number x = vg_unpack(f, bits);
    double value = x.kind == VG_KIND_ZERO       ? 0
                   : x.kind == VG_KIND_INFINITE ? HUGE_VAL
                   : x.kind == VG_KIND_NAN      ? (double)NAN
                                           : ldexp((double)(x.significand >> 11), x.exponent - 52);
    return x.sign ? -value : value;
}

/* The rounded value and what was lost of it: the value rounded to odd. */
static double to_odd(double rounded, double lost)
{
    if (lost == 0 || !isfinite(rounded) || isnan(lost)) return rounded;
    uint64_t bits = vg_bits64(rounded);
    if (signbit(rounded) != signbit(lost)) bits -= 1; /* the exact value is nearer to zero */
    return vg_float64(bits | 1);
}

double vg_odd_add(double a, double b)
{
    const double sum = a + b, of_b = sum - a;
    return to_odd(sum, (a - (sum - of_b)) + (b - of_b));
}

double vg_odd_divide(double a, double b)
{
    const double quotient = a / b;
    if (!isfinite(quotient) || !isfinite(b)) return quotient;
    const double rest = fma(-quotient, b, a);
    return to_odd(quotient, signbit(b) ? -rest : rest);
}

double vg_odd_sqrt(double a)
{
    const double root = sqrt(a);
    if (!isfinite(root)) return root;
    return to_odd(root, fma(-root, root, a));
}
