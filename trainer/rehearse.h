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

/* Bytes of memory by kind. */
struct tr_memory {
    uint64_t weights, gradients, optimizer, gathered, activations;
};

struct tr_rehearsal {
    struct tr_tally
        step[TR_NUM_PARTNERS]; /* of a step; where a group is this rank alone: nothing */
    struct tr_memory memory;
    uint64_t parameters; /* of the model, each once */
};

/* The step of rank `rank` of a mesh of these sizes. A step of more than TR_MOST_REHEARSED
 * micro-batches is rehearsed with that many and with one more, and each further one counts as the
 * difference. Errors: those of tr_engine_init that every rank finds alike. Not collective. */
enum { TR_MOST_REHEARSED = 8 };
TR_NODISCARD tr_status tr_rehearse(const int size[TR_NUM_AXES],
                                   const struct tr_engine_options *options, int rank,
                                   struct tr_rehearsal *rehearsal);

/* Only its memory and parameters, without a step. */
TR_NODISCARD tr_status tr_rehearse_memory(const int size[TR_NUM_AXES],
                                          const struct tr_engine_options *options, int rank,
                                          struct tr_rehearsal *rehearsal);

#endif
