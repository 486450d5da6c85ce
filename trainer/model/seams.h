/* Where the model needs other ranks: it calls these, and parallel/parallel.c fills them in, also
 * for one rank. */
#ifndef TR_SEAMS_H
#define TR_SEAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "../ops/backend.h"
#include "../status.h"

/* One attention over all tokens of the sequences, of which this rank has batch * context rows.
 * Causality follows from the places of the ranks' tokens in the sequence, which the seam knows. */
struct tr_attend {
    long batch, context;      /* sequences; this rank's tokens of each */
    long heads, kv_heads, d;  /* this rank's heads */
    long group, phase;        /* query head h uses kv head (h + phase) / group */
    long q_stride, kv_stride; /* elements from one token to the next in q, dq; in k, v, dk, dv */
    const struct tr_data *q, *k,
        *v;              /* [batch, context, heads d], [batch, context, kv_heads d] twice */
    struct tr_data *out; /* [batch, context, heads d]: written by forward, read by backward */
    void *room;          /* tr_seams.attend_room bytes, kept from forward to backward */
    const struct tr_data *dout;   /* backward only */
    struct tr_data *dq, *dk, *dv; /* backward only; = (the seam overwrites) */
};

struct tr_seams {
    void *arg;
    int tp; /* ranks that cut the model; 1: gather and scatter are never called */

    /* all[tp * own, n] = every tp rank's own[own, n], in order of rank. */
    tr_status (*gather)(void *arg, struct tr_data *all, const struct tr_data *mine, long own,
                        long n);
    /* mine[own, n] = this rank's rows of the sum over tp of all[tp * own, n], which may be lost. */
    tr_status (*scatter)(void *arg, struct tr_data *mine, struct tr_data *all, long own, long n);

    tr_status (*attend_forward)(void *arg, const struct tr_attend *call);
    tr_status (*attend_backward)(void *arg, const struct tr_attend *call);
    /* Bytes that attend keeps for backward of such a call. */
    size_t (*attend_room)(void *arg, const struct tr_attend *shape);

    /* *loss += the sum over rows of weights[row] * -log softmax(whole logits of the row)[target],
     * unless loss is NULL; this rank has the columns [first, first + n). Leaves the gradient in
     * logits[rows, n]. Every rank of tp gets the same sum. */
    tr_status (*loss)(void *arg, struct tr_data *logits, const int32_t *targets,
                      const float *weights, long first, long rows, long n, double *loss);
};

#endif
