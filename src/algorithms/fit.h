/* Fits the constants of the cost model to measured times, for tutti-plan tune. */
#ifndef TT_ALGORITHMS_FIT_H
#define TT_ALGORITHMS_FIT_H

#include "algorithms/algorithms.h"
#include "algorithms/costs.h"

/* One measured time. Times of one collective, number of ranks and size are a *group*: they stand
 * together, in the order of the table of algorithms. Borrows its pointers. */
struct tt_timing {
    const struct tt_algorithm *algorithm;
    int nranks;
    const struct tt_setting *setting; /* as the communicator chose; its costs do not count */
    size_t nbytes;
    double us;
};

/* How good the choice by some constants is: the time of the chosen algorithm of each group, divided
 * by that of the fastest. */
struct tt_fit_rating {
    double mean; /* geometric */
    double worst;
    int worst_at; /* index of the chosen algorithm's timing */
};

/* Times, and what the model knows of their algorithms. */
struct tt_fit;

/* Of at least one timing; copies them. TT_ERR_ARGUMENT: a time is not above 0, or the algorithm
 * cannot run. */
TT_NODISCARD tt_status tt_fit_create(const struct tt_timing *timings, int ntimings,
                                     struct tt_fit **fit);
/* NULL is allowed. */
void tt_fit_destroy(struct tt_fit *fit);

struct tt_fit_rating tt_fit_rate(const struct tt_fit *fit, const struct tt_costs *costs);

/* Searches the constants of one host, each within a factor of 20 of `from`, for those with the
 * least error: chosen algorithms near the fastest ones, ratios of predictions near those of times,
 * predictions roughly the times, and no constant far from `from` without need. Stops early at the
 * deadline, with the best so far. A constant that no time depends on keeps its value. The result
 * may choose worse than `from`: compare their ratings. */
struct tt_costs tt_fit_search(const struct tt_fit *fit, const struct tt_costs *from,
                              int64_t deadline_ns);

#endif
