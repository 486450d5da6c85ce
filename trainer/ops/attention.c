/* Exact attention, a block of queries at a time against a block of keys at a time: the scores of a
 * pair of blocks stay in the second-level cache and are never kept; backward makes them again from
 * the kept logarithm of each row's sum (Dao et al., FlashAttention, 2022). A block of keys is long,
 * so that most rows of scores have one: then nothing is scaled twice. Pairs of blocks that the mask
 * hides are passed over. */
#include "softmax.h"
#include "table.h"

#include <stdbool.h>

enum { QUERIES = TR_ATTENTION_QUERIES, KEYS = TR_ATTENTION_KEYS };

/* One head of one sequence: where its rows begin, in floats. */
struct head {
    long q, kv, out, lse;
};

static struct head head_at(const struct tr_attention *s, long bh)
{
    const long b = bh / s->heads, h = bh % s->heads;
    return (struct head){.q = b * s->queries * s->q_stride + h * s->size,
                         .kv = b * s->keys * s->kv_stride + (h + s->phase) / s->group * s->size,
                         .out = b * s->queries * s->out_stride + h * s->size,
                         .lse = bh * s->queries};
}

/* The block of one head's queries, and the block of keys, that are at hand. */
struct tile {
    long query, queries; /* first, count */
    long key, keys;
};

/* How many of the tile's keys its i-th query sees: the first ones. */
static long seen_by(const struct tr_attention *s, const struct tile *tile, long i)
{
    const long seen = tile->query + i + s->offset + 1 - tile->key;
    return seen < 0 ? 0 : seen < tile->keys ? seen : tile->keys;
}

/* The block of queries from `query` on, with all keys that any of them sees. */
static struct tile tile_at(const struct tr_attention *s, long query)
{
    struct tile tile = {.query = query, .queries = s->queries - query, .keys = s->keys};
    if (tile.queries > QUERIES) tile.queries = QUERIES;
    tile.keys = seen_by(s, &tile, tile.queries - 1);
    return tile;
}

/* The next block of the `end` keys; false at the end. */
static bool next_keys(struct tile *tile, long end)
{
    tile->key += tile->keys;
    tile->keys = end - tile->key < KEYS ? end - tile->key : KEYS;
    return tile->keys > 0;
}

static float scale_of(const struct tr_attention *s)
{
    return 1 / sqrtf((float)s->size);
}

/* scores[queries, keys] = scale * q k^T */
static void scores_of(float *scores, const float *q, const float *k, const struct tr_attention *s,
                      const struct tile *tile)
{
    tr_gemm('N', 'T', tile->queries, tile->keys, s->size, scale_of(s), q, s->q_stride,
            k + tile->key * s->kv_stride, s->kv_stride, 0, scores, tile->keys);
}

/* One block of queries; q, out and lse point at its first row, k and v at the head's. */
static void forward(float *out, float *lse, const float *q, const float *k, const float *v,
                    float *scores, const struct tr_attention *s, long query)
{
    const struct tile all = tile_at(s, query);
    struct tile tile = {.query = query, .queries = all.queries};
    float most[QUERIES], sum[QUERIES];
    for (long i = 0; i < all.queries; ++i) {
        most[i] = TR_NOTHING;
        sum[i] = 0;
    }
    while (next_keys(&tile, all.keys)) {
        scores_of(scores, q, k, s, &tile);
        for (long i = 0; i < tile.queries; ++i) {
            float *row = scores + i * tile.keys;
            const long seen = seen_by(s, &tile, i);
            memset(row + seen, 0, (size_t)(tile.keys - seen) * sizeof *row);
            if (!seen) continue;
            const float before = most[i];
            most[i] = fmaxf(before, row_max(row, seen));
            if (tile.key && most[i] > before) {
                const float shrink = expf(before - most[i]);
                row_scale(out + i * s->out_stride, s->size, shrink);
                sum[i] *= shrink;
            }
            sum[i] += row_exp(row, seen, most[i]);
        }
        tr_gemm('N', 'N', tile.queries, s->size, tile.keys, 1, scores, tile.keys,
                v + tile.key * s->kv_stride, s->kv_stride, tile.key ? 1 : 0, out, s->out_stride);
    }
    for (long i = 0; i < all.queries; ++i, out += s->out_stride) {
        const bool any = seen_by(s, &all, i) > 0;
        lse[i] = any ? most[i] + logf(sum[i]) : -INFINITY;
        if (any)
            row_scale(out, s->size, 1 / sum[i]);
        else
            memset(out, 0, (size_t)s->size * sizeof *out);
    }
}

