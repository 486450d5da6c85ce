/* clang-format off */
/* Ulysses sequence parallelism: between two exchanges, a rank has some of the heads of all tokens
 * instead of all heads of some tokens, and computes an attention that knows of no cut (Jacobs et
 * al., DeepSpeed Ulysses, 2023). Four ranks, seven query heads, two key heads (a key head goes to
 * every rank that has a query head of its group; a message has q, k and v packed):
 *
 *     tokens of rank       0        1        2        3        heads of rank
 *                       q 0..6   q 0..6   q 0..6   q 0..6
 *     exchange             |        |        |        |
 *                       q 0      q 0      q 0      q 0         0    k, v 0
 *                       q 1 2    q 1 2    q 1 2    q 1 2       1    k, v 0
 *                       q 3 4    q 3 4    q 3 4    q 3 4       2    k, v 0 and 1
 *                       q 5 6    q 5 6    q 5 6    q 5 6       3    k, v 1
 *
 * Collectives  all-to-alls with a count for each pair of ranks. Forward: one of q, k and v, and one
 *              of out. Backward: one of the gradient of out, and one of the gradients of q, k and
 *              v; those of a key head are summed, in the order of ranks, where its tokens are.
 * Volume       u ranks, Mq = (s/u) B h 4 bytes and Mkv = (s/u) B hk 4 bytes on each: forward and
 *              backward f(u) (2 Mq + 2 Mkv) bytes sent a rank each, f(u) = (u-1)/u, where u divides
 *              the heads and the key heads. Else hk counts each key head once for every rank that
 *              uses it, times u, and ranks differ by the heads that they have.
 * Memory       kept for backward: q, k, v and out of the rank's heads and all tokens, and what the
 *              inner attention keeps (the logarithms of the sums). Scratch: the same heads of the
 *              gradients of out, q, k and v, and the larger of the messages and the inner scratch.
 * Limits       none on the heads: rank j of u has the query heads from floor(j a / u) on, perhaps
 *              none.
 * Order        all on the backend's stream. The inner attention (ring or local)
 *              runs between the exchanges; ranks without heads or sequences make all calls.
 * Test         tests/trainer/parallel_test.c: 1 to 4 ranks, 1, 4 and 7 heads, 1, 2 and all key
 *              heads, alone and around a ring, against the uncut attention; bytes sent. */
/* clang-format on */
#include "../calls.h"
#include "parallel.h"

/* The heads that a rank has between the exchanges. */
struct share {
    long q, nq;   /* first query head, count */
    long kv, nkv; /* first key head, count */
};

static struct share share_of(const struct tr_attend *call, int u, int rank)
{
    const long first = call->heads * rank / u, end = call->heads * (rank + 1) / u;
    if (first == end) return (struct share){.q = first};
    const long kv = (first + call->phase) / call->group,
               last = (end - 1 + call->phase) / call->group;
    return (struct share){first, end - first, kv, last - kv + 1};
}

/* What an exchange moves: out or its gradient; or q, k and v, or theirs. */
enum cargo { QUERIES, ALL };

/* Elements that a token takes in a message with these heads. */
static long width_of(const struct tr_attend *call, const struct share *share, enum cargo cargo)
{
    return (share->nq + (cargo == ALL ? 2 * share->nkv : 0)) * call->d;
}

/* One call, with its own share of the heads and the memory between the exchanges. `by_heads` has a
 * message for each rank with its heads of this rank's tokens; `by_tokens` one with each rank's
 * tokens of this rank's heads. */
struct ulysses {
    const struct tr_backend *backend;
    const struct tr_group *group;
    const struct tr_attend *call;
    struct share mine;
    long tokens;                 /* of a sequence, of all ranks */
    enum tr_type type;           /* of activations, which messages consist of */
    struct tr_data *qkv, *out;   /* in the room */
    void *room;                  /* the inner attention's, behind them */
    struct tr_data *dout, *dqkv; /* in the scratch, as all below */
    struct tr_data *by_heads, *by_tokens;
    void *inner;                   /* lies over the other two */
    size_t *counts[2], *displs[2]; /* [ranks] of by_heads and by_tokens */
};

/* ---- Memory ------------------------------------------------------------------------------ */

static struct tr_attend inner_call(const struct tr_attend *call, int u, const struct share *mine)
{
    return (struct tr_attend){.batch = call->batch,
                              .context = call->context * u,
                              .heads = mine->nq,
                              .kv_heads = mine->nkv,
                              .d = call->d,
                              .group = call->group,
                              .phase = (mine->q + call->phase) % call->group,
                              .q_stride = width_of(call, mine, ALL),
                              .kv_stride = width_of(call, mine, ALL)};
}

static long sum_of_widths(const struct tr_attend *call, int u)
{
    long sum = 0;
    for (int j = 0; j < u; ++j) {
        const struct share share = share_of(call, u, j);
        sum += width_of(call, &share, ALL);
    }
    return sum;
}

