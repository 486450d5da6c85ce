/* How many communicators this process has made from one env:// or tcp:// address.
 *
 * Each has a key of its own, so that a fast process cannot end up in its neighbours' previous one.
 * A use counts once the first round of its ranks is complete: on rank 0 when it has heard all
 * ranks, on the others when they have heard rank 0. So no process is ahead of rank 0's. One that
 * is behind has failed at its own count, which lets it take the count of rank 0. */
#ifndef TT_BOOTSTRAP_USES_H
#define TT_BOOTSTRAP_USES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Whose uses are counted. */
struct tt_user {
    const char *host;
    int port;
    int rank, nranks; /* processes, not ranks of the communicator */
};

/* What one user has made. */
struct tt_use {
    uint32_t number; /* >= 1, of the user's counter */
    uint32_t count;
    bool is_tried; /* an attempt at the next one has begun, and does not count */
};

/* What the user has made by now. Any thread. */
TT_NODISCARD tt_status tt_uses_find(struct tt_use *use, const struct tt_user *user);

/* An attempt at the communicator after `count` others begins, and counts; for each of a process's
 * ranks, counted once. Number 0: nothing. */
void tt_uses_try(uint32_t number, uint32_t count);
void tt_uses_done(uint32_t number, uint32_t count);

#endif
