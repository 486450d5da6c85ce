/* Template: kernels that fold in the type itself, integers and double. Plain loops that the
 * compiler vectorises for the flags of the including file; each reduce_<isa>.c includes it once.
 *
 * Integer sums and products wrap around. An average of integers is the wrapped sum, divided,
 * truncated towards zero. A logical result is 0 or 1. Of doubles: a NaN in gives the positive quiet
 * NaN without payload out, for min and max too; -0 is less than +0. */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "datatype/kernels.h"

/* dst is one of the sources or overlaps none, so no iteration reads a result of another. Without
 * this pragma the compiler makes a scalar loop where dst is a source. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

enum {
    BLOCK_BYTES = 2048
}; /* accumulators of folds of many sources; a part of the first-level cache */

/* name(dst, ...) folds with op(a, b). begin(a) is applied to the first source's elements.
 * name_to_two folds two sources. */
#define DEFINE_NATIVE_FOLD(name, element, begin, op)                                               \
    static void name##_many(element##_at *d, const struct tt_sources *sources, size_t first,       \
                            size_t count)                                                          \
    {                                                                                              \
        element acc[BLOCK_BYTES / sizeof(element)];                                                \
        const size_t block = BLOCK_BYTES / sizeof(element);                                        \
        for (size_t done = 0; done < count; done += block) {                                       \
            const size_t n = count - done < block ? count - done : block;                          \
            const element##_at *a = (const element##_at *)sources->data[0] + first + done;         \
            for (size_t i = 0; i < n; i++) acc[i] = begin(a[i]);                                   \
            for (int s = 1; s < sources->number; s++) {                                            \
                const element##_at *b = (const element##_at *)sources->data[s] + first + done;     \
                for (size_t i = 0; i < n; i++) acc[i] = op(acc[i], b[i]);                          \
            }                                                                                      \
            memcpy(d + done, acc, n * sizeof(element));                                            \
        }                                                                                          \
    }                                                                                              \
    static void name(void *dst, const struct tt_sources *sources, size_t first, size_t count,      \
                     const struct tt_reduction *reduction)                                         \
    {                                                                                              \
        (void)reduction;                                                                           \
        element##_at *d = dst;                                                                     \
        const void *const *src = sources->data;                                                    \
        const int nsrc = sources->number;                                                          \
        if (nsrc < 2 || nsrc > 4) {                                                                \
            name##_many(d, sources, first, count);                                                 \
            return;                                                                                \
        }                                                                                          \
        const element##_at *a = (const element##_at *)src[0] + first;                              \
        const element##_at *b = (const element##_at *)src[1] + first;                              \
        if (nsrc == 2) {                                                                           \
            INDEPENDENT for (size_t i = 0; i < count; i++) d[i] = op(begin(a[i]), b[i]);           \
            return;                                                                                \
        }                                                                                          \
        const element##_at *c = (const element##_at *)src[2] + first;                              \
        if (nsrc == 3) {                                                                           \
            INDEPENDENT for (size_t i = 0; i < count; i++) d[i] = op(op(begin(a[i]), b[i]), c[i]); \
            return;                                                                                \
        }                                                                                          \
        const element##_at *e = (const element##_at *)src[3] + first;                              \
        INDEPENDENT for (size_t i = 0; i < count; i++) d[i] =                                      \
            op(op(op(begin(a[i]), b[i]), c[i]), e[i]);                                             \
    }                                                                                              \
    static void name##_to_two(void *dst, void *other, const struct tt_sources *sources,            \
                              size_t first, size_t count, const struct tt_reduction *reduction)    \
    {                                                                                              \
        (void)reduction;                                                                           \
        element##_at *d = dst, *e = other;                                                         \
        const element##_at *a = (const element##_at *)sources->data[0] + first;                    \
        const element##_at *b = (const element##_at *)sources->data[1] + first;                    \
        INDEPENDENT for (size_t i = 0; i < count; i++) d[i] = e[i] = op(begin(a[i]), b[i]);        \
    }

