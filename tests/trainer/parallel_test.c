/* Attention cut along the ring and the ulysses axis against the uncut attention: values, gradients,
 * bytes sent, work of each rank, failures. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cut.h"

enum { SIZE = 8, GUARD = 16 }; /* floats of a head; behind room and scratch */
static const double TOLERANCE = 2e-6;

/* ---- Attention --------------------------------------------------------------------------- */

struct heads {
    long heads, group, phase;
};
static const struct heads some_heads[] = {{1, 1, 0}, {1, 4, 3}, {4, 1, 0}, {4, 2, 0}, {4, 4, 0},
                                          {4, 3, 2}, {7, 1, 0}, {7, 7, 0}, {7, 4, 0}, {7, 4, 2}};
enum { NHEADS = sizeof some_heads / sizeof some_heads[0] };

static long kv_heads_of(const struct heads *heads)
{
    return (heads->heads - 1 + heads->phase) / heads->group + 1;
}

struct shape {
    struct heads heads;
    long batch, length;
    bool zigzag, packed; /* packed: q, k and v in one matrix */
};

/* The arrays of a call, in one piece of memory, and what lies at what token of which sequence. */
struct attention {
    struct tr_attend call;
    float *memory, *qkv, *dqkv, *dout;
    long q_floats, n; /* of q (k and v lie behind it, or in its rows); of all */
};

