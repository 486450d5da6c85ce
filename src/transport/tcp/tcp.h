/* The room of TCP: messages to and from a rank of another host as frames over one or several
 * sockets, never blocking. The owner of the connections (struct tt_tcp_owner) connects the sockets,
 * and may send frames of its own over them.
 *
 * A frame is a header and its payload. Payloads go straight to their place; frames that the
 * kernel does not take at once wait in a queue with room for every message that may be in flight.
 */
#ifndef TT_TRANSPORT_TCP_H
#define TT_TRANSPORT_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "transport/link.h"
#include "transport/room.h"

struct tt_tls;
struct tt_tcp_link;
struct tt_tcp_end;

enum tt_frame_kind {
    TT_FRAME_DATA = 1, /* a message */
    TT_FRAME_CREDIT,   /* nothing but the credits that every header carries */
    TT_FRAME_CONTROL,  /* this kind and all above are the owner's */
};

/* Messages of a channel that were released since the last frame with credits of this channel; 0:
 * none. */
struct tt_credits {
    uint8_t channel, number;
};

enum { TT_FRAME_CREDITS = 3 }; /* channels whose credits a frame has room for */

struct tt_frame {
    uint8_t kind, channel;
    struct tt_credits credits[TT_FRAME_CREDITS];
    uint32_t nbytes; /* of payload */
    uint32_t number; /* of the message in its link */
    uint64_t signature;
};
_Static_assert(sizeof(struct tt_frame) == 24, "no padding on the wire");

enum {
    TT_INCOMING_BYTES = 4096, /* read ahead when a header is awaited */
    TT_AHEAD_BYTES = 80,      /* the longest frame that the owner puts ahead of a message */
    TT_HEAD_BYTES = TT_AHEAD_BYTES + sizeof(struct tt_frame),
    TT_CONTROL_BYTES = TT_ERROR_TEXT, /* the longest payload of a frame that is not data */
};

/* Addresses and interface of a connection, for error texts. */
struct tt_tcp_route {
    char text[96];      /* "10.0.0.2:4711 over eth0" */
    char interface[16]; /* of this host */
    bool loopback;
};

/* Bytes to send: a head, whose last frame header carries credits, then a body. */
struct tt_outgoing {
    uint8_t head[TT_HEAD_BYTES];
    uint32_t head_nbytes, body_nbytes;
    const char *body;         /* unchanged until sent */
    struct tt_tcp_link *link; /* the link that published the body by reference; NULL: a slot */
    bool stamped;             /* the credits are in the header */
    bool is_p2p;              /* a message of point to point, or of bridges */
};

struct tt_tcp {
    int watched; /* the owner's mark of what epoll reports */
    struct tt_tcp_end *end;
    int fd; /* -1: not open */
    struct tt_tcp_route route;
    struct tt_tls *tls;      /* NULL: not encrypted */
    bool awaits_room;        /* epoll also reports when the socket is writable */
    bool left;               /* the peer has announced its end */
    int64_t unresponsive_ns; /* since when the peer's kernel does not answer; 0: it answers */
    int broken; /* errno of a failed write; bytes that the peer sent before may still be read */

    /* incoming */
    uint32_t incoming_begin, incoming_end;
    bool has_read; /* anything */
    bool in_frame; /* the header is complete */
    struct tt_frame frame;
    char *to; /* the payload's place; NULL: not chosen yet */
    size_t got;
    uint8_t incoming[TT_INCOMING_BYTES];
    char *control; /* payload of a frame that is not data */

    /* outgoing: a ring */
    struct tt_outgoing *queue;
    uint32_t room, first, count;
    uint32_t np2p; /* messages of point to point and of bridges among them */
    size_t sent;   /* bytes sent of the first item */

    /* large bodies sent from the caller's memory: the kernel notifies when it no longer reads one
     */
    bool zerocopy, zerocopy_always;
    uint64_t lent, returned;           /* writes since the connection was opened */
    uint64_t returned_to;              /* all writes before this one were returned */
    uint64_t lent_to[TT_MAX_CHANNELS]; /* the write after the last one of a channel's messages */
};

/* Options of every connection for data: a peer that does not answer for `timeout_ns` is gone. */
void tt_tcp_tune(int fd, int64_t timeout_ns);
/* Takes the connected fd over on success. */
TT_NODISCARD tt_status tt_tcp_open(struct tt_tcp *tcp, struct tt_tcp_end *end, int fd,
                                   const struct tt_tcp_route *route);
void tt_tcp_close(struct tt_tcp *tcp);

/* A place at the end of the queue, zeroed; NULL when the queue is full, which credits prevent
 * for messages. */
struct tt_outgoing *tt_tcp_push(struct tt_tcp *tcp);
/* Sends as much as the kernel takes, and credits that are due. TT_IN_PROGRESS: frames are left. The
 * next read reports an error. */
tt_status tt_tcp_flush(struct tt_tcp *tcp);
/* Reads the available bytes with one system call. TT_IN_PROGRESS: there were none. */
TT_NODISCARD tt_status tt_tcp_read(struct tt_tcp *tcp);
/* Whether the peer's kernel has not answered on this socket for timeout_ns although it was asked:
 * the peer's host or the network is down. Called now and then; *unresponsive_ns: since when it does
 * not answer, 0 at first. */
