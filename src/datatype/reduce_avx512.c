/* The kernels for AVX-512 F, BW, DQ, VL. The bf16 and fp16 extensions are not used: VCVTNEPS2BF16
 * treats subnormals as zero, and fp16 arithmetic rounds every step where the contract rounds once.
 */
#include <immintrin.h>
#include <string.h>

#include "datatype/convert.h"
#include "datatype/kernels.h"

/* Two registers; the order of elements depends on the type. */
typedef struct {
    __m512 a, b;
} vf;
enum { LANES = 32, CACHE_LINE = 64, TO_NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };

static inline vf v_splat(float value)
{
    return (vf){_mm512_set1_ps(value), _mm512_set1_ps(value)};
}

static inline __m512 nan_where(__m512 v, __mmask16 mask)
{
    return _mm512_mask_mov_ps(v, mask, _mm512_castsi512_ps(_mm512_set1_epi32(TT_F32_NAN)));
}

static inline vf v_settle(vf v)
{
    return (vf){nan_where(v.a, _mm512_cmp_ps_mask(v.a, v.a, _CMP_UNORD_Q)),
                nan_where(v.b, _mm512_cmp_ps_mask(v.b, v.b, _CMP_UNORD_Q))};
}

static inline bool v_any_reaches(vf v, float limit)
{
    const __m512 least = _mm512_set1_ps(limit);
    return _mm512_cmp_ps_mask(_mm512_abs_ps(v.a), least, _CMP_GE_OQ) |
           _mm512_cmp_ps_mask(_mm512_abs_ps(v.b), least, _CMP_GE_OQ);
}

/* VRANGE orders zeros by sign, but prefers a number to a NaN. */
static inline __m512 max_ps(__m512 a, __m512 b)
{
    return nan_where(_mm512_range_ps(a, b, 5), _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q));
}

static inline __m512 min_ps(__m512 a, __m512 b)
{
    return nan_where(_mm512_range_ps(a, b, 4), _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q));
}

#define DEFINE_PAIRWISE(name, single)                                                              \
    static inline vf name(vf x, vf y)                                                              \
    {                                                                                              \
        return (vf){single(x.a, y.a), single(x.b, y.b)};                                           \
    }

DEFINE_PAIRWISE(v_add, _mm512_add_ps)
DEFINE_PAIRWISE(v_mul, _mm512_mul_ps)
DEFINE_PAIRWISE(v_div, _mm512_div_ps)
DEFINE_PAIRWISE(v_max, max_ps)
DEFINE_PAIRWISE(v_min, min_ps)

static inline __mmask32 first(size_t n)
{
    return (1u << n) - 1;
}

static inline vf load_f32(const char *from)
{
    return (vf){_mm512_loadu_ps(from), _mm512_loadu_ps(from + 64)};
}

static inline vf load_f32_part(const char *from, size_t n)
{
    return (vf){_mm512_maskz_loadu_ps((__mmask16)first(n), from),
                _mm512_maskz_loadu_ps((__mmask16)(first(n) >> 16), from + 64)};
}

static inline void store_f32(char *to, vf v)
{
    _mm512_storeu_ps(to, v.a);
    _mm512_storeu_ps(to + 64, v.b);
}

static inline void store_f32_part(char *to, vf v, size_t n)
{
    _mm512_mask_storeu_ps(to, (__mmask16)first(n), v.a);
    _mm512_mask_storeu_ps(to + 64, (__mmask16)(first(n) >> 16), v.b);
}

/* Keeps Clang from moving comparisons before the conversion, where there is no instruction for
 * them. */
static inline __m512 widen_half(__m256i v)
{
    __m512 wide = _mm512_cvtph_ps(v);
    __asm__("" : "+v"(wide));
    return wide;
}

static inline vf widen_f16(__m512i v)
{
    return (vf){widen_half(_mm512_castsi512_si256(v)), widen_half(_mm512_extracti64x4_epi64(v, 1))};
}

