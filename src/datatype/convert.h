/* Converts fp16, bf16 and the OCP fp8 formats to fp32 (exact) and back (to nearest, ties to even),
 * in integer arithmetic, so the caller's rounding mode and flush-to-zero have no influence. Tests
 * compare the vector kernels with this reference.
 *
 *              exponent  mantissa  bias  largest  infinity  NaN made  finite overflow gives
 *   fp16          5        10       15    65504     yes      0x7e00   infinity
 *   bf16          8         7      127    3.39e38   yes      0x7fc0   infinity
 *   fp8 e4m3      4         3        7      448      no       0x7f    +-448
 *   fp8 e5m2      5         2       15    57344     yes       0x7f    +-57344
 *
 * All formats keep subnormals. The fp8 formats saturate as CUDA's conversions do by default, with
 * one difference: an infinity stays an infinity in e5m2, so that a diverged sum stays visible (e4m3
 * has no infinity and gives +-448). Every NaN becomes the NaN of the table, without sign and
 * payload. */
#ifndef TT_DATATYPE_CONVERT_H
#define TT_DATATYPE_CONVERT_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    TT_F32_INFINITY = 0x7f800000,
    TT_F32_NAN = 0x7fc00000 /* the NaN of all fp32 results */
};

static inline uint32_t tt_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float tt_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* bits / 2^shift to nearest, ties to even; 1 <= shift <= 31. */
static inline uint32_t tt_round_shift(uint32_t bits, unsigned shift)
{
    const uint32_t half = 1u << (shift - 1);
    const uint32_t rest = bits & ((1u << shift) - 1);
    const uint32_t down = bits >> shift;
    return down + (rest > half || (rest == half && (down & 1)));
}

/* The finite magnitude with these exponent and mantissa bits, as fp32 bits. */
static inline uint32_t tt_widen_finite(uint32_t magnitude, unsigned mantissa_bits, unsigned bias)
{
    const unsigned to_f32 = 23 - mantissa_bits;
    if (magnitude >> mantissa_bits) return (magnitude << to_f32) + ((127 - bias) << 23);
    if (magnitude == 0) return 0;
    /* Subnormal: magnitude x 2^(1 - bias - mantissa_bits), normal in fp32. */
    const unsigned top = 31 - (unsigned)__builtin_clz(magnitude);
    return ((top + 128 - bias - mantissa_bits) << 23) + ((magnitude << (23 - top)) & 0x7fffff);
}

/* The rounded magnitude of a finite fp32; may be one step above the largest finite one. */
static inline uint32_t tt_narrow_finite(uint32_t magnitude, unsigned mantissa_bits, unsigned bias)
{
    const unsigned to_f32 = 23 - mantissa_bits;
    const unsigned exponent = magnitude >> 23;
    const unsigned rebias = 127 - bias;
    if (exponent > rebias) return tt_round_shift(magnitude - (rebias << 23), to_f32);
    const unsigned shift = to_f32 + 1 + rebias - exponent;
    if (shift > 25)
        return 0; /* less than half of the smallest subnormal; so are all fp32 subnormals */
    return tt_round_shift((magnitude & 0x7fffff) | 0x800000, shift);
}

static inline float tt_f16_to_f32(uint16_t value)
{
    const uint32_t sign = (uint32_t)(value & 0x8000) << 16, magnitude = value & 0x7fff;
    if (magnitude > 0x7c00) return tt_f32_from_bits(TT_F32_NAN);
    if (magnitude == 0x7c00) return tt_f32_from_bits(sign | TT_F32_INFINITY);
    return tt_f32_from_bits(sign | tt_widen_finite(magnitude, 10, 15));
}

static inline uint16_t tt_f32_to_f16(float value)
{
    const uint32_t bits = tt_f32_bits(value), magnitude = bits & 0x7fffffff;
    const uint32_t sign = (bits >> 16) & 0x8000;
    if (magnitude > TT_F32_INFINITY) return 0x7e00;
    if (magnitude >= 0x47800000) return (uint16_t)(sign | 0x7c00); /* 2^16 and more */
    return (uint16_t)(sign | tt_narrow_finite(magnitude, 10, 15));
}

