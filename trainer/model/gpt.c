/* The forward and backward pass of the whole model: embeddings, blocks, norm, head and loss. */
#include "gpt.h"

#include <stdlib.h>

static tr_status add(struct tr_params *params, int *index, const char *name, long rows, long cols,
                     const float init[2])
{
    *index = tr_param_add(params, name, rows, cols, init[0], init[1]);
    return *index < 0 ? tr_fail("out of memory for the list of parameters") : TR_OK;
}

tr_status tr_gpt_init(struct tr_gpt *gpt, struct tr_gpt_size size, const struct tr_ops *ops)
{
    *gpt = (struct tr_gpt){.size = size, .ops = ops};
    gpt->blocks = calloc((size_t)size.layers, sizeof *gpt->blocks);
    if (!gpt->blocks) return tr_fail("out of memory for %ld layers", size.layers);
    struct tr_params *params = &gpt->params;
    const float normal[2] = {0, 0.02f}, one[2] = {1, 0}, zero[2] = {0, 0};
    TR_TRY(add(params, &gpt->token_table, "token.weight", TR_VOCABULARY, size.width, normal));
    TR_TRY(add(params, &gpt->place_table, "place.weight", size.context, size.width, normal));
    for (long layer = 0; layer < size.layers; ++layer)
        TR_TRY(tr_block_register(params, &gpt->blocks[layer], layer, &size));
    TR_TRY(add(params, &gpt->norm_w, "norm.weight", size.width, 0, one));
    TR_TRY(add(params, &gpt->norm_b, "norm.bias", size.width, 0, zero));
    TR_TRY(add(params, &gpt->head_w, "head.weight", TR_VOCABULARY, size.width, normal));
    params->items[gpt->token_table].decay = false;
    params->items[gpt->place_table].decay = false;
    return TR_OK;
}

void tr_gpt_fini(struct tr_gpt *gpt)
{
    free(gpt->blocks);
    tr_params_fini(&gpt->params);
    *gpt = (struct tr_gpt){0};
}

void tr_gpt_take_acts(const struct tr_gpt *gpt, struct tr_arena *arena, long batch,
                      struct tr_acts *acts)
{
    const struct tr_gpt_size *size = &gpt->size;
    const size_t rows = (size_t)(batch * size->context), n = (size_t)size->width, f = sizeof(float);
    struct tr_block_acts *blocks =
        tr_arena_take(arena, (size_t)size->layers, sizeof(struct tr_block_acts));
    struct tr_block_acts counted;
    for (long layer = 0; layer < size->layers; ++layer)
        tr_block_take_acts(arena, blocks ? &blocks[layer] : &counted, size, batch);
    *acts = (struct tr_acts){
        .blocks = blocks,
        .output = tr_arena_take(arena, rows * n, f),
        .norm = tr_arena_take(arena, rows * n, f),
        .mean = tr_arena_take(arena, rows, f),
        .rstd = tr_arena_take(arena, rows, f),
        .logits = tr_arena_take(arena, rows * TR_VOCABULARY, f),
        .scratch = tr_arena_take(arena, tr_attention_scratch(size->context), f),
        .d_stream = tr_arena_take(arena, rows * n, f),
        .d_norm = tr_arena_take(arena, rows * n, f),
        .d_wide = tr_arena_take(arena, rows * 4 * n, f),
    };
}

static struct tr_block_call call_of(const struct tr_gpt *gpt, const float *weights,
                                    float *gradients, struct tr_acts *acts, long layer, long batch,
                                    long context)
{
    return (struct tr_block_call){.gpt = gpt,
                                  .block = &gpt->blocks[layer],
                                  .acts = &acts->blocks[layer],
                                  .weights = weights,
                                  .gradients = gradients,
                                  .scratch = acts->scratch,
                                  .batch = batch,
                                  .context = context};
}

void tr_gpt_forward(const struct tr_gpt *gpt, const float *weights, struct tr_acts *acts,
                    const unsigned char *tokens, long batch, long context)
{
    const struct tr_param *items = gpt->params.items;
    const long n = gpt->size.width, rows = batch * context, last = gpt->size.layers - 1;
    gpt->ops->embed_forward(acts->blocks[0].input, tokens, weights + items[gpt->token_table].offset,
                            weights + items[gpt->place_table].offset, batch, context, n);
    for (long layer = 0; layer <= last; ++layer) {
        const struct tr_block_call call = call_of(gpt, weights, NULL, acts, layer, batch, context);
        tr_block_forward(&call, layer < last ? acts->blocks[layer + 1].input : acts->output);
    }
    gpt->ops->norm_forward(acts->norm, acts->mean, acts->rstd, acts->output,
                           weights + items[gpt->norm_w].offset, weights + items[gpt->norm_b].offset,
                           rows, n);
    gpt->ops->linear_forward(acts->logits, acts->norm, weights + items[gpt->head_w].offset, NULL,
                             NULL, rows, n, TR_VOCABULARY);
}

void tr_gpt_backward(const struct tr_gpt *gpt, const float *weights, float *gradients,
                     struct tr_acts *acts, const unsigned char *tokens, long batch, long context,
                     const struct tr_ready_hook *hook)
{
    const struct tr_param *items = gpt->params.items;
    const long n = gpt->size.width, rows = batch * context;
    gpt->ops->linear_backward(acts->d_norm, gradients + items[gpt->head_w].offset, NULL,
                              acts->logits, acts->norm, weights + items[gpt->head_w].offset, rows,
                              n, TR_VOCABULARY);
    tr_hook_call(hook, gpt->head_w);
    for (long i = 0; i < rows * n; ++i) acts->d_stream[i] = 0; /* norm_backward adds */
    gpt->ops->norm_backward(acts->d_stream, gradients + items[gpt->norm_w].offset,
                            gradients + items[gpt->norm_b].offset, acts->d_norm, acts->output,
                            acts->mean, acts->rstd, weights + items[gpt->norm_w].offset, rows, n);
    tr_hook_call(hook, gpt->norm_b);
    tr_hook_call(hook, gpt->norm_w);
    for (long layer = gpt->size.layers - 1; layer >= 0; --layer) {
        const struct tr_block_call call =
            call_of(gpt, weights, gradients, acts, layer, batch, context);
        tr_block_backward(&call, acts->d_stream, acts->d_norm, acts->d_wide, hook);
    }
    gpt->ops->embed_backward(gradients + items[gpt->token_table].offset,
                             gradients + items[gpt->place_table].offset, acts->d_stream, tokens,
                             batch, context, n);
    tr_hook_call(hook, gpt->place_table);
    tr_hook_call(hook, gpt->token_table);
}

double tr_gpt_flops_per_token(const struct tr_gpt *gpt)
{
    const double n = (double)gpt->size.width, layers = (double)gpt->size.layers;
    const double matrices = layers * 12 * n * n + TR_VOCABULARY * n;
    /* Causal attention: half of two products of context x width, forward once and backward twice.
     */
    return 6 * matrices + 6 * layers * n * (double)gpt->size.context;
}