static size_t scratch_of(const struct tr_parallel *parallel, const struct tr_attend *call)
{
    const int u = parallel->ulysses->n;
    const struct share mine = share_of(call, u, parallel->ulysses->rank);
    const struct tr_attend inner = inner_call(call, u, &mine);
    const enum tr_type type = parallel->backend->types.activations;
    const long rows = call->batch * call->context,
               heads = rows * u * (width_of(call, &mine, QUERIES) + width_of(call, &mine, ALL));
    const size_t messages = tr_room_bytes(
        type, (size_t)(rows * (sum_of_widths(call, u) + u * width_of(call, &mine, ALL))));
    const size_t within = tr_inner_attention(parallel)->scratch(parallel, &inner);
    return tr_room_bytes(type, (size_t)heads) + (messages > within ? messages : within);
}

static size_t room(const struct tr_parallel *parallel, const struct tr_attend *call)
{
    const int u = parallel->ulysses->n;
    const struct share mine = share_of(call, u, parallel->ulysses->rank);
    const struct tr_attend inner = inner_call(call, u, &mine);
    const long width = width_of(call, &mine, ALL) + width_of(call, &mine, QUERIES);
    return tr_room_bytes(parallel->backend->types.activations,
                         (size_t)(call->batch * call->context * u * width)) +
           tr_inner_attention(parallel)->room(parallel, &inner);
}

static struct ulysses ulysses_of(const struct tr_parallel *parallel, const struct tr_attend *call,
                                 void *scratch)
{
    const enum tr_type type = parallel->backend->types.activations;
    const int u = parallel->ulysses->n;
    struct ulysses x = {.backend = parallel->backend,
                        .group = parallel->ulysses,
                        .call = call,
                        .mine = share_of(call, u, parallel->ulysses->rank),
                        .tokens = call->context * u,
                        .type = type};
    const size_t rows = (size_t)(call->batch * x.tokens),
                 all = rows * (size_t)width_of(call, &x.mine, ALL),
                 queries = rows * (size_t)width_of(call, &x.mine, QUERIES),
                 heads = tr_room_bytes(type, all + queries);
    x.qkv = call->room;
    x.out = tr_at(x.qkv, type, all);
    x.room = (char *)call->room + heads;
    for (int side = 0; side < 2; ++side) {
        x.counts[side] = parallel->counts + 2 * side * u;
        x.displs[side] = x.counts[side] + u;
    }
    x.dout = scratch;
    x.dqkv = tr_at(x.dout, type, queries);
    x.inner = (char *)scratch + heads;
    x.by_heads = x.inner;
    x.by_tokens =
        tr_at(x.by_heads, type, (size_t)(call->batch * call->context * sum_of_widths(call, u)));
    return x;
}

/* ---- Exchanges --------------------------------------------------------------------------- */

enum side { BY_HEADS, BY_TOKENS };

/* How many elements each rank's message has on either side, and where it begins. */
static void plan(const struct ulysses *x, enum cargo cargo)
{
    const long rows = x->call->batch * x->call->context;
    const int u = x->group->n;
    size_t at[2] = {0, 0};
    for (int j = 0; j < u; ++j) {
        const struct share share = share_of(x->call, u, j);
        x->counts[BY_HEADS][j] = (size_t)(rows * width_of(x->call, &share, cargo));
        x->counts[BY_TOKENS][j] = (size_t)(rows * width_of(x->call, &x->mine, cargo));
        for (int side = 0; side < 2; ++side) {
            x->displs[side][j] = at[side];
            at[side] += x->counts[side][j];
        }
    }
}

/* Sends the messages of side `from`. */
static tr_status exchange(const struct ulysses *x, enum side from, const char *what)
{
    struct tr_data *const buffers[] = {x->by_heads, x->by_tokens};
    const int to = !from;
    const struct tr_parcels sent = {x->counts[from], x->displs[from]},
                            received = {x->counts[to], x->displs[to]};
    return tr_all_to_all(x->group, x->backend->stream, buffers[from], &sent, buffers[to], &received,
                         tr_type_datatype(x->type), what);
}

/* Between messages by tokens, [ranks, batch, context, width], and sequences, [batch, ranks,
 * context, width]. */
static void order_tokens(const struct ulysses *x, struct tr_data *sequences, enum cargo cargo,
                         bool pack)
{
    const struct tr_attend *c = x->call;
    const long n = c->context * width_of(c, &x->mine, cargo);
    for (int j = 0; j < x->group->n; ++j)
        for (long b = 0; b < c->batch; ++b) {
            struct tr_data *const message = tr_at(x->by_tokens, x->type,
                                                  (size_t)((j * c->batch + b) * n)),
                                  *const at = tr_at(sequences, x->type,
                                                    (size_t)((b * x->group->n + j) * n));
            x->backend->copy_rows(pack ? message : at, n, pack ? at : message, n, 1, n, x->type);
        }
}

/* The sequences of this rank's heads, of what every rank has of its tokens: of the gradient of out,
 * or of q, k and v. */
