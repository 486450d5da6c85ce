/* Calls that kernels carry out: those on the memory of GPUs, in a communicator in which any rank
 * has a GPU. Where TUTTI_DEVICE_BRIDGES is off all ranks must have GPUs of one host. All calls of a
 * rank run in the order in which they were issued, whatever their streams: an event is recorded
 * after each launch, and a launch on another stream than the last one waits for it (launch.c). */
#ifndef TT_CARRIER_KERNEL_KERNEL_H
#define TT_CARRIER_KERNEL_KERNEL_H

#include "carrier/carried.h"
#include "carrier/kernel/launching.h"
#include "carrier/kernel/proxy.h"
#include "carrier/kernel/attendant.h"
#include "carrier/kernel/ranges.h"
#include "carrier/kernel/ring.h"
#include "carrier/kernel/work.h"
#include "carrier/left.h"
#include "device/shares.h"
#include "transport/device/device_room.h"

struct tt_graphs;
struct tt_kernel_batch;

/* Device memory that calls issued before may still use: scratch memory that was too small for a
 * later call, programs of a communicator that has failed, and those of captured calls, which later
 * calls use again. Freed with the communicator. */
struct tt_old_memory {
    void *memory;
    const struct tt_algorithm *algorithm; /* whose program captured calls have there; NULL: none */
    int root;                             /* of the program */
    struct tt_old_memory *next;
};

/* A rank's calls of the group that is being launched, its run: they follow one another. Owned by
 * struct tt_kernel_part; empty while nothing is launched. */
struct tt_launch_run {
    struct tt_pending_call *first, **last;    /* linked by next_of_run; first NULL: empty */
    struct tt_pending_call *at;               /* the next one to be launched */
    uint64_t begins;                          /* the first kernel's number */
    uint64_t ncollectives;                    /* of the calls */
    const struct tt_group_exchange *exchange; /* of the calls; NULL: none */
    /* In front of the next launch: programs and ends that no kernel has used. Of the ring */
    struct tt_context_copy *copies;
    bool one_stream; /* all calls are on the first one's stream */
    bool is_direct;  /* launched on that stream, else on the rank's own */
    /* Runs that share launches, a team */
    bool is_member;                     /* of the team of a run before it */
    bool holds;                         /* a team's: the rank's share, until all is launched */
    int nmembers;                       /* of a leader: with itself */
    struct tt_comm_core *member, *next; /* the team's next; the next run of the group */
};

/* Launches of a rank that have not ended, at most. CUDA holds some 1,000, after which it holds up
 * the thread that launches, where nothing can end that (docs/cuda-measured.md). */
enum { TT_MOST_LAUNCHES = 512 };

/* The launches of a rank: the number of the last call of each. */
struct tt_launches {
    uint64_t number;                 /* of launches so far */
    uint64_t last;                   /* call that was launched */
    uint64_t ends[TT_MOST_LAUNCHES]; /* [launch % TT_MOST_LAUNCHES] */
    uint64_t ncalls;                 /* of the group that is being checked (tt_launches_check) */
    bool has_warned;
};

