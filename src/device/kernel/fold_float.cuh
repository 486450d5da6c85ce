/* Folds of floats, with the results of datatype/fold_float.h and of the doubles in fold_native.h:
 * 16- and 8-bit floats are widened to fp32, folded in fp32 and rounded once; a NaN in gives the NaN
 * of the type, positive and without payload; -0 is less than +0. fold.cuh says what a fold is. */
#ifndef TT_DEVICE_KERNEL_FOLD_FLOAT_CUH
#define TT_DEVICE_KERNEL_FOLD_FLOAT_CUH

#include <float.h>
#include <stdint.h>

#include "device/kernel/fold.h"
#include "device/kernel/fold_convert.cuh"

/* ---- The steps of a fold: no contraction, whatever the compiler's options are ---- */

static __device__ inline float tt_real_add(float a, float b)
{
    return __fadd_rn(a, b);
}
static __device__ inline double tt_real_add(double a, double b)
{
    return __dadd_rn(a, b);
}
static __device__ inline float tt_real_mul(float a, float b)
{
    return __fmul_rn(a, b);
}
static __device__ inline double tt_real_mul(double a, double b)
{
    return __dmul_rn(a, b);
}

static __device__ inline float tt_real_nan(float)
{
    return __uint_as_float(0x7fc00000);
}
static __device__ inline double tt_real_nan(double)
{
    return __longlong_as_double(0x7ff8000000000000);
}
template <class REAL> static __device__ inline REAL tt_settle(REAL a)
{
    return a != a ? tt_real_nan(a) : a;
}

static __device__ inline float tt_real_div(float a, float b)
{
    return __fdiv_rn(a, b);
}
static __device__ inline double tt_real_div(double a, double b)
{
    return __ddiv_rn(a, b);
}

/* The sum of a and b in an average, where it is infinite: rounding makes no infinity. */
static __device__ inline float tt_hold_sum(float sum, float a, float b)
{
    return fabsf(a) <= FLT_MAX && fabsf(b) <= FLT_MAX ? copysignf(FLT_MAX, sum) : sum;
}
static __device__ inline double tt_hold_sum(double sum, double a, double b)
{
    return fabs(a) <= DBL_MAX && fabs(b) <= DBL_MAX ? copysign(DBL_MAX, sum) : sum;
}
static __device__ inline bool tt_is_infinite(float a)
{
    return fabsf(a) > FLT_MAX;
}
static __device__ inline bool tt_is_infinite(double a)
{
    return fabs(a) > DBL_MAX;
}

/* The result of an average before it is rounded to a type whose largest finite number this is. */
static __device__ inline float tt_hold(float a, float largest)
{
    return fabsf(a) > largest && fabsf(a) <= FLT_MAX ? copysignf(largest, a) : a;
}

/* The instructions max and min take -0 for less than +0; without .NaN they pass NaN over. */
static __device__ inline float tt_real_max(float a, float b)
{
#if __CUDA_ARCH__ >= 800
    float most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
    return most;
#else
    return a != a || b != b ? tt_real_nan(a) : fmaxf(a, b);
#endif
}
static __device__ inline float tt_real_min(float a, float b)
{
#if __CUDA_ARCH__ >= 800
    float least;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
    return least;
#else
    return a != a || b != b ? tt_real_nan(a) : fminf(a, b);
#endif
}
static __device__ inline double tt_real_max(double a, double b)
{
    return a != a || b != b ? tt_real_nan(a) : fmax(a, b);
}
static __device__ inline double tt_real_min(double a, double b)
{
    return a != a || b != b ? tt_real_nan(a) : fmin(a, b);
}

/* ---- Formats: a word and the reals that are folded. narrow gives the NaN of the type; hold,
 * before it, makes a finite number that narrow would make infinite the largest finite one.
 * OVERFLOWS: sums of finite numbers of the type may be infinite reals ---- */

struct tt_f64 {
    typedef uint64_t word;
    typedef double real;
    enum { SIZE = 8, LANES = 1, OVERFLOWS = 1 };
    static __device__ void widen(word a, real *v)
    {
        v[0] = __longlong_as_double((long long)a);
    }
    static __device__ word narrow(const real *v)
    {
        return (word)__double_as_longlong(tt_settle(v[0]));
    }
    static __device__ real hold(real a)
    {
        return a;
    }
};

struct tt_f32 {
    typedef uint32_t word;
    typedef float real;
    enum { SIZE = 4, LANES = 1, OVERFLOWS = 1 };
    static __device__ void widen(word a, real *v)
    {
        v[0] = __uint_as_float(a);
    }
    /* As integers with a sign only NaNs are greater. The instructions make the NaN 0x7fffffff. */
    static __device__ word narrow(const real *v)
    {
        return (word)min(__float_as_int(v[0]), 0x7fc00000);
    }
    static __device__ real hold(real a)
    {
        return a;
    }
};

/* largest: the largest finite number, where narrow may make a finite one infinite; else 0. */
#define TT_SMALL_FORMAT(format, size, lanes, overflows, largest)                                   \
    struct tt_##format {                                                                           \
        typedef uint32_t word;                                                                     \
        typedef float real;                                                                        \
        enum { SIZE = size, LANES = lanes, OVERFLOWS = overflows };                                \
        static __device__ void widen(word a, real *v)                                              \
        {                                                                                          \
            tt_widen_##format(a, v);                                                               \
        }                                                                                          \
        static __device__ word narrow(const real *v)                                               \
        {                                                                                          \
            return tt_narrow_##format(v);                                                          \
        }                                                                                          \
        static __device__ real hold(real a)                                                        \
        {                                                                                          \
            return largest > 0 ? tt_hold(a, largest) : a;                                          \
        }                                                                                          \
    };
