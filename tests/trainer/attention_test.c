/* Attention, in each build that this processor can run, against the plain formula in double: the
 * whole, its backward, and over keys in chunks that are merged. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops_check.h"
#include "shim.h"

/* Whether query i sees key j, and which kv head serves query head h: the definitions. */
static bool sees(const struct tr_attention *s, long i, long j)
{
    return j <= i + s->offset;
}

static long kv_head(const struct tr_attention *s, long h)
{
    return (h + s->phase) / s->group;
}

static long kv_heads(const struct tr_attention *s)
{
    return kv_head(s, s->heads - 1) + 1;
}

/* Row i of one head: p[keys] = the probabilities; the logarithm of the sum is returned. */
static double plain_row(double *p, const double *q, const double *k, const struct tr_attention *s,
                        long i)
{
    double most = -INFINITY, sum = 0;
    for (long j = 0; j < s->keys; ++j) {
        p[j] = -INFINITY;
        if (!sees(s, i, j)) continue;
        p[j] = 0;
        for (long c = 0; c < s->size; ++c)
            p[j] += q[i * s->q_stride + c] * k[j * s->kv_stride + c] / sqrt((double)s->size);
        most = fmax(most, p[j]);
    }
    if (most == -INFINITY) {
        memset(p, 0, (size_t)s->keys * sizeof *p);
        return -INFINITY;
    }
    for (long j = 0; j < s->keys; ++j) sum += exp(p[j] - most);
    for (long j = 0; j < s->keys; ++j) p[j] = exp(p[j] - most) / sum;
    return most + log(sum);
}

/* One call's tensors, in float and in double. */
struct tensors {
    long nq, nkv, nout, nlse;
    float *q, *k, *v, *dout;
    double *wq, *wk, *wv, *wdout;
    double *out, *lse, *dq, *dk, *dv; /* the plain results */
};

static void plain_head(const struct tensors *t, const struct tr_attention *s, long b, long h)
{
    const long q = b * s->queries * s->q_stride + h * s->size;
    const long kv = b * s->keys * s->kv_stride + kv_head(s, h) * s->size;
    const long out = b * s->queries * s->out_stride + h * s->size;
    double *p = malloc((size_t)s->keys * sizeof *p);
    for (long i = 0; i < s->queries; ++i) {
        const double *dout = t->wdout + out + i * s->out_stride;
        double *to = t->out + out + i * s->out_stride, dot = 0;
        memset(to, 0, (size_t)s->size * sizeof *to);
        t->lse[(b * s->heads + h) * s->queries + i] = plain_row(p, t->wq + q, t->wk + kv, s, i);
        for (long j = 0; j < s->keys; ++j)
            for (long c = 0; c < s->size; ++c) to[c] += p[j] * t->wv[kv + j * s->kv_stride + c];
        for (long c = 0; c < s->size; ++c) dot += to[c] * dout[c];
        for (long j = 0; j < s->keys; ++j) {
            const long row = kv + j * s->kv_stride;
            double dp = 0;
            for (long c = 0; c < s->size; ++c) dp += dout[c] * t->wv[row + c];
            const double ds = p[j] * (dp - dot) / sqrt((double)s->size);
            for (long c = 0; c < s->size; ++c) {
                t->dq[q + i * s->q_stride + c] += ds * t->wk[row + c];
                t->dk[row + c] += ds * t->wq[q + i * s->q_stride + c];
                t->dv[row + c] += p[j] * dout[c];
            }
        }
    }
    free(p);
}

static void plain_attention(const struct tensors *t, const struct tr_attention *s)
{
    memset(t->dq, 0, (size_t)t->nq * sizeof *t->dq);
    memset(t->dk, 0, (size_t)t->nkv * sizeof *t->dk);
    memset(t->dv, 0, (size_t)t->nkv * sizeof *t->dv);
    for (long bh = 0; bh < s->batch * s->heads; ++bh)
        plain_head(t, s, bh / s->heads, bh % s->heads);
}

/* Rows are a little longer than what is used of them. */
static struct tr_attention shape_of(long batch, long queries, long keys, long heads, long size,
                                    long group, long phase, long offset)
{
    struct tr_attention s = {.batch = batch,
                             .queries = queries,
                             .keys = keys,
                             .heads = heads,
                             .size = size,
                             .group = group,
                             .phase = phase,
                             .offset = offset};
    s.q_stride = heads * size + 3;
    s.kv_stride = kv_heads(&s) * size + 2;
    s.out_stride = heads * size + 1;
    return s;
}

