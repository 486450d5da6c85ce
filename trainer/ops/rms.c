/* RMS norm, forward and backward. */
#include "simd.h"
#include "table.h"

#include <math.h>

void TR_OP(rms_forward)(float *y, float *rstd, const float *x, const float *gamma, double epsilon,
                        long rows, long n)
{
    for (long row = 0; row < rows; ++row, x += n, y += n) {
        lanes squares = splat(0);
        for (long i = 0; i < n; i += LANES) {
            const lanes part = load_at(x, i, n);
            squares += part * part;
        }
        const float r = 1 / sqrtf(sum_lanes(squares) / (float)n + (float)epsilon);
        for (long i = 0; i < n; i += LANES)
            store_at(y, i, n, load_at(x, i, n) * splat(r) * load_at(gamma, i, n));
        rstd[row] = r;
    }
}

/* One row of the input half: dx += ... */
INLINE void input_half(float *dx, const float *dy, const float *x, lanes r, const float *gamma,
                       long n)
{
    lanes product = splat(0);
    for (long i = 0; i < n; i += LANES)
        product += load_at(dy, i, n) * load_at(gamma, i, n) * (load_at(x, i, n) * r);
    const lanes mean = splat(sum_lanes(product) / (float)n);
    for (long i = 0; i < n; i += LANES) {
        const lanes scaled = load_at(dy, i, n) * load_at(gamma, i, n);
        store_at(dx, i, n, load_at(dx, i, n) + r * (scaled - load_at(x, i, n) * r * mean));
    }
}

/* One row of the weight half: dgamma += ... */
INLINE void weight_half(float *dgamma, const float *dy, const float *x, lanes r, long n)
{
    for (long i = 0; i < n; i += LANES)
        store_at(dgamma, i, n, load_at(dgamma, i, n) + load_at(dy, i, n) * (load_at(x, i, n) * r));
}

void TR_OP(rms_backward)(float *dx, float *dgamma, const float *dy, const float *x,
                         const float *rstd, const float *gamma, long rows, long n)
{
    for (long row = 0; row < rows; ++row, x += n, dy += n) {
        const lanes r = splat(rstd[row]);
        if (dgamma) weight_half(dgamma, dy, x, r, n);
        if (dx) input_half(dx + row * n, dy, x, r, gamma, n);
    }
}
