/* Device memory for users: kernels of all GPUs of this process that reach its GPU can use it, and
 * other processes can open it, as memory of tt_context_allocate. Needs no CUDA header. Any thread.
 * Errors as driver/context.h. */
#ifndef TT_DRIVER_DEVICE_MEMORY_H
#define TT_DRIVER_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Not filled; whole units of TT_CONTEXT_SHARED bytes, so that nobody else's memory is shared with
 * it. ARGUMENT: 0 bytes; no such GPU. SYSTEM: out of memory; the text says how much is free. */
TT_NODISCARD tt_status tt_driver_allocate(int gpu, size_t nbytes, void **memory);
/* Whether create has given exactly this address. */
bool tt_driver_find_memory(const void *memory, size_t *nbytes);
/* How often memory was given or given back so far. */
uint64_t tt_driver_memory_changes(void);
/* Gives it back to the driver at once: waits until no kernel of the context runs. What is lent is
 * given back later. ARGUMENT: not given by create, or freed already. */
TT_NODISCARD tt_status tt_driver_free(void *memory);

/* Memory that other processes may open. */
struct tt_lent_memory;
/* Lends the memory once more; NULL: create has not given exactly this address. */
struct tt_lent_memory *tt_driver_lend(const void *memory);
/* Whether tt_driver_free was called for it. */
bool tt_driver_is_freed(const struct tt_lent_memory *lent);
/* Nobody has the memory open of those for whom it was lent once. The last one of freed memory
 * leaves it to tt_context_let_go. Does not call the driver, unless nobody uses the context any
 * more. NULL is allowed. */
void tt_driver_take_back(struct tt_lent_memory *lent);

#endif
