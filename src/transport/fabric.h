/* The fabric: all that one rank of one communicator needs to reach the others: the segment of its
 * host, its ends of the links, the state of its peers, and the communicator's first failure. */
#ifndef TT_TRANSPORT_FABRIC_H
#define TT_TRANSPORT_FABRIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hosts.h"
#include "base/status.h"
#include "transport/host/host.h"
#include "transport/host/watch.h"
#include "transport/link.h"
#include "transport/peers.h"
#include "transport/reason.h"
#include "transport/room.h"
#include "transport/wires.h"

/* Of a communicator of ranks with a GPU, whose kernels may run their part of a call, and ranks
 * without one, whose part the host runs. A rank does not know which of the two another rank does:
 * so all calls are bound alike, on memory of the host too. */
struct tt_mixed_ranks {
    bool is_mixed;
    int nparts;        /* parts of a block at most; 0: not agreed on yet */
    size_t slot_bytes; /* of the smallest slot of any rank */
};

/* Owned by the communicator, freed by tt_fabric_destroy. */
struct tt_fabric {
    /* immutable after create */
    int rank, nranks;
    struct tt_peer_info *peers; /* [nranks] */
    struct tt_hosts *hosts;
    int local, nlocal;              /* place among, and number of, the ranks of this host */
    struct tt_room_context context; /* this rank, for the rooms */
    struct tt_host_room host;       /* the ranks of this host */
    struct tt_segment *segment;     /* of the ranks of this host, by place; owned by `host` */
    struct tt_wires_client client;  /* this rank, for the wires */
    struct tt_wires *wires;         /* to the ranks of other hosts; NULL: there are none */
    struct tt_rank_record *record;  /* this rank's, in the segment */
    bool oversubscribed;            /* this host: waiting ranks give up the core */
    bool some_oversubscribed;       /* some host */
    bool all_have_fast_rep_movsb;   /* the CPUs of all ranks */
    bool spares_core;      /* this host has a core for each rank beside those that compute */
    bool shares_process;   /* with another rank */
    double ranks_per_core; /* tt_peers_per_core of the host where it is most */
    struct tt_pid_watch **watches; /* [nlocal]; NULL: of this process */

    /* owner: the thread that runs this rank's work */
    struct tt_rank_record *remote; /* [nranks], with more than one host: the records of the ranks of
                                    * other hosts, as the wires received them */
    struct tt_entry *entries;      /* [nranks][nentries]: the calls that these ranks have entered */
    size_t nentries;

    bool told;                       /* the communicator's failure was sent to other hosts */
    struct tt_failure *own_abort;    /* the failure of this rank's calls once it has aborted */
    char own_failure[TT_ERROR_TEXT]; /* the failure's text with what this rank adds */
    char reason[TT_REASON_TEXT];     /* for which this rank leaves; "": none is known */
    bool exits;                      /* this rank leaves because its process exits */
    int64_t begun_ns;                /* when it was made: earlier failures are no reason */
    struct tt_reason_place place;    /* where it says that its process knows of a failure */
    uint32_t followed; /* reports of ranks that are gone, one bit each, that this rank knows of */
    int64_t missed_ns; /* since when it waits for a rank that has left; 0: it does not */
    /* A rank that has died may have done its part of a collective, and a kernel of this rank not
     * have seen that yet: how long it has for that, 0 without kernels; and since when it is so, 0:
     * it is not, of which rank and collective */
    int64_t death_grace_ns, died_ns;
    int died;
    uint64_t died_in;
    bool bridged;                /* kernels of this rank reach ranks of other hosts */
    struct tt_mixed_ranks mixed; /* immutable after init */

    /* atomic */
    /* The failure that this rank's calls see: the communicator's, in the segment, or own_abort */
    _Atomic(struct tt_failure *) seen;
    _Atomic bool aborted; /* by this rank */
    _Atomic bool logged;  /* this rank has logged the communicator's failure */
    _Atomic bool heard;   /* this rank knows of it, and its process says so (tt_reason_tell) */
    _Atomic bool hurries; /* what this rank has sent may be of calls that failed (wires.h) */
    /* Collectives of CUDA graphs whose messages to other hosts are on their way; writer: who has
     * entered the engine */
    _Atomic uint64_t replays_sent;
    _Atomic bool has_own_failure;                             /* own_failure is written */
    _Atomic uint64_t nmessages, nbytes_copied, nbytes_direct; /* counters; one writer at a time */
};

/* Whether they are of ranks of one communicator. */
static inline bool tt_fabric_is_same(const struct tt_fabric *a, const struct tt_fabric *b)
{
    return a->peers[0].secret == b->peers[0].secret;
}

