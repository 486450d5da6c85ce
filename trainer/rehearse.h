/* A rehearsal: the step of one rank as the engine runs it, on a dry mesh (mesh.h) with a backend
 * that computes nothing (ops/dry.h). So what it counts is what a run calls and remembers, whatever
 * the number of ranks, in one process without memory. */
#ifndef TR_REHEARSE_H
#define TR_REHEARSE_H

#include "engine.h"

/* Whom a call is with. */
enum tr_partners {
    TR_WITH_SHARDS,   /* the ranks that shard a unit */
    TR_WITH_REPLICAS, /* the other ranks with tokens of their own */
    TR_WITH_TP,
    TR_WITH_SHARE, /* the ranks of tp that hold the same key and value heads */
    TR_WITH_TIE,   /* the first and the last stage */
    TR_WITH_STAGE, /* the ranks of a stage: the data axes and tp */
    TR_WITH_PP,
    TR_WITH_RING,
    TR_WITH_ULYSSES,
    TR_WITH_ALL,
    TR_NUM_PARTNERS
};
extern const char *const tr_partner_names[TR_NUM_PARTNERS];
extern const char *const tr_traffic_names[TR_NUM_TRAFFIC];

/* Bytes of memory by kind. */
struct tr_memory {
    uint64_t weights, gradients, optimizer, gathered, activations;
    uint64_t snapshot; /* the copy of what is saved while training goes on */
};
uint64_t tr_memory_sum(const struct tr_memory *memory);

struct tr_rehearsal {
    struct tr_tally
        step[TR_NUM_PARTNERS]; /* of a step; where a group is this rank alone: nothing */
    struct tr_memory memory;
    int nsets;           /* of activations */
    uint64_t set_bytes;  /* of `memory.activations`: what each of the sets has */
    uint64_t parameters; /* of the model, each once */
};

/* The step of rank `rank` of a mesh of these sizes, whose tr_engine_bound is below 2^62. A step of
 * more than TR_MOST_REHEARSED micro-batches is rehearsed with that many and with one more, and each
 * further one counts as the difference. Errors: those of tr_engine_init that every rank finds
 * alike. Not collective. */
enum { TR_MOST_REHEARSED = 2 };
TR_NODISCARD tr_status tr_rehearse(const int size[TR_NUM_AXES],
                                   const struct tr_engine_options *options, int rank,
                                   struct tr_rehearsal *rehearsal);

/* Only its memory and parameters, without a step. */
TR_NODISCARD tr_status tr_rehearse_memory(const int size[TR_NUM_AXES],
                                          const struct tr_engine_options *options, int rank,
                                          struct tr_rehearsal *rehearsal);

/* The first rank of each stage: stages[pp]. first[pp + 1]: the layers of the stages, as
 * tr_engine_stages gives them. One rehearsal for each kind of stage, *nkinds in all: stages
 * between the first and the last with as many layers differ in the sets of activations only. */
TR_NODISCARD tr_status tr_rehearse_stages(const int size[TR_NUM_AXES],
                                          const struct tr_engine_options *options, const int *first,
                                          struct tr_rehearsal *stages, int *nkinds);

#endif
