/* One build's operations as a table, for tensors of TR_FP32: the operations get floats. */
#include "host.h"
#include "table.h"

static float *floats(struct tr_data *data)
{
    return (float *)data;
}

static const float *numbers(const struct tr_data *data)
{
    return (const float *)data;
}

static void read_activations(float *host, const struct tr_data *x, size_t n)
{
    tr_host_copy(host, x, n * sizeof *host);
}

static void add(struct tr_data *y, const struct tr_data *x, size_t n)
{
    TR_OP(add)(floats(y), numbers(x), n);
}

static void add_residual(struct tr_data *y, const struct tr_data *residual, const struct tr_data *b,
                         long rows, long n)
{
    TR_OP(add_residual)(floats(y), numbers(residual), numbers(b), rows, n);
}

static void copy_rows(struct tr_data *to, long to_stride, const struct tr_data *from,
                      long from_stride, long rows, long width, enum tr_type type)
{
    (void)type; /* all are TR_FP32 */
    TR_OP(copy_rows)(floats(to), to_stride, numbers(from), from_stride, rows, width);
}

static void add_rows(struct tr_data *to, long to_stride, const struct tr_data *from,
                     long from_stride, long rows, long width)
{
    TR_OP(add_rows)(floats(to), to_stride, numbers(from), from_stride, rows, width);
}

static void clear_rows(struct tr_data *x, long stride, long rows, long width)
{
    TR_OP(clear_rows)(floats(x), stride, rows, width);
}

static void linear_forward(struct tr_data *y, const struct tr_data *x, const struct tr_data *w,
                           const struct tr_data *b, const struct tr_data *residual, long rows,
                           long in, long out)
{
    TR_OP(linear_forward)
    (floats(y), numbers(x), numbers(w), numbers(b), numbers(residual), rows, in, out);
}

static void linear_backward(struct tr_data *dx, struct tr_data *dw, struct tr_data *db,
                            const struct tr_data *dy, const struct tr_data *x,
                            const struct tr_data *w, long rows, long in, long out)
{
    TR_OP(linear_backward)
    (floats(dx), floats(dw), floats(db), numbers(dy), numbers(x), numbers(w), rows, in, out);
}

static void norm_forward(struct tr_data *y, float *mean, float *rstd, const struct tr_data *x,
                         const struct tr_data *gamma, const struct tr_data *beta, double epsilon,
                         long rows, long n)
{
    TR_OP(norm_forward)
    (floats(y), mean, rstd, numbers(x), numbers(gamma), numbers(beta), epsilon, rows, n);
}

static void norm_backward(struct tr_data *dx, struct tr_data *dgamma, struct tr_data *dbeta,
                          const struct tr_data *dy, const struct tr_data *x, const float *mean,
                          const float *rstd, const struct tr_data *gamma, long rows, long n)
{
    TR_OP(norm_backward)
    (floats(dx), floats(dgamma), floats(dbeta), numbers(dy), numbers(x), mean, rstd, numbers(gamma),
     rows, n);
}

static void rms_forward(struct tr_data *y, float *rstd, const struct tr_data *x,
                        const struct tr_data *gamma, double epsilon, long rows, long n)
{
    TR_OP(rms_forward)(floats(y), rstd, numbers(x), numbers(gamma), epsilon, rows, n);
}

static void rms_backward(struct tr_data *dx, struct tr_data *dgamma, const struct tr_data *dy,
                         const struct tr_data *x, const float *rstd, const struct tr_data *gamma,
                         long rows, long n)
{
    TR_OP(rms_backward)
    (floats(dx), floats(dgamma), numbers(dy), numbers(x), rstd, numbers(gamma), rows, n);
}

