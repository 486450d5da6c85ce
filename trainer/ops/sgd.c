/* One step of stochastic gradient descent with momentum over a range of parameters. */
#include "pool.h"
#include "simd.h"
#include "table.h"

struct call {
    float *w;
    const float *g;
    float *m;
    long n;
    const struct tr_sgd_step *step;
};

static void update(float *w, const float *g, float *m, long n, const struct tr_sgd_step *step)
{
    const float scale = (float)step->gradient_scale, lr = (float)step->lr;
    const float momentum = (float)step->momentum, shrink = 1 - lr * (float)step->decay;
    if (!m) {
        for (long i = 0; i < n; ++i) w[i] = shrink * w[i] - lr * (g[i] * scale);
        return;
    }
    for (long i = 0; i < n; ++i) {
        m[i] = momentum * m[i] + g[i] * scale;
        w[i] = shrink * w[i] - lr * m[i];
    }
}

static void piece(const void *arg, long index)
{
    const struct call *c = arg;
    const struct tr_range part = tr_range_at(c->n, TR_PIECE_FLOATS, index);
    const long at = part.first;
    update(c->w + at, c->g + at, c->m ? c->m + at : NULL, part.n, c->step);
}

void TR_OP(sgd)(float *w, const float *g, float *m, size_t n, const struct tr_sgd_step *step)
{
    const struct call call = {w, g, m, (long)n, step};
    tr_pool_run(piece, &call, tr_ranges(call.n, TR_PIECE_FLOATS));
}
