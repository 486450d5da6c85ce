/* The kernels for AVX2 and F16C. */
#include <immintrin.h>
#include <string.h>

#include "datatype/convert.h"
#include "datatype/kernels.h"

/* Two registers; the order of elements depends on the type. */
typedef struct {
    __m256 a, b;
} vf;
enum { LANES = 16, VECTOR = 32, CACHE_LINE = 64 };
enum { TO_NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };

static inline vf v_splat(float value)
{
    return (vf){_mm256_set1_ps(value), _mm256_set1_ps(value)};
}

static inline __m256 settle_ps(__m256 v)
{
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(TT_F32_NAN));
    return _mm256_blendv_ps(v, nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}

static inline vf v_settle(vf v)
{
    return (vf){settle_ps(v.a), settle_ps(v.b)};
}

static inline bool v_any_reaches(vf v, float limit)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), least = _mm256_set1_ps(limit);
    const __m256 a = _mm256_cmp_ps(_mm256_andnot_ps(sign, v.a), least, _CMP_GE_OQ);
    const __m256 b = _mm256_cmp_ps(_mm256_andnot_ps(sign, v.b), least, _CMP_GE_OQ);
    return _mm256_movemask_ps(_mm256_or_ps(a, b));
}

/* MAXPS and MINPS give the second operand where neither is greater: for equal numbers, whose bits
 * differ in the sign of zero at most, and for NaN. All bits set are a NaN. */
static inline __m256 max_ps(__m256 a, __m256 b)
{
    const __m256 both = _mm256_and_ps(_mm256_max_ps(a, b), _mm256_max_ps(b, a));
    return _mm256_or_ps(both, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
}

static inline __m256 min_ps(__m256 a, __m256 b)
{
    const __m256 both = _mm256_or_ps(_mm256_min_ps(a, b), _mm256_min_ps(b, a));
    return _mm256_or_ps(both, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
}

#define DEFINE_PAIRWISE(name, single)                                                              \
    static inline vf name(vf x, vf y)                                                              \
    {                                                                                              \
        return (vf){single(x.a, y.a), single(x.b, y.b)};                                           \
    }

DEFINE_PAIRWISE(v_add, _mm256_add_ps)
DEFINE_PAIRWISE(v_mul, _mm256_mul_ps)
DEFINE_PAIRWISE(v_div, _mm256_div_ps)
DEFINE_PAIRWISE(v_max, max_ps)
DEFINE_PAIRWISE(v_min, min_ps)

/* Lanes i of `from` on with i < n. */
static inline __m256i first(int from, size_t n)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n - from), lanes);
}

static inline vf load_f32(const char *from)
{
    const float *floats = (const float *)(const void *)from;
    return (vf){_mm256_loadu_ps(floats), _mm256_loadu_ps(floats + 8)};
}

static inline vf load_f32_part(const char *from, size_t n)
{
    const float *floats = (const float *)(const void *)from;
    return (vf){_mm256_maskload_ps(floats, first(0, n)),
                _mm256_maskload_ps(floats + 8, first(8, n))};
}

static inline void store_f32(char *to, vf v)
{
    float *floats = (float *)(void *)to;
    _mm256_storeu_ps(floats, v.a);
    _mm256_storeu_ps(floats + 8, v.b);
}

static inline void store_f32_part(char *to, vf v, size_t n)
{
    float *floats = (float *)(void *)to;
    _mm256_maskstore_ps(floats, first(0, n), v.a);
    _mm256_maskstore_ps(floats + 8, first(8, n), v.b);
}

/* Keeps Clang from moving comparisons before the conversion, where there is no instruction for
 * them. */
static inline __m256 widen_half(__m128i v)
{
    __m256 wide = _mm256_cvtph_ps(v);
    __asm__("" : "+x"(wide));
    return wide;
}

static inline vf widen_f16(__m256i v)
{
    return (vf){widen_half(_mm256_castsi256_si128(v)), widen_half(_mm256_extracti128_si256(v, 1))};
}

static inline __m256i narrow_f16(vf v)
{
    return _mm256_set_m128i(_mm256_cvtps_ph(v.b, TO_NEAREST), _mm256_cvtps_ph(v.a, TO_NEAREST));
}

