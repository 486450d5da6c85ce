/* The mathematics of the oracle, one sequence at a time, in double. Arrays are row-major. Every
 * backward adds to the gradients d* that it is given. */
#ifndef TT_TESTS_TRAINER_ORACLE_OPS_H
#define TT_TESTS_TRAINER_ORACLE_OPS_H

#include <stdint.h>

/* y[rows, out] = x[rows, in] w[out, in]^T + b[out]; b and db may be NULL. */
void oracle_linear(double *y, const double *x, const double *w, const double *b, long rows, long in,
                   long out);
void oracle_linear_backward(double *dx, double *dw, double *db, const double *dy, const double *x,
                            const double *w, long rows, long in, long out);

/* y = gamma (x - mean) / sqrt(variance + 1e-5) + beta, for each row of n. */
void oracle_layer_norm(double *y, const double *x, const double *gamma, const double *beta,
                       long rows, long n);
void oracle_layer_norm_backward(double *dx, double *dgamma, double *dbeta, const double *dy,
                                const double *x, const double *gamma, long rows, long n);

/* y = gamma x / sqrt(mean of squares + 1e-5), for each row of n. */
void oracle_rms_norm(double *y, const double *x, const double *gamma, long rows, long n);
void oracle_rms_norm_backward(double *dx, double *dgamma, const double *dy, const double *x,
                              const double *gamma, long rows, long n);

/* GELU by its tanh formula, SiLU, and their derivatives. */
double oracle_gelu(double x);
double oracle_gelu_slope(double x);
double oracle_silu(double x);
double oracle_silu_slope(double x);

/* Turns the pairs (i, i + size/2) of each head of x[rows, heads, size] in place by the angle
 * row * theta^(-2i/size); direction -1 turns back, which is the backward. */
void oracle_rope(double *x, long rows, long heads, long size, double theta, int direction);

/* Causal attention of q[rows, heads, size] on k and v[rows, kv_heads, size]; query head h uses kv
 * head h / (heads / kv_heads). p[heads, rows, rows] = softmax of the scores, 0 above the diagonal.
 */
struct oracle_attention {
    long rows, heads, kv_heads, size;
};
void oracle_attend(double *out, double *p, const double *q, const double *k, const double *v,
                   const struct oracle_attention *a);
void oracle_attend_backward(double *dq, double *dk, double *dv, const double *dout, const double *p,
                            const double *q, const double *k, const double *v,
                            const struct oracle_attention *a);

/* weight * -log softmax(logits[n])[target]; logits become their gradient. */
double oracle_cross_entropy(double *logits, long n, int32_t target, double weight);

#endif
