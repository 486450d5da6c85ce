/* Template: kernels of the types that are folded in fp32 and rounded once: fp32 itself, fp16, bf16
 * and fp8. Each reduce_<isa>.c includes it once, having defined
 *   vf, LANES                 a vector of LANES fp32
 *   v_splat v_add v_mul v_div
 *   v_max v_min               a NaN in gives NaN out; -0 is less than +0
 *   v_settle                  replaces every NaN by TT_F32_NAN
 * and for each type: load_<type>(p) and store_<type>(p, v), and for the n < LANES elements at the
 * end load_<type>_part(p, n) and store_<type>_part(p, v, n). */
#include "datatype/convert.h"
#include "datatype/kernels.h"

enum { BYTES_f32 = 4, BYTES_f16 = 2, BYTES_bf16 = 2, BYTES_e4m3 = 1, BYTES_e5m2 = 1 };

/* How the elements of a source, raw or not, enter a fold. */
static inline vf plain(vf v, bool raw, vf k)
{
    (void)raw, (void)k;
    return v;
}

/* Every result is settled: the NaN of an addition depends on the order of its operands, which the
 * compiler chooses. */
static inline vf settle(vf v, vf k)
{
    (void)k;
    return v_settle(v);
}

static inline vf divide(vf v, vf k)
{
    return v_settle(v_div(v, k));
}

