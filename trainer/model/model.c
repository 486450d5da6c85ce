/* Registers the parameters of a model by unit, and carves the memory of the activations. */
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Registering tensors ----------------------------------------------------------------------
 */

static long extent_of(const struct tr_model_size *size, enum tr_extent extent)
{
    const long d = size->width / size->heads;
    switch (extent) {
    case TR_VECTOR:
        return 1;
    case TR_WIDTH:
        return size->width;
    case TR_HEADS:
        return size->heads * d;
    case TR_KV_HEADS:
        return size->kv_heads * d;
    case TR_HIDDEN:
        return size->hidden;
    case TR_VOCABULARY:
        return size->vocabulary;
    case TR_CONTEXT:
        return size->context;
    }
    return 0;
}

/* How tp cuts a tensor: along the dimension that it can cut, if there is one. */
static struct tr_layout layout_of(const struct tr_model_size *size, const struct tr_tensor_row *row)
{
    const enum tr_extent extents[2] = {row->rows, row->cols};
    const long d = size->width / size->heads;
    for (int dim = 0; dim < 2; ++dim) {
        const enum tr_extent extent = extents[dim];
        if (extent == TR_HEADS) return (struct tr_layout){dim, d, size->heads};
        if (extent == TR_KV_HEADS) return (struct tr_layout){dim, d, size->kv_heads};
        if (extent == TR_HIDDEN || extent == TR_VOCABULARY)
            return (struct tr_layout){dim, 1, extent_of(size, extent)};
    }
    return (struct tr_layout){-1, 0, 0};
}

static double deviation_of(const struct tr_model_size *size, enum tr_first first)
{
    const float normal = 0.02f, residual = normal / sqrtf(2 * (float)size->layers);
    return (double)(first == TR_NORMAL ? normal : first == TR_RESIDUAL ? residual : 0);
}

static tr_status add(struct tr_model *model, enum tr_unit_kind kind, const char *prefix,
                     const struct tr_tensor_row *row, int *index)
{
    const struct tr_model_size *size = &model->size;
    struct tr_params *params = &model->params;
    char name[TR_NAME_BYTES];
    snprintf(name, sizeof name, "%s%s", prefix, row->name);
    *index =
        tr_param_add(params, name, extent_of(size, row->rows),
                     row->cols == TR_VECTOR ? 0 : extent_of(size, row->cols), layout_of(size, row),
                     row->first == TR_ONES, deviation_of(size, row->first));
    if (*index < 0) return tr_fail("out of memory for the list of parameters");
    params->items[*index].decay = row->decay;
    params->items[*index].hidden = tr_row_is_hidden(row, kind);
    params->items[*index].joined =
        row->joint == TR_JOINED || (row->joint == TR_PACKED && model->packed);
    return TR_OK;
}

/* Registers a unit, and gives the indices of its tensors; unit is -1 where the architecture has
 * none of this kind. */
static tr_status register_unit(struct tr_model *model, enum tr_unit_kind kind, const char *name,
                               const char *prefix, int *unit, int tensor[TR_NUM_ROLES])
{
    const struct tr_unit_rows *rows = &model->architecture->units[kind];
    *unit = -1;
    if (!rows->n) return TR_OK;
    *unit = tr_params_begin_unit(&model->params, name);
    if (*unit < 0) return tr_fail("out of memory for the list of parameters");
    for (int i = 0; i < rows->n; ++i)
        if (tr_row_is_there(&rows->rows[i], model->size.tied))
            TR_TRY(add(model, kind, prefix, &rows->rows[i], &tensor[rows->rows[i].role]));
    return TR_OK;
}

static tr_status register_block(struct tr_model *model, long layer)
{
    struct tr_block *block = &model->blocks[layer];
    char name[TR_NAME_BYTES / 2], prefix[TR_NAME_BYTES / 2];
    snprintf(name, sizeof name, "blocks.%ld", layer);
    snprintf(prefix, sizeof prefix, "blocks.%ld.", layer);
    for (int role = 0; role < TR_NUM_ROLES; ++role) block->tensor[role] = -1;
    return register_unit(model, TR_BLOCK_OF_LAYER, name, prefix, &block->unit, block->tensor);
}

