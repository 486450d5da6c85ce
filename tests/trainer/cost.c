/* The formulas, from the sizes of tensors up. */
#include "cost_units.h"

#include <string.h>

/* ---- From options to sizes ----------------------------------------------------------------------
 */

struct tr_cost_sizes tr_cost_sizes_of(const struct tr_engine_options *o,
                                      const int size[TR_NUM_AXES])
{
    const struct tr_model_size *m = &o->model;
    return (struct tr_cost_sizes){.architecture = tr_architectures[m->kind],
                                  .tied = m->tied,
                                  .layers = m->layers,
                                  .heads = m->heads,
                                  .kv_heads = m->kv_heads,
                                  .width = m->width,
                                  .hidden = m->hidden,
                                  .vocabulary = m->vocabulary,
                                  .context = m->context,
                                  .pp = size[TR_PP],
                                  .dp = size[TR_DP],
                                  .fsdp = size[TR_FSDP],
                                  .ring = size[TR_RING],
                                  .ulysses = size[TR_ULYSSES],
                                  .tp = size[TR_TP],
                                  .zero = (int)o->sharding,
                                  .gpipe = o->schedule == TR_GPIPE,
                                  .optimizer = o->optimizer,
                                  .reduce_last = o->reduce_last,
                                  .keep_gathered = size[TR_PP] > 1 && !o->reshard_always,
                                  .batch = o->batch,
                                  .micro_batch = o->micro_batch,
                                  .bucket_bytes = (long)o->bucket_bytes};
}

struct tr_cost_rank tr_cost_rank_of(const struct tr_engine_options *o, const int size[TR_NUM_AXES],
                                    const int *first_layer, int rank)
{
    int coord[TR_NUM_AXES], shard = 0, replica = 0;
    tr_mesh_coords(size, rank, coord);
    const tr_axes axes = tr_engine_shard_axes(o->sharding);
    for (int axis = 0; axis < TR_NUM_AXES; ++axis)
        if (axes >> axis & 1)
            shard = shard * size[axis] + coord[axis];
        else if (TR_AXES_DATA >> axis & 1)
            replica += coord[axis];
    long first, samples;
    tr_layout_slice(o->batch, size[TR_DP] * size[TR_FSDP],
                    coord[TR_DP] * size[TR_FSDP] + coord[TR_FSDP], &first, &samples);
    const int stage = coord[TR_PP];
    return (struct tr_cost_rank){.stage = stage,
                                 .stage_layers = first_layer[stage + 1] - first_layer[stage],
                                 .stage_rank =
                                     rank % (tr_mesh_extent(size, TR_AXES_ALL) / size[TR_PP]),
                                 .shard = shard,
                                 .samples = samples,
                                 .ulysses_rank = coord[TR_ULYSSES],
                                 .saves = replica == 0};
}

/* ---- Collectives of the store ------------------------------------------------------------------
 */

/* Gradients in buckets, cut from the end of the stage's units; a bucket ends with the tensor that
 * makes it large enough. */
static long buckets_of(const struct tr_cost_stage *stage, long bucket_bytes)
{
    long buckets = 0, pending = 0;
    for (int kind = KINDS - 1; kind >= 0; --kind)
        for (long i = 0; i < stage->count[kind]; ++i) {
            const struct tr_cost_unit *unit = &stage->units[kind];
            long end = unit->total;
            for (int k = unit->n - 1; k >= 0; --k) {
                pending += end - unit->offsets[k];
                end = unit->offsets[k];
                if (pending * 4 < bucket_bytes) continue;
                ++buckets;
                pending = 0;
            }
        }
    return buckets + (pending > 0);
}

/* How often a step gathers the weights of a unit that FSDP does not keep: for forward and for
 * backward of each micro-batch; the head is used once, in one go. */
static long gathers_of(const struct tr_cost_sizes *s, const struct tr_cost_stage *stage, int kind,
                       long m)
{
    if (s->keep_gathered) return 1;
    if (kind == BLOCKS) return 2 * m;
    if (kind == TOKEN) return (stage->first ? m : 0) + (stage->last && s->tied ? m : 0);
    return m;
}