static struct tensors tensors_of(const struct tr_attention *s)
{
    struct tensors t = {.nq = s->batch * s->queries * s->q_stride,
                        .nkv = s->batch * s->keys * s->kv_stride,
                        .nout = s->batch * s->queries * s->out_stride,
                        .nlse = s->batch * s->heads * s->queries};
    t.wq = wide_of(t.q = some(t.nq, 2, 1), t.nq);
    t.wk = wide_of(t.k = some(t.nkv, 2, 2), t.nkv);
    t.wv = wide_of(t.v = some(t.nkv, 1, 3), t.nkv);
    t.wdout = wide_of(t.dout = some(t.nout, 1, 4), t.nout);
    t.dq = wide_zeros(t.nq);
    t.dk = wide_zeros(t.nkv);
    t.dv = wide_zeros(t.nkv);
    t.out = wide_zeros(t.nout);
    t.lse = wide_zeros(t.nlse);
    plain_attention(&t, s);
    return t;
}

/* Compares rows of `used` floats in rows of `stride`; what lies between must still be `gap`. */
static void check_rows(const char *what, const struct tr_attention *s, const float *x,
                       const double *expected, long rows, long used, long stride, float gap,
                       double tolerance)
{
    double most = 0, largest = 0.5; /* with one key, dq and dk are 0 */
    for (long r = 0; r < rows; ++r) {
        for (long c = 0; c < used; ++c) {
            const double off = fabs((double)x[r * stride + c] - expected[r * stride + c]);
            if (!(off <= most)) most = off;
            largest = fmax(largest, fabs(expected[r * stride + c]));
        }
        for (long c = used; c < stride; ++c) CHECK(x[r * stride + c] == gap);
    }
    CHECK_MESSAGE(most < tolerance * largest,
                  "%s is off by %g of %g; batch %ld queries %ld keys %ld heads %ld size %ld group "
                  "%ld phase %ld offset %ld",
                  what, most, largest, s->batch, s->queries, s->keys, s->heads, s->size, s->group,
                  s->phase, s->offset);
}

static void check_forward(const struct tr_attention *s, const struct tensors *t, const float *out,
                          const float *lse, float gap)
{
    check_rows("out", s, out, t->out, s->batch * s->queries, s->heads * s->size, s->out_stride, gap,
               2e-6);
    for (long i = 0; i < t->nlse; ++i) {
        const double expected = t->lse[i];
        if (expected == -INFINITY)
            CHECK(lse[i] == -INFINITY);
        else
            CHECK(fabs((double)lse[i] - expected) < 2e-6 * fmax(1, fabs(expected)));
    }
}

static void check_backward(const struct tr_attention *s, const struct tensors *t, const float *dq,
                           const float *dk, const float *dv)
{
    const long kv = s->kv_stride - 2, rows = s->batch * s->keys;
    check_rows("dq", s, dq, t->dq, s->batch * s->queries, s->heads * s->size, s->q_stride, 0, 5e-6);
    check_rows("dk", s, dk, t->dk, rows, kv, s->kv_stride, 0, 5e-6);
    check_rows("dv", s, dv, t->dv, rows, kv, s->kv_stride, 0, 5e-6);
}

/* Exactly as long as the contract says, so that the address sanitizer sees one float too many. */
static float *scratch_of(const struct tr_attention *s)
{
    float *scratch = zeros((long)tr_attention_scratch(s));
    memset(scratch, 0xff, tr_attention_scratch(s) * sizeof *scratch);
    return scratch;
}

static void check_whole(const struct tr_backend *ops, const struct tr_attention *s,
                        const struct tensors *t)
{
    float *out = zeros(t->nout), *lse = zeros(t->nlse), *scratch = scratch_of(s);
    for (long i = 0; i < t->nout; ++i) out[i] = 9;
    ops->attention_forward(data_of(out), lse, data_of(t->q), data_of(t->k), data_of(t->v), scratch,
                           s);
    check_forward(s, t, out, lse, 9);
    float *dq = zeros(t->nq), *dk = zeros(t->nkv), *dv = zeros(t->nkv);
    ops->attention_backward(data_of(dq), data_of(dk), data_of(dv), data_of(t->dout), data_of(out),
                            lse, data_of(t->q), data_of(t->k), data_of(t->v), scratch, s);
    check_backward(s, t, dq, dk, dv);
}

static void check_shape(const struct tr_attention s)
{
    const struct tensors t = tensors_of(&s);
    FOR_EACH_BUILD(ops) check_whole(ops, &s, &t);
    free_all();
}

