/* One step of AdamW over a range of parameters. */
#include "simd.h"
#include "table.h"

#include <math.h>

void TR_OP(adamw)(float *w, const float *g, float *m, float *v, size_t n,
                  const struct tr_adamw_step *step)
{
    const float scale = (float)step->gradient_scale, lr = (float)step->lr, eps = (float)step->eps;
    const float beta1 = (float)step->beta1, beta2 = (float)step->beta2;
    const float correct1 = (float)step->correct1, correct2 = (float)step->correct2;
    const float shrink = 1 - lr * (float)step->decay;
    for (size_t i = 0; i < n; ++i) {
        const float gradient = g[i] * scale;
        m[i] = beta1 * m[i] + (1 - beta1) * gradient;
        v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
        const float mean = m[i] * correct1, square = v[i] * correct2;
        w[i] = shrink * w[i] - lr * mean / (sqrtf(square) + eps);
    }
}