void TR_OP(attention_forward)(float *out, float *lse, const float *q, const float *k,
                              const float *v, float *scratch, const struct tr_attention *shape)
{
    for (long bh = 0; bh < shape->batch * shape->heads; ++bh) {
        const struct head at = head_at(shape, bh);
        for (long query = 0; query < shape->queries; query += QUERIES)
            forward(out + at.out + query * shape->out_stride, lse + at.lse + query,
                    q + at.q + query * shape->q_stride, k + at.kv, v + at.kv, scratch, shape,
                    query);
    }
}

/* What backward reads and writes, for one block of queries of one head. */
struct gradients {
    float *dq, *dk, *dv;
    const float *dout, *out, *lse, *q, *k, *v;
};

/* p: scores -> probabilities; ds: gradient of the probabilities -> of the scores */
static void softmax_backward(float *p, float *ds, const float *dots, const float *lse,
                             const struct tr_attention *s, const struct tile *tile)
{
    const float scale = scale_of(s);
    for (long i = 0; i < tile->queries; ++i, p += tile->keys, ds += tile->keys) {
        const long seen = seen_by(s, tile, i);
        const size_t masked = (size_t)(tile->keys - seen) * sizeof *p;
        const float dot = dots[i];
        row_exp(p, seen, lse[i]);
        for (long j = 0; j < seen; ++j) ds[j] = p[j] * (ds[j] - dot) * scale;
        memset(p + seen, 0, masked);
        memset(ds + seen, 0, masked);
    }
}

static void backward(const struct gradients *g, float *scratch, const struct tr_attention *s,
                     long query)
{
    const struct tile all = tile_at(s, query);
    struct tile tile = {.query = query, .queries = all.queries};
    const long qs = s->q_stride, kvs = s->kv_stride, outs = s->out_stride, size = s->size;
    float dots[QUERIES];
    for (long i = 0; i < all.queries; ++i)
        dots[i] = row_dot(g->dout + i * outs, g->out + i * outs, size);
    while (next_keys(&tile, all.keys)) {
        const long queries = tile.queries, keys = tile.keys, at = tile.key * kvs;
        float *p = scratch, *ds = scratch + queries * keys;
        scores_of(p, g->q, g->k, s, &tile);
        tr_gemm('N', 'T', queries, keys, size, 1, g->dout, outs, g->v + at, kvs, 0, ds, keys);
        softmax_backward(p, ds, dots, g->lse, s, &tile);
        tr_gemm('N', 'N', queries, size, keys, 1, ds, keys, g->k + at, kvs, 1, g->dq, qs);
        tr_gemm('T', 'N', keys, size, queries, 1, ds, keys, g->q, qs, 1, g->dk + at, kvs);
        tr_gemm('T', 'N', keys, size, queries, 1, p, keys, g->dout, outs, 1, g->dv + at, kvs);
    }
}

void TR_OP(attention_backward)(float *dq, float *dk, float *dv, const float *dout, const float *out,
                               const float *lse, const float *q, const float *k, const float *v,
                               float *scratch, const struct tr_attention *shape)
{
    for (long bh = 0; bh < shape->batch * shape->heads; ++bh) {
        const struct head at = head_at(shape, bh);
        for (long query = 0; query < shape->queries; query += QUERIES) {
            const long at_q = at.q + query * shape->q_stride,
                       at_out = at.out + query * shape->out_stride;
            const struct gradients g = {.dq = dq + at_q,
                                        .dk = dk + at.kv,
                                        .dv = dv + at.kv,
                                        .dout = dout + at_out,
                                        .out = out + at_out,
                                        .lse = lse + at.lse + query,
                                        .q = q + at_q,
                                        .k = k + at.kv,
                                        .v = v + at.kv};
            backward(&g, scratch, shape, query);
        }
    }
}

void TR_OP(attention_merge)(float *out, float *lse, const float *out2, const float *lse2,
                            const struct tr_attention *shape)
{
    for (long row = 0; row < shape->batch * shape->heads * shape->queries; ++row) {
        const struct head at = head_at(shape, row / shape->queries);
        const long from = at.out + row % shape->queries * shape->out_stride;
        if (lse2[row] == -INFINITY) continue; /* the second set has no key for this row */
        const float most = fmaxf(lse[row], lse2[row]);
        const float mine = expf(lse[row] - most), other = expf(lse2[row] - most);
        const float sum = mine + other;
        for (long i = from; i < from + shape->size; ++i)
            out[i] = out[i] * (mine / sum) + out2[i] * (other / sum);
        lse[row] = most + logf(sum);
    }
}