static tr_status register_all(struct tr_model *model)
{
    int *tensor = model->tensor;
    const bool tied = model->size.tied;
    for (int role = 0; role < TR_NUM_ROLES; ++role) tensor[role] = -1;
    TR_TRY(register_unit(model, TR_TOKEN, "token", "", &model->token_unit, tensor));
    TR_TRY(register_unit(model, TR_PLACE, "place", "", &model->place_unit, tensor));
    for (long layer = 0; layer < model->size.layers; ++layer) TR_TRY(register_block(model, layer));
    TR_TRY(register_unit(model, TR_FINAL, "final", "", &model->final_unit, tensor));
    model->head_unit = tied ? model->token_unit : model->final_unit;
    if (tied) tensor[TR_HEAD_W] = tensor[TR_TOKEN_W];
    return TR_OK;
}

/* ---- Sizes that do not fit each other --------------------------------------------------------
 */

/* The divisors of `of` next to n, on both sides, as "4 and 6"; one where there is only one. */
static const char *near_divisors(long of, long n, char out[48])
{
    long below = n < of ? n : of, above = n;
    while (below > 1 && of % below) --below;
    while (above < of && of % above) ++above;
    if (above > of || below == above)
        snprintf(out, 48, "%ld", below);
    else
        snprintf(out, 48, "%ld and %ld", below, above);
    return out;
}

static tr_status check_heads(const struct tr_model_size *size)
{
    char near[80];
    if (size->width % size->heads)
        return tr_fail("--heads=%ld do not divide --width=%ld; the nearest numbers of heads that "
                       "do are %s",
                       size->heads, size->width, near_divisors(size->width, size->heads, near));
    if (size->heads % size->kv_heads)
        return tr_fail("--kv-heads=%ld do not divide --heads=%ld: every key and value head serves "
                       "the same number of query heads; the nearest that do are %s",
                       size->kv_heads, size->heads,
                       near_divisors(size->heads, size->kv_heads, near));
    const struct tr_architecture *architecture = tr_architectures[size->kind];
    if (architecture->rope_theta != 0 && size->width / size->heads % 2) {
        const long below = size->width - size->heads, above = size->width + size->heads;
        if (below)
            snprintf(near, sizeof near, "widths that work are %ld and %ld", below, above);
        else
            snprintf(near, sizeof near, "width that works is %ld", above);
        return tr_fail("--width=%ld with --heads=%ld gives heads of %ld floats, but %s turns "
                       "pairs of them; the nearest %s",
                       size->width, size->heads, size->width / size->heads, architecture->title,
                       near);
    }
    return TR_OK;
}

tr_status tr_model_check(const struct tr_model_size *size, int tp)
{
    char near[48];
    TR_TRY(check_heads(size));
    if (size->heads % tp)
        return tr_fail("--tp=%d does not divide --heads=%ld; the nearest values of --tp that do "
                       "are %s",
                       tp, size->heads, near_divisors(size->heads, tp, near));
    if (size->kv_heads % tp && tp % size->kv_heads)
        return tr_fail("--tp=%d and --kv-heads=%ld: one of them must divide the other; the nearest "
                       "values of --tp that do are %s",
                       tp, size->kv_heads, near_divisors(size->kv_heads, tp, near));
    if (size->hidden < tp || size->vocabulary < tp)
        return tr_fail("--tp=%d ranks cannot share --hidden=%ld and --vocabulary=%ld: each rank "
                       "needs at least one row of both",
                       tp, size->hidden, size->vocabulary);
    return TR_OK;
}