bool tt_tcp_is_unresponsive(int fd, int64_t *unresponsive_ns, int64_t timeout_ns);
/* Whether the kernel no longer reads any memory that was lent to it. */
bool tt_tcp_returned(struct tt_tcp *tcp);
/* Whether the kernel no longer reads the memory of one channel's messages that was lent to it. */
bool tt_tcp_returned_of(struct tt_tcp *tcp, int channel);
/* Bytes and frames that the peer's kernel has not acknowledged; 0 also when the peer has left. */
size_t tt_tcp_unsent(const struct tt_tcp *tcp);

/* ---- The room ------------------------------------------------------------------------------- */

/* What the owner does with frames that are not data, and with connections that end. `owner` is
 * that of the end. */
struct tt_tcp_owner {
    /* Checks a header before anything uses it. */
    tt_status (*check)(struct tt_tcp *tcp, const struct tt_frame *frame);
    /* Handles a frame whose payload is complete. */
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
    int credits_due_max; /* as many credits of a channel are returned at once, without a message */
    const uint8_t *key;  /* NULL: nothing is encrypted; borrowed */
    uint64_t records_a_key; /* of tt_tls_open */

    /* owner: the thread that runs this rank's work */
    size_t nbytes; /* of slots and queues */
};

/* A message that is received in whole or in part, and not released. data NULL: no byte yet. */
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
    uint64_t next; /* number of the next message to send, or of the first one not released */
    /* outgoing */
    uint64_t allowed;    /* messages that the receiver has had room for, since the first */
    uint64_t references; /* messages whose body is still the caller's memory */
    /* incoming */
    uint8_t credits_due;                      /* messages released, not yet told to the sender */
    struct tt_arrival arrivals[TT_MAX_SLOTS]; /* of message n: n modulo nslots */
    void *expected;                           /* NULL: nothing */
    size_t expected_nbytes;
    uint64_t expected_signature;
};

enum tt_tcp_state {
    TT_TCP_MAKING, /* sockets are missing, or the transport is not agreed yet */
    TT_TCP_UP,
    TT_TCP_GONE, /* the peer has left, or a connection is lost: what has come still counts */
};

/* All that joins this rank with one peer. Embedded in what owns its connections. */
struct tt_tcp_end {
    struct tt_tcp_room *room;
    void *owner; /* for room->owner */
    int peer;
    enum tt_tcp_state state;
    int nroutes, nsockets, nopen; /* socket i goes over route i modulo nroutes */
    struct tt_tcp *sockets;       /* [nsockets] */
    int nchannels;
    struct tt_tcp_link *links; /* [2][nchannels]: incoming, outgoing */
    int stamped;               /* the channel whose credits were put into a frame last */
    bool no_data;              /* another transport carries the data of this peer */
};

static inline struct tt_tcp_link *tt_tcp_link_at(const struct tt_tcp_end *end, bool outgoing,
                                                 int channel)
{
    return &end->links[(outgoing ? end->nchannels : 0) + channel];
}

extern const struct tt_transport tt_tcp_transport;

/* tcp_link.c */
TT_NODISCARD tt_status tt_tcp_end_init(struct tt_tcp_end *end, struct tt_tcp_room *room,
                                       void *owner, int peer, int nroutes, int nsockets);
void tt_tcp_end_fini(struct tt_tcp_end *end);
/* The receiver's hint of an incoming link (link.h). */
void tt_tcp_expect(struct tt_tcp_link *link, void *to, size_t nbytes, uint64_t signature);
/* Another transport carries the data: forgets the receivers' hints, and refuses messages. */
void tt_tcp_end_refuse_data(struct tt_tcp_end *end);
/* The slot of message `number`; NULL without memory (the communicator has failed then). */
char *tt_tcp_slot(struct tt_tcp_link *link, uint64_t number);
/* Sends as much as the kernel takes; true when nothing is left. */
bool tt_tcp_end_flush(struct tt_tcp_end *end);
/* Sends as much as the kernel takes; true when nothing is left but messages of point to point. */
bool tt_tcp_end_flush_collectives(struct tt_tcp_end *end);
/* Ends the use of callers' buffers: copies to slots what is queued by reference, and closes the
 * connections of which the kernel keeps a buffer until the deadline. */
void tt_tcp_end_give_back(struct tt_tcp_end *end, int64_t deadline_ns);

/* tcp_frame.c: called by tcp.c for each frame, as check and take of struct tt_tcp_owner, but also
 * for data. */
TT_NODISCARD tt_status tt_tcp_check(struct tt_tcp *tcp, const struct tt_frame *frame);
/* Where the payload of a frame that was checked goes. */
TT_NODISCARD tt_status tt_tcp_place(struct tt_tcp *tcp, const struct tt_frame *frame, char **to);
TT_NODISCARD tt_status tt_tcp_take(struct tt_tcp *tcp, const struct tt_frame *frame, char *to);
/* Fails: the peer has sent a value that tutti never sends. */
TT_NODISCARD tt_status tt_tcp_refuse(const struct tt_tcp *tcp, const char *what, uint64_t value);

#endif
