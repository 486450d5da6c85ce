/* A backend holds tensors and computes on them: memory, order, and the mathematics, one operation a
 * file, forward and backward side by side, with shapes in the comments. The only backend is the
 * host, built three times, for plain x86-64, AVX2 and AVX-512, and chosen once.
 *
 * Tensors are weights, gradients, optimizer state, activations, the tokens of a micro-batch and the
 * sums of a step. They lie in the backend's memory, which only its functions and collectives read
 * and write: all other code works out addresses and passes them on (tests/house/tensors.sh).
 * Operations run in the order of their calls, on `stream`; so do the collectives between them.
 *
 * Elements of tensors have the storage types of the backend (tensor_type.h), but for those numbers
 * that are `float` whatever the types are. Unless a comment says otherwise, weights w, b, gamma,
 * beta and table are of types.weights, the gradients that are added to them (dw, db, dgamma, dbeta,
 * dtable) of types.gradients, and all others are activations, of types.activations.
 *
 * Matrices are row-major. "+=" in a comment: adds to what is there; "=": overwrites. A backward
 * function has an input half (gradients of activations) and a weight half (gradients of
 * parameters); where a comment says so, a NULL output leaves that part out, and the rest gets the
 * same bits as without NULL. A size may be 0. Nothing allocates. */
#ifndef TR_BACKEND_H
#define TR_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "activation.h"
#include "optimizer.h"
#include "tensor_type.h"
#include "tutti.h"

/* The first values of a tensor: element i is mean + deviation * normal number i of (seed, stream).
 * Normal numbers are Box and Muller's, of the four words of counter i (random.h, for weights):
 * sqrt(-2 log(1 - u)) cos(2 pi v), with u and v of 53 bits each, in [0, 1). */
struct tr_first_values {
    double mean, deviation;
    uint64_t seed;
    uint32_t stream;
};

/* y[n] += x[n] of gradients, later */
struct tr_addition {
    struct tr_data *y;
    const struct tr_data *x;
    size_t n;
};

/* The shapes of one attention. q and dq are [batch, queries] rows of q_stride elements, of which
 * heads * size are used; k, v, dk and dv are [batch, keys] rows of kv_stride; out and dout are
 * [batch, queries] rows of out_stride; lse is [batch, heads, queries]. So the three may lie in one
 * packed matrix. Query head h uses kv head (h + phase) / group; query i sees key j when
 * j <= i + offset. */
struct tr_attention {
    long batch, queries, keys;
    long heads, size; /* query heads of this call; elements of a head */
    long group;       /* query heads that share a kv head */
    long phase;       /* first query head of this call minus the first that its kv head 0 serves */
    long q_stride, kv_stride, out_stride;
    long offset; /* 0: causal; keys - 1 and more: every key; may be negative */
};

/* An exact sum of squares: integers below 2^32 that count 2^TR_SUM_LOWEST, that times 2^32, and so
 * on. Those of up to 2^21 ranks are added digit by digit without rounding. */
enum { TR_SQUARES_BLOCK = 1024, TR_SUM_DIGITS = 21, TR_SUM_LOWEST = -384 };

struct tr_backend {
    const char *name; /* v4, v3 or baseline */
    struct tr_types types;
    tuttiStream_t stream; /* of the operations; NULL: they run on the calling thread and its pool
                           * (pool.h), and have run when they return */

    /* Until the operations called so far have run: before another stream reads what they wrote. */
    void (*wait)(void);

    /* nbytes of memory, zeroed; a multiple of TR_MEMORY_UNIT. `shared`: other ranks of the host can
     * read it in place (tuttiMemAlloc). NULL when there is none. */
    void *(*take)(size_t nbytes, bool shared);
    void (*give)(void *memory, bool shared);
    /* Between the host's memory and a tensor; read waits. So do checksum and find_not_finite. */
    void (*write)(void *tensor, const void *host, size_t nbytes);
    void (*read)(void *host, const void *tensor, size_t nbytes);
    /* tensor = zeros */
    void (*clear)(void *tensor, size_t nbytes);
    /* host[n] = the values of n activations; waits */
    void (*read_activations)(float *host, const struct tr_data *x, size_t n);
    /* x[n] of masters = the values of elements first .. first + n - 1. NULL: memory keeps no
     * values. */
    void (*initialize)(float *x, size_t n, const struct tr_first_values *values, uint64_t first);
    /* Only to compare ranks of one run; never stored, since the formula may change. */
    uint64_t (*checksum)(const void *tensor, size_t nbytes);
    /* The first of n masters, or numbers of a state, that is infinite or not a number; n when there
     * is none */
    size_t (*find_not_finite)(const float *x, size_t n);
    /* w[n] = masters[n], rounded; NULL where weights are TR_FP32, which are their own masters */
    void (*round_masters)(struct tr_data *w, const float *masters, size_t n);

