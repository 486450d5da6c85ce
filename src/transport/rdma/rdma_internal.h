/* Shared by the files of the RDMA room only: devices, registered memory, wires and links. */
#ifndef TT_TRANSPORT_RDMA_INTERNAL_H
#define TT_TRANSPORT_RDMA_INTERNAL_H

#include <stdatomic.h>

#include "transport/room.h"
#include "transport/rdma/rdma.h"
#include "transport/rdma/rdma_choose.h"
#include "transport/rdma/verbs.h"

/* ---- Devices (rdma_device.c) ---------------------------------------------------------------- */

struct tt_rdma_device {
    char name[TT_RDMA_NAME];
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_comp_channel *channel; /* notifications of the completion queues of all wires */
    bool no_dmabuf;                   /* the device refused dma-buf memory */
};

struct tt_rdma_port {
    struct tt_rdma_device *device;
    uint8_t number;
    struct ibv_port_attr attributes; /* as of opening */
    int ngids;
    struct tt_gid gids[TT_RDMA_MAX_GIDS]; /* the preferred first */
    int gid_indices[TT_RDMA_MAX_GIDS];
    unsigned gids_used; /* by wires, one bit each */
};

enum { TT_RDMA_MAX_WINDOWS = 32 };

/* A window (transport/window.h) that the devices may read. */
struct tt_rdma_memory {
    uint64_t window;                           /* 0: unused entry */
    size_t nbytes;                             /* pinned; 0: registering was refused */
    struct ibv_mr *regions[TT_RDMA_MAX_PORTS]; /* [devices] */
    uint64_t used; /* time of the last use: the oldest is given up first */
    int nsends;    /* outstanding */
};

struct tt_rdma {
    /* immutable after open */
    const struct tt_verbs *verbs;
    const struct tt_room_context *context; /* NULL before start */
    size_t nslots, slot_bytes;
    int ndevices, nports;
    struct tt_rdma_device devices[TT_RDMA_MAX_PORTS];
    struct tt_rdma_port ports[TT_RDMA_MAX_PORTS]; /* the nearest first */

    /* owner: the thread that runs this rank's work */
    struct tt_rdma_memory windows[TT_RDMA_MAX_WINDOWS];
    size_t pinned;
    uint64_t clock;
    bool said; /* the reason why wires cannot be created was logged */
};

/* Handles the devices' asynchronous events; a failure fails the fabric. */
TT_NODISCARD tt_status tt_rdma_events(struct tt_rdma *rdma);

/* ---- Memory (rdma_memory.c) ----------------------------------------------------------------- */

/* The registration of the window that holds [data, data + nbytes), registered now if need be; NULL:
 * none. */
struct tt_rdma_memory *tt_rdma_memory_find(struct tt_rdma *rdma, const void *data, size_t nbytes);
void tt_rdma_memory_fini(struct tt_rdma *rdma);
/* Registers pages of a GPU with a device; addresses in the region are the GPU's. TT_ERR_SYSTEM:
 * the device, its driver or the library cannot (no_dmabuf is set then, and nothing tried again). */
TT_NODISCARD tt_status tt_rdma_register_dmabuf(struct tt_rdma *rdma, int device,
                                               const struct tt_dmabuf *memory,
                                               struct ibv_mr **region);

/* ---- Wires (rdma_wire.c) -------------------------------------------------------------------- */

/* The header, which lies right before a message's payload. */
struct tt_rdma_header {
    uint64_t signature, nbytes;
    uint64_t number; /* of the message in its link, from 0 */
    uint64_t taken;  /* messages of the other direction that were released: credits */
};
enum { TT_RDMA_HEADER = sizeof(struct tt_rdma_header), TT_RDMA_MAX_SLOTS = 64 };

/* One queue pair, between a port of each side. */
struct tt_rdma_route {
    struct tt_rdma_wire *wire;
    struct tt_rdma_port *port;
    struct ibv_qp *qp;
    struct ibv_cq *cq;
    uint32_t first_packet, inline_bytes;
    int gid; /* mine, of the port's */
    struct tt_rdma_end theirs;
    struct tt_gid their_gid;
};

