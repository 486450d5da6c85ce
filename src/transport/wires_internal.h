/* Shared by the files behind transport/wires.h only: one wire, its control frames, its dialling.
 *
 *   wires_open.c     opening: the listener, the rooms and their reports
 *   wires_rank.c     the wires of a rank: creating and driving them, waiting
 *   wires_leave.c    records, failures and the end of a rank, sent over all wires; closing
 *   wires_routes.c   over which addresses two ranks are joined; connecting over one of them
 *   wires_detour.c   over which others, when an interface leads nowhere
 *   wires_connect.c  connecting a wire: dialling, accepting, probing
 *   wires_frame.c    control frames: records, failures, offers
 *   wires_dialling.c the links of a wire that is not connected yet
 *   wires_seek.c     seeking ranks that are gone
 *   wires_agree.c    agreeing on the transport that carries the data
 *
 * The sockets are those of the TCP room (transport/tcp/tcp.h), which carries data over them.
 */
#ifndef TT_TRANSPORT_WIRES_INTERNAL_H
#define TT_TRANSPORT_WIRES_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/private_epoll.h"
#include "net/acceptor.h"
#include "transport/host/segment.h"
#include "transport/room.h"
#include "transport/tcp/tcp.h"
#include "transport/wires.h"

enum { TT_MAX_SOCKETS = 16 /* of one pair of interfaces */, TT_EVENTS_A_WAKE = 16 };

/* Frames that are not data (transport/tcp/tcp.h). */
enum tt_control_kind {
    TT_FRAME_RECORD =
        TT_FRAME_CONTROL, /* what the sender has entered and done, or that it leaves */
    TT_FRAME_FAILURE,     /* the communicator has failed: `number` is the code, then the text */
    TT_FRAME_OFFER,       /* of the transport that `channel` numbers (tt_transports); empty: none */
    TT_FRAME_READY,       /* of the same: `number` says whether it is connected */
    TT_FRAME_REASON,      /* text: why the sender will leave (transport/reason.h) */
    TT_FRAME_GONE,        /* text: why rank `number` is gone */
};

_Static_assert(sizeof(struct tt_frame) + sizeof(struct tt_wire_record) <= TT_AHEAD_BYTES,
               "a record goes ahead of a message");

/* What an epoll event is about; the first member of each thing that is watched. */
enum tt_watched { TT_WATCHED_ACCEPTOR, TT_WATCHED_DIAL, TT_WATCHED_TCP, TT_WATCHED_ROOM };

/* A pair of addresses, of this rank and of the peer, between which sockets are connected. */
struct tt_route {
    struct tt_address source, target; /* source: nbytes 0 where the kernel chooses; target: where
                                       * the peer listens */
    char interface[TT_INTERFACE_NAME], their_interface[TT_INTERFACE_NAME];
    uint32_t mtu, their_mtu; /* 0: unknown */
    uint32_t mbit;           /* of the slower end; 0: one is unknown */
};

/* Attempts to connect to the peer's listener, one after the other. */
struct tt_dial {
    enum tt_watched watched;
    struct tt_wire *wire;
    int fd; /* -1: no attempt is under way */
    enum { TT_DIAL_CONNECTING, TT_DIAL_GREETING, TT_DIAL_ANSWER } state;
    enum tt_hello_kind kind; /* LINK, or PROBE: only asks whether the peer is alive */
    size_t received;         /* of the greeting or of the answer */
    int64_t next_ns;         /* when the next attempt may begin */
    int64_t route_ns;        /* when another route is tried, if there is one */
    int64_t deadline_ns;     /* of being connected */
    int64_t refused_ns;      /* since when the peer refuses connections; 0: it does not */
    bool broke_off;          /* the peer has ended a handshake */
    bool is_unanswered;      /* a hello was given up that the peer may have accepted */
    int64_t unresponsive_ns; /* since when the peer's kernel does not answer in one; 0: it does */
    struct tt_greeting greeting;
    struct tt_hello hello;
    struct tt_answer answer;
};

enum tt_wire_state {
    TT_WIRE_MAKING,   /* the sockets are being connected */
    TT_WIRE_AGREEING, /* both ends are choosing the transport for the data */
    TT_WIRE_UP,
    TT_WIRE_GONE, /* the peer has left, or a connection is lost: what has come still counts */
};

