/* Checkpoints of a run: weights, optimizer state (the same names with .m, .v and .s, as many as the
 * optimizer keeps of the tensor), step, place in the data and options, in one file of global
 * tensors that does not depend on the layout. */
#ifndef TR_CKPT_H
#define TR_CKPT_H

#include <stdint.h>

#include "../config.h"
#include "../engine.h"
#include "../watch/spikes.h"

/* What a checkpoint holds beside tensors and options. */
struct tr_state {
    int64_t step;     /* steps done */
    uint64_t samples; /* place in the data: sequences taken by all ranks together */
    uint64_t data_checksum;
    struct tr_spikes spikes; /* empty in a file of an earlier version */
};

/* Makes the folder (and those above it) unless it is there, and checks that it can be written to:
 * said at the start, not after hours. One rank calls it. */
TR_NODISCARD tr_status tr_ckpt_prepare(const char *folder);
/* Keeps other runs from writing to the folder until close(*lock), or the end of the process, by a
 * lock on its file `.lock`, which stays there. Where that is not possible, prints a note; *lock is
 * -1. A lock removes what a killed run has left there. One rank calls it. */
TR_NODISCARD tr_status tr_ckpt_lock(const char *folder, int *lock);
/* Fails when the disk has no room for a checkpoint. One rank calls it. */
TR_NODISCARD tr_status tr_ckpt_check_space(const char *folder, const struct tr_store *store);

/* Fails when ranks that hold the same weights have different bits. Collective; no pass is under
 * way. */
TR_NODISCARD tr_status tr_ckpt_compare(struct tr_engine *engine);

/* Writes folder/step-NNNNNNNN.safetensors, whose name becomes path: each rank what it holds, to
 * its places in the file, where it sees the folder of rank 0; else rank 0 writes for it. Every rank
 * needs 3 MiB. Fails when a number is not finite: what earlier checkpoints hold is worth more.
 * Collective: a failure of one rank is one of all. */
TR_NODISCARD tr_status tr_ckpt_save(struct tr_engine *engine, const char *folder,
                                    const struct tr_state *state, const struct tr_config *config,
                                    char *path, size_t path_bytes);

/* The file that `where` (a file, or a folder whose newest checkpoint is meant) stands for. */
TR_NODISCARD tr_status tr_ckpt_find(const char *where, char *path, size_t path_bytes);

/* The options the checkpoint was written with, as JSON; free() it. */
TR_NODISCARD tr_status tr_ckpt_read_options(const char *path, char **options);

/* Fills the store and the state from the file, which rank 0 reads. Collective. */
TR_NODISCARD tr_status tr_ckpt_load(struct tr_engine *engine, const char *path,
                                    struct tr_state *state);

#endif
