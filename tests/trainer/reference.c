/* The trainer's mathematics in double. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

void ref_linear(double *y, const double *x, const double *w, const double *b,
                const double *residual, long rows, long in, long out)
{
    for (long r = 0; r < rows; ++r) {
        for (long o = 0; o < out; ++o) {
            double sum = (b ? b[o] : 0) + (residual ? residual[r * out + o] : 0);
            for (long i = 0; i < in; ++i) sum += x[r * in + i] * w[o * in + i];
            y[r * out + o] = sum;
        }
    }
}

void ref_norm(double *y, const double *x, const double *gamma, const double *beta, long rows,
              long n)
{
    for (long r = 0; r < rows; ++r, x += n, y += n) {
        double mean = 0, square = 0;
        for (long i = 0; i < n; ++i) mean += x[i] / (double)n;
        for (long i = 0; i < n; ++i) square += (x[i] - mean) * (x[i] - mean) / (double)n;
        for (long i = 0; i < n; ++i)
            y[i] = (x[i] - mean) / sqrt(square + 1e-5) * gamma[i] + beta[i];
    }
}

void ref_gelu(double *y, const double *x, long n)
{
    for (long i = 0; i < n; ++i)
        y[i] = 0.5 * x[i] *
               (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x[i] + 0.044715 * pow(x[i], 3))));
}

void ref_embed(double *x, const unsigned char *tokens, const double *token_table,
               const double *place_table, long batch, long context, long n)
{
    for (long row = 0; row < batch * context; ++row)
        for (long i = 0; i < n; ++i)
            x[row * n + i] = token_table[tokens[row] * n + i] + place_table[row % context * n + i];
}

void ref_attention(double *y, const double *qkv, long batch, long context, long n, long heads)
{
    const long size = n / heads;
    double *p = malloc((size_t)context * sizeof *p);
    memset(y, 0, (size_t)(batch * context * n) * sizeof *y);
    for (long bht = 0; bht < batch * heads * context; ++bht) {
        const long b = bht / context / heads, h = bht / context % heads, t = bht % context;
        const double *q = qkv + (b * context + t) * 3 * n + h * size;
        double sum = 0;
        for (long s = 0; s <= t; ++s) {
            const double *k = qkv + (b * context + s) * 3 * n + n + h * size;
            double dot = 0;
            for (long i = 0; i < size; ++i) dot += q[i] * k[i];
            sum += p[s] = exp(dot / sqrt((double)size));
        }
        double *to = y + (b * context + t) * n + h * size;
        for (long s = 0; s <= t; ++s) {
            const double *v = qkv + (b * context + s) * 3 * n + 2 * n + h * size;
            for (long i = 0; i < size; ++i) to[i] += p[s] / sum * v[i];
        }
    }
    free(p);
}

double ref_loss(const double *logits, const unsigned char *targets, long rows, long n)
{
    double total = 0;
    for (long r = 0; r < rows; ++r, logits += n) {
        double sum = 0;
        for (long i = 0; i < n; ++i) sum += exp(logits[i]);
        total += log(sum) - logits[targets[r]];
    }
    return total;
}

/* A block; x[rows, n] becomes its output. */
static void ref_block(const struct tr_gpt *gpt, const struct tr_block *b, const double *weights,
                      double *x, long batch, long context)
{
    const struct tr_param *items = gpt->params.items;
    const long n = gpt->size.width, rows = batch * context;
    double *norm = malloc((size_t)(rows * n) * sizeof *norm),
           *y = malloc((size_t)(rows * n) * sizeof *y);
    double *wide = malloc((size_t)(rows * 4 * n) * sizeof *wide);
#define W(which) (weights + items[b->which].offset)
    ref_norm(norm, x, W(norm1_w), W(norm1_b), rows, n);
    ref_linear(wide, norm, W(qkv_w), W(qkv_b), NULL, rows, n, 3 * n);
    ref_attention(y, wide, batch, context, n, gpt->size.heads);
    ref_linear(norm, y, W(proj_w), W(proj_b), x, rows, n, n);
    memcpy(x, norm, (size_t)(rows * n) * sizeof *x);
    ref_norm(norm, x, W(norm2_w), W(norm2_b), rows, n);
    ref_linear(wide, norm, W(up_w), W(up_b), NULL, rows, n, 4 * n);
    ref_gelu(wide, wide, rows * 4 * n);
    ref_linear(y, wide, W(down_w), W(down_b), x, rows, 4 * n, n);
    memcpy(x, y, (size_t)(rows * n) * sizeof *x);
#undef W
    free(norm);
    free(y);
    free(wide);
}

double ref_gpt_loss(const struct tr_gpt *gpt, const double *weights, const unsigned char *tokens,
                    const unsigned char *targets, long batch, long context)
{
    const struct tr_param *items = gpt->params.items;
    const long n = gpt->size.width, rows = batch * context;
    double *x = malloc((size_t)(rows * n) * sizeof *x),
           *norm = malloc((size_t)(rows * n) * sizeof *norm);
    double *logits = malloc((size_t)(rows * TR_VOCABULARY) * sizeof *logits);
    ref_embed(x, tokens, weights + items[gpt->token_table].offset,
              weights + items[gpt->place_table].offset, batch, context, n);
    for (long layer = 0; layer < gpt->size.layers; ++layer)
        ref_block(gpt, &gpt->blocks[layer], weights, x, batch, context);
    ref_norm(norm, x, weights + items[gpt->norm_w].offset, weights + items[gpt->norm_b].offset,
             rows, n);
    ref_linear(logits, norm, weights + items[gpt->head_w].offset, NULL, NULL, rows, n,
               TR_VOCABULARY);
    const double loss = ref_loss(logits, targets, rows, TR_VOCABULARY);
    free(x);
    free(norm);
    free(logits);
    return loss;
}

void fill(float *x, long n, float scale, uint64_t seed)
{
    for (long i = 0; i < n; ++i)
        x[i] = scale * (float)(2 * tr_random_uniform(seed, TR_RANDOM_WEIGHTS, 0, (uint64_t)i) - 1);
}

double *widen(const float *x, long n)
{
    double *wide = malloc((size_t)n * sizeof *wide);
    for (long i = 0; i < n; ++i) wide[i] = (double)x[i];
    return wide;
}

double difference(const float *a, const double *b, long n)
{
    double most = 0, largest = 1e-30;
    for (long i = 0; i < n; ++i) {
        if (!(fabs((double)a[i] - b[i]) <= most)) most = fabs((double)a[i] - b[i]);
        if (fabs(b[i]) > largest) largest = fabs(b[i]);
    }
    return most / largest;
}