TEST(attention, gives_the_plain_formula_for_odd_sizes)
{
    for (const long *n = odd_sizes; *n; ++n) {
        check_shape(shape_of(2, *n, *n, 2, 5, 1, 0, 0));
        check_shape(shape_of(2, 3, *n, 2, 5, 1, 0, *n));
        check_shape(shape_of(2, *n, 3, 2, 5, 1, 0, 1));
        check_shape(shape_of(1, 7, 7, 1, *n, 1, 0, 0));
    }
    check_shape(shape_of(2, 130, 130, 2, 8, 1, 0, 0)); /* more than two blocks of queries */
    check_shape(shape_of(2, 1, 1, 3, 16, 1, 0, 0));
    check_shape(shape_of(1, 1, 131, 3, 16, 1, 0, 130)); /* one query, as when sampling */
    check_shape(shape_of(1, 131, 1, 3, 16, 1, 0, 0));
}

TEST(attention, gives_the_plain_formula_for_groups_and_phases)
{
    check_shape(shape_of(2, 9, 9, 4, 6, 2, 0, 0));
    check_shape(shape_of(2, 9, 9, 7, 6, 7, 0, 0));  /* one kv head for all */
    check_shape(shape_of(2, 9, 9, 14, 4, 7, 0, 0)); /* two for seven each */
    check_shape(shape_of(2, 9, 9, 3, 6, 2, 1, 0));  /* 0 | 1 1 */
    check_shape(shape_of(2, 9, 9, 1, 6, 2, 1, 0));
    check_shape(shape_of(2, 9, 9, 5, 6, 7, 4, 0)); /* 0 0 0 | 1 1 */
    check_shape(shape_of(1, 9, 9, 2, 6, 7, 5, 0));
    check_shape(shape_of(1, 70, 70, 7, 6, 3, 2, 0));
}

TEST(attention, gives_the_plain_formula_for_offsets)
{
    static const long offsets[] = {-200, -70, -69, -65, -64, -63, -33, -1, 0,  1,
                                   2,    31,  63,  64,  65,  69,  70,  71, 200};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; ++i) {
        check_shape(shape_of(2, 70, 70, 2, 6, 2, 1, offsets[i]));
        check_shape(shape_of(1, 5, 70, 1, 6, 1, 0, offsets[i]));
        check_shape(shape_of(1, 70, 5, 1, 6, 1, 0, offsets[i]));
    }
}

TEST(attention, gives_the_plain_formula_for_rows_of_several_key_blocks)
{
    enum { K = TR_ATTENTION_KEYS };
    check_shape(shape_of(1, 66, K + 1, 1, 4, 1, 0, K));
    check_shape(shape_of(1, 3, 2 * K + 17, 2, 4, 2, 0, 2 * K + 14));
    check_shape(shape_of(1, 66, K + 30, 1, 4, 1, 0, K - 33)); /* some rows end in the first block */
    check_shape(shape_of(1, 66, K + 30, 1, 4, 1, 0, -33));
    struct tr_attention longer = {.keys = 100 * K}, block = {.keys = K};
    CHECK_EQ(tr_attention_scratch(&longer), tr_attention_scratch(&block));
}

/* Large scores, the largest in the last block of keys: what is summed before must be scaled. */
TEST(attention, holds_when_the_largest_score_comes_late)
{
    enum { K = TR_ATTENTION_KEYS };
    const struct tr_attention s = shape_of(1, 4, 2 * K + 3, 1, 4, 1, 0, 2 * K + 3);
    struct tensors t = tensors_of(&s);
    for (long j = 0; j < s.keys; ++j) {
        for (long c = 0; c < s.size; ++c) {
            t.k[j * s.kv_stride + c] = 40 * (float)j / (float)s.keys;
            t.wk[j * s.kv_stride + c] = (double)t.k[j * s.kv_stride + c];
        }
    }
    for (long i = 0; i < t.nq; ++i) t.wq[i] = (double)(t.q[i] = fabsf(t.q[i]));
    plain_attention(&t, &s);
    float *out = zeros(t.nout), *lse = zeros(t.nlse);
    FOR_EACH_BUILD(ops)
    {
        ops->attention_forward(data_of(out), lse, data_of(t.q), data_of(t.k), data_of(t.v),
                               scratch_of(&s), &s);
        /* Scores of up to 160 carry an error of 160 * 2^-24 into the exponent. */
        check_rows("out", &s, out, t.out, s.queries, s.size, s.out_stride, 0, 5e-5);
    }
    free_all();
}

