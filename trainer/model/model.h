/* A model: an embedding, blocks (pre-norm attention and MLP), a final norm and a head, as
 * units that are run one after the other. No communication, no allocation: what needs other ranks
 * is asked of the seams (seams.h).
 *
 * Shapes: `rows` = batch * tokens of this rank's part of the sequences; `own` = rows / tp: the rows
 * of the residual stream that this rank of tp keeps (all when tp is 1). h = width, d = head size;
 * heads, kv_heads and hidden without more are this rank's. */
#ifndef TR_MODEL_H
#define TR_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "../memory.h"
#include "../ops/backend.h"
#include "../param.h"
#include "architecture.h"
#include "seams.h"

/* A block's parameters, by role: indices into the registry; -1: it has none. */
struct tr_block {
    int unit;
    int tensor[TR_NUM_ROLES];
};

/* Immutable after init; owns `blocks` and the registry. */
struct tr_model {
    struct tr_model_size size; /* global */
    const struct tr_architecture *architecture;
    const struct tr_backend *backend;
    struct tr_params params;
    struct tr_block *blocks;
    int tensor[TR_NUM_ROLES]; /* of the other units; the head is the token table when tied */
    int token_unit, place_unit, final_unit, head_unit;
    long d, heads, kv_heads, hidden; /* this rank's */
    long group, phase;               /* query heads of a kv head; of this rank's first query head */
    bool packed;                     /* q, k and v are one product; else q, and k with v */
    long q_stride, kv_stride;        /* elements from one row to the next */
    long vocabulary_first, vocabulary_count;
};

/* Errors, for tp ranks that cut the model: heads that tp does not divide, kv heads and tp of which
 * neither divides the other, kv heads that do not divide heads, heads that do not divide the width,
 * tp greater than hidden or vocabulary. */
TR_NODISCARD tr_status tr_model_check(const struct tr_model_size *size, int tp);
/* tp ranks cut the model, units are cut into `shards`. Errors: those of tr_model_check, memory. */
TR_NODISCARD tr_status tr_model_init(struct tr_model *model, const struct tr_model_size *size,
                                     const struct tr_backend *backend, int tp, int tp_rank,
                                     int shards);
void tr_model_fini(struct tr_model *model);

/* The tokens of one micro-batch on this rank. */
struct tr_tokens {
    long batch, context;          /* sequences; tokens of each on this rank */
    long rows, own;               /* batch * context; rows / tp */
    const int32_t *ids;           /* [rows] */
    const int32_t *positions;     /* [rows]: place in the global sequence */
    const int32_t *own_positions; /* [own] */
    const int32_t *targets;       /* [rows] */
    const float *weights;         /* [rows]: 1, or 0 for a token that does not count */
};

/* What a block's forward keeps for its backward. */
struct tr_block_acts {
    struct tr_data *input;     /* [own, h], also the previous block's output */
    struct tr_data *norm1;     /* [own, h] */
    float *mean1, *rstd1;      /* [own] each */
    struct tr_data *q, *k, *v; /* [rows, heads d], [rows, kv_heads d] twice, with strides */
    struct tr_data *attention; /* [rows, heads d] */
    void *room;                /* of the attention's seam */
    struct tr_data *middle;    /* [own, h]: input + attention */
    struct tr_data *norm2;
    float *mean2, *rstd2;
    struct tr_data *gate, *up, *active; /* [rows, hidden] each; gate: of a gated MLP */
};

/* The activations of one micro-batch of this rank's `nblocks` layers. `blocks` are
 * the caller's, in the host's memory; what they point to belongs to the arena. */
struct tr_acts {
    struct tr_block_acts *blocks;
    struct tr_data *output; /* [own, h]: the last block's */
    struct tr_data *norm;
    float *mean, *rstd;
    struct tr_data *logits; /* [rows, vocabulary_count]; the loss turns them into their gradient */
};

