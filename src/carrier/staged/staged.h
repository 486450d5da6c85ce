/* Calls on GPU memory in a communicator that cannot run them by kernels: not all of its ranks have
 * GPUs of one host, or kernels cannot run there. Such a call runs on the host, on staging memory,
 * which is pinned memory of the communicator:
 *
 *     the user's CUDA stream      staging memory      the staging thread (of the host)
 *     copy of the input    ---->  input
 *     store                ---->  ready         ---->  waits for it, then runs the call on staging
 *     wait                 <----  done          <----  memory as any call of the host
 *     copy of the output   <----  output
 *     store                ---->  ended: the next call may use the staging memory
 *
 * The other ranks see a call of the host. The calling thread only queues; the staging thread copies
 * nothing. A call without a stream does the same on a stream of the rank, which follows the legacy
 * stream, and the calling thread runs the call and queues the copy of the output afterwards.
 *
 * Where a collective may be in place, it is so in staging memory, whatever the caller's buffers
 * are.
 *
 * A call on a stream has staging memory for all of its bytes: while the stream waits it holds up a
 * hardware queue, which other streams share, so that copies on another stream might come never.
 *
 * A collective without a stream that is larger than TUTTI_STAGE_BYTES, a message without one that
 * is larger than a quarter of it, and each captured call, passes through staging memory in
 * portions, which all such calls share (executor/portions.h): the copier, a thread of the
 * communicator, queues the copies on another stream (copies.h). So it is with smaller ones without
 * a stream when many wait, and with messages that a device of the network may move in place.
 *
 * Where a collective of a group reads what an earlier one writes, its stream copies the input
 * behind that output (copy_late_in of streams.c). The copier does that, in the turns of the calls,
 * where one of them has no stream, or passes through in portions. */
#ifndef TT_CARRIER_STAGED_STAGED_H
#define TT_CARRIER_STAGED_STAGED_H

#include "carrier/carried.h"
#include "driver/context.h"
#include "executor/portions.h"

struct tt_copier;
struct tt_gpu_pages;
struct tt_stage_block;
struct tt_stage_graphs;
struct tt_staged_task;

enum {
    TT_STAGE_LEAST_BYTES = 4096,
    TT_STAGE_CLASSES = 48, /* staging memory has 2^class bytes; class 0: none */
    TT_STAGE_WAITING = 64, /* times TUTTI_STAGE_BYTES: memory that calls have of their own */
};

/* What `ready` is in a call of a CUDA graph, whose words have no numbers; and the bits of ready and
 * closed, as one word, with which the graph goes on. */
enum { TT_REPLAY_BEGUN = 1, TT_REPLAY_ENDED = 2 };
#define TT_REPLAY_PASSES (UINT64_C(1) << 32 | TT_REPLAY_ENDED)

/* Words in pinned memory with which a CUDA stream and a call on staging memory wait for one
 * another: each gets the number of the staging memory's use. */
struct tt_stage_words {
    _Alignas(8) uint32_t ready; /* by the stream: the input is in staging memory */
    uint32_t closed;            /* by the host: no call of the graph runs any more */
    uint32_t done;              /* by the host: the call has ended */
    uint32_t ended;             /* by the stream: the output was copied, staging memory is free */
    uint32_t in;                /* by the stream of portions: portions copied in */
    uint32_t out;               /* by the stream of portions: portions copied out */
    char scalar[8];             /* of a pre-multiplied sum */
};

/* A piece of the caller's memory and its place in staging memory. */
struct tt_stage_piece {
    char *users, *staged;
    size_t nbytes;
};

/* Copies of a call that runs (copies.h). All are made in order by one stream. */
struct tt_stage_portions {
    struct tt_portions base; /* first: its address is that of the portions */
    /* immutable when the call is issued */
    void *stream; /* for the copies; the communicator's */
    const struct tt_stage_piece *pieces;
    int nin, nout;  /* pieces copied before the first portion, then those after the last one */
    char *users[2]; /* INPUT, OUTPUT: where element 0 of the global naming would lie; of a message:
                     * both the message */
    const char *kept, *kept_end; /* of the caller's memory: not written */
    /* changed by the thread that runs the call; guarded by the lock of the copier */
    uint64_t want_in, want_out; /* portions whose copies are wanted */
    /* guarded by the lock of the copier */
    struct tt_staged_work *work; /* NULL: it does not run any more */
    uint64_t in, out;            /* portions whose copies are queued */
    struct tt_stage_portions *next;
    /* atomic: the copier has it */
    _Atomic bool is_busy;
};

extern const struct tt_portions_ops tt_stage_portions_ops;

