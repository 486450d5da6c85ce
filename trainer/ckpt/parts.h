/* What a checkpoint holds of each parameter: its weights, then the optimizer's states. */
#ifndef TR_CKPT_PARTS_H
#define TR_CKPT_PARTS_H

#include "../engine.h"
#include "safetensors.h"

/* Which version of checkpoints a file is: among its metadata. */
#define TR_CKPT_KEY "tutti-train"
#define TR_CKPT_VERSION "3"
/* Names of metadata that a file may not have: which run wrote it, and its held-out loss. */
#define TR_CKPT_RUN "run"
#define TR_CKPT_START "start"
#define TR_CKPT_HELD_OUT "held_out_loss"
#define TR_CKPT_HELD_OUT_FROM "held_out_from"

enum { TR_PART_NAME = TR_NAME_BYTES + 4 };

/* One tensor of a checkpoint: part 0 of a parameter is its weights, part k its state k - 1. */
struct tr_part_id {
    int param, part;
};

/* The tensors of a checkpoint in the order of the file: all weights, then all first states, and so
 * on. Owned by whoever called tr_parts_list, until tr_parts_free. */
struct tr_parts {
    struct tr_part_id *ids;
    struct tr_tensor *tensors;
    char (*names)[TR_PART_NAME];
    int n;
};
TR_NODISCARD tr_status tr_parts_list(const struct tr_store *store, struct tr_parts *parts);
void tr_parts_free(struct tr_parts *parts);

/* Whether a part has the shape of the tensor, and is cut as its weights are. */
bool tr_part_is_cut(const struct tr_store *store, struct tr_part_id id);

/* What this rank has of a part: floats of the unit from `first` on; of a part that is not cut, all
 * of it. floats NULL: nothing. */
struct tr_part_range {
    float *floats;
    size_t first, count;
};
struct tr_part_range tr_part_range(const struct tr_store *store, struct tr_part_id id);

/* Whether this rank answers for what it has of a part: of the ranks that hold equal slices, the
 * first; for a part that is not cut, the rank that holds the tensor's first float. */
bool tr_part_answers(const struct tr_engine *engine, struct tr_part_id id);

#endif
