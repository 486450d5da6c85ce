/* A GPT-style transformer over bytes: token and position embeddings, blocks (pre-norm attention and
 * MLP), a final norm, a head of its own (not tied: tying would hold the head's gradient back to the
 * very end of the backward pass). No communication, no allocation. */
#ifndef TR_GPT_H
#define TR_GPT_H

#include "../memory.h"
#include "../ops/ops.h"
#include "../param.h"

enum { TR_VOCABULARY = 256 };

struct tr_gpt_size {
    long layers, heads, width, context;
};

/* Parameters of a block: indices into the registry. */
struct tr_block {
    int norm1_w, norm1_b, qkv_w, qkv_b, proj_w, proj_b;
    int norm2_w, norm2_b, up_w, up_b, down_w, down_b;
};

/* What a block's forward keeps for its backward; rows = batch * context. */
struct tr_block_acts {
    float *input;                 /* [rows, width], also the previous block's output */
    float *norm1, *mean1, *rstd1; /* [rows, width], [rows], [rows] */
    float *qkv;                   /* [rows, 3 width] */
    float *attention, *lse;       /* [rows, width], [batch, heads, context] */
    float *middle;                /* [rows, width]: input + attention */
    float *norm2, *mean2, *rstd2;
    float *up, *active; /* [rows, 4 width]: before and after gelu */
};

/* Activations of one micro-batch. Memory belongs to the arena it was carved from. */
struct tr_acts {
    struct tr_block_acts *blocks; /* [layers] */
    float *output;                /* [rows, width]: the last block's */
    float *norm, *mean, *rstd;
    float *logits;                     /* [rows, 256]; the loss turns them into their gradient */
    float *scratch;                    /* of attention */
    float *d_stream, *d_norm, *d_wide; /* gradients: [rows, width] twice, [rows, 4 width] */
};

/* Immutable after init; owns `blocks` and the registry. */
struct tr_gpt {
    struct tr_gpt_size size;
    struct tr_params params;
    int token_table, place_table, norm_w, norm_b, head_w;
    struct tr_block *blocks;
    const struct tr_ops *ops;
};

/* Called by backward when the gradient of parameter `param` is complete, in a fixed order. NULL:
 * nobody asks. */
struct tr_ready_hook {
    void (*ready)(void *arg, int param);
    void *arg;
};

TR_NODISCARD tr_status tr_gpt_init(struct tr_gpt *gpt, struct tr_gpt_size size,
                                   const struct tr_ops *ops);
void tr_gpt_fini(struct tr_gpt *gpt);

/* Carves the activations of `batch` sequences of the model's context. */
void tr_gpt_take_acts(const struct tr_gpt *gpt, struct tr_arena *arena, long batch,
                      struct tr_acts *acts);

/* tokens[batch, context] -> acts->logits. context may be shorter than the model's. */
void tr_gpt_forward(const struct tr_gpt *gpt, const float *weights, struct tr_acts *acts,
                    const unsigned char *tokens, long batch, long context);

/* acts->logits hold the gradient of the loss; gradients += . */
void tr_gpt_backward(const struct tr_gpt *gpt, const float *weights, float *gradients,
                     struct tr_acts *acts, const unsigned char *tokens, long batch, long context,
                     const struct tr_ready_hook *hook);

/* Floating point operations of training per token (forward and backward), matrix products only. */
double tr_gpt_flops_per_token(const struct tr_gpt *gpt);

/* Continues `prompt` by `count` bytes, drawn at `temperature` by (seed, position), into out. Needs
 * the activations of one sequence. */
void tr_gpt_sample(const struct tr_gpt *gpt, const float *weights, struct tr_acts *acts,
                   const char *prompt, unsigned char *out, long count, double temperature,
                   uint64_t seed);

/* One block, for gpt.c. `output` is where the next block's input lies. */
struct tr_block_call {
    const struct tr_gpt *gpt;
    const struct tr_block *block;
    struct tr_block_acts *acts;
    const float *weights;
    float *gradients; /* backward only */
    float *scratch;
    long batch, context;
};
void tr_block_forward(const struct tr_block_call *call, float *output);
/* d_stream[rows, width]: gradient of the output on entry, of the input on return. */
void tr_block_backward(const struct tr_block_call *call, float *d_stream, float *d_norm,
                       float *d_wide, const struct tr_ready_hook *hook);
tr_status tr_block_register(struct tr_params *params, struct tr_block *block, long layer,
                            const struct tr_gpt_size *size);
void tr_block_take_acts(struct tr_arena *arena, struct tr_block_acts *acts,
                        const struct tr_gpt_size *size, long batch);
void tr_hook_call(const struct tr_ready_hook *hook, int param);

#endif
