/* The oracle's models, forward and backward, one sequence after the other. */
#include "oracle.h"

#include <stdio.h>
#include <stdlib.h>

#include "oracle_ops.h"

/* Memory of one sequence's arrays, freed together. */
struct room {
    struct room *next;
    double at[];
};

/* What a block's forward keeps for its backward; [rows, ...]. */
struct kept {
    double *input, *norm1, *q, *k, *v, *p, *attended, *middle, *norm2, *gate, *up, *active;
};

/* The computation of one sequence. */
struct run {
    const struct oracle *model;
    const double *weights;
    double *gradients; /* NULL: forward only */
    const int32_t *ids, *targets;
    const double *token_weights;
    long rows; /* tokens */
    struct room *rooms;
};

/* A layer of the names that do not begin with "blocks.N.". */
enum { NO_LAYER = -1 };

static void *take(struct run *run, size_t nbytes)
{
    struct room *room = calloc(1, sizeof *room + nbytes);
    if (!room) {
        fprintf(stderr, "oracle: out of memory for %zu bytes\n", nbytes);
        abort();
    }
    room->next = run->rooms;
    run->rooms = room;
    return room->at;
}

static double *zeros(struct run *run, long count)
{
    return take(run, (size_t)count * sizeof(double));
}

static void free_rooms(struct run *run)
{
    while (run->rooms) {
        struct room *next = run->rooms->next;
        free(run->rooms);
        run->rooms = next;
    }
}

/* The parameter [blocks.N.]stem.kind, or NULL. */
static const struct oracle_param *find(const struct run *run, long layer, const char *stem,
                                       const char *kind)
{
    char name[64];
    if (layer == NO_LAYER)
        snprintf(name, sizeof name, "%s.%s", stem, kind);
    else
        snprintf(name, sizeof name, "blocks.%ld.%s.%s", layer, stem, kind);
    return oracle_find(run->model, name);
}

static const double *weight(const struct run *run, const struct oracle_param *param)
{
    return param ? run->weights + param->offset : NULL;
}

static double *gradient(const struct run *run, const struct oracle_param *param)
{
    return param ? run->gradients + param->offset : NULL;
}

static void linear(const struct run *run, long layer, const char *stem, double *y, const double *x)
{
    const struct oracle_param *w = find(run, layer, stem, "weight"),
                              *b = find(run, layer, stem, "bias");
    oracle_linear(y, x, weight(run, w), weight(run, b), run->rows, w->cols, w->rows);
}

static void linear_backward(const struct run *run, long layer, const char *stem, double *dx,
                            const double *dy, const double *x)
{
    const struct oracle_param *w = find(run, layer, stem, "weight"),
                              *b = find(run, layer, stem, "bias");
    oracle_linear_backward(dx, gradient(run, w), gradient(run, b), dy, x, weight(run, w), run->rows,
                           w->cols, w->rows);
}

static void norm(const struct run *run, long layer, const char *stem, double *y, const double *x)
{
    const struct oracle_param *w = find(run, layer, stem, "weight"),
                              *b = find(run, layer, stem, "bias");
    if (run->model->shape.kind == ORACLE_GPT2)
        oracle_layer_norm(y, x, weight(run, w), weight(run, b), run->rows, w->rows);
    else
        oracle_rms_norm(y, x, weight(run, w), run->rows, w->rows);
}

static void norm_backward(const struct run *run, long layer, const char *stem, double *dx,
                          const double *dy, const double *x)
{
    const struct oracle_param *w = find(run, layer, stem, "weight"),
                              *b = find(run, layer, stem, "bias");
    if (run->model->shape.kind == ORACLE_GPT2)
        oracle_layer_norm_backward(dx, gradient(run, w), gradient(run, b), dy, x, weight(run, w),
                                   run->rows, w->rows);
    else
        oracle_rms_norm_backward(dx, gradient(run, w), dy, x, weight(run, w), run->rows, w->rows);
}

static struct oracle_attention attention_of(const struct run *run)
{
    const struct oracle_shape *s = &run->model->shape;
    return (struct oracle_attention){
        .rows = run->rows, .heads = s->heads, .kv_heads = s->kv_heads, .size = s->width / s->heads};
}

/* Rotates q and k in a Llama; direction as in oracle_rope. */
static void rotate(const struct run *run, double *q, double *k, int direction)
{
    const struct oracle_shape *s = &run->model->shape;
    if (s->kind != ORACLE_LLAMA) return;
    oracle_rope(q, run->rows, s->heads, s->width / s->heads, s->theta, direction);
    oracle_rope(k, run->rows, s->kv_heads, s->width / s->heads, s->theta, direction);
}

static void add(double *to, const double *x, long count)
{
    for (long i = 0; i < count; ++i) to[i] += x[i];
}