static void count_data(const struct tr_cost_sizes *s, const struct tr_cost_stage *stage, long m,
                       struct tr_cost *cost)
{
    const long shards = tr_cost_shards(s), replicas = tr_cost_replicas(s);
    long floats = 0;
    for (int kind = 0; kind < KINDS; ++kind)
        floats += stage->count[kind] * stage->units[kind].total;
    if (shards == 1) {
        const long buckets = replicas > 1 ? buckets_of(stage, s->bucket_bytes) : 0;
        if (!buckets) return;
        cost->traffic[TR_WITH_REPLICAS][TR_ALL_REDUCE] =
            (struct tr_traffic){(uint64_t)buckets, (uint64_t)floats * 4};
        return;
    }
    const long reductions = s->zero == 1 || s->reduce_last ? 1 : m;
    for (int kind = 0; kind < KINDS; ++kind) {
        const long n = stage->count[kind], bytes = stage->units[kind].total * 4;
        const long gathers = s->zero == 3 ? gathers_of(s, stage, kind, m) : 1;
        tr_cost_count(cost, TR_WITH_SHARDS, TR_REDUCE_SCATTER, n * reductions, bytes);
        tr_cost_count(cost, TR_WITH_SHARDS, TR_ALL_GATHER, n * gathers, bytes);
        if (replicas > 1) tr_cost_count(cost, TR_WITH_REPLICAS, TR_ALL_REDUCE, n, bytes / shards);
    }
}

/* What of [first, end) lies in shard `shard` of a unit. */
static long within(const struct tr_cost_unit *unit, long shards, int shard, int section)
{
    const long each = unit->total / shards, begin = each * shard;
    return tr_cost_max(0, tr_cost_min(unit->section[section + 1], begin + each) -
                              tr_cost_max(unit->section[section], begin));
}

/* Gradients of tensors that several ranks of tp, or both end stages, hold. */
static void count_held_twice(const struct tr_cost_sizes *s, const struct tr_cost_stage *stage,
                             int shard, struct tr_cost *cost)
{
    const long shards = tr_cost_shards(s);
    for (int kind = 0; kind < KINDS && s->tp > 1; ++kind) {
        const struct tr_cost_unit *unit = &stage->units[kind];
        const long alike = within(unit, shards, shard, TR_COST_ALIKE),
                   shared = within(unit, shards, shard, TR_COST_SHARED);
        if (alike) tr_cost_count(cost, TR_WITH_TP, TR_ALL_REDUCE, stage->count[kind], alike * 4);
        if (shared)
            tr_cost_count(cost, TR_WITH_SHARE, TR_ALL_REDUCE, stage->count[kind], shared * 4);
    }
    if (s->pp > 1 && s->tied && (stage->first || stage->last))
        tr_cost_count(cost, TR_WITH_TIE, TR_ALL_REDUCE, 1, stage->units[TOKEN].total / shards * 4);
}

/* ---- Collectives of the passes -----------------------------------------------------------------
 */

/* Tokens of a sequence with padding. */
static long padded(const struct tr_cost_sizes *s)
{
    const long ranks = (long)s->ring * s->ulysses * s->tp;
    return ranks > 1 ? tr_cost_up(s->context, 2 * ranks) : s->context;
}

static long most_samples(const struct tr_cost_sizes *s)
{
    const long parts = (long)s->dp * s->fsdp;
    return tr_cost_up(s->batch, parts) / parts;
}

static long micro_batch_of(const struct tr_cost_sizes *s)
{
    return tr_cost_min(s->micro_batch, most_samples(s));
}

long tr_cost_micro_batches(const struct tr_cost_sizes *s)
{
    return tr_cost_up(most_samples(s), micro_batch_of(s)) / micro_batch_of(s);
}

/* Query heads and key heads of ulysses rank `rank`: a key head goes to each rank that has a query
 * head of its group. phase is 0 unless several ranks of tp share a key head. */
