/* Template: kernels of the types that are folded in fp32 and rounded once: fp32 itself, fp16, bf16
 * and fp8. Each reduce_<isa>.c includes it once, having defined
 *   vf, LANES                 a vector of LANES fp32
 *   v_splat v_add v_mul v_div
 *   v_max v_min               a NaN in gives NaN out; -0 is less than +0
 *   v_settle                  replaces every NaN by TT_F32_NAN
 *   v_any_reaches(v, limit)   whether some lane's magnitude is `limit` or more; NaN's is not
 * and for each type: load_<type>(p) and store_<type>(p, v), and for the n < LANES elements at the
 * end load_<type>_part(p, n) and store_<type>_part(p, v, n); for each but fp32 as_<type>(v), a
 * settled v rounded to the type. */
#include "datatype/convert.h"
#include "datatype/kernels.h"

enum { BYTES_f32 = 4, BYTES_f16 = 2, BYTES_bf16 = 2, BYTES_e4m3 = 1, BYTES_e5m2 = 1 };

/* What raw sources are multiplied by, or divided by. */
struct factor {
    vf k;
    bool divides;
};

static inline struct factor no_factor(void)
{
    return (struct factor){.k = v_splat(0)};
}

static inline struct factor scalar_of(float scalar)
{
    return (struct factor){.k = v_splat(scalar)};
}

static inline bool is_power_of_two(int n)
{
    return !(n & (n - 1));
}

/* Of an average: fp32 is divided; of 16- and 8-bit floats, products with the reciprocal are near
 * enough to the quotients: that of a multiple of nranks, rounded to the type, is exact. So are all
 * with the reciprocal of a power of two. */
static inline struct factor nranks_of(const struct tt_reduction *reduction, size_t size)
{
    const int n = reduction->nranks;
    if (size == sizeof(float) && !is_power_of_two(n))
        return (struct factor){.k = v_splat((float)n), .divides = true};
    return (struct factor){.k = v_splat(1 / (float)n)};
}

/* How the elements of a source, raw or not, enter a fold. */
static inline vf plain(vf v, bool raw, struct factor factor)
{
    (void)raw, (void)factor;
    return v;
}

/* Every result is settled: the NaN of an addition depends on the order of its operands, which the
 * compiler chooses. */
static inline vf settle(vf v)
{
    return v_settle(v);
}

/* Lanes of the sum of a and b, as tt_f32_hold_sum. */
static __attribute__((noinline)) vf hold_sum(vf sum, vf a, vf b)
{
    float sums[LANES], as[LANES], bs[LANES];
    memcpy(sums, &sum, sizeof sum);
    memcpy(as, &a, sizeof a);
    memcpy(bs, &b, sizeof b);
    for (int i = 0; i < LANES; i++) sums[i] = tt_f32_hold_sum(sums[i], as[i], bs[i]);
    memcpy(&sum, sums, sizeof sum);
    return sum;
}

static inline vf add_held(vf a, vf b)
{
    const vf sum = v_add(a, b);
    return __builtin_expect(v_any_reaches(sum, INFINITY), 0) ? hold_sum(sum, a, b) : sum;
}

/* Lanes, as tt_f32_hold. */
static __attribute__((noinline)) vf hold(vf v, float largest)
{
    float values[LANES];
    memcpy(values, &v, sizeof v);
    for (int i = 0; i < LANES; i++) values[i] = tt_f32_hold(values[i], largest);
    memcpy(&v, values, sizeof v);
    return v;
}

/* Sums of finite 16- and 8-bit floats other than bf16 are finite in fp32. */
#define f32_add_held add_held
#define bf16_add_held add_held
#define f16_add_held v_add
#define e4m3_add_held v_add
#define e5m2_add_held v_add