/* The even elements, then the odd ones: no element changes its lane. */
static inline vf widen_bf16(__m256i v)
{
    const __m256i odd = _mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000));
    return (vf){_mm256_castsi256_ps(_mm256_slli_epi32(v, 16)), _mm256_castsi256_ps(odd)};
}

/* The result is in the upper halves. */
static inline __m256i round_bf16(__m256 v)
{
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
}

static inline __m256i narrow_bf16(vf v)
{
    return _mm256_blend_epi16(_mm256_srli_epi32(round_bf16(v.a), 16), round_bf16(v.b), 0xaa);
}

/* Reads the bits of an e4m3 as fp16, whose bias is 8 larger: gives 2^-8 times the value, for
 * subnormals too. */
static inline vf widen_e4m3(__m256i low)
{
    const __m256i magnitude = _mm256_set1_epi16(0x3f80);
    const __m256i v = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(low));
    const __m256i half = _mm256_andnot_si256(_mm256_set1_epi16(0x4000), _mm256_slli_epi16(v, 7));
    const __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(half, magnitude), magnitude);
    const __m256i quiet = _mm256_and_si256(nan, _mm256_set1_epi16(0x7e00));
    return v_mul(widen_f16(_mm256_or_si256(half, quiet)), v_splat(256));
}

static inline vf widen_e5m2(__m256i low)
{
    const __m256i v = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(low));
    return widen_f16(_mm256_slli_epi16(v, 8));
}

/* As tt_narrow_finite, saturating; NaN is settled, so its sign is 0. A subnormal is rounded by
 * adding the number whose last bit is the type's smallest. */
static inline __m256i narrow_magnitude(__m256i bits, int mantissa_bits, int bias, float largest)
{
    const int to_f32 = 23 - mantissa_bits;
    const int rebias = (127 - bias) << 23;
    const __m256i smallest_normal = _mm256_set1_epi32(rebias + (1 << 23));
    const __m256i magic = _mm256_set1_epi32((127 + 24 - bias - mantissa_bits) << 23);
    const __m256i clamped = _mm256_min_epu32(bits, _mm256_set1_epi32((int)tt_f32_bits(largest)));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(clamped, to_f32), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(odd, _mm256_set1_epi32((1 << (to_f32 - 1)) - 1 - rebias));
    const __m256i normal = _mm256_srli_epi32(_mm256_add_epi32(clamped, up), to_f32);
    const __m256i tiny = _mm256_cmpgt_epi32(smallest_normal, clamped);
    const __m256 rounded = _mm256_add_ps(_mm256_castsi256_ps(clamped), _mm256_castsi256_ps(magic));
    const __m256i subnormal = _mm256_sub_epi32(_mm256_castps_si256(rounded), magic);
    return _mm256_blendv_epi8(normal, subnormal, tiny);
}

static inline __m256i join_sign(__m256i bits, __m256i magnitude)
{
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    return _mm256_or_si256(sign, magnitude);
}

static inline __m256i round_e4m3(__m256 v)
{
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i absolute = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    const __m256i nan = _mm256_cmpgt_epi32(absolute, _mm256_set1_epi32(TT_F32_INFINITY));
    const __m256i finite = narrow_magnitude(absolute, 3, 7, 448);
    return join_sign(bits, _mm256_blendv_epi8(finite, _mm256_set1_epi32(0x7f), nan));
}

static inline __m256i round_e5m2(__m256 v)
{
    const __m256i bits = _mm256_castps_si256(v), infinity = _mm256_set1_epi32(TT_F32_INFINITY);
    const __m256i absolute = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    const __m256i nan = _mm256_cmpgt_epi32(absolute, infinity);
    const __m256i infinite = _mm256_cmpeq_epi32(absolute, infinity);
    const __m256i finite = narrow_magnitude(absolute, 2, 15, 57344);
    const __m256i number = _mm256_blendv_epi8(finite, _mm256_set1_epi32(0x7c), infinite);
    return join_sign(bits, _mm256_blendv_epi8(number, _mm256_set1_epi32(0x7f), nan));
}

/* The lowest byte of each 32-bit element, in the low half. */
static inline __m256i pack(__m256i a, __m256i b)
{
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(words, words), 0xd8);
}

