/* Registers the parameters of GPT-2 and Llama by unit, and carves the memory of the activations. */
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct tr_layout whole = {-1, 0, 0};

/* One tensor of the unit that was begun last. */
struct row {
    int *index;
    const char *name;
    long rows, cols;
    struct tr_layout layout;
    double mean, deviation;
    bool absent, joined;
};

static tr_status add(struct tr_params *params, const char *prefix, const struct row *row)
{
    *row->index = -1;
    if (row->absent) return TR_OK;
    char name[TR_NAME_BYTES];
    snprintf(name, sizeof name, "%s%s", prefix, row->name);
    *row->index =
        tr_param_add(params, name, row->rows, row->cols, row->layout, row->mean, row->deviation);
    if (*row->index < 0) return tr_fail("out of memory for the list of parameters");
    params->items[*row->index].joined = row->joined;
    return TR_OK;
}

static tr_status begin(struct tr_params *params, int *unit, const char *name)
{
    *unit = tr_params_begin_unit(params, name);
    return *unit < 0 ? tr_fail("out of memory for the list of parameters") : TR_OK;
}

static tr_status register_block(struct tr_model *model, long layer)
{
    const struct tr_model_size *size = &model->size;
    struct tr_block *b = &model->blocks[layer];
    const long h = size->width, d = model->d, q = size->heads * d, kv = size->kv_heads * d,
               f = size->hidden;
    const bool llama = size->kind == TR_LLAMA;
    /* Each block adds two summands to the stream: scaled so that the sum's variance does not grow.
     */
    const double deviation = 0.02f, residual = 0.02f / sqrtf(2 * (float)size->layers);
    const struct tr_layout heads = {0, d, size->heads}, kv_heads = {0, d, size->kv_heads},
                           heads_in = {1, d, size->heads}, wide = {0, 1, f}, wide_in = {1, 1, f};
    const struct row rows[] = {
        {&b->norm1_w, "norm1.weight", h, 0, whole, 1, 0, false, false},
        {&b->norm1_b, "norm1.bias", h, 0, whole, 0, 0, llama, false},
        {&b->q_w, "attention.q.weight", q, h, heads, 0, deviation, false, false},
        {&b->k_w, "attention.k.weight", kv, h, kv_heads, 0, deviation, false, model->packed},
        {&b->v_w, "attention.v.weight", kv, h, kv_heads, 0, deviation, false, true},
        {&b->q_b, "attention.q.bias", q, 0, heads, 0, 0, llama, false},
        {&b->k_b, "attention.k.bias", kv, 0, kv_heads, 0, 0, llama, model->packed},
        {&b->v_b, "attention.v.bias", kv, 0, kv_heads, 0, 0, llama, true},
        {&b->proj_w, "attention.proj.weight", h, q, heads_in, 0, residual, false, false},
        {&b->proj_b, "attention.proj.bias", h, 0, whole, 0, 0, llama, false},
        {&b->norm2_w, "norm2.weight", h, 0, whole, 1, 0, false, false},
        {&b->norm2_b, "norm2.bias", h, 0, whole, 0, 0, llama, false},
        {&b->gate_w, "mlp.gate.weight", f, h, wide, 0, deviation, !llama, false},
        {&b->up_w, "mlp.up.weight", f, h, wide, 0, deviation, false, false},
        {&b->up_b, "mlp.up.bias", f, 0, wide, 0, 0, llama, false},
        {&b->down_w, "mlp.down.weight", h, f, wide_in, 0, residual, false, false},
        {&b->down_b, "mlp.down.bias", h, 0, whole, 0, 0, llama, false},
    };
    char prefix[TR_NAME_BYTES / 2];
    snprintf(prefix, sizeof prefix, "blocks.%ld", layer);
    TR_TRY(begin(&model->params, &b->unit, prefix));
    snprintf(prefix, sizeof prefix, "blocks.%ld.", layer);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i)
        TR_TRY(add(&model->params, prefix, &rows[i]));
    return TR_OK;
}

