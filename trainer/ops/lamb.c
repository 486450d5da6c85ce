/* LAMB (You et al., "Large batch optimization for deep learning", ICLR 2020) as DeepSpeed's
 * FusedLamb computes it (csrc/lamb/fused_lamb_cuda_kernel.cu of 2026, bias_correction, and eps
 * outside of the root, both its defaults), step number t from 1:
 *     g' = scale g
 *     m  = b1 m + (1 - b1) g'
 *     v  = b2 v + (1 - b2) g'^2
 *     u  = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay w
 *     trust = |w| / |u| within [trust_min, trust_max]; 1 when |w| or |u| is 0
 *     w -= lr trust u
 * |w| and |u| are norms of the whole tensor, that of w before the update. States: m and v of every
 * tensor. */
#include "share.h"
#include "simd.h"
#include "table.h"

#include <math.h>

enum { SQUARES_OF_W, SQUARES_OF_U, NUM_SUMS, LANES_OF_SUMS = 8 };

static int states(const struct tr_optimizer *how, const struct tr_subject *subject,
                  enum tr_state_shape shapes[TR_MOST_STATES])
{
    return TR_RULE(adamw).states(how, subject, shapes);
}

static int nsums(const struct tr_optimizer *how, const struct tr_subject *subject)
{
    (void)how;
    (void)subject;
    return NUM_SUMS;
}

/* What is the same for all floats of a piece. */
struct terms {
    float correct1, correct2, eps, decay;
};

static struct terms terms_of(const struct tr_optimizer *how, const struct tr_tensor_piece *piece)
{
    return (struct terms){.correct1 = (float)(1 / (1 - pow(how->beta1, (double)how->t))),
                          .correct2 = (float)(1 / (1 - pow(how->beta2, (double)how->t))),
                          .eps = (float)how->eps,
                          .decay = (float)piece->decay};
}

INLINE float direction(float w, float m, float v, struct terms terms)
{
    return m * terms.correct1 / (sqrtf(v * terms.correct2) + terms.eps) + terms.decay * w;
}

static void measure(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                    double *sums)
{
    const struct terms terms = terms_of(how, piece);
    const float scale = (float)piece->scale;
    const float keep1 = (float)how->beta1, take1 = (float)(1 - how->beta1);
    const float keep2 = (float)how->beta2, take2 = (float)(1 - how->beta2);
    const float *w = piece->w, *g = (const float *)piece->g;
    float *m = piece->states[0], *v = piece->states[1];
    double weights[LANES_OF_SUMS] = {0}, directions[LANES_OF_SUMS] = {0};
    for (size_t i = 0; i < piece->count; ++i) {
        const float gradient = g[i] * scale;
        m[i] = keep1 * m[i] + take1 * gradient;
        v[i] = keep2 * v[i] + take2 * gradient * gradient;
        const double u = (double)direction(w[i], m[i], v[i], terms);
        weights[i % LANES_OF_SUMS] += (double)w[i] * (double)w[i];
        directions[i % LANES_OF_SUMS] += u * u;
    }
    sums[SQUARES_OF_W] = sums[SQUARES_OF_U] = 0;
    for (int i = 0; i < LANES_OF_SUMS; ++i) {
        sums[SQUARES_OF_W] += weights[i];
        sums[SQUARES_OF_U] += directions[i];
    }
}

static double trust_of(const struct tr_optimizer *how, const double *sums)
{
    const double w = sqrt(sums[SQUARES_OF_W]), u = sqrt(sums[SQUARES_OF_U]);
    if (w == 0 || u == 0) return 1;
    const double trust = w / u;
    return trust > how->trust_max   ? how->trust_max
           : trust < how->trust_min ? how->trust_min
                                    : trust;
}

static void update_part(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                        const double *sums)
{
    const struct terms terms = terms_of(how, piece);
    const float rate = (float)(how->lr * trust_of(how, sums));
    const float *m = piece->states[0], *v = piece->states[1];
    float *w = piece->w;
    for (size_t i = 0; i < piece->count; ++i) w[i] -= rate * direction(w[i], m[i], v[i], terms);
}

static void update(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                   const double *sums)
{
    tr_share(update_part, how, piece, sums);
}

const struct tr_rule TR_RULE(lamb) = {
    .name = "lamb", .states = states, .nsums = nsums, .measure = measure, .update = update};
