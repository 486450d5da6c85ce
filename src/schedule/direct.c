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
                    uint32_t at)
{
    if (!make_own(clock, nranks)) return false;
    uint32_t *known = (*clock)->at;
    for (int i = 0; other && i < nranks; i++)
        known[i] = known[i] > other->at[i] ? known[i] : other->at[i];
    if (at > known[rank]) known[rank] = at;
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
        if (!reading->done || tt_clock_done(clock, reading->peer) < reading->done) return reading;
    }
    return NULL;
}
