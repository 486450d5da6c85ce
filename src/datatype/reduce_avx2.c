/* AVX2 and F16C. */
#include <immintrin.h>
#include <string.h>

#include "datatype/convert.h"
#include "datatype/kernels.h"

typedef __m256 vf;
enum { LANES = 8, VECTOR = 32, LINE = 64 };

static inline vf v_splat(float value)
{
    return _mm256_set1_ps(value);
}

static inline vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

static inline vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

static inline vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

static inline vf v_settle(vf v)
{
    const vf nan = _mm256_castsi256_ps(_mm256_set1_epi32(TT_F32_NAN));
    return _mm256_blendv_ps(v, nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}

/* MAXPS and MINPS give the second operand where neither is greater: equal numbers, whose bits
 * differ in the sign of zero only, and NaN. All bits set are a NaN. */
static inline vf v_max(vf a, vf b)
{
    const vf both = _mm256_and_ps(_mm256_max_ps(a, b), _mm256_max_ps(b, a));
    return _mm256_or_ps(both, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
}

static inline vf v_min(vf a, vf b)
{
    const vf both = _mm256_or_ps(_mm256_min_ps(a, b), _mm256_min_ps(b, a));
    return _mm256_or_ps(both, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
}

static inline __m256i first(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vf load_f32(const char *from)
{
    return _mm256_loadu_ps((const float *)(const void *)from);
}

static inline vf load_f32_part(const char *from, size_t n)
{
    return _mm256_maskload_ps((const float *)(const void *)from, first(n));
}

static inline void store_f32(char *to, vf v)
{
    _mm256_storeu_ps((float *)(void *)to, v);
}

static inline void store_f32_part(char *to, vf v, size_t n)
{
    _mm256_maskstore_ps((float *)(void *)to, first(n), v);
}

static inline vf widen_f16(__m128i v)
{
    return _mm256_cvtph_ps(v);
}

static inline __m128i narrow_f16(vf v)
{
    return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* Each lane's low half. */
static inline __m128i pack(__m256i v)
{
    return _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

static inline vf widen_bf16(__m128i v)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}

static inline __m128i narrow_bf16(vf v)
{
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    return pack(_mm256_srli_epi32(_mm256_add_epi32(bits, up), 16));
}

/* The bits of an e4m3 read as fp16, which has 8 more in its bias: 2^-8 times the value, subnormals
 * too. */
static inline vf widen_e4m3(__m128i v)
{
    const __m128i magnitude = _mm_set1_epi16(0x3f80);
    const __m128i sign_twice = _mm_slli_epi16(_mm_cvtepi8_epi16(v), 7);
    const __m128i half = _mm_andnot_si128(_mm_set1_epi16(0x4000), sign_twice);
    const __m128i nan = _mm_cmpeq_epi16(_mm_and_si128(half, magnitude), magnitude);
    const __m128i quiet = _mm_or_si128(half, _mm_and_si128(nan, _mm_set1_epi16(0x7e00)));
    return v_mul(_mm256_cvtph_ps(quiet), v_splat(256));
}

static inline vf widen_e5m2(__m128i v)
{
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(v), 8));
}

/* As tt_narrow_finite, saturating. A subnormal is rounded by adding the number whose last bit is
 * the type's smallest. */
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
    const vf rounded = v_add(_mm256_castsi256_ps(clamped), _mm256_castsi256_ps(magic));
    const __m256i subnormal = _mm256_sub_epi32(_mm256_castps_si256(rounded), magic);
    return _mm256_blendv_epi8(normal, subnormal, tiny);
}

/* NaN is settled, so its sign is 0. */
static inline __m128i join_sign(__m256i bits, __m256i magnitude)
{
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    const __m128i words = pack(_mm256_or_si256(sign, magnitude));
    return _mm_packus_epi16(words, words);
}

static inline __m128i narrow_e4m3(vf v)
{
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i absolute = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    const __m256i nan = _mm256_cmpgt_epi32(absolute, _mm256_set1_epi32(TT_F32_INFINITY));
    const __m256i finite = narrow_magnitude(absolute, 3, 7, 448);
    return join_sign(bits, _mm256_blendv_epi8(finite, _mm256_set1_epi32(0x7f), nan));
}

static inline __m128i narrow_e5m2(vf v)
{
    const __m256i bits = _mm256_castps_si256(v), infinity = _mm256_set1_epi32(TT_F32_INFINITY);
    const __m256i absolute = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    const __m256i nan = _mm256_cmpgt_epi32(absolute, infinity);
    const __m256i infinite = _mm256_cmpeq_epi32(absolute, infinity);
    const __m256i finite = narrow_magnitude(absolute, 2, 15, 57344);
    const __m256i number = _mm256_blendv_epi8(finite, _mm256_set1_epi32(0x7c), infinite);
    return join_sign(bits, _mm256_blendv_epi8(number, _mm256_set1_epi32(0x7f), nan));
}

/* Fewer than 16 bytes. */
static inline __m128i load_bytes(const char *from, size_t nbytes)
{
    char padded[16] = {0};
    memcpy(padded, from, nbytes);
    return _mm_loadu_si128((const __m128i *)(const void *)padded);
}

static inline void store_bytes(char *to, __m128i v, size_t nbytes)
{
    char padded[16];
    _mm_storeu_si128((__m128i *)(void *)padded, v);
    memcpy(to, padded, nbytes);
}

#define DEFINE_ACCESS(type, load, store, size)                                                     \
    static inline vf load_##type(const char *from)                                                 \
    {                                                                                              \
        return widen_##type(load((const __m128i *)(const void *)from));                            \
    }                                                                                              \
    static inline vf load_##type##_part(const char *from, size_t n)                                \
    {                                                                                              \
        return widen_##type(load_bytes(from, n * size));                                           \
    }                                                                                              \
    static inline void store_##type(char *to, vf v)                                                \
    {                                                                                              \
        store((__m128i *)(void *)to, narrow_##type(v));                                            \
    }                                                                                              \
    static inline void store_##type##_part(char *to, vf v, size_t n)                               \
    {                                                                                              \
        store_bytes(to, narrow_##type(v), n *size);                                                \
    }

DEFINE_ACCESS(f16, _mm_loadu_si128, _mm_storeu_si128, 2)
DEFINE_ACCESS(bf16, _mm_loadu_si128, _mm_storeu_si128, 2)
DEFINE_ACCESS(e4m3, _mm_loadl_epi64, _mm_storel_epi64, 1)
DEFINE_ACCESS(e5m2, _mm_loadl_epi64, _mm_storel_epi64, 1)

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
    for (; i + LINE <= nbytes; i += LINE) {
        const __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)(from + i));
        const __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(from + i + VECTOR));
        _mm256_stream_si256((__m256i *)(void *)(to + i), low);
        _mm256_stream_si256((__m256i *)(void *)(to + i + VECTOR), high);
    }
    if (i < nbytes) memcpy(to + i, from + i, nbytes - i);
}

static void fence(void)
{
    _mm_sfence();
}

const struct tt_kernels tt_kernels_avx2 = {
    .name = "avx2",
    .fold =
        {
#define X(type, op, kernel) [TT_##type][TT_##op] = kernel,
#include "datatype/kernel_table.h"
#undef X
        },
    .stream = stream,
    .fence = fence,
};