TT_SMALL_FORMAT(f16, 2, 2, 0, 65504.0f)
TT_SMALL_FORMAT(bf16, 2, 2, 1, 0x1.fep127f)
TT_SMALL_FORMAT(e4m3, 1, 4, 0, 0.0f)
TT_SMALL_FORMAT(e5m2, 1, 4, 0, 0.0f)
#undef TT_SMALL_FORMAT

/* ---- The folds ---- */

enum tt_float_step { TT_STEP_ADD, TT_STEP_MUL, TT_STEP_MAX, TT_STEP_MIN };
enum tt_float_change { TT_CHANGE_NONE, TT_CHANGE_SCALED, TT_CHANGE_AVERAGE };

/* CHANGE: raw sources are multiplied by the scalar, or, in an average, divided, or neither. */
template <class FORMAT, int STEP, int CHANGE> struct tt_float_fold {
    typedef typename FORMAT::word word;
    typedef typename FORMAT::real real;
    enum { SIZE = FORMAT::SIZE, LANES = FORMAT::LANES };
    enum {
        OFTEN = STEP == TT_STEP_ADD && SIZE > 1 && CHANGE != TT_CHANGE_SCALED,
        HEAVY = LANES > 1 && !OFTEN,
        SCALES = CHANGE != TT_CHANGE_NONE,
        CALLS = SCALES && (SIZE == 1 || (CHANGE == TT_CHANGE_AVERAGE && LANES == 1))
    };
    struct acc {
        real v[LANES];
    };
    real factor, divisor; /* raw sources are divided where that is not 0 (datatype/fold_float.h) */

    __device__ tt_float_fold(const tt_fold &fold) : factor(0), divisor(0)
    {
        real all[LANES];
        FORMAT::widen((word)fold.scalar, all);
        if (CHANGE == TT_CHANGE_SCALED) factor = all[0];
        if (CHANGE != TT_CHANGE_AVERAGE) return;
        factor = tt_real_div((real)1, (real)fold.nranks);
        if (LANES == 1 && (fold.nranks & (fold.nranks - 1))) divisor = (real)fold.nranks;
    }
    __device__ acc begin(word a) const
    {
        acc out;
        FORMAT::widen(a, out.v);
        return out;
    }
    __device__ bool divides() const
    {
        return divisor != 0;
    }
    __device__ word multiply(word a) const
    {
        acc out = begin(a);
#pragma unroll
        for (int i = 0; i < LANES; i++) out.v[i] = tt_real_mul(out.v[i], factor);
        return FORMAT::narrow(out.v);
    }
    __device__ word scale(word a) const
    {
        if (LANES > 1 || !divides()) return multiply(a);
        const real quotient = tt_real_div(begin(a).v[0], divisor);
        return FORMAT::narrow(&quotient);
    }
    static __device__ real step(real a, real b)
    {
        if (STEP == TT_STEP_ADD) return tt_real_add(a, b);
        if (STEP == TT_STEP_MUL) return tt_real_mul(a, b);
        return STEP == TT_STEP_MAX ? tt_real_max(a, b) : tt_real_min(a, b);
    }
    __device__ acc add(acc a, word next) const
    {
        real b[LANES];
        acc out;
        FORMAT::widen(next, b);
#pragma unroll
        for (int i = 0; i < LANES; i++) out.v[i] = step(a.v[i], b[i]);
        if (CHANGE != TT_CHANGE_AVERAGE || !FORMAT::OVERFLOWS) return out;
        bool infinite = false;
#pragma unroll
        for (int i = 0; i < LANES; i++) infinite = infinite || tt_is_infinite(out.v[i]);
        if (!infinite) return out;
#pragma unroll
        for (int i = 0; i < LANES; i++)
            if (tt_is_infinite(out.v[i])) out.v[i] = tt_hold_sum(out.v[i], a.v[i], b[i]);
        return out;
    }
    __device__ word end(acc a) const
    {
#pragma unroll
        for (int i = 0; i < LANES; i++)
            if (CHANGE == TT_CHANGE_AVERAGE) a.v[i] = FORMAT::hold(a.v[i]);
        return FORMAT::narrow(a.v);
    }
};

/* The names of datatype/kernel_table.h. */
#define TT_FOLDS_OF_FORMAT(own)                                                                    \
    typedef tt_float_fold<tt_##own, TT_STEP_ADD, TT_CHANGE_NONE> tt_fold_##own##_sum;              \
    typedef tt_float_fold<tt_##own, TT_STEP_MUL, TT_CHANGE_NONE> tt_fold_##own##_prod;             \
    typedef tt_float_fold<tt_##own, TT_STEP_MAX, TT_CHANGE_NONE> tt_fold_##own##_max;              \
    typedef tt_float_fold<tt_##own, TT_STEP_MIN, TT_CHANGE_NONE> tt_fold_##own##_min;              \
    typedef tt_float_fold<tt_##own, TT_STEP_ADD, TT_CHANGE_AVERAGE> tt_fold_##own##_avg;           \
    typedef tt_float_fold<tt_##own, TT_STEP_ADD, TT_CHANGE_SCALED> tt_fold_##own##_scaled_sum;

TT_FOLDS_OF_FORMAT(f64)
TT_FOLDS_OF_FORMAT(f32)
TT_FOLDS_OF_FORMAT(f16)
TT_FOLDS_OF_FORMAT(bf16)
TT_FOLDS_OF_FORMAT(e4m3)
TT_FOLDS_OF_FORMAT(e5m2)
#undef TT_FOLDS_OF_FORMAT

#endif
