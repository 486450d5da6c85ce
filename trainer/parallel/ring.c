/* clang-format off */
/* Ring attention: every ring rank keeps the queries of its tokens, and the keys and values of all
 * ranks travel around the ring, a block from each rank (Liu et al., Ring Attention, 2023).
 *
 *     step    rank 0    rank 1    rank 2    rank 3      attends to the block of
 *      0        0         1         2         3         (causal)
 *      1        3         0         1         2
 *      2        2         3         0         1
 *      3        1         2         3         0
 *
 * What the mask leaves of a step, where s is the block's rank and r this one:
 *     contiguous  s < r: everything; s > r: nothing.
 *     zigzag      rank r has chunks r and 2c-1-r of the sequence: s < r: all queries, the first
 *                 half of the keys; s > r: the second half of the queries, all keys. So every rank
 *                 does exactly half of a block at every step after the first.
 *
 * Collectives  sends and receives between neighbours. Forward: a block goes to the next rank c-1
 *              times; the partial attentions are merged by the logarithms of their sums. Backward:
 *              keys and values travel the same way once more; the block of their gradients follows
 *              one step later, is added to at every rank, and arrives at home after c sends.
 * Volume       with c ranks and a block of W = 2 (s/c) B hk 4 bytes, sent by every rank: forward
 *              (c-1) W, backward (c-1) W + c W. (s: tokens of the sequence, B: sequences, hk:
 *              width of the key heads.)
 * Memory       kept for backward: out and its logarithms, nothing else. Scratch: two blocks of keys
 *              and values, and in forward one sequence's out, in backward three blocks of
 *              gradients.
 * Limits       zigzag cuts the tokens of every rank in two equal chunks (seqlayout.h pads).
 * Order        the exchange of a step is one group on the ring's stream, issued before the step's
 *              computation and waited for after it. All ranks make the same calls, also for blocks
 *              that they do not look at and for no sequences.
 * Test         tests/trainer/parallel_test.c: 1 to 4 ring ranks, alone and inside Ulysses, against
 *              the uncut attention; bytes sent; equal work of the ranks in zigzag. */
/* clang-format on */
#include "../calls.h"
#include "parallel.h"

/* One call. Blocks are keys[batch, context, width], then values of the same shape. */
struct ring {
    const struct tr_backend *backend;
    const struct tr_group *group;
    const struct tr_attend *call;
    bool zigzag;
    long width;                   /* elements of the key heads of a token */
    long half;                    /* elements of a block's keys, and of its values */
    enum tr_type type;            /* of activations, which blocks consist of */
    struct tr_data *kv, *kv_in;   /* the block at hand, and the one that arrives */
    float *scratch;               /* of the operations */
    struct tr_data *out;          /* forward: of one sequence and a block that came by */
    float *lse;                   /* of that, too */
    struct tr_data *sum, *sum_in; /* backward: gradients of the last block, and those that arrive */
    struct tr_data *part;         /* backward: this rank's summand of the gradients of kv */
};

/* What the mask leaves of a step: these queries of a sequence, and the first `keys` keys. */
struct part {
    long query, queries, keys, offset;
};

static struct part part_of(const struct ring *ring, int source)
{
    const long n = ring->call->context, half = n / 2;
    if (source == ring->group->rank) return (struct part){0, n, n, 0};
    if (ring->zigzag)
        return source < ring->group->rank ? (struct part){0, n, half, half}
                                          : (struct part){half, n - half, n, n};
    return source < ring->group->rank ? (struct part){0, n, n, n} : (struct part){0};
}

static struct tr_attention shape_of(const struct tr_attend *call)
{
    return (struct tr_attention){.batch = 1,
                                 .queries = call->context,
                                 .keys = call->context,
                                 .heads = 1,
                                 .size = call->d,
                                 .group = 1,
                                 .q_stride = call->q_stride,
                                 .kv_stride = call->kv_heads * call->d,
                                 .out_stride = call->heads * call->d};
}

/* One head of one sequence: where the part's rows begin, in elements. */
struct head {
    size_t q, out, lse, kv;
};

static struct head head_at(const struct ring *ring, const struct part *part, long b, long h)
{
    const struct tr_attend *c = ring->call;
    const long row = b * c->context + part->query;
    return (struct head){
        .q = (size_t)(row * c->q_stride + h * c->d),
        .out = (size_t)(row * c->heads * c->d + h * c->d),
        .lse = (size_t)((b * c->heads + h) * c->context + part->query),
        .kv = (size_t)(b * c->context * ring->width + (h + c->phase) / c->group * c->d)};
}

/* ---- Blocks ------------------------------------------------------------------------------ */

