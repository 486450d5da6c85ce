/* Llama: queries and keys are rotated by their places, RMSNorm, no biases, SwiGLU, a head of its
 * own. */
#include "parts.h"

/* clang-format off */
static const struct tr_tensor_row token[] = {
    {TR_TOKEN_W, "token.weight", TR_VOCABULARY, TR_WIDTH, TR_NORMAL, false, TR_APART, {"model.embed_tokens.weight", false, 0}},
};
static const struct tr_tensor_row block[] = {
    {TR_NORM1_W, "norm1.weight",          TR_WIDTH,    TR_VECTOR, TR_ONES,     false, TR_APART,  {"model.layers.%ld.input_layernorm.weight", false, 0}},
    {TR_Q_W,     "attention.q.weight",    TR_HEADS,    TR_WIDTH,  TR_NORMAL,   true,  TR_APART,  {"model.layers.%ld.self_attn.q_proj.weight", false, 0}},
    {TR_K_W,     "attention.k.weight",    TR_KV_HEADS, TR_WIDTH,  TR_NORMAL,   true,  TR_PACKED, {"model.layers.%ld.self_attn.k_proj.weight", false, 0}},
    {TR_V_W,     "attention.v.weight",    TR_KV_HEADS, TR_WIDTH,  TR_NORMAL,   true,  TR_JOINED, {"model.layers.%ld.self_attn.v_proj.weight", false, 0}},
    {TR_PROJ_W,  "attention.proj.weight", TR_WIDTH,    TR_HEADS,  TR_RESIDUAL, true,  TR_APART,  {"model.layers.%ld.self_attn.o_proj.weight", false, 0}},
    {TR_NORM2_W, "norm2.weight",          TR_WIDTH,    TR_VECTOR, TR_ONES,     false, TR_APART,  {"model.layers.%ld.post_attention_layernorm.weight", false, 0}},
    {TR_GATE_W,  "mlp.gate.weight",       TR_HIDDEN,   TR_WIDTH,  TR_NORMAL,   true,  TR_APART,  {"model.layers.%ld.mlp.gate_proj.weight", false, 0}},
    {TR_UP_W,    "mlp.up.weight",         TR_HIDDEN,   TR_WIDTH,  TR_NORMAL,   true,  TR_APART,  {"model.layers.%ld.mlp.up_proj.weight", false, 0}},
    {TR_DOWN_W,  "mlp.down.weight",       TR_WIDTH,    TR_HIDDEN, TR_RESIDUAL, true,  TR_APART,  {"model.layers.%ld.mlp.down_proj.weight", false, 0}},
};
static const struct tr_tensor_row final[] = {
    {TR_NORM_W, "norm.weight", TR_WIDTH,      TR_VECTOR, TR_ONES,   false, TR_APART, {"model.norm.weight", false, 0}},
    {TR_HEAD_W, "head.weight", TR_VOCABULARY, TR_WIDTH,  TR_NORMAL, true,  TR_APART, {"lm_head.weight", false, 0}},
};
/* clang-format on */

static long hidden_of(long width)
{
    return (width * 8 / 3 + 15) / 16 * 16;
}

const struct tr_architecture tr_llama = {
    .title = "Llama",
    .units = {[TR_TOKEN] = TR_ROWS(token),
              [TR_BLOCK_OF_LAYER] = TR_ROWS(block),
              [TR_FINAL] = TR_ROWS(final)},
    .norm = &tr_rms_norm,
    .norm_epsilon = 1e-5,
    .mlp = &tr_swiglu_mlp,
    .gated = true,
    .rope_theta = 10000,
    .hidden = hidden_of,
};
