/* One step of AdamW over a range of parameters, and the sum of squares for the norm. */
#include "simd.h"
#include "table.h"

#include <math.h>

void TR_OP(adamw)(float *w, const float *g, float *m, float *v, size_t n,
                  const struct tr_adamw_step *step)
{
    const float shrink = 1 - step->lr * step->decay;
    for (size_t i = 0; i < n; ++i) {
        const float gradient = g[i] * step->gradient_scale;
        m[i] = step->beta1 * m[i] + (1 - step->beta1) * gradient;
        v[i] = step->beta2 * v[i] + (1 - step->beta2) * gradient * gradient;
        const float mean = m[i] * step->correct1, square = v[i] * step->correct2;
        w[i] = shrink * w[i] - step->lr * mean / (sqrtf(square) + step->eps);
    }
}

double TR_OP(sum_of_squares)(const float *x, size_t n)
{
    enum { SUMS = 8 };
    double sums[SUMS] = {0};
    size_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (size_t j = 0; j < SUMS; ++j) sums[j] += (double)x[i + j] * (double)x[i + j];
    double total = 0;
    for (; i < n; ++i) total += (double)x[i] * (double)x[i];
    for (size_t j = 0; j < SUMS; ++j) total += sums[j];
    return total;
}
