/* The inside of the cost model: what it knows of an algorithm before it is asked for a size. */
#ifndef TT_ALGORITHMS_MODEL_H
#define TT_ALGORITHMS_MODEL_H

#include "algorithms/algorithms.h"
#include "algorithms/costs.h"
#include "algorithms/hierarchy.h"

/* An algorithm that is not composed, on one group of ranks: the input of its cost. */
struct tt_model_part {
    const struct tt_algorithm *algorithm;
    struct tt_formula formula;
    int nranks, nblocks, nchannels;
    bool one_host;             /* meetings are possible */
    bool between;              /* hosts */
    bool in_groups;            /* of one host (tt_hosts_by_distance) */
    bool composed;             /* with other parts, which wait for this one */
    double share;              /* of the call's data */
    int at_once;               /* ranks of a host that do this on different shares */
    int repeats;               /* how often the whole algorithm runs it, on channels of their own */
    struct tt_traffic traffic; /* where between, or in_groups */
    int on_host;               /* ranks of the largest host that do this */
    double per_core;           /* ranks that do this, on one core; at least 1 */
    struct tt_totals totals;   /* of the ranks that do this, where counted */
    bool counted;              /* else all ranks are taken to be as busy as the busiest one */
    bool one_way;              /* no rank waits for an answer */
};

/* An algorithm as its parts, in the order in which they run. */
struct tt_model {
    struct tt_model_part parts[TT_MOST_PHASES];
    int number;
    struct tt_model_part whole; /* as one algorithm: how its messages are cut */
    size_t room;                /* bytes of a message */
};

/* The part of the cost model that depends neither on the size of the data nor on the constants.
 * The shape must be one that the algorithm does not refuse. */
struct tt_model tt_model_of(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                            const struct tt_setting *setting);
/* Predicted microseconds of a call with nbytes in all blocks together; INFINITY where it cannot
 * run. */
double tt_model_us(const struct tt_model *model, const struct tt_setting *setting, size_t nbytes);
/* The copies with which tt_model_us predicts that (struct tt_copies). */
int tt_model_copies(const struct tt_model *model, const struct tt_setting *setting, size_t nbytes);

/* An algorithm takes the place of one before it in the table, which is simpler, only where its cost
 * is below this part of the other's. */
static inline bool tt_is_clearly_cheaper(double cost, double than)
{
    return cost < 0.99 * than;
}

#endif
