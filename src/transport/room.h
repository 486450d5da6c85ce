/* The interface between the fabric and its rooms. A room is a folder that carries links in one
 * manner: host (shared memory), tcp, rdma. The fourth room, device (memory of GPUs), has an
 * interface of its own (device/device_room.h): kernels move what its links carry.
 *
 * A room includes link.h, window.h, this file, its own files, and what lies below transport; never
 * fabric.h and never another room. A room reports upward through struct tt_room_events. */
#ifndef TT_TRANSPORT_ROOM_H
#define TT_TRANSPORT_ROOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "transport/link.h"

/* Reports of a room. Called by the thread that runs the rank's work. */
struct tt_room_events {
    /* Records the communicator's first failure; later ones change nothing. Returns the status of
     * the first, whose text becomes this thread's last error. */
    tt_status (*fail)(void *owner, int code, const char *text);
    /* This rank waits for a peer that is gone: fails, and says why the peer is gone. */
    tt_status (*missed)(void *owner, int peer);
    /* A transport between hosts has failed to reach the peer: reads what the peer has said beside
     * it. Where the peer has left or is gone, the room hears so in the call (quiet, lost). */
    void (*look)(void *owner, int peer);
    /* "rank 3 (host h, pid 77)". */
    void (*name)(const void *owner, int rank, char *text, size_t size);
};

/* What a room knows of the rank that it works for. Owned by the fabric; immutable, but for the
 * counters. */
struct tt_room_context {
    const struct tt_room_events *events;
    void *owner; /* passed to the events; the room does not use it */
    int rank, nranks;
    int nchannels; /* of two ranks, in each direction (link.h) */
    int nbridges;  /* of them, before the last one: 1: one is for bridges between GPUs; or 0 */
    _Atomic uint64_t *nmessages, *nbytes_copied, *nbytes_direct; /* one writer at a time */
};

/* Bytes of a slot of the channel's links between hosts; slot_bytes: of those of collectives. */
static inline size_t tt_room_slot_bytes(const struct tt_room_context *context, size_t slot_bytes,
                                        int channel)
{
    const bool of_bridges = context->nbridges && channel == context->nchannels - 2;
    return slot_bytes + (of_bridges ? TT_BRIDGE_HEAD_BYTES : 0);
}

/* Adds to a counter that only the caller writes just now. */
static inline void tt_count_more(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

/* ---- Transports between hosts --------------------------------------------------------------- */

struct tt_tcp_room;
struct tt_tcp_end;

/* Arguments of open(). */
struct tt_room_config {
    size_t nslots, slot_bytes;
    bool encrypt;                /* data between hosts must be encrypted */
    struct tt_tcp_room *sockets; /* of the connections between hosts: the room of TCP shares them */
    const char *gpu_path;        /* tt_pcie_path of the rank's GPU; "": none, or unknown */
};

/* What a rank must know of its peer to connect to it: addresses, keys. Plain data in the room's own
 * format; travels over the wire of the two. */
struct tt_room_offer {
    uint32_t nbytes; /* used of `bytes` */
    uint8_t bytes[1020];
};

/* Whole pages of a GPU's memory, as its driver exports them to other devices. Plain data. */
struct tt_dmabuf {
    int fd;           /* of the dma-buf; byte 0 is the one at base */
    const char *base; /* at which GPUs access the memory, and links name it */
    size_t nbytes;
};

/* A transport between hosts: the table that a folder hands to the fabric (transports.c lists them).
 * `self` is one rank's use of the transport, `end` its use with one peer; both are the room's own.
 * One thread at a time per communicator. */
struct tt_transport {
    const char *name; /* as TUTTI_TRANSPORT names it */
    int cost;         /* two ranks use the transport of least cost that both have */
    bool by_kernel;   /* the kernel moves the data, and needs a core for that */
    bool is_certain;  /* connecting needs no offers and cannot fail */

    /* Opens the devices of this host. TT_OK with *self NULL: there are none, logged once at INFO.
     * An error: a setting asks for a device that does not exist. */
    tt_status (*open)(void **self, const struct tt_room_config *config);
    /* Gives the room its rank (borrowed), before the first offer. */
    void (*start)(void *self, const struct tt_room_context *context);
    /* Enters a descriptor into an epoll instance, with this data. After arm() the descriptor
     * becomes readable when the sleep must end; clear() makes it unreadable again. */
    tt_status (*watch)(void *self, int epoll, uint64_t data);
    void (*clear)(void *self);
    void (*close)(void *self); /* after its ends */

    /* Lets the devices use pages of a GPU in place, by the links' gpus, until drop_gpu; the
     * descriptor stays the caller's. An error, with the reason: some device cannot; USAGE: it
     * never can. NULL: this transport never does. */
    tt_status (*take_gpu)(void *self, const struct tt_dmabuf *pages, void **taken);
    /* No end uses the pages. */
    void (*drop_gpu)(void *self, void *taken);
    /* Copies between memory of the host and such pages, by a device; waits until the bytes are
     * there. An error: the device failed. */
    tt_status (*copy_gpu)(void *self, bool to_gpu, void *gpu, void *host, size_t nbytes);

    /* Creates an end and its offer. After an error, logged once, the next transport is tried. */
    tt_status (*offer)(void *self, int peer, struct tt_tcp_end *connection, void **end,
                       struct tt_room_offer *mine);
    /* Connects the end with the peer's offer, which it checks. The links may be used once both
     * sides have reported success. */
    tt_status (*connect)(void *end, const struct tt_room_offer *theirs);
    struct tt_link *(*tx)(void *end, int channel);
    struct tt_link *(*rx)(void *end, int channel);
    /* Bounded work on incoming and outgoing messages. A failure fails the communicator. */
    tt_status (*progress)(void *end);
    /* Before a sleep: asks for a notification (watch). False: there is work to do already. */
    bool (*arm)(void *end);
    /* Whether all links of the end are flushed (link.h). */
    bool (*flushed)(void *end);
    /* After a failure: ends all reading from callers' memory. What is being sent at the deadline
     * is dropped, and the end sends no more. */
    void (*give_back)(void *end, int64_t deadline_ns);
    /* Failures from now on are ignored: the peer has announced its end, or this rank is about to.
     */
    void (*quiet)(void *end);
    /* Whether all messages have arrived: destroying the end may lose the others. */
    bool (*sent)(void *end);
    /* The peer is gone. The links still give the messages that have come; after them, and for a
     * sender, they call events->missed. */
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
/* "tcp, rdma": the names of the transports whose bits are set; "none". Writes into text. */
void tt_transports_print(uint32_t set, char *text, size_t size);

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
