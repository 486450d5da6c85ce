/* One step of AdamW over a range of parameters. */
#include "pool.h"
#include "simd.h"
#include "table.h"

#include <math.h>

struct call {
    float *w;
    const float *g;
    float *m, *v;
    long n;
    const struct tr_adamw_step *step;
};

static void update(float *w, const float *g, float *m, float *v, long n,
                   const struct tr_adamw_step *step)
{
    const float scale = (float)step->gradient_scale, lr = (float)step->lr, eps = (float)step->eps;
    const float beta1 = (float)step->beta1, beta2 = (float)step->beta2;
    const float correct1 = (float)step->correct1, correct2 = (float)step->correct2;
    const float shrink = 1 - lr * (float)step->decay;
    for (long i = 0; i < n; ++i) {
        const float gradient = g[i] * scale;
        m[i] = beta1 * m[i] + (1 - beta1) * gradient;
        v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
        const float mean = m[i] * correct1, square = v[i] * correct2;
        w[i] = shrink * w[i] - lr * mean / (sqrtf(square) + eps);
    }
}

static void piece(const void *arg, long index)
{
    const struct call *c = arg;
    const struct tr_range part = tr_range_at(c->n, TR_PIECE_FLOATS, index);
    const long at = part.first;
    update(c->w + at, c->g + at, c->m + at, c->v + at, part.n, c->step);
}

void TR_OP(adamw)(float *w, const float *g, float *m, float *v, size_t n,
                  const struct tr_adamw_step *step)
{
    const struct call call = {w, g, m, v, (long)n, step};
    tr_pool_run(piece, &call, tr_ranges(call.n, TR_PIECE_FLOATS));
}