/* What one call has of staging memory. Part of a block; used again and again. */
struct tt_stage {
    struct tt_stage_words *words; /* pinned, as is the memory */
    char *memory;                 /* NULL: shared with other calls */
    bool is_used;                 /* by a call, until its words say that it has ended */
    bool is_kept;                 /* by a CUDA graph, until tt_stage_release */
    uint32_t number;              /* of the last use */
    bool is_held;                 /* by a call that its group has not issued: no stream knows it */
    /* of this use */
    bool failed;        /* the driver refused what was to be queued: nothing more is */
    bool has_told;      /* the store to words->ended is queued: the stream's last one */
    bool captured;      /* its stream was being captured when the call was made */
    bool is_collective; /* the call */
    bool by_host;       /* the thread that runs the call queues the copies, as `portions` says */
    int position;       /* of a collective among its communicator's in the group */
    /* It uses what an earlier collective of its group writes, or a later one uses what it writes */
    bool is_linked;
    bool is_late;   /* its stream copies its input when the outputs before it have been written */
    bool is_apart;  /* the rank's own stream waits for its end, as the user's has calls of another
                     * communicator of the group, and one of this one is late */
    bool is_after;  /* it runs behind a collective of the group that the copier makes copies for */
    bool is_behind; /* its stream waits for copies of the copier for a collective of the group */
    bool is_followed; /* the calls whose streams wait with its stream were found */
    bool is_left; /* after a failure nobody copies its output: `ready` is the stream's last store */
    char *on_device;               /* of a message: as in struct tt_p2p_work */
    struct tt_extent in, out;      /* of the caller's memory; of a collective */
    struct tt_extent scalar;       /* of the caller's: a collective reads it with its input */
    struct tt_stage_piece *pieces; /* [room] */
    int room, nin, nout;           /* pieces of the input, then those of the output */
    struct tt_stage_portions portions;
    struct tt_stage *next; /* of the class */
};

/* A call on staging memory: a call of the host that begins when its input is there. */
struct tt_staged_work {
    struct tt_work work;            /* first: the address of the work is this one's */
    const struct tt_work_ops *host; /* the host's of this kind of call */
    struct tt_staged_part *part;
    struct tt_stage *stage;
    uint32_t number; /* that the words get */
    bool replayed;   /* from a CUDA graph: ready gets TT_REPLAY_... */
    int64_t stop_ns; /* after a failure: until when it waits for copies; 0: it does not yet */
    uint64_t flush;  /* the number of the flush that it waits for; 0: none */
};

/* Memory that calls use in turn: they begin in order, each when the one before is done. */
struct tt_stage_shared {
    char *memory;
    size_t nbytes;
};

/* What a communicator has for such calls. Owned by the communicator. */
struct tt_staged_part {
    struct tt_context_user user; /* of the GPU's context; first: its address is the part's */
    /* immutable after init */
    const struct tt_engine *engine; /* of the communicator */
    struct tt_context *context;     /* of the rank's GPU */
    struct tt_gpu_watch *watch;     /* whether it is lost */
    void *stream;                   /* of the rank, for calls without one */
    void *order;              /* the event of the last call on a stream: the next one follows it */
    struct tt_stream *thread; /* the staging thread */
    struct tt_copier *copier; /* queues the copies of calls that run */
    /* owner: the issuing thread */
    void *copies;  /* the stream of the copier's copies */
    size_t nbytes; /* TUTTI_STAGE_BYTES */
    struct tt_stage *stages[TT_STAGE_CLASSES];
    struct tt_stage_block *blocks;
    size_t held_bytes; /* of the blocks, and of captured calls */
    size_t own_most;   /* the limit of memory that calls use of their own */
    struct tt_stage_shared collectives;
    struct tt_stage_shared *messages; /* [2 x nranks]: sent to, received from; NULL: none yet */
    struct tt_stage_graphs *_Atomic graphs; /* graphs.h; NULL: no call was captured */
    struct tt_staged_task *task;            /* of the group that is being issued; NULL: none */
    struct tt_gpu_pages *pages;             /* memory that devices of the network use in place */
    bool copies_gpus; /* no device of the network can use memory of this rank's GPU in place */
    struct tt_staged_part *next_left; /* of those whose communicators are gone */
};

/* ---- Memory --------------------------------------------------------------------------------- */

/* Which staging memory a call gets, if so many bytes are already had for calls of their own. */
enum tt_stage_kind {
    TT_STAGE_SHARED, /* none of its own */
    TT_STAGE_IF_ROOM,
    TT_STAGE_OWN, /* in any case */
};
/* Staging memory for a call with at most npieces pieces. SYSTEM: out of pinned memory. IN_PROGRESS,
 * for OWN and may_wait: others use all that there may be; call again. */
TT_NODISCARD tt_status tt_stage_take(struct tt_staged_part *staged, enum tt_stage_kind kind,
                                     size_t nbytes, bool may_wait, int npieces,
                                     struct tt_stage **stage);
/* At least nbytes of memory that is shared. */
TT_NODISCARD tt_status tt_stage_share(struct tt_staged_part *staged, struct tt_stage_shared *shared,
                                      size_t nbytes);