/* The plain backward, with which the tests above compare, against differences of the forward. */
TEST(attention, plain_backward_agrees_with_differences)
{
    const struct tr_attention s = shape_of(2, 6, 7, 3, 3, 2, 1, -1);
    struct tensors t = tensors_of(&s);
    struct {
        double *values;
        const double *gradient;
        long n;
    } inputs[] = {{t.wq, t.dq, t.nq}, {t.wk, t.dk, t.nkv}, {t.wv, t.dv, t.nkv}};
    struct tensors other = t; /* differences are taken with gradients of their own */
    other.dq = wide_zeros(t.nq);
    other.dk = wide_zeros(t.nkv);
    other.dv = wide_zeros(t.nkv);
    for (int k = 0; k < 3; ++k) {
        for (long i = 0; i < inputs[k].n; ++i) {
            const double h = 1e-5, x = inputs[k].values[i];
            inputs[k].values[i] = x + h;
            plain_attention(&other, &s);
            double above = weighted_sum(t.out, t.dout, t.nout);
            inputs[k].values[i] = x - h;
            plain_attention(&other, &s);
            above -= weighted_sum(t.out, t.dout, t.nout);
            inputs[k].values[i] = x;
            CHECK(fabs(above / (2 * h) - inputs[k].gradient[i]) < 1e-8);
        }
    }
    free_all();
}

/* Keys `first` .. `first + s->keys - 1` of each sequence of x[batch, all]. */
static float *rows_of(const float *x, const struct tr_attention *s, long all, long first)
{
    float *part = zeros(s->batch * s->keys * s->kv_stride);
    for (long b = 0; b < s->batch; ++b)
        memcpy(part + b * s->keys * s->kv_stride, x + (b * all + first) * s->kv_stride,
               (size_t)(s->keys * s->kv_stride) * sizeof *x);
    return part;
}

static void put_rows(float *x, const float *part, const struct tr_attention *s, long all,
                     long first)
{
    for (long b = 0; b < s->batch; ++b)
        memcpy(x + (b * all + first) * s->kv_stride, part + b * s->keys * s->kv_stride,
               (size_t)(s->keys * s->kv_stride) * sizeof *x);
}

/* Over n chunks of keys that end at cuts[..], taken from the last to the first or the other way. */
static void check_chunks(const struct tr_backend *ops, const struct tr_attention *s,
                         const struct tensors *t, const long *cuts, int n, bool reverse)
{
    enum { MOST = 4 };
    struct tr_attention part[MOST];
    float *k[MOST], *v[MOST], *scratch = scratch_of(s);
    float *out = zeros(t->nout), *lse = zeros(t->nlse);
    for (int i = 0; i < n; ++i) {
        const int c = reverse ? n - 1 - i : i;
        const long first = c ? cuts[c - 1] : 0;
        part[c] = *s;
        part[c].keys = cuts[c] - first;
        part[c].offset = s->offset - first;
        k[c] = rows_of(t->k, &part[c], s->keys, first);
        v[c] = rows_of(t->v, &part[c], s->keys, first);
        float *out2 = zeros(t->nout), *lse2 = zeros(t->nlse);
        ops->attention_forward(data_of(i ? out2 : out), i ? lse2 : lse, data_of(t->q),
                               data_of(k[c]), data_of(v[c]), scratch, &part[c]);
        if (i) ops->attention_merge(data_of(out), lse, data_of(out2), lse2, &part[c]);
    }
    check_forward(s, t, out, lse, 0);
    float *dq = zeros(t->nq), *dk = zeros(t->nkv), *dv = zeros(t->nkv);
    for (int c = 0; c < n; ++c) {
        const long first = c ? cuts[c - 1] : 0, count = s->batch * part[c].keys * s->kv_stride;
        float *dk_part = zeros(count), *dv_part = zeros(count);
        ops->attention_backward(data_of(dq), data_of(dk_part), data_of(dv_part), data_of(t->dout),
                                data_of(out), lse, data_of(t->q), data_of(k[c]), data_of(v[c]),
                                scratch, &part[c]);
        put_rows(dk, dk_part, &part[c], s->keys, first);
        put_rows(dv, dv_part, &part[c], s->keys, first);
    }
    check_backward(s, t, dq, dk, dv);
}