/* One end of a link; which half is used depends on the end. */
struct tt_rdma_link {
    struct tt_link link;
    struct tt_rdma_wire *wire;
    int channel;
    bool outgoing;
    uint64_t next;  /* number of the next message to publish or to receive */
    uint64_t slots; /* one bit a slot. Sender: is being sent. Receiver: holds a message */
    /* sender */
    uint64_t taken; /* the latest known count of messages that the receiver released */
    struct tt_rdma_memory *memory[TT_RDMA_MAX_SLOTS]; /* of references being sent, by slot */
    int ndirect;                                      /* number of references being sent */
    /* receiver: `next` messages have been released */
    uint64_t told;  /* the last count of releases that was sent to the sender */
    uint32_t ntold; /* writes of this count that are not complete */
};

struct tt_rdma_wire {
    struct tt_rdma *rdma;
    int peer;
    int nends, nroutes;
    struct tt_rdma_route ends[TT_RDMA_MAX_PORTS];  /* [nends], one a port */
    struct tt_rdma_route *used[TT_RDMA_MAX_PORTS]; /* [nroutes], those that have a counterpart; the
                                                    * peer's are in the same order */
    char *memory;
    size_t nbytes, stride;                     /* stride: of slots */
    struct ibv_mr *regions[TT_RDMA_MAX_PORTS]; /* [devices] */
    uint64_t their_memory;
    int nchannels;
    struct tt_rdma_link *tx, *rx; /* [nchannels] each, one block of memory that begins at tx */
    bool quiet;
    bool lost; /* the peer is gone */
    tt_status failed;
    unsigned turns;
    uint64_t nposted, ncompleted; /* writes */
    uint64_t nreceived;
    uint64_t ncompleted_seen; /* and when: to notice that no write completes */
    int64_t since_ns;
};

/* Offsets in a wire's memory, the same on both sides. */
/* Of the count of releases that the peer's rx writes. */
static inline size_t tt_rdma_credit_at(int channel)
{
    return (size_t)channel * TT_LINE;
}
/* Of the count of this rank's rx, from where it is written to the peer. */
static inline size_t tt_rdma_told_at(const struct tt_rdma_wire *wire, int channel)
{
    return (size_t)(wire->nchannels + channel) * TT_LINE;
}
/* Begin of a slot's payload, which is aligned to a line; the header is right before it. */
static inline size_t tt_rdma_slot_at(const struct tt_rdma_wire *wire, bool outgoing, int channel,
                                     uint64_t slot)
{
    const size_t n = wire->rdma->nslots, nchannels = (size_t)wire->nchannels;
    const size_t index = ((outgoing ? nchannels : 0) + (size_t)channel) * n + slot;
    return (2 * nchannels + 1) * TT_LINE + index * wire->stride;
}

/* ---- Links (rdma_link.c) -------------------------------------------------------------------- */

void tt_rdma_link_init(struct tt_rdma_link *link, struct tt_rdma_wire *wire, int channel,
                       bool outgoing);
/* Makes n empty receive requests. */
TT_NODISCARD tt_status tt_rdma_post_receives(struct tt_rdma_route *route, int n);
/* Handles the completions that have come; a failure fails the fabric. */
TT_NODISCARD tt_status tt_rdma_poll(struct tt_rdma_route *route);

/* ---- Failures (rdma_error.c) ---------------------------------------------------------------- */

/* All of these fail the fabric, unless the peer has left, and give the wire its status. */
TT_NODISCARD tt_status tt_rdma_fail_completion(struct tt_rdma_route *route,
                                               const struct ibv_wc *wc);
/* `what`: what happened, a clause of the text. */
TT_NODISCARD tt_status tt_rdma_fail_route(struct tt_rdma_route *route, const char *what);

#endif
