/* Queues the copies of portions, in a thread of its own, the copier. The driver may hold up a call,
 * for example while another thread waits in cuCtxSynchronize. A thread that runs calls and watches
 * their deadlines must not wait for the driver, because the GPU may wait for the end of such a
 * call. So that thread says which copies it wants, and looks whether the copier has made them.
 *
 * Lock order: none is taken inside the copier's lock. */
#ifndef TT_CARRIER_STAGED_COPIES_H
#define TT_CARRIER_STAGED_COPIES_H

#include "carrier/staged/staged.h"

/* One of a communicator: a thread, which begins here and ends with the destruction. SYSTEM: no
 * thread can be started. */
TT_NODISCARD tt_status tt_copier_create(struct tt_context *context, struct tt_copier **copier);
/* Waits for the call of the driver that the thread is in. NULL is allowed. */
void tt_copier_destroy(struct tt_copier *copier);

/* By who runs the work: so many portions are finished, which are copied back; then the next ones,
 * which take their places, are copied in. */
void tt_copies_want(struct tt_staged_work *work, uint64_t finished);
/* TT_OK, or what the driver said when it refused copies: none are queued after that. */
TT_NODISCARD tt_status tt_copies_check(const struct tt_staged_work *work);
/* Whether all copies that are wanted have been made, and the thread has let go of the work. */
bool tt_copies_are_made(const struct tt_staged_work *work);
/* After a failure: no more copies are queued, and the thread uses the work no longer. Whether the
 * GPU has made all that were queued: false also while the thread is in the driver. */
bool tt_copies_stop(struct tt_staged_work *work);

/* A device of the network has written to the memory of the GPU for the work: TT_OK when that is
 * seen there; TT_IN_PROGRESS; or an error of the driver. */
TT_NODISCARD tt_status tt_copies_flush(struct tt_staged_work *work);

/* Asks the driver whether the event's last record has happened: TT_IN_PROGRESS until the driver
 * has answered, and then once the answer. By the issuing thread. */
TT_NODISCARD tt_status tt_copier_query(struct tt_copier *copier, void *event);

#endif