/* Creation, in steps between which the caller exchanges statuses, so that all ranks fail together:
 * 1. begin: takes over infos (copied) and fd_socket; the host's first rank creates the segment
 * and passes it on, as far as that is possible at once.
 * 2. attach: passes it to the others, or finds or receives it; enters this rank's record. The ranks
 * of several processes do this at the same time.
 * 3. finish: after all have attached: probes what is possible between peers. */
TT_NODISCARD tt_status tt_fabric_begin(struct tt_fabric **fabric, const struct tt_peer_info *infos,
                                       int rank, int nranks, int fd_socket,
                                       const struct tt_fabric_config *config);
TT_NODISCARD tt_status tt_fabric_attach(struct tt_fabric *fabric, int64_t deadline_ns);
void tt_fabric_finish(struct tt_fabric *fabric);
/* With ranks on other hosts, after attach: everyone's infos to the wires, which stay the caller's
 * on failure. */
TT_NODISCARD tt_status tt_fabric_start_wires(struct tt_fabric *fabric, struct tt_wires *wires,
                                             const struct tt_wires_info *infos);
/* Marks this rank as having left, or aborted: ranks that wait for it fail. */
void tt_fabric_leave(struct tt_fabric *fabric);
/* This rank aborts: its own calls fail, and ranks that wait for it. The communicator does not fail
 * for the others, so they still get what this rank has published; they read its memory no more. By
 * the thread that runs this rank's work. Changes nothing where the communicator has failed. */
void tt_fabric_abort(struct tt_fabric *fabric, const char *text);
/* While this rank has aborted and waits: tells ranks of other hosts that have connected since. With
 * wires only; by the thread that runs this rank's work. */
void tt_fabric_tell_abort(struct tt_fabric *fabric);
/* tt_fabric_leave, then ends the connections with other hosts, which may wait for these
 * (TUTTI_NET_TIMEOUT_MS) until another thread sets `aborted`. NULL is allowed. */
void tt_fabric_disconnect(struct tt_fabric *fabric);
/* tt_fabric_disconnect, then unmaps and frees. NULL is allowed. */
void tt_fabric_destroy(struct tt_fabric *fabric);
/* In a child made by fork, of its parent's fabric: unmaps and frees, and changes nothing that the
 * parent shares with other ranks. The wires and the watches stay. */
void tt_fabric_free_inherited(struct tt_fabric *fabric);

/* Bytes of memory held, with the wires and this rank's share of the segment. By the thread that
 * runs this rank's work. */
size_t tt_fabric_bytes(const struct tt_fabric *fabric);

/* This rank's ends: never NULL, the same pointers as long as the fabric lives (link.h). */
struct tt_link *tt_fabric_tx(struct tt_fabric *fabric, int peer, int channel);
struct tt_link *tt_fabric_rx(struct tt_fabric *fabric, int peer, int channel);

/* How links address a buffer of this rank. */
void tt_fabric_find_memory(struct tt_fabric *fabric, const void *data, size_t nbytes,
                           struct tt_memory *memory);
/* Shows the buffer's window, if any, to a peer that can map it. */
void tt_fabric_introduce(struct tt_fabric *fabric, int peer, const struct tt_memory *memory);

/* Collectives use the channels before this one. */
static inline int tt_fabric_p2p_channel(const struct tt_fabric *fabric)
{
    return fabric->context.nchannels - 1;
}
/* Number of channels that collectives use. */
static inline int tt_fabric_nchannels(const struct tt_fabric *fabric)
{
    return fabric->context.nchannels - 1 - fabric->context.nbridges;
}
/* Of bridges between GPUs; -1: there is none. */
static inline int tt_fabric_bridge_channel(const struct tt_fabric *fabric)
{
    return fabric->context.nbridges ? fabric->context.nchannels - 2 : -1;
}

/* The rank at a place of this host. */
static inline int tt_fabric_rank_at(const struct tt_fabric *fabric, int local)
{
    const struct tt_hosts *hosts = fabric->hosts;
    return hosts->ranks[hosts->begin[hosts->host_of[fabric->rank]] + local];
}
/* Whether the rank is on this host. */
static inline bool tt_fabric_is_local(const struct tt_fabric *fabric, int rank)
{
    return fabric->hosts->host_of[rank] == fabric->hosts->host_of[fabric->rank];
}
/* What this rank tells ranks of other hosts of its replays, like `replays` of its record: for them
 * a collective has ended when its messages are on their way, because this process may end before.
 */
