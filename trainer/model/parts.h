/* What the blocks and the two ends of the model share. */
#ifndef TR_PARTS_H
#define TR_PARTS_H

#include "model.h"

/* A tensor within the elements of its unit; NULL for a tensor that the model lacks (-1). */
const struct tr_data *tr_weight(const struct tr_pass *pass, const struct tr_data *unit, int param);
struct tr_data *tr_gradient(const struct tr_pass *pass, struct tr_data *unit, int param);

/* A norm over the rows that this rank owns. */
struct tr_norm {
    struct tr_data *y;  /* [own, h] */
    float *mean, *rstd; /* [own] each */
    int w, b;
};
struct tr_norm_kind {
    void (*forward)(const struct tr_pass *pass, const struct tr_norm *norm,
                    const struct tr_data *unit, const struct tr_data *x);
    /* dx[own, h] += */
    void (*backward)(const struct tr_pass *pass, const struct tr_norm *norm,
                     const struct tr_data *unit, struct tr_data *gradients, struct tr_data *dx,
                     const struct tr_data *dy, const struct tr_data *x);
};
extern const struct tr_norm_kind tr_layer_norm, tr_rms_norm; /* norms.c */

/* From the normalised rows x[rows, h] to active[rows, hidden]; and from their gradient in d_wide to
 * that of x, in d_all. */
struct tr_mlp_kind {
    void (*forward)(const struct tr_pass *pass, const struct tr_block *block,
                    struct tr_block_acts *acts, const struct tr_data *weights,
                    const struct tr_data *x);
    void (*backward)(const struct tr_pass *pass, const struct tr_block *block,
                     const struct tr_block_acts *acts, const struct tr_data *weights,
                     struct tr_data *gradients, const struct tr_data *x);
};
extern const struct tr_mlp_kind tr_plain_mlp, tr_swiglu_mlp; /* mlp.c */

/* The gradients of one more product x[rows, h] w[n, h]^T of the same x: dw and db +=, and its
 * summand of x's gradient is added to d_all. May take the room of x, which is read before. */
void tr_add_product(const struct tr_pass *pass, struct tr_data *dw, struct tr_data *db,
                    const struct tr_data *dy, const struct tr_data *x, const struct tr_data *w,
                    long n);

/* A table's rows and their number, for struct tr_architecture. */
#define TR_ROWS(table)                                                                             \
    {                                                                                              \
        table, sizeof table / sizeof table[0]                                                      \
    }

/* *all = own[own, h] of every rank of tp, in room[rows, h]; own itself where tp is 1. */
TR_NODISCARD tr_status tr_gather(const struct tr_pass *pass, struct tr_data *room,
                                 const struct tr_data *own, const struct tr_data **all);
/* *own = this rank's rows of the sum over tp of all[rows, h], in room[own, h]; all itself where tp
 * is 1. */
TR_NODISCARD tr_status tr_scatter(const struct tr_pass *pass, struct tr_data *room,
                                  struct tr_data *all, const struct tr_data **own);

#endif