static inline __m512i narrow_f16(vf v)
{
    const __m512i low = _mm512_castsi256_si512(_mm512_cvtps_ph(v.a, TO_NEAREST));
    return _mm512_inserti64x4(low, _mm512_cvtps_ph(v.b, TO_NEAREST), 1);
}

/* The even elements, then the odd ones: no element changes its lane. */
static inline vf widen_bf16(__m512i v)
{
    const __m512i odd = _mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000));
    return (vf){_mm512_castsi512_ps(_mm512_slli_epi32(v, 16)), _mm512_castsi512_ps(odd)};
}

/* The result is in the upper halves. */
static inline __m512i round_bf16(__m512 v)
{
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
}

static inline __m512i narrow_bf16(vf v)
{
    const __m512i even = _mm512_srli_epi32(round_bf16(v.a), 16);
    return _mm512_mask_blend_epi16(0xaaaaaaaa, even, round_bf16(v.b));
}

/* Reads the bits of an e4m3 as fp16, whose bias is 8 larger: gives 2^-8 times the value, for
 * subnormals too. */
static inline vf widen_e4m3(__m256i v)
{
    const __m512i magnitude = _mm512_set1_epi16(0x3f80);
    const __m512i sign_twice = _mm512_slli_epi16(_mm512_cvtepi8_epi16(v), 7);
    const __m512i half = _mm512_andnot_si512(_mm512_set1_epi16(0x4000), sign_twice);
    const __mmask32 nan = _mm512_cmpeq_epi16_mask(_mm512_and_si512(half, magnitude), magnitude);
    return v_mul(widen_f16(_mm512_mask_mov_epi16(half, nan, _mm512_set1_epi16(0x7e00))),
                 v_splat(256));
}

static inline vf widen_e5m2(__m256i v)
{
    return widen_f16(_mm512_slli_epi16(_mm512_cvtepu8_epi16(v), 8));
}

/* As tt_narrow_finite, saturating; NaN is settled, so its sign is 0. A subnormal is rounded by
 * adding the number whose last bit is the type's smallest. */
static inline __m512i narrow_magnitude(__m512i bits, int mantissa_bits, int bias, float largest)
{
    const unsigned to_f32 = (unsigned)(23 - mantissa_bits);
    const int rebias = (127 - bias) << 23;
    const __m512i smallest_normal = _mm512_set1_epi32(rebias + (1 << 23));
    const __m512i magic = _mm512_set1_epi32((127 + 24 - bias - mantissa_bits) << 23);
    const __m512i clamped = _mm512_min_epu32(bits, _mm512_set1_epi32((int)tt_f32_bits(largest)));
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(clamped, to_f32), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(odd, _mm512_set1_epi32((1 << (to_f32 - 1)) - 1 - rebias));
    const __m512i normal = _mm512_srli_epi32(_mm512_add_epi32(clamped, up), to_f32);
    const __mmask16 tiny = _mm512_cmplt_epu32_mask(clamped, smallest_normal);
    const __m512 rounded = _mm512_add_ps(_mm512_castsi512_ps(clamped), _mm512_castsi512_ps(magic));
    return _mm512_mask_sub_epi32(normal, tiny, _mm512_castps_si512(rounded), magic);
}

static inline __m128i join_sign(__m512i bits, __m512i magnitude)
{
    const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
    return _mm512_cvtepi32_epi8(_mm512_or_si512(sign, magnitude));
}

static inline __m128i round_e4m3(__m512 v)
{
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i absolute = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(absolute, _mm512_set1_epi32(TT_F32_INFINITY));
    const __m512i finite = narrow_magnitude(absolute, 3, 7, 448);
    return join_sign(bits, _mm512_mask_mov_epi32(finite, nan, _mm512_set1_epi32(0x7f)));
}

static inline __m128i round_e5m2(__m512 v)
{
    const __m512i bits = _mm512_castps_si512(v), infinity = _mm512_set1_epi32(TT_F32_INFINITY);
    const __m512i absolute = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(absolute, infinity);
    const __mmask16 infinite = _mm512_cmpeq_epi32_mask(absolute, infinity);
    const __m512i finite = narrow_magnitude(absolute, 2, 15, 57344);
    const __m512i number = _mm512_mask_mov_epi32(finite, infinite, _mm512_set1_epi32(0x7c));
    return join_sign(bits, _mm512_mask_mov_epi32(number, nan, _mm512_set1_epi32(0x7f)));
}

