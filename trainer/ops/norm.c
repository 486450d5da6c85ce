/* Layer norm, forward and backward. */
#include "simd.h"
#include "table.h"

#include <math.h>

static const float epsilon = 1e-5f;

INLINE lanes part(const float *x, long i, long n)
{
    return n - i >= LANES ? load(x + i) : load_part(x + i, n - i, 0);
}

INLINE void put(float *x, long i, long n, lanes value)
{
    if (n - i >= LANES)
        store(x + i, value);
    else
        store_part(x + i, value, n - i);
}

void TR_OP(norm_forward)(float *y, float *mean, float *rstd, const float *x, const float *gamma,
                         const float *beta, long rows, long n)
{
    for (long row = 0; row < rows; ++row, x += n, y += n) {
        lanes sum = splat(0), squares = splat(0);
        for (long i = 0; i < n; i += LANES) sum += part(x, i, n);
        const float m = sum_lanes(sum) / (float)n;
        for (long i = 0; i < n; i += LANES) {
            /* Missing lanes are filled with the mean, so that they add nothing. */
            const lanes d =
                n - i >= LANES ? load(x + i) - splat(m) : load_part(x + i, n - i, m) - splat(m);
            squares += d * d;
        }
        const float r = 1 / sqrtf(sum_lanes(squares) / (float)n + epsilon);
        for (long i = 0; i < n; i += LANES)
            put(y, i, n,
                (part(x, i, n) - splat(m)) * splat(r) * part(gamma, i, n) + part(beta, i, n));
        mean[row] = m;
        rstd[row] = r;
    }
}

void TR_OP(norm_backward)(float *dx, float *dgamma, float *dbeta, const float *dy, const float *x,
                          const float *mean, const float *rstd, const float *gamma, long rows,
                          long n)
{
    for (long row = 0; row < rows; ++row, x += n, dx += n, dy += n) {
        const lanes m = splat(mean[row]), r = splat(rstd[row]);
        lanes sum = splat(0), product = splat(0);
        for (long i = 0; i < n; i += LANES) {
            const lanes hat = (part(x, i, n) - m) * r, d = part(dy, i, n),
                        scaled = d * part(gamma, i, n);
            sum += scaled;
            product += scaled * hat;
            put(dgamma, i, n, part(dgamma, i, n) + d * hat);
            put(dbeta, i, n, part(dbeta, i, n) + d);
        }
        const lanes mean_d = splat(sum_lanes(sum) / (float)n);
        const lanes mean_p = splat(sum_lanes(product) / (float)n);
        for (long i = 0; i < n; i += LANES) {
            const lanes hat = (part(x, i, n) - m) * r, scaled = part(dy, i, n) * part(gamma, i, n);
            put(dx, i, n, part(dx, i, n) + r * (scaled - mean_d - hat * mean_p));
        }
    }
}
