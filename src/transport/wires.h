/* Wires: the connections of one rank of one communicator to the ranks of other hosts.
 *
 * A wire joins two ranks. It is made at its first use: the lower rank connects to the higher one's
 * listener over TCP, both prove that they know the communicator's key, and exchange which
 * transports they offer. Data then goes over RDMA where both have it, else over the sockets, of
 * which there may be several (interfaces, TUTTI_SOCKETS). The first socket also carries control:
 * what a rank has entered, failures, leaving. Nothing here blocks. One thread at a time (the
 * engine's `busy`). */
#ifndef TT_TRANSPORT_WIRES_H
#define TT_TRANSPORT_WIRES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hosts.h"
#include "base/pcie.h"
#include "base/status.h"
#include "net/interface.h"
#include "transport/link.h"
#include "transport/room.h"

struct tt_wires;

/* Where a rank listens. Plain data, travels through bootstrap. */
struct tt_wire_address {
    struct tt_address address; /* with the listener's port */
    char interface[TT_INTERFACE_NAME];
    uint32_t prefix;    /* bits of the subnet */
    uint32_t mtu, mbit; /* as the kernel says; 0: unknown */
};

/* What the ranks tell each other when they are on more than one host. Plain data. */
struct tt_wires_info {
    int32_t status; /* of opening; not TT_OK: the rest does not count */
    int32_t naddresses;
    struct tt_wire_address addresses[TT_MAX_INTERFACES]; /* the first is preferred */
    struct tt_address loopback; /* for ranks in the same network namespace; nbytes 0: none */
    uint64_t network_id;        /* tt_network_id(): equal means same network namespace */
    uint32_t nsockets;          /* TUTTI_SOCKETS; a pair of ranks takes the smaller number */
    uint32_t encrypt;           /* TUTTI_ENCRYPT */
    uint32_t rooms;             /* transports that may be used, one bit each as in tt_transports */
};

struct tt_wires_config {
    uint8_t key[32]; /* of the communicator */
    size_t nslots, slot_bytes;
    uint32_t allowed;            /* TUTTI_TRANSPORT, one bit each as in tt_transports */
    uint64_t records_a_key;      /* of tt_tls_open; 0: as many as are safe */
    char gpu_path[TT_PCIE_PATH]; /* tt_pcie_path of the rank's GPU; "": none, or unknown */
};

/* Opens the listener on the chosen interfaces (TUTTI_SOCKET_INTERFACE, TUTTI_SOCKET_FAMILY) and
 * fills info. TT_ERR_ARGUMENT lists the interfaces there are when none is as asked. */
TT_NODISCARD tt_status tt_wires_open(struct tt_wires **wires, const struct tt_wires_config *config,
                                     struct tt_wires_info *info);
/* What one rank tells another of itself. Travels over the wires. */
struct tt_wire_record {
    uint64_t done, seq, count, algorithm;
    uint32_t state, collective, type, op;
    int32_t root;
    uint32_t replays; /* the lower half of struct tt_rank_record's */
};
_Static_assert(sizeof(struct tt_wire_record) == 56, "no padding on the wire");

/* The fabric as the wires see it, and what they report to it beyond struct tt_room_events. The
 * functions get the context's owner. */
struct tt_wires_client {
    const struct tt_room_context *context;
    const struct tt_hosts *hosts;
    const _Atomic bool *aborted; /* by this rank */
    const _Atomic bool *hurries; /* what this rank has sent may be of calls that failed */
    /* TT_OK, or the failure that this rank's calls have: the communicator's, or its own abort (the
     * text as this thread's last error). */
    tt_status (*check)(void *owner);
    /* TT_OK, or the communicator's failure, which all ranks learn. *text: if not NULL, its text. */
    tt_status (*failure)(const void *owner, const char **text);
    /* entered: the latest collective that this rank has entered. record: fills all fields of its
     * record but the state. */
    uint64_t (*entered)(const void *owner);
    void (*record)(const void *owner, struct tt_wire_record *record);
    /* on_record: a record of a peer has come. on_left: the record that announces its end has come
     * over all its connections. */
    void (*on_record)(void *owner, int peer, const struct tt_wire_record *record);
    void (*on_left)(void *owner, int peer, uint32_t state);
    /* Adds the ranks of this host that have died to a text about one of another host. */
    void (*add_dead)(const void *owner, char *text, size_t size);
    /* A rank is gone, as this rank has found, or a peer has told. The number of the report, less
     * than TT_MOST_GONE; -1: it is not kept. */
    int (*on_gone)(void *owner, int rank, const char *text);
    /* This rank waits for a peer that has left: fails, and says why. TT_IN_PROGRESS: other ranks
     * may still say so. */
    tt_status (*on_missed_left)(void *owner, int peer);
    /* Why this rank leaves without a failure of this communicator, "": no reason is known. The text
     * stays until the wires are destroyed. */
    const char *(*reason)(void *owner);
};

