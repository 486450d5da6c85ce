/* The root: the thread that ranks come to, and the address in the unique id. */
#ifndef TT_BOOTSTRAP_ROOT_H
#define TT_BOOTSTRAP_ROOT_H

#include <stdint.h>

#include "bootstrap/bootstrap.h"
#include "net/socket.h"

/* id with this key and address, for use by its maker and its finders. */
void tt_id_fill(struct tt_unique_id *id, const struct tt_address *address);
/* A fresh key and this host's address, at which *listener (the caller's) listens; served by nobody
 * yet. */
TT_NODISCARD tt_status tt_id_make(struct tt_unique_id *id, int *listener);
/* The address in an id; TT_ERR_ARGUMENT when the id is none. */
TT_NODISCARD tt_status tt_id_address(struct tt_address *address, const struct tt_unique_id *id);

/* Starts the thread that serves `listener` (taken over, also on failure) for the holders of `id`
 * until all ranks have come, one of them fails, or the deadline (the ranks' own rule once they
 * come). It answers every rank, frees itself, and removes the file `path` (may be NULL; copied)
 * before it answers, if that still holds this id. */
TT_NODISCARD tt_status tt_root_start(int listener, const struct tt_unique_id *id, const char *path,
                                     int64_t deadline_ns);

/* Whether a root that knows the id's key serves its address. Logs nothing. */
bool tt_root_alive(const struct tt_unique_id *id, int64_t deadline_ns);

#endif
