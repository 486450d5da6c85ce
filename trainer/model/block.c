/* One transformer block: x + proj(attention(norm(x))), then x + down(gelu(up(norm(x)))). */
#include "gpt.h"

#include <math.h>
#include <stdio.h>

void tr_hook_call(const struct tr_ready_hook *hook, int param)
{
    if (hook && hook->ready) hook->ready(hook->arg, param);
}

tr_status tr_block_register(struct tr_params *params, struct tr_block *block, long layer,
                            const struct tr_gpt_size *size)
{
    const long n = size->width;
    const float deviation = 0.02f;
    /* Each block adds two summands to the stream: scaled so that the sum's variance does not grow.
     */
    const float residual = deviation / sqrtf(2 * (float)size->layers);
    const struct {
        int *index;
        const char *name;
        long rows, cols;
        float mean, deviation;
    } rows[] = {
        {&block->norm1_w, "norm1.weight", n, 0, 1, 0},
        {&block->norm1_b, "norm1.bias", n, 0, 0, 0},
        {&block->qkv_w, "attention.qkv.weight", 3 * n, n, 0, deviation},
        {&block->qkv_b, "attention.qkv.bias", 3 * n, 0, 0, 0},
        {&block->proj_w, "attention.proj.weight", n, n, 0, residual},
        {&block->proj_b, "attention.proj.bias", n, 0, 0, 0},
        {&block->norm2_w, "norm2.weight", n, 0, 1, 0},
        {&block->norm2_b, "norm2.bias", n, 0, 0, 0},
        {&block->up_w, "mlp.up.weight", 4 * n, n, 0, deviation},
        {&block->up_b, "mlp.up.bias", 4 * n, 0, 0, 0},
        {&block->down_w, "mlp.down.weight", n, 4 * n, 0, residual},
        {&block->down_b, "mlp.down.bias", n, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        char name[TR_NAME_BYTES];
        snprintf(name, sizeof name, "blocks.%ld.%s", layer, rows[i].name);
        *rows[i].index =
            tr_param_add(params, name, rows[i].rows, rows[i].cols, rows[i].mean, rows[i].deviation);
        if (*rows[i].index < 0) return tr_fail("out of memory for the list of parameters");
    }
    return TR_OK;
}

void tr_block_take_acts(struct tr_arena *arena, struct tr_block_acts *acts,
                        const struct tr_gpt_size *size, long batch)
{
    const size_t rows = (size_t)(batch * size->context), n = (size_t)size->width, f = sizeof(float);
    *acts = (struct tr_block_acts){
        .input = tr_arena_take(arena, rows * n, f),
        .norm1 = tr_arena_take(arena, rows * n, f),
        .mean1 = tr_arena_take(arena, rows, f),
        .rstd1 = tr_arena_take(arena, rows, f),
        .qkv = tr_arena_take(arena, rows * 3 * n, f),
        .attention = tr_arena_take(arena, rows * n, f),
        .lse = tr_arena_take(arena, rows * (size_t)size->heads, f),
        .middle = tr_arena_take(arena, rows * n, f),
        .norm2 = tr_arena_take(arena, rows * n, f),
        .mean2 = tr_arena_take(arena, rows, f),
        .rstd2 = tr_arena_take(arena, rows, f),
        .up = tr_arena_take(arena, rows * 4 * n, f),
        .active = tr_arena_take(arena, rows * 4 * n, f),
    };
}

static const float *weight(const struct tr_block_call *call, int param)
{
    return call->weights + call->gpt->params.items[param].offset;
}

static float *gradient(const struct tr_block_call *call, int param)
{
    return call->gradients + call->gpt->params.items[param].offset;
}

void tr_block_forward(const struct tr_block_call *call, float *output)
{
    const struct tr_ops *ops = call->gpt->ops;
    const struct tr_block *b = call->block;
    struct tr_block_acts *a = call->acts;
    const long n = call->gpt->size.width, rows = call->batch * call->context;
    ops->norm_forward(a->norm1, a->mean1, a->rstd1, a->input, weight(call, b->norm1_w),
                      weight(call, b->norm1_b), rows, n);
    ops->linear_forward(a->qkv, a->norm1, weight(call, b->qkv_w), weight(call, b->qkv_b), NULL,
                        rows, n, 3 * n);
    ops->attention_forward(a->attention, a->lse, a->qkv, call->scratch, call->batch, call->context,
                           n, call->gpt->size.heads);
    ops->linear_forward(a->middle, a->attention, weight(call, b->proj_w), weight(call, b->proj_b),
                        a->input, rows, n, n);
    ops->norm_forward(a->norm2, a->mean2, a->rstd2, a->middle, weight(call, b->norm2_w),
                      weight(call, b->norm2_b), rows, n);
    ops->linear_forward(a->up, a->norm2, weight(call, b->up_w), weight(call, b->up_b), NULL, rows,
                        n, 4 * n);
    ops->gelu_forward(a->active, a->up, rows * 4 * n);
    ops->linear_forward(output, a->active, weight(call, b->down_w), weight(call, b->down_b),
                        a->middle, rows, 4 * n, n);
}

/* A linear layer's backward, and the word that its gradients are complete. */
static void linear_backward(const struct tr_block_call *call, float *dx, const float *dy,
                            const float *x, const int wb[2], long in, long out,
                            const struct tr_ready_hook *hook)
{
    call->gpt->ops->linear_backward(dx, gradient(call, wb[0]), gradient(call, wb[1]), dy, x,
                                    weight(call, wb[0]), call->batch * call->context, in, out);
    tr_hook_call(hook, wb[1]);
    tr_hook_call(hook, wb[0]);
}

void tr_block_backward(const struct tr_block_call *call, float *d_stream, float *d_norm,
                       float *d_wide, const struct tr_ready_hook *hook)
{
    const struct tr_ops *ops = call->gpt->ops;
    const struct tr_block *b = call->block;
    struct tr_block_acts *a = call->acts;
    const long n = call->gpt->size.width, rows = call->batch * call->context;
    linear_backward(call, d_wide, d_stream, a->active, (int[]){b->down_w, b->down_b}, 4 * n, n,
                    hook);
    ops->gelu_backward(d_wide, d_wide, a->up, rows * 4 * n);
    linear_backward(call, d_norm, d_wide, a->norm2, (int[]){b->up_w, b->up_b}, n, 4 * n, hook);
    ops->norm_backward(d_stream, gradient(call, b->norm2_w), gradient(call, b->norm2_b), d_norm,
                       a->middle, a->mean2, a->rstd2, weight(call, b->norm2_w), rows, n);
    tr_hook_call(hook, b->norm2_b);
    tr_hook_call(hook, b->norm2_w);
    linear_backward(call, d_norm, d_stream, a->attention, (int[]){b->proj_w, b->proj_b}, n, n,
                    hook);
    ops->attention_backward(d_wide, d_norm, a->attention, a->lse, a->qkv, call->scratch,
                            call->batch, call->context, n, call->gpt->size.heads);
    linear_backward(call, d_norm, d_wide, a->norm1, (int[]){b->qkv_w, b->qkv_b}, n, 3 * n, hook);
    ops->norm_backward(d_stream, gradient(call, b->norm1_w), gradient(call, b->norm1_b), d_norm,
                       a->input, a->mean1, a->rstd1, weight(call, b->norm1_w), rows, n);
    tr_hook_call(hook, b->norm1_b);
    tr_hook_call(hook, b->norm1_w);
}