TEST(attention, merged_chunks_equal_the_whole_forward_and_backward)
{
    static const long cuts[][4] = {{35, 70}, {1, 70}, {69, 70}, {17, 34, 51, 70}, {1, 3, 66, 70}};
    static const long offsets[] = {0, -40, 100, 20};
    for (size_t o = 0; o < 4; ++o) {
        const struct tr_attention s = shape_of(2, 70, 70, 3, 6, 2, 1, offsets[o]);
        const struct tensors t = tensors_of(&s);
        FOR_EACH_BUILD(ops)
        for (int c = 0; c < 5; ++c)
            for (int reverse = 0; reverse < 2; ++reverse)
                check_chunks(ops, &s, &t, cuts[c], c < 3 ? 2 : 4, reverse);
        free_all();
    }
}

TEST(attention, merging_with_no_keys_changes_no_bit)
{
    const struct tr_attention s = shape_of(1, 17, 9, 2, 5, 1, 0, 3);
    const struct tensors t = tensors_of(&s);
    struct tr_attention none = s;
    none.offset = -17;
    FOR_EACH_BUILD(ops)
    {
        float *out = zeros(t.nout), *lse = zeros(t.nlse), *out2 = zeros(t.nout),
              *lse2 = zeros(t.nlse);
        ops->attention_forward(data_of(out), lse, data_of(t.q), data_of(t.k), data_of(t.v),
                               scratch_of(&s), &s);
        ops->attention_forward(data_of(out2), lse2, data_of(t.q), data_of(t.k), data_of(t.v),
                               scratch_of(&none), &none);
        const float *before = copy_of(out, t.nout), *lse_before = copy_of(lse, t.nlse);
        ops->attention_merge(data_of(out), lse, data_of(out2), lse2, &s);
        CHECK(same_bits(out, before, t.nout) && same_bits(lse, lse_before, t.nlse));
        ops->attention_merge(data_of(out2), lse2, data_of(out), lse, &s); /* the other way round */
        CHECK(same_bits(out2, before, t.nout) && same_bits(lse2, lse_before, t.nlse));
    }
    free_all();
}

/* q, k and v side by side in one matrix give what three matrices give. */
TEST(attention, takes_a_packed_matrix)
{
    enum { B = 2, S = 70, HEADS = 2, SIZE = 5, N = HEADS * SIZE, ROWS = B * S };
    const float *packed = some(ROWS * 3 * N, 1.5f, 1);
    float *apart[3];
    for (long i = 0; i < 3; ++i) {
        apart[i] = zeros(ROWS * N);
        for (long r = 0; r < ROWS; ++r)
            memcpy(apart[i] + r * N, packed + (r * 3 + i) * N, N * sizeof *packed);
    }
    struct tr_attention s = {.batch = B,
                             .queries = S,
                             .keys = S,
                             .heads = HEADS,
                             .size = SIZE,
                             .group = 1,
                             .q_stride = N,
                             .kv_stride = N,
                             .out_stride = N};
    FOR_EACH_BUILD(ops)
    {
        float *out = zeros(ROWS * N), *out2 = zeros(ROWS * N), *lse = zeros(B * HEADS * S);
        s.q_stride = s.kv_stride = N;
        ops->attention_forward(data_of(out), lse, data_of(apart[0]), data_of(apart[1]),
                               data_of(apart[2]), scratch_of(&s), &s);
        s.q_stride = s.kv_stride = 3 * N;
        ops->attention_forward(data_of(out2), lse, data_of(packed), data_of(packed + N),
                               data_of(packed + 2 * N), scratch_of(&s), &s);
        double *expected = wide_of(out, ROWS * N);
        CHECK(difference(out2, expected, ROWS * N) < 1e-6);
    }
    free_all();
}

TEST(attention, no_keys_and_no_queries_are_safe)
{
    FOR_EACH_BUILD(ops)
    {
        struct tr_attention s = shape_of(1, 3, 0, 2, 4, 1, 0, 5);
        float out[3 * 9], lse[6], q[3 * 11] = {1}, dq[3 * 11] = {0}, none[1] = {0};
        memset(out, 0xff, sizeof out);
        ops->attention_forward(data_of(out), lse, data_of(q), data_of(none), data_of(none), none,
                               &s);
        CHECK(out[0] == 0 && out[2 * 9 + 7] == 0 && lse[0] == -INFINITY && lse[5] == -INFINITY);
        ops->attention_backward(data_of(dq), data_of(none), data_of(none), data_of(out),
                                data_of(out), lse, data_of(q), data_of(none), data_of(none), none,
                                &s);
        CHECK(dq[0] == 0);
        s.queries = 0;
        s.keys = 3;
        ops->attention_forward(data_of(none), none, data_of(none), data_of(q), data_of(q), none,
                               &s);
    }
}
