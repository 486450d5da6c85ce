/* Floats of 16 and 8 bits in words of 32 bits: widened to fp32 (exact) and narrowed to nearest even
 * with the bits of datatype/convert.h: NaN becomes the NaN of the format, without sign and payload;
 * fp8 saturates, an infinity stays one in e5m2.
 *
 * The instructions that convert make the NaN 0x7fff of 16-bit floats, so that only its bits are
 * mended. fp8 is converted by instructions from sm_89 on, bf16 from sm_80 on. */
#ifndef TT_DEVICE_KERNEL_FOLD_CONVERT_CUH
#define TT_DEVICE_KERNEL_FOLD_CONVERT_CUH

#include <stdint.h>

/* ---- fp16 ---- */

static __device__ inline void tt_widen_f16(uint32_t word, float *v)
{
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
        : "=f"(v[0]), "=f"(v[1])
        : "r"(word));
}

static __device__ inline uint32_t tt_narrow_f16(const float *v)
{
    uint32_t word, nan;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(v[0]), "f"(v[1]));
#else
    asm("{ .reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h}; }"
        : "=r"(word)
        : "f"(v[0]), "f"(v[1]));
#endif
    asm("set.nan.u32.f16x2 %0, %1, %1;" : "=r"(nan) : "r"(word)); /* 0xffff where it is NaN */
    return word & ~(nan & 0x01ff01ff);                            /* 0x7fff: 0x7e00 */
}

/* ---- bf16 ---- */

static __device__ inline void tt_widen_bf16(uint32_t word, float *v)
{
    v[0] = __uint_as_float(word << 16);
    v[1] = __uint_as_float(word & 0xffff0000);
}

#if __CUDA_ARCH__ >= 800
static __device__ inline uint32_t tt_narrow_bf16(const float *v)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(v[0]), "f"(v[1]));
#if __CUDA_ARCH__ >= 900
    uint32_t settled;
    asm("min.s16x2 %0, %1, %2;" : "=r"(settled) : "r"(word), "r"(0x7fc07fc0));
    return settled;
#else
    /* No half but NaN, 0x7fff, gets its highest bit by the addition; none carries: 0xffff is not
     * made. */
    const uint32_t nan = ~word & (word + 0x00010001) & 0x80008000;
    return word - (nan >> 15) * 0x3f;
#endif
}
#else
static __device__ inline uint32_t tt_narrow_bf16(const float *v)
{
    uint32_t half[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t bits = __float_as_uint(v[i]);
        half[i] = v[i] != v[i] ? 0x7fc00000 : bits + 0x7fff + ((bits >> 16) & 1);
    }
    return __byte_perm(half[0], half[1], 0x7632);
}
#endif

/* ---- fp8: v[0..3] ---- */

static __device__ inline void tt_widen_e5m2(uint32_t word, float *v)
{
    /* The upper byte of an fp16. */
    tt_widen_f16(__byte_perm(word, 0, 0x1404), v);
    tt_widen_f16(__byte_perm(word, 0, 0x3424), v + 2);
}

/* The rounded magnitude of `magnitude`, bits of an fp32 that is not NaN. LARGEST: the largest
 * finite one of the format, as fp32 bits. Below the format's normal range an addition rounds: the
 * last bit of the sum with 2^(24 - BIAS - MANTISSA) is that of the smallest subnormal. */
template <unsigned MANTISSA, unsigned BIAS, uint32_t LARGEST>
static __device__ inline uint32_t tt_narrow_magnitude(uint32_t magnitude)
{
    constexpr unsigned SHIFT = 23 - MANTISSA;
    constexpr uint32_t LOWEST = (128 - BIAS) << 23, MAGIC = (127 + 24 - BIAS - MANTISSA) << 23;
    const uint32_t m = magnitude < LARGEST ? magnitude : LARGEST;
    const uint32_t even = (m >> SHIFT) & 1;
    const uint32_t normal = (m + ((1u << (SHIFT - 1)) - 1) + even - ((127 - BIAS) << 23)) >> SHIFT;
    const float shifted = __fadd_rn(__uint_as_float(m), __uint_as_float(MAGIC));
    return m < LOWEST ? __float_as_uint(shifted) - MAGIC : normal;
}