static inline __m256i narrow_e4m3(vf v)
{
    return pack(round_e4m3(v.a), round_e4m3(v.b));
}

static inline __m256i narrow_e5m2(vf v)
{
    return pack(round_e5m2(v.a), round_e5m2(v.b));
}

static inline vf as_f16(vf v)
{
    return (vf){widen_half(_mm256_cvtps_ph(v.a, TO_NEAREST)),
                widen_half(_mm256_cvtps_ph(v.b, TO_NEAREST))};
}

static inline vf as_bf16(vf v)
{
    const __m256i upper = _mm256_set1_epi32((int)0xffff0000);
    return (vf){_mm256_castsi256_ps(_mm256_and_si256(round_bf16(v.a), upper)),
                _mm256_castsi256_ps(_mm256_and_si256(round_bf16(v.b), upper))};
}

static inline vf as_e4m3(vf v)
{
    return widen_e4m3(narrow_e4m3(v));
}

static inline vf as_e5m2(vf v)
{
    return widen_e5m2(narrow_e5m2(v));
}

/* Reads and writes up to 32 bytes: only those of the elements. */
static inline __m256i load_bytes(const char *from, size_t nbytes)
{
    char padded[VECTOR] = {0};
    memcpy(padded, from, nbytes);
    return _mm256_loadu_si256((const __m256i *)(const void *)padded);
}

static inline void store_bytes(char *to, __m256i v, size_t nbytes)
{
    char padded[VECTOR];
    _mm256_storeu_si256((__m256i *)(void *)padded, v);
    memcpy(to, padded, nbytes);
}

/* With a constant length the copies become plain loads and stores. */
#define DEFINE_WHOLE(type, size)                                                                   \
    static inline vf load_##type(const char *from)                                                 \
    {                                                                                              \
        return widen_##type(load_bytes(from, LANES * size));                                       \
    }                                                                                              \
    static inline void store_##type(char *to, vf v)                                                \
    {                                                                                              \
        store_bytes(to, narrow_##type(v), LANES *size);                                            \
    }
#define DEFINE_PART(type, size)                                                                    \
    static inline vf load_##type##_part(const char *from, size_t n)                                \
    {                                                                                              \
        return widen_##type(load_bytes(from, n * size));                                           \
    }                                                                                              \
    static inline void store_##type##_part(char *to, vf v, size_t n)                               \
    {                                                                                              \
        store_bytes(to, narrow_##type(v), n *size);                                                \
    }

/* Conversions from and to memory need no shuffles. */
static inline vf load_f16(const char *from)
{
    const __m128i *halves = (const __m128i *)(const void *)from;
    return (vf){widen_half(_mm_loadu_si128(halves)), widen_half(_mm_loadu_si128(halves + 1))};
}

static inline void store_f16(char *to, vf v)
{
    __m128i *halves = (__m128i *)(void *)to;
    _mm_storeu_si128(halves, _mm256_cvtps_ph(v.a, TO_NEAREST));
    _mm_storeu_si128(halves + 1, _mm256_cvtps_ph(v.b, TO_NEAREST));
}

DEFINE_PART(f16, 2)
DEFINE_WHOLE(bf16, 2)
DEFINE_PART(bf16, 2)
DEFINE_WHOLE(e4m3, 1)
DEFINE_PART(e4m3, 1)
DEFINE_WHOLE(e5m2, 1)
DEFINE_PART(e5m2, 1)

#include "datatype/fold_float.h"
#include "datatype/fold_native.h"

static inline void stream_line(char *to, const char *from)
{
    const __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)from);
    const __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(from + VECTOR));
    _mm256_stream_si256((__m256i *)(void *)to, low);
    _mm256_stream_si256((__m256i *)(void *)(to + VECTOR), high);
}

static inline void copy_lines(char *to, const char *from)
{
    const __m256i *in = (const __m256i *)(const void *)from;
    __m256i *out = (__m256i *)(void *)to, v[8];
    for (int i = 0; i < 8; i++) v[i] = _mm256_loadu_si256(in + i);
    for (int i = 0; i < 8; i++) _mm256_store_si256(out + i, v[i]);
}

#include "datatype/copy_x86.h"

const struct tt_kernels tt_kernels_avx2 = {
    .name = "avx2",
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
