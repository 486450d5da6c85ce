/* The prototypes of one build of the operations; TR_ISA names the build. Included by ops/ files
 * only. */
#ifndef TR_OPS_TABLE_H
#define TR_OPS_TABLE_H

#include "simd.h"

void TR_OP(initialize)(float *x, size_t n, const struct tr_first_values *values, uint64_t first);
void TR_OP(add)(float *y, const float *x, size_t n);
tuttiResult_t TR_OP(add_on)(tuttiStream_t stream, const struct tr_addition *addition);
void TR_OP(add_residual)(float *y, const float *residual, const float *b, long rows, long n);
void TR_OP(copy_rows)(float *to, long to_stride, const float *from, long from_stride, long rows,
                      long width);
void TR_OP(add_rows)(float *to, long to_stride, const float *from, long from_stride, long rows,
                     long width);
void TR_OP(clear_rows)(float *x, long stride, long rows, long width);
void TR_OP(linear_forward)(float *y, const float *x, const float *w, const float *b,
                           const float *residual, long rows, long in, long out);
void TR_OP(linear_backward)(float *dx, float *dw, float *db, const float *dy, const float *x,
                            const float *w, long rows, long in, long out);
void TR_OP(norm_forward)(float *y, float *mean, float *rstd, const float *x, const float *gamma,
                         const float *beta, double epsilon, long rows, long n);
void TR_OP(norm_backward)(float *dx, float *dgamma, float *dbeta, const float *dy, const float *x,
                          const float *mean, const float *rstd, const float *gamma, long rows,
                          long n);
void TR_OP(rms_forward)(float *y, float *rstd, const float *x, const float *gamma, double epsilon,
                        long rows, long n);
void TR_OP(rms_backward)(float *dx, float *dgamma, const float *dy, const float *x,
                         const float *rstd, const float *gamma, long rows, long n);
#define ACTIVATION(NAME, name)                                                                     \
    void TR_OP(name##_forward)(float *y, const float *x, long n);                                  \
    void TR_OP(name##_backward)(float *dx, const float *dy, const float *x, long n);
#include "activation_table.h"
void TR_OP(swiglu_forward)(float *y, const float *gate, const float *up, long n);
void TR_OP(swiglu_backward)(float *dgate, float *dup, const float *dy, const float *gate,
                            const float *up, long n);
void TR_OP(rope)(float *x, const int32_t *positions, long rows, long heads, long size, long stride,
                 double theta, int direction);
void TR_OP(embed_forward)(float *x, const int32_t *ids, const float *table, long first, long count,
                          long rows, long n);
void TR_OP(embed_backward)(float *dtable, const float *dx, const int32_t *ids, long first,
                           long count, long rows, long n);
void TR_OP(place_forward)(float *x, const int32_t *positions, const float *table, long rows,
                          long n);
void TR_OP(place_backward)(float *dtable, const float *dx, const int32_t *positions, long rows,
                           long n);
void TR_OP(attention_forward)(float *out, float *lse, const float *q, const float *k,
                              const float *v, float *scratch, const struct tr_attention *shape);
void TR_OP(attention_backward)(float *dq, float *dk, float *dv, const float *dout, const float *out,
                               const float *lse, const float *q, const float *k, const float *v,
                               float *scratch, const struct tr_attention *shape);
void TR_OP(attention_merge)(float *out, float *lse, const float *out2, const float *lse2,
                            const struct tr_attention *shape);
void TR_OP(xent_max)(float *most, const float *logits, long rows, long n);
void TR_OP(xent_exp)(float *sum, float *right, float *logits, const float *most,
                     const int32_t *targets, long first, long rows, long n);
void TR_OP(xent_finish)(float *logits, double *loss, const float *sum, const float *right,
                        const float *most, const float *weight, const int32_t *targets, long first,
                        long rows, long n);
void TR_OP(loss)(float *logits, double *loss, const float *weight, const int32_t *targets,
                 long rows, long n);
void TR_OP(add_squares)(double sum[TR_SUM_DIGITS], const float *x, size_t n);
void TR_OP(exponential)(float *y, const float *x, long n);

/* The rule that an optimizer's file defines. */
#define TR_RULE(name) TR_OP(name##_rule)
#define OPTIMIZER(NAME, name) extern const struct tr_rule TR_RULE(name);
#include "optimizer_table.h"

#endif