/* What a communicator has on this rank's GPU. Owned by the communicator. */
struct tt_kernel_part {
    struct tt_kernel_life life;
    struct tt_context_user user; /* of the GPU's context, for as long as kernels may run */
    /* immutable after init */
    struct tt_device *device;
    struct tt_device_room *room;
    struct tt_hosts *hosts;         /* of the ranks for the room; NULL: all are of one */
    struct tt_ends *ends;           /* NULL: all ranks have GPUs of one host */
    struct tt_proxy *proxy;         /* NULL: the same */
    struct tt_ranges *ranges;       /* NULL: nothing is read in place. Owner: the issuing thread */
    struct tt_device_state *state;  /* device memory */
    void *stream;                   /* for runs that are not launched on a stream of the user */
    void *last;                     /* the event of the last launch */
    struct tt_share_place place;    /* this rank's share of the GPU */
    int most_blocks;                /* of a collective: what the least share of any rank has */
    int exchange_blocks;            /* of an exchange */
    uint32_t nthreads;              /* of a block */
    size_t most_line_bytes;         /* messages of a block that go as lines, at most */
    struct tt_attended_queue queue; /* the calls of the user's streams */
    struct tt_launching launching;  /* while the issuing thread is in the driver */
    struct tt_graphs *_Atomic graphs; /* graphs.h; NULL: no call was captured */
    _Atomic uint64_t issued;          /* calls, but for captured ones; writer: the issuing thread */
    _Atomic uint64_t last_turn;       /* of the collectives among them; writer: the same */
    /* How long it waits for calls that it has done its part of when it leaves: for those of ranks
     * of its own process, without a deadline, and when it has aborted; tests change both */
    int64_t held_ms, abort_ms;
    /* owner: the issuing thread */
    uint64_t exchanges;      /* of the calls that are issued exchanges: turns */
    uint64_t *message_turns; /* [nranks][2], where ranks are mixed, else NULL: of the last message
                              * from, and to, each rank without a GPU; 0: there was none */
    struct tt_kernel_refusal refusal; /* once there is one, of all later calls too */
    struct tt_launch_run run;
    struct tt_launches launches;
    uint64_t
        last_stream; /* on which `last` was recorded: its number; 0: the rank's own, or never */
    char *scratch;   /* device memory */
    size_t scratch_bytes;
    struct tt_old_memory *old;
    struct tt_device_ring ring;
    struct tt_kernel_batch *batch; /* of the group that is being issued; NULL: none */
    /* guarded by batches_lock */
    pthread_mutex_t batches_lock;
    struct tt_kernel_batch *batches; /* that have ended, for the next groups */
    /* where the communicator is gone */
    struct tt_left_part left;
    bool peers_ended;
};

/* ---- Calls ---------------------------------------------------------------------------------- */

/* At init: takes this rank's share of its GPU: place and most_blocks, of which the least of any
 * rank is to be used. *must_fail, after a failure: clients of MPS do not fit on a GPU together. */
TT_NODISCARD tt_status tt_kernel_take_place(struct tt_comm_core *core,
                                            const struct tt_carried_config *config,
                                            const struct tt_device_offer *offers, bool *must_fail);

/* The hosts of the ranks, where each rank without a GPU counts as alone on its own; NULL: all ranks
 * have GPUs of one host. Owned by the caller. */
TT_NODISCARD tt_status tt_kernel_find_hosts(const struct tt_fabric *fabric,
                                            struct tt_hosts **hosts);
/* Where ranks may be mixed: they are. slot_bytes: of kernels. SYSTEM: out of memory. */
TT_NODISCARD tt_status tt_kernel_mix(struct tt_comm_core *comm, size_t slot_bytes);
/* tt_kernel_mix at a rank without a GPU, where offers are of all ranks. Returns the parts into
 * which it can cut a block at most. */
int32_t tt_kernel_mix_without_gpu(struct tt_comm_core *comm, const struct tt_device_offer *offers);

/* All ranks have agreed on the least amount that any of them has. */
void tt_kernel_agree(struct tt_comm_core *comm, int32_t least);
/* What the rank has of its GPU, as text. */
void tt_kernel_describe(const struct tt_comm_core *comm, char *text, size_t size);
/* As struct tt_carrier has it: where ranks are mixed, kernels wait for the turns of their calls. */
bool tt_kernel_is_held_here(const struct tt_comm_core *core, const _Atomic uint64_t *turns);

/* Blocks of threads of a collective, at most. */
int tt_kernel_most_parts(const struct tt_kernel_part *part);
/* What the kernel gets for a collective. SYSTEM: out of pinned memory. */
TT_NODISCARD tt_status tt_kernel_fill(const struct tt_pending_call *pending, uint64_t number,
                                      struct tt_device_call *call);
/* What the kernel gets for an exchange, whose number is 0 where it is captured. SYSTEM: out of
 * pinned memory; USAGE: too many peers. */
TT_NODISCARD tt_status tt_kernel_fill_exchange(const struct tt_pending_call *pending,
                                               struct tt_device_call *call);
/* Brings the ends that are bound to the GPU in front of the call with this number; 0: at once, and
 * waits for that. SYSTEM: out of pinned memory. */
