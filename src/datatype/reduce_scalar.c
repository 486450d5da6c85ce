/* The kernels in portable C: always built, and the reference for the others. */
#include <string.h>

#include "datatype/convert.h"
#include "datatype/kernels.h"

typedef float vf;
enum { LANES = 1 };

static inline vf v_splat(float value)
{
    return value;
}

static inline vf v_add(vf a, vf b)
{
    return a + b;
}

static inline vf v_mul(vf a, vf b)
{
    return a * b;
}

static inline vf v_div(vf a, vf b)
{
    return a / b;
}

static inline vf v_settle(vf v)
{
    return v != v ? tt_f32_from_bits(TT_F32_NAN) : v;
}

static inline bool v_any_reaches(vf v, float limit)
{
    return fabsf(v) >= limit;
}

/* Equal operands differ in the sign of zero at most; a sum of NaN and anything is NaN. */
static inline vf v_max(vf a, vf b)
{
    if (a > b) return a;
    if (b > a) return b;
    return a == b ? tt_f32_from_bits(tt_f32_bits(a) & tt_f32_bits(b)) : a + b;
}

static inline vf v_min(vf a, vf b)
{
    if (a < b) return a;
    if (b < a) return b;
    return a == b ? tt_f32_from_bits(tt_f32_bits(a) | tt_f32_bits(b)) : a + b;
}

/* With one lane there is no part of a vector. */
#define DEFINE_ACCESS(type)                                                                        \
    static inline vf load_##type(const char *from)                                                 \
    {                                                                                              \
        return tt_read_##type(from);                                                               \
    }                                                                                              \
    static inline vf load_##type##_part(const char *from, size_t n)                                \
    {                                                                                              \
        (void)n;                                                                                   \
        return tt_read_##type(from);                                                               \
    }                                                                                              \
    static inline void store_##type(char *to, vf v)                                                \
    {                                                                                              \
        tt_write_##type(to, v);                                                                    \
    }                                                                                              \
    static inline void store_##type##_part(char *to, vf v, size_t n)                               \
    {                                                                                              \
        (void)n;                                                                                   \
        tt_write_##type(to, v);                                                                    \
    }

#define DEFINE_AS(type)                                                                            \
    static inline vf as_##type(vf v)                                                               \
    {                                                                                              \
        return tt_##type##_to_f32(tt_f32_to_##type(v));                                            \
    }
DEFINE_AS(f16)
DEFINE_AS(bf16)
DEFINE_AS(e4m3)
DEFINE_AS(e5m2)

DEFINE_ACCESS(f32)
DEFINE_ACCESS(f16)
DEFINE_ACCESS(bf16)
DEFINE_ACCESS(e4m3)
DEFINE_ACCESS(e5m2)

#include "datatype/fold_float.h"
#include "datatype/fold_native.h"

static void copy(void *dst, const void *src, size_t nbytes)
{
    memcpy(dst, src, nbytes);
}

static void stream(void *dst, const void *src, size_t nbytes)
{
    memcpy(dst, src, nbytes);
}

static void fence(void) {}

const struct tt_kernels tt_kernels_scalar = {
    .name = "scalar",
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
