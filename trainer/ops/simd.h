/* Sixteen floats as one value. The compiler makes of it what the file's flags allow: four SSE, two
 * AVX or one AVX-512 register; the arithmetic and its order are the same. Included by ops/ files
 * only. */
#ifndef TR_SIMD_H
#define TR_SIMD_H

#include <stdint.h>
#include <string.h>

#include "backend.h"

/* Names of this build: gelu_forward becomes gelu_forward_v4 and so on. */
#define TR_JOIN_(name, isa) name##_##isa
#define TR_JOIN(name, isa) TR_JOIN_(name, isa)
#define TR_OP(name) TR_JOIN(tr_##name, TR_ISA)

enum { LANES = 16 };
typedef float lanes __attribute__((vector_size(64)));
typedef int32_t lanes_int __attribute__((vector_size(64)));
#define INLINE static inline __attribute__((always_inline, unused))

/* The first n (1..16) of 16 floats; the rest are `fill`. */
INLINE lanes load_part(const float *from, long n, float fill)
{
    float whole[LANES];
    for (int i = 0; i < LANES; ++i) whole[i] = i < n ? from[i] : fill;
    lanes x;
    memcpy(&x, whole, sizeof x);
    return x;
}

INLINE lanes load(const float *from)
{
    lanes x;
    memcpy(&x, from, sizeof x);
    return x;
}

INLINE void store(float *to, lanes x)
{
    memcpy(to, &x, sizeof x);
}

INLINE void store_part(float *to, lanes x, long n)
{
    memcpy(to, &x, (size_t)n * sizeof *to);
}

/* Elements i .. i + 15 of n; those past the end are 0, and are not stored. */
INLINE lanes load_at(const float *x, long i, long n)
{
    return n - i >= LANES ? load(x + i) : load_part(x + i, n - i, 0);
}

INLINE void store_at(float *x, long i, long n, lanes value)
{
    if (n - i >= LANES)
        store(x + i, value);
    else
        store_part(x + i, value, n - i);
}

INLINE lanes splat(float x)
{
    return (lanes){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}

INLINE lanes choose(lanes_int condition, lanes yes, lanes no)
{
    return (lanes)((condition & (lanes_int)yes) | (~condition & (lanes_int)no));
}

INLINE lanes larger(lanes a, lanes b)
{
    return choose(a > b, a, b);
}

INLINE float sum_lanes(lanes x)
{
    float v[LANES];
    memcpy(v, &x, sizeof v);
    for (int step = LANES / 2; step; step /= 2)
        for (int i = 0; i < step; ++i) v[i] += v[i + step];
    return v[0];
}

INLINE float max_lanes(lanes x)
{
    float v[LANES];
    memcpy(v, &x, sizeof v);
    for (int step = LANES / 2; step; step /= 2)
        for (int i = 0; i < step; ++i) v[i] = v[i] > v[i + step] ? v[i] : v[i + step];
    return v[0];
}

/* exp: x = k ln 2 + r with |r| <= ln 2 / 2 (ln 2 in two parts, so that r is exact to the last bit),
 * a polynomial of degree 6 for exp(r), and k put into the exponent. Below -87.3 the result is 0. */
INLINE lanes exp_lanes(lanes x)
{
    const lanes_int zero = x < splat(-87.3f);
    x = choose(x > splat(88.f), splat(88.f), x);
    x = choose(zero, splat(-87.3f), x);
    const lanes magic = splat(12582912.f); /* 1.5 * 2^23: adding it rounds to a whole number */
    const lanes shifted = x * splat(1.44269504f) + magic;
    const lanes k = shifted - magic;
    const lanes r = (x - k * splat(0.693359375f)) + k * splat(2.12194440e-4f);
    lanes p = splat(1.f / 720) * r + splat(1.f / 120);
    p = p * r + splat(1.f / 24);
    p = p * r + splat(1.f / 6);
    p = p * r + splat(0.5f);
    p = p * r * r + r + splat(1.f);
    const lanes_int exponent = ((lanes_int)shifted - (lanes_int)magic) << 23;
    const lanes y = (lanes)((lanes_int)p + exponent);
    return choose(zero, splat(0.f), y);
}

/* 1 / (1 + exp(-x)) */
INLINE lanes sigmoid_lanes(lanes x)
{
    return splat(1) / (splat(1) + exp_lanes(-x));
}

#endif
