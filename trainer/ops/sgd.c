/* Stochastic gradient descent with momentum:
 *     m  = momentum m + scale g
 *     w -= lr (m + decay w)
 * States: m of every tensor; none when momentum is 0. */
#include "share.h"
#include "simd.h"
#include "table.h"

static int states(const struct tr_optimizer *how, const struct tr_subject *subject,
                  enum tr_state_shape shapes[TR_MOST_STATES])
{
    (void)subject;
    shapes[0] = TR_STATE_TENSOR;
    return how->momentum != 0;
}

static void update_part(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                        const double *sums)
{
    (void)sums;
    const size_t n = piece->count;
    float *w = piece->w, *m = piece->states[0];
    const float *g = (const float *)piece->g;
    const float scale = (float)piece->scale, lr = (float)how->lr;
    const float momentum = (float)how->momentum, shrink = 1 - lr * (float)piece->decay;
    if (!m) {
        for (size_t i = 0; i < n; ++i) w[i] = shrink * w[i] - lr * (g[i] * scale);
        return;
    }
    for (size_t i = 0; i < n; ++i) {
        m[i] = momentum * m[i] + g[i] * scale;
        w[i] = shrink * w[i] - lr * m[i];
    }
}

static void update(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                   const double *sums)
{
    tr_share(update_part, how, piece, sums);
}

const struct tr_rule TR_RULE(sgd) = {.name = "sgd", .states = states, .update = update};
