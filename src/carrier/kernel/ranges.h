/* Memory of GPUs that peers read in place: a kernel that sends a message from it says where it
 * lies, and the receiver's kernel reads it there, across GPUs and processes.
 *
 *     owner                       board, in the host's segment          reader
 *     offers a range      ----->  offer: seq, base, handle   ----->     opens it, once
 *     makes a row of it   <-----  answer: seq, address       <-----     says where it has it
 *     a call has the rows of its buffers: what each reader adds to an address
 *
 * A range is an allocation of the rank's GPU: one that is registered (tuttiCommRegister), or one of
 * tuttiDeviceMemAlloc that a call uses. Ranks look at the board when they issue a call. Who has not
 * answered gets messages in slots. All functions: the issuing thread. */
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
/* No kernel uses the memory any more. NULL is allowed. */
void tt_ranges_destroy(struct tt_ranges *ranges, struct tt_context *context);

/* Offers the allocation that holds this memory. *handle: NULL: the driver does not share it. */
void tt_ranges_register(struct tt_comm_core *core, void *memory, size_t nbytes, void **handle);
void tt_ranges_deregister(struct tt_comm_core *core, void *handle);

/* Before a call is launched: opens what peers offer, and offers what the call uses of
 * tuttiDeviceMemAlloc. ARGUMENT: memory of the call was freed while it was registered. */
TT_NODISCARD tt_status tt_ranges_prepare(const struct tt_pending_call *call);
/* What peers add to addresses of memory[0..nbytes), [nranks] in device memory; NULL: nobody has it
 * open. */
const uint64_t *tt_ranges_row(const struct tt_comm_core *core, const void *memory, size_t nbytes);
/* As the row has it for one peer; or TT_NOT_OPENED. */
uint64_t tt_ranges_opened(const struct tt_comm_core *core, const void *memory, size_t nbytes,
                          int peer);

#endif
