/* The learning rate over a run. */
#ifndef TR_RATE_H
#define TR_RATE_H

#include "../config.h"

/* The learning rate of step `step` (from 0): rises over the warmup, then follows half a cosine from
 * lr down to lr * min_lr as `progress` goes from 0 to 1. */
double tr_rate_of(const struct tr_config *config, int64_t step, double progress);

/* How far a run is after warmup, 0 to 1: by steps, or by the clock when it has a time budget and
 * that is further along. total 0: unlimited. */
double tr_rate_progress(const struct tr_config *config, int64_t step, int64_t total,
                        double elapsed_seconds);

#endif
