/* The root: the thread that ranks come to, and the address in the unique id. */
#ifndef TT_BOOTSTRAP_ROOT_H
#define TT_BOOTSTRAP_ROOT_H

#include <stdbool.h>
#include <stdint.h>

#include "bootstrap/bootstrap.h"
#include "net/handshake.h"
#include "net/socket.h"

struct tt_report;

/* id with this key and address, for use by its maker and its finders. */
void tt_id_fill(struct tt_unique_id *id, const struct tt_address *address);
/* The communicator of this sequence, with its key, by the id's base. */
void tt_id_set_sequence(struct tt_unique_id *id, uint64_t sequence);
/* A fresh key and this host's address, at which *listener (the caller's) listens; served by nobody
 * yet. */
TT_NODISCARD tt_status tt_id_make(struct tt_unique_id *id, int *listener);
/* The address in an id; false: the bytes are no id, or one without an address. */
bool tt_id_has_address(const struct tt_unique_id *id, struct tt_address *address);
/* The address in an id; TT_ERR_ARGUMENT when the id is none, TT_ERR_USAGE when another version made
 * it. */
TT_NODISCARD tt_status tt_id_address(struct tt_address *address, const struct tt_unique_id *id);

/* Starts the thread that serves `listener` (taken over, also on failure) for the holders of `id`
 * until all ranks have come, one of them fails, or the deadline (the ranks' own rule once they
 * come). It answers every rank, those of this process last, and after a failure also ranks that
 * come a little later, for which a process that ends waits. It frees itself. It removes the file
 * `path` (may be NULL; copied) before the answers, after a failure at its end, if that still holds
 * this id. */
TT_NODISCARD tt_status tt_root_start(int listener, const struct tt_unique_id *id, const char *path,
                                     int64_t deadline_ns);

/* tt_root_start for an id whose ranks may come much later, or never: one thread of this process
 * waits for the first rank of all such ids. */
TT_NODISCARD tt_status tt_root_start_idle(int listener, const struct tt_unique_id *id,
                                          int64_t deadline_ns);

/* The rank of the report, of this process, cannot join, and may not be able to connect to the root:
 * if the root is this process's, it fails with this report within a second or so, and answers that
 * to all ranks. False: the root is another process's, or has ended. Any thread. */
bool tt_root_tell(const struct tt_unique_id *id, const struct tt_report *report);
/* The rank joins, perhaps after a failure: what it told a root to which no rank has come yet holds
 * no longer. A rank that is alone waits for no other one, whatever the root was told. Any thread.
 */
void tt_root_withdraw(const struct tt_unique_id *id, int rank, int nranks);
/* Why the id's root, of this process, has failed: for ranks that it had no descriptors to answer.
 * TT_OK: it has not, or that is no longer known. */
tt_status tt_root_cause(const struct tt_unique_id *id, char text[TT_WIRE_TEXT]);

/* Before this process listens at one of nports ports again, from that of address on: returns when
 * its roots there that have failed listen no more. */
void tt_root_make_way(const struct tt_address *address, int nports);

enum tt_root_health {
    TT_ROOT_GONE,   /* nobody who knows the id's key serves its address */
    TT_ROOT_SERVES, /* it waits for ranks */
    TT_ROOT_FAILED, /* it answers a failure */
};

/* How the root of the id is. Logs nothing. */
enum tt_root_health tt_root_probe(const struct tt_unique_id *id, int64_t deadline_ns);

#endif
