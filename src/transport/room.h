/* The interface between the fabric and its rooms. A room is a folder that carries links in one way:
 * host (shared memory), tcp, rdma.
 *
 * A room includes link.h, window.h, this file, its own files, and what lies below transport; never
 * fabric.h and never another room. What it has to report goes up through struct tt_room_events. */
#ifndef TT_TRANSPORT_ROOM_H
#define TT_TRANSPORT_ROOM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "transport/link.h"

/* What a room reports. Called by the thread that runs the rank's work. */
struct tt_room_events {
    /* Records the communicator's first failure; later ones change nothing. Returns the status of
     * the first, whose text becomes this thread's last error. */
    tt_status (*fail)(void *owner, int code, const char *text);
    /* This rank needs something of a peer that is gone: fails with what became of the peer. */
    tt_status (*missed)(void *owner, int peer);
    /* "rank 3 (host h, pid 77)". */
    void (*name)(const void *owner, int rank, char *text, size_t size);
};

/* What a room knows of the rank that it works for. Owned by the fabric; immutable, but for the
 * counters. */
struct tt_room_context {
    const struct tt_room_events *events;
    void *owner; /* of the room: for the events only */
    int rank, nranks;
    _Atomic uint64_t *nmessages, *nbytes_copied, *nbytes_direct; /* one writer at a time */
};

/* Adds to a counter that only the caller writes just now. */
static inline void tt_count_more(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

/* events->fail with a text like printf's. */
TT_NODISCARD tt_status tt_room_fail(const struct tt_room_context *context, int code,
                                    const char *format, ...) __attribute__((format(printf, 3, 4)));

static inline void tt_room_name(const struct tt_room_context *context, int rank, char *text,
                                size_t size)
{
    context->events->name(context->owner, rank, text, size);
}

#endif
