/* How many communicators this process has made from one env:// or tcp:// address.
 *
 * Each has a key of its own, so that a fast process cannot end up in its neighbours' previous one.
 * A use counts when its communicator stands, which is when it stands for the others too: after a
 * failed attempt all agree on the next. */
#ifndef TT_BOOTSTRAP_USES_H
#define TT_BOOTSTRAP_USES_H

#include <stdint.h>

#include "base/status.h"

/* Whose uses are counted. */
struct tt_user {
    const char *host;
    int port;
    int rank, nranks; /* processes, not ranks of the communicator */
};

/* The number >= 1 of this user's counter, and what it counts now. Any thread. */
TT_NODISCARD tt_status tt_uses_find(uint32_t *use, uint32_t *count, const struct tt_user *user);

/* The communicator after `count` others stands; for each of a process's ranks, counted once. use 0:
 * nothing. */
void tt_uses_done(uint32_t use, uint32_t count);

#endif