    /* y[n] += x[n] */
    void (*add)(struct tr_data *y, const struct tr_data *x, size_t n);
    /* Adds on another stream, behind what is there; *addition must stay until then */
    tuttiResult_t (*add_on)(tuttiStream_t stream, const struct tr_addition *addition);
    /* y[rows,n] += residual[rows,n] + b[n], without b when NULL */
    void (*add_residual)(struct tr_data *y, const struct tr_data *residual, const struct tr_data *b,
                         long rows, long n);
    /* Rows that lie apart, `width` elements of every `stride`: to = from, of any type; to += from;
     * x = 0 */
    void (*copy_rows)(struct tr_data *to, long to_stride, const struct tr_data *from,
                      long from_stride, long rows, long width, enum tr_type type);
    void (*add_rows)(struct tr_data *to, long to_stride, const struct tr_data *from,
                     long from_stride, long rows, long width);
    void (*clear_rows)(struct tr_data *x, long stride, long rows, long width);

    /* y[rows,out] = x[rows,in] w[out,in]^T (+ b[out] unless NULL) (+ residual[rows,out] unless
     * NULL) */
    void (*linear_forward)(struct tr_data *y, const struct tr_data *x, const struct tr_data *w,
                           const struct tr_data *b, const struct tr_data *residual, long rows,
                           long in, long out);
    /* dx[rows,in] = dy w; dw[out,in] += dy^T x; db[out] += column sums of dy. Each may be NULL;
     * then x (without dw) and w (without dx) are not read. */
    void (*linear_backward)(struct tr_data *dx, struct tr_data *dw, struct tr_data *db,
                            const struct tr_data *dy, const struct tr_data *x,
                            const struct tr_data *w, long rows, long in, long out);

    /* Layer norm. y = (x - mean) * rstd * gamma + beta for each row of n; mean[rows] and rstd[rows]
     * = 1 / sqrt(variance + epsilon) are kept */
    void (*norm_forward)(struct tr_data *y, float *mean, float *rstd, const struct tr_data *x,
                         const struct tr_data *gamma, const struct tr_data *beta, double epsilon,
                         long rows, long n);
    /* dx[rows,n] += unless NULL; dgamma[n] += and dbeta[n] += unless both are NULL */
    void (*norm_backward)(struct tr_data *dx, struct tr_data *dgamma, struct tr_data *dbeta,
                          const struct tr_data *dy, const struct tr_data *x, const float *mean,
                          const float *rstd, const struct tr_data *gamma, long rows, long n);

    /* RMS norm. y = x * rstd * gamma, rstd[rows] = 1 / sqrt(mean of squares + epsilon) is kept */
    void (*rms_forward)(struct tr_data *y, float *rstd, const struct tr_data *x,
                        const struct tr_data *gamma, double epsilon, long rows, long n);
    /* dx[rows,n] += unless NULL; dgamma[n] += unless NULL */
    void (*rms_backward)(struct tr_data *dx, struct tr_data *dgamma, const struct tr_data *dy,
                         const struct tr_data *x, const float *rstd, const struct tr_data *gamma,
                         long rows, long n);

    struct tr_activation activations[TR_NUM_ACTIVATIONS];

    /* y = gate / (1 + exp(-gate)) * up */
    void (*swiglu_forward)(struct tr_data *y, const struct tr_data *gate, const struct tr_data *up,
                           long n);
    /* dgate = ..., dup = ...; one of them may be dy */
    void (*swiglu_backward)(struct tr_data *dgate, struct tr_data *dup, const struct tr_data *dy,
                            const struct tr_data *gate, const struct tr_data *up, long n);

    /* In each of the heads of x[rows] (rows of `stride` elements), turns the pair of elements (i, i
     * + size/2) by positions[row] * theta^(-2i/size). direction 1: forward; -1: backward, applied
     * to the gradient. size is even. */
    void (*rope)(struct tr_data *x, const int32_t *positions, long rows, long heads, long size,
                 long stride, double theta, int direction);

    /* x[rows,n] = table[ids[row] - first] where first <= ids[row] < first + count, else 0 */
    void (*embed_forward)(struct tr_data *x, const int32_t *ids, const struct tr_data *table,
                          long first, long count, long rows, long n);
    /* dtable[count,n] += the rows of dx that used it */
    void (*embed_backward)(struct tr_data *dtable, const struct tr_data *dx, const int32_t *ids,
                           long first, long count, long rows, long n);

