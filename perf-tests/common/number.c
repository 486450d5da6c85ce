/* Converts small floating-point formats bit by bit. */
#include "common/number.h"

#include <math.h>
#include <string.h>

#define DOUBLE_MANTISSA 52
#define DOUBLE_BIAS 1023

static uint64_t double_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static double bits_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* The magnitude that stands for "too large". */
static uint64_t overflow_bits(const struct perf_type *type)
{
    uint64_t infinity = ((1ull << type->exponent_bits) - 1) << type->mantissa_bits;
    return type->type == tuttiFloat8e4m3 ? 0x7f : infinity;
}

/* m / 2^shift, rounded to nearest even. */
static uint64_t round_shift(uint64_t m, int shift)
{
    if (shift > 63) return 0;
    uint64_t half = 1ull << (shift - 1);
    uint64_t quotient = m >> shift;
    uint64_t rest = m & ((half << 1) - 1);
    if (rest > half || (rest == half && (quotient & 1))) quotient++;
    return quotient;
}

uint64_t perf_number_encode(const struct perf_type *type, double value)
{
    uint64_t bits = double_bits(value);
    if (type->mantissa_bits == DOUBLE_MANTISSA) return bits;

    uint64_t sign = (bits >> 63) << (8 * type->bytes - 1);
    int exponent = (int)((bits >> DOUBLE_MANTISSA) & 0x7ff);
    if (exponent == 0)
        return sign; /* doubles below 2^-1022 are below half a step of every type here */
    if (exponent == 0x7ff) return sign | overflow_bits(type);

    int bias = (1 << (type->exponent_bits - 1)) - 1;
    int biased = exponent - DOUBLE_BIAS + bias;
    uint64_t mantissa = (bits & ((1ull << DOUBLE_MANTISSA) - 1)) | (1ull << DOUBLE_MANTISSA);
    int shift = DOUBLE_MANTISSA - type->mantissa_bits;
    uint64_t magnitude;
    if (biased < 1) {
        magnitude = round_shift(mantissa, shift + 1 - biased);
    } else {
        /* the implicit one adds 1 to the exponent field, and so does a carry out of the mantissa */
        magnitude = ((uint64_t)(biased - 1) << type->mantissa_bits) + round_shift(mantissa, shift);
    }
    if (magnitude > overflow_bits(type)) magnitude = overflow_bits(type);
    return sign | magnitude;
}

double perf_number_decode(const struct perf_type *type, uint64_t bits)
{
    if (type->mantissa_bits == DOUBLE_MANTISSA) return bits_double(bits);

    int bias = (1 << (type->exponent_bits - 1)) - 1;
    uint64_t fraction = bits & ((1ull << type->mantissa_bits) - 1);
    int exponent = (int)((bits >> type->mantissa_bits) & ((1ull << type->exponent_bits) - 1));
    bool negative = (bits >> (8 * type->bytes - 1)) & 1;
    double magnitude;
    if (exponent == 0) {
        magnitude = ldexp((double)fraction, 1 - bias - type->mantissa_bits);
    } else {
        fraction |= 1ull << type->mantissa_bits;
        magnitude = ldexp((double)fraction, exponent - bias - type->mantissa_bits);
    }
    return negative ? -magnitude : magnitude;
}
