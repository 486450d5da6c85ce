/* Inside of transport/wires.h: what its files share.
 *
 *   wires.c          opening, the wires of a rank, waiting, the end
 *   wires_plan.c     over which addresses two ranks are joined
 *   wires_connect.c  making a wire: dialling, accepting, knocking
 *   wires_frame.c    what the frames mean
 *   tcp/wires_link.c the links over sockets
 *   wires_dialling.c the links of a wire that does not stand yet
 *   wires_rdma.c     agreeing on RDMA instead
 *   tcp/tcp.c        one socket: frames in, frames out
 *   tcp/tls.c        the same, encrypted */
#ifndef TT_TRANSPORT_WIRE_H
#define TT_TRANSPORT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/acceptor.h"
#include "transport/rdma/rdma.h"
#include "transport/host/segment.h"
#include "transport/tcp/tcp.h"
#include "transport/wires.h"

enum {
    TT_MAX_SOCKETS = 16, /* of one pair of interfaces */
    TT_MAX_SLOTS = 64,
    TT_CONTROL_BYTES = TT_ERROR_TEXT, /* the longest payload of a frame that is not data */
};

/* What an epoll event is about; the first member of each. */
enum tt_watched { TT_WATCHED_ACCEPTOR, TT_WATCHED_DIAL, TT_WATCHED_TCP, TT_WATCHED_RDMA };

/* One way from this rank to the peer. */
struct tt_path {
    struct tt_address source, target; /* source: nbytes 0 where the kernel chooses; target: where
                                       * the peer listens */
    char interface[TT_INTERFACE_NAME], their_interface[TT_INTERFACE_NAME];
    uint32_t mtu, their_mtu; /* 0: unknown */
};

/* A message that has come, or is coming, but is not released. data NULL: nothing yet. */
struct tt_arrival {
    char *data;
    uint32_t nbytes;
    bool whole;
    uint64_t signature;
};

/* One end of a link over the wire's sockets. Message n travels over socket n modulo their number.
 */
struct tt_wire_link {
    struct tt_wire *wire;
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

/* Attempts to connect to the peer's listener, one after the other. */
struct tt_dial {
    enum tt_watched watched;
    struct tt_wire *wire;
    int fd; /* -1: no attempt is under way */
    enum { TT_DIAL_CONNECTING, TT_DIAL_GREETING, TT_DIAL_ANSWER } state;
    enum tt_hello_kind kind; /* LINK, or PROBE: only to see whether the peer lives */
    size_t received;         /* of the greeting or of the answer */
    int64_t next_ns;         /* when the next attempt may begin */
    int64_t deadline_ns;     /* of being connected */
    int64_t refused_ns;      /* since when nothing listens there; 0: not so */
    bool broke_off;          /* the peer has ended a handshake */
    struct tt_greeting greeting;
    struct tt_hello hello;
    struct tt_answer answer;
};

enum tt_wire_state {
    TT_WIRE_MAKING,   /* its sockets are being connected */
    TT_WIRE_AGREEING, /* on RDMA */
    TT_WIRE_UP,
    TT_WIRE_GONE, /* the peer has left, or a connection is lost: what has come still counts */
};

struct tt_wire {
    struct tt_wires *wires;
    struct tt_wire *following; /* in wires->first */
    int peer;
    enum tt_wire_state state;
    struct tt_dial dial; /* while making */
    int npaths, nsockets, nopen;
    struct tt_path paths[TT_MAX_INTERFACES];    /* of socket i: i modulo npaths */
    struct tt_tcp *sockets;                     /* [nsockets] */
    struct tt_wire_link links[2][TT_NCHANNELS]; /* incoming, outgoing */
    uint8_t owed[TT_NCHANNELS];                 /* credits not yet returned to the peer */
    uint64_t told; /* the latest collective that the peer knows this rank has entered */
    char failure[TT_ERROR_TEXT];    /* text that is being sent */
    char gone[TT_ERROR_TEXT];       /* why nothing more comes from the peer; "": it may */
    struct tt_agreement *agreement; /* NULL: none was tried */
    struct tt_rdma_wire *rdma;      /* NULL: data goes over the sockets */
    bool by_rdma;                   /* data goes over RDMA */
    bool is_settled;                /* its handles have the ops they keep */
};

struct tt_wires {
    enum tt_watched watched; /* the acceptor's mark */
    _Atomic int nby_sockets; /* wires whose data does not, or not yet, go over RDMA */

    /* immutable after start */
    struct tt_wires_config config;
    struct tt_fabric *fabric;       /* borrowed; NULL before start */
    struct tt_room_context context; /* what the rooms to other hosts know */
    struct tt_wires_info *infos;    /* [nranks] */
    int owed_max;                   /* credits returned at the latest when they are as many */
    int64_t timeout_ns;             /* TUTTI_NET_TIMEOUT_MS */
    bool encrypt;

