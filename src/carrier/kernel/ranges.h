/* Memory of GPUs that peers read in place: a kernel that sends a message from it says where it
 * lies, and the receiver's kernel reads it there, across GPUs and processes.
 *
 *     owner                       board, in the host's segment          reader
 *     offers a range      ----->  offer: seq, base, handle   ----->     opens it, once
 *     knows who reads it  <-----  answer: seq, address       <-----     says where it has it
 *     a call has a row for each of its buffers: what each reader adds to an address
 *     the calls with rows
 *     have ended: takes
 *     it back             ----->  offer: seq 0               ----->     closes it
 *     may free it         <-----  answer: seq 0              <-----     has closed it
 *
 * A range is an allocation of the rank's GPU: one that is registered (tuttiCommRegister), or one of
 * tuttiDeviceMemAlloc that a call uses. Ranks open memory when they issue a call; a thread of the
 * process closes it. Who has not answered gets messages in slots. Where nothing else is said: the
 * issuing thread, which never waits for the GPU here. */
#ifndef TT_CARRIER_KERNEL_RANGES_H
#define TT_CARRIER_KERNEL_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct tt_comm_core;
struct tt_context;
struct tt_pending_call;
struct tt_ranges;

/* NULL: off (TUTTI_DEVICE_IN_PLACE), or the rank is alone on its host. Owned by the rank's part. */
TT_NODISCARD tt_status tt_ranges_create(const struct tt_comm_core *core, struct tt_ranges **ranges);
/* Before the rank's part leaves its communicator: takes all offers back, and waits a while until
 * the other processes have closed the memory. has_ended: no kernel of this rank uses memory of
 * peers. */
void tt_ranges_leave(const struct tt_comm_core *core, bool has_ended);
/* No kernel uses the memory any more. NULL is allowed. */
void tt_ranges_destroy(struct tt_ranges *ranges, struct tt_context *context);

/* Offers the allocation that holds this memory. *handle: NULL: it is not offered. */
void tt_ranges_register(struct tt_comm_core *core, void *memory, size_t nbytes, void **handle);
/* As struct tt_carried has it: waits until no call under way sends from the memory and no other
 * process has it open, but for dead and aborted ranks, and memory of tuttiDeviceMemAlloc, which
 * goes back to the driver later. Any thread. TIMEOUT: one still has it after 5 s, or
 * TUTTI_TIMEOUT_MS. */
TT_NODISCARD tt_status tt_ranges_deregister(struct tt_comm_core *core, void *handle, bool waits);

/* Before a call is launched: opens what peers offer, and offers what the call uses of
 * tuttiDeviceMemAlloc. ARGUMENT: memory of the call was freed while it was registered. */
TT_NODISCARD tt_status tt_ranges_prepare(const struct tt_pending_call *call);
/* *row: what peers add to addresses of memory[0..nbytes), [nranks], for the call with this number;
 * NULL: nobody has it open. SYSTEM: out of pinned memory. */
TT_NODISCARD tt_status tt_ranges_row(const struct tt_comm_core *core, const void *memory,
                                     size_t nbytes, uint64_t number, const uint64_t **row);
/* As the row has it for one peer; or TT_NOT_OPENED. */
uint64_t tt_ranges_opened(const struct tt_comm_core *core, const void *memory, size_t nbytes,
                          uint64_t number, int peer);

#endif
