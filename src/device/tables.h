/* The tables that a program needs on a device, made on the host. */
#ifndef TT_DEVICE_TABLES_H
#define TT_DEVICE_TABLES_H

#include "base/status.h"
#include "device/call.h"

/* Why the kernel cannot run the program (too many channels, peers of a step, ranks of a meeting or
 * ends of a channel; a meeting of some of the ranks only, or on a channel with links);
 * NULL: it can. Static storage. */
const char *tt_device_refusal(const struct tt_program *program);

/* The program as kernels of a communicator with nchannels links between two ranks read it: *memory,
 * freed by free(), is to be copied to the device; the caller sets device->memory to where it lies
 * there. TT_ERR_SYSTEM without memory; TT_ERR_USAGE where tt_device_refusal() refuses. */
TT_NODISCARD tt_status tt_device_tables_create(const struct tt_program *program, uint32_t nchannels,
                                               struct tt_device_program *device, void **memory);

#endif
