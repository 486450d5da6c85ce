/* What the blocks and the two ends of the model share. */
#ifndef TR_PARTS_H
#define TR_PARTS_H

#include "model.h"

/* A tensor within the floats of its unit; NULL for a tensor that the model lacks (-1). */
const float *tr_weight(const struct tr_pass *pass, const float *unit, int param);
float *tr_gradient(const struct tr_pass *pass, float *unit, int param);

/* A norm over the rows that this rank owns. */
struct tr_norm {
    float *y, *mean, *rstd; /* [own, h], [own], [own] */
    int w, b;
};
struct tr_norm_kind {
    void (*forward)(const struct tr_pass *pass, const struct tr_norm *norm, const float *unit,
                    const float *x);
    /* dx[own, h] += */
    void (*backward)(const struct tr_pass *pass, const struct tr_norm *norm, const float *unit,
                     float *gradients, float *dx, const float *dy, const float *x);
};
extern const struct tr_norm_kind tr_layer_norm, tr_rms_norm; /* norms.c */

/* From the normalised rows x[rows, h] to active[rows, hidden]; and from their gradient in d_wide to
 * that of x, in d_all. */
struct tr_mlp_kind {
    void (*forward)(const struct tr_pass *pass, const struct tr_block *block,
                    struct tr_block_acts *acts, const float *weights, const float *x);
    void (*backward)(const struct tr_pass *pass, const struct tr_block *block,
                     const struct tr_block_acts *acts, const float *weights, float *gradients,
                     const float *x);
};
extern const struct tr_mlp_kind tr_gelu_mlp, tr_swiglu_mlp; /* mlp.c */

/* The gradients of one more product x[rows, h] w[n, h]^T of the same x: dw and db +=, and its
 * summand of x's gradient is added to d_all. May take the room of x, which is read before. */
void tr_add_product(const struct tr_pass *pass, float *dw, float *db, const float *dy,
                    const float *x, const float *w, long n);

/* A table's rows and their number, for struct tr_architecture. */
#define TR_ROWS(table)                                                                             \
    {                                                                                              \
        table, sizeof table / sizeof table[0]                                                      \
    }

/* *all = own[own, h] of every rank of tp, in room[rows, h]; own itself where tp is 1. */
TR_NODISCARD tr_status tr_gather(const struct tr_pass *pass, float *room, const float *own,
                                 const float **all);
/* *own = this rank's rows of the sum over tp of all[rows, h], in room[own, h]; all itself where tp
 * is 1. */
TR_NODISCARD tr_status tr_scatter(const struct tr_pass *pass, float *room, float *all,
                                  const float **own);

#endif
