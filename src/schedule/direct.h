/* Messages sent by reference: what happens before what, and which memory is still to be read.
 *
 * A rank's clock says for every rank how many of its steps have surely been done. It travels with
 * every message, so a write to referenced memory is safe in every execution when the writer's clock
 * holds the step in which the receiver took the message. How deep links are plays no part.
 *
 * A message says that the steps before its own are done. It says that of its own step, too, but not
 * where that is a copy with a place to store it: the executor sends first, then reads the source
 * again and stores it. A fold has read its sources when it sends; its result may be stored later,
 * so only a message of a later step says that the place of the result is free. */
#ifndef TT_SCHEDULE_DIRECT_H
#define TT_SCHEDULE_DIRECT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

/* Shared by all ranks that saw the same; a rank that sees more copies it. */
struct tt_clock {
    int32_t nowners;
    uint32_t at[]; /* of each rank: twice the steps that it has done, and 1 more if it has begun the
                    * next one */
};

/* One step's message by reference, on its way to one or more receivers. In verify's arena. */
struct tt_reference {
    int32_t step, npeers;
    struct tt_reading {
        int32_t peer;
        uint32_t done; /* steps that the reader has done with the one that reads; 0: not read yet */
    } readings[];
};

/* The references to one cell of memory. */
struct tt_references {
    const struct tt_reference *reference;
    int32_t at; /* the cell's place in the message */
    struct tt_references *next;
};

/* From now on *clock knows what `other` knows, and how far `rank` is, as in `at`. NULL stands for a
 * clock that knows of no one. *clock may move. False without memory. */
bool tt_clock_learn(struct tt_clock **clock, const struct tt_clock *other, int nranks, int rank,
                    uint32_t at);
/* Steps that the rank has done. clock may be NULL. */
static inline uint32_t tt_clock_done(const struct tt_clock *clock, int rank)
{
    return clock ? clock->at[rank] / 2 : 0;
}
struct tt_clock *tt_clock_share(struct tt_clock *clock);
void tt_clock_release(struct tt_clock *clock);

/* A reading that need not have happened, by what the writer's clock knows; NULL when all have. */
const struct tt_reading *tt_reference_pending(const struct tt_reference *reference,
                                              const struct tt_clock *clock);

#endif