/* Takes the info of all ranks (copied) and the client (borrowed). TT_ERR_SYSTEM when some rank of
 * another host cannot be reached at all (no common address family, only loopback): names it. */
TT_NODISCARD tt_status tt_wires_start(struct tt_wires *wires, const struct tt_wires_client *client,
                                      const struct tt_wires_info *infos);
/* Announces the end of this rank to all peers that are connected, behind what was sent, without
 * waiting: to each once. After that nothing may be sent but what is queued. */
void tt_wires_announce(struct tt_wires *wires);
/* Announces the end of this rank to all peers, or the communicator's failure also to hosts with
 * which no rank of this one is connected, and waits (bounded) until the peers' kernels have
 * acknowledged all bytes: then the process may end. It waits for TUTTI_NET_TIMEOUT_MS, but after a
 * failure for a second only; while this rank hurries, for a second in which nothing is
 * acknowledged. */
void tt_wires_leave(struct tt_wires *wires);
/* tt_wires_leave, then closes and frees, and lets memory of GPUs go. NULL is allowed. */
void tt_wires_destroy(struct tt_wires *wires);

/* This rank's end of the link to or from a rank of another host: the same pointer from start to
 * destroy. The wire is made at the first use of one of its links. Until the wire is connected,
 * slot() is NULL and peek() is TT_IN_PROGRESS; both advance the connecting. */
struct tt_link *tt_wires_tx(const struct tt_wires *wires, int peer, int channel);
struct tt_link *tt_wires_rx(const struct tt_wires *wires, int peer, int channel);

/* Ends the use of callers' buffers: copies the messages that were published by reference and are
 * not sent yet. */
void tt_wires_give_back(struct tt_wires *wires);

/* Pages of a GPU that the devices of a transport use in place. Owned by who registers them. */
struct tt_wires_gpu {
    /* Called by tt_wires_destroy: devices use the pages no more. Set by the owner. */
    void (*let_go)(struct tt_wires_gpu *registered);
    /* owner: the wires */
    int transport; /* of tt_transports */
    void *taken;
    struct tt_wires_gpu *next;
};
/* Whether this rank has devices that use memory of GPUs in place, where it can be registered. */
bool tt_wires_may_use_gpus(const struct tt_wires *wires);
/* Lets devices use pages of a GPU in place (link.h), until tt_wires_forget_gpu or tt_wires_destroy;
 * the descriptor stays the caller's. An error, with the reason: they cannot, and *registered is not
 * kept; USAGE: so it is with all memory of GPUs. */
TT_NODISCARD tt_status tt_wires_register_gpu(struct tt_wires *wires, const struct tt_dmabuf *pages,
                                             struct tt_wires_gpu *registered);
/* No link has used the pages. */
void tt_wires_forget_gpu(struct tt_wires *wires, const struct tt_wires_gpu *registered);
/* Copies between memory of the host and registered pages, by a device; waits until the bytes are
 * there, and a kernel that hears of them sees them. An error fails the fabric. */
TT_NODISCARD tt_status tt_wires_copy_gpu(struct tt_wires *wires, bool to_gpu, void *gpu, void *host,
                                         size_t nbytes);

/* Bounded work on whatever is ready: accepts, connects, reads, writes. Cheap when nothing is. A
 * failure fails the fabric (through the events of room.h, naming peer, host, address, interface)
 * and is returned. */
TT_NODISCARD tt_status tt_wires_progress(struct tt_wires *wires);
/* Whether all ranks have a transport in common whose devices move the data: two ranks of different
 * hosts then use that, if its devices reach one another. The same on every rank. */
bool tt_wires_all_have_devices(const struct tt_wires *wires);
/* Whether data of this host may go over sockets, so that the kernel needs a core to move it: not
 * where there is RDMA and all wires of this rank use it. Any thread. */