static tr_status register_all(struct tr_model *model)
{
    const struct tr_model_size *size = &model->size;
    struct tr_params *params = &model->params;
    const bool llama = size->kind == TR_LLAMA;
    const long h = size->width, v = size->vocabulary;
    const struct tr_layout vocabulary = {0, 1, v};
    const struct row token = {&model->token_w, "token.weight", v,    h, vocabulary, 0,
                              0.02f,           false,          false},
                     place = {&model->place_w, "place.weight", size->context, h, whole, 0,
                              0.02f,           llama,          false},
                     norm_w = {&model->norm_w, "norm.weight", h, 0, whole, 1, 0, false, false},
                     norm_b = {&model->norm_b, "norm.bias", h, 0, whole, 0, 0, llama, false},
                     head = {&model->head_w, "head.weight", v,    h, vocabulary, 0,
                             0.02f,          size->tied,    false};
    TR_TRY(begin(params, &model->token_unit, "token"));
    TR_TRY(add(params, "", &token));
    params->items[model->token_w].decay = false;
    model->place_unit = -1;
    if (!llama) TR_TRY(begin(params, &model->place_unit, "place"));
    TR_TRY(add(params, "", &place));
    if (!llama) params->items[model->place_w].decay = false;
    for (long layer = 0; layer < size->layers; ++layer) TR_TRY(register_block(model, layer));
    TR_TRY(begin(params, &model->final_unit, "final"));
    TR_TRY(add(params, "", &norm_w));
    TR_TRY(add(params, "", &norm_b));
    TR_TRY(add(params, "", &head));
    model->head_unit = size->tied ? model->token_unit : model->final_unit;
    if (size->tied) model->head_w = model->token_w;
    return TR_OK;
}

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
    if (size->kind == TR_LLAMA && size->width / size->heads % 2) {
        const long below = size->width - size->heads, above = size->width + size->heads;
        if (below)
            snprintf(near, sizeof near, "widths that work are %ld and %ld", below, above);
        else
            snprintf(near, sizeof near, "width that works is %ld", above);
        return tr_fail("--width=%ld with --heads=%ld gives heads of %ld floats, but Llama turns "
                       "pairs of them; the nearest %s",
                       size->width, size->heads, size->width / size->heads, near);
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
    *model = (struct tr_model){.size = *size, .backend = backend};
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

static float *take(struct tr_arena *arena, long rows, long cols)
{
    return tr_arena_take(arena, (size_t)rows * (size_t)cols, sizeof(float));
}

/* q, k and v of `rows` rows: one matrix, or q and a matrix of k with v. */
static void take_qkv(const struct tr_model *model, struct tr_arena *arena, long rows, float **q,
                     float **k, float **v)
{
    const long nq = model->heads * model->d, nkv = model->kv_heads * model->d;
    float *base = take(arena, rows, nq + 2 * nkv);
    *q = base;
    *k = base ? base + (model->packed ? nq : rows * nq) : NULL;
    *v = base ? *k + nkv : NULL;
}

static void take_block(const struct tr_model *model, const struct tr_seams *seams,
                       struct tr_arena *arena, long batch, long context, struct tr_block_acts *acts)
{
    const long rows = batch * context, own = rows / seams->tp, h = model->size.width;
    const struct tr_attend shape = tr_model_attend(model, batch, context);
    *acts = (struct tr_block_acts){
        .input = take(arena, own, h),
        .norm1 = take(arena, own, h),
        .mean1 = take(arena, own, 1),
        .rstd1 = take(arena, own, 1),
        .attention = take(arena, rows, model->heads * model->d),
        .room = tr_arena_take(arena, seams->attend_room(seams->arg, &shape), sizeof(float)),
        .middle = take(arena, own, h),
        .norm2 = take(arena, own, h),
        .mean2 = take(arena, own, 1),
        .rstd2 = take(arena, own, 1),
        .gate = take(arena, model->size.kind == TR_LLAMA ? rows : 0, model->hidden),
        .up = take(arena, rows, model->hidden),
        .active = take(arena, rows, model->hidden),
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
                        struct tr_arena *arena, int nblocks, bool last, long batch, long context,
                        struct tr_acts *acts)
{
    const long rows = batch * context, own = rows / seams->tp, h = model->size.width;
    *acts = (struct tr_acts){.blocks = tr_arena_take(arena, (size_t)nblocks, sizeof *acts->blocks)};
    struct tr_block_acts counted;
    for (int slot = 0; slot < nblocks; ++slot)
        take_block(model, seams, arena, batch, context,
                   acts->blocks ? &acts->blocks[slot] : &counted);
    acts->output = take(arena, own, h);
    if (!last) return;
    acts->norm = take(arena, own, h);
    acts->mean = take(arena, own, 1);
    acts->rstd = take(arena, own, 1);
    acts->logits = take(arena, rows, model->vocabulary_count);
}

void tr_model_take_scratch(const struct tr_model *model, struct tr_arena *arena, long batch,
                           long context, struct tr_scratch *scratch)
{
    const long rows = batch * context, h = model->size.width;
    const bool llama = model->size.kind == TR_LLAMA;
    *scratch = (struct tr_scratch){
        .all = take(arena, model->params.tp > 1 || llama ? rows : 0, h),
        .d_all = take(arena, rows, h),
        .d_norm = take(arena, model->params.tp > 1 ? rows / model->params.tp : 0, h),
        .d_wide = take(arena, rows, model->hidden),
        .d_gate = take(arena, llama ? rows : 0, model->hidden),
        .d_attention = take(arena, rows, model->heads * model->d),
    };
    take_qkv(model, arena, rows, &scratch->dq, &scratch->dk, &scratch->dv);
}

double tr_model_flops_per_token(const struct tr_model_size *size)
{
    const double h = (double)size->width, layers = (double)size->layers, f = (double)size->hidden;
    const double kv = h * (double)size->kv_heads / (double)size->heads;
    const double block = 2 * h * h + 2 * h * kv + (size->kind == TR_LLAMA ? 3 : 2) * h * f;
    const double matrices = layers * block + (double)size->vocabulary * h;
    /* Causal attention: half of two products of context x width, forward once and backward twice.
     */
    return 6 * matrices + 6 * layers * h * (double)size->context;
}

void tr_hook_call(const struct tr_ready_hook *hook, int param)
{
    if (hook && hook->ready && param >= 0) hook->ready(hook->arg, param);
}
