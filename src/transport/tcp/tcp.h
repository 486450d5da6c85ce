/* The room of TCP: messages to and from a rank of another host as frames over one or several
 * sockets, never blocking. Who owns the connections makes the sockets, and may send frames of its
 * own over them.
 *
 * A frame is a header and its payload. Payloads go straight to where they belong; what the kernel
 * does not take at once waits in a queue that has room for every message that may be under way. */
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
    TT_FRAME_CONTROL,  /* this kind and the ones above are the owner's */
};

struct tt_frame {
    uint8_t kind, channel;
    uint8_t credits[TT_NCHANNELS]; /* messages released since the last word about it, by channel */
    uint8_t reserved[3];
    uint32_t nbytes; /* of payload */
    uint32_t number; /* of the message in its link */
    uint64_t signature;
};
_Static_assert(sizeof(struct tt_frame) == 24, "no padding on the wire");

enum {
    TT_STAGE_BYTES = 4096, /* read ahead when a header is awaited */
    TT_AHEAD_BYTES = 80,   /* the longest frame that the owner puts ahead of a message */
    TT_HEAD_BYTES = TT_AHEAD_BYTES + sizeof(struct tt_frame),
    TT_CONTROL_BYTES = TT_ERROR_TEXT, /* the longest payload of a frame that is not data */
};

/* Which way a connection goes, for messages. */
struct tt_tcp_path {
    char text[96];      /* "10.0.0.2:4711 over eth0" */
    char interface[16]; /* of this host */
    bool loopback;
};

/* Bytes to send: head, whose last frame header takes the credits along, then body. */
struct tt_outgoing {
    uint8_t head[TT_HEAD_BYTES];
    uint32_t head_nbytes, body_nbytes;
    const char *body;         /* unchanged until sent */
    struct tt_tcp_link *link; /* whose reference the body is, NULL: nobody's */
    bool stamped;             /* with its credits */
};

struct tt_tcp {
    int watched; /* the owner's mark of what epoll reports */
    struct tt_tcp_end *end;
    int fd; /* -1: not open */
    struct tt_tcp_path path;
    struct tt_tls *tls; /* NULL: not encrypted */
    bool awaits_room;   /* epoll reports when it can be written */
    bool left;          /* the peer has said goodbye */
    int64_t silent_ns;  /* since when it has not answered; 0: not so */
    int broken;         /* errno of sending; what the peer sent before may still be read */

    /* incoming */
    uint32_t staged_begin, staged_end;
    bool in_frame; /* the header is complete */
    struct tt_frame frame;
    char *to; /* the payload's place; NULL: not chosen yet */
    size_t got;
    uint8_t staged[TT_STAGE_BYTES];
    char *control; /* payload of what is not data */

    /* outgoing: a ring */
    struct tt_outgoing *queue;
    uint32_t room, first, count;
    size_t sent; /* of the first one */

    /* large bodies sent from the caller's memory: the kernel says when it has done with one */
    bool zerocopy, zerocopy_always;
    uint32_t lent, returned; /* writes, since the beginning */
};

/* Options of every connection for data: a peer that does not answer for `timeout_ns` is gone. */
void tt_tcp_tune(int fd, int64_t timeout_ns);
/* Takes the connected fd over on success. */
TT_NODISCARD tt_status tt_tcp_open(struct tt_tcp *tcp, struct tt_tcp_end *end, int fd,
                                   const struct tt_tcp_path *path);
void tt_tcp_close(struct tt_tcp *tcp);

/* A place at the end of the queue, zeroed; NULL when it is full, which no message meets. */
struct tt_outgoing *tt_tcp_push(struct tt_tcp *tcp);
/* Sends what the kernel takes, and credits that are due. TT_IN_PROGRESS: not everything. Errors
 * show when reading. */
tt_status tt_tcp_flush(struct tt_tcp *tcp);
/* Reads what is there, at most once from the kernel. TT_IN_PROGRESS: nothing was. */
TT_NODISCARD tt_status tt_tcp_read(struct tt_tcp *tcp);
/* Whether the peer's kernel has been asked for timeout_ns and has not answered: it, or the way to
 * it, is gone. To be called now and then. */
bool tt_tcp_silent(struct tt_tcp *tcp, int64_t timeout_ns);
/* Whether the kernel has done with all memory that was lent to it. */
bool tt_tcp_returned(struct tt_tcp *tcp);
/* How much the peer's kernel has not acknowledged, 0: nothing, or the peer does not want it. */
size_t tt_tcp_unsent(const struct tt_tcp *tcp);

/* ---- The room ---------------------------------------------------------------------------------
 */

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
