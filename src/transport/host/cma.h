/* Cross-memory attach: reading another process's memory with one system call, where that is
 * permitted. */
#ifndef TT_TRANSPORT_CMA_H
#define TT_TRANSPORT_CMA_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* to[0..nbytes) = the memory at `address` of process pid. TT_ERR_SYSTEM says what was refused. */
TT_NODISCARD tt_status tt_cma_read(int pid, uint64_t address, void *to, size_t nbytes);
/* Whether pid's memory may be read, tried with one word; 0, or the errno. Logs nothing. */
int tt_cma_probe(int pid, uint64_t address, uint64_t expected);

#endif