    /* x[rows,n] += table[positions[row]] */
    void (*place_forward)(struct tr_data *x, const int32_t *positions, const struct tr_data *table,
                          long rows, long n);
    /* dtable += the rows of dx that used it */
    void (*place_backward)(struct tr_data *dtable, const struct tr_data *dx,
                           const int32_t *positions, long rows, long n);

    /* out = softmax(q k^T / sqrt(size)) v over the keys that a query sees, lse = the logarithm of
     * the sum of the exponentials; 0 and -infinity where a query sees no key. scratch:
     * tr_attention_scratch(shape) floats. */
    void (*attention_forward)(struct tr_data *out, float *lse, const struct tr_data *q,
                              const struct tr_data *k, const struct tr_data *v, float *scratch,
                              const struct tr_attention *shape);
    /* dq +=, dk +=, dv += this call's keys' part, where out and lse are of the whole attention,
     * merged over all keys. The gradients have the strides of q, k and v. */
    void (*attention_backward)(struct tr_data *dq, struct tr_data *dk, struct tr_data *dv,
                               const struct tr_data *dout, const struct tr_data *out,
                               const float *lse, const struct tr_data *q, const struct tr_data *k,
                               const struct tr_data *v, float *scratch,
                               const struct tr_attention *shape);
    /* (out, lse) becomes the attention over its own keys and those of (out2, lse2). keys, group,
     * phase, offset and the strides of q and k are not used. */
    void (*attention_merge)(struct tr_data *out, float *lse, const struct tr_data *out2,
                            const float *lse2, const struct tr_attention *shape);

    /* Cross-entropy over a vocabulary that is cut into ranges, here [first, first + n). Between the
     * calls the caller takes the maximum of `most`, then the sums of `sum` and `right`, over the
     * ranges. most[rows] = the largest of each row of logits[rows,n] */
    void (*xent_max)(float *most, const struct tr_data *logits, long rows, long n);
    /* logits = exp(logits - most); sum[rows] = each row's sum of these; right[rows] = the logit of
     * the row's target, or 0 when the target is not in the range */
    void (*xent_exp)(float *sum, float *right, struct tr_data *logits, const float *most,
                     const int32_t *targets, long first, long rows, long n);
    /* logits = weight * (softmax - 1 at the target): the gradient of what is added to *loss unless
     * that is NULL, the sum of weight * -log softmax[target] in row order (the same for every
     * range). A row of weight 0 gives 0 whatever its logits and target are. */
    void (*xent_finish)(struct tr_data *logits, double *loss, const float *sum, const float *right,
                        const float *most, const float *weight, const int32_t *targets, long first,
                        long rows, long n);
    /* The three in one pass, for the whole vocabulary */
    void (*loss)(struct tr_data *logits, double *loss, const float *weight, const int32_t *targets,
                 long rows, long n);

    /* sum += the squares of gradients x[n]. The squares of each TR_SQUARES_BLOCK of them are added
     * in double, in a fixed order, a short last block as if it were filled up with zeros; the
     * blocks' sums are added exactly. Where a square is not finite, the last digit is infinite or
     * NaN. */
    void (*add_squares)(double sum[TR_SUM_DIGITS], const struct tr_data *x, size_t n);

    /* The optimizers: their operations are those of the rules. */
    const struct tr_rule *optimizers[TR_NUM_OPTIMIZERS];

    /* y[i] = exp(x[i]): what the others are made of, here for its test. Relative error below 2e-7
     * (2 ulp) for x in [-87, 88]; 0 below -87.3; saturates above 88. */
    void (*exponential)(float *y, const float *x, long n);
};

/* The best table this processor can run, or the one called `name`; NULL when there is none of that
 * name or the processor cannot run it. */
const struct tr_backend *tr_backend_choose(const char *name);
/* Which vector code such a table has, newer ones have higher numbers from 0 on; and the table of a
 * number. A processor that runs one runs all below. */
int tr_backend_level(const struct tr_backend *backend);
const struct tr_backend *tr_backend_at(int level);

/* Queries and keys that attention takes at a time, and the floats of scratch that a call of this
 * shape needs (it grows with the keys, up to TR_ATTENTION_KEYS, and with nothing else). */
enum {
    TR_ATTENTION_QUERIES = 64,
    TR_ATTENTION_KEYS = 1024,
    TR_ATTENTION_ROOM = 2 * TR_ATTENTION_QUERIES * TR_ATTENTION_KEYS /* of any shape */
};
size_t tr_attention_scratch(const struct tr_attention *shape);

enum { TR_MEMORY_UNIT = 2 << 20 }; /* a large page */

#endif
