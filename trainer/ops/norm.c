/* Layer norm, forward and backward. */
#include "simd.h"
#include "table.h"

#include <math.h>

void TR_OP(norm_forward)(float *y, float *mean, float *rstd, const float *x, const float *gamma,
                         const float *beta, double epsilon, long rows, long n)
{
    for (long row = 0; row < rows; ++row, x += n, y += n) {
        lanes sum = splat(0), squares = splat(0);
        for (long i = 0; i < n; i += LANES) sum += load_at(x, i, n);
        const float m = sum_lanes(sum) / (float)n;
        for (long i = 0; i < n; i += LANES) {
            /* Missing lanes are filled with the mean, so that they add nothing. */
            const lanes d =
                n - i >= LANES ? load(x + i) - splat(m) : load_part(x + i, n - i, m) - splat(m);
            squares += d * d;
        }
        const float r = 1 / sqrtf(sum_lanes(squares) / (float)n + (float)epsilon);
        for (long i = 0; i < n; i += LANES)
            store_at(y, i, n,
                     (load_at(x, i, n) - splat(m)) * splat(r) * load_at(gamma, i, n) +
                         load_at(beta, i, n));
        mean[row] = m;
        rstd[row] = r;
    }
}

/* One row of the input half: dx += ... */
INLINE void input_half(float *dx, const float *dy, const float *x, lanes m, lanes r,
                       const float *gamma, long n)
{
    lanes sum = splat(0), product = splat(0);
    for (long i = 0; i < n; i += LANES) {
        const lanes scaled = load_at(dy, i, n) * load_at(gamma, i, n);
        sum += scaled;
        product += scaled * ((load_at(x, i, n) - m) * r);
    }
    const lanes mean_d = splat(sum_lanes(sum) / (float)n);
    const lanes mean_p = splat(sum_lanes(product) / (float)n);
    for (long i = 0; i < n; i += LANES) {
        const lanes hat = (load_at(x, i, n) - m) * r,
                    scaled = load_at(dy, i, n) * load_at(gamma, i, n);
        store_at(dx, i, n, load_at(dx, i, n) + r * (scaled - mean_d - hat * mean_p));
    }
}

/* One row of the weight half: dgamma += ..., dbeta += ... */
INLINE void weight_half(float *dgamma, float *dbeta, const float *dy, const float *x, lanes m,
                        lanes r, long n)
{
    for (long i = 0; i < n; i += LANES) {
        const lanes hat = (load_at(x, i, n) - m) * r, d = load_at(dy, i, n);
        store_at(dgamma, i, n, load_at(dgamma, i, n) + d * hat);
        store_at(dbeta, i, n, load_at(dbeta, i, n) + d);
    }
}

void TR_OP(norm_backward)(float *dx, float *dgamma, float *dbeta, const float *dy, const float *x,
                          const float *mean, const float *rstd, const float *gamma, long rows,
                          long n)
{
    for (long row = 0; row < rows; ++row, x += n, dy += n) {
        const lanes m = splat(mean[row]), r = splat(rstd[row]);
        if (dgamma) weight_half(dgamma, dbeta, dy, x, m, r, n);
        if (dx) input_half(dx + row * n, dy, x, m, r, gamma, n);
    }
}
