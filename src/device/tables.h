/* The tables that a program needs on a device, made on the host. */
#ifndef TT_DEVICE_TABLES_H
#define TT_DEVICE_TABLES_H

#include "base/status.h"
#include "device/call.h"

/* Why the kernel cannot run the program (too many peers of a step, ranks of a meeting or ends of a
 * channel; a meeting of some of the ranks only, or on a channel with links);
 * NULL: it can. Static storage. */
const char *tt_device_refusal(const struct tt_program *program);

/* The tables of a program in a communicator with nchannels links between two ranks. Freed by
 * free(). TT_ERR_SYSTEM without memory; TT_ERR_USAGE where tt_device_refusal() refuses. */
TT_NODISCARD tt_status tt_device_tables_create(const struct tt_program *program, uint32_t nchannels,
                                               struct tt_device_tables **tables);

#endif
