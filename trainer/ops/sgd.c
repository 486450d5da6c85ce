/* One step of stochastic gradient descent with momentum over a range of parameters. */
#include "simd.h"
#include "table.h"

void TR_OP(sgd)(float *w, const float *g, float *m, size_t n, const struct tr_sgd_step *step)
{
    const float shrink = 1 - step->lr * step->decay;
    for (size_t i = 0; i < n; ++i) {
        m[i] = step->momentum * m[i] + g[i] * step->gradient_scale;
        w[i] = shrink * w[i] - step->lr * m[i];
    }
}
