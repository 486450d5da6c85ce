/* The room of TCP: messages to and from a rank of another host as frames over one or several
 * sockets. Who owns the connections makes the sockets, and may send frames of its own over them. */
#ifndef TT_TRANSPORT_TCP_TCP_ROOM_H
#define TT_TRANSPORT_TCP_TCP_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/room.h"
#include "transport/tcp/tcp.h"

/* What the owner does with frames that are not data, and with connections that end. `owner` is
 * that of the end. */
struct tt_tcp_owner {
    /* A header has come; nothing of it is believed before. */
    tt_status (*check)(void *owner, struct tt_tcp *tcp, const struct tt_frame *frame);
    /* The payload is whole. */
    tt_status (*take)(void *owner, struct tt_tcp *tcp, const struct tt_frame *frame, char *payload);
    /* Writes a frame that goes ahead of the next message, at most TT_AHEAD_BYTES; returns its
     * length, 0: none. */
    size_t (*ahead)(void *owner, uint8_t *to);
    /* The connection has ended, or is to end; error 0: closed by the peer. Closes it. */
    tt_status (*lost)(void *owner, struct tt_tcp *tcp, int error);
};

/* One rank's use of TCP. Embedded in what owns its connections. */
struct tt_tcp_room {
    /* immutable after start */
    const struct tt_room_context *context;
    const struct tt_tcp_owner *owner;
    size_t nslots, slot_bytes;
    int owed_max;           /* credits returned at the latest when they are as many */
    const uint8_t *key;     /* NULL: nothing is encrypted; borrowed */
    uint64_t records_a_key; /* of tt_tls_open */

    /* owner: the thread that runs this rank's work */
    size_t nbytes; /* of slots and queues */
};

/* A message that has come, or is coming, but is not released. data NULL: nothing yet. */
struct tt_arrival {
    char *data;
    uint32_t nbytes;
    bool whole;
    uint64_t signature;
};

/* One end of a link over the sockets. Message n travels over socket n modulo their number. */
struct tt_tcp_link {
    struct tt_link link;
    struct tt_tcp_end *end;
    int channel;
    char *slots;   /* [nslots] of slot_bytes, at first use */
    uint64_t next; /* outgoing: number of the next message; incoming: of the first one here */
    /* outgoing */
    uint64_t allowed;    /* messages that the receiver has room for, since the beginning */
    uint64_t references; /* messages that the kernel still takes from the caller's memory */
    /* incoming */
    struct tt_arrival arrivals[TT_MAX_SLOTS]; /* of message n: n modulo nslots */
    void *expected;                           /* NULL: nothing */
    size_t expected_nbytes;
    uint64_t expected_signature;
};

enum tt_tcp_state {
    TT_TCP_MAKING, /* not all sockets stand, or it is not agreed what they carry */
    TT_TCP_UP,
    TT_TCP_GONE, /* the peer has left, or a connection is lost: what has come still counts */
};

/* All that joins this rank with one peer. Embedded in what owns its connections. */
struct tt_tcp_end {
    struct tt_tcp_room *room;
    void *owner; /* for room->owner */
    int peer;
    enum tt_tcp_state state;
    int npaths, nsockets, nopen;               /* socket i goes over path i modulo npaths */
    struct tt_tcp *sockets;                    /* [nsockets] */
    struct tt_tcp_link links[2][TT_NCHANNELS]; /* incoming, outgoing */
    uint8_t owed[TT_NCHANNELS];                /* credits not yet returned to the peer */
};

extern const struct tt_transport tt_tcp_transport;

/* tcp_link.c */
TT_NODISCARD tt_status tt_tcp_end_init(struct tt_tcp_end *end, struct tt_tcp_room *room,
                                       void *owner, int peer, int npaths, int nsockets);
void tt_tcp_end_fini(struct tt_tcp_end *end);
/* The receiver's hint of an incoming link (link.h). */
void tt_tcp_expect(struct tt_tcp_link *link, void *to, size_t nbytes, uint64_t signature);
/* The slot of message `number`; NULL without memory (the communicator has failed then). */
char *tt_tcp_slot(struct tt_tcp_link *link, uint64_t number);
/* Sends what the kernel takes; true when nothing is left. */
bool tt_tcp_end_flush(struct tt_tcp_end *end);
/* The callers' memory is their own again: what is still to be sent of that is copied. */
void tt_tcp_end_give_back(struct tt_tcp_end *end);

/* tcp_frame.c: called by tcp.c as frames come in; the same as in struct tt_tcp_owner, data
 * included. */
TT_NODISCARD tt_status tt_tcp_check(struct tt_tcp *tcp, const struct tt_frame *frame);
/* Where the payload of a frame that was checked goes. */
TT_NODISCARD tt_status tt_tcp_place(struct tt_tcp *tcp, const struct tt_frame *frame, char **to);
TT_NODISCARD tt_status tt_tcp_take(struct tt_tcp *tcp, const struct tt_frame *frame, char *to);
/* The peer has sent what tutti never sends. */
TT_NODISCARD tt_status tt_tcp_refuse(const struct tt_tcp *tcp, const char *what, uint64_t value);

#endif
