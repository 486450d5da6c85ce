/* The reference arithmetic: decodes with ldexp, rounds by search. */
#include "reference.h"

#include <math.h>

const struct small_float small_f16 = {"half", 5, 10, 15, true, false, 0x7e00};
const struct small_float small_bf16 = {"bfloat16", 8, 7, 127, true, false, 0x7fc0};
const struct small_float small_e4m3 = {"f8e4m3", 4, 3, 7, false, true, 0x7f};
const struct small_float small_e5m2 = {"f8e5m2", 5, 2, 15, true, true, 0x7f};

static unsigned sign_bit(const struct small_float *format)
{
    return 1u << (format->exponent_bits + format->mantissa_bits);
}

/* Magnitude bits of the largest finite value. */
static unsigned largest(const struct small_float *format)
{
    const unsigned top = sign_bit(format) - 1;
    return format->has_infinity ? top - (1u << format->mantissa_bits) : top - 1;
}

double reference_widen(const struct small_float *format, unsigned bits)
{
    const unsigned magnitude = bits & (sign_bit(format) - 1);
    const int exponent = (int)(magnitude >> format->mantissa_bits);
    const int mantissa = (int)(magnitude & ((1u << format->mantissa_bits) - 1));
    double value;
    if (format->has_infinity && magnitude == largest(format) + 1)
        value = INFINITY;
    else if (magnitude > largest(format))
        return NAN;
    else if (exponent == 0)
        value = ldexp(mantissa, 1 - format->bias - format->mantissa_bits);
    else
        value = ldexp(mantissa + (1 << format->mantissa_bits),
                      exponent - format->bias - format->mantissa_bits);
    return bits & sign_bit(format) ? -value : value;
}

unsigned reference_narrow(const struct small_float *format, double value)
{
    if (isnan(value)) return format->nan;
    const unsigned sign = signbit(value) ? sign_bit(format) : 0;
    const unsigned top = largest(format);
    const double magnitude = fabs(value), most = reference_widen(format, top);
    if (isinf(value)) return sign | (format->has_infinity ? top + 1 : top);
    if (magnitude > most) {
        const double step = most - reference_widen(format, top - 1);
        const bool over = magnitude >= most + step / 2;
        return sign | (over && !format->saturates ? top + 1 : top);
    }
    unsigned low = 0, high = top; /* low <= magnitude <= high, closing in on neighbours */
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        if (reference_widen(format, middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    const double below = magnitude - reference_widen(format, low);
    const double above = reference_widen(format, high) - magnitude;
    const bool up = above < below || (above == below && high % 2 == 0);
    return sign | (up ? high : low);
}

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}