static __device__ inline uint32_t tt_narrow_one_e5m2(float v)
{
    const uint32_t bits = __float_as_uint(v), magnitude = bits & 0x7fffffff;
    uint32_t narrow = tt_narrow_magnitude<2, 15, 0x47600000>(magnitude);
    if (magnitude == 0x7f800000) narrow = 0x7c;
    narrow |= (bits >> 24) & 0x80;
    return magnitude > 0x7f800000 ? 0x7f : narrow;
}

static __device__ __noinline__ uint32_t tt_narrow_four_e5m2(float4 v)
{
    return tt_narrow_one_e5m2(v.x) | tt_narrow_one_e5m2(v.y) << 8 | tt_narrow_one_e5m2(v.z) << 16 |
           tt_narrow_one_e5m2(v.w) << 24;
}

#if __CUDA_ARCH__ >= 890

static __device__ inline void tt_widen_e4m3(uint32_t word, float *v)
{
    uint32_t low, high;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, "
        "h; }"
        : "=r"(low), "=r"(high)
        : "r"(word));
    tt_widen_f16(low, v);
    tt_widen_f16(high, v + 2);
}

static __device__ inline uint32_t tt_narrow_e4m3(const float *v)
{
    uint32_t word;
    asm("{ .reg .b16 l, h; cvt.rn.satfinite.e4m3x2.f32 l, %2, %1; cvt.rn.satfinite.e4m3x2.f32 h, "
        "%4, %3; mov.b32 %0, {l, h}; }"
        : "=r"(word)
        : "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]));
    return word;
}

static __device__ inline uint32_t tt_narrow_e5m2(const float *v)
{
    /* fmaxf passes NaN over. The instruction would make infinities finite. */
    const float most = fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
    if (most == __uint_as_float(0x7f800000))
        return tt_narrow_four_e5m2(make_float4(v[0], v[1], v[2], v[3]));
    uint32_t word;
    asm("{ .reg .b16 l, h; cvt.rn.satfinite.e5m2x2.f32 l, %2, %1; cvt.rn.satfinite.e5m2x2.f32 h, "
        "%4, %3; mov.b32 %0, {l, h}; }"
        : "=r"(word)
        : "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]));
    return word;
}

#else

/* Two e4m3 in the upper bytes of the halves, as fp16 of 1 / 256 of the value, then 256 times. NaN's
 * magnitude, 0x3f80 there, is the only one that an addition brings to 0x4000; with that bit it is a
 * NaN of fp16. */
static __device__ inline void tt_widen_two_e4m3(uint32_t upper, float *v)
{
    const uint32_t magnitude = (upper >> 1) & 0x3f803f80;
    const uint32_t nan = (magnitude + 0x00800080) & 0x40004000;
    tt_widen_f16(magnitude | nan | (upper & 0x80008000), v);
    v[0] = __fmul_rn(v[0], 256);
    v[1] = __fmul_rn(v[1], 256);
}

static __device__ inline void tt_widen_e4m3(uint32_t word, float *v)
{
    tt_widen_two_e4m3(__byte_perm(word, 0, 0x1404), v);
    tt_widen_two_e4m3(__byte_perm(word, 0, 0x3424), v + 2);
}

static __device__ inline uint32_t tt_narrow_one_e4m3(float v)
{
    const uint32_t bits = __float_as_uint(v), magnitude = bits & 0x7fffffff;
    const uint32_t narrow = tt_narrow_magnitude<3, 7, 0x43e00000>(magnitude);
    return magnitude > 0x7f800000 ? 0x7f : narrow | ((bits >> 24) & 0x80);
}

static __device__ __noinline__ uint32_t tt_narrow_four_e4m3(float4 v)
{
    return tt_narrow_one_e4m3(v.x) | tt_narrow_one_e4m3(v.y) << 8 | tt_narrow_one_e4m3(v.z) << 16 |
           tt_narrow_one_e4m3(v.w) << 24;
}

static __device__ inline uint32_t tt_narrow_e4m3(const float *v)
{
    return tt_narrow_four_e4m3(make_float4(v[0], v[1], v[2], v[3]));
}

static __device__ inline uint32_t tt_narrow_e5m2(const float *v)
{
    return tt_narrow_four_e5m2(make_float4(v[0], v[1], v[2], v[3]));
}

#endif

#endif
