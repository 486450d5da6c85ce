/* From options to a run: the sizes of the mesh's axes and the engine's options, for a number of
 * ranks. Pure: every rank, and --plan, finds the same. */
#ifndef TR_SETUP_H
#define TR_SETUP_H

#include "config.h"
#include "cost.h"
#include "engine.h"
#include "resident.h"

struct tr_setup {
    int size[TR_NUM_AXES];
    struct tr_engine_options engine;
    bool snapshot; /* checkpoints are written while training goes on, from a copy */
};

/* Errors: axes that do not multiply up to the ranks, ways of sharding that exclude each other,
 * sizes that 64 bits cannot count, sizes of the model that do not fit each other. An error names
 * the options that came from a checkpoint. */
TR_NODISCARD tr_status tr_setup_of(const struct tr_config *config, int nranks,
                                   struct tr_setup *setup);

/* The sizes of a run, for cost.h. */
struct tr_cost_sizes tr_setup_sizes(const struct tr_setup *setup);

/* A rank's place, for cost.h; first_layer[pp + 1] of its stages. */
struct tr_cost_rank tr_setup_rank(const struct tr_setup *setup, const int *first_layer, int rank);

/* first_layer[pp + 1] of the stages, which the caller frees. */
TR_NODISCARD tr_status tr_setup_stages(const struct tr_setup *setup, int **first_layer);

/* What the process of a rank will have resident, for resident.h, with the engine's number of
 * threads. */
void tr_setup_resident(const struct tr_setup *setup, const int *first_layer, int rank,
                       struct tr_resident *resident);

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