struct tt_wire {
    struct tt_wires *wires;
    struct tt_wire *following; /* in wires->first */
    int peer;
    enum tt_wire_state state;
    struct tt_dial dial; /* while making */
    int nroutes;
    struct tt_route routes[TT_MAX_INTERFACES]; /* of socket i: i modulo nroutes */
    int ndetours;                              /* pairs of addresses that were tried instead */
    struct tt_tcp_end tcp;                     /* its sockets, and the links over them */
    uint64_t told; /* the latest collective that the peer knows this rank has entered */
    char failure[TT_ERROR_TEXT]; /* text that is being sent */
    bool is_told;                /* the peer was answered with the failure */
    uint32_t knows_gone; /* reports of ranks that are gone, one bit each: the peer was told of them,
                          * or has told them */
    char gone[TT_ERROR_TEXT];        /* why the peer sends nothing more; "": it may send */
    bool is_closed_here;             /* gone: this process has closed a socket of the wire */
    bool is_lost;                    /* it has ended, and the peer had not announced its end */
    int64_t unheard_ns;              /* lost: since when, where the peer may not have known of the
                                      * connection; else 0 */
    char *reason;                    /* why the peer leaves; NULL: it has said nothing; owned */
    int nannounced;                  /* the end of this rank was announced over so many sockets */
    struct tt_agreement *agreement;  /* NULL: no transport was tried */
    int candidate;                   /* of tt_transports: the transport that is being tried */
    uint32_t tried;                  /* of tt_transports, one bit each */
    const struct tt_transport *room; /* the candidate */
    void *end;                       /* the candidate's end with this peer; NULL: not made */
    uint32_t peer_state; /* enum tt_rank_state: the last one that the peer sent; 0: none */
    bool is_agreed;      /* room and end carry the data */
    bool is_settled;     /* its handles have their final ops */
};

/* This rank's use of a transport. */
struct tt_transport_use {
    enum tt_watched watched;
    const struct tt_transport *room;
    void *self; /* NULL: not allowed, or not available */
};

/* A rank that finds more of them gone is more likely one whose connections the network refuses. */
enum { TT_MOST_FOUND = 4 };

/* The search for ranks that are gone: at most one attempt to connect at a time. */
struct tt_seek {
    int fd;                   /* -1: no attempt is under way */
    int peer;                 /* the rank that is asked, or was last */
    int next;                 /* where the search goes on */
    int nfound;               /* ranks that were found to be gone */
    int found[TT_MOST_FOUND]; /* which */
    int nrefused;             /* attempts in a row that `peer` has refused */
    int nasked, nmissing;     /* ranks that were asked since the last pause, of so many */
    unsigned nattempts;       /* also chooses the route */
    struct tt_route route;
    int64_t next_ns;   /* when the next attempt may begin, or the one under way is given up */
    int64_t pause_ns;  /* when all missing ranks have been asked */
    int64_t called_ns; /* when the search was last gone on with */
};

struct tt_wires {
    enum tt_watched watched; /* the acceptor's mark */
    _Atomic int nby_kernel;  /* wires whose data the kernel moves, or may move */

    /* immutable after start */
    struct tt_wires_config config;
    const struct tt_wires_client *client; /* borrowed; NULL before start, as is up */
    const struct tt_room_context *up;     /* the client's */
    struct tt_room_context context;       /* what the rooms to other hosts know */
    struct tt_wires_info *infos;          /* [nranks] */
    int64_t timeout_ns;                   /* TUTTI_NET_TIMEOUT_MS */
    bool encrypt;

    /* owner: the thread that runs this rank's work */
    struct tt_acceptor *acceptor;
    struct tt_tcp_room tcp;
    struct tt_transport_use uses[TT_MAX_TRANSPORTS]; /* as in tt_transports */
    struct tt_wires_gpu *gpus;                       /* linked by next */
    bool has_device;        /* a transport that may be used moves data without the kernel */
    struct tt_epoll epoll;  /* its marks: what begins with an enum tt_watched */
    struct tt_wire **table; /* [nranks]; NULL: not in use */
    struct tt_link *links;  /* [nranks][2][nchannels]: the handles, incoming and outgoing */
    struct tt_wire *first;
    int nmade;              /* wires all of whose sockets have been connected */
    int64_t check_ns;       /* when to look next for unresponsive peers */
    int64_t dials_until_ns; /* after a failure: until when this rank connects to tell of it */
    bool has_left;          /* this rank tells nothing more */
    bool only_listens;      /* tt_wires_listen: connections that fail are no failure */
    struct tt_seek seek;
    bool spares;   /* tt_wires_spare */
    size_t nbytes; /* of slots and queues */
};

/* Whether the rank is on this host. */
static inline bool tt_wire_is_local(const struct tt_wires *wires, int rank)
{
    const struct tt_hosts *hosts = wires->client->hosts;
    return hosts->host_of[rank] == hosts->host_of[wires->up->rank];
}

/* wires_routes.c: fills routes; the same pairs on both ends. Returns their number; 0: the
 * ranks cannot reach each other. */
int tt_wire_routes(struct tt_route *routes, const struct tt_wires_info *mine,
                   const struct tt_wires_info *theirs, bool lower);

/* The number-th of all pairs of addresses over which two ranks may connect, those of one subnet
 * first. False: there are not so many. */
bool tt_wire_any_route(struct tt_route *route, const struct tt_wires_info *mine,
                       const struct tt_wires_info *theirs, int number);

/* Begins to connect *fd over the route; -1: there is no socket. Returns 0 or an errno, and what has
 * failed. */
int tt_route_connect(const struct tt_route *route, int64_t timeout_ns, int *fd, const char **what);
/* How a connection that is not under way any more has ended: 0, or an errno. */
int tt_route_connect_error(int fd);
#define TT_NOTHING_LISTENS                                                                         \
    "nothing listens there any more: it has died, or destroyed or aborted its communicator"
