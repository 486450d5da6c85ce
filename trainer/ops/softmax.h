/* What attention and the loss do with a row of floats. Included by ops/ files only. */
#ifndef TR_SOFTMAX_H
#define TR_SOFTMAX_H

#include <math.h>

#include "simd.h"

/* What stands in for the elements past a row's end: its exponential is 0. */
#define TR_NOTHING (-1e30f)

INLINE float row_max(const float *x, long n)
{
    lanes most = splat(TR_NOTHING);
    long i = 0;
    for (; i + LANES <= n; i += LANES) most = larger(most, load(x + i));
    if (i < n) most = larger(most, load_part(x + i, n - i, TR_NOTHING));
    return max_lanes(most);
}

/* x = exp(x - shift); returns the sum. */
INLINE float row_exp(float *x, long n, float shift)
{
    lanes sum = splat(0);
    long i = 0;
    for (; i + LANES <= n; i += LANES) {
        const lanes e = exp_lanes(load(x + i) - splat(shift));
        store(x + i, e);
        sum += e;
    }
    if (i < n) {
        const lanes e = exp_lanes(load_part(x + i, n - i, TR_NOTHING) - splat(shift));
        store_part(x + i, e, n - i);
        sum += e;
    }
    return sum_lanes(sum);
}

INLINE float row_dot(const float *a, const float *b, long n)
{
    lanes sum = splat(0);
    for (long i = 0; i < n; i += LANES) sum += load_at(a, i, n) * load_at(b, i, n);
    return sum_lanes(sum);
}

INLINE void row_scale(float *x, long n, float factor)
{
    for (long i = 0; i < n; ++i) x[i] *= factor;
}

#endif
