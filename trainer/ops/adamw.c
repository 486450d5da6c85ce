/* AdamW (Loshchilov, Hutter, "Decoupled weight decay regularization", ICLR 2019), step number t
 * from 1:
 *     g' = scale g
 *     m  = b1 m + (1 - b1) g'
 *     v  = b2 v + (1 - b2) g'^2
 *     w -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay w)
 * States: m and v of every tensor. */
#include "share.h"
#include "simd.h"
#include "table.h"

#include <math.h>

static int states(const struct tr_optimizer *how, const struct tr_subject *subject,
                  enum tr_state_shape shapes[TR_MOST_STATES])
{
    (void)how;
    (void)subject;
    shapes[0] = shapes[1] = TR_STATE_TENSOR;
    return 2;
}

static void update_part(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                        const double *sums)
{
    (void)sums;
    const size_t n = piece->count;
    float *w = piece->w, *m = piece->states[0], *v = piece->states[1];
    const float *g = (const float *)piece->g;
    const float scale = (float)piece->scale, lr = (float)how->lr, eps = (float)how->eps;
    const float keep1 = (float)how->beta1, take1 = (float)(1 - how->beta1);
    const float keep2 = (float)how->beta2, take2 = (float)(1 - how->beta2);
    const float correct1 = (float)(1 / (1 - pow(how->beta1, (double)how->t)));
    const float correct2 = (float)(1 / (1 - pow(how->beta2, (double)how->t)));
    const float shrink = 1 - lr * (float)piece->decay;
    for (size_t i = 0; i < n; ++i) {
        const float gradient = g[i] * scale;
        m[i] = keep1 * m[i] + take1 * gradient;
        v[i] = keep2 * v[i] + take2 * gradient * gradient;
        const float mean = m[i] * correct1, square = v[i] * correct2;
        w[i] = shrink * w[i] - lr * mean / (sqrtf(square) + eps);
    }
}

static void update(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                   const double *sums)
{
    tr_share(update_part, how, piece, sums);
}

const struct tr_rule TR_RULE(adamw) = {.name = "adamw", .states = states, .update = update};
