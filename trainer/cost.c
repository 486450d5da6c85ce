/* The formulas, from the sizes of tensors up. */
#include "cost.h"

#include <string.h>

const char *const tr_cost_group_names[TR_COST_NUM_GROUPS] = {
    "shards", "replicas", "tp", "tp, shared heads", "tied stages", "pp", "ring", "ulysses", "all"};
const char *const tr_cost_call_names[TR_COST_NUM_CALLS] = {
    "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "send", "receive"};

static long max(long a, long b)
{
    return a > b ? a : b;
}

static long min(long a, long b)
{
    return a < b ? a : b;
}

static long up(long n, long to)
{
    return (n + to - 1) / to * to;
}

/* ---- Units ------------------------------------------------------------------------------------
 */

/* A unit's floats on each rank: tensors that tp cuts, then those that some ranks of tp share, then
 * those that all have. A section begins on a multiple of 1024 floats, a tensor on one of 16, and
 * the unit's end is a multiple of 1024 for each shard. */
enum { CUT, SHARED, ALIKE, SECTIONS, MOST_TENSORS = TR_NUM_ROLES, ALIGNED = 16, BLOCK = 1024 };

struct tensor {
    long floats;
    int section;
    bool joined; /* follows the tensor before without a gap */
};

struct unit {
    struct tensor tensors[MOST_TENSORS];
    int n;
    long section[SECTIONS + 1], total;
    long offsets[MOST_TENSORS]; /* ascending */
};

static void add(struct unit *unit, long floats, int section, bool joined)
{
    if (floats) unit->tensors[unit->n++] = (struct tensor){floats, section, joined};
}

static void place(struct unit *unit, long shards)
{
    long at = 0, end = 0;
    int placed = 0;
    for (int section = 0; section < SECTIONS; ++section) {
        at = unit->section[section] = up(at, BLOCK);
        for (int i = 0; i < unit->n; ++i) {
            const struct tensor *tensor = &unit->tensors[i];
            if (tensor->section != section) continue;
            const long offset = tensor->joined ? end : up(at, ALIGNED);
            unit->offsets[placed++] = offset;
            at = end = offset + tensor->floats;
        }
    }
    unit->section[SECTIONS] = at;
    unit->total = up(at, shards * BLOCK);
}

/* Ranks along the shards' axes, and the others with tokens of their own. */
static long shards_of(const struct tr_cost_sizes *s)
{
    return s->zero == 0 ? 1 : (s->zero == 3 ? s->fsdp : s->dp) * (long)s->ring * s->ulysses;
}

static long replicas_of(const struct tr_cost_sizes *s)
{
    return (long)s->dp * s->fsdp * s->ring * s->ulysses / shards_of(s);
}

/* Heads of keys and values of a rank of tp, and the section of their tensors. */
static long kv_of(const struct tr_cost_sizes *s)
{
    return s->kv_heads > s->tp ? s->kv_heads / s->tp : 1;
}

static int kv_section(const struct tr_cost_sizes *s)
{
    return s->kv_heads >= s->tp ? CUT : s->kv_heads > 1 ? SHARED : ALIKE;
}

static long words_of(const struct tr_cost_sizes *s)
{
    return up(s->vocabulary, s->tp) / s->tp;
}

/* Rows or columns that a rank of tp keeps. */
static long extent_of(const struct tr_cost_sizes *s, enum tr_extent extent)
{
    const long d = s->width / s->heads;
    switch (extent) {
    case TR_VECTOR:
        return 1;
    case TR_WIDTH:
        return s->width;
    case TR_HEADS:
        return s->heads / s->tp * d;
    case TR_KV_HEADS:
        return kv_of(s) * d;
    case TR_HIDDEN:
        return up(s->hidden, s->tp) / s->tp;
    case TR_VOCABULARY:
        return words_of(s);
    case TR_CONTEXT:
        return s->context;
    }
    return 0;
}

static int section_of(const struct tr_cost_sizes *s, enum tr_extent extent)
{
    if (extent == TR_KV_HEADS) return kv_section(s);
    const bool cut = extent == TR_HEADS || extent == TR_HIDDEN || extent == TR_VOCABULARY;
    return cut || s->tp == 1 ? CUT : ALIKE;
}

static struct unit unit_of(const struct tr_cost_sizes *s, enum tr_unit_kind kind)
{
    const struct tr_unit_rows *table = &s->architecture->units[kind];
    const bool packed = kv_section(s) == CUT;
    struct unit unit = {0};
    for (const struct tr_tensor_row *row = table->rows; row < table->rows + table->n; ++row) {
        const int rows = section_of(s, row->rows), cols = section_of(s, row->cols);
        if (!tr_row_is_there(row, s->tied)) continue;
        add(&unit, extent_of(s, row->rows) * extent_of(s, row->cols), rows < cols ? rows : cols,
            row->joint == TR_JOINED || (row->joint == TR_PACKED && packed));
    }
    place(&unit, shards_of(s));
    return unit;
}

/* A stage's units in order: each kind with how many there are of it. */
struct stage {
    struct unit units[TR_NUM_UNIT_KINDS];
    long count[TR_NUM_UNIT_KINDS];
    bool first, last;
};
enum { TOKEN = TR_TOKEN, BLOCKS = TR_BLOCK_OF_LAYER, FINAL = TR_FINAL, KINDS = TR_NUM_UNIT_KINDS };

static struct stage stage_of(const struct tr_cost_sizes *s, const struct tr_cost_rank *rank)
{
    const bool first = rank->stage == 0, last = rank->stage == s->pp - 1;
    return (struct stage){.first = first,
                          .last = last,
                          .units = {unit_of(s, TR_TOKEN), unit_of(s, TR_PLACE),
                                    unit_of(s, TR_BLOCK_OF_LAYER), unit_of(s, TR_FINAL)},
                          .count = {first || (last && s->tied),
                                    first && s->architecture->units[TR_PLACE].n, rank->stage_layers,
                                    last}};
}

/* ---- Collectives of the store ------------------------------------------------------------------
 */

static void count(struct tr_cost *cost, enum tr_cost_group group, enum tr_cost_call call,
                  long calls, long bytes)
{
    if (calls <= 0) return;
    cost->traffic[group][call].calls += (uint64_t)calls;
    cost->traffic[group][call].bytes += (uint64_t)calls * (uint64_t)bytes;
}

/* Gradients in buckets, cut from the end of the stage's units; a bucket ends with the tensor that
 * makes it large enough. */
static long buckets_of(const struct stage *stage, long bucket_bytes)
{
    long buckets = 0, pending = 0;
    for (int kind = KINDS - 1; kind >= 0; --kind)
        for (long i = 0; i < stage->count[kind]; ++i) {
            const struct unit *unit = &stage->units[kind];
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
static long gathers_of(const struct tr_cost_sizes *s, const struct stage *stage, int kind, long m)
{
    if (s->keep_gathered) return 1;
    if (kind == BLOCKS) return 2 * m;
    if (kind == TOKEN) return (stage->first ? m : 0) + (stage->last && s->tied ? m : 0);
    return m;
}

static void count_data(const struct tr_cost_sizes *s, const struct stage *stage, long m,
                       struct tr_cost *cost)
{
    const long shards = shards_of(s), replicas = replicas_of(s);
    long floats = 0;
    for (int kind = 0; kind < KINDS; ++kind)
        floats += stage->count[kind] * stage->units[kind].total;
    if (shards == 1) {
        const long buckets = replicas > 1 ? buckets_of(stage, s->bucket_bytes) : 0;
        if (!buckets) return;
        cost->traffic[TR_COST_REPLICA][TR_COST_ALL_REDUCE] =
            (struct tr_cost_traffic){(uint64_t)buckets, (uint64_t)floats * 4};
        return;
    }
    const long reductions = s->zero == 1 || s->reduce_last ? 1 : m;
    for (int kind = 0; kind < KINDS; ++kind) {
        const long n = stage->count[kind], bytes = stage->units[kind].total * 4;
        const long gathers = s->zero == 3 ? gathers_of(s, stage, kind, m) : 1;
        count(cost, TR_COST_SHARD, TR_COST_REDUCE_SCATTER, n * reductions, bytes);
        count(cost, TR_COST_SHARD, TR_COST_ALL_GATHER, n * gathers, bytes);
        if (replicas > 1) count(cost, TR_COST_REPLICA, TR_COST_ALL_REDUCE, n, bytes / shards);
    }
}

/* What of [first, end) lies in shard `shard` of a unit. */
static long within(const struct unit *unit, long shards, int shard, int section)
{
    const long each = unit->total / shards, begin = each * shard;
    return max(0,
               min(unit->section[section + 1], begin + each) - max(unit->section[section], begin));
}

/* Gradients of tensors that several ranks of tp, or both end stages, hold. */
static void count_held_twice(const struct tr_cost_sizes *s, const struct stage *stage, int shard,
                             struct tr_cost *cost)
{
    const long shards = shards_of(s);
    for (int kind = 0; kind < KINDS && s->tp > 1; ++kind) {
        const struct unit *unit = &stage->units[kind];
        const long alike = within(unit, shards, shard, ALIKE),
                   shared = within(unit, shards, shard, SHARED);
        if (alike) count(cost, TR_COST_TP, TR_COST_ALL_REDUCE, stage->count[kind], alike * 4);
        if (shared) count(cost, TR_COST_SHARE, TR_COST_ALL_REDUCE, stage->count[kind], shared * 4);
    }
    if (s->pp > 1 && s->tied && (stage->first || stage->last))
        count(cost, TR_COST_TIE, TR_COST_ALL_REDUCE, 1, stage->units[TOKEN].total / shards * 4);
}

/* ---- Collectives of the passes -----------------------------------------------------------------
 */

/* Tokens of a sequence with padding. */
static long padded(const struct tr_cost_sizes *s)
{
    const long ranks = (long)s->ring * s->ulysses * s->tp;
    return ranks > 1 ? up(s->context, 2 * ranks) : s->context;
}

static long most_samples(const struct tr_cost_sizes *s)
{
    const long parts = (long)s->dp * s->fsdp;
    return up(s->batch, parts) / parts;
}

static long micro_batch_of(const struct tr_cost_sizes *s)
{
    return min(s->micro_batch, most_samples(s));
}

long tr_cost_micro_batches(const struct tr_cost_sizes *s)
{
    return up(most_samples(s), micro_batch_of(s)) / micro_batch_of(s);
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
    *all = rows * d * max(sent_all, s->ulysses * (nq + 2 * nkv));
    *out = rows * d * max(sent_q, s->ulysses * nq);
}

/* The attention of `layers` layers, one micro-batch of `batch` sequences. */
static void count_attention(const struct tr_cost_sizes *s, const struct tr_cost_rank *rank,
                            long batch, struct tr_cost *cost)
{
    const long c = s->ring, local = padded(s) / c / s->ulysses, rows = batch * local,
               layers = rank->stage_layers;
    long nq = s->heads / s->tp, nkv = kv_of(s);
    if (s->ulysses > 1) {
        long all, out;
        ulysses_floats(s, rank->ulysses_rank, rows, &all, &out);
        count(cost, TR_COST_ULYSSES, TR_COST_ALL_TO_ALL, 2 * layers, all * 4);
        count(cost, TR_COST_ULYSSES, TR_COST_ALL_TO_ALL, 2 * layers, out * 4);
        share_heads(s, rank->ulysses_rank, &nq, &nkv);
    }
    if (c == 1) return;
    const long block = 2 * rows * s->ulysses * nkv * (s->width / s->heads) * 4;
    const long hops = layers * (2 * (c - 1) + c);
    count(cost, TR_COST_RING, TR_COST_SEND, hops, block);
    count(cost, TR_COST_RING, TR_COST_RECV, hops, block);
}

/* The rows of the residual stream along tp: a gather before each pair of matrices, a scatter behind
 * it, backward once more for the matrices' gradients; at the ends embedding, head and loss. */
static void count_tensor(const struct tr_cost_sizes *s, const struct stage *stage, long rows,
                         struct tr_cost *cost)
{
    const long bytes = rows * s->width * 4, layers = stage->count[BLOCKS];
    if (s->tp == 1) return;
    count(cost, TR_COST_TP, TR_COST_ALL_GATHER, 6 * layers + stage->first + 2 * stage->last, bytes);
    count(cost, TR_COST_TP, TR_COST_REDUCE_SCATTER, 4 * layers + stage->first + stage->last, bytes);
    count(cost, TR_COST_TP, TR_COST_ALL_REDUCE, stage->last, rows * 4);
    count(cost, TR_COST_TP, TR_COST_ALL_REDUCE, stage->last, 2 * rows * 4);
}

/* One micro-batch of `batch` sequences. */
static void count_pass(const struct tr_cost_sizes *s, const struct tr_cost_rank *rank,
                       const struct stage *stage, long batch, struct tr_cost *cost)
{
    const long rows = batch * (padded(s) / s->ring / s->ulysses);
    const long message = rows / s->tp * s->width * 4;
    const int next = !stage->last, previous = !stage->first;
    count(cost, TR_COST_PP, TR_COST_SEND, next + previous, message);
    count(cost, TR_COST_PP, TR_COST_RECV, next + previous, message);
    count_tensor(s, stage, rows, cost);
    count_attention(s, rank, batch, cost);
}

/* A rank's micro-batches are full ones, then perhaps a smaller one, then empty ones while other
 * ranks have more: each of the three is counted once. */
static void count_passes(const struct tr_cost_sizes *s, const struct tr_cost_rank *rank,
                         const struct stage *stage, long m, struct tr_cost *cost)
{
    const long micro = micro_batch_of(s), full = rank->samples / micro,
               rest = rank->samples % micro;
    const long batches[] = {micro, rest, 0};
    const long passes[] = {full, rest > 0, m - full - (rest > 0)};
    for (int kind = 0; kind < 3; ++kind) {
        struct tr_cost pass = {0};
        count_pass(s, rank, stage, batches[kind], &pass);
        for (int group = 0; group < TR_COST_NUM_GROUPS; ++group)
            for (int call = 0; call < TR_COST_NUM_CALLS; ++call) {
                const struct tr_cost_traffic *one = &pass.traffic[group][call];
                cost->traffic[group][call].calls += (uint64_t)passes[kind] * one->calls;
                cost->traffic[group][call].bytes += (uint64_t)passes[kind] * one->bytes;
            }
    }
}

/* Loss, tokens, two sums of the caller, and a sum of squares for each block of 1024 gradients. */
static void count_world(const struct tr_cost_sizes *s, const struct stage *stage,
                        struct tr_cost *cost)
{
    const long blocks = (stage->units[TOKEN].total + stage->units[TR_PLACE].total +
                         s->layers * stage->units[BLOCKS].total + stage->units[FINAL].total) /
                        BLOCK * s->tp;
    count(cost, TR_COST_WORLD, TR_COST_ALL_REDUCE, 1, (4 + blocks) * 8);
}

/* ---- Memory ------------------------------------------------------------------------------------
 */

/* Buffers that units use in turn: two for the largest unit, one for those as long as the vocabulary
 * (the embedding's, and the head's unless it is tied). */
static long slots_of(const struct tr_cost_sizes *s, const struct stage *stage)
{
    long largest[2] = {0}, units[2] = {0};
    for (int kind = 0; kind < KINDS; ++kind) {
        const int apart = kind == TOKEN || (kind == FINAL && !s->tied);
        if (!stage->count[kind]) continue;
        units[apart] += stage->count[kind];
        largest[apart] = max(largest[apart], stage->units[kind].total);
    }
    return min(units[0], 2) * largest[0] + min(units[1], 1) * largest[1];
}

static void remember_units(const struct tr_cost_sizes *s, const struct stage *stage,
                           struct tr_cost_memory *memory)
{
    const long shards = shards_of(s);
    long floats = 0;
    for (int kind = 0; kind < KINDS; ++kind)
        floats += stage->count[kind] * stage->units[kind].total;
    const long shard = floats / shards, slots = slots_of(s, stage);
    const bool whole_weights = shards == 1 || s->zero < 3 || s->keep_gathered;
    const bool whole_gradients = shards == 1 || s->zero < 2 || s->reduce_last;
    memory->weights = (uint64_t)(whole_weights ? floats : shard) * 4;
    memory->gradients = (uint64_t)(whole_gradients ? floats : shard + slots) * 4;
    memory->optimizer = (uint64_t)(shard * s->nstates) * 4;
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
    long nq = s->heads / s->tp, nkv = kv_of(s), all = 0, out = 0;
    if (s->ulysses > 1) share_heads(s, rank->ulysses_rank, &nq, &nkv);
    long inner = 2 * QUERIES * min(tokens, KEYS);
    if (s->ring > 1)
        inner += 2 * rows * nkv * d * 2 + max(tokens * (nq * d + 1), 6 * rows * nkv * d);
    if (s->ulysses == 1) return inner;
    long widths = 0, q, kv;
    for (int j = 0; j < s->ulysses; ++j) {
        share_heads(s, j, &q, &kv);
        widths += (q + 2 * kv) * d;
    }
    all = (nq + 2 * nkv) * d;
    out = nq * d;
    return rows * (all + out) + max(batch * local * (widths + s->ulysses * all), inner);
}

static long remember_passes(const struct tr_cost_sizes *s, const struct tr_cost_rank *rank,
                            const struct stage *stage, long m)
{
    const long batch = micro_batch_of(s), local = padded(s) / s->ring / s->ulysses,
               rows = batch * local, own = rows / s->tp, h = s->width, d = h / s->heads,
               q = s->heads / s->tp * d, kv = kv_of(s) * d, f = up(s->hidden, s->tp) / s->tp;
    const long sets = s->gpipe ? m : min(s->pp - rank->stage, m);
    const long gate = s->architecture->gated ? 1 : 0;
    const long block = own * (4 * h + 4) + rows * (2 * q + 2 * kv) + rows * f * (2 + gate) +
                       attention_room(s, rank, rows);
    const long head = stage->last ? own * (h + 2) + rows * words_of(s) : 0;
    const long tokens = 4 * rows + own;
    const long scratch = rows * h * (1 + (s->tp > 1 || gate)) + (s->tp > 1 ? own * h : 0) +
                         rows * f * (1 + gate) + rows * (2 * q + 2 * kv);
    const long shared = max(attention_scratch(s, rank, batch, local), s->tp > 1 ? 3 * rows : 0);
    const long stream = 2 * own * h;
    return sets * (rank->stage_layers * block + own * h + tokens) + head + scratch + shared +
           stream;
}

void tr_cost_of(const struct tr_cost_sizes *s, const struct tr_cost_rank *rank,
                struct tr_cost *cost)
{
    const struct stage stage = stage_of(s, rank);
    const long m = tr_cost_micro_batches(s);
    memset(cost, 0, sizeof *cost);
    count_data(s, &stage, m, cost);
    count_held_twice(s, &stage, rank->shard, cost);
    count_passes(s, rank, &stage, m, cost);
    count_world(s, &stage, cost);
    remember_units(s, &stage, &cost->memory);
    const uint64_t sums = cost->traffic[TR_COST_WORLD][TR_COST_ALL_REDUCE].bytes;
    cost->memory.activations = (uint64_t)remember_passes(s, rank, &stage, m) * 4 + sums;
}

uint64_t tr_cost_all(const struct tr_cost_memory *m)
{
    return m->weights + m->gradients + m->optimizer + m->gathered + m->activations;
}

uint64_t tr_cost_parameters(const struct tr_cost_sizes *s)
{
    struct tr_cost_sizes whole = *s;
    whole.tp = 1;
    long count = 0;
    for (int kind = 0; kind < KINDS; ++kind) {
        const struct unit unit = unit_of(&whole, (enum tr_unit_kind)kind);
        const long units = kind == BLOCKS ? s->layers : 1;
        for (int i = 0; i < unit.n; ++i) count += units * unit.tensors[i].floats;
    }
    return (uint64_t)count;
}

double tr_cost_bound(const struct tr_cost_sizes *s)
{
    const double shards = (double)shards_of(s), w = (double)s->width, layers = (double)s->layers;
    const double parts = (double)s->dp * s->fsdp, m = (double)tr_cost_micro_batches(s);
    /* Twice: the last micro-batch is padded to a full one, and the sequence on every rank. */
    const double tokens = 2 * ((double)s->batch / parts + 1) *
                          ((double)s->context + 2.0 * s->ring * s->ulysses * s->tp);
    const double passes =
        tokens * (layers * (64 * w + 8 * (double)s->hidden) + 4 * (double)s->vocabulary);
    const double uses = s->zero < 2 ? 2 : 2 * m + 2;
    const double store =
        uses * ((double)tr_cost_parameters(s) + (layers + 3) * (shards + SECTIONS) * BLOCK);
    return 4 * (passes > store ? passes : store);
}