bool tt_wires_by_sockets(const struct tt_wires *wires);
/* Sleeps until something can be done here, at most timeout_us. */
void tt_wires_wait(struct tt_wires *wires, int64_t timeout_us);
/* Whether every link of collectives is flushed (link.h). Messages of point to point may be left,
 * and with them credits: their receiver may read nothing for long. */
bool tt_wires_flushed(struct tt_wires *wires);

/* Sends this rank's record (what it has entered and done) over all connected wires.
 * Called now and then while waiting, so that peers can name the collective this rank is in. False:
 * not over those on which something waits to be sent. */
bool tt_wires_send_record(struct tt_wires *wires);
/* Sends the communicator's failure over all connected wires, once, without waiting. */
void tt_wires_send_failure(struct tt_wires *wires, int code, const char *text);
/* Tells all connected peers that a rank is gone, each once; the text stays. number: of on_gone. */
void tt_wires_send_gone(struct tt_wires *wires, int number, int rank, const char *text);
/* tt_wires_progress while this rank makes no call: a peer that cannot be reached fails nothing.
 * TT_IN_PROGRESS: to be called again soon, as a connection is being made. */
TT_NODISCARD tt_status tt_wires_listen(struct tt_wires *wires);

/* The ranks that a long wait may be for. */
struct tt_missing {
    bool (*is_missing)(const void *arg, int rank);
    const void *arg;
};
/* Seeks those of them that are gone, and reports each (on_gone). Called again and again during a
 * long wait; asks two ranks a second, and pauses when it has asked all of them: 0.5 s, twice as
 * long each time, at most 10 s. Whether the rank that is asked is not known to live: it answers
 * soon. */
bool tt_wires_seek_gone(struct tt_wires *wires, const struct tt_missing *missing);
/* The peer may be gone, as this rank has just heard: it is asked next, and the pauses are short
 * again. */
void tt_wires_seek_first(struct tt_wires *wires, int peer);
/* Whether this rank has found that the peer is gone: by seeking it, because it refuses a connection
 * that is being made, or because one has ended, and the peer had not announced its end. */
bool tt_wires_has_found_gone(const struct tt_wires *wires, int peer);

/* The communicator has failed, and no call of this rank runs that would answer its peers.
 * begin_telling: dials a rank of each other host, at most 64 hosts, with which this rank has no
 * connection, for a second. tell: called again and again, passes the failure on over connections
 * that were made meanwhile, and to ranks that connect. */
void tt_wires_begin_telling(struct tt_wires *wires);
void tt_wires_tell(struct tt_wires *wires);

/* From now on, or no longer: to look at a link of a rank that is gone fails nothing; its slot() is
 * NULL, its peek() TT_IN_PROGRESS. For who looks although no call may need that rank. */
void tt_wires_spare(struct tt_wires *wires, bool spares);
/* Whether tt_wires_leave has begun: this rank sends nothing more. */
bool tt_wires_have_left(const struct tt_wires *wires);
/* Why a peer is gone whose connection has ended without its leaving; NULL: there is none. */
const char *tt_wires_lost(const struct tt_wires *wires);
/* Adds the peers whose connection has ended without their leaving to a text about another rank: ";
 * rank 1 (host h, pid 77) is gone, too". */
void tt_wires_add_lost(const struct tt_wires *wires, char *text, size_t size);
/* Why this peer is gone, if its connection has ended without its leaving; else NULL. */
const char *tt_wires_lost_peer(const struct tt_wires *wires, int peer);
/* tt_wires_lost_peer, for a failure that names the peer: NULL while others may yet say why it has
 * left. */
const char *tt_wires_missed_peer(const struct tt_wires *wires, int peer);
/* Why a peer that has not left is gone, where this process has closed the connection; NULL: there
 * is none. */
const char *tt_wires_closed_here(const struct tt_wires *wires);
/* The reason for which a peer has left; "": it gave none. */
const char *tt_wires_reason(const struct tt_wires *wires, int peer);
/* Whether other ranks may yet report a failure to this one. */
bool tt_wires_may_explain(const struct tt_wires *wires);

/* "tcp eth0, eth1 (2 sockets), encrypted", "rdma mlx5_0/1, not encrypted", "not connected yet, will
 * be encrypted". Writes into text. */
void tt_wires_describe(const struct tt_wires *wires, int peer, char *text, size_t size);
/* Bytes of memory held (buffers of all wires). */
size_t tt_wires_bytes(const struct tt_wires *wires);

#endif
