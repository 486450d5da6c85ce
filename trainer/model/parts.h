/* What the blocks and the two ends of the model share. */
#ifndef TR_PARTS_H
#define TR_PARTS_H

#include "model.h"

/* A tensor within the floats of its unit; NULL for a tensor that the model lacks (-1). */
const float *tr_weight(const struct tr_pass *pass, const float *unit, int param);
float *tr_gradient(const struct tr_pass *pass, float *unit, int param);

/* A norm over the rows that this rank owns: LayerNorm or RMSNorm as the model has it. */
struct tr_norm {
    float *y, *mean, *rstd; /* [own, h], [own], [own] */
    int w, b;
};
void tr_norm_forward(const struct tr_pass *pass, const struct tr_norm *norm, const float *unit,
                     const float *x);
/* dx[own, h] += */
void tr_norm_backward(const struct tr_pass *pass, const struct tr_norm *norm, const float *unit,
                      float *gradients, float *dx, const float *dy, const float *x);

/* *all = own[own, h] of every rank of tp, in room[rows, h]; own itself where tp is 1. */
TR_NODISCARD tr_status tr_gather(const struct tr_pass *pass, float *room, const float *own,
                                 const float **all);
/* *own = this rank's rows of the sum over tp of all[rows, h], in room[own, h]; all itself where tp
 * is 1. */
TR_NODISCARD tr_status tr_scatter(const struct tr_pass *pass, float *room, float *all,
                                  const float **own);

#endif
