/* Calls on the memory of GPUs. A communicator whose ranks all have a GPU of one host runs such
 * calls by kernels, each rank on a stream of its own, which follows the user's stream and is
 * followed by it: so all calls of a rank run in the order in which they were issued, whatever their
 * streams. */
#ifndef TT_COMMUNICATOR_DEVICE_H
#define TT_COMMUNICATOR_DEVICE_H

#include "communicator/device_ring.h"
#include "communicator/request.h"
#include "device/shares.h"
#include "executor/attendant.h"
#include "executor/stream.h"
#include "transport/device/device_room.h"

struct tt_graphs;

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
 * struct tt_comm_device; empty while nothing is launched. */
struct tt_launch_run {
    struct tt_pending_call *first, **last;    /* linked by next; first NULL: empty */
    struct tt_pending_call *at;               /* the next one to be launched */
    uint64_t begins;                          /* the first kernel's number */
    uint64_t ncollectives;                    /* of the calls */
    const struct tt_group_exchange *exchange; /* of the calls; NULL: none */
    bool one_stream;                          /* all calls are on the first one's stream */
    /* Runs that share launches, a team */
    bool is_member;           /* of the team of a run before it */
    bool holds;               /* a team's: the rank's share, until all is launched */
    int nmembers;             /* of a leader: with itself */
    tuttiComm_t member, next; /* the team's next; the next run of the group */
};

/* What a communicator has on this rank's GPU. Owned by the communicator. */
struct tt_comm_device {
    /* immutable after init */
    struct tt_device *device;
    struct tt_device_room *room;
    struct tt_device_state *state;    /* device memory */
    struct tt_device_report *report;  /* pinned host memory */
    void *stream;                     /* on which the kernels run */
    struct tt_place place;            /* this rank's share of the GPU */
    int most_blocks;                  /* of one call: what the least share of any rank has */
    uint32_t nthreads;                /* of a block */
    struct tt_attended_queue queue;   /* the calls of the user's streams */
    struct tt_graphs *_Atomic graphs; /* graphs.h; NULL: no call was captured */
    /* owner: the issuing thread */
    uint64_t issued; /* calls, but for captured ones */
    struct tt_launch_run run;
    bool had_one_stream;       /* the last run was on one stream, */
    tuttiStream_t last_stream; /* which was this */
    char *scratch;             /* device memory */
    size_t scratch_bytes;
    struct tt_old_memory *old;
    struct tt_device_ring ring;
    struct tt_choices choices[TT_NCOLLECTIVES][2]; /* [1]: for a count for each rank */
    struct tt_memo memos[TT_NCOLLECTIVES];
    /* of the list of those whose communicators are gone */
    struct tt_comm_device *next_left;
    bool peers_ended;
};

/* Shorter messages are copied: for a reference the sender waits at the end. */
enum { TT_REFERENCE_BYTES = 8192 };

/* ---- Creation ------------------------------------------------------------------------------- */

/* The GPU of the calling thread's current context, where this process uses CUDA; else -1. Does not
 * load the driver. */
int tt_current_gpu(void);
/* Opens this rank's GPU (comm->gpu) and says what the others must know. */
TT_NODISCARD tt_status tt_comm_device_offer(tuttiComm_t comm, const struct tt_comm_links *links,
                                            uint64_t opener, struct tt_device_offer *mine);
/* offers: [nranks]. Takes this rank's share of its GPU: most_blocks, of which the least of any rank
 * is to be set. Afterwards the communicator's calls may be on device memory. *must_fail, after a
 * failure: clients of MPS do not fit on a GPU together. */
TT_NODISCARD tt_status tt_comm_device_connect(tuttiComm_t comm, const struct tt_comm_config *config,
                                              const struct tt_device_offer *offers,
                                              bool *must_fail);
/* Frees what no call has used: from now on the communicator has no GPU, because of comm->no_gpu. */
void tt_comm_device_drop(tuttiComm_t comm);
/* Waits until the other ranks have ended the calls that this rank has ended, at most the time of a
 * call (TUTTI_TIMEOUT_MS), then until their kernels have ended, at most 10 s, and frees. Memory
 * that a kernel may use after that is freed later, when the kernel has ended: by the next call of
 * this function or of tt_comm_device_offer. comm->on_gpu may be NULL. */
void tt_comm_device_free(tuttiComm_t comm);

/* ---- Calls ---------------------------------------------------------------------------------- */