static double activate(enum oracle_activation kind, double x)
{
    return kind == ORACLE_GELU ? oracle_gelu(x) : x <= 0 ? 0 : kind == ORACLE_RELU ? x : x * x;
}

static double slope_of(enum oracle_activation kind, double x)
{
    return kind == ORACLE_GELU   ? oracle_gelu_slope(x)
           : x <= 0              ? 0
           : kind == ORACLE_RELU ? 1
                                 : 2 * x;
}

/* Block number `layer` of kept->input; gives its output. */
static double *block_forward(struct run *run, long layer, struct kept *kept)
{
    const struct oracle_shape *s = &run->model->shape;
    const long rows = run->rows, stream = rows * s->width, wide = rows * s->hidden;
    const long kv = rows * s->kv_heads * (s->width / s->heads);

    kept->norm1 = zeros(run, stream);
    kept->q = zeros(run, stream);
    kept->k = zeros(run, kv);
    kept->v = zeros(run, kv);
    kept->p = zeros(run, s->heads * rows * rows);
    kept->attended = zeros(run, stream);
    kept->middle = zeros(run, stream);
    norm(run, layer, "norm1", kept->norm1, kept->input);
    linear(run, layer, "attention.q", kept->q, kept->norm1);
    linear(run, layer, "attention.k", kept->k, kept->norm1);
    linear(run, layer, "attention.v", kept->v, kept->norm1);
    rotate(run, kept->q, kept->k, +1);
    const struct oracle_attention a = attention_of(run);
    oracle_attend(kept->attended, kept->p, kept->q, kept->k, kept->v, &a);
    linear(run, layer, "attention.proj", kept->middle, kept->attended);
    add(kept->middle, kept->input, stream);

    kept->norm2 = zeros(run, stream);
    kept->gate = zeros(run, wide);
    kept->up = zeros(run, wide);
    kept->active = zeros(run, wide);
    norm(run, layer, "norm2", kept->norm2, kept->middle);
    linear(run, layer, "mlp.up", kept->up, kept->norm2);
    if (s->kind == ORACLE_LLAMA) linear(run, layer, "mlp.gate", kept->gate, kept->norm2);
    for (long i = 0; i < wide; ++i)
        kept->active[i] = s->kind == ORACLE_LLAMA ? oracle_silu(kept->gate[i]) * kept->up[i]
                                                  : activate(s->activation, kept->up[i]);
    double *output = zeros(run, stream);
    linear(run, layer, "mlp.down", output, kept->active);
    add(output, kept->middle, stream);
    return output;
}

/* d[rows, width]: the gradient of the block's output becomes that of its middle, the input of the
 * MLP. */
static void mlp_backward(struct run *run, long layer, const struct kept *kept, double *d)
{
    const struct oracle_shape *s = &run->model->shape;
    const long wide = run->rows * s->hidden;
    double *d_active = zeros(run, wide), *d_up = zeros(run, wide), *d_gate = zeros(run, wide);
    double *d_norm = zeros(run, run->rows * s->width);
    linear_backward(run, layer, "mlp.down", d_active, d, kept->active);
    for (long i = 0; i < wide; ++i) {
        if (s->kind == ORACLE_LLAMA) {
            d_up[i] = d_active[i] * oracle_silu(kept->gate[i]);
            d_gate[i] = d_active[i] * kept->up[i] * oracle_silu_slope(kept->gate[i]);
        } else {
            d_up[i] = d_active[i] * slope_of(s->activation, kept->up[i]);
        }
    }
    linear_backward(run, layer, "mlp.up", d_norm, d_up, kept->norm2);
    if (s->kind == ORACLE_LLAMA)
        linear_backward(run, layer, "mlp.gate", d_norm, d_gate, kept->norm2);
    norm_backward(run, layer, "norm2", d, d_norm, kept->middle);
}

/* d[rows, width]: the gradient of the block's middle becomes that of its input. */
static void attention_backward(struct run *run, long layer, const struct kept *kept, double *d)
{
    const struct oracle_attention a = attention_of(run);
    const long stream = run->rows * a.heads * a.size, kv = run->rows * a.kv_heads * a.size;
    double *d_attended = zeros(run, stream), *d_norm = zeros(run, stream);
    double *dq = zeros(run, stream), *dk = zeros(run, kv), *dv = zeros(run, kv);
    linear_backward(run, layer, "attention.proj", d_attended, d, kept->attended);
    oracle_attend_backward(dq, dk, dv, d_attended, kept->p, kept->q, kept->k, kept->v, &a);
    rotate(run, dq, dk, -1);
    linear_backward(run, layer, "attention.q", d_norm, dq, kept->norm1);
    linear_backward(run, layer, "attention.k", d_norm, dk, kept->norm1);
    linear_backward(run, layer, "attention.v", d_norm, dv, kept->norm1);
    norm_backward(run, layer, "norm1", d, d_norm, kept->input);
}

