/* The sizes of tensors, and their places in units. */
#include "cost_units.h"

enum { ALIGNED = 16 }; /* floats: where a tensor begins */

static void add(struct tr_cost_unit *unit, const struct tr_cost_tensor *tensor)
{
    if (tensor->floats) unit->tensors[unit->n++] = *tensor;
}

static void place(struct tr_cost_unit *unit, long shards)
{
    long at = 0, end = 0;
    int placed = 0;
    for (int section = 0; section < TR_COST_SECTIONS; ++section) {
        at = unit->section[section] = tr_cost_up(at, TR_COST_BLOCK);
        for (int i = 0; i < unit->n; ++i) {
            struct tr_cost_tensor *tensor = &unit->tensors[i];
            if (tensor->section != section) continue;
            tensor->offset = tensor->joined ? end : tr_cost_up(at, ALIGNED);
            unit->offsets[placed++] = tensor->offset;
            at = end = tensor->offset + tensor->floats;
        }
    }
    unit->section[TR_COST_SECTIONS] = at;
    unit->total = tr_cost_up(at, shards * TR_COST_BLOCK);
}

/* Ranks along the shards' axes, and the others with tokens of their own. */
long tr_cost_shards(const struct tr_cost_sizes *s)
{
    return s->zero == 0 ? 1 : (s->zero == 3 ? s->fsdp : s->dp) * (long)s->ring * s->ulysses;
}

long tr_cost_replicas(const struct tr_cost_sizes *s)
{
    return (long)s->dp * s->fsdp * s->ring * s->ulysses / tr_cost_shards(s);
}

/* Heads of keys and values of a rank of tp, and the section of their tensors. */
long tr_cost_kv_heads(const struct tr_cost_sizes *s)
{
    return s->kv_heads > s->tp ? s->kv_heads / s->tp : 1;
}

static int kv_section(const struct tr_cost_sizes *s)
{
    return s->kv_heads >= s->tp ? TR_COST_CUT : s->kv_heads > 1 ? TR_COST_SHARED : TR_COST_ALIKE;
}

long tr_cost_words(const struct tr_cost_sizes *s)
{
    return tr_cost_up(s->vocabulary, s->tp) / s->tp;
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
        return tr_cost_kv_heads(s) * d;
    case TR_HIDDEN:
        return tr_cost_up(s->hidden, s->tp) / s->tp;
    case TR_VOCABULARY:
        return tr_cost_words(s);
    case TR_CONTEXT:
        return s->context;
    }
    return 0;
}

static int section_of(const struct tr_cost_sizes *s, enum tr_extent extent)
{
    if (extent == TR_KV_HEADS) return kv_section(s);
    const bool cut = extent == TR_HEADS || extent == TR_HIDDEN || extent == TR_VOCABULARY;
    return cut || s->tp == 1 ? TR_COST_CUT : TR_COST_ALIKE;
}

/* The whole tensor of a row, as an optimizer sees it. */
static struct tr_subject subject_of(const struct tr_cost_sizes *s, const struct tr_tensor_row *row,
                                    enum tr_unit_kind kind)
{
    struct tr_cost_sizes whole = *s;
    whole.tp = 1;
    return (struct tr_subject){
        .ndim = row->cols == TR_VECTOR ? 1 : 2,
        .shape = {extent_of(&whole, row->rows), extent_of(&whole, row->cols)},
        .hidden = tr_row_is_hidden(row, kind),
        .decay = row->decay};
}

struct tr_cost_unit tr_cost_unit_of(const struct tr_cost_sizes *s, enum tr_unit_kind kind)
{
    const struct tr_unit_rows *table = &s->architecture->units[kind];
    const bool packed = kv_section(s) == TR_COST_CUT;
    struct tr_cost_unit unit = {0};
    for (const struct tr_tensor_row *row = table->rows; row < table->rows + table->n; ++row) {
        const int rows = section_of(s, row->rows), cols = section_of(s, row->cols);
        if (!tr_row_is_there(row, s->tied)) continue;
        const struct tr_cost_tensor tensor = {
            .floats = extent_of(s, row->rows) * extent_of(s, row->cols),
            .section = rows < cols ? rows : cols,
            .joined = row->joint == TR_JOINED || (row->joint == TR_PACKED && packed),
            .subject = subject_of(s, row, kind)};
        add(&unit, &tensor);
    }
    place(&unit, tr_cost_shards(s));
    return unit;
}

struct tr_cost_stage tr_cost_stage_of(const struct tr_cost_sizes *s,
                                      const struct tr_cost_rank *rank)
{
    const bool first = rank->stage == 0, last = rank->stage == s->pp - 1;
    return (struct tr_cost_stage){
        .first = first,
        .last = last,
        .units = {tr_cost_unit_of(s, TR_TOKEN), tr_cost_unit_of(s, TR_PLACE),
                  tr_cost_unit_of(s, TR_BLOCK_OF_LAYER), tr_cost_unit_of(s, TR_FINAL)},
        .count = {first || (last && s->tied), first && s->architecture->units[TR_PLACE].n,
                  rank->stage_layers, last}};
}