/* The shape of a block's attention on this rank; no pointers yet. */
struct tr_attend tr_model_attend(const struct tr_model *model, long batch, long context);

/* What a rank needs once, whatever is in flight. */
struct tr_scratch {
    struct tr_data *all, *d_all;                /* [rows, h] */
    struct tr_data *d_norm;                     /* [own, h] */
    struct tr_data *d_wide, *d_gate;            /* [rows, hidden]; d_gate: of a gated MLP */
    struct tr_data *dq, *dk, *dv, *d_attention; /* as q, k, v and attention of a block */
};

/* One micro-batch in one activation set. */
struct tr_pass {
    const struct tr_model *model;
    const struct tr_seams *seams;
    const struct tr_tokens *tokens;
    struct tr_acts *acts;
    struct tr_scratch *scratch;
};

/* Carves memory for `batch` sequences of `context` tokens on this rank: acts->blocks[nblocks] and
 * output; norm and logits; what is needed once. */
void tr_model_take_acts(const struct tr_model *model, const struct tr_seams *seams,
                        struct tr_arena *arena, int nblocks, long batch, long context,
                        struct tr_acts *acts);
void tr_model_take_head(const struct tr_model *model, const struct tr_seams *seams,
                        struct tr_arena *arena, long batch, long context, struct tr_acts *acts);
void tr_model_take_scratch(const struct tr_model *model, struct tr_arena *arena, long batch,
                           long context, struct tr_scratch *scratch);

/* Gradients of a unit are complete, tensor by tensor: called by backward in a fixed order. */
struct tr_ready_hook {
    void (*ready)(void *arg, int param);
    void *arg;
};

/* Units, forward. The loss is added to *loss unless that is NULL. token, place (NULL for Llama),
 * weights, final and head are the elements of units. `output` [own, h] is what a unit passes to the
 * next: the input of the next block in this set of activations, or acts->output, which the head
 * reads. */
TR_NODISCARD tr_status tr_embed_forward(const struct tr_pass *pass, const struct tr_data *token,
                                        const struct tr_data *place, struct tr_data *output);
TR_NODISCARD tr_status tr_block_forward(const struct tr_pass *pass, int slot,
                                        const struct tr_block *block, const struct tr_data *weights,
                                        struct tr_data *output);
TR_NODISCARD tr_status tr_head_forward(const struct tr_pass *pass, const struct tr_data *final,
                                       const struct tr_data *head, double *loss);

/* Backward; gradients +=. d_stream [own, h]: gradient of the unit's output on entry, of its input
 * on return (tr_head_backward only writes it). */
TR_NODISCARD tr_status tr_head_backward(const struct tr_pass *pass, const struct tr_data *final,
                                        const struct tr_data *head, struct tr_data *d_final,
                                        struct tr_data *d_head, struct tr_data *d_stream,
                                        const struct tr_ready_hook *hook);
TR_NODISCARD tr_status tr_block_backward(const struct tr_pass *pass, int slot,
                                         const struct tr_block *block,
                                         const struct tr_data *weights, struct tr_data *gradients,
                                         struct tr_data *d_stream,
                                         const struct tr_ready_hook *hook);
TR_NODISCARD tr_status tr_embed_backward(const struct tr_pass *pass, struct tr_data *d_token,
                                         struct tr_data *d_place, struct tr_data *d_stream,
                                         const struct tr_ready_hook *hook);

/* The logits of the rows of the stream, this rank's part of the vocabulary, into acts->logits. */
TR_NODISCARD tr_status tr_head_logits(const struct tr_pass *pass, const struct tr_data *final,
                                      const struct tr_data *head);

/* Parameters, each once, in floating point: also of sizes that 64 bits cannot count. */
double tr_model_parameters(const struct tr_model_size *size);

/* Floating point operations of training per token (forward and backward), matrix products only. */
double tr_model_flops_per_token(const struct tr_model_size *size);

void tr_hook_call(const struct tr_ready_hook *hook, int param);

#endif
