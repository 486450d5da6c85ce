/* The functions of every algorithm "X/Y"; pairs.c says which there are. */
#ifndef TT_ALGORITHMS_HIERARCHY_H
#define TT_ALGORITHMS_HIERARCHY_H

#include "schedule/schedule.h"

int tt_hierarchy_nchannels(const struct tt_shape *shape);
int tt_hierarchy_nblocks(const struct tt_shape *shape);
int tt_hierarchy_nscratch(const struct tt_shape *shape, int rank);
int tt_hierarchy_nsteps(const struct tt_shape *shape, int rank, int channel);
void tt_hierarchy_step(const struct tt_shape *shape, int rank, int channel, int index,
                       struct tt_step *step);
struct tt_formula tt_hierarchy_formula(const struct tt_shape *shape);
const char *tt_hierarchy_refusal(const struct tt_shape *shape);

/* The index-th algorithm "X/Y" of a collective; NULL past the end. */
const struct tt_algorithm *tt_pair_at(enum tt_collective collective, int index);

#endif