/* This rank's part of what tp cuts. */
static void take_part(struct tr_model *model, int tp, int tp_rank)
{
    const struct tr_model_size *size = &model->size;
    const struct tr_layout heads = {0, 1, size->heads}, kv_heads = {0, 1, size->kv_heads},
                           wide = {0, 1, size->hidden}, vocabulary = {0, 1, size->vocabulary};
    const struct tr_part part = tr_layout_part(&heads, size->heads, tp, tp_rank);
    const struct tr_part words = tr_layout_part(&vocabulary, size->vocabulary, tp, tp_rank);
    model->d = size->width / size->heads;
    model->heads = part.count;
    model->kv_heads = tr_layout_part(&kv_heads, size->kv_heads, tp, tp_rank).count;
    model->hidden = tr_layout_part(&wide, size->hidden, tp, tp_rank).count;
    model->group = size->heads / size->kv_heads;
    model->phase = part.first % model->group;
    model->vocabulary_first = words.first;
    model->vocabulary_count = words.count;
    model->packed = size->kv_heads >= tp;
    const long q = model->heads * model->d, kv = model->kv_heads * model->d;
    model->q_stride = model->packed ? q + 2 * kv : q;
    model->kv_stride = model->packed ? q + 2 * kv : 2 * kv;
}

tr_status tr_model_init(struct tr_model *model, const struct tr_model_size *size,
                        const struct tr_backend *backend, int tp, int tp_rank, int shards)
{
    *model = (struct tr_model){
        .size = *size, .architecture = tr_architectures[size->kind], .backend = backend};
    TR_TRY(tr_model_check(size, tp));
    take_part(model, tp, tp_rank);
    model->blocks = calloc((size_t)size->layers, sizeof *model->blocks);
    if (!model->blocks) return tr_fail("out of memory for %ld layers", size->layers);
    tr_params_init(&model->params, backend, tp, tp_rank, shards);
    TR_TRY(register_all(model));
    tr_params_place(&model->params);
    return TR_OK;
}

void tr_model_fini(struct tr_model *model)
{
    free(model->blocks);
    tr_params_fini(&model->params);
    *model = (struct tr_model){0};
}

/* Activations. */
static struct tr_data *take(const struct tr_model *model, struct tr_arena *arena, long rows,
                            long cols)
{
    return tr_arena_take(arena, (size_t)rows * (size_t)cols,
                         tr_type_bytes(model->backend->types.activations));
}

/* A statistic of each row. */
static float *take_floats(struct tr_arena *arena, long rows)
{
    return tr_arena_take(arena, (size_t)rows, sizeof(float));
}

/* q, k and v of `rows` rows: one matrix, or q and a matrix of k with v. */
static void take_qkv(const struct tr_model *model, struct tr_arena *arena, long rows,
                     struct tr_data **q, struct tr_data **k, struct tr_data **v)
{
    const long nq = model->heads * model->d, nkv = model->kv_heads * model->d;
    const enum tr_type type = model->backend->types.activations;
    struct tr_data *base = take(model, arena, rows, nq + 2 * nkv);
    *q = *k = *v = base;
    if (!base) return;
    *k = tr_at(base, type, (size_t)(model->packed ? nq : rows * nq));
    *v = tr_at(*k, type, (size_t)nkv);
}

static void take_block(const struct tr_model *model, const struct tr_seams *seams,
                       struct tr_arena *arena, long batch, long context, struct tr_block_acts *acts)
{
    const long rows = batch * context, own = rows / seams->tp, h = model->size.width;
    const struct tr_attend shape = tr_model_attend(model, batch, context);
    *acts = (struct tr_block_acts){
        .input = take(model, arena, own, h),
        .norm1 = take(model, arena, own, h),
        .mean1 = take_floats(arena, own),
        .rstd1 = take_floats(arena, own),
        .attention = take(model, arena, rows, model->heads * model->d),
        .room = tr_arena_take(arena, seams->attend_room(seams->arg, &shape), 1),
        .middle = take(model, arena, own, h),
        .norm2 = take(model, arena, own, h),
        .mean2 = take_floats(arena, own),
        .rstd2 = take_floats(arena, own),
        .gate = take(model, arena, model->architecture->gated ? rows : 0, model->hidden),
        .up = take(model, arena, rows, model->hidden),
        .active = take(model, arena, rows, model->hidden),
    };
    take_qkv(model, arena, rows, &acts->q, &acts->k, &acts->v);
}