static tr_status to_heads(const struct ulysses *x, enum cargo cargo, const char *what)
{
    const struct tr_attend *c = x->call;
    const enum tr_type type = x->type;
    const long d = c->d, rows = c->batch * c->context;
    plan(x, cargo);
    for (int j = 0; j < x->group->n; ++j) {
        const struct share share = share_of(c, x->group->n, j);
        const long width = width_of(c, &share, cargo), q = share.nq * d, kv = share.nkv * d;
        const size_t first_q = (size_t)(share.q * d), first_kv = (size_t)(share.kv * d);
        struct tr_data *at = tr_at(x->by_heads, type, x->displs[BY_HEADS][j]);
        if (cargo == QUERIES) {
            x->backend->copy_rows(at, width, tr_const_at(c->dout, type, first_q), c->heads * d,
                                  rows, q, type);
            continue;
        }
        struct tr_data *k = tr_at(at, type, (size_t)q), *v = tr_at(k, type, (size_t)kv);
        x->backend->copy_rows(at, width, tr_const_at(c->q, type, first_q), c->q_stride, rows, q,
                              type);
        x->backend->copy_rows(k, width, tr_const_at(c->k, type, first_kv), c->kv_stride, rows, kv,
                              type);
        x->backend->copy_rows(v, width, tr_const_at(c->v, type, first_kv), c->kv_stride, rows, kv,
                              type);
    }
    TR_TRY(exchange(x, BY_HEADS, what));
    order_tokens(x, cargo == QUERIES ? x->dout : x->qkv, cargo, false);
    return TR_OK;
}

/* The way back: of out, or of the gradients of q, k and v. The key heads get a summand from each
 * rank that has used them. */
static tr_status to_tokens(const struct ulysses *x, enum cargo cargo, const char *what)
{
    const struct tr_attend *c = x->call;
    const enum tr_type type = x->type;
    const long d = c->d, rows = c->batch * c->context;
    plan(x, cargo);
    order_tokens(x, cargo == QUERIES ? x->out : x->dqkv, cargo, true);
    TR_TRY(exchange(x, BY_TOKENS, what));
    if (cargo == ALL) {
        x->backend->clear_rows(c->dk, c->kv_stride, rows, c->kv_heads * d);
        x->backend->clear_rows(c->dv, c->kv_stride, rows, c->kv_heads * d);
    }
    for (int j = 0; j < x->group->n; ++j) {
        const struct share share = share_of(c, x->group->n, j);
        const long width = width_of(c, &share, cargo), q = share.nq * d, kv = share.nkv * d;
        const size_t first_q = (size_t)(share.q * d), first_kv = (size_t)(share.kv * d);
        struct tr_data *at = tr_at(x->by_heads, type, x->displs[BY_HEADS][j]);
        if (cargo == QUERIES) {
            x->backend->copy_rows(tr_at(c->out, type, first_q), c->heads * d, at, width, rows, q,
                                  type);
            continue;
        }
        struct tr_data *k = tr_at(at, type, (size_t)q), *v = tr_at(k, type, (size_t)kv);
        x->backend->copy_rows(tr_at(c->dq, type, first_q), c->q_stride, at, width, rows, q, type);
        x->backend->add_rows(tr_at(c->dk, type, first_kv), c->kv_stride, k, width, rows, kv);
        x->backend->add_rows(tr_at(c->dv, type, first_kv), c->kv_stride, v, width, rows, kv);
    }
    return TR_OK;
}

/* ---- The call ---------------------------------------------------------------------------- */

static struct tr_attend inner_of(const struct ulysses *x)
{
    const enum tr_type type = x->type;
    const size_t nq = (size_t)(x->mine.nq * x->call->d), nkv = (size_t)(x->mine.nkv * x->call->d);
    struct tr_attend inner = inner_call(x->call, x->group->n, &x->mine);
    inner.q = x->qkv;
    inner.k = tr_at(x->qkv, type, nq);
    inner.v = tr_at(x->qkv, type, nq + nkv);
    inner.out = x->out;
    inner.room = x->room;
    inner.dout = x->dout;
    inner.dq = x->dqkv;
    inner.dk = tr_at(x->dqkv, type, nq);
    inner.dv = tr_at(x->dqkv, type, nq + nkv);
    return inner;
}

static tr_status forward(struct tr_parallel *parallel, const struct tr_attend *call, void *scratch)
{
    const struct ulysses x = ulysses_of(parallel, call, scratch);
    const struct tr_attend inner = inner_of(&x);
    TR_TRY(to_heads(&x, ALL, "exchanging queries, keys and values for the heads of Ulysses"));
    TR_TRY(tr_inner_attention(parallel)->forward(parallel, &inner, x.inner));
    return to_tokens(&x, QUERIES, "exchanging the output of Ulysses' heads for tokens");
}

static tr_status backward(struct tr_parallel *parallel, const struct tr_attend *call, void *scratch)
{
    const struct ulysses x = ulysses_of(parallel, call, scratch);
    const struct tr_attend inner = inner_of(&x);
    TR_TRY(to_heads(&x, QUERIES, "exchanging the output's gradient for the heads of Ulysses"));
    TR_TRY(tr_inner_attention(parallel)->backward(parallel, &inner, x.inner));
    return to_tokens(&x, ALL, "exchanging the gradients of Ulysses' heads for tokens");
}

const struct tr_attention_kind tr_ulysses_attention = {
    .forward = forward, .backward = backward, .room = room, .scratch = scratch_of};