#define ACTIVATION(NAME, name)                                                                     \
    static void name##_forward(struct tr_data *y, const struct tr_data *x, long n)                 \
    {                                                                                              \
        TR_OP(name##_forward)(floats(y), numbers(x), n);                                           \
    }                                                                                              \
    static void name##_backward(struct tr_data *dx, const struct tr_data *dy,                      \
                                const struct tr_data *x, long n)                                   \
    {                                                                                              \
        TR_OP(name##_backward)(floats(dx), numbers(dy), numbers(x), n);                            \
    }
#include "activation_table.h"

static void swiglu_forward(struct tr_data *y, const struct tr_data *gate, const struct tr_data *up,
                           long n)
{
    TR_OP(swiglu_forward)(floats(y), numbers(gate), numbers(up), n);
}

static void swiglu_backward(struct tr_data *dgate, struct tr_data *dup, const struct tr_data *dy,
                            const struct tr_data *gate, const struct tr_data *up, long n)
{
    TR_OP(swiglu_backward)(floats(dgate), floats(dup), numbers(dy), numbers(gate), numbers(up), n);
}

static void rope(struct tr_data *x, const int32_t *positions, long rows, long heads, long size,
                 long stride, double theta, int direction)
{
    TR_OP(rope)(floats(x), positions, rows, heads, size, stride, theta, direction);
}

static void embed_forward(struct tr_data *x, const int32_t *ids, const struct tr_data *table,
                          long first, long count, long rows, long n)
{
    TR_OP(embed_forward)(floats(x), ids, numbers(table), first, count, rows, n);
}

static void embed_backward(struct tr_data *dtable, const struct tr_data *dx, const int32_t *ids,
                           long first, long count, long rows, long n)
{
    TR_OP(embed_backward)(floats(dtable), numbers(dx), ids, first, count, rows, n);
}

static void place_forward(struct tr_data *x, const int32_t *positions, const struct tr_data *table,
                          long rows, long n)
{
    TR_OP(place_forward)(floats(x), positions, numbers(table), rows, n);
}

static void place_backward(struct tr_data *dtable, const struct tr_data *dx,
                           const int32_t *positions, long rows, long n)
{
    TR_OP(place_backward)(floats(dtable), numbers(dx), positions, rows, n);
}

static void attention_forward(struct tr_data *out, float *lse, const struct tr_data *q,
                              const struct tr_data *k, const struct tr_data *v, float *scratch,
                              const struct tr_attention *shape)
{
    TR_OP(attention_forward)(floats(out), lse, numbers(q), numbers(k), numbers(v), scratch, shape);
}

static void attention_backward(struct tr_data *dq, struct tr_data *dk, struct tr_data *dv,
                               const struct tr_data *dout, const struct tr_data *out,
                               const float *lse, const struct tr_data *q, const struct tr_data *k,
                               const struct tr_data *v, float *scratch,
                               const struct tr_attention *shape)
{
    TR_OP(attention_backward)
    (floats(dq), floats(dk), floats(dv), numbers(dout), numbers(out), lse, numbers(q), numbers(k),
     numbers(v), scratch, shape);
}

static void attention_merge(struct tr_data *out, float *lse, const struct tr_data *out2,
                            const float *lse2, const struct tr_attention *shape)
{
    TR_OP(attention_merge)(floats(out), lse, numbers(out2), lse2, shape);
}

static void xent_max(float *most, const struct tr_data *logits, long rows, long n)
{
    TR_OP(xent_max)(most, numbers(logits), rows, n);
}

static void xent_exp(float *sum, float *right, struct tr_data *logits, const float *most,
                     const int32_t *targets, long first, long rows, long n)
{
    TR_OP(xent_exp)(sum, right, floats(logits), most, targets, first, rows, n);
}

static void xent_finish(struct tr_data *logits, double *loss, const float *sum, const float *right,
                        const float *most, const float *weight, const int32_t *targets, long first,
                        long rows, long n)
{
    TR_OP(xent_finish)(floats(logits), loss, sum, right, most, weight, targets, first, rows, n);
}

static void loss(struct tr_data *logits, double *loss, const float *weight, const int32_t *targets,
                 long rows, long n)
{
    TR_OP(loss)(floats(logits), loss, weight, targets, rows, n);
}

static void add_squares(double sum[TR_SUM_DIGITS], const struct tr_data *x, size_t n)
{
    TR_OP(add_squares)(sum, numbers(x), n);
}

#define TR_STRING_(x) #x
#define TR_STRING(x) TR_STRING_(x)

extern const struct tr_backend TR_OP(backend);
const struct tr_backend TR_OP(backend) = {
    .name = TR_STRING(TR_ISA),
    .types = {.weights = TR_FP32, .activations = TR_FP32, .gradients = TR_FP32},
    .wait = tr_host_wait,
    .take = tr_host_take,
    .give = tr_host_give,
    .write = tr_host_copy,
    .read = tr_host_copy,
    .clear = tr_host_clear,
    .read_activations = read_activations,
    .initialize = TR_OP(initialize),
    .checksum = tr_host_checksum,
    .find_not_finite = tr_host_find_not_finite,
    .add = add,
    .add_on = TR_OP(add_on),
    .add_residual = add_residual,
    .copy_rows = copy_rows,
    .add_rows = add_rows,
    .clear_rows = clear_rows,
    .linear_forward = linear_forward,
    .linear_backward = linear_backward,
    .norm_forward = norm_forward,
    .norm_backward = norm_backward,
    .rms_forward = rms_forward,
    .rms_backward = rms_backward,
    .activations =
        {
#define ACTIVATION(NAME, name) [TR_##NAME] = {name##_forward, name##_backward},
#include "activation_table.h"
        },
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .rope = rope,
    .embed_forward = embed_forward,
    .embed_backward = embed_backward,
    .place_forward = place_forward,
    .place_backward = place_backward,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .attention_merge = attention_merge,
    .xent_max = xent_max,
    .xent_exp = xent_exp,
    .xent_finish = xent_finish,
    .loss = loss,
    .add_squares = add_squares,
    .optimizers =
        {
#define OPTIMIZER(NAME, name) [TR_##NAME] = &TR_RULE(name),
#include "optimizer_table.h"
        },
    .exponential = TR_OP(exponential),
};