uint64_t tt_fabric_told_replays(const struct tt_fabric *fabric);
/* Whether some ranks have a GPU, others have none, and kernels may reach all of them by bridges. */
bool tt_fabric_may_mix(const struct tt_fabric *fabric);
/* Whether one of this rank and the peer has a GPU, and kernels of that one may use the links of the
 * two: nothing goes by reference there. */
static inline bool tt_fabric_is_relayed(const struct tt_fabric *fabric, int peer)
{
    return fabric->mixed.is_mixed &&
           (fabric->peers[peer].gpu < 0) != (fabric->peers[fabric->rank].gpu < 0);
}
/* The record of a rank: in the segment of this host, or the last one that came over the wire. */
struct tt_rank_record *tt_fabric_record(const struct tt_fabric *fabric, int rank);
/* The place of the rank's entry of collective `seq`. It holds another collective's entry while the
 * rank has not entered `seq`, or when it did so too long ago. */
struct tt_entry *tt_fabric_entry(const struct tt_fabric *fabric, int rank, uint64_t seq);

/* Records the communicator's first failure for every rank: later ones change nothing. Returns the
 * status of the first. The text becomes this thread's last error; logged by the first only. By the
 * thread that runs this rank's work. */
TT_NODISCARD tt_status tt_fabric_fail(struct tt_fabric *fabric, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* tt_fabric_fail with the last error, which is this rank's and then names it; one about a remote
 * rank (TT_ERR_REMOTE) names that already. */
TT_NODISCARD tt_status tt_fabric_fail_here(struct tt_fabric *fabric, tt_status status);
/* TT_OK, or the communicator's failure or this rank's abort (its text as this thread's last error).
 * A load; for every turn of a wait. */
TT_NODISCARD tt_status tt_fabric_check(struct tt_fabric *fabric);
/* Whether tt_fabric_check fails. */
static inline bool tt_fabric_has_failed(const struct tt_fabric *fabric)
{
    /* release: tt_fabric_abort */
    const struct tt_failure *failure = atomic_load_explicit(&fabric->seen, memory_order_acquire);
    return atomic_load_explicit(&failure->state, memory_order_acquire) == 2;
}
/* The communicator's failure, whether or not this rank has aborted; TT_OK: none. *text, where it is
 * not NULL: its text. */
tt_status tt_fabric_failure(const struct tt_fabric *fabric, const char **text);
/* Logs the communicator's failure, if there is one, unless this rank has. Any thread. */
void tt_fabric_log_failure(struct tt_fabric *fabric);
/* A failure that this rank learned from its host goes on to the hosts it is connected with, once.
 * By the thread that runs this rank's work. */
void tt_fabric_pass_on(struct tt_fabric *fabric);
/* Adds to the text of the failure, for this rank only and once. By the thread that runs this rank's
 * work, after the failure. */
void tt_fabric_add_to_failure(struct tt_fabric *fabric, const char *text);
/* This rank waits for a rank that has left. Fails, and says why that rank or another one is gone.
 * TT_IN_PROGRESS: other ranks may still say so. By the thread that runs this rank's work. */
TT_NODISCARD tt_status tt_fabric_miss_left(struct tt_fabric *fabric, int rank);
/* Before it leaves: keeps its failure for the other communicators of this process, or tells the
 * ranks of this host which of those has failed. */
void tt_fabric_give_reason(struct tt_fabric *fabric);
/* At the exit of the process, with wires only, by the thread that has the engine: this rank leaves
 * for ranks of other hosts, which learn that it exits, when what it has sent has gone. */
void tt_fabric_exit(struct tt_fabric *fabric);
/* How a rank has left, as in "has left: it destroyed its communicator". */
const char *tt_fabric_how_left(const struct tt_fabric *fabric, int rank);
/* Why this rank leaves, "" when its process does not exit and no other communicator of this process
 * has failed since this one was made. */
const char *tt_fabric_reason(struct tt_fabric *fabric);
/* The text of tt_fabric_check, "" without a failure. */
const char *tt_fabric_failure_text(const struct tt_fabric *fabric);

/* Watches the other processes of this host. */
void tt_fabric_watch(struct tt_fabric *fabric);
/* Slow check (a system call): whether a rank that this one may wait for is gone: has died, left or
 * aborted. `seq`: the collective being waited for (0: none); it does not need a rank that has done
 * its part. `peer`: the rank a point-to-point call waits for (-1: none), to send to it or to
 * receive; messages that the peer left in the link still count. Fails the communicator and returns
 * its status if so. */
TT_NODISCARD tt_status tt_fabric_check_peers(struct tt_fabric *fabric, uint64_t seq, int peer,
                                             bool sending);

/* What a call reads in memory of other ranks (seq, peer: as above). A rank whose call fails, or who
 * aborts, may free the memory or use it otherwise; a rank that has done its part of a collective
 * has no messages left there. */
struct tt_lenders {
    uint64_t seq;
    int peer;
};
/* After reading memory of a rank of this host, before what was read is used: fails the communicator
 * where a rank of the call has aborted. A load where none has. */
TT_NODISCARD tt_status tt_fabric_check_source(struct tt_fabric *fabric, struct tt_lenders source);
/* Memory of other ranks of this process is read between borrow and give_back only. borrow returns a
 * failure, if there is one, or where a rank of the call has aborted; then nothing may be read. */
TT_NODISCARD tt_status tt_fabric_borrow(struct tt_fabric *fabric, struct tt_lenders source);
void tt_fabric_give_back(struct tt_fabric *fabric);
/* The first other rank of this process of which this holds; -1: none. */
int tt_fabric_find_beside(const struct tt_fabric *fabric,
                          bool (*holds)(const struct tt_fabric *fabric, int rank));
/* After a failure: a rank of this process that may be reading memory of this one; -1: none. */
int tt_fabric_reader(const struct tt_fabric *fabric);

/* The bit of a rank of this host in a set of lenders. Ranks may share one. */
uint64_t tt_fabric_lender(const struct tt_fabric *fabric, int rank);
/* From now on a kernel of this rank may use memory of these ranks of this host, until
 * tt_fabric_end_kernel. Then look for a failure, and for lenders that are gone. By the issuing
 * thread; end: any thread. */
void tt_fabric_begin_kernel(struct tt_fabric *fabric, uint64_t lenders);
void tt_fabric_end_kernel(struct tt_fabric *fabric);
/* After begin_kernel: whether a rank of this host still lends its memory to a kernel of collective
 * `seq`: it is here, or has aborted after its part of that and not left yet. seq UINT64_MAX, for
 * all other kernels: whether it is here. A rank of another host, or without a GPU, lends no
 * memory: whether it has not left before its part of that. */
bool tt_fabric_lends(const struct tt_fabric *fabric, int rank, uint64_t seq);
/* After a failure, or when this rank has left or aborted: whether kernels of another rank may still
 * use memory of this one. */
bool tt_fabric_is_used_by(const struct tt_fabric *fabric, int rank);
/* Such a rank of this process; -1: none. */
int tt_fabric_user(const struct tt_fabric *fabric);

/* Whether the process of a rank of this host has died, or has become another program; system calls.
 */
bool tt_fabric_is_dead(const struct tt_fabric *fabric, int rank);
/* Adds the ranks of this host that have died without leaving: "; rank 1 (host h, pid 77) has died,
 * too". */
void tt_fabric_add_dead(const struct tt_fabric *fabric, char *text, size_t size);
/* How: "has died", "has become another program (exec)". */
const char *tt_fabric_how_dead(const struct tt_fabric *fabric, int rank);
/* Why a rank of another host is gone, where it has not left and there are bridges, over which no
 * call sees that itself; else NULL. By who has entered the engine. */
const char *tt_fabric_lost(const struct tt_fabric *fabric, int rank);
/* Reports that a rank is gone, as this rank has found, or one of another host has told: the text
 * says why. Returns the number of the report, also of an earlier one of that rank; -1: it is not
 * kept, as there are too many. By who has entered the engine, with wires only, as the next three.
 */
int tt_fabric_note_gone(struct tt_fabric *fabric, int rank, const char *text);
/* A rank that is reported gone, as this rank has found too, and why; -1: none. */
int tt_fabric_gone(const struct tt_fabric *fabric, const char **text);
/* Whether somebody has reported that the rank is gone. */
bool tt_fabric_is_reported(const struct tt_fabric *fabric, int rank);
/* Called again and again: passes all reports on to ranks of other hosts, and finds out whether the
 * ranks are gone. Whether this rank will know soon of one of them. */
bool tt_fabric_follow_gone(struct tt_fabric *fabric);

/* TT_ERR_REMOTE where another rank is known to have died (on this host), left or aborted. Does not
 * fail the communicator. Any thread; system calls. */
TT_NODISCARD tt_status tt_fabric_check_rank(const struct tt_fabric *fabric, int rank);

/* "rank 3 (host h, pid 77)". */
void tt_fabric_name_rank(const struct tt_fabric *fabric, int rank, char *text, size_t size);
/* How messages go from this rank to a peer: "self", "shm + window", "tcp eth0, encrypted", ... By
 * the thread that runs this rank's work. */
void tt_fabric_describe_peer(const struct tt_fabric *fabric, int peer, char *text, size_t size);

#endif
