/* Batches of calls: each stream's calls of a group, begun and run together. */
#ifndef TT_COMMUNICATOR_BATCHES_H
#define TT_COMMUNICATOR_BATCHES_H

#include "communicator/communicator.h"

struct tt_batch;

/* batches[i] = the batch of the i-th call, which others may share. Nothing can fail after that:
 * once the calls have their turns, each stream gets its batch. */
TT_NODISCARD tt_status tt_batches_make(const struct tt_pending_call *calls, int ncalls,
                                       struct tt_batch **batches);
/* Hands the streams their batches, leaves the calls, which are entered, then runs those without a
 * stream here. Turns are taken in the order of the calls, whatever their streams. */
TT_NODISCARD tt_status tt_batches_launch(struct tt_pending_call *calls, int ncalls,
                                         struct tt_batch **batches);

#endif
