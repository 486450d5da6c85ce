/* An architecture is a table: the tensors of its units, in the order of the registry, and the parts
 * that its blocks are made of. The registry and the memory of activations read it. A new one is a
 * file with its table, like gpt2.c, and a line of architecture_table.h. */
#ifndef TR_ARCHITECTURE_H
#define TR_ARCHITECTURE_H

#include <stdbool.h>

#include "../ops/activation.h"

enum tr_model_kind {
#define ARCHITECTURE(NAME, name) TR_##NAME,
#include "architecture_table.h"
    TR_NUM_MODELS
};

struct tr_model_size {
    enum tr_model_kind kind;
    long layers, heads, kv_heads, width, hidden, vocabulary, context;
    bool tied;
    enum tr_activation_kind activation; /* of an MLP without a gate */
};

/* What a tensor's rows or columns are. tp cuts all but the width and the context; heads stay whole.
 */
enum tr_extent {
    TR_VECTOR, /* one column */
    TR_WIDTH,
    TR_HEADS,    /* heads * head size */
    TR_KV_HEADS, /* kv heads * head size */
    TR_HIDDEN,
    TR_VOCABULARY,
    TR_CONTEXT
};

/* What a tensor is for. */
enum tr_role {
    TR_TOKEN_W,
    TR_PLACE_W,
    TR_NORM1_W,
    TR_NORM1_B,
    TR_Q_W,
    TR_K_W,
    TR_V_W,
    TR_Q_B,
    TR_K_B,
    TR_V_B,
    TR_PROJ_W,
    TR_PROJ_B,
    TR_NORM2_W,
    TR_NORM2_B,
    TR_GATE_W,
    TR_UP_W,
    TR_UP_B,
    TR_DOWN_W,
    TR_DOWN_B,
    TR_NORM_W,
    TR_NORM_B,
    TR_HEAD_W, /* left out when the head is tied */
    TR_NUM_ROLES
};

/* First values: the normal ones have deviation 0.02. Each block adds two summands to the stream:
 * residual ones are divided by sqrt(2 layers), so that the sum's variance does not grow. */
enum tr_first { TR_ZEROS, TR_ONES, TR_NORMAL, TR_RESIDUAL };

/* Whether a tensor lies behind the one before without a gap: for one product of both. */
enum tr_joint { TR_APART, TR_PACKED, TR_JOINED }; /* TR_PACKED: when q, k and v are one product */

/* A tensor's name in Hugging Face's checkpoints, where %ld is the layer. */
struct tr_hub_name {
    const char *name;
    bool transposed; /* stored [columns, rows] */
    int part;        /* which of three that lie side by side in it, from 1; 0: all of it */
};

struct tr_tensor_row {
    enum tr_role role;
    const char *name; /* in checkpoints, behind the unit's prefix */
    enum tr_extent rows, cols;
    enum tr_first first;
    bool decay;
    enum tr_joint joint;
    struct tr_hub_name hub;
};

enum tr_unit_kind { TR_TOKEN, TR_PLACE, TR_BLOCK_OF_LAYER, TR_FINAL, TR_NUM_UNIT_KINDS };

/* The tensors of a unit; none: the architecture has no such unit. */
struct tr_unit_rows {
    const struct tr_tensor_row *rows;
    int n;
};

struct tr_norm_kind; /* parts.h */
struct tr_mlp_kind;

struct tr_architecture {
    const char *title;
    struct tr_unit_rows units[TR_NUM_UNIT_KINDS];
    const struct tr_norm_kind *norm;
    double norm_epsilon;
    const struct tr_mlp_kind *mlp;
    bool gated;        /* the MLP multiplies by a gate, and so keeps one more activation */
    double rope_theta; /* of the rotation of queries and keys; 0: they are not rotated */
    /* What --activation=auto, of an MLP without a gate, --tied=auto and --hidden=0 mean */
    enum tr_activation_kind activation;
    bool tied;
    long (*hidden)(long width);
};
extern const struct tr_architecture *const tr_architectures[TR_NUM_MODELS];
#define ARCHITECTURE(NAME, name) extern const struct tr_architecture tr_##name;
#include "architecture_table.h"

/* Whether a row is a matrix of a block, which some optimizers treat apart from embeddings, head,
 * norms and biases. */
static inline bool tr_row_is_hidden(const struct tr_tensor_row *row, enum tr_unit_kind kind)
{
    return kind == TR_BLOCK_OF_LAYER && row->cols != TR_VECTOR;
}

/* Whether a row is in a model of this size. */
static inline bool tr_row_is_there(const struct tr_tensor_row *row, bool tied)
{
    return row->role != TR_HEAD_W || !tied;
}

#endif
