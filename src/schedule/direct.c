/* Keeps the clocks of ranks, to prove that memory sent by reference is not written too early. */
#include "schedule/direct.h"

#include <stdlib.h>
#include <string.h>

/* The clock becomes this rank's alone. */
static bool make_own(struct tt_clock **clock, int nranks)
{
    if (*clock && (*clock)->nowners == 1) return true;
    const size_t nbytes = (size_t)nranks * sizeof(*clock)->at[0];
    struct tt_clock *own = malloc(sizeof *own + nbytes);
    if (!own) return false;
    if (*clock)
        memcpy(own->at, (*clock)->at, nbytes);
    else
        memset(own->at, 0, nbytes);
    own->nowners = 1;
    tt_clock_release(*clock);
    *clock = own;
    return true;
}

bool tt_clock_learn(struct tt_clock **clock, const struct tt_clock *other, int nranks, int rank,
                    int step)
{
    if (!make_own(clock, nranks)) return false;
    uint32_t *at = (*clock)->at;
    for (int i = 0; other && i < nranks; i++) at[i] = at[i] > other->at[i] ? at[i] : other->at[i];
    const uint32_t done = (uint32_t)step + 1;
    if (done > at[rank]) at[rank] = done;
    return true;
}

struct tt_clock *tt_clock_share(struct tt_clock *clock)
{
    if (clock) clock->nowners++;
    return clock;
}

void tt_clock_release(struct tt_clock *clock)
{
    if (clock && --clock->nowners == 0) free(clock);
}

const struct tt_reading *tt_reference_pending(const struct tt_reference *reference,
                                              const struct tt_clock *clock)
{
    for (int i = 0; i < reference->npeers; i++) {
        const struct tt_reading *reading = &reference->readings[i];
        if (!reading->done || !clock || clock->at[reading->peer] < reading->done) return reading;
    }
    return NULL;
}
