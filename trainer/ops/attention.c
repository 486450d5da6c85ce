/* Exact attention, a block of queries at a time against a block of keys at a time: the scores of a
 * pair of blocks stay in the second-level cache and are never kept; backward makes them again from
 * the kept logarithm of each row's sum (Dao et al., FlashAttention, 2022). A block of keys is long,
 * so that most rows of scores have one: then nothing is scaled twice. Pairs of blocks that the mask
 * hides are passed over. */
#include "pool.h"
#include "product.h"
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

/* A call, each block of queries of which is a piece. */
struct forward {
    float *out, *lse;
    const float *q, *k, *v;
    float *scratch;
    const struct tr_attention *shape;
};

static void forward_piece(const void *arg, long index)
{
    const struct forward *f = arg;
    const struct tr_attention *s = f->shape;
    const long blocks = tr_ranges(s->queries, QUERIES), query = index % blocks * QUERIES;
    const struct head at = head_at(s, index / blocks);
    forward(f->out + at.out + query * s->out_stride, f->lse + at.lse + query,
            f->q + at.q + query * s->q_stride, f->k + at.kv, f->v + at.kv, tr_pool_room(f->scratch),
            s, query);
}

void TR_OP(attention_forward)(float *out, float *lse, const float *q, const float *k,
                              const float *v, float *scratch, const struct tr_attention *shape)
{
    const struct forward f = {out, lse, q, k, v, scratch, shape};
    tr_pool_run(forward_piece, &f,
                shape->batch * shape->heads * tr_ranges(shape->queries, QUERIES));
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

/* A call, each head of keys of which is a piece: what the blocks of queries add to its gradients is
 * added in their order. */
struct backward {
    struct gradients all;
    float *scratch;
    const struct tr_attention *shape;
    long kv, nkv; /* heads of keys: the first and how many */
};

static void head_backward(const struct backward *b, long bh)
{
    const struct tr_attention *s = b->shape;
    const struct gradients *all = &b->all;
    const struct head at = head_at(s, bh);
    for (long query = 0; query < s->queries; query += QUERIES) {
        const long at_q = at.q + query * s->q_stride, at_out = at.out + query * s->out_stride;
        const struct gradients g = {.dq = all->dq + at_q,
                                    .dk = all->dk + at.kv,
                                    .dv = all->dv + at.kv,
                                    .dout = all->dout + at_out,
                                    .out = all->out + at_out,
                                    .lse = all->lse + at.lse + query,
                                    .q = all->q + at_q,
                                    .k = all->k + at.kv,
                                    .v = all->v + at.kv};
        backward(&g, tr_pool_room(b->scratch), s, query);
    }
}

static void backward_piece(const void *arg, long index)
{
    const struct backward *b = arg;
    const struct tr_attention *s = b->shape;
    const long batch = index / b->nkv, kv = b->kv + index % b->nkv;
    for (long h = 0; h < s->heads; ++h)
        if ((h + s->phase) / s->group == kv) head_backward(b, batch * s->heads + h);
}

void TR_OP(attention_backward)(float *dq, float *dk, float *dv, const float *dout, const float *out,
                               const float *lse, const float *q, const float *k, const float *v,
                               float *scratch, const struct tr_attention *shape)
{
    if (!shape->heads) return;
    const long first = shape->phase / shape->group,
               last = (shape->heads - 1 + shape->phase) / shape->group;
    const struct backward b = {.all = {dq, dk, dv, dout, out, lse, q, k, v},
                               .scratch = scratch,
                               .shape = shape,
                               .kv = first,
                               .nkv = last - first + 1};
    tr_pool_run(backward_piece, &b, shape->batch * b.nkv);
}

struct merge {
    float *out, *lse;
    const float *out2, *lse2;
    const struct tr_attention *shape;
};

static void merge_row(const struct merge *m, long row)
{
    const struct tr_attention *s = m->shape;
    float *out = m->out, *lse = m->lse;
    const struct head at = head_at(s, row / s->queries);
    const long from = at.out + row % s->queries * s->out_stride;
    if (m->lse2[row] == -INFINITY) return; /* the second set has no key for this row */
    const float most = fmaxf(lse[row], m->lse2[row]);
    const float mine = expf(lse[row] - most), other = expf(m->lse2[row] - most);
    const float sum = mine + other;
    for (long i = from; i < from + s->size; ++i)
        out[i] = out[i] * (mine / sum) + m->out2[i] * (other / sum);
    lse[row] = most + logf(sum);
}

static long merge_rows(const struct tr_attention *s)
{
    return s->batch * s->heads * s->queries;
}

static void merge_piece(const void *arg, long index)
{
    const struct merge *m = arg;
    const struct tr_range part =
        tr_range_at(merge_rows(m->shape), tr_piece_rows(m->shape->size), index);
    for (long row = part.first; row < part.first + part.n; ++row) merge_row(m, row);
}

void TR_OP(attention_merge)(float *out, float *lse, const float *out2, const float *lse2,
                            const struct tr_attention *shape)
{
    const struct merge m = {out, lse, out2, lse2, shape};
    tr_pool_run(merge_piece, &m, tr_ranges(merge_rows(shape), tr_piece_rows(shape->size)));
}
