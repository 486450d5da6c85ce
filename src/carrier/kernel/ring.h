/* Pinned memory from which calls on a GPU take what their kernels read beside the program: a count
 * for each rank, the sends and receives of a group. A ring: the calls of a rank end in the order in
 * which they were issued, and memory of one that has ended is taken again. No call of the driver
 * but where the ring grows, which waits for no kernel. */
#ifndef TT_CARRIER_KERNEL_RING_H
#define TT_CARRIER_KERNEL_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "device/call.h"
#include "driver/context.h"

/* What was allocated: the ring, smaller ones before it, tables that are kept. */
struct tt_ring_memory {
    void *memory;
    struct tt_ring_memory *next;
};

enum { TT_TABLE_CLASSES = 40 };

/* Tables that are kept, in pieces of pinned memory. */
struct tt_kept_tables {
    char *memory; /* the piece of which the next ones are taken */
    size_t left;  /* its bytes that are not taken yet: the first ones */
    struct tt_table_header *unused[TT_TABLE_CLASSES]; /* that were given back: by size */
};

/* Zeroed: empty. Owner: the issuing thread. */
struct tt_device_ring {
    char *memory;  /* NULL: none yet */
    size_t nbytes; /* a power of two */
    uint64_t
        begin;    /* of the oldest table, and end of the newest: bytes taken since the memory was */
    uint64_t end; /* new; the place in the memory is the rest modulo nbytes */
    struct tt_kept_tables kept;
    struct tt_ring_memory *all;
};

/* Memory for the call with this number (struct tt_kernel_work), 16-byte aligned, which it has until
 * the report says that the call has ended. Numbers never fall; 0: a captured call's, as
 * tt_device_ring_keep. SYSTEM: out of memory. */
TT_NODISCARD tt_status tt_device_ring_take(struct tt_device_ring *ring, struct tt_context *context,
                                           const struct tt_device_report *report, size_t nbytes,
                                           uint64_t number, void **table);
/* Of a call with a number: keeps the table also after that, until 0 is stored, with release, in the
 * word that this returns. */
_Atomic uint64_t *tt_device_ring_hold(void *table);
/* Memory for a call that is captured, until tt_device_ring_put, or the ring is freed. Errors as
 * tt_device_ring_take. */
TT_NODISCARD tt_status tt_device_ring_keep(struct tt_device_ring *ring, struct tt_context *context,
                                           size_t nbytes, void **table);
/* Gives a kept table back, for calls that are captured later: to free pinned memory, the driver
 * would wait for all kernels. table may be NULL. */
void tt_device_ring_put(struct tt_device_ring *ring, void *table);
/* No kernel uses it any more. */
void tt_device_ring_free(struct tt_device_ring *ring, struct tt_context *context);

#endif