/* What messages share with one another: [2 x nranks], sent to each rank, received from it. */
TT_NODISCARD tt_status tt_stage_messages(struct tt_staged_part *staged, int nranks,
                                         struct tt_stage_shared **messages);
/* The call was not issued. NULL is allowed. */
void tt_stage_drop(struct tt_stage *stage);
/* The communicator has ended: drops the calls that groups hold. */
void tt_stage_drop_held(struct tt_staged_part *staged);
/* A CUDA graph has captured the call: from now on the graph's nodes change the stage's words, and
 * no other call gets the stage. */
void tt_stage_keep(struct tt_stage *stage);
/* The graph is gone: other calls may get the stage again. */
void tt_stage_release(struct tt_stage *stage);
/* Whether no CUDA stream uses any of it. */
bool tt_stage_all_are_free(const struct tt_staged_part *staged);
void tt_stage_free_blocks(struct tt_staged_part *staged);

/* ---- Calls ---------------------------------------------------------------------------------- */

/* Gives the call staging memory: afterwards its buffers and its scalar lie there, or pass through
 * it in portions. A call with a count for each rank is bound to the places of the caller's blocks
 * if they pass through staging memory in portions, else they are packed there (tt_stage_packs). A
 * failure is the communicator's, but for USAGE. Waits while earlier calls have all the memory that
 * there may be, unless the call's group holds a staged one of the communicator already. */
TT_NODISCARD tt_status tt_stage_prepare(struct tt_pending_call *pending,
                                        const struct tt_where *where,
                                        const struct tt_call_blocks *blocks);
/* Whether the ranks that the call needs are there, while it waits without a turn. */
TT_NODISCARD tt_status tt_staged_check_ranks(const struct tt_pending_call *pending);
bool tt_stage_packs(const struct tt_pending_call *pending, size_t nbytes);

/* Gives the work its turn, and connects it with the call's staging memory. */
void tt_staged_begin(struct tt_staged_work *work, struct tt_pending_call *pending);
/* If the driver refused what was to be queued for the call (status), the communicator fails. */
void tt_staged_check_call(const struct tt_pending_call *pending, tt_status status);
/* Queues the store to words->ended, behind all that the stream does for the call. */
TT_NODISCARD tt_status tt_staged_tell_ended(const struct tt_pending_call *pending);
/* The CUDA stream of a staged call: the user's, or the rank's own. */
void *tt_staged_stream(const struct tt_pending_call *pending);
/* The CUDA stream that waits for the end of the call: that one, or, apart, the rank's own. */
void *tt_staged_waiting_stream(const struct tt_pending_call *pending);
/* Collectives of ranks of one communicator in this process. */
bool tt_staged_are_of_one(const struct tt_pending_call *a, const struct tt_pending_call *b);

/* ---- Stages of a group ---------------------------------------------------------------------- */

/* Before the calls are captured or begin: finds the collectives that use the output of an earlier
 * one of the group; their copies are made when the earlier one's have been. USAGE: the copier is to
 * make copies for a collective, and streams that wait may have all hardware queues; or a message
 * uses the output of a collective, or may write the input of one before it is read. */
TT_NODISCARD tt_status tt_staged_link(struct tt_calls *calls);
/* Calls of a rank in a group that are on several streams: before any of them, all these streams
 * come to the group; afterwards all follow all of the calls. */
void tt_staged_join(struct tt_calls *calls, bool before);
/* Queues what the streams do before these calls, after they have begun. Failures are the
 * communicators'. Enters the calls without a stream. */
void tt_staged_copy_in(struct tt_calls *calls);
/* Queues what they do afterwards: when all have got what they do before, so that calls of several
 * ranks on one stream do not wait for one another, and the staging threads have the calls, so that
 * a stream that is full gets room. All ranks' part of a collective is queued before the next
 * one, and messages last: so what a stream waits for stands before it, also where streams share a
 * hardware queue. */
void tt_staged_copy_out(struct tt_calls *calls);
/* Leaves a call without a stream that is done, and whose communicator has failed, which it returns.
 * Makes no call of the driver, which may hold up who watches the other calls of the group. */
TT_NODISCARD tt_status tt_staged_give_up(struct tt_pending_call *pending);
/* Copies the output of those without a stream, which have run, and leaves them. status: what the
 * run gave; returns it, or the first failure here. */
TT_NODISCARD tt_status tt_staged_finish(struct tt_calls *calls, tt_status status);
TT_NODISCARD tt_status tt_staged_capture(struct tt_calls *calls, void **captured);
void tt_staged_captured(void *captured, bool holds);

/* ---- Memory of the rank's GPU that devices of the network use in place ------------------------
 */

void tt_staged_register(struct tt_comm_core *core, void *memory, size_t nbytes, void **handle);
TT_NODISCARD tt_status tt_staged_deregister(struct tt_comm_core *core, void *handle, bool waits);
/* Whether the buffer lies in such memory. */
bool tt_staged_is_registered(const struct tt_comm_core *core, const void *data, size_t nbytes);

#endif