/* The largest finite number of a type, and the least number that rounds to infinity. */
#define DEFINE_HELD(type, largest, beyond)                                                         \
    static inline vf type##_settle_held(vf v)                                                      \
    {                                                                                              \
        v = v_settle(v);                                                                           \
        return __builtin_expect(v_any_reaches(v, beyond), 0) ? hold(v, largest) : v;               \
    }
DEFINE_HELD(f16, 65504.0f, 65520.0f)
DEFINE_HELD(bf16, 0x1.fep127f, 0x1.ffp127f)
#define f32_settle_held settle
#define e4m3_settle_held settle
#define e5m2_settle_held settle

/* A product or a quotient is rounded to the type, whichever rank makes it. */
static inline vf f32_scaled(vf v, bool raw, struct factor factor)
{
    if (!raw) return v;
    return factor.divides ? v_div(v, factor.k) : v_mul(v, factor.k);
}

static inline vf product(vf v, bool raw, struct factor factor)
{
    return raw ? v_mul(v, factor.k) : v;
}

#define DEFINE_SCALED(type)                                                                        \
    static inline vf type##_scaled(vf v, bool raw, struct factor factor)                           \
    {                                                                                              \
        return raw ? as_##type(v_settle(v_mul(v, factor.k))) : v;                                  \
    }
DEFINE_SCALED(f16)
DEFINE_SCALED(bf16)
DEFINE_SCALED(e4m3)
DEFINE_SCALED(e5m2)

/* name(dst, ...) folds with op(acc, next). enter(v, raw, factor) is applied to every source's
 * elements and end(v) to the result. name_to_two folds two sources. */
