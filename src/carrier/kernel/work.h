/* Calls that a kernel carries out: the host waits for the kernel's report, and looks at deadlines,
 * the dead and disagreeing peers as with any call. A call begins when its kernel does, so that what
 * the user's stream does before takes nothing of its time. Nothing here calls the driver. */
#ifndef TT_CARRIER_KERNEL_WORK_H
#define TT_CARRIER_KERNEL_WORK_H

#include "carrier/carrier.h"
#include "carrier/kernel/exchange.h"
#include "device/call.h"

struct tt_gpu_watch;
struct tt_proxy;

/* Of a rank: what its calls and the replays of its graphs have in common. Part of struct
 * tt_kernel_part, or of what a part that is gone leaves to its kernels. */
struct tt_kernel_life {
    /* immutable after init */
    struct tt_device_report *report; /* pinned host memory */
    struct tt_gpu_watch *watch;      /* whether the GPU is lost */
    struct tt_proxy *proxy;          /* of the part; NULL: it has none */
    int gpu;
    /* atomic: calls whose kernels may use memory of other ranks (tt_fabric_begin_kernel); those
     * that failed, until no kernel of the rank can */
    _Atomic int nborrowed;
    _Atomic uint64_t exchanges_done;
    /* A graph that may be replayed has calls of the rank, as far as was noted; guarded by the lock
     * of the graphs, but for reading */
    _Atomic bool may_replay;
    /* The last call of a launch whose end the driver did not record, after which there is none; 0:
     * none. Writer: the issuing thread */
    _Atomic uint64_t unrecorded;
};

/* A word of struct tt_device_report, which the GPU writes: read once, with what the kernel wrote
 * before it. */
static inline uint64_t tt_read_word(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Why a call has no kernel: a rank that it needs is gone. The communicator fails when the calls
 * before have ended. Part of struct tt_kernel_part. */
struct tt_kernel_refusal {
    char text[TT_ERROR_TEXT]; /* "": no call was refused */
    _Atomic bool is_there;    /* for other threads: a call was */
    /* the turns of the last calls before */
    uint64_t collectives, exchanges;
};

/* A call. Owned by a batch, or by the thread that runs it. */
struct tt_kernel_work {
    struct tt_work work; /* first: the address of the work is this one's */
    struct tt_kernel_life *life;
    uint64_t number;                         /* struct tt_device_call */
    bool has_marked;                         /* what its kernel has sent (bridge.h) */
    bool uses_peers;                         /* it may use memory of other ranks of this process */
    const struct tt_kernel_refusal *refusal; /* NULL: the call has a kernel */
    int64_t grace_ns; /* after a failure: until when the kernel may wait for ranks that read what it
                       * has sent by reference; 0: none yet */
    int64_t refused_ns; /* until when other ranks' calls may end before a refused one fails; 0: no
                         * time yet */
    struct tt_exchange_grace gone;
    struct tt_group_exchange *exchange; /* NULL: a collective */
};

/* Gives the work its turn. The caller fills in number and uses_peers. */
void tt_kernel_begin_collective(struct tt_kernel_work *work, struct tt_kernel_life *life,
                                struct tt_engine *engine, const struct tt_call *call);
/* turn: of the exchanges of the rank. The caller fills in uses_peers of the first work of the
 * exchange. */
void tt_kernel_begin_exchange(struct tt_kernel_work *work, struct tt_kernel_life *life,
                              struct tt_engine *engine, struct tt_group_exchange *exchange,
                              uint64_t turn);

/* The call will have no kernel. Before others see the work. */
void tt_kernel_refuse(struct tt_kernel_work *work, struct tt_kernel_refusal *refusal);

/* Waits, not for long, until a refusal that there is has failed the communicator: before this rank
 * aborts, which the other ranks would take for the cause. Waits for no lock. */
void tt_kernel_await_refused(const struct tt_kernel_refusal *refusal,
                             const struct tt_fabric *fabric);

/* No kernel of the rank runs any more, and one that begins later ends at once. */
void tt_kernel_leave_all_peers(struct tt_kernel_life *life, struct tt_fabric *fabric);
/* After a failure: every kernel of the rank ends. *grace_ns: until when it may wait for ranks that
 * read what it has sent by reference; 0: not set yet. */
void tt_kernel_abort(const struct tt_kernel_life *life, int64_t *grace_ns);
/* All kernels of the rank that have begun have ended. */
bool tt_kernel_has_ended(const struct tt_kernel_life *life);
/* All kernels of the rank that have begun have ended, or the GPU is lost. */
bool tt_kernel_has_stopped(const struct tt_kernel_life *life);
/* A call has not ended, or begun, of whose end no event tells. */
bool tt_kernel_has_unrecorded(const struct tt_kernel_life *life);

#endif
