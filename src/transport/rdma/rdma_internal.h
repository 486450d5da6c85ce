/* Shared by the files of the RDMA room only: devices, registered memory, wires and links. */
#ifndef TT_TRANSPORT_RDMA_INTERNAL_H
#define TT_TRANSPORT_RDMA_INTERNAL_H

#include <stdatomic.h>

#include "transport/room.h"
#include "transport/rdma/rdma.h"
#include "transport/rdma/rdma_choose.h"
#include "transport/rdma/verbs.h"

/* ---- Devices (rdma_device.c) ---------------------------------------------------------------- */

/* A queue pair of a device with itself, by which it reads and writes memory of the rank's GPU. What
 * it reads there comes after all that the device has written there before: reading is a flush. */
struct tt_rdma_loop {
    struct ibv_cq *cq; /* NULL: no memory of a GPU was registered yet */
    struct ibv_qp *qp;
    struct ibv_mr *region; /* of the rank's bounce memory */
    uint64_t nposted, ncompleted;
};

struct tt_rdma_device {
    char name[TT_RDMA_NAME];
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_comp_channel *channel; /* notifications of the completion queues of all wires */
    bool no_dmabuf;                   /* the device refused dma-buf memory */
    struct tt_rdma_loop loop;
};

struct tt_rdma_port {
    struct tt_rdma_device *device;
    uint8_t number;
    int gpu_distance;                /* tt_rdma_gpu_distance */
    bool is_near;                    /* no other port is nearer to the GPU */
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

/* Pages of a GPU that all devices may read and write. In the list of struct tt_rdma. */
struct tt_rdma_gpu {
    struct tt_rdma_gpu *following;
    uintptr_t base; /* the GPU's address; nothing need be mapped there */
    size_t nbytes;
    struct ibv_mr *regions[TT_RDMA_MAX_PORTS]; /* [devices] */
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
    struct tt_rdma_gpu *gpus;
    char *bounce; /* memory for what devices copy by their loops: TT_RDMA_BOUNCE; NULL: none yet */
    tt_status loops_failed;
    size_t pinned;
    uint64_t clock;
    bool said; /* the reason why wires cannot be created was logged */
};

enum { TT_RDMA_BOUNCE = 1 << 17 };

/* Handles the devices' asynchronous events; a failure fails the fabric. */
TT_NODISCARD tt_status tt_rdma_events(struct tt_rdma *rdma);

/* ---- Queue pairs (rdma_pair.c) -------------------------------------------------------------- */

/* What a queue pair is connected to. */
struct tt_rdma_joint {
    struct ibv_qp *qp;
    const struct tt_rdma_port *port;
    int gid;                     /* of the port's */
    const struct tt_gid *target; /* of the other queue pair's port, of which is: */
    uint32_t qp_number, first_packet;
    uint16_t lid;
    uint8_t mtu, ethernet;
    uint32_t my_first_packet;
    uint8_t nreads; /* outstanding at most, in either direction */
};
/* Makes the queue pair, which is initialised, ready to send: 0 or an errno. */
int tt_rdma_join(const struct tt_rdma *rdma, const struct tt_rdma_joint *joint);
/* 0 or an errno. */
int tt_rdma_init_pair(const struct tt_rdma *rdma, struct ibv_qp *qp,
                      const struct tt_rdma_port *port, int access);

/* ---- Memory (rdma_memory.c) ----------------------------------------------------------------- */

/* The registration of the window that holds [data, data + nbytes), registered now if need be; NULL:
 * none. */
struct tt_rdma_memory *tt_rdma_memory_find(struct tt_rdma *rdma, const void *data, size_t nbytes);
void tt_rdma_memory_fini(struct tt_rdma *rdma);
/* Registers pages of a GPU with a device; addresses in the region are the GPU's. USAGE: the device,
 * its driver or the library never can (no_dmabuf is set then, and nothing tried again). SYSTEM: not
 * these. */
TT_NODISCARD tt_status tt_rdma_register_dmabuf(struct tt_rdma *rdma, int device,
                                               const struct tt_dmabuf *memory,
                                               struct ibv_mr **region);

/* ---- Loops, and memory of GPUs (rdma_loop.c) ------------------------------------------------- */

/* The registered memory that holds [data, data + nbytes); NULL: none. */
const struct tt_rdma_gpu *tt_rdma_find_gpu(const struct tt_rdma *rdma, const void *data,
                                           size_t nbytes);
/* Posts a READ of such memory by the device's loop, which has completed so much as it has posted
 * now when all that the device had written there before is there. TT_IN_PROGRESS: the loop is full.
 */
TT_NODISCARD tt_status tt_rdma_begin_flush(const struct tt_rdma *rdma,
                                           struct tt_rdma_device *device,
                                           const struct tt_rdma_gpu *gpu);
/* Takes over what the loop has completed. */
TT_NODISCARD tt_status tt_rdma_poll_loop(const struct tt_rdma *rdma, struct tt_rdma_device *device);
/* Destroys the loops of all devices. */
void tt_rdma_close_loops(struct tt_rdma *rdma);

/* ---- Wires (rdma_wire.c) -------------------------------------------------------------------- */

/* The header, which lies right before a message's payload. */
struct tt_rdma_header {
    uint64_t signature;
    uint64_t nbytes; /* that follow */
    uint64_t number; /* of the message in its link, from 0 */
    uint64_t taken;  /* messages of the other direction that were released: credits */
};
enum { TT_RDMA_HEADER = sizeof(struct tt_rdma_header), TT_RDMA_MAX_SLOTS = 64 };

/* What was posted, as its completion names it. PAYLOAD: from memory of a GPU to such memory. */
enum tt_rdma_kind { TT_RDMA_DATA, TT_RDMA_CREDIT, TT_RDMA_RECEIVE, TT_RDMA_PAYLOAD };
static inline uint64_t tt_rdma_work_id(enum tt_rdma_kind kind, int channel, uint64_t slot)
{
    return (uint64_t)kind << 16 | (uint64_t)channel << 8 | slot;
}

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

/* Up to which message of its link a receiver has flushed. */
struct tt_rdma_flushed {
    uint64_t done, asked;                /* messages before these are seen; will be, */
    uint64_t awaited[TT_RDMA_MAX_PORTS]; /* when each device's loop has completed so much */
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
    /* Messages looked at: one more than `next` once the first one was. Its header, as it was then:
     * the sender could write to its slot once more. */
    uint64_t nlooked;
    struct tt_rdma_header first;
    struct tt_rdma_flushed flushed;
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
    bool lost;    /* the peer is gone */
    bool stopped; /* the queue pairs are in the error state */
    tt_status failed;
    unsigned turns;
    uint64_t nposted, ncompleted; /* writes */
    uint64_t nreceived;
    uint64_t ncompleted_seen; /* ncompleted at since_ns: to notice that nothing completes */
    int64_t since_ns;
};

/* Offsets in a wire's memory, the same on both sides. */
/* Of the count of releases that the peer's rx writes. */
static inline size_t tt_rdma_credit_at(int channel)
{
    return (size_t)channel * TT_CACHE_LINE;
}
/* Of the count of this rank's rx, from where it is written to the peer. */
static inline size_t tt_rdma_told_at(const struct tt_rdma_wire *wire, int channel)
{
    return (size_t)(wire->nchannels + channel) * TT_CACHE_LINE;
}
/* Begin of a slot's payload, which is aligned to a cache line; the header is right before it. */
static inline size_t tt_rdma_slot_at(const struct tt_rdma_wire *wire, bool outgoing, int channel,
                                     uint64_t slot)
{
    const size_t n = wire->rdma->nslots, nchannels = (size_t)wire->nchannels;
    const size_t index = ((outgoing ? nchannels : 0) + (size_t)channel) * n + slot;
    return (2 * nchannels + 1) * TT_CACHE_LINE + index * wire->stride;
}

/* ---- Links (rdma_link.c) -------------------------------------------------------------------- */

void tt_rdma_link_init(struct tt_rdma_link *link, struct tt_rdma_wire *wire, int channel,
                       bool outgoing);
/* Makes n empty receive requests. */
TT_NODISCARD tt_status tt_rdma_post_receives(struct tt_rdma_route *route, int n);
/* Handles the completions that have come; a failure fails the fabric. */
TT_NODISCARD tt_status tt_rdma_poll(struct tt_rdma_route *route);
TT_NODISCARD tt_status tt_rdma_poll_all(struct tt_rdma_wire *wire);
/* Fails the fabric: this rank waits for a peer that is gone. */
TT_NODISCARD tt_status tt_rdma_missed(const struct tt_rdma_wire *wire);
/* Posts a request, which completes once. False: not on this wire, which has failed or is quiet. */
bool tt_rdma_post(struct tt_rdma_route *route, struct ibv_send_wr *request);
/* The route that carries a message. */
struct tt_rdma_route *tt_rdma_route_of(const struct tt_rdma_wire *wire, uint64_t number);

/* ---- Links with memory of GPUs (rdma_gpu.c)
 * ------------------------------------------------------------ */

extern const struct tt_gpu_ops tt_rdma_gpus;

/* ---- Failures (rdma_error.c) ---------------------------------------------------------------- */

/* Each function that begins with tt_rdma_fail fails the fabric, unless the peer has left, and gives
 * the wire its status. */
TT_NODISCARD tt_status tt_rdma_fail_completion(struct tt_rdma_route *route,
                                               const struct ibv_wc *wc);
/* `what`: what happened, a clause of the text. */
TT_NODISCARD tt_status tt_rdma_fail_route(struct tt_rdma_route *route, const char *what);

#endif
