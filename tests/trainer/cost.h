/* What a training step communicates and what a rank needs to remember, from sizes alone: the oracle
 * of engines and rehearsals. Formulas, worked out again from the architecture's table without the
 * layouts, the registry and the engine, whose counters, arenas and rehearsals are compared with
 * them. Symbols: t = tp, n = ranks that shard, m = micro-batches of a step. */
#ifndef TR_COST_H
#define TR_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "../../trainer/rehearse.h"

/* The sizes of a run, those that the options give. */
struct tr_cost_sizes {
    const struct tr_architecture *architecture;
    bool tied;
    long layers, heads, kv_heads, width, hidden, vocabulary, context;
    int pp, dp, fsdp, ring, ulysses, tp;
    int zero; /* 0 DDP, 1, 2, 3: as enum tr_sharding */
    bool gpipe, reduce_last, keep_gathered;
    struct tr_optimizer optimizer; /* only what its states depend on is read */
    long batch, micro_batch, bucket_bytes;
};

/* One rank: its place along the axes that make ranks differ. */
struct tr_cost_rank {
    int stage, stage_layers; /* of pp; layers that the stage has */
    int stage_rank;          /* among the ranks of the stage, in the order of the mesh */
    int shard;               /* which of the n shards of a unit */
    long samples;            /* sequences of a step */
    int ulysses_rank;
    bool saves; /* the first of the ranks that hold equal shards */
};

/* Calls of a step and their payload, the whole message, as tuttiCommCallCounters counts it; memory.
 */
struct tr_cost {
    struct tr_traffic traffic[TR_NUM_PARTNERS][TR_NUM_TRAFFIC];
    struct tr_memory memory;
};

/* What the options of an engine on a mesh of these sizes say; a rank's place there, where the
 * stages have the layers first_layer[pp + 1]. */
struct tr_cost_sizes tr_cost_sizes_of(const struct tr_engine_options *options,
                                      const int size[TR_NUM_AXES]);
struct tr_cost_rank tr_cost_rank_of(const struct tr_engine_options *options,
                                    const int size[TR_NUM_AXES], const int *first_layer, int rank);

/* The cost of a step of one rank. */
void tr_cost_of(const struct tr_cost_sizes *sizes, const struct tr_cost_rank *rank,
                struct tr_cost *cost);

/* Parameters of the model, each once. */
uint64_t tr_cost_parameters(const struct tr_cost_sizes *sizes);

/* Micro-batches of a step. */
long tr_cost_micro_batches(const struct tr_cost_sizes *sizes);

#endif
