/* AVX-512 F, BW, DQ, VL. The bf16 and fp16 extensions are not used: VCVTNEPS2BF16 takes subnormals
 * for zero, and fp16 arithmetic rounds every step where the contract rounds once. */
#include <immintrin.h>
#include <string.h>

#include "datatype/convert.h"
#include "datatype/kernels.h"

typedef __m512 vf;
enum { LANES = 16, LINE = 64 };

static inline vf v_splat(float value)
{
    return _mm512_set1_ps(value);
}

static inline vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static inline vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static inline vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

static inline vf nan_where(vf v, __mmask16 mask)
{
    return _mm512_mask_mov_ps(v, mask, _mm512_castsi512_ps(_mm512_set1_epi32(TT_F32_NAN)));
}

static inline vf v_settle(vf v)
{
    return nan_where(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q));
}

/* VRANGE orders zeros by sign, but prefers a number to a NaN. */
static inline vf v_max(vf a, vf b)
{
    return nan_where(_mm512_range_ps(a, b, 5), _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q));
}

static inline vf v_min(vf a, vf b)
{
    return nan_where(_mm512_range_ps(a, b, 4), _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q));
}

static inline __mmask16 first(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}

static inline vf load_f32(const char *from)
{
    return _mm512_loadu_ps(from);
}

static inline vf load_f32_part(const char *from, size_t n)
{
    return _mm512_maskz_loadu_ps(first(n), from);
}

static inline void store_f32(char *to, vf v)
{
    _mm512_storeu_ps(to, v);
}

static inline void store_f32_part(char *to, vf v, size_t n)
{
    _mm512_mask_storeu_ps(to, first(n), v);
}

static inline vf widen_f16(__m256i v)
{
    return _mm512_cvtph_ps(v);
}

static inline __m256i narrow_f16(vf v)
{
    return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline vf widen_bf16(__m256i v)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

static inline __m256i narrow_bf16(vf v)
{
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_add_epi32(bits, up), 16));
}

/* The bits of an e4m3 read as fp16, which has 8 more in its bias: 2^-8 times the value, subnormals
 * too. */
static inline vf widen_e4m3(__m128i v)
{
    const __m256i magnitude = _mm256_set1_epi16(0x3f80);
    const __m256i sign_twice = _mm256_slli_epi16(_mm256_cvtepi8_epi16(v), 7);
    const __m256i half = _mm256_andnot_si256(_mm256_set1_epi16(0x4000), sign_twice);
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(_mm256_and_si256(half, magnitude), magnitude);
    const __m256i quiet = _mm256_mask_mov_epi16(half, nan, _mm256_set1_epi16(0x7e00));
    return v_mul(_mm512_cvtph_ps(quiet), v_splat(256));
}

static inline vf widen_e5m2(__m128i v)
{
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(v), 8));
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
    const vf rounded = v_add(_mm512_castsi512_ps(clamped), _mm512_castsi512_ps(magic));
    return _mm512_mask_sub_epi32(normal, tiny, _mm512_castps_si512(rounded), magic);
}

static inline __m128i join_sign(__m512i bits, __m512i magnitude)
{
    const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
    return _mm512_cvtepi32_epi8(_mm512_or_si512(sign, magnitude));
}

static inline __m128i narrow_e4m3(vf v)
{
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i absolute = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(absolute, _mm512_set1_epi32(TT_F32_INFINITY));
    const __m512i finite = narrow_magnitude(absolute, 3, 7, 448);
    return join_sign(bits, _mm512_mask_mov_epi32(finite, nan, _mm512_set1_epi32(0x7f)));
}

static inline __m128i narrow_e5m2(vf v)
{
    const __m512i bits = _mm512_castps_si512(v), infinity = _mm512_set1_epi32(TT_F32_INFINITY);
    const __m512i absolute = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(absolute, infinity);
    const __mmask16 infinite = _mm512_cmpeq_epi32_mask(absolute, infinity);
    const __m512i finite = narrow_magnitude(absolute, 2, 15, 57344);
    const __m512i number = _mm512_mask_mov_epi32(finite, infinite, _mm512_set1_epi32(0x7c));
    return join_sign(bits, _mm512_mask_mov_epi32(number, nan, _mm512_set1_epi32(0x7f)));
}

#define DEFINE_ACCESS(type, width, bits)                                                           \
    static inline vf load_##type(const char *from)                                                 \
    {                                                                                              \
        return widen_##type(_mm##width##_loadu_epi##bits(from));                                   \
    }                                                                                              \
    static inline vf load_##type##_part(const char *from, size_t n)                                \
    {                                                                                              \
        return widen_##type(_mm##width##_maskz_loadu_epi##bits(first(n), from));                   \
    }                                                                                              \
    static inline void store_##type(char *to, vf v)                                                \
    {                                                                                              \
        _mm##width##_storeu_epi##bits(to, narrow_##type(v));                                       \
    }                                                                                              \
    static inline void store_##type##_part(char *to, vf v, size_t n)                               \
    {                                                                                              \
        _mm##width##_mask_storeu_epi##bits(to, first(n), narrow_##type(v));                        \
    }

DEFINE_ACCESS(f16, 256, 16)
DEFINE_ACCESS(bf16, 256, 16)
DEFINE_ACCESS(e4m3, , 8)
DEFINE_ACCESS(e5m2, , 8)

#include "datatype/fold_float.h"
#include "datatype/fold_native.h"

static void stream(void *dst, const void *src, size_t nbytes)
{
    char *to = dst;
    const char *from = src;
    const size_t before = -(uintptr_t)to % LINE;
    const size_t head = before < nbytes ? before : nbytes;
    if (head != 0) memcpy(to, from, head);
    size_t i = head;
    for (; i + LINE <= nbytes; i += LINE)
        _mm512_stream_si512((void *)(to + i), _mm512_loadu_si512(from + i));
    if (i < nbytes) memcpy(to + i, from + i, nbytes - i);
}

static void fence(void)
{
    _mm_sfence();
}

const struct tt_kernels tt_kernels_avx512 = {
    .name = "avx512",
    .fold =
        {
#define X(type, op, kernel) [TT_##type][TT_##op] = kernel,
#include "datatype/kernel_table.h"
#undef X
        },
    .stream = stream,
    .fence = fence,
};
