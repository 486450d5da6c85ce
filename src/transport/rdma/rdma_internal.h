/* Inside of the RDMA transport: devices, registered memory, wires and links. */
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
    struct ibv_comp_channel *channel; /* for wakes; of the completion queues of all wires */
    bool no_dmabuf;                   /* it said so */
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
    uint64_t used;                             /* when, for choosing the one to give up */
    int nsends;                                /* outstanding */
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
    bool said; /* why a wire cannot be made */
};

/* Takes the devices' asynchronous events; a failure fails the fabric. */
TT_NODISCARD tt_status tt_rdma_events(struct tt_rdma *rdma);

/* ---- Memory (rdma_memory.c) ----------------------------------------------------------------- */

/* The registration of the window that holds [data, data + nbytes), made if need be; NULL: none. */
struct tt_rdma_memory *tt_rdma_memory_find(struct tt_rdma *rdma, const void *data, size_t nbytes);
void tt_rdma_memory_fini(struct tt_rdma *rdma);
/* A piece of a GPU's memory, as its driver hands it out. */
struct tt_dmabuf {
    int fd;
    uint64_t offset;
    size_t nbytes;
};
/* Registers it with a device; addresses in the region begin at the offset. TT_ERR_SYSTEM: the
 * device, its driver or the library cannot (no_dmabuf is set then, and nothing tried again). */
TT_NODISCARD tt_status tt_rdma_register_dmabuf(struct tt_rdma *rdma, int device,
                                               const struct tt_dmabuf *memory,
                                               struct ibv_mr **region);

/* ---- Wires (rdma_wire.c) -------------------------------------------------------------------- */

/* What lies right before a message's payload. */
struct tt_rdma_header {
    uint64_t signature, nbytes;
    uint64_t number; /* of the message, from 0 */
    uint64_t taken;  /* messages of the other direction that were released: credits */
};
enum { TT_RDMA_HEADER = sizeof(struct tt_rdma_header), TT_RDMA_MAX_SLOTS = 64 };

/* One queue pair, between a port of each side. */
struct tt_rdma_path {
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
    uint64_t next;  /* number of the message to publish, or to look at */
    uint64_t slots; /* one bit each. Sender: being sent. Receiver: has come */
    /* sender */
    uint64_t taken; /* what is known of the receiver's count of messages released */
    struct tt_rdma_memory *memory[TT_RDMA_MAX_SLOTS]; /* sent from there, by slot */
    int ndirect;                                      /* of them */
    /* receiver: next is what has been released */
    uint64_t told;  /* count that the sender was or is being told */
    uint32_t ntold; /* writes of it that are not complete */
};

struct tt_rdma_wire {
    struct tt_rdma *rdma;
    int peer;
    int nends, npaths;
    struct tt_rdma_path ends[TT_RDMA_MAX_PORTS];  /* [nends], one a port */
    struct tt_rdma_path *used[TT_RDMA_MAX_PORTS]; /* [npaths], those that have a counterpart; the
                                                   * peer's are in the same order */
    char *memory;
    size_t nbytes, stride;                     /* stride: of slots */
    struct ibv_mr *regions[TT_RDMA_MAX_PORTS]; /* [devices] */
    uint64_t their_memory;
    struct tt_rdma_link tx[TT_NCHANNELS], rx[TT_NCHANNELS];
    bool quiet;
    bool lost; /* the peer is gone */
    tt_status failed;
    unsigned turns;
    uint64_t nposted, ncompleted; /* writes */
    uint64_t nreceived;
    uint64_t ncompleted_seen; /* and when: to notice that nothing moves */
    int64_t since_ns;
};

/* Where things lie in a wire's memory, the same on both sides. */
static inline size_t tt_rdma_credit_at(int channel) /* written by the peer: its rx's count */
{
    return (size_t)channel * TT_LINE;
}
static inline size_t tt_rdma_told_at(int channel) /* what the peer is being told of mine */
{
    return (size_t)(TT_NCHANNELS + channel) * TT_LINE;
}
/* Begin of a slot's payload, which is aligned to a line; the header is right before it. */
static inline size_t tt_rdma_slot_at(const struct tt_rdma_wire *wire, bool outgoing, int channel,
                                     uint64_t slot)
{
    const size_t n = wire->rdma->nslots;
    const size_t index = ((outgoing ? TT_NCHANNELS : 0) + (size_t)channel) * n + slot;
    return (size_t)(2 * TT_NCHANNELS + 1) * TT_LINE + index * wire->stride;
}

/* ---- Links (rdma_link.c) -------------------------------------------------------------------- */

void tt_rdma_link_init(struct tt_rdma_link *link, struct tt_rdma_wire *wire, int channel,
                       bool outgoing);
/* Makes n empty receive requests. */
TT_NODISCARD tt_status tt_rdma_post_receives(struct tt_rdma_path *path, int n);
/* Takes the completions that there are; a failure fails the fabric. */
TT_NODISCARD tt_status tt_rdma_poll(struct tt_rdma_path *path);

/* ---- Failures (rdma_error.c) ---------------------------------------------------------------- */

/* All of these fail the fabric, unless the peer has left, and give the wire its status. */
TT_NODISCARD tt_status tt_rdma_fail_completion(struct tt_rdma_path *path, const struct ibv_wc *wc);
/* `what` happened, in words. */
TT_NODISCARD tt_status tt_rdma_fail_path(struct tt_rdma_path *path, const char *what);

#endif
