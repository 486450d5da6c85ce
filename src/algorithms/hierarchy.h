/* The functions of every algorithm "X/Y"; pairs.c says which there are. */
#ifndef TT_ALGORITHMS_HIERARCHY_H
#define TT_ALGORITHMS_HIERARCHY_H

#include "schedule/schedule.h"

int tt_hierarchy_nchannels(const struct tt_algorithm *self, const struct tt_shape *shape);
int tt_hierarchy_nblocks(const struct tt_algorithm *self, const struct tt_shape *shape);
int tt_hierarchy_nscratch(const struct tt_algorithm *self, const struct tt_shape *shape, int rank);
int tt_hierarchy_nsteps(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                        int channel);
void tt_hierarchy_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                       int channel, int index, struct tt_step *step);
struct tt_formula tt_hierarchy_formula(const struct tt_algorithm *self,
                                       const struct tt_shape *shape);
const char *tt_hierarchy_refusal(const struct tt_algorithm *self, const struct tt_shape *shape);

/* What the rank with most to do does, one after the other, for the cost model. */
struct tt_phase {
    const struct tt_algorithm *algorithm;
    struct tt_shape shape; /* of its group */
    bool between;          /* hosts */
    double share;          /* of the call's data */
    int at_once;           /* ranks of a host that do this on different shares */
};
enum { TT_MOST_PHASES = 3 };
int tt_hierarchy_phases(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                        struct tt_phase phases[TT_MOST_PHASES]);

/* The index-th algorithm "X/Y" of a collective; NULL past the end. */
const struct tt_algorithm *tt_pair_at(enum tt_collective collective, int index);

#endif
