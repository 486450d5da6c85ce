/* The mathematics: one operation a file, forward and backward side by side, on raw pointers with
 * shapes in the comments. Built three times, for plain x86-64, AVX2 and AVX-512, and chosen once.
 *
 * Matrices are row-major. "+=" in a comment: adds to what is there; "=": overwrites. Nothing
 * allocates. */
#ifndef TR_OPS_H
#define TR_OPS_H

#include <stddef.h>

/* What one step of AdamW needs beside the tensors. */
struct tr_adamw_step {
    float gradient_scale; /* 1 / tokens, times the clipping coefficient */
    float lr, beta1, beta2, eps;
    float decay;              /* 0 for tensors that do not decay */
    float correct1, correct2; /* 1 / (1 - beta^t) */
};

struct tr_ops {
    const char *name; /* v4, v3 or baseline */

    /* y[rows,out] = x[rows,in] w[out,in]^T + b[out] (+ residual[rows,out] unless NULL) */
    void (*linear_forward)(float *y, const float *x, const float *w, const float *b,
                           const float *residual, long rows, long in, long out);
    /* dx[rows,in] = dy w; dw[out,in] += dy^T x; db[out] += column sums of dy (b NULL: no bias) */
    void (*linear_backward)(float *dx, float *dw, float *db, const float *dy, const float *x,
                            const float *w, long rows, long in, long out);

    /* y = (x - mean) * rstd * gamma + beta for each row of n; mean[rows] and rstd[rows] are kept */
    void (*norm_forward)(float *y, float *mean, float *rstd, const float *x, const float *gamma,
                         const float *beta, long rows, long n);
    /* dx[rows,n] += ...; dgamma[n] += ...; dbeta[n] += ... */
    void (*norm_backward)(float *dx, float *dgamma, float *dbeta, const float *dy, const float *x,
                          const float *mean, const float *rstd, const float *gamma, long rows,
                          long n);

    /* y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    void (*gelu_forward)(float *y, const float *x, long n);
    /* dx = dy * derivative at x; dx may be dy */
    void (*gelu_backward)(float *dx, const float *dy, const float *x, long n);

    /* x[b,t,n] = token_table[tokens[b,t]] + place_table[t] */
    void (*embed_forward)(float *x, const unsigned char *tokens, const float *token_table,
                          const float *place_table, long batch, long context, long n);
    /* both tables += the rows of dx that used them */
    void (*embed_backward)(float *dtoken_table, float *dplace_table, const float *dx,
                           const unsigned char *tokens, long batch, long context, long n);

    /* Causal attention: qkv[b,t,3n] holds q, k, v, each heads x n/heads; y[b,t,n]. lse[b,heads,t],
     * the logarithm of each row's sum, is kept for backward. scratch: tr_attention_scratch(context)
     * floats. */
    void (*attention_forward)(float *y, float *lse, const float *qkv, float *scratch, long batch,
                              long context, long n, long heads);
    /* dqkv[b,t,3n] = ... */
    void (*attention_backward)(float *dqkv, const float *dy, const float *y, const float *lse,
                               const float *qkv, float *scratch, long batch, long context, long n,
                               long heads);

    /* The sum over rows of -log softmax(logits[row])[targets[row]], in row order. Leaves the
     * gradient of that sum in logits[rows,n]. */
    double (*loss)(float *logits, const unsigned char *targets, long rows, long n);

    /* Over n floats, in a fixed order in double. */
    double (*sum_of_squares)(const float *x, size_t n);

    /* One AdamW step over n floats; see optim/adamw.h for the constants. */
    void (*adamw)(float *w, const float *g, float *m, float *v, size_t n,
                  const struct tr_adamw_step *step);

    /* y[i] = exp(x[i]): what the others are made of, here for its test. Relative error below 2e-7
     * (2 ulp) for x in [-87, 88]; 0 below -87.3; saturates above 88. */
    void (*exponential)(float *y, const float *x, long n);
};

/* The best table this processor can run, or the one called `name`; NULL when there is none of that
 * name or the processor cannot run it. */
const struct tr_ops *tr_ops_choose(const char *name);

/* Queries that attention takes at a time, and the floats of scratch it needs. */
enum { TR_ATTENTION_BLOCK = 64 };
size_t tr_attention_scratch(long context);

/* c[m,n] = alpha op(a) op(b) + beta c, through oneDNN; `a` is transposed when ta is 'T' (then
 * stored [k,m]). */
void tr_gemm(char ta, char tb, long m, long n, long k, float alpha, const float *a, long lda,
             const float *b, long ldb, float beta, float *c, long ldc);

#endif
