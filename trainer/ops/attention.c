/* Exact causal attention, a block of queries at a time against all keys up to its last one: the
 * scores of a block (BLOCK x context floats) stay in the second-level cache and are never kept;
 * backward makes them again from the kept logarithm of each row's sum (Dao et al., FlashAttention,
 * 2022, without the blocks over keys, which only pay when a row of scores does not fit the cache).
 * Blocks also skip nearly half of the work, which a causal mask would throw away. */
#include "softmax.h"
#include "table.h"

enum { BLOCK = TR_ATTENTION_BLOCK };

/* One head of one sequence: pointers into [context, stride] matrices, and the block at hand. */
struct head {
    const float *q, *k, *v;
    long context, stride, size; /* size: floats of a head */
    float scale;
};

static struct head head_at(const float *qkv, long b, long h, long context, long n, long heads)
{
    const long size = n / heads;
    const float *q = qkv + b * context * 3 * n + h * size;
    return (struct head){.q = q,
                         .k = q + n,
                         .v = q + 2 * n,
                         .context = context,
                         .stride = 3 * n,
                         .size = size,
                         .scale = 1 / sqrtf((float)size)};
}

/* scores[count, keys] = scale * q k^T for queries first .. first + count - 1 */
static void scores_of(float *scores, const struct head *head, long first, long count, long keys)
{
    tr_gemm('N', 'T', count, keys, head->size, head->scale, head->q + first * head->stride,
            head->stride, head->k, head->stride, 0, scores, head->context);
}

void TR_OP(attention_forward)(float *y, float *lse, const float *qkv, float *scratch, long batch,
                              long context, long n, long heads)
{
    for (long bh = 0; bh < batch * heads; ++bh) {
        const struct head head = head_at(qkv, bh / heads, bh % heads, context, n, heads);
        float *out = y + bh / heads * context * n + bh % heads * head.size;
        for (long first = 0; first < context; first += BLOCK) {
            const long count = context - first < BLOCK ? context - first : BLOCK,
                       keys = first + count;
            scores_of(scratch, &head, first, count, keys);
            for (long i = 0; i < count; ++i) {
                float *row = scratch + i * context;
                const long seen = first + i + 1;
                const float most = row_max(row, seen), sum = row_exp(row, seen, most);
                row_scale(row, seen, 1 / sum);
                memset(row + seen, 0, (size_t)(keys - seen) * sizeof *row);
                lse[bh * context + first + i] = most + logf(sum);
            }
            tr_gemm('N', 'N', count, head.size, keys, 1, scratch, context, head.v, head.stride, 0,
                    out + first * n, n);
        }
    }
}

/* probabilities -> gradient of the scores, in dscores, which holds the gradient of the
 * probabilities */
static void softmax_backward(float *dscores, const float *probabilities, const float *dy,
                             const float *y, const struct head *head, long seen)
{
    float dot = 0;
    for (long i = 0; i < head->size; ++i) dot += dy[i] * y[i];
    for (long j = 0; j < seen; ++j)
        dscores[j] = probabilities[j] * (dscores[j] - dot) * head->scale;
}

void TR_OP(attention_backward)(float *dqkv, const float *dy, const float *y, const float *lse,
                               const float *qkv, float *scratch, long batch, long context, long n,
                               long heads)
{
    float *p = scratch, *ds = scratch + BLOCK * context;
    memset(dqkv, 0, (size_t)(batch * context * 3 * n) * sizeof *dqkv);
    for (long bh = 0; bh < batch * heads; ++bh) {
        const struct head head = head_at(qkv, bh / heads, bh % heads, context, n, heads);
        const long stride = head.stride, size = head.size;
        const long at = bh / heads * context * n + bh % heads * size;
        float *dq = dqkv + (head.q - qkv), *dk = dq + n, *dv = dq + 2 * n;
        for (long first = 0; first < context; first += BLOCK) {
            const long count = context - first < BLOCK ? context - first : BLOCK,
                       keys = first + count;
            const float *dout = dy + at + first * n, *out = y + at + first * n;
            scores_of(p, &head, first, count, keys);
            tr_gemm('N', 'T', count, keys, size, 1, dout, n, head.v, stride, 0, ds, context);
            for (long i = 0; i < count; ++i) {
                const long seen = first + i + 1;
                const size_t masked = (size_t)(keys - seen) * sizeof *p;
                row_exp(p + i * context, seen, lse[bh * context + first + i]);
                softmax_backward(ds + i * context, p + i * context, dout + i * n, out + i * n,
                                 &head, seen);
                memset(p + i * context + seen, 0, masked);
                memset(ds + i * context + seen, 0, masked);
            }
            tr_gemm('N', 'N', count, size, keys, 1, ds, context, head.k, stride, 0,
                    dq + first * stride, stride);
            tr_gemm('T', 'N', keys, size, count, 1, ds, context, head.q + first * stride, stride, 1,
                    dk, stride);
            tr_gemm('T', 'N', keys, size, count, 1, p, context, dout, n, 1, dv, stride);
        }
    }
}