static inline __m256i narrow_e4m3(vf v)
{
    return _mm256_set_m128i(round_e4m3(v.b), round_e4m3(v.a));
}

static inline __m256i narrow_e5m2(vf v)
{
    return _mm256_set_m128i(round_e5m2(v.b), round_e5m2(v.a));
}

static inline vf as_f16(vf v)
{
    return (vf){widen_half(_mm512_cvtps_ph(v.a, TO_NEAREST)),
                widen_half(_mm512_cvtps_ph(v.b, TO_NEAREST))};
}

static inline vf as_bf16(vf v)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    return (vf){_mm512_castsi512_ps(_mm512_and_si512(round_bf16(v.a), upper)),
                _mm512_castsi512_ps(_mm512_and_si512(round_bf16(v.b), upper))};
}

static inline vf as_e4m3(vf v)
{
    return widen_e4m3(narrow_e4m3(v));
}

static inline vf as_e5m2(vf v)
{
    return widen_e5m2(narrow_e5m2(v));
}

#define DEFINE_WHOLE(type, width, bits)                                                            \
    static inline vf load_##type(const char *from)                                                 \
    {                                                                                              \
        return widen_##type(_mm##width##_loadu_epi##bits(from));                                   \
    }                                                                                              \
    static inline void store_##type(char *to, vf v)                                                \
    {                                                                                              \
        _mm##width##_storeu_epi##bits(to, narrow_##type(v));                                       \
    }
#define DEFINE_PART(type, width, bits)                                                             \
    static inline vf load_##type##_part(const char *from, size_t n)                                \
    {                                                                                              \
        return widen_##type(_mm##width##_maskz_loadu_epi##bits(first(n), from));                   \
    }                                                                                              \
    static inline void store_##type##_part(char *to, vf v, size_t n)                               \
    {                                                                                              \
        _mm##width##_mask_storeu_epi##bits(to, first(n), narrow_##type(v));                        \
    }

/* Conversions from and to memory need no shuffles. */
static inline vf load_f16(const char *from)
{
    return (vf){widen_half(_mm256_loadu_epi16(from)), widen_half(_mm256_loadu_epi16(from + 32))};
}

static inline void store_f16(char *to, vf v)
{
    _mm256_storeu_epi16(to, _mm512_cvtps_ph(v.a, TO_NEAREST));
    _mm256_storeu_epi16(to + 32, _mm512_cvtps_ph(v.b, TO_NEAREST));
}

DEFINE_PART(f16, 512, 16)
DEFINE_WHOLE(bf16, 512, 16)
DEFINE_PART(bf16, 512, 16)
DEFINE_WHOLE(e4m3, 256, 8)
DEFINE_PART(e4m3, 256, 8)
DEFINE_WHOLE(e5m2, 256, 8)
DEFINE_PART(e5m2, 256, 8)

#include "datatype/fold_float.h"
#include "datatype/fold_native.h"

static inline void stream_line(char *to, const char *from)
{
    _mm512_stream_si512((void *)to, _mm512_loadu_si512(from));
}

static inline void copy_lines(char *to, const char *from)
{
    __m512i v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm512_loadu_si512(from + i * CACHE_LINE);
    for (int i = 0; i < 4; i++) _mm512_store_si512(to + i * CACHE_LINE, v[i]);
}

#include "datatype/copy_x86.h"

const struct tt_kernels tt_kernels_avx512 = {
    .name = "avx512",
    .fold =
        {
#define X(type, op, kernel) [TT_##type][TT_##op] = kernel,
#include "datatype/kernel_table.h"
#undef X
        },
    .fold_to_two =
        {
#define X(type, op, kernel) [TT_##type][TT_##op] = kernel##_to_two,
#include "datatype/kernel_table.h"
#undef X
        },
    .copy = copy,
    .stream = stream,
    .fence = fence,
};
