/* The interface between the fabric and its rooms. A room is a folder that carries links in one way:
 * host (shared memory), tcp, rdma.
 *
 * A room includes link.h, window.h, this file, its own files, and what lies below transport; never
 * fabric.h and never another room. What it has to report goes up through struct tt_room_events. */
#ifndef TT_TRANSPORT_ROOM_H
#define TT_TRANSPORT_ROOM_H

#include <stdatomic.h>
#include <stdbool.h>
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

/* ---- Transports between hosts --------------------------------------------------------------- */

struct tt_tcp_room;
struct tt_tcp_end;

/* What a room is opened with. */
struct tt_room_config {
    size_t nslots, slot_bytes;
    bool encrypt;                /* what goes between hosts must be encrypted */
    struct tt_tcp_room *sockets; /* of the connections between hosts: the room of TCP shares them */
};

/* What one rank offers another for being connected. Plain data of the room's own; travels over the
 * authenticated connection of the two. */
struct tt_room_offer {
    uint32_t nbytes; /* used of `bytes` */
    uint8_t bytes[1020];
};

/* A transport between hosts: the table that a folder hands to the fabric (transports.c lists them).
 * `self` is one rank's use of the transport, `end` its use with one peer; both are the room's own.
 * One thread at a time per communicator. */
struct tt_transport {
    const char *name; /* in TUTTI_TRANSPORT */
    int cost;         /* of several that two ranks have, the one with the least cost is taken */
    bool by_kernel;   /* the kernel moves the data, and needs a core for that */
    bool is_certain;  /* connecting needs no offers and cannot fail */

    /* Opens what this host has. TT_OK with *self NULL: there is nothing to use, said once at INFO;
     * an error where a setting asks for what does not exist. */
    tt_status (*open)(void **self, const struct tt_room_config *config);
    /* The rank it works for (borrowed), before the first offer. */
    void (*start)(void *self, const struct tt_room_context *context);
    /* Enters into an epoll instance, with this mark, what becomes readable when a sleep must end
     * that arm() allowed; clear() makes it unreadable again. */
    tt_status (*watch)(void *self, int epoll, void *mark);
    void (*clear)(void *self);
    void (*close)(void *self); /* after its ends */

    /* Makes an end and its offer. An error, said once: another transport is tried. */
    tt_status (*offer)(void *self, int peer, struct tt_tcp_end *connection, void **end,
                       struct tt_room_offer *mine);
    /* With the peer's offer, which is checked. The links may be used once both sides have said that
     * this succeeded. */
    tt_status (*connect)(void *end, const struct tt_room_offer *theirs);
    struct tt_link *(*tx)(void *end, int channel);
    struct tt_link *(*rx)(void *end, int channel);
    /* Bounded work on what has come or is to go; what goes wrong fails the communicator. */
    tt_status (*progress)(void *end);
    /* Before a sleep: asks for a wake (watch). False: there is something to do already. */
    bool (*arm)(void *end);
    /* Whether all links of the end are flushed (link.h). */
    bool (*flushed)(void *end);
    /* After a failure: nothing is read from the callers' memory any more. */
    void (*give_back)(void *end);
    /* What fails from now on is no failure: the peer has said goodbye, or this rank is about to. */
    void (*quiet)(void *end);
    /* Whether nothing is on its way any more that destroying the end may lose. */
    bool (*sent)(void *end);
    /* The peer is gone. The links still give what has come; then, and for whoever wants to send,
     * they call events->missed. */
    void (*lost)(void *end);
    void (*destroy)(void *end); /* NULL is allowed */
    size_t (*bytes)(const void *end);
    /* "tcp eth0, encrypted", "rdma mlx5_0/1, not encrypted". */
    void (*describe)(const void *end, char *text, size_t size);
};

enum { TT_MAX_TRANSPORTS = 8 };
extern const struct tt_transport *const tt_transports[];
extern const int tt_ntransports;
/* The index of the one with this name, -1: none. */
int tt_transport_index(const char *name, size_t length);
/* One bit for each that the list names, separated by commas. */
uint32_t tt_transports_named(const char *list);

/* ---- Helpers -------------------------------------------------------------------------------- */

/* events->fail with a text like printf's. */
TT_NODISCARD tt_status tt_room_fail(const struct tt_room_context *context, int code,
                                    const char *format, ...) __attribute__((format(printf, 3, 4)));

static inline void tt_room_name(const struct tt_room_context *context, int rank, char *text,
                                size_t size)
{
    context->events->name(context->owner, rank, text, size);
}

#endif