#define DEFINE_FLOAT_FOLD(name, type, factor_of, enter, op, end)                                   \
    static void name(void *dst, const struct tt_sources *sources, size_t first, size_t count,      \
                     const struct tt_reduction *reduction)                                         \
    {                                                                                              \
        (void)reduction;                                                                           \
        enum { SIZE = BYTES_##type, STEP = LANES * SIZE };                                         \
        const struct factor k = factor_of;                                                         \
        const void *const *src = sources->data;                                                    \
        const int nsrc = sources->number;                                                          \
        const size_t skip = first * SIZE, nbytes = count * SIZE;                                   \
        const size_t whole = nbytes / STEP * STEP;                                                 \
        const bool raw_a = tt_source_is_raw(sources, 0),                                           \
                   raw_b = nsrc > 1 && tt_source_is_raw(sources, 1);                               \
        const bool raw_c = nsrc > 2 && tt_source_is_raw(sources, 2);                               \
        const char *a = (const char *)src[0] + skip;                                               \
        const char *b = nsrc > 1 ? (const char *)src[1] + skip : a;                                \
        const char *c = nsrc > 2 ? (const char *)src[2] + skip : a;                                \
        char *d = dst;                                                                             \
        if (nsrc == 2) {                                                                           \
            for (size_t i = 0; i < whole; i += STEP) {                                             \
                const vf ab =                                                                      \
                    op(enter(load_##type(a + i), raw_a, k), enter(load_##type(b + i), raw_b, k));  \
                store_##type(d + i, end(ab));                                                      \
            }                                                                                      \
        } else if (nsrc == 3) {                                                                    \
            for (size_t i = 0; i < whole; i += STEP) {                                             \
                const vf ab =                                                                      \
                    op(enter(load_##type(a + i), raw_a, k), enter(load_##type(b + i), raw_b, k));  \
                store_##type(d + i, end(op(ab, enter(load_##type(c + i), raw_c, k))));             \
            }                                                                                      \
        } else {                                                                                   \
            for (size_t i = 0; i < whole; i += STEP) {                                             \
                vf acc = enter(load_##type(a + i), raw_a, k);                                      \
                for (int s = 1; s < nsrc; s++)                                                     \
                    acc = op(acc, enter(load_##type((const char *)src[s] + skip + i),              \
                                        tt_source_is_raw(sources, s), k));                         \
                store_##type(d + i, end(acc));                                                     \
            }                                                                                      \
        }                                                                                          \
        const size_t n = (nbytes - whole) / SIZE;                                                  \
        if (n == 0) return;                                                                        \
        vf acc = enter(load_##type##_part(a + whole, n), raw_a, k);                                \
        for (int s = 1; s < nsrc; s++)                                                             \
            acc = op(acc, enter(load_##type##_part((const char *)src[s] + skip + whole, n),        \
                                tt_source_is_raw(sources, s), k));                                 \
        store_##type##_part(d + whole, end(acc), n);                                               \
    }                                                                                              \
    static void name##_to_two(void *dst, void *other, const struct tt_sources *sources,            \
                              size_t first, size_t count, const struct tt_reduction *reduction)    \
    {                                                                                              \
        (void)reduction;                                                                           \
        enum { SIZE = BYTES_##type, STEP = LANES * SIZE };                                         \
        const struct factor k = factor_of;                                                         \
        const size_t skip = first * SIZE, nbytes = count * SIZE;                                   \
        const size_t whole = nbytes / STEP * STEP;                                                 \
        const bool raw_a = tt_source_is_raw(sources, 0), raw_b = tt_source_is_raw(sources, 1);     \
        const char *a = (const char *)sources->data[0] + skip;                                     \
        const char *b = (const char *)sources->data[1] + skip;                                     \
        char *d = dst, *e = other;                                                                 \
        for (size_t i = 0; i < whole; i += STEP) {                                                 \
            const vf ab =                                                                          \
                op(enter(load_##type(a + i), raw_a, k), enter(load_##type(b + i), raw_b, k));      \
            const vf result = end(ab);                                                             \
            store_##type(d + i, result);                                                           \
            store_##type(e + i, result);                                                           \
        }                                                                                          \
        const size_t n = (nbytes - whole) / SIZE;                                                  \
        if (n == 0) return;                                                                        \
        const vf ab = op(enter(load_##type##_part(a + whole, n), raw_a, k),                        \
                         enter(load_##type##_part(b + whole, n), raw_b, k));                       \
        const vf result = end(ab);                                                                 \
        store_##type##_part(d + whole, result, n);                                                 \
        store_##type##_part(e + whole, result, n);                                                 \
    }

#define DEFINE_FLOAT_FOLDS(type)                                                                   \
    DEFINE_FLOAT_FOLD(type##_sum, type, no_factor(), plain, v_add, settle)                         \
    DEFINE_FLOAT_FOLD(type##_prod, type, no_factor(), plain, v_mul, settle)                        \
    DEFINE_FLOAT_FOLD(type##_max, type, no_factor(), plain, v_max, settle)                         \
    DEFINE_FLOAT_FOLD(type##_min, type, no_factor(), plain, v_min, settle)                         \
    DEFINE_FLOAT_FOLD(type##_scaled_sum, type, scalar_of(tt_read_##type(reduction->scalar)),       \
                      type##_scaled, v_add, settle)

DEFINE_FLOAT_FOLDS(f32)
DEFINE_FLOAT_FOLDS(f16)
DEFINE_FLOAT_FOLDS(bf16)
DEFINE_FLOAT_FOLDS(e4m3)
DEFINE_FLOAT_FOLDS(e5m2)
DEFINE_FLOAT_FOLD(f32_avg, f32, nranks_of(reduction, 4), f32_scaled, add_held, settle)

/* ---- Averages of 16- and 8-bit floats -----------------------------------------------------------
 *
 * Most need no care: products with a power of two that are no subnormals of the type are numbers of
 * the type, and no sum comes near its end. A tile of the sources is looked at first, as integers,
 * which takes less time than to look at every vector in the fold. */

enum { AVERAGE_TILE = 2048 }; /* elements; a part of the first-level cache */

/* name(source, raw, ...): whether elements [at, at + n) of a source need no care, by themselves;
 * adds the largest magnitude that it brings to *most. largest, normal: the type's largest number,
 * which is finite, and its smallest normal one. */
#define DEFINE_SMALL_AVERAGE(type, word, largest, normal)                                          \
    static bool type##_is_plain(const void *source, size_t at, size_t n, bool raw, int nranks,     \
                                float *most)                                                       \
    {                                                                                              \
        const word *x = (const word *)source + at;                                                 \
        const word magnitude = (word)((word)~0u >> 1);                                             \
        word low = (word)~0u, high = 0;                                                            \
        for (size_t i = 0; i < n; i++) {                                                           \
            const word m = x[i] & magnitude, below = (word)(m - 1); /* of 0 the greatest */        \
            low = below < low ? below : low;                                                       \
            high = m > high ? m : high;                                                            \
        }                                                                                          \
        *most += tt_##type##_to_f32(high) / (float)(raw ? nranks : 1);                             \
        return !raw || low >= (word)(tt_f32_to_##type(normal * (float)nranks) - 1);                \
    }                                                                                              \
    static bool type##_are_plain(const struct tt_sources *sources, size_t at, size_t n,            \
                                 const struct tt_reduction *reduction)                             \
    {                                                                                              \
        float most = 0;                                                                            \
        bool are = is_power_of_two(reduction->nranks) && normal * (float)reduction->nranks < 1;    \
        for (int s = 0; are && s < sources->number; s++)                                           \
            are = type##_is_plain(sources->data[s], at, n, tt_source_is_raw(sources, s),           \
                                  reduction->nranks, &most);                                       \
        return are && most < largest;                                                              \
    }                                                                                              \
    DEFINE_FLOAT_FOLD(type##_avg_plain, type, nranks_of(reduction, BYTES_##type), product, v_add,  \
                      settle)                                                                      \
    DEFINE_FLOAT_FOLD(type##_avg_careful, type, nranks_of(reduction, BYTES_##type), type##_scaled, \
                      type##_add_held, type##_settle_held)                                         \
    static void type##_avg(void *dst, const struct tt_sources *sources, size_t first,              \
                           size_t count, const struct tt_reduction *reduction)                     \
    {                                                                                              \
        for (size_t done = 0, n; done < count; done += n) {                                        \
            n = count - done < AVERAGE_TILE ? count - done : AVERAGE_TILE;                         \
            char *d = (char *)dst + done * BYTES_##type;                                           \
            if (type##_are_plain(sources, first + done, n, reduction))                             \
                type##_avg_plain(d, sources, first + done, n, reduction);                          \
            else                                                                                   \
                type##_avg_careful(d, sources, first + done, n, reduction);                        \
        }                                                                                          \
    }                                                                                              \
    static void type##_avg_to_two(void *dst, void *other, const struct tt_sources *sources,        \
                                  size_t first, size_t count,                                      \
                                  const struct tt_reduction *reduction)                            \
    {                                                                                              \
        for (size_t done = 0, n; done < count; done += n) {                                        \
            n = count - done < AVERAGE_TILE ? count - done : AVERAGE_TILE;                         \
            char *d = (char *)dst + done * BYTES_##type, *e = (char *)other + done * BYTES_##type; \
            if (type##_are_plain(sources, first + done, n, reduction))                             \
                type##_avg_plain_to_two(d, e, sources, first + done, n, reduction);                \
            else                                                                                   \
                type##_avg_careful_to_two(d, e, sources, first + done, n, reduction);              \
        }                                                                                          \
    }

typedef uint16_t small_word __attribute__((aligned(1), may_alias));
DEFINE_SMALL_AVERAGE(f16, small_word, 65504.0f, 0x1p-14f)
DEFINE_SMALL_AVERAGE(bf16, small_word, 0x1.fep127f, 0x1p-126f)
DEFINE_SMALL_AVERAGE(e4m3, uint8_t, 448.0f, 0x1p-6f)
DEFINE_SMALL_AVERAGE(e5m2, uint8_t, 57344.0f, 0x1p-14f)