    /* owner: the thread that runs this rank's work */
    struct tt_acceptor *acceptor;
    struct tt_rdma *rdma; /* NULL: there is none, or it may not be used */
    enum tt_watched rdma_watched;
    int epoll;
    struct tt_wire **table; /* [nranks]; NULL: not in use */
    struct tt_link *links;  /* [nranks][2][TT_NCHANNELS]: the handles, incoming and outgoing */
    struct tt_wire *first;
    int64_t listen_ns; /* when to look next who is silent */
    size_t nbytes;     /* of slots and queues */
};

/* wires_plan.c: fills paths; the same pairs on both ends. 0: the ranks cannot reach each other. */
int tt_wire_plan(struct tt_path *paths, const struct tt_wires_info *mine,
                 const struct tt_wires_info *theirs, bool lower);

/* wires.c: the wire to a peer, made if need be; NULL when that failed (the fabric knows why). */
struct tt_wire *tt_wire_to(struct tt_wires *wires, int peer);
/* Watches or changes what is watched; status < 0 fails the fabric. */
TT_NODISCARD tt_status tt_wire_watch(struct tt_wires *wires, int fd, void *what, bool writable,
                                     bool is_new);

/* wires_connect.c: gets ready to dial, or to knock after a while. */
void tt_wire_dial(struct tt_wire *wire);
TT_NODISCARD tt_status tt_dial_step(struct tt_dial *dial);
/* Attempts that are due, deadlines, knocks: to be called now and then while wires are made. */
TT_NODISCARD tt_status tt_wire_attend(struct tt_wire *wire);
tt_status tt_wire_on_hello(void *wires, struct tt_guest *guest);
void tt_dial_hang_up(struct tt_dial *dial);

/* The wire is made. */
TT_NODISCARD tt_status tt_wire_up(struct tt_wire *wire);

/* wires_rdma.c: all sockets stand; what the peer offers, and whether it has connected. */
TT_NODISCARD tt_status tt_wire_agree(struct tt_wire *wire);
TT_NODISCARD tt_status tt_wire_take_offer(struct tt_wire *wire, const char *bytes, uint32_t nbytes);
TT_NODISCARD tt_status tt_wire_take_ready(struct tt_wire *wire, bool ready);

/* wires_frame.c: a frame's header has come: nothing of it is believed before. */
TT_NODISCARD tt_status tt_wire_check(struct tt_tcp *tcp, const struct tt_frame *frame);
/* Where the payload of a frame that was checked goes. */
TT_NODISCARD tt_status tt_wire_place(struct tt_tcp *tcp, const struct tt_frame *frame, char **to);
/* The payload is whole, at `to`. */
TT_NODISCARD tt_status tt_wire_end(struct tt_tcp *tcp, const struct tt_frame *frame, char *to);
/* The connection has ended: error 0: closed by the peer. A failure only when what came cannot be
 * trusted: this rank may not need the peer any more. */
TT_NODISCARD tt_status tt_wire_lost(struct tt_tcp *tcp, int error);
/* Fails the fabric: this rank needs something of a peer that is gone. */
TT_NODISCARD tt_status tt_wire_missed(struct tt_wire *wire);
/* "10.0.0.2:4711 over eth0". */
void tt_wire_name_path(const struct tt_tcp *tcp, char *text, size_t size);
/* Writes a frame with this rank's record; returns its bytes. */
size_t tt_wire_put_record(const struct tt_fabric *fabric, uint8_t *to, uint32_t state);
/* The latest collective that this rank has entered. */
uint64_t tt_wire_entered(const struct tt_fabric *fabric);

/* wires_link.c */
void tt_wire_link_init(struct tt_wire_link *link, struct tt_wire *wire, int channel, bool outgoing);
extern const struct tt_link_ops tt_wire_link_ops;
/* The receiver's hint of a link over sockets (link.h). */
void tt_wire_expect(struct tt_wire_link *link, void *to, size_t nbytes, uint64_t signature);
/* The slot of message `number`; NULL without memory (the fabric knows). */
char *tt_wire_slot(struct tt_wire_link *link, uint64_t number);

/* wires_dialling.c: gives the handles to a peer their first ops, which make the wire when used. */
void tt_wire_handles_init(struct tt_wires *wires, int peer);
/* Gives the wire's handles the ops they keep: RDMA's (wire->by_rdma) or those of the sockets. Once;
 * later calls change nothing. */
void tt_wire_handles_settle(struct tt_wire *wire);

#endif
