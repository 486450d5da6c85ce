/* A rank that aborts: while the other one waits for it, when that has not read yet what the rank
 * sent, or after a thread of the rank was cancelled in a call. */
#ifndef TT_TESTS_INTEGRATION_ABORTING_H
#define TT_TESTS_INTEGRATION_ABORTING_H

#include "tutti.h"

/* Of two ranks: rank 1 aborts a communicator that is split from this one.
 *
 * - "connected", "unconnected": its stream waits in a function, in front of a receive; rank 0 waits
 *   for rank 1, with or without an earlier call.
 * - "unread": its send of 2 MiB has ended (so there must be slots), and rank 0 has not read yet.
 * - "unmapped": rank 0 is to read a message in its memory, which is no more.
 * - "call_cancelled", "late_call_cancelled": a thread of rank 1 is cancelled in a call that passes
 * a descriptor, or takes one.
 * - "watchdog_cancelled": a thread of rank 1 that asks for errors all the time is cancelled.
 *
 * Returns NULL, or what was wrong. */
const char *aborting(tuttiComm_t comm, const char *how);

#endif
