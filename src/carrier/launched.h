/* The wait of a rank that leaves for replays of CUDA graphs that were launched before. The host
 * does not know when a graph is launched. It learns when one is gone: when the user has destroyed
 * it and its launches have ended. A graph that is there may be launched, or only kept. */
#ifndef TT_CARRIER_LAUNCHED_H
#define TT_CARRIER_LAUNCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/* How long a graph that is there is waited for while no replay begins, runs or ends. */
enum { TT_LAUNCHED_MS = 2000 };

/* Begins zeroed. */
struct tt_launched {
    int64_t deadline_ns;
    uint64_t moved;
};

/* moved: a number that changes when a replay begins or ends; runs: one runs. False: none is
 * expected to begin any more. */
static inline bool tt_launched_may_run(struct tt_launched *wait, uint64_t moved, bool runs)
{
    if (!wait->deadline_ns || runs || moved != wait->moved)
        wait->deadline_ns = tt_deadline_ns(TT_LAUNCHED_MS);
    wait->moved = moved;
    return !tt_expired(wait->deadline_ns);
}

#endif