/* x[rows, width] = the token's row, and in GPT-2 the place's. */
static void embed(const struct run *run, double *x)
{
    const struct oracle_param *token = find(run, NO_LAYER, "token", "weight"),
                              *place = find(run, NO_LAYER, "place", "weight");
    const long n = run->model->shape.width;
    for (long r = 0; r < run->rows; ++r) {
        add(x + r * n, weight(run, token) + run->ids[r] * n, n);
        if (place) add(x + r * n, weight(run, place) + r * n, n);
    }
}

static void embed_backward(const struct run *run, const double *dx)
{
    const struct oracle_param *token = find(run, NO_LAYER, "token", "weight"),
                              *place = find(run, NO_LAYER, "place", "weight");
    const long n = run->model->shape.width;
    for (long r = 0; r < run->rows; ++r) {
        add(gradient(run, token) + run->ids[r] * n, dx + r * n, n);
        if (place) add(gradient(run, place) + r * n, dx + r * n, n);
    }
}

/* The loss of the rows that count; dx[rows, width] += its derivative by x, unless NULL. */
static double head(struct run *run, double *dx, const double *x)
{
    const struct oracle_shape *s = &run->model->shape;
    const struct oracle_param *w = find(run, NO_LAYER, s->tied ? "token" : "head", "weight");
    double *logits = zeros(run, s->vocabulary), loss = 0;
    for (long r = 0; r < run->rows; ++r) {
        if (run->token_weights[r] == 0) continue;
        const double *row = x + r * s->width;
        oracle_linear(logits, row, weight(run, w), NULL, 1, s->width, s->vocabulary);
        loss += oracle_cross_entropy(logits, s->vocabulary, run->targets[r], run->token_weights[r]);
        if (dx)
            oracle_linear_backward(dx + r * s->width, gradient(run, w), NULL, logits, row,
                                   weight(run, w), 1, s->width, s->vocabulary);
    }
    return loss;
}

static double sequence_loss(struct run *run)
{
    const struct oracle_shape *s = &run->model->shape;
    const long stream = run->rows * s->width;
    struct kept *blocks = take(run, (size_t)s->layers * sizeof *blocks);
    double *x = zeros(run, stream), *y = zeros(run, stream);
    embed(run, x);
    for (long layer = 0; layer < s->layers; ++layer) {
        blocks[layer].input = x;
        x = block_forward(run, layer, &blocks[layer]);
    }
    norm(run, NO_LAYER, "norm", y, x);
    double *dy = run->gradients ? zeros(run, stream) : NULL;
    const double loss = head(run, dy, y);
    if (run->gradients) {
        double *d = zeros(run, stream);
        norm_backward(run, NO_LAYER, "norm", d, dy, x);
        for (long layer = s->layers - 1; layer >= 0; --layer) {
            mlp_backward(run, layer, &blocks[layer], d);
            attention_backward(run, layer, &blocks[layer], d);
        }
        embed_backward(run, d);
    }
    return loss;
}

/* Ends the process unless the model can take the sequence. */
static void require_valid(const struct run *run)
{
    const struct oracle_shape *s = &run->model->shape;
    if (s->kind == ORACLE_GPT2 && run->rows > s->context) {
        fprintf(stderr, "oracle: %ld tokens, but the context is %ld\n", run->rows, s->context);
        abort();
    }
    for (long r = 0; r < run->rows; ++r) {
        const int32_t id = run->ids[r], target = run->token_weights[r] != 0 ? run->targets[r] : 0;
        if (id >= 0 && id < s->vocabulary && target >= 0 && target < s->vocabulary) continue;
        fprintf(stderr, "oracle: token %ld has id %d and target %d, the vocabulary is %ld\n", r, id,
                target, s->vocabulary);
        abort();
    }
}

double oracle_loss(const struct oracle *model, const double *weights, double *gradients,
                   const struct oracle_batch *batch)
{
    double loss = 0;
    for (long b = 0; b < batch->batch; ++b) {
        struct run run = {
            .model = model,
            .weights = weights,
            .gradients = gradients,
            .ids = batch->ids + b * batch->length,
            .targets = batch->targets + b * batch->length,
            .token_weights = batch->token_weights + b * batch->length,
            .rows = batch->length,
        };
        /* No token after the last one that counts influences the loss. */
        while (run.rows && run.token_weights[run.rows - 1] == 0) --run.rows;
        require_valid(&run);
        if (run.rows) loss += sequence_loss(&run);
        free_rooms(&run);
    }
    return loss;
}
