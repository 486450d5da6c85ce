/* One step of AdamW over a range of parameters. */
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