/* The value of element i of array `what` at a place of sequence b: the same for every rank. */
static float value_at(int what, long b, long place, long i)
{
    uint64_t x = (((uint64_t)what * 8 + (uint64_t)b) * 1024 + (uint64_t)place) * 1024 + (uint64_t)i;
    x = (x + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (float)((double)(x >> 40) / (1 << 23) - 1) * 1.5f;
}

static void make_attention(struct attention *a, const struct shape *shape, long context)
{
    const long heads = shape->heads.heads, kv = kv_heads_of(&shape->heads),
               rows = shape->batch * context, q = heads * SIZE, width = q + 2 * kv * SIZE, gap = 3;
    const long q_stride = shape->packed ? width + gap : q + gap,
               kv_stride = shape->packed ? width + gap : 2 * kv * SIZE + gap;
    *a = (struct attention){.q_floats = rows * q_stride, .n = rows * (width + 2 * gap)};
    a->memory = malloc((size_t)(2 * a->n + 2 * rows * q + 1) * sizeof(float));
    memset(a->memory, 0xff, (size_t)(2 * a->n + 2 * rows * q) * sizeof(float));
    a->qkv = a->memory;
    a->dqkv = a->qkv + a->n;
    a->dout = a->dqkv + a->n;
    const long k = shape->packed ? q : a->q_floats;
    a->call = (struct tr_attend){.batch = shape->batch,
                                 .context = context,
                                 .heads = heads,
                                 .kv_heads = kv,
                                 .d = SIZE,
                                 .group = shape->heads.group,
                                 .phase = shape->heads.phase,
                                 .q_stride = q_stride,
                                 .kv_stride = kv_stride,
                                 .q = data_of(a->qkv),
                                 .k = data_of(a->qkv + k),
                                 .v = data_of(a->qkv + k + kv * SIZE),
                                 .out = data_of(a->dout + rows * q),
                                 .dout = data_of(a->dout),
                                 .dq = data_of(a->dqkv),
                                 .dk = data_of(a->dqkv + k),
                                 .dv = data_of(a->dqkv + k + kv * SIZE)};
}

/* Row i of each sequence stands at places[i]; what follows the length has no gradient. */
static void fill_attention(struct attention *a, const struct shape *shape, const long *places)
{
    const struct tr_attend *c = &a->call;
    const long q = c->heads * SIZE, kv = c->kv_heads * SIZE;
    const long k = floats_of(c->k) - floats_of(c->q), v = floats_of(c->v) - floats_of(c->q);
    for (long b = 0; b < c->batch; ++b)
        for (long row = 0; row < c->context; ++row) {
            const long at = b * c->context + row, place = places[row];
            for (long i = 0; i < q; ++i) {
                a->qkv[at * c->q_stride + i] = value_at(0, b, place, i);
                a->dout[at * q + i] = place < shape->length ? value_at(3, b, place, i) : 0;
            }
            for (long i = 0; i < kv; ++i) {
                a->qkv[k + at * c->kv_stride + i] = value_at(1, b, place, i);
                a->qkv[v + at * c->kv_stride + i] = value_at(2, b, place, i);
            }
        }
}

/* Of one array: this rank's rows against the rows of the whole. */
struct rows {
    const char *name;
    const float *mine, *whole;
    long stride, whole_stride, width;
};

static void compare_rows(const struct rows *r, const struct shape *shape, const long *places,
                         long context)
{
    double off = 0, most = 1e-30;
    for (long i = 0; i < shape->batch * shape->length; ++i)
        for (long j = 0; j < r->width; ++j)
            most = fmax(most, fabs((double)r->whole[i * r->whole_stride + j]));
    for (long b = 0; b < shape->batch; ++b)
        for (long i = 0; i < context; ++i)
            for (long j = 0; j < r->width; ++j) {
                const float got = r->mine[(b * context + i) * r->stride + j];
                const long at = (b * shape->length + places[i]) * r->whole_stride + j;
                const bool counts = places[i] < shape->length;
                if (!counts && r->name[0] != 'd') continue; /* what padding attends to is free */
                const double difference = fabs((double)got - (double)(counts ? r->whole[at] : 0));
                if (!(difference <= off)) off = difference; /* also when it is NaN */
            }
    CHECK_MESSAGE(off <= TOLERANCE * most,
                  "%s is off by %g of %g: heads %ld group %ld phase %ld batch %ld length %ld%s%s",
                  r->name, off, most, shape->heads.heads, shape->heads.group, shape->heads.phase,
                  shape->batch, shape->length, shape->zigzag ? " zigzag" : "",
                  shape->packed ? " packed" : "");
}

static void compare(const struct attention *mine, const struct attention *whole,
                    const struct shape *shape, const long *places)
{
    const struct tr_attend *m = &mine->call, *w = &whole->call;
    const long q = m->heads * SIZE, kv = m->kv_heads * SIZE;
    const struct rows arrays[] = {
        {"out", floats_of(m->out), floats_of(w->out), q, q, q},
        {"dq", floats_of(m->dq), floats_of(w->dq), m->q_stride, w->q_stride, q},
        {"dk", floats_of(m->dk), floats_of(w->dk), m->kv_stride, w->kv_stride, kv},
        {"dv", floats_of(m->dv), floats_of(w->dv), m->kv_stride, w->kv_stride, kv}};
    for (int i = 0; i < 4; ++i) compare_rows(&arrays[i], shape, places, m->context);
    /* The gaps between rows belong to others. */
    const long gap = (shape->packed ? q + 2 * kv : q), rows = m->batch * m->context;
    for (long row = 0; row < rows; ++row)
        for (long i = gap; i < m->q_stride; ++i)
            CHECK(isnan(floats_of(m->dq)[row * m->q_stride + i]));
}

/* `nbytes` of floats that hold NaNs, and guards behind them. */
static float *guarded(size_t nbytes)
{
    float *x = NULL;
    if (posix_memalign((void **)&x, 64, nbytes + GUARD * sizeof *x)) abort();
    memset(x, 0xff, nbytes + GUARD * sizeof *x);
    return x;
}

static void check_guards(float *x, size_t nbytes)
{
    for (int i = 0; i < GUARD; ++i) CHECK(isnan(x[nbytes / sizeof *x + (size_t)i]));
    free(x);
}

static const struct tr_attention_kind *kind_of(const struct place *place)
{
    return place->parallel.ulysses->n > 1 ? &tr_ulysses_attention
                                          : tr_inner_attention(&place->parallel);
}

/* Payload that this rank has sent along an axis so far. */
static uint64_t sent_on(const struct tr_group *group)
{
    tuttiCounters_t counters = {0};
    if (group->n > 1) CHECK_EQ(tuttiCommCounters(group->comm, &counters), tuttiSuccess);
    return counters.bytesCopied + counters.bytesDirect;
}

struct traffic {
    uint64_t ring, ulysses;
};

static struct traffic traffic_of(const struct place *place)
{
    return (struct traffic){sent_on(place->parallel.ring), sent_on(place->parallel.ulysses)};
}

/* Runs the rank's part forward and backward; what each of them sent. */
static void run_attention(struct place *place, struct attention *a, struct traffic sent[2])
{
    struct tr_parallel *parallel = &place->parallel;
    const struct tr_attention_kind *kind = kind_of(place);
    const size_t room = kind->room(parallel, &a->call), scratch = kind->scratch(parallel, &a->call);
    float *kept = guarded(room);
    a->call.room = kept;
    for (int pass = 0; pass < 2; ++pass) {
        const struct traffic before = traffic_of(place);
        float *memory = guarded(scratch);
        const tr_status status =
            (pass ? kind->backward : kind->forward)(parallel, &a->call, memory);
        CHECK_MESSAGE(status == TR_OK, "%s", tr_error());
        check_guards(memory, scratch);
        const struct traffic after = traffic_of(place);
        sent[pass] = (struct traffic){after.ring - before.ring, after.ulysses - before.ulysses};
    }
    if (room) CHECK(!isnan(kept[room / sizeof *kept - 1]));
    check_guards(kept, room);
}

/* The attention over whole sequences of `length` tokens, on this rank alone. */
static void run_whole(struct attention *whole, const struct shape *shape, const long *places)
{
    static const struct tr_group alone = {.n = 1};
    struct tr_parallel parallel = {
        .backend = tr_backend_choose(""), .tp = &alone, .ring = &alone, .ulysses = &alone};
    make_attention(whole, shape, shape->length);
    fill_attention(whole, shape, places);
    whole->call.room = guarded(tr_local_attention.room(&parallel, &whole->call));
    float *scratch = guarded(tr_local_attention.scratch(&parallel, &whole->call));
    CHECK_EQ(tr_local_attention.forward(&parallel, &whole->call, scratch), TR_OK);
    CHECK_EQ(tr_local_attention.backward(&parallel, &whole->call, scratch), TR_OK);
    free(scratch);
    free(whole->call.room);
}

static void check_attention(struct place *place, const struct shape *shape, struct traffic sent[2])
{
    enum { MOST = 128 };
    const struct tr_mesh *mesh = &place->mesh;
    struct tr_sequence *s = &place->sequence;
    *s = tr_sequence_of(shape->length, mesh->size[TR_RING], mesh->coord[TR_RING],
                        mesh->size[TR_ULYSSES], mesh->coord[TR_ULYSSES], 1, shape->zigzag);
    long places[MOST], all[MOST];
    REQUIRE(s->padded <= MOST);
    for (long i = 0; i < s->local; ++i) places[i] = tr_sequence_position(s, i);
    for (long i = 0; i < MOST; ++i) all[i] = i;
    struct attention mine, whole;
    run_whole(&whole, shape, all);
    make_attention(&mine, shape, s->local);
    fill_attention(&mine, shape, places);
    run_attention(place, &mine, sent);
    compare(&mine, &whole, shape, places);
    free(mine.memory);
    free(whole.memory);
}

static void attend_everything(struct rank *self)
{
    static const long lengths[] = {5, 37, 96}, batches[] = {1, 3};
    const struct cut *cut = self->arg;
    struct place place;
    struct traffic sent[2];
    if (!settle(&place, self, cut)) return;
    for (int h = 0; h < NHEADS; ++h)
        for (int b = 0; b < 2; ++b)
            for (int l = 0; l < 3; ++l)
                for (int zigzag = 0; zigzag <= (cut->ring > 1); ++zigzag) {
                    const struct shape shape = {some_heads[h], batches[b], lengths[l], zigzag,
                                                (h + l + zigzag) % 2};
                    check_attention(&place, &shape, sent);
                }
    tr_mesh_fini(&place.mesh);
}

/* ---- What a call costs ------------------------------------------------------------------- */

/* Query heads of rank `rank` of u (what & 1), and twice the key heads that these use (what & 2). */
enum { QUERY_HEADS = 1, KEY_HEADS = 2 };
static uint64_t heads_at(const struct heads *heads, int u, int rank, int what)
{
    long queries = 0, keys = 0, last = -1;
    for (long h = heads->heads * rank / u; h < heads->heads * (rank + 1) / u; ++h) {
        const long kv = (h + heads->phase) / heads->group;
        queries++;
        keys += kv != last;
        last = kv;
    }
    return (uint64_t)((what & QUERY_HEADS ? queries : 0) + (what & KEY_HEADS ? 2 * keys : 0));
}

/* The counters have a rank's message to itself too: the formulas without the factor (u-1)/u. */
static void check_sent(const struct place *place, const struct shape *shape,
                       const struct traffic sent[2])
{
    const struct tr_sequence *s = &place->sequence;
    const int u = s->ulysses, rank = s->ulysses_rank, all = QUERY_HEADS | KEY_HEADS;
    const uint64_t head = (uint64_t)(shape->batch * s->local * SIZE) * sizeof(float),
                   ring = (uint64_t)s->ring, ranks = (uint64_t)u,
                   block = heads_at(&shape->heads, u, rank, KEY_HEADS) * ranks * head;
    uint64_t forward = ranks * heads_at(&shape->heads, u, rank, QUERY_HEADS),
             backward = ranks * heads_at(&shape->heads, u, rank, all);
    for (int j = 0; j < u; ++j) {
        forward += heads_at(&shape->heads, u, j, all);
        backward += heads_at(&shape->heads, u, j, QUERY_HEADS);
    }
    CHECK_EQ(sent[0].ring, (ring - 1) * block);
    CHECK_EQ(sent[1].ring, ring > 1 ? (2 * ring - 1) * block : 0);
    CHECK_EQ(sent[0].ulysses, u > 1 ? forward * head : 0);
    CHECK_EQ(sent[1].ulysses, u > 1 ? backward * head : 0);
    const long a = shape->heads.heads, k = kv_heads_of(&shape->heads);
    if (u == 1 || a % u || k % u || shape->heads.phase) return;
    CHECK_EQ(sent[0].ulysses, (uint64_t)(2 * a + 2 * k) * head);
    CHECK_EQ(sent[1].ulysses, (uint64_t)(2 * a + 2 * k) * head);
}

static void count_sent(struct rank *self)
{
    struct place place;
    struct traffic sent[2];
    if (!settle(&place, self, self->arg)) return;
    for (int h = 0; h < NHEADS; ++h)
        for (long batch = 0; batch < 3; ++batch) {
            const struct shape shape = {some_heads[h], batch, 37, batch == 1, false};
            check_attention(&place, &shape, sent);
            check_sent(&place, &shape, sent);
        }
    tr_mesh_fini(&place.mesh);
}

/* Pairs of a query and a key that this thread's operations have computed. */
static _Thread_local long pairs;

static void count_pairs(const struct tr_attention *s)
{
    for (long i = 0; i < s->queries; ++i) {
        const long seen = i + s->offset + 1;
        pairs += s->batch * s->heads * (seen < 0 ? 0 : seen < s->keys ? seen : s->keys);
    }
}

static void counting_forward(struct tr_data *out, float *lse, const struct tr_data *q,
                             const struct tr_data *k, const struct tr_data *v, float *scratch,
                             const struct tr_attention *shape)
{
    count_pairs(shape);
    tr_backend_choose("")->attention_forward(out, lse, q, k, v, scratch, shape);
}

static void counting_backward(struct tr_data *dq, struct tr_data *dk, struct tr_data *dv,
                              const struct tr_data *dout, const struct tr_data *out,
                              const float *lse, const struct tr_data *q, const struct tr_data *k,
                              const struct tr_data *v, float *scratch,
                              const struct tr_attention *shape)
{
    count_pairs(shape);
    tr_backend_choose("")->attention_backward(dq, dk, dv, dout, out, lse, q, k, v, scratch, shape);
}

static void count_work(struct rank *self)
{
    struct place place;
    struct traffic sent[2];
    if (!settle(&place, self, self->arg)) return;
    struct tr_backend counting = *place.parallel.backend;
    counting.attention_forward = counting_forward;
    counting.attention_backward = counting_backward;
    place.parallel.backend = &counting;
    for (int zigzag = 0; zigzag < 2; ++zigzag) {
        const struct shape shape = {some_heads[3], 3, 96, zigzag, true};
        pairs = 0;
        check_attention(&place, &shape, sent);
        const long n = place.sequence.local, before = zigzag ? place.parallel.ring->n - 1 : 0,
                   rank = place.sequence.ring_rank;
        const long block = zigzag ? before * n * n / 2 : rank * n * n, own = n * (n + 1) / 2;
        CHECK_EQ(pairs, 2 * shape.batch * shape.heads.heads * (block + own));
    }
    tr_mesh_fini(&place.mesh);
}

/* ---- Tests ------------------------------------------------------------------------------- */

static void for_all_cuts(void (*body)(struct rank *))
{
    for (int ring = 1; ring <= 4; ++ring)
        for (int ulysses = 1; ulysses <= 4 && ring * ulysses <= MOST_RANKS; ++ulysses) {
            const struct cut cut = {ring, ulysses, 1};
            if (!tt_test_share(3)) continue;
            run_cut(&cut, body);
            CHECK_MESSAGE(!tt_test_failed(), "so far: ring %d, ulysses %d", ring, ulysses);
        }
}

TEST(parallel, attention_cut_by_ring_and_ulysses_equals_the_uncut_attention)
{
    for_all_cuts(attend_everything);
}

TEST(parallel, attention_sends_the_bytes_of_the_formulas_also_without_sequences)
{
    for_all_cuts(count_sent);
}

TEST(parallel, ring_ranks_compute_what_the_mask_leaves_and_equally_much_in_zigzag)
{
    for (int ring = 2; ring <= 4; ++ring) {
        const struct cut cut = {ring, 1, 1};
        run_cut(&cut, count_work);
    }
}

static void lose_a_rank(struct rank *self)
{
    const struct cut *cut = self->arg;
    struct place place;
    if (!settle(&place, self, cut)) return;
    place.sequence = tr_sequence_of(8, cut->ring, self->rank, cut->ulysses, 0, 1, false);
    const struct shape shape = {some_heads[2], 1, 8, false, true};
    const long places[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct attention a;
    make_attention(&a, &shape, place.sequence.local);
    fill_attention(&a, &shape, places);
    if (self->rank == 1) {
        abort_group(&place, cut->ring > 1 ? TR_RING : TR_ULYSSES);
    } else {
        const struct tr_attention_kind *kind = kind_of(&place);
        a.call.room = guarded(kind->room(&place.parallel, &a.call));
        float *scratch = guarded(kind->scratch(&place.parallel, &a.call));
        check_failed(kind->forward(&place.parallel, &a.call, scratch),
                     cut->ring > 1 ? "passing keys and values on around the ring"
                                   : "exchanging queries, keys and values for the heads");
        free(scratch);
        free(a.call.room);
    }
    free(a.memory);
    tr_mesh_fini(&place.mesh);
}

TEST(parallel, attention_fails_with_a_sentence_when_a_rank_leaves)
{
    static const struct cut cuts[] = {{2, 1, 1}, {1, 2, 1}};
    for (int i = 0; i < 2; ++i) run_cut(&cuts[i], lose_a_rank);
}
