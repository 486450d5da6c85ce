/* One step of stochastic gradient descent with momentum over a range of parameters. */
#include "simd.h"
#include "table.h"

void TR_OP(sgd)(float *w, const float *g, float *m, size_t n, const struct tr_sgd_step *step)
{
    const float scale = (float)step->gradient_scale, lr = (float)step->lr;
    const float momentum = (float)step->momentum, shrink = 1 - lr * (float)step->decay;
    if (!m) {
        for (size_t i = 0; i < n; ++i) w[i] = shrink * w[i] - lr * (g[i] * scale);
        return;
    }
    for (size_t i = 0; i < n; ++i) {
        m[i] = momentum * m[i] + g[i] * scale;
        w[i] = shrink * w[i] - lr * m[i];
    }
}
