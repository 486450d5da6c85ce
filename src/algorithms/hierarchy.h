/* Composed algorithms "X/Y": their functions, and the list of those that exist. */
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

/* One phase of the rank with most to do, for the cost model. */
struct tt_phase {
    const struct tt_algorithm *algorithm;
    struct tt_shape shape; /* of its group */
    bool between;          /* the phase runs between hosts */
    double share;          /* of the call's data, 0 to 1 */
    int at_once;           /* ranks of a host that run this phase on different shares */
};
enum { TT_MOST_PHASES = 3 };
/* Fills the phases in the order in which they run; returns their number. */
int tt_hierarchy_phases(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                        struct tt_phase phases[TT_MOST_PHASES]);

/* Whether a phase leaves its result for the next phase in OUTPUT, because every rank's OUTPUT has
 * room for all of it; else in SCRATCH. */
bool tt_hierarchy_keeps_in_output(enum tt_collective collective);

/* compose.c: the index-th "X/Y" of a collective, and the one of that name; NULL past the end, for
 * an unknown name, and without memory. Any thread. An algorithm is made at its first use and lives
 * as long as the process. */
const struct tt_algorithm *tt_composed_at(enum tt_collective collective, int index);
const struct tt_algorithm *tt_composed_find(enum tt_collective collective, const char *name);

#endif
