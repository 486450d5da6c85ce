/* Checkpoints of a run: weights, optimizer state (the same names with .m and .v), step, place in
 * the data and options, in one file that does not depend on the number of ranks. */
#ifndef TR_CKPT_H
#define TR_CKPT_H

#include <stdint.h>

#include "../config.h"
#include "../param.h"

/* What a checkpoint holds beside the options; borrows all pointers. */
struct tr_state {
    const struct tr_params *params;
    float *weights, *m, *v;
    int64_t step;     /* steps done */
    uint64_t samples; /* place in the data: sequences taken by all ranks together */
    uint64_t data_checksum;
};

/* Makes the folder (and those above it) unless it is there, and checks that it can be written to:
 * said at the start, not after hours. One rank calls it. */
TR_NODISCARD tr_status tr_ckpt_prepare(const char *folder);

/* Writes folder/step-NNNNNNNN.safetensors. One rank calls it. */
TR_NODISCARD tr_status tr_ckpt_save(const char *folder, const struct tr_state *state,
                                    const struct tr_config *config, char *path, size_t path_bytes);

/* The file that `where` (a file, or a folder whose newest checkpoint is meant) stands for. */
TR_NODISCARD tr_status tr_ckpt_find(const char *where, char *path, size_t path_bytes);

/* Takes over the options of the checkpoint (before the model is made). */
TR_NODISCARD tr_status tr_ckpt_read_config(const char *path, struct tr_config *config);

/* Fills the arenas, step, samples and data_checksum. */
TR_NODISCARD tr_status tr_ckpt_load(const char *path, struct tr_state *state);

#endif
