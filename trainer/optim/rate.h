/* The learning rate over a run: the schedules of rate_table.h. Pure: every rank finds the same. */
#ifndef TR_RATE_H
#define TR_RATE_H

#include "../config.h"

/* Where a run is when it takes a step. */
struct tr_rate_at {
    int64_t step;           /* from 0 */
    int64_t total;          /* steps of the run; 0: unlimited */
    double elapsed_seconds; /* compared with the budget --seconds */
};

enum tr_rate_kind {
#define RATE(NAME, ...) TR_RATE_##NAME,
#include "rate_table.h"
    TR_NUM_RATES
};

/* The learning rate of a step by the schedule of the options. */
double tr_rate_of(const struct tr_config *config, const struct tr_rate_at *at);

/* The beta1 of a step: --beta1, which one-cycle moves against the learning rate where the optimizer
 * has one (AdamW, LAMB). */
double tr_rate_beta1(const struct tr_config *config, const struct tr_rate_at *at);

/* How far a run is when `step` steps are done, from the end of the warm-up to the last step, 0 to
 * 1: by steps, or by the clock when the run has a time budget and that is further along. */
double tr_rate_progress(const struct tr_config *config, int64_t step, const struct tr_rate_at *at);

/* Options of a schedule that do not fit each other, or the optimizer. */
TR_NODISCARD tr_status tr_rate_check(const struct tr_config *config);

/* A line for each thing that the user may not expect of a run of `total` steps (0: unlimited): a
 * warm-up that is as long as the run, a clock that the schedule does not follow. */
void tr_rate_print_notes(const struct tr_config *config, int64_t total, FILE *out);

/* The schedules, each the learning rate of a step. */
#define RATE(NAME, name, ...)                                                                      \
    double tr_rate_##name(const struct tr_config *config, const struct tr_rate_at *at);
#include "rate_table.h"

#endif
