/* Algorithms on ranks that are on several hosts. */
#ifndef TT_TESTS_PLACED_H
#define TT_TESTS_PLACED_H

#include "schedule/schedule.h"

enum { MOST_PLACED = 64 };

/* The hosts of a placement, a letter a rank, equal letters being one host; freed by the caller with
 * tt_hosts_destroy. NULL without memory. */
static inline struct tt_hosts *hosts_of(const char *placement)
{
    uint64_t ids[MOST_PLACED];
    struct tt_hosts *hosts = NULL;
    int n = 0;
    for (; placement[n] && n < MOST_PLACED; n++) ids[n] = (uint64_t)placement[n];
    return tt_hosts_create(ids, n, &hosts) == TT_OK ? hosts : NULL;
}

/* An algorithm on a placement. Owned by who placed it. */
struct placed {
    struct tt_hosts *hosts;
    struct tt_steps steps;
};

/* False, and nothing made, where the algorithm cannot be there. */
static inline bool place(struct placed *placed, const struct tt_algorithm *algorithm,
                         const char *placement)
{
    placed->hosts = hosts_of(placement);
    if (!placed->hosts) return false;
    placed->steps = (struct tt_steps){.algorithm = algorithm,
                                      .shape = {.collective = algorithm->collective,
                                                .nranks = placed->hosts->nranks,
                                                .hosts = placed->hosts}};
    if (!tt_refusal(algorithm, &placed->steps.shape)) return true;
    tt_hosts_destroy(placed->hosts);
    return false;
}

#endif
