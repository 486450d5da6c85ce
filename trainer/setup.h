/* From options to a run: the sizes of the mesh's axes and the engine's options, for a number of
 * ranks. Pure: every rank, and --plan, finds the same. */
#ifndef TR_SETUP_H
#define TR_SETUP_H

#include "config.h"
#include "engine.h"
#include "resident.h"

struct tr_setup {
    int size[TR_NUM_AXES];
    struct tr_engine_options engine;
    bool snapshot;       /* checkpoints are written while training goes on, from a copy */
    bool times_products; /* before the first step, to compare steps with (peak.h) */
    bool yields;         /* --accumulate of a file gave way to the command line */
};

/* Errors: axes that do not multiply up to the ranks, ways of sharding that exclude each other,
 * sizes that 64 bits cannot count, sizes of the model that do not fit each other. An error names
 * the options that came from a checkpoint. */
TR_NODISCARD tr_status tr_setup_of(const struct tr_config *config, int nranks,
                                   struct tr_setup *setup);

/* Gives the options the setup's batch and micro-batch, and notes a batch that is not the
 * checkpoint's. An --accumulate that gave way has its default. */
void tr_setup_adopt(struct tr_config *config, const struct tr_setup *setup);

/* Where the stages of a pipeline idle for more than TR_MOST_IDLE percent of a step: a line that
 * says how much, and with which options they would not. "" elsewhere. The engine's options and
 * sizes are those that follow from the config. */
enum { TR_NOTE_BYTES = 256 };
void tr_setup_idle_note(const struct tr_config *config, const struct tr_engine_options *options,
                        const int size[TR_NUM_AXES], char note[TR_NOTE_BYTES]);

/* The stage that holds a tied table of `stage`, too; -1: none. */
int tr_setup_tied(const struct tr_setup *setup, int stage);

/* From a rehearsal to a run: without the copy of what is saved, where all is saved at the end. */
void tr_setup_trim(const struct tr_setup *setup, struct tr_rehearsal *rehearsal);

/* What the process of a rank will have resident, with the engine's number of threads; for a rank of
 * this memory, and of what the rank of tr_setup_tied has (NULL: there is none), the same. */
TR_NODISCARD tr_status tr_setup_resident(const struct tr_setup *setup, int rank,
                                         struct tr_resident *resident);
void tr_setup_resident_of(const struct tr_setup *setup, const struct tr_memory *own,
                          const struct tr_memory *tied, struct tr_resident *resident);

/* The bytes that a rank needs, with the engine's number of threads. */
TR_NODISCARD tr_status tr_setup_memory(const struct tr_setup *setup, int rank, uint64_t *nbytes);

/* The optimizer's step number `t` (from 1) at learning rate `lr`. */
struct tr_optimizer tr_setup_optimizer(const struct tr_config *config, int64_t t, double lr);

/* Takes the options a checkpoint was written with, as tr_config_restore does. Fails also where a
 * given option (momentum) makes the optimizer keep other states than the checkpoint has. */
TR_NODISCARD tr_status tr_setup_resume(struct tr_config *config, const char *json,
                                       const char *path);

/* The names of what a run does, for people. */
const char *tr_setup_sharding_name(enum tr_sharding sharding);

#endif