TT_NODISCARD tt_status tt_kernel_place_ends(struct tt_kernel_part *part, uint64_t number);
/* Before the exchange is filled: binds the bridges that it needs, where there are any. SYSTEM: out
 * of memory. */
TT_NODISCARD tt_status tt_kernel_bind_exchange(const struct tt_pending_call *pending);
/* Takes memory of the GPU for the program and scratch, and binds the bridges of the program, as far
 * as they are not there; the call brings the program there. USAGE: the kernel cannot run the
 * program, and the communicator has failed. */
TT_NODISCARD tt_status tt_kernel_load(struct tt_comm_core *core, struct tt_cached *cached,
                                      const struct tt_binding *binding);
/* Frees the program's memory; after a failure a kernel may still run: then it is freed with the
 * communicator. */
void tt_kernel_unload(struct tt_comm_core *core, struct tt_cached *cached);
/* The turn of calls that are not a collective of their own: of exchanges, and of graphs. */
#define TT_NO_TURN UINT64_MAX
/* A rank, of the peers of the exchange, or of all (NULL), that does not lend its memory to the
 * collective with this turn (tt_fabric_lends); -1: all do. */
int tt_kernel_absent_rank(const struct tt_comm_core *core, const struct tt_group_exchange *exchange,
                          uint64_t turn);
/* What became of a rank that is gone: "aborted the communicator", "has left: ...", "has died". */
const char *tt_kernel_how_gone(const struct tt_comm_core *core, int rank);
/* Says that kernels of this rank use memory of other ranks: of the peers of the exchange, or of all
 * (NULL), until tt_fabric_end_kernel; false: the communicator has failed, or such a rank is absent,
 * as tt_kernel_fail_alone then says. */
bool tt_kernel_may_use_peers(const struct tt_comm_core *core,
                             const struct tt_group_exchange *exchange, uint64_t turn);
TT_NODISCARD tt_status tt_kernel_fail_alone(const struct tt_comm_core *core,
                                            const struct tt_group_exchange *exchange,
                                            uint64_t turn);

/* Stores the words that test the mappings of memory (device_room.h), or loads and checks them.
 * REMOTE: a rank is gone. USAGE: a word is wrong. */
TT_NODISCARD tt_status tt_kernel_probe(struct tt_comm_core *core, bool loads);
/* As struct tt_carried has them. */
TT_NODISCARD tt_status tt_kernel_examine(struct tt_comm_core *core);
void tt_kernel_measure(const struct tt_comm_core *core, uint8_t *distances);

/* Frees memory of groups that have ended; no call is outstanding. */
void tt_kernel_free_batches(struct tt_kernel_part *part);

/* ---- Phases of a group ---------------------------------------------------------------------- */

/* Makes one exchange of the sends and receives of each communicator: in their place the calls end
 * with one of kind EXCHANGE for each of their streams. After a failure there are the calls that
 * there were. USAGE: sends and receives of a rank to itself that do not match. */
TT_NODISCARD tt_status tt_kernel_gather(struct tt_calls *calls);
TT_NODISCARD tt_status tt_kernel_capture(struct tt_calls *calls, void **captured);
void tt_kernel_captured(void *captured, bool holds);
/* Of each of so many ranks that share a launch, at most. */
static inline int tt_calls_in_launch(int nranks)
{
    return TT_DEVICE_MOST_CALLS / nranks;
}
/* Whether a group never waits for room for so many calls of each of so many ranks that share their
 * launches, but for that of earlier groups. */
bool tt_launches_fit(uint64_t ncalls, int nranks);
/* After tt_kernel_gather. USAGE: the group would wait for its own launches for ever. */
TT_NODISCARD tt_status tt_launches_check(const struct tt_calls *calls);
/* Waits until the rank may launch once more, or cannot because it has failed, or because another
 * communicator of the group, whose calls are `calls`, was aborted. */
void tt_launches_await_room(struct tt_comm_core *comm, const struct tt_calls *calls);
/* Launches the kernels, after the calls have begun: all calls of a rank in one launch, and of
 * several ranks where they can share it. Launches that fail fail their communicators. */
void tt_kernel_launch(struct tt_calls *calls);

#endif