/* A product is rounded to the type, as if a rank had sent it. */
#define DEFINE_SCALED(type)                                                                        \
    static inline vf type##_scaled(vf v, bool raw, vf k)                                           \
    {                                                                                              \
        char rounded[LANES * BYTES_##type];                                                        \
        if (!raw) return v;                                                                        \
        store_##type(rounded, v_settle(v_mul(v, k)));                                              \
        return load_##type(rounded);                                                               \
    }

/* name(dst, ...) folds with op(acc, next). enter(v, raw, k) is applied to every source's elements
 * and end(v, k) to the result, with k = v_splat(factor). name_to_two folds two sources. */
#define DEFINE_FLOAT_FOLD(name, type, factor, enter, op, end)                                      \
    static void name(void *dst, const struct tt_sources *sources, size_t first, size_t count,      \
                     const struct tt_reduction *reduction)                                         \
    {                                                                                              \
        (void)reduction;                                                                           \
        enum { SIZE = BYTES_##type, STEP = LANES * SIZE };                                         \
        const vf k = v_splat(factor);                                                              \
        const void *const *src = sources->data;                                                    \
        const int nsrc = sources->number;                                                          \
        const size_t skip = first * SIZE, nbytes = count * SIZE;                                   \
        const size_t whole = nbytes / STEP * STEP;                                                 \
        const bool raw_a = tt_is_raw(sources, 0), raw_b = nsrc > 1 && tt_is_raw(sources, 1);       \
        const bool raw_c = nsrc > 2 && tt_is_raw(sources, 2);                                      \
        const char *a = (const char *)src[0] + skip;                                               \
        const char *b = nsrc > 1 ? (const char *)src[1] + skip : a;                                \
        const char *c = nsrc > 2 ? (const char *)src[2] + skip : a;                                \
        char *d = dst;                                                                             \
        if (nsrc == 2) {                                                                           \
            for (size_t i = 0; i < whole; i += STEP) {                                             \
                const vf ab =                                                                      \
                    op(enter(load_##type(a + i), raw_a, k), enter(load_##type(b + i), raw_b, k));  \
                store_##type(d + i, end(ab, k));                                                   \
            }                                                                                      \
        } else if (nsrc == 3) {                                                                    \
            for (size_t i = 0; i < whole; i += STEP) {                                             \
                const vf ab =                                                                      \
                    op(enter(load_##type(a + i), raw_a, k), enter(load_##type(b + i), raw_b, k));  \
                store_##type(d + i, end(op(ab, enter(load_##type(c + i), raw_c, k)), k));          \
            }                                                                                      \
        } else {                                                                                   \
            for (size_t i = 0; i < whole; i += STEP) {                                             \
                vf acc = enter(load_##type(a + i), raw_a, k);                                      \
                for (int s = 1; s < nsrc; s++)                                                     \
                    acc = op(acc, enter(load_##type((const char *)src[s] + skip + i),              \
                                        tt_is_raw(sources, s), k));                                \
                store_##type(d + i, end(acc, k));                                                  \
            }                                                                                      \
        }                                                                                          \
        const size_t n = (nbytes - whole) / SIZE;                                                  \
        if (n == 0) return;                                                                        \
        vf acc = enter(load_##type##_part(a + whole, n), raw_a, k);                                \
        for (int s = 1; s < nsrc; s++)                                                             \
            acc = op(acc, enter(load_##type##_part((const char *)src[s] + skip + whole, n),        \
                                tt_is_raw(sources, s), k));                                        \
        store_##type##_part(d + whole, end(acc, k), n);                                            \
    }                                                                                              \
    static void name##_to_two(void *dst, void *other, const struct tt_sources *sources,            \
                              size_t first, size_t count, const struct tt_reduction *reduction)    \
    {                                                                                              \
        (void)reduction;                                                                           \
        enum { SIZE = BYTES_##type, STEP = LANES * SIZE };                                         \
        const vf k = v_splat(factor);                                                              \
        const size_t skip = first * SIZE, nbytes = count * SIZE;                                   \
        const size_t whole = nbytes / STEP * STEP;                                                 \
        const bool raw_a = tt_is_raw(sources, 0), raw_b = tt_is_raw(sources, 1);                   \
        const char *a = (const char *)sources->data[0] + skip;                                     \
        const char *b = (const char *)sources->data[1] + skip;                                     \
        char *d = dst, *e = other;                                                                 \
        for (size_t i = 0; i < whole; i += STEP) {                                                 \
            const vf ab =                                                                          \
                op(enter(load_##type(a + i), raw_a, k), enter(load_##type(b + i), raw_b, k));      \
            const vf result = end(ab, k);                                                          \
            store_##type(d + i, result);                                                           \
            store_##type(e + i, result);                                                           \
        }                                                                                          \
        const size_t n = (nbytes - whole) / SIZE;                                                  \
        if (n == 0) return;                                                                        \
        const vf ab = op(enter(load_##type##_part(a + whole, n), raw_a, k),                        \
                         enter(load_##type##_part(b + whole, n), raw_b, k));                       \
        const vf result = end(ab, k);                                                              \
        store_##type##_part(d + whole, result, n);                                                 \
        store_##type##_part(e + whole, result, n);                                                 \
    }

#define DEFINE_FLOAT_FOLDS(type)                                                                   \
    DEFINE_SCALED(type)                                                                            \
    DEFINE_FLOAT_FOLD(type##_sum, type, 0, plain, v_add, settle)                                   \
    DEFINE_FLOAT_FOLD(type##_prod, type, 0, plain, v_mul, settle)                                  \
    DEFINE_FLOAT_FOLD(type##_max, type, 0, plain, v_max, settle)                                   \
    DEFINE_FLOAT_FOLD(type##_min, type, 0, plain, v_min, settle)                                   \
    DEFINE_FLOAT_FOLD(type##_avg, type, (float)reduction->nranks, plain, v_add, divide)            \
    DEFINE_FLOAT_FOLD(type##_scaled_sum, type, tt_read_##type(reduction->scalar), type##_scaled,   \
                      v_add, settle)

DEFINE_FLOAT_FOLDS(f32)
DEFINE_FLOAT_FOLDS(f16)
DEFINE_FLOAT_FOLDS(bf16)
DEFINE_FLOAT_FOLDS(e4m3)
DEFINE_FLOAT_FOLDS(e5m2)