static long block_elements(const struct tr_attend *shape)
{
    return 2 * shape->batch * shape->context * shape->kv_heads * shape->d;
}

/* Where each part of the scratch begins, in bytes, and where the last one ends. */
struct places {
    size_t kv_in, operations, rest, lse, end;
    size_t block; /* bytes of one */
};

static struct places places_of(const struct tr_attend *call, enum tr_type type)
{
    const struct tr_attention shape = shape_of(call);
    const size_t context = (size_t)call->context,
                 block = tr_room_bytes(type, (size_t)block_elements(call)),
                 rest = 2 * block + tr_attention_scratch(&shape) * sizeof(float),
                 lse = rest + tr_room_bytes(type, context * (size_t)(call->heads * call->d)),
                 forward = lse + context * sizeof(float), backward = rest + 3 * block;
    return (struct places){.kv_in = block,
                           .operations = 2 * block,
                           .rest = rest,
                           .lse = lse,
                           .block = block,
                           .end = forward > backward ? forward : backward};
}

static size_t scratch_of(const struct tr_parallel *parallel, const struct tr_attend *call)
{
    return places_of(call, parallel->backend->types.activations).end;
}

static size_t room(const struct tr_parallel *parallel, const struct tr_attend *shape)
{
    (void)parallel;
    return (size_t)(shape->batch * shape->heads * shape->context) *
           sizeof(float); /* logarithms of the sums */
}

static void *behind(void *room, size_t nbytes)
{
    return (char *)room + nbytes;
}

static struct ring ring_of(const struct tr_parallel *parallel, const struct tr_attend *call,
                           void *scratch)
{
    const enum tr_type type = parallel->backend->types.activations;
    const struct places at = places_of(call, type);
    return (struct ring){.backend = parallel->backend,
                         .group = parallel->ring,
                         .call = call,
                         .zigzag = parallel->sequence->zigzag,
                         .width = call->kv_heads * call->d,
                         .half = block_elements(call) / 2,
                         .type = type,
                         .kv = scratch,
                         .kv_in = behind(scratch, at.kv_in),
                         .scratch = behind(scratch, at.operations),
                         .out = behind(scratch, at.rest),
                         .lse = behind(scratch, at.lse),
                         .sum = behind(scratch, at.rest),
                         .sum_in = behind(scratch, at.rest + at.block),
                         .part = behind(scratch, at.rest + 2 * at.block)};
}

static void swap(struct tr_data **a, struct tr_data **b)
{
    struct tr_data *const kept = *a;
    *a = *b;
    *b = kept;
}

/* The values of a block, behind its keys. */
static struct tr_data *values_of(const struct ring *ring, struct tr_data *block)
{
    return tr_at(block, ring->type, (size_t)ring->half);
}

static void take_own_block(const struct ring *ring)
{
    const struct tr_attend *c = ring->call;
    const long rows = c->batch * c->context, width = ring->width;
    ring->backend->copy_rows(ring->kv, width, c->k, c->kv_stride, rows, width, ring->type);
    ring->backend->copy_rows(values_of(ring, ring->kv), width, c->v, c->kv_stride, rows, width,
                             ring->type);
}

static const char passing[] = "passing keys and values on around the ring";

/* Issues one hop: `kv` goes to the next rank and kv_in comes from the previous one; `sum` and
 * sum_in likewise. */
static tr_status pass_on(const struct ring *ring, const struct tr_data *out, struct tr_data *in)
{
    const struct tr_group *group = ring->group;
    const size_t count = 2 * (size_t)ring->half;
    const tuttiDataType_t type = tr_type_datatype(ring->type);
    const int next = (group->rank + 1) % group->n,
              previous = (group->rank + group->n - 1) % group->n;
    TR_TRY(tr_send(group, group->stream, out, count, type, next, passing));
    return tr_receive(group, group->stream, in, count, type, previous, passing);
}

static tr_status depart(const struct ring *ring, bool keys, bool gradients)
{
    const struct tr_group *group = ring->group;
    ring->backend->wait(); /* the messages are written */
    TR_TRY(tr_calls_begin(group, passing));
    tr_status status = keys ? pass_on(ring, ring->kv, ring->kv_in) : TR_OK;
    if (status == TR_OK && gradients) status = pass_on(ring, ring->sum, ring->sum_in);
    const tr_status ended = tr_calls_end(group, passing);
    return status == TR_OK ? ended : status;
}

static tr_status arrive(const struct ring *ring)
{
    return tr_calls_wait(ring->group, passing);
}

/* ---- Forward ----------------------------------------------------------------------------- */