static inline float tt_bf16_to_f32(uint16_t value)
{
    return tt_f32_from_bits((uint32_t)value << 16);
}

static inline uint16_t tt_f32_to_bf16(float value)
{
    const uint32_t bits = tt_f32_bits(value);
    if ((bits & 0x7fffffff) > TT_F32_INFINITY) return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static inline float tt_e4m3_to_f32(uint8_t value)
{
    const uint32_t sign = (uint32_t)(value & 0x80) << 24, magnitude = value & 0x7f;
    if (magnitude == 0x7f) return tt_f32_from_bits(TT_F32_NAN);
    return tt_f32_from_bits(sign | tt_widen_finite(magnitude, 3, 7));
}

static inline uint8_t tt_f32_to_e4m3(float value)
{
    const uint32_t bits = tt_f32_bits(value), magnitude = bits & 0x7fffffff;
    const uint32_t sign = (bits >> 24) & 0x80;
    if (magnitude > TT_F32_INFINITY) return 0x7f;
    if (magnitude >= 0x43e00000) return (uint8_t)(sign | 0x7e); /* 448 and more */
    return (uint8_t)(sign | tt_narrow_finite(magnitude, 3, 7));
}

static inline float tt_e5m2_to_f32(uint8_t value)
{
    const uint32_t sign = (uint32_t)(value & 0x80) << 24, magnitude = value & 0x7f;
    if (magnitude > 0x7c) return tt_f32_from_bits(TT_F32_NAN);
    if (magnitude == 0x7c) return tt_f32_from_bits(sign | TT_F32_INFINITY);
    return tt_f32_from_bits(sign | tt_widen_finite(magnitude, 2, 15));
}

static inline uint8_t tt_f32_to_e5m2(float value)
{
    const uint32_t bits = tt_f32_bits(value), magnitude = bits & 0x7fffffff;
    const uint32_t sign = (bits >> 24) & 0x80;
    if (magnitude > TT_F32_INFINITY) return 0x7f;
    if (magnitude == TT_F32_INFINITY) return (uint8_t)(sign | 0x7c);
    if (magnitude >= 0x47600000) return (uint8_t)(sign | 0x7b); /* 57344 and more */
    return (uint8_t)(sign | tt_narrow_finite(magnitude, 2, 15));
}

/* The result of an addition of a and b in an average: rounding makes no infinity. */
static inline float tt_f32_hold_sum(float sum, float a, float b)
{
    const bool beyond = fabsf(sum) > FLT_MAX && fabsf(a) <= FLT_MAX && fabsf(b) <= FLT_MAX;
    return beyond ? copysignf(FLT_MAX, sum) : sum;
}

/* The result of an average before it is rounded to a type whose largest finite number this is. */
static inline float tt_f32_hold(float value, float largest)
{
    const bool beyond = fabsf(value) > largest && fabsf(value) <= FLT_MAX;
    return beyond ? copysignf(largest, value) : value;
}

/* Loads and stores of a float at any alignment, with conversion, named for the kernels' templates.
 */
static inline float tt_read_f32(const char *from)
{
    float value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline void tt_write_f32(char *to, float value)
{
    memcpy(to, &value, sizeof value);
}

static inline float tt_read_f16(const char *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return tt_f16_to_f32(value);
}

static inline void tt_write_f16(char *to, float value)
{
    const uint16_t narrow = tt_f32_to_f16(value);
    memcpy(to, &narrow, sizeof narrow);
}

static inline float tt_read_bf16(const char *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return tt_bf16_to_f32(value);
}

static inline void tt_write_bf16(char *to, float value)
{
    const uint16_t narrow = tt_f32_to_bf16(value);
    memcpy(to, &narrow, sizeof narrow);
}

static inline float tt_read_e4m3(const char *from)
{
    return tt_e4m3_to_f32((uint8_t)*from);
}

static inline void tt_write_e4m3(char *to, float value)
{
    *to = (char)tt_f32_to_e4m3(value);
}

static inline float tt_read_e5m2(const char *from)
{
    return tt_e5m2_to_f32((uint8_t)*from);
}

static inline void tt_write_e5m2(char *to, float value)
{
    *to = (char)tt_f32_to_e5m2(value);
}

#endif
