/* The units of a model on a rank, worked out from the architecture's table for the formulas of
 * cost.c and cost_optim.c. */
#ifndef TR_COST_UNITS_H
#define TR_COST_UNITS_H

#include "cost.h"

static inline long tr_cost_max(long a, long b)
{
    return a > b ? a : b;
}

static inline long tr_cost_min(long a, long b)
{
    return a < b ? a : b;
}

static inline long tr_cost_up(long n, long to)
{
    return (n + to - 1) / to * to;
}

/* A unit's floats on each rank: tensors that tp cuts, then those that some ranks of tp share, then
 * those that all have. A section begins on a multiple of 1024 floats, a tensor on one of 16, and
 * the unit's end is a multiple of 1024 for each shard. */
enum {
    TR_COST_CUT,
    TR_COST_SHARED,
    TR_COST_ALIKE,
    TR_COST_SECTIONS,
    TR_COST_MOST_TENSORS = TR_NUM_ROLES,
    TR_COST_BLOCK = 1024
};

struct tr_cost_tensor {
    long floats, offset;
    int section;
    bool joined; /* follows the tensor before without a gap */
    struct tr_subject subject;
};

struct tr_cost_unit {
    struct tr_cost_tensor tensors[TR_COST_MOST_TENSORS];
    int n;
    long section[TR_COST_SECTIONS + 1], total;
    long offsets[TR_COST_MOST_TENSORS]; /* ascending */
};

struct tr_cost_unit tr_cost_unit_of(const struct tr_cost_sizes *s, enum tr_unit_kind kind);

/* Ranks along the shards' axes, and the others with tokens of their own. */
long tr_cost_shards(const struct tr_cost_sizes *s);
long tr_cost_replicas(const struct tr_cost_sizes *s);
/* Of a rank of tp: heads of keys and values, rows of the vocabulary. */
long tr_cost_kv_heads(const struct tr_cost_sizes *s);
long tr_cost_words(const struct tr_cost_sizes *s);

/* A stage's units in order: each kind with how many there are of it. */
struct tr_cost_stage {
    struct tr_cost_unit units[TR_NUM_UNIT_KINDS];
    long count[TR_NUM_UNIT_KINDS];
    bool first, last;
};
enum { TOKEN = TR_TOKEN, BLOCKS = TR_BLOCK_OF_LAYER, FINAL = TR_FINAL, KINDS = TR_NUM_UNIT_KINDS };

struct tr_cost_stage tr_cost_stage_of(const struct tr_cost_sizes *s,
                                      const struct tr_cost_rank *rank);

/* What the optimizer adds to a step's calls, and the bytes that it keeps. */
void tr_cost_optimizer_calls(const struct tr_cost_sizes *s, const struct tr_cost_stage *stage,
                             const struct tr_cost_rank *rank, struct tr_cost *cost);
long tr_cost_optimizer_bytes(const struct tr_cost_sizes *s, const struct tr_cost_stage *stage,
                             int shard);
/* Bytes of the copy of what a rank that saves its shard saves, as tr_ckpt_snapshot_bytes. */
long tr_cost_snapshot_bytes(const struct tr_cost_sizes *s, const struct tr_cost_stage *stage,
                            const struct tr_cost_rank *rank);

/* Adds calls of `bytes` each. */
static inline void tr_cost_count(struct tr_cost *cost, enum tr_partners group,
                                 enum tr_traffic_kind call, long calls, long bytes)
{
    if (calls <= 0) return;
    cost->traffic[group][call].calls += (uint64_t)calls;
    cost->traffic[group][call].bytes += (uint64_t)calls * (uint64_t)bytes;
}

#endif
