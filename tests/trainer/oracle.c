/* The list of the oracle's parameters, and random weights for them. */
#include "oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(struct oracle *model, const char *name, long rows, long cols)
{
    struct oracle_param *param = &model->params[model->nparams++];
    snprintf(param->name, sizeof param->name, "%s", name);
    param->rows = rows;
    param->cols = cols;
    param->count = rows * (cols ? cols : 1);
    param->offset = model->total;
    param->decay = cols && strcmp(name, "token.weight") != 0 && strcmp(name, "place.weight") != 0;
    model->total += param->count;
}

/* The weight of one operation of a block, and in GPT-2 its bias. */
static void add_pair(struct oracle *model, long layer, const char *stem, long rows, long cols)
{
    char name[64];
    snprintf(name, sizeof name, "blocks.%ld.%s.weight", layer, stem);
    add(model, name, rows, cols);
    snprintf(name, sizeof name, "blocks.%ld.%s.bias", layer, stem);
    if (model->shape.kind == ORACLE_GPT2) add(model, name, rows, 0);
}

static void add_block(struct oracle *model, long layer)
{
    const struct oracle_shape *s = &model->shape;
    const long kv_width = s->kv_heads * (s->width / s->heads);
    add_pair(model, layer, "norm1", s->width, 0);
    add_pair(model, layer, "attention.q", s->width, s->width);
    add_pair(model, layer, "attention.k", kv_width, s->width);
    add_pair(model, layer, "attention.v", kv_width, s->width);
    add_pair(model, layer, "attention.proj", s->width, s->width);
    add_pair(model, layer, "norm2", s->width, 0);
    if (s->kind == ORACLE_LLAMA) add_pair(model, layer, "mlp.gate", s->hidden, s->width);
    add_pair(model, layer, "mlp.up", s->hidden, s->width);
    add_pair(model, layer, "mlp.down", s->width, s->hidden);
}

/* What is wrong with a shape, or NULL. */
static const char *fault_of(const struct oracle_shape *s)
{
    if (s->layers < 1 || s->heads < 1 || s->kv_heads < 1 || s->width < 1 || s->hidden < 1 ||
        s->vocabulary < 1 || s->context < 1)
        return "a size is below 1";
    if (s->width % s->heads) return "heads do not divide width";
    if (s->heads % s->kv_heads) return "kv_heads do not divide heads";
    if (s->kind == ORACLE_LLAMA && s->width / s->heads % 2)
        return "rotary positions need an even width / heads";
    if (s->kind == ORACLE_LLAMA && !(s->theta > 0)) return "theta is not above 0";
    return NULL;
}

bool oracle_init(struct oracle *model, struct oracle_shape shape)
{
    *model = (struct oracle){.shape = shape};
    const char *fault = fault_of(&shape);
    if (fault) {
        fprintf(stderr, "oracle: no model: %s\n", fault);
        return false;
    }
    enum { BLOCK_PARAMS = 16, OTHER_PARAMS = 5 };
    const size_t most = (size_t)shape.layers * BLOCK_PARAMS + OTHER_PARAMS;
    model->params = calloc(most, sizeof *model->params);
    if (!model->params) {
        fprintf(stderr, "oracle: out of memory for %zu parameters\n", most);
        return false;
    }
    add(model, "token.weight", shape.vocabulary, shape.width);
    if (shape.kind == ORACLE_GPT2) add(model, "place.weight", shape.context, shape.width);
    for (long layer = 0; layer < shape.layers; ++layer) add_block(model, layer);
    add(model, "norm.weight", shape.width, 0);
    if (shape.kind == ORACLE_GPT2) add(model, "norm.bias", shape.width, 0);
    if (!shape.tied) add(model, "head.weight", shape.vocabulary, shape.width);
    return true;
}

void oracle_fini(struct oracle *model)
{
    free(model->params);
    *model = (struct oracle){0};
}

const struct oracle_param *oracle_find(const struct oracle *model, const char *name)
{
    for (int p = 0; p < model->nparams; ++p)
        if (strcmp(model->params[p].name, name) == 0) return &model->params[p];
    return NULL;
}

/* The next number of a sequence, in [-1, 1); splitmix64 (Steele, Lea, Flood, "Fast splittable
 * pseudorandom number generators", OOPSLA 2014). */
static double draw(uint64_t *state)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    return (double)(x >> 40) / (1 << 23) - 1;
}

void oracle_fill(const struct oracle *model, double *weights, uint64_t seed)
{
    for (int p = 0; p < model->nparams; ++p) {
        const struct oracle_param *param = &model->params[p];
        uint64_t state = seed;
        for (const char *c = param->name; *c; ++c) state = (state ^ (uint64_t)*c) * 0x100000001B3u;
        const double mean = !param->cols && strstr(param->name, "weight") ? 1 : 0;
        const double width = param->cols ? 1.5 / sqrt((double)param->cols) : 0.5;
        for (long i = 0; i < param->count; ++i)
            weights[param->offset + i] = (double)(float)(mean + width * draw(&state));
    }
}