/* The attention over this rank's own block is written to the call's out; the others are merged. */
static void attend_block(const struct ring *ring, int source)
{
    const struct tr_attend *c = ring->call;
    const struct part part = part_of(ring, source);
    const bool own = source == ring->group->rank;
    const enum tr_type type = ring->type;
    float *const kept = c->room;
    struct tr_attention shape = shape_of(c);
    shape.queries = part.queries;
    shape.keys = part.keys;
    shape.offset = part.offset;
    if (!part.queries) return;
    for (long b = 0; b < c->batch; ++b)
        for (long h = 0; h < c->heads; ++h) {
            const struct head at = head_at(ring, &part, b, h);
            struct tr_data *mine = tr_at(c->out, type, at.out),
                           *out = own ? mine : tr_at(ring->out, type, (size_t)(h * c->d));
            float *my_lse = kept + at.lse, *lse = own ? my_lse : ring->lse;
            ring->backend->attention_forward(
                out, lse, tr_const_at(c->q, type, at.q), tr_at(ring->kv, type, at.kv),
                tr_at(values_of(ring, ring->kv), type, at.kv), ring->scratch, &shape);
            if (!own) ring->backend->attention_merge(mine, my_lse, out, lse, &shape);
        }
}

static tr_status forward(struct tr_parallel *parallel, const struct tr_attend *call, void *scratch)
{
    struct ring ring = ring_of(parallel, call, scratch);
    const int n = ring.group->n, rank = ring.group->rank;
    take_own_block(&ring);
    for (int step = 0; step < n; ++step) {
        const bool more = step + 1 < n;
        if (more) TR_TRY(depart(&ring, true, false));
        attend_block(&ring, (rank - step + n) % n);
        if (more) TR_TRY(arrive(&ring));
        swap(&ring.kv, &ring.kv_in);
    }
    return TR_OK;
}

/* ---- Backward ---------------------------------------------------------------------------- */

/* dq += and dkv = the gradients through the block of `source`. */
static void differentiate_block(const struct ring *ring, struct tr_data *dkv, int source)
{
    const enum tr_type type = ring->type;
    const struct tr_attend *c = ring->call;
    const struct part part = part_of(ring, source);
    struct tr_attention shape = shape_of(c);
    shape.queries = part.queries;
    shape.keys = part.keys;
    shape.offset = part.offset;
    const float *const lse = c->room;
    ring->backend->clear(dkv, 2 * (size_t)ring->half * tr_type_bytes(type));
    if (!part.queries) return;
    for (long b = 0; b < c->batch; ++b)
        for (long h = 0; h < c->heads; ++h) {
            const struct head at = head_at(ring, &part, b, h);
            ring->backend->attention_backward(
                tr_at(c->dq, type, at.q), tr_at(dkv, type, at.kv),
                tr_at(values_of(ring, dkv), type, at.kv), tr_const_at(c->dout, type, at.out),
                tr_at(c->out, type, at.out), lse + at.lse, tr_const_at(c->q, type, at.q),
                tr_at(ring->kv, type, at.kv), tr_at(values_of(ring, ring->kv), type, at.kv),
                ring->scratch, &shape);
        }
}

/* The sum that arrived, of the ranks before, becomes the sum with this rank's part. */
static void add_part(struct ring *ring)
{
    ring->backend->add(ring->sum_in, ring->part, 2 * (size_t)ring->half);
    swap(&ring->sum, &ring->sum_in);
}

static tr_status backward(struct tr_parallel *parallel, const struct tr_attend *call, void *scratch)
{
    struct ring ring = ring_of(parallel, call, scratch);
    const int n = ring.group->n, rank = ring.group->rank;
    const long rows = call->batch * call->context, width = ring.width;
    ring.backend->clear_rows(call->dq, call->q_stride, rows,
                             call->heads * call->d); /* the operation adds */
    take_own_block(&ring);
    for (int step = 0; step < n; ++step) {
        const bool more = step + 1 < n, travelling = step > 0;
        if (more || travelling) TR_TRY(depart(&ring, more, travelling));
        differentiate_block(&ring, travelling ? ring.part : ring.sum, (rank - step + n) % n);
        if (more || travelling) TR_TRY(arrive(&ring));
        if (travelling) add_part(&ring);
        swap(&ring.kv, &ring.kv_in);
    }
    TR_TRY(depart(&ring, false, true)); /* home */
    TR_TRY(arrive(&ring));
    ring.backend->copy_rows(call->dk, call->kv_stride, ring.sum_in, width, rows, width, ring.type);
    ring.backend->copy_rows(call->dv, call->kv_stride, values_of(&ring, ring.sum_in), width, rows,
                            width, ring.type);
    return TR_OK;
}

const struct tr_attention_kind tr_ring_attention = {
    .forward = forward, .backward = backward, .room = room, .scratch = scratch_of};