/* "rank 0 cannot reach rank 2 (host h, pid 78) at 192.0.2.2:7777 (eth0) over eth1: " and why. */
void tt_route_describe_failure(const struct tt_route *route, const struct tt_room_context *up,
                               int peer, const char *why, char *text, size_t size);

/* wires_detour.c: takes another pair of addresses for a route over which nothing connects, of
 * interfaces that were not found to lead nowhere. False: there is none left. */
bool tt_wire_detour(struct tt_wire *wire, int index);
bool tt_wire_has_detour(const struct tt_wire *wire, int index);
/* Takes others for those routes whose interface leads nowhere, as this process has found. */
void tt_wire_avoid(struct tt_wire *wire);
/* What this process finds out about an interface of its host: something has connected over it, or
 * nothing does. */
void tt_route_works(const struct tt_route *route);
void tt_route_fails(const struct tt_route *route);
/* The route of a connection that the peer has made, by its addresses; the index-th if they are none
 * of those that the ranks told each other. */
struct tt_route tt_wire_route_of(const struct tt_wire *wire, int fd, int index);

/* wires_rank.c: the wire to a peer, created if there is none; NULL: out of memory, which has failed
 * the fabric. */
struct tt_wire *tt_wire_to(struct tt_wires *wires, int peer);
/* Enters `fd` into the epoll instance, or changes its events. A failure fails the fabric. */
TT_NODISCARD tt_status tt_wire_watch(struct tt_wires *wires, int fd, void *what, bool writable,
                                     bool is_new);
/* Accepts connections, and advances the handshakes of those that have been accepted. */
TT_NODISCARD tt_status tt_wires_serve_pending(struct tt_wires *wires);

/* wires_connect.c: prepares to dial (lower rank), or to probe after a while (higher rank). */
void tt_wire_dial(struct tt_wire *wire);
TT_NODISCARD tt_status tt_dial_step(struct tt_dial *dial);
/* Gives up a handshake in which the peer's kernel does not answer any more. Called now and then. */
TT_NODISCARD tt_status tt_dial_check(struct tt_dial *dial);
/* Begins attempts and probes that are due, and checks deadlines. Called now and then while the wire
 * is being connected. */
TT_NODISCARD tt_status tt_wire_attend(struct tt_wire *wire);
tt_status tt_wire_on_hello(void *wires, struct tt_pending_connection *pending);
void tt_dial_hang_up(struct tt_dial *dial);
/* How long this rank waits for the cause when a peer is gone with which it had no connection: that
 * peer may have left because of a failure, which others may still report. */
int64_t tt_wires_explain_ns(const struct tt_wires *wires);
/* wires_seek.c: ends the attempt that is under way. */
void tt_seek_hang_up(struct tt_seek *seek);

/* Connects with ranks of other hosts, which may know why a peer is gone. */
void tt_wires_ask_others(struct tt_wires *wires);

/* Connects with a rank of each other host, at most `most` hosts, where no rank of that host is
 * connected or being connected with yet. */
void tt_wires_call_hosts(struct tt_wires *wires, int most);

/* The wire is connected and agreed: data may flow. */
TT_NODISCARD tt_status tt_wire_up(struct tt_wire *wire);

/* wires_agree.c: agree: all sockets are connected. take_offer, take_ready: the peer has sent OFFER
 * or READY. */
TT_NODISCARD tt_status tt_wire_agree(struct tt_wire *wire);
TT_NODISCARD tt_status tt_wire_take_offer(struct tt_wire *wire, int room, const char *bytes,
                                          uint32_t nbytes);
TT_NODISCARD tt_status tt_wire_take_ready(struct tt_wire *wire, int room, bool ready);

/* wires_frame.c: control over the sockets of a wire. */
extern const struct tt_tcp_owner tt_wire_owner;
/* The connection has ended; error 0: closed by the peer. Fails the fabric only for forged data
 * (EPROTO): otherwise this rank may not need the peer any more. */
TT_NODISCARD tt_status tt_wire_lost(void *wire, struct tt_tcp *tcp, int error);
/* Reads what has come over all sockets, the first one first: that the peer leaves, or is gone;
 * until the communicator fails. Takes a second at most. */
void tt_wire_look(struct tt_wire *wire);
/* Fails the fabric: this rank waits for a peer that is gone. */
TT_NODISCARD tt_status tt_wire_missed(struct tt_wire *wire);
/* Writes a frame with this rank's record; returns its bytes. */
size_t tt_wire_put_record(const struct tt_wires *wires, uint8_t *to, uint32_t state);
/* The latest collective that this rank has entered. */
uint64_t tt_wire_entered(const struct tt_wires *wires);

/* wires_dialling.c: gives the handles of a peer their first ops, which create the wire when used.
 */
void tt_wire_handles_init(struct tt_wires *wires, int peer);
/* Gives the wire's handles their final ops: of the transport agreed on, else of the sockets. Later
 * calls change nothing. */
void tt_wire_handles_settle(struct tt_wire *wire);

#endif