/* The CUDA stream of the user's; NULL: the legacy default stream, whose work comes before. */
static inline void *tt_users_stream(tuttiStream_t stream)
{
    return stream ? tt_stream_device_stream((struct tt_stream *)stream) : NULL;
}

/* Whether a kernel must carry out the call: its stream is a GPU's, or its buffers are and it has no
 * stream. Fails for buffers and streams that do not fit one another or this rank's GPU. */
TT_NODISCARD tt_status tt_comm_route(const struct tt_request *request, const struct tt_memo *memo,
                                     bool *on_device);
/* The same for a call in which this rank may have no data though others have: one with a count for
 * each rank, a send or a receive. in, out: what it uses of its buffers. A rank without any data and
 * without a stream is on the device where one of the pointers is memory of its GPU. */
TT_NODISCARD tt_status tt_comm_route_extents(const struct tt_request *request, struct tt_extent in,
                                             struct tt_extent out, const void *scalar,
                                             bool *on_device);
/* What limits a binding of the program. */
struct tt_limits tt_comm_device_limits(const struct tuttiComm *comm,
                                       const struct tt_cached *cached);
/* What the choice of an algorithm depends on where a kernel runs it; the same on all ranks. */
void tt_comm_device_setting(const struct tuttiComm *comm, struct tt_setting *setting);
/* Copies of a program that may run side by side on this rank's share of the GPU. */
int tt_comm_device_copies(const struct tuttiComm *comm, const struct tt_program *program);
/* Brings program and scratch memory to the GPU, as far as they are not there. Fails the
 * communicator where that cannot be. */
TT_NODISCARD tt_status tt_comm_device_load(tuttiComm_t comm, struct tt_cached *cached,
                                           const struct tt_binding *binding);
/* Frees the program's device memory; no call that uses it is outstanding. After a failure a kernel
 * may still run: then with the communicator. */
void tt_comm_device_unload(tuttiComm_t comm, struct tt_cached *cached);
/* What the kernel gets. SYSTEM: out of pinned memory. */
TT_NODISCARD tt_status tt_comm_device_fill(const struct tt_pending_call *pending,
                                           struct tt_device_call *call);
/* Fails the communicator with the last error, because the other ranks would wait for a call that
 * this rank cannot make. They get the same text, so it names this rank; one about a remote rank
 * names that. */
TT_NODISCARD tt_status tt_comm_fail_call(tuttiComm_t comm, tt_status status);
/* A rank that has left, of the peers of the exchange, or of all (NULL); -1: all are here. */
int tt_comm_absent_rank(const struct tuttiComm *comm, const struct tt_group_exchange *exchange);
/* Says that kernels of this rank use memory of other ranks, until tt_fabric_give_back; false: the
 * communicator has failed, or such a rank has left it, as tt_comm_fail_alone then says. */
bool tt_comm_may_use_peers(const struct tuttiComm *comm, const struct tt_group_exchange *exchange);
TT_NODISCARD tt_status tt_comm_fail_alone(const struct tuttiComm *comm,
                                          const struct tt_group_exchange *exchange);
/* The next number of this rank, and whether the kernel may use memory of those ranks; before the
 * call gets its turn. */
struct tt_kernel_run tt_comm_next_kernel(tuttiComm_t comm, const struct tt_group_exchange *exchange,
                                         bool *uses_peers);
/* Makes one exchange of the sends and receives on a device of each communicator: in place of them
 * the calls end with one of kind EXCHANGE for each of their streams. After a failure there are the
 * calls that there were. USAGE: sends and receives of a rank to itself that do not match. */
TT_NODISCARD tt_status tt_comm_gather_exchanges(struct tt_pending_call *calls, int *ncalls);
/* Numbers the call, and gives the work its turn. */
void tt_comm_exchange_begin(const struct tt_pending_call *pending, struct tt_work *work);
/* What the kernel gets; of a captured call whose exchange->kernel is filled in, with the number 0.
 * SYSTEM: out of pinned memory. USAGE: too many peers. */
TT_NODISCARD tt_status tt_comm_exchange_fill(const struct tt_pending_call *pending,
                                             struct tt_device_call *call);
/* Launches the kernels of these calls (those that are on a device), after they have begun: all
 * calls of a rank in one launch, and of several ranks where they can share it (device_launch.c).
 * Launches that fail fail their communicators. */
void tt_comm_device_launch(struct tt_pending_call *calls, int ncalls);

#endif
