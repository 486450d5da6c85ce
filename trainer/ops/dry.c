/* The backend of a run that computes nothing: no memory, addresses that are never read, operations
 * that do nothing. What reads a tensor gets zeros. */
#include "dry.h"

#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

/* ---- Memory ------------------------------------------------------------------------------------
 */

/* Where memory seems to begin: no address from there on is one of a process, and sizes of up to
 * 2^62 bytes do not wrap around. */
static const uint64_t nowhere = UINT64_C(1) << 62;

static void *take(size_t nbytes, bool shared)
{
    return (void *)(uintptr_t)nowhere;
}

static void read_zeros(void *host, const void *tensor, size_t nbytes)
{
    memset(host, 0, nbytes);
}

static uint64_t checksum(const void *tensor, size_t nbytes)
{
    return 0;
}

static size_t find_not_finite(const float *x, size_t n)
{
    return n;
}

static tuttiResult_t add_on(tuttiStream_t stream, const struct tr_addition *addition)
{
    return tuttiSuccess;
}

/* ---- Operations --------------------------------------------------------------------------------
 */

static void wait(void) {}

static void give(void *memory, bool shared) {}

static void write_nothing(void *tensor, const void *host, size_t nbytes) {}

static void clear(void *tensor, size_t nbytes) {}

static void read_activations(float *host, const struct tr_data *x, size_t n)
{
    memset(host, 0, n * sizeof *host);
}

static void round_masters(struct tr_data *w, const float *masters, size_t n) {}

static void add(struct tr_data *y, const struct tr_data *x, size_t n) {}

static void add_residual(struct tr_data *y, const struct tr_data *residual, const struct tr_data *b,
                         long rows, long n)
{
}

static void copy_rows(struct tr_data *to, long to_stride, const struct tr_data *from,
                      long from_stride, long rows, long width, enum tr_type type)
{
}

static void add_rows(struct tr_data *to, long to_stride, const struct tr_data *from,
                     long from_stride, long rows, long width)
{
}

static void clear_rows(struct tr_data *x, long stride, long rows, long width) {}

static void linear_forward(struct tr_data *y, const struct tr_data *x, const struct tr_data *w,
                           const struct tr_data *b, const struct tr_data *residual, long rows,
                           long in, long out)
{
}

static void linear_backward(struct tr_data *dx, struct tr_data *dw, struct tr_data *db,
                            const struct tr_data *dy, const struct tr_data *x,
                            const struct tr_data *w, long rows, long in, long out)
{
}

static void norm_forward(struct tr_data *y, float *mean, float *rstd, const struct tr_data *x,
                         const struct tr_data *gamma, const struct tr_data *beta, double epsilon,
                         long rows, long n)
{
}

static void norm_backward(struct tr_data *dx, struct tr_data *dgamma, struct tr_data *dbeta,
                          const struct tr_data *dy, const struct tr_data *x, const float *mean,
                          const float *rstd, const struct tr_data *gamma, long rows, long n)
{
}

static void rms_forward(struct tr_data *y, float *rstd, const struct tr_data *x,
                        const struct tr_data *gamma, double epsilon, long rows, long n)
{
}

static void rms_backward(struct tr_data *dx, struct tr_data *dgamma, const struct tr_data *dy,
                         const struct tr_data *x, const float *rstd, const struct tr_data *gamma,
                         long rows, long n)
{
}

static void activate(struct tr_data *y, const struct tr_data *x, long n) {}

static void activate_backward(struct tr_data *dx, const struct tr_data *dy, const struct tr_data *x,
                              long n)
{
}

static void swiglu_forward(struct tr_data *y, const struct tr_data *gate, const struct tr_data *up,
                           long n)
{
}

static void swiglu_backward(struct tr_data *dgate, struct tr_data *dup, const struct tr_data *dy,
                            const struct tr_data *gate, const struct tr_data *up, long n)
{
}

static void rope(struct tr_data *x, const int32_t *positions, long rows, long heads, long size,
                 long stride, double theta, int direction)
{
}

static void embed_forward(struct tr_data *x, const int32_t *ids, const struct tr_data *table,
                          long first, long count, long rows, long n)
{
}

static void embed_backward(struct tr_data *dtable, const struct tr_data *dx, const int32_t *ids,
                           long first, long count, long rows, long n)
{
}

static void place_forward(struct tr_data *x, const int32_t *positions, const struct tr_data *table,
                          long rows, long n)
{
}

static void place_backward(struct tr_data *dtable, const struct tr_data *dx,
                           const int32_t *positions, long rows, long n)
{
}

static void attention_forward(struct tr_data *out, float *lse, const struct tr_data *q,
                              const struct tr_data *k, const struct tr_data *v, float *scratch,
                              const struct tr_attention *shape)
{
}

static void attention_backward(struct tr_data *dq, struct tr_data *dk, struct tr_data *dv,
                               const struct tr_data *dout, const struct tr_data *out,
                               const float *lse, const struct tr_data *q, const struct tr_data *k,
                               const struct tr_data *v, float *scratch,
                               const struct tr_attention *shape)
{
}

static void attention_merge(struct tr_data *out, float *lse, const struct tr_data *out2,
                            const float *lse2, const struct tr_attention *shape)
{
}

static void xent_max(float *most, const struct tr_data *logits, long rows, long n) {}

static void xent_exp(float *sum, float *right, struct tr_data *logits, const float *most,
                     const int32_t *targets, long first, long rows, long n)
{
}

static void xent_finish(struct tr_data *logits, double *loss, const float *sum, const float *right,
                        const float *most, const float *weight, const int32_t *targets, long first,
                        long rows, long n)
{
}

static void loss(struct tr_data *logits, double *loss, const float *weight, const int32_t *targets,
                 long rows, long n)
{
}

static void add_squares(double sum[TR_SUM_DIGITS], const struct tr_data *x, size_t n) {}

static void exponential(float *y, const float *x, long n) {}

static void measure(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                    double *sums)
{
}

static void prepare(const struct tr_optimizer *how, const struct tr_tensor_piece *piece) {}

static void transform(struct tr_data *x, float *scratch, long rows, long cols) {}

static void update(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                   const double *sums)
{
}

/* What the rule keeps and needs, without what it computes. */
static struct tr_rule dry_rule(const struct tr_rule *rule)
{
    struct tr_rule dry = *rule;
    if (rule->measure) dry.measure = measure;
    if (rule->whole) {
        dry.prepare = prepare;
        dry.transform = transform;
    }
    dry.update = update;
    return dry;
}

void tr_dry_backend(struct tr_dry *dry, const struct tr_types *types)
{
    dry->backend = (struct tr_backend){
        .name = "dry",
        .types = *types,
        .wait = wait,
        .take = take,
        .give = give,
        .write = write_nothing,
        .read = read_zeros,
        .clear = clear,
        .read_activations = read_activations,
        .checksum = checksum,
        .find_not_finite = find_not_finite,
        .round_masters = round_masters,
        .add = add,
        .add_on = add_on,
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
        .exponential = exponential,
    };
    for (int kind = 0; kind < TR_NUM_ACTIVATIONS; ++kind)
        dry->backend.activations[kind] = (struct tr_activation){activate, activate_backward};
    for (int kind = 0; kind < TR_NUM_OPTIMIZERS; ++kind) {
        const struct tr_optimizer how = {.kind = (enum tr_optimizer_kind)kind};
        dry->rules[kind] = dry_rule(tr_optimizer_rule(&how));
        dry->backend.optimizers[kind] = &dry->rules[kind];
    }
}