static void share_heads(const struct tr_cost_sizes *s, int rank, long *nq, long *nkv)
{
    const long heads = s->heads / s->tp, group = s->heads / s->kv_heads;
    const long first = heads * rank / s->ulysses, end = heads * (rank + 1) / s->ulysses;
    *nq = end - first;
    *nkv = *nq == 0 ? 0 : s->kv_heads < s->tp ? 1 : (end - 1) / group - first / group + 1;
}

/* The larger of what a rank of ulysses sends and receives, for q, k and v and for out. */
static void ulysses_floats(const struct tr_cost_sizes *s, int rank, long rows, long *all, long *out)
{
    const long d = s->width / s->heads;
    long nq, nkv, sent_q = 0, sent_all = 0;
    for (int j = 0; j < s->ulysses; ++j) {
        share_heads(s, j, &nq, &nkv);
        sent_q += nq;
        sent_all += nq + 2 * nkv;
    }
    share_heads(s, rank, &nq, &nkv);
    *all = rows * d * tr_cost_max(sent_all, s->ulysses * (nq + 2 * nkv));
    *out = rows * d * tr_cost_max(sent_q, s->ulysses * nq);
}

/* The attention of `layers` layers, one micro-batch of `batch` sequences. */
static void count_attention(const struct tr_cost_sizes *s, const struct tr_cost_rank *rank,
                            long batch, struct tr_cost *cost)
{
    const long c = s->ring, local = padded(s) / c / s->ulysses, rows = batch * local,
               layers = rank->stage_layers;
    long nq = s->heads / s->tp, nkv = tr_cost_kv_heads(s);
    if (s->ulysses > 1) {
        long all, out;
        ulysses_floats(s, rank->ulysses_rank, rows, &all, &out);
        tr_cost_count(cost, TR_WITH_ULYSSES, TR_ALL_TO_ALL, 2 * layers, all * 4);
        tr_cost_count(cost, TR_WITH_ULYSSES, TR_ALL_TO_ALL, 2 * layers, out * 4);
        share_heads(s, rank->ulysses_rank, &nq, &nkv);
    }
    if (c == 1) return;
    const long block = 2 * rows * s->ulysses * nkv * (s->width / s->heads) * 4;
    const long hops = layers * (2 * (c - 1) + c);
    tr_cost_count(cost, TR_WITH_RING, TR_SEND, hops, block);
    tr_cost_count(cost, TR_WITH_RING, TR_RECEIVE, hops, block);
}

/* The rows of the residual stream along tp: a gather before each pair of matrices, a scatter behind
 * it, backward once more for the matrices' gradients; at the ends embedding, head and loss. */
static void count_tensor(const struct tr_cost_sizes *s, const struct tr_cost_stage *stage,
                         long rows, struct tr_cost *cost)
{
    const long bytes = rows * s->width * 4, layers = stage->count[BLOCKS];
    if (s->tp == 1) return;
    tr_cost_count(cost, TR_WITH_TP, TR_ALL_GATHER, 6 * layers + stage->first + 2 * stage->last,
                  bytes);
    tr_cost_count(cost, TR_WITH_TP, TR_REDUCE_SCATTER, 4 * layers + stage->first + stage->last,
                  bytes);
    tr_cost_count(cost, TR_WITH_TP, TR_ALL_REDUCE, stage->last, rows * 4);
    tr_cost_count(cost, TR_WITH_TP, TR_ALL_REDUCE, stage->last, 2 * rows * 4);
}

/* One micro-batch of `batch` sequences. */
static void count_pass(const struct tr_cost_sizes *s, const struct tr_cost_rank *rank,
                       const struct tr_cost_stage *stage, long batch, struct tr_cost *cost)
{
    const long rows = batch * (padded(s) / s->ring / s->ulysses);
    const long message = rows / s->tp * s->width * 4;
    const int next = !stage->last, previous = !stage->first;
    tr_cost_count(cost, TR_WITH_PP, TR_SEND, next + previous, message);
    tr_cost_count(cost, TR_WITH_PP, TR_RECEIVE, next + previous, message);
    count_tensor(s, stage, rows, cost);
    count_attention(s, rank, batch, cost);
}

