/* The prototypes of one build of the operations; TR_ISA names the build. Included by ops/ files
 * only. */
#ifndef TR_OPS_TABLE_H
#define TR_OPS_TABLE_H

#include "simd.h"

void TR_OP(linear_forward)(float *y, const float *x, const float *w, const float *b,
                           const float *residual, long rows, long in, long out);
void TR_OP(linear_backward)(float *dx, float *dw, float *db, const float *dy, const float *x,
                            const float *w, long rows, long in, long out);
void TR_OP(norm_forward)(float *y, float *mean, float *rstd, const float *x, const float *gamma,
                         const float *beta, long rows, long n);
void TR_OP(norm_backward)(float *dx, float *dgamma, float *dbeta, const float *dy, const float *x,
                          const float *mean, const float *rstd, const float *gamma, long rows,
                          long n);
void TR_OP(gelu_forward)(float *y, const float *x, long n);
void TR_OP(gelu_backward)(float *dx, const float *dy, const float *x, long n);
void TR_OP(embed_forward)(float *x, const unsigned char *tokens, const float *token_table,
                          const float *place_table, long batch, long context, long n);
void TR_OP(embed_backward)(float *dtoken_table, float *dplace_table, const float *dx,
                           const unsigned char *tokens, long batch, long context, long n);
void TR_OP(attention_forward)(float *y, float *lse, const float *qkv, float *scratch, long batch,
                              long context, long n, long heads);
void TR_OP(attention_backward)(float *dqkv, const float *dy, const float *y, const float *lse,
                               const float *qkv, float *scratch, long batch, long context, long n,
                               long heads);
double TR_OP(loss)(float *logits, const unsigned char *targets, long rows, long n);
double TR_OP(sum_of_squares)(const float *x, size_t n);
void TR_OP(adamw)(float *w, const float *g, float *m, float *v, size_t n,
                  const struct tr_adamw_step *step);
void TR_OP(exponential)(float *y, const float *x, long n);

#endif