/* Makes the result block by block, and copies each block to the other target. */
#define DEFINE_NATIVE_TO_TWO(name, element)                                                        \
    static void name##_to_two(void *dst, void *other, const struct tt_sources *sources,            \
                              size_t first, size_t count, const struct tt_reduction *reduction)    \
    {                                                                                              \
        const size_t block = BLOCK_BYTES / sizeof(element);                                        \
        for (size_t done = 0; done < count; done += block) {                                       \
            const size_t n = count - done < block ? count - done : block;                          \
            element##_at *d = (element##_at *)dst + done;                                          \
            name(d, sources, first + done, n, reduction);                                          \
            memcpy((element##_at *)other + done, d, n * sizeof(element));                          \
        }                                                                                          \
    }

/* Sums where a raw source's elements enter as scale(a, k), with k = factor; end(a) is applied to
 * the result. */
#define DEFINE_NATIVE_SCALED_SUM(name, element, factor, scale, op, end)                            \
    static void name##_two(element##_at *d, const struct tt_sources *sources, size_t first,        \
                           size_t count, element k)                                                \
    {                                                                                              \
        const element##_at *a = (const element##_at *)sources->data[0] + first;                    \
        const element##_at *b = (const element##_at *)sources->data[1] + first;                    \
        const bool raw_a = tt_source_is_raw(sources, 0), raw_b = tt_source_is_raw(sources, 1);     \
        if (raw_a && raw_b)                                                                        \
            INDEPENDENT for (size_t i = 0; i < count; i++) d[i] =                                  \
                end(op(scale(a[i], k), scale(b[i], k)));                                           \
        else if (raw_a)                                                                            \
            INDEPENDENT for (size_t i = 0; i < count; i++) d[i] = end(op(scale(a[i], k), b[i]));   \
        else if (raw_b)                                                                            \
            INDEPENDENT for (size_t i = 0; i < count; i++) d[i] = end(op(a[i], scale(b[i], k)));   \
        else                                                                                       \
            INDEPENDENT for (size_t i = 0; i < count; i++) d[i] = end(op(a[i], b[i]));             \
    }                                                                                              \
    static void name(void *dst, const struct tt_sources *sources, size_t first, size_t count,      \
                     const struct tt_reduction *reduction)                                         \
    {                                                                                              \
        element acc[BLOCK_BYTES / sizeof(element)];                                                \
        const size_t block = BLOCK_BYTES / sizeof(element);                                        \
        const element k = factor;                                                                  \
        if (sources->number == 2) {                                                                \
            name##_two(dst, sources, first, count, k);                                             \
            return;                                                                                \
        }                                                                                          \
        for (size_t done = 0; done < count; done += block) {                                       \
            const size_t n = count - done < block ? count - done : block;                          \
            for (int s = 0; s < sources->number; s++) {                                            \
                const element##_at *b = (const element##_at *)sources->data[s] + first + done;     \
                const bool raw = tt_source_is_raw(sources, s);                                     \
                if (s == 0 && raw)                                                                 \
                    for (size_t i = 0; i < n; i++) acc[i] = scale(b[i], k);                        \
                else if (s == 0)                                                                   \
                    memcpy(acc, b, n * sizeof(element));                                           \
                else if (raw)                                                                      \
                    for (size_t i = 0; i < n; i++) acc[i] = op(acc[i], scale(b[i], k));            \
                else                                                                               \
                    for (size_t i = 0; i < n; i++) acc[i] = op(acc[i], b[i]);                      \
            }                                                                                      \
            element##_at *d = (element##_at *)dst + done;                                          \
            for (size_t i = 0; i < n; i++) d[i] = end(acc[i]);                                     \
        }                                                                                          \
    }

/* Averages of integers: sums block by block, and divides each block while it is in the cache. */
#define DEFINE_NATIVE_AVERAGE(name, element, sum, quotient)                                        \
    static void name(void *dst, const struct tt_sources *sources, size_t first, size_t count,      \
                     const struct tt_reduction *reduction)                                         \
    {                                                                                              \
        const size_t block = BLOCK_BYTES / sizeof(element);                                        \
        for (size_t done = 0; done < count; done += block) {                                       \
            const size_t n = count - done < block ? count - done : block;                          \
            element##_at *d = (element##_at *)dst + done;                                          \
            sum(d, sources, first + done, n, reduction);                                           \
            for (size_t i = 0; i < n; i++) d[i] = quotient(d[i], reduction->nranks);               \
        }                                                                                          \
    }                                                                                              \
    DEFINE_NATIVE_TO_TWO(name, element)

/* The kernels that depend on signedness. `real` holds every value of the type and of the divisor.
 * Its truncated quotient is the integer quotient, because an exact quotient that is no integer
 * differs from the next integer by more than the rounding of `real`. */
#define DEFINE_INTEGER(element, real)                                                              \
    typedef element element##_at __attribute__((aligned(1), may_alias));                           \
    static inline element element##_keep(element a)                                                \
    {                                                                                              \
        return a;                                                                                  \
    }                                                                                              \
    static inline element element##_greater(element a, element b)                                  \
    {                                                                                              \
        return a > b ? a : b;                                                                      \
    }                                                                                              \
    static inline element element##_less(element a, element b)                                     \
    {                                                                                              \
        return a < b ? a : b;                                                                      \
    }                                                                                              \
    static inline element element##_quotient(element a, int n)                                     \
    {                                                                                              \
        return (element)((real)a / (real)n);                                                       \
    }

/* The kernels that do not. `wide` is unsigned and no narrower than int, so that overflow is
 * defined. */
#define DEFINE_WIDTH(element, wide)                                                                \
    static inline element element##_add(element a, element b)                                      \
    {                                                                                              \
        return (element)((wide)a + (wide)b);                                                       \
    }                                                                                              \
    static inline element element##_mul(element a, element b)                                      \
    {                                                                                              \
        return (element)((wide)a * (wide)b);                                                       \
    }                                                                                              \
    static inline element element##_truth(element a)                                               \
    {                                                                                              \
        return a != 0;                                                                             \
    }                                                                                              \
    static inline element element##_and(element a, element b)                                      \
    {                                                                                              \
        return a & b;                                                                              \
    }                                                                                              \
    static inline element element##_or(element a, element b)                                       \
    {                                                                                              \
        return a | b;                                                                              \
    }                                                                                              \
    static inline element element##_xor(element a, element b)                                      \
    {                                                                                              \
        return a ^ b;                                                                              \
    }                                                                                              \
    static inline element element##_truth_and(element a, element b)                                \
    {                                                                                              \
        return (element)(a & (b != 0));                                                            \
    }                                                                                              \
    static inline element element##_truth_or(element a, element b)                                 \
    {                                                                                              \
        return (element)(a | (b != 0));                                                            \
    }                                                                                              \
    static inline element element##_truth_xor(element a, element b)                                \
    {                                                                                              \
        return (element)(a ^ (b != 0));                                                            \
    }                                                                                              \
    DEFINE_NATIVE_FOLD(element##_sum, element, element##_keep, element##_add)                      \
    DEFINE_NATIVE_FOLD(element##_prod, element, element##_keep, element##_mul)                     \
    DEFINE_NATIVE_SCALED_SUM(element##_scaled_sum, element,                                        \
                             *(const element##_at *)reduction->scalar, element##_mul,              \
                             element##_add, element##_keep)                                        \
    DEFINE_NATIVE_TO_TWO(element##_scaled_sum, element)                                            \
    DEFINE_NATIVE_FOLD(element##_bit_and, element, element##_keep, element##_and)                  \
    DEFINE_NATIVE_FOLD(element##_bit_or, element, element##_keep, element##_or)                    \
    DEFINE_NATIVE_FOLD(element##_bit_xor, element, element##_keep, element##_xor)                  \
    DEFINE_NATIVE_FOLD(element##_logical_and, element, element##_truth, element##_truth_and)       \
    DEFINE_NATIVE_FOLD(element##_logical_or, element, element##_truth, element##_truth_or)         \
    DEFINE_NATIVE_FOLD(element##_logical_xor, element, element##_truth, element##_truth_xor)

/* The kernels of one type; `sum` is the kernel of its width. */
#define DEFINE_OWN(element, sum)                                                                   \
    DEFINE_NATIVE_FOLD(element##_max, element, element##_keep, element##_greater)                  \
    DEFINE_NATIVE_FOLD(element##_min, element, element##_keep, element##_less)                     \
    DEFINE_NATIVE_AVERAGE(element##_avg, element, sum, element##_quotient)

typedef uint8_t u8;
typedef int8_t i8;
typedef uint16_t u16;
typedef int16_t i16;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
typedef int64_t i64;
typedef double f64;

DEFINE_INTEGER(u8, float)
DEFINE_INTEGER(i8, float)
DEFINE_INTEGER(u16, float)
DEFINE_INTEGER(i16, float)
DEFINE_INTEGER(u32, double)
DEFINE_INTEGER(i32, double)
DEFINE_INTEGER(u64, uint64_t)
DEFINE_INTEGER(i64, int64_t)
DEFINE_WIDTH(u8, uint32_t)
DEFINE_WIDTH(u16, uint32_t)
DEFINE_WIDTH(u32, uint32_t)
DEFINE_WIDTH(u64, uint64_t)
DEFINE_OWN(u8, u8_sum)
DEFINE_OWN(i8, u8_sum)
DEFINE_OWN(u16, u16_sum)
DEFINE_OWN(i16, u16_sum)
DEFINE_OWN(u32, u32_sum)
DEFINE_OWN(i32, u32_sum)
DEFINE_OWN(u64, u64_sum)
DEFINE_OWN(i64, u64_sum)

typedef f64 f64_at __attribute__((aligned(1), may_alias));

static inline uint64_t f64_bits(f64 a)
{
    uint64_t bits;
    memcpy(&bits, &a, sizeof bits);
    return bits;
}

static inline f64 f64_from_bits(uint64_t bits)
{
    f64 a;
    memcpy(&a, &bits, sizeof a);
    return a;
}

/* The NaN of an addition depends on the order of its operands, which the compiler chooses. */
static inline f64 f64_settle(f64 a)
{
    return a != a ? f64_from_bits(0x7ff8000000000000) : a;
}

static inline f64 f64_keep(f64 a)
{
    return a;
}

static inline f64 f64_add(f64 a, f64 b)
{
    return f64_settle(a + b);
}

static inline f64 f64_mul(f64 a, f64 b)
{
    return f64_settle(a * b);
}

/* The parts of an average, whose results are settled at the end. */
static inline f64 f64_product(f64 a, f64 b)
{
    return a * b;
}

static inline f64 f64_quotient(f64 a, f64 b)
{
    return a / b;
}

/* Rounding makes no infinity. */
static inline f64 f64_add_held(f64 a, f64 b)
{
    const f64 sum = a + b;
    const bool beyond = fabs(sum) > DBL_MAX && fabs(a) <= DBL_MAX && fabs(b) <= DBL_MAX;
    return beyond ? copysign(DBL_MAX, sum) : sum;
}

/* Each comparison gives its last operand where neither is greater: for equal numbers, whose bits
 * differ in the sign of zero at most, and for NaN. */
static inline f64 f64_greater(f64 a, f64 b)
{
    const uint64_t both = f64_bits(a > b ? a : b) & f64_bits(b > a ? b : a);
    return a != a || b != b ? f64_from_bits(0x7ff8000000000000) : f64_from_bits(both);
}

static inline f64 f64_less(f64 a, f64 b)
{
    const uint64_t both = f64_bits(a < b ? a : b) | f64_bits(b < a ? b : a);
    return a != a || b != b ? f64_from_bits(0x7ff8000000000000) : f64_from_bits(both);
}

DEFINE_NATIVE_FOLD(f64_sum, f64, f64_keep, f64_add)
DEFINE_NATIVE_FOLD(f64_prod, f64, f64_keep, f64_mul)
DEFINE_NATIVE_SCALED_SUM(f64_scaled_sum, f64, *(const f64_at *)reduction->scalar, f64_mul, f64_add,
                         f64_keep)
DEFINE_NATIVE_TO_TWO(f64_scaled_sum, f64)
DEFINE_NATIVE_FOLD(f64_max, f64, f64_keep, f64_greater)
DEFINE_NATIVE_FOLD(f64_min, f64, f64_keep, f64_less)
DEFINE_NATIVE_SCALED_SUM(f64_avg_by_quotient, f64, reduction->nranks, f64_quotient, f64_add_held,
                         f64_settle)
DEFINE_NATIVE_SCALED_SUM(f64_avg_by_product, f64, 1 / (f64)reduction->nranks, f64_product,
                         f64_add_held, f64_settle)

/* Products with the reciprocal of a power of two are the quotients. */
static void f64_avg(void *dst, const struct tt_sources *sources, size_t first, size_t count,
                    const struct tt_reduction *reduction)
{
    if (reduction->nranks & (reduction->nranks - 1))
        f64_avg_by_quotient(dst, sources, first, count, reduction);
    else
        f64_avg_by_product(dst, sources, first, count, reduction);
}
DEFINE_NATIVE_TO_TWO(f64_avg, f64)