/* A rank's micro-batches are full ones, then perhaps a smaller one, then empty ones while other
 * ranks have more: each of the three is counted once. */
static void count_passes(const struct tr_cost_sizes *s, const struct tr_cost_rank *rank,
                         const struct tr_cost_stage *stage, long m, struct tr_cost *cost)
{
    const long micro = micro_batch_of(s), full = rank->samples / micro,
               rest = rank->samples % micro;
    const long batches[] = {micro, rest, 0};
    const long passes[] = {full, rest > 0, m - full - (rest > 0)};
    for (int kind = 0; kind < 3; ++kind) {
        struct tr_cost pass = {0};
        count_pass(s, rank, stage, batches[kind], &pass);
        for (int group = 0; group < TR_NUM_PARTNERS; ++group)
            for (int call = 0; call < TR_NUM_TRAFFIC; ++call) {
                const struct tr_traffic *one = &pass.traffic[group][call];
                cost->traffic[group][call].calls += (uint64_t)passes[kind] * one->calls;
                cost->traffic[group][call].bytes += (uint64_t)passes[kind] * one->bytes;
            }
    }
}

/* Loss, tokens, seven sums of the caller, and the 21 digits of the gradients' squares. */
static void count_world(struct tr_cost *cost)
{
    tr_cost_count(cost, TR_WITH_ALL, TR_ALL_REDUCE, 1, (2 + 7 + 21) * 8);
}

/* ---- Memory ------------------------------------------------------------------------------------
 */

/* Buffers that units use in turn: two for the largest unit, one for those as long as the vocabulary
 * (the embedding's, and the head's unless it is tied). */
static long slots_of(const struct tr_cost_sizes *s, const struct tr_cost_stage *stage)
{
    long largest[2] = {0}, units[2] = {0};
    for (int kind = 0; kind < KINDS; ++kind) {
        const int apart = kind == TOKEN || (kind == FINAL && !s->tied);
        if (!stage->count[kind]) continue;
        units[apart] += stage->count[kind];
        largest[apart] = tr_cost_max(largest[apart], stage->units[kind].total);
    }
    return tr_cost_min(units[0], 2) * largest[0] + tr_cost_min(units[1], 1) * largest[1];
}

static void remember_units(const struct tr_cost_sizes *s, const struct tr_cost_stage *stage,
                           int shard_rank, struct tr_memory *memory)
{
    const long shards = tr_cost_shards(s);
    long floats = 0;
    for (int kind = 0; kind < KINDS; ++kind)
        floats += stage->count[kind] * stage->units[kind].total;
    const long shard = floats / shards, slots = slots_of(s, stage);
    const bool whole_weights = shards == 1 || s->zero < 3 || s->keep_gathered;
    const bool whole_gradients = shards == 1 || s->zero < 2 || s->reduce_last;
    memory->weights = (uint64_t)(whole_weights ? floats : shard) * 4;
    memory->gradients = (uint64_t)(whole_gradients ? floats : shard + slots) * 4;
    memory->optimizer = (uint64_t)tr_cost_optimizer_bytes(s, stage, shard_rank);
    memory->gathered = whole_weights ? 0 : (uint64_t)slots * 4;
}

/* Floats that attention keeps of `rows` rows, and the scratch that it and the loss take. */
static long attention_room(const struct tr_cost_sizes *s, const struct tr_cost_rank *rank,
                           long rows)
{
    long nq, nkv;
    if (s->ulysses == 1) return rows * s->heads / s->tp; /* logarithms of the sums */
    share_heads(s, rank->ulysses_rank, &nq, &nkv);
    return rows * s->ulysses * ((2 * nq + 2 * nkv) * (s->width / s->heads) + nq);
}

