/* GPT-2: places are learned, LayerNorm, biases, GELU; the head is the table of the embedding. */
#include "parts.h"

/* clang-format off */
static const struct tr_tensor_row token[] = {
    {TR_TOKEN_W, "token.weight", TR_VOCABULARY, TR_WIDTH, TR_NORMAL, false, TR_APART, {"transformer.wte.weight", false, 0}},
};
static const struct tr_tensor_row place[] = {
    {TR_PLACE_W, "place.weight", TR_CONTEXT, TR_WIDTH, TR_NORMAL, false, TR_APART, {"transformer.wpe.weight", false, 0}},
};
static const struct tr_tensor_row block[] = {
    {TR_NORM1_W, "norm1.weight",          TR_WIDTH,    TR_VECTOR, TR_ONES,     false, TR_APART,  {"transformer.h.%ld.ln_1.weight", false, 0}},
    {TR_NORM1_B, "norm1.bias",            TR_WIDTH,    TR_VECTOR, TR_ZEROS,    false, TR_APART,  {"transformer.h.%ld.ln_1.bias", false, 0}},
    {TR_Q_W,     "attention.q.weight",    TR_HEADS,    TR_WIDTH,  TR_NORMAL,   true,  TR_APART,  {"transformer.h.%ld.attn.c_attn.weight", true, 1}},
    {TR_K_W,     "attention.k.weight",    TR_KV_HEADS, TR_WIDTH,  TR_NORMAL,   true,  TR_PACKED, {"transformer.h.%ld.attn.c_attn.weight", true, 2}},
    {TR_V_W,     "attention.v.weight",    TR_KV_HEADS, TR_WIDTH,  TR_NORMAL,   true,  TR_JOINED, {"transformer.h.%ld.attn.c_attn.weight", true, 3}},
    {TR_Q_B,     "attention.q.bias",      TR_HEADS,    TR_VECTOR, TR_ZEROS,    false, TR_APART,  {"transformer.h.%ld.attn.c_attn.bias", false, 1}},
    {TR_K_B,     "attention.k.bias",      TR_KV_HEADS, TR_VECTOR, TR_ZEROS,    false, TR_PACKED, {"transformer.h.%ld.attn.c_attn.bias", false, 2}},
    {TR_V_B,     "attention.v.bias",      TR_KV_HEADS, TR_VECTOR, TR_ZEROS,    false, TR_JOINED, {"transformer.h.%ld.attn.c_attn.bias", false, 3}},
    {TR_PROJ_W,  "attention.proj.weight", TR_WIDTH,    TR_HEADS,  TR_RESIDUAL, true,  TR_APART,  {"transformer.h.%ld.attn.c_proj.weight", true, 0}},
    {TR_PROJ_B,  "attention.proj.bias",   TR_WIDTH,    TR_VECTOR, TR_ZEROS,    false, TR_APART,  {"transformer.h.%ld.attn.c_proj.bias", false, 0}},
    {TR_NORM2_W, "norm2.weight",          TR_WIDTH,    TR_VECTOR, TR_ONES,     false, TR_APART,  {"transformer.h.%ld.ln_2.weight", false, 0}},
    {TR_NORM2_B, "norm2.bias",            TR_WIDTH,    TR_VECTOR, TR_ZEROS,    false, TR_APART,  {"transformer.h.%ld.ln_2.bias", false, 0}},
    {TR_UP_W,    "mlp.up.weight",         TR_HIDDEN,   TR_WIDTH,  TR_NORMAL,   true,  TR_APART,  {"transformer.h.%ld.mlp.c_fc.weight", true, 0}},
    {TR_UP_B,    "mlp.up.bias",           TR_HIDDEN,   TR_VECTOR, TR_ZEROS,    false, TR_APART,  {"transformer.h.%ld.mlp.c_fc.bias", false, 0}},
    {TR_DOWN_W,  "mlp.down.weight",       TR_WIDTH,    TR_HIDDEN, TR_RESIDUAL, true,  TR_APART,  {"transformer.h.%ld.mlp.c_proj.weight", true, 0}},
    {TR_DOWN_B,  "mlp.down.bias",         TR_WIDTH,    TR_VECTOR, TR_ZEROS,    false, TR_APART,  {"transformer.h.%ld.mlp.c_proj.bias", false, 0}},
};
static const struct tr_tensor_row final[] = {
    {TR_NORM_W, "norm.weight", TR_WIDTH,      TR_VECTOR, TR_ONES,   false, TR_APART, {"transformer.ln_f.weight", false, 0}},
    {TR_NORM_B, "norm.bias",   TR_WIDTH,      TR_VECTOR, TR_ZEROS,  false, TR_APART, {"transformer.ln_f.bias", false, 0}},
    {TR_HEAD_W, "head.weight", TR_VOCABULARY, TR_WIDTH,  TR_NORMAL, true,  TR_APART, {"lm_head.weight", false, 0}},
};
/* clang-format on */

static long hidden_of(long width)
{
    return 4 * width;
}

const struct tr_architecture tr_gpt2 = {
    .title = "GPT-2",
    .units = {[TR_TOKEN] = TR_ROWS(token),
              [TR_PLACE] = TR_ROWS(place),
              [TR_BLOCK_OF_LAYER] = TR_ROWS(block),
              [TR_FINAL] = TR_ROWS(final)},
    .norm = &tr_layer_norm,
    .norm_epsilon = 1e-5,
    .mlp = &tr_plain_mlp,
    .activation = TR_GELU,
    .tied = true,
    .hidden = hidden_of,
};
