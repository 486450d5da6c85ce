/* Shared by bridge.c, which makes and drives the bridges, and bridge_frames.c, which takes and
 * sends what goes over them. */
#ifndef TT_CARRIER_KERNEL_BRIDGE_INTERNAL_H
#define TT_CARRIER_KERNEL_BRIDGE_INTERNAL_H

#include "carrier/kernel/bridge.h"

enum tt_bridge_frame_kind {
    TT_BRIDGE_FRAME_DATA = 1, /* a part of a message */
    TT_BRIDGE_FRAME_CREDIT,   /* number: messages released. Behind the first one may be the place of
                               * the slots (struct tt_gpu_place) */
    TT_BRIDGE_FRAME_END,      /* this rank sends nothing more */
    TT_BRIDGE_FRAME_PLACED /* the whole message is in its slot, in memory of the receiver's GPU */
};

/* Before the bytes of a message. */
struct tt_bridge_frame {
    uint16_t kind, channel;
    uint32_t number;       /* of the message in its link */
    uint32_t offset;       /* of the part in the message */
    uint32_t length;       /* of the message */
    uint64_t head, nbytes; /* as in the message's note */
};
static_assert(sizeof(struct tt_bridge_frame) == 32, "no padding on the wire");
static_assert(sizeof(struct tt_bridge_frame) <= TT_BRIDGE_HEAD_BYTES, "a slot's message fits");

/* An end of a channel. */
struct tt_bridge_end {
    bool is_bound, outgoing;
    bool in_gpu;    /* the slots are memory of this rank's GPU, which devices use */
    bool has_place; /* outgoing: the receiver's slots are such memory, too: */
    struct tt_gpu_place place;
    uint16_t channel;
    uint64_t *head, *tail;
    struct tt_device_note *notes; /* [nslots] */
    char *slots;                  /* [nslots][slot_bytes] */
    uint32_t moved;               /* messages that are sent, or put into slots */
    uint32_t offset;              /* bytes of the next one that are */
    uint32_t length;              /* incoming: of the next one, where offset is not 0 */
    /* outgoing: a credit has come; incoming: one was sent, which said `told` */
    bool has_credit;
    uint32_t told;
    uint32_t marked[TT_BRIDGE_MARKS]; /* messages published, or released, at the mark */
    struct tt_bridge_end *next;
};

/* A mark on the way to a peer. */
struct tt_bridge_marked {
    bool waits;       /* not all that was marked is known to be on its way */
    bool is_framed;   /* all of it is in frames, */
    uint64_t nframes; /* of which this is the last one */
};

struct tt_bridge_peer {
    int rank;
    struct tt_bridge_pair pair;
    struct tt_bridge_end *ends;  /* [2 * nchannels]: incoming, outgoing of each channel */
    struct tt_bridge_end *bound; /* linked by next */
    char *copy;                  /* of a frame that lies nowhere; NULL: none was needed */
    bool has_said_end, may_send; /* may_send: the peer has not said its end */
    bool has_moved;              /* a message, or a part of one, came or went */
    uint64_t nframes;            /* given to the link */
    struct tt_bridge_marked marks[TT_BRIDGE_MARKS];
    struct tt_bridge_peer *next;
};

struct tt_bridges {
    struct tt_bridge_shape shape;
    const struct tt_bridge_calls *calls;
    void *arg; /* of the calls */
    bool ends;
    struct tt_bridge_peer **peers; /* [nranks]; NULL: nothing is bound */
    struct tt_bridge_peer *first;
};

/* Takes what has come from the peer. TT_OK: something; TT_IN_PROGRESS: nothing. */
tt_status tt_bridges_receive(const struct tt_bridges *bridges, struct tt_bridge_peer *peer);
/* Sends the peer what it may have. As tt_bridges_receive. */
tt_status tt_bridges_send(const struct tt_bridges *bridges, struct tt_bridge_peer *peer);
/* Of an outgoing end: what the receiver has released; without a credit no slot is free. */
void tt_bridge_store_tail(const struct tt_bridges *bridges, const struct tt_bridge_end *end);
/* What the kernel has released that the sender does not know. */
bool tt_bridge_must_tell(const struct tt_bridge_end *end);
/* Messages that the kernel has published and that are not sent. */
uint32_t tt_bridge_unsent(const struct tt_bridges *bridges, const struct tt_bridge_end *end);
/* A peer that has said its end, or is gone, needs nothing any more. */
bool tt_bridge_needs_nothing(const struct tt_bridges *bridges, const struct tt_bridge_peer *peer);

struct tt_bridge_end *tt_bridge_end_of(const struct tt_bridge_peer *peer, int channel,
                                       bool outgoing);

#endif