static long attention_scratch(const struct tr_cost_sizes *s, const struct tr_cost_rank *rank,
                              long batch, long local)
{
    enum { QUERIES = 64, KEYS = 1024 };
    const long d = s->width / s->heads, tokens = local * s->ulysses, rows = batch * tokens;
    long nq = s->heads / s->tp, nkv = tr_cost_kv_heads(s), all = 0, out = 0;
    if (s->ulysses > 1) share_heads(s, rank->ulysses_rank, &nq, &nkv);
    long inner = 2 * QUERIES * tr_cost_min(tokens, KEYS);
    if (s->ring > 1)
        inner += 2 * rows * nkv * d * 2 + tr_cost_max(tokens * (nq * d + 1), 6 * rows * nkv * d);
    if (s->ulysses == 1) return inner;
    long widths = 0, q, kv;
    for (int j = 0; j < s->ulysses; ++j) {
        share_heads(s, j, &q, &kv);
        widths += (q + 2 * kv) * d;
    }
    all = (nq + 2 * nkv) * d;
    out = nq * d;
    return rows * (all + out) + tr_cost_max(batch * local * (widths + s->ulysses * all), inner);
}

static long remember_passes(const struct tr_cost_sizes *s, const struct tr_cost_rank *rank,
                            const struct tr_cost_stage *stage, long m)
{
    const long batch = micro_batch_of(s), local = padded(s) / s->ring / s->ulysses,
               rows = batch * local, own = rows / s->tp, h = s->width, d = h / s->heads,
               q = s->heads / s->tp * d, kv = tr_cost_kv_heads(s) * d,
               f = tr_cost_up(s->hidden, s->tp) / s->tp;
    const long sets = s->gpipe ? m : tr_cost_min(s->pp - rank->stage, m);
    const long gate = s->architecture->gated ? 1 : 0;
    const long block = own * (4 * h + 4) + rows * (2 * q + 2 * kv) + rows * f * (2 + gate) +
                       attention_room(s, rank, rows);
    const long head = stage->last ? own * (h + 2) + rows * tr_cost_words(s) : 0;
    const long tokens = 4 * rows + own;
    const long scratch = rows * h * (1 + (s->tp > 1 || gate)) + (s->tp > 1 ? own * h : 0) +
                         rows * f * (1 + gate) + rows * (2 * q + 2 * kv);
    const long shared =
        tr_cost_max(attention_scratch(s, rank, batch, local), s->tp > 1 ? 3 * rows : 0);
    const long stream = 2 * own * h;
    return sets * (rank->stage_layers * block + own * h + tokens) + head + scratch + shared +
           stream;
}

void tr_cost_of(const struct tr_cost_sizes *s, const struct tr_cost_rank *rank,
                struct tr_cost *cost)
{
    const struct tr_cost_stage stage = tr_cost_stage_of(s, rank);
    const long m = tr_cost_micro_batches(s);
    memset(cost, 0, sizeof *cost);
    count_data(s, &stage, m, cost);
    count_held_twice(s, &stage, rank->shard, cost);
    count_passes(s, rank, &stage, m, cost);
    count_world(cost);
    tr_cost_optimizer_calls(s, &stage, rank, cost);
    remember_units(s, &stage, rank->shard, &cost->memory);
    if (rank->saves) cost->memory.snapshot = (uint64_t)tr_cost_snapshot_bytes(s, &stage, rank);
    const uint64_t sums = cost->traffic[TR_WITH_ALL][TR_ALL_REDUCE].bytes;
    cost->memory.activations = (uint64_t)remember_passes(s, rank, &stage, m) * 4 + sums;
}

uint64_t tr_cost_parameters(const struct tr_cost_sizes *s)
{
    struct tr_cost_sizes whole = *s;
    whole.tp = 1;
    long count = 0;
    for (int kind = 0; kind < KINDS; ++kind) {
        const struct tr_cost_unit unit = tr_cost_unit_of(&whole, (enum tr_unit_kind)kind);
        const long units = kind == BLOCKS ? s->layers : 1;
        for (int i = 0; i < unit.n; ++i) count += units * unit.tensors[i].floats;
    }
    return (uint64_t)count;
}