struct tr_attend tr_model_attend(const struct tr_model *model, long batch, long context)
{
    return (struct tr_attend){.batch = batch,
                              .context = context,
                              .heads = model->heads,
                              .kv_heads = model->kv_heads,
                              .d = model->d,
                              .group = model->group,
                              .phase = model->phase,
                              .q_stride = model->q_stride,
                              .kv_stride = model->kv_stride};
}

void tr_model_take_acts(const struct tr_model *model, const struct tr_seams *seams,
                        struct tr_arena *arena, int nblocks, long batch, long context,
                        struct tr_acts *acts)
{
    const long own = batch * context / seams->tp;
    *acts = (struct tr_acts){.blocks = acts->blocks};
    for (int slot = 0; slot < nblocks; ++slot)
        take_block(model, seams, arena, batch, context, &acts->blocks[slot]);
    acts->output = take(model, arena, own, model->size.width);
}

void tr_model_take_head(const struct tr_model *model, const struct tr_seams *seams,
                        struct tr_arena *arena, long batch, long context, struct tr_acts *acts)
{
    const long rows = batch * context, own = rows / seams->tp, h = model->size.width;
    acts->norm = take(model, arena, own, h);
    acts->mean = take_floats(arena, own);
    acts->rstd = take_floats(arena, own);
    acts->logits = take(model, arena, rows, model->vocabulary_count);
}

void tr_model_take_scratch(const struct tr_model *model, struct tr_arena *arena, long batch,
                           long context, struct tr_scratch *scratch)
{
    const long rows = batch * context, h = model->size.width;
    const bool gated = model->architecture->gated;
    *scratch = (struct tr_scratch){
        .all = take(model, arena, model->params.tp > 1 || gated ? rows : 0, h),
        .d_all = take(model, arena, rows, h),
        .d_norm = take(model, arena, model->params.tp > 1 ? rows / model->params.tp : 0, h),
        .d_wide = take(model, arena, rows, model->hidden),
        .d_gate = take(model, arena, gated ? rows : 0, model->hidden),
        .d_attention = take(model, arena, rows, model->heads * model->d),
    };
    take_qkv(model, arena, rows, &scratch->dq, &scratch->dk, &scratch->dv);
}

double tr_model_parameters(const struct tr_model_size *size)
{
    double count = 0;
    for (int kind = 0; kind < TR_NUM_UNIT_KINDS; ++kind) {
        const struct tr_unit_rows *unit = &tr_architectures[size->kind]->units[kind];
        const double units = kind == TR_BLOCK_OF_LAYER ? (double)size->layers : 1;
        for (const struct tr_tensor_row *row = unit->rows; row < unit->rows + unit->n; ++row)
            if (tr_row_is_there(row, size->tied))
                count +=
                    units * (double)extent_of(size, row->rows) * (double)extent_of(size, row->cols);
    }
    return count;
}

double tr_model_flops_per_token(const struct tr_model_size *size)
{
    const struct tr_unit_rows *rows = &tr_architectures[size->kind]->units[TR_BLOCK_OF_LAYER];
    const double h = (double)size->width, layers = (double)size->layers;
    double block = 0;
    for (int i = 0; i < rows->n; ++i)
        if (rows->rows[i].cols != TR_VECTOR)
            block += (double)extent_of(size, rows->rows[i].rows) *
                     (double)extent_of(size, rows->rows[i].cols);
    const double matrices = layers * block + (double)size->vocabulary * h;
    /* Causal attention: half of two products of context x width, forward once and backward twice.
     */
    return 6 * matrices + 6 * layers * h * (double)size->context;
}

void tr_hook_call(const struct tr_ready_hook *hook, int param)
{
    if (hook && hook->ready && param >= 0) hook->ready(hook->arg, param);
}
