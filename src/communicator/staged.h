/* Calls on GPU memory in a communicator that cannot run them by kernels: not all of its ranks have
 * GPUs of one host, or kernels cannot run there. Such a call runs on the host, on staging memory,
 * which is pinned memory of the communicator:
 *
 *     the user's CUDA stream      staging memory      the attendant, a thread of the host
 *     copy of the input    ---->  input
 *     store                ---->  ready         ---->  waits for it, then runs the call on staging
 *     wait                 <----  done          <----  memory as any call of the host
 *     copy of the output   <----  output
 *     store                ---->  ended: the next call may use the staging memory
 *
 * The other ranks see a call of the host. The calling thread only queues; the attendant copies
 * nothing. A call without a stream does the same on a stream of the rank, which follows the legacy
 * stream, and the calling thread runs the call and queues the copy of the output afterwards.
 *
 * Where a collective may be in place, it is so in staging memory, whatever the caller's buffers
 * are.
 *
 * A call that is larger than TUTTI_STAGE_BYTES passes through staging memory in portions, which all
 * such calls share (executor/staged_portions.h): the user's stream only stores and waits, who runs
 * the call queues the copies on a stream of the communicator. So it is with smaller calls when many
 * wait, and in a group with collectives that use one another's buffers. */
#ifndef TT_COMMUNICATOR_STAGED_H
#define TT_COMMUNICATOR_STAGED_H

#include "communicator/request.h"
#include "executor/staged_portions.h"
#include "executor/stream.h"

struct tt_stage_block;
struct tt_stage_graphs;

enum { TT_STAGE_CLASSES = 48 }; /* staging memory has 2^class bytes; class 0: none */

/* What one call has of staging memory. Part of a block; used again and again. */
struct tt_stage {
    struct tt_stage_words *words; /* pinned, as is the memory */
    char *memory;                 /* NULL: shared with other calls */
    bool is_used;                 /* by a call, until its words say that it has ended */
    bool is_kept;                 /* by a CUDA graph, until tt_stage_release */
    uint32_t number;              /* of the last use */
    /* of this use */
    bool failed;                   /* its stream may never say that it has ended */
    bool captured;                 /* its stream was being captured when the call was made */
    bool is_collective;            /* the call */
    bool by_host;                  /* who runs the call queues the copies, as `portions` says */
    char *gpu;                     /* of a message: as in struct tt_staged_run */
    struct tt_extent in, out;      /* of the caller's memory; of a collective */
    struct tt_stage_piece *pieces; /* [room] */
    int room, nin, nout;           /* pieces of the input, then those of the output */
    struct tt_stage_portions portions;
    struct tt_stage *next; /* of the class */
};

/* Memory that calls use in turn: they begin in order, each when the one before is done. */
struct tt_stage_shared {
    char *memory;
    size_t nbytes;
};

/* What a communicator has for such calls. Owned by the communicator. */
struct tt_comm_staged {
    /* immutable after init */
    struct tt_context *context; /* of the rank's GPU */
    void *stream;               /* of the rank, for calls without one */
    void *order; /* the event of the last call on a stream: the next one follows it */
    struct tt_stream *attendant;
    /* owner: the issuing thread */
    void *copies;  /* the stream of copies that who runs a call queues */
    size_t nbytes; /* TUTTI_STAGE_BYTES */
    struct tt_stage *stages[TT_STAGE_CLASSES];
    struct tt_stage_block *blocks;
    size_t held_bytes;          /* of the blocks, and of captured calls */
    size_t own_bytes, own_most; /* of memory that calls have of their own; and the limit */
    struct tt_stage_shared collectives;
    struct tt_stage_shared *messages; /* [2 x nranks]: sent to, received from; NULL: none yet */
    struct tt_stage_graphs *graphs;   /* staged_graphs.h; NULL: no call was captured */
    struct tt_comm_staged *next_left; /* of those whose communicators are gone */
};

/* Whether calls may be on the memory of this rank's GPU. */
static inline bool tt_comm_takes_gpus(const struct tuttiComm *comm)
{
    return comm->on_gpu || comm->staged;
}

/* ---- Creation ------------------------------------------------------------------------------- */

/* Opens this rank's GPU (comm->gpu) for staged calls; sets comm->staged. */
TT_NODISCARD tt_status tt_comm_staged_open(tuttiComm_t comm);
/* No call is outstanding. What CUDA streams may still use is freed later: by the next call of this
 * function or of tt_comm_staged_open. comm->staged may be NULL. */
void tt_comm_staged_free(tuttiComm_t comm);

/* Staging memory for a call with at most npieces pieces; without memory where the call is too large
 * for its own, or too many others wait. SYSTEM: out of pinned memory. */
TT_NODISCARD tt_status tt_stage_take(struct tt_comm_staged *staged, size_t nbytes, int npieces,
                                     struct tt_stage **stage);
/* At least nbytes of memory that is shared. */
TT_NODISCARD tt_status tt_stage_share(struct tt_comm_staged *staged, struct tt_stage_shared *shared,
                                      size_t nbytes);
/* What messages share with one another: [2 x nranks], sent to each rank, received from it. */
TT_NODISCARD tt_status tt_stage_messages(struct tt_comm_staged *staged, int nranks,
                                         struct tt_stage_shared **messages);
/* Bytes that a communicator holds for staged calls. staged may be NULL. */
size_t tt_comm_staged_bytes(const struct tt_comm_staged *staged);
/* The call was not issued. NULL is allowed. */
void tt_stage_drop(struct tt_stage *stage);
/* A CUDA graph has captured the call: from now on the graph's nodes change the stage's words, and
 * no other call gets the stage. */
void tt_stage_keep(struct tt_stage *stage);
/* The graph is gone: other calls may get the stage again. */
void tt_stage_release(struct tt_stage *stage);

/* ---- Calls ---------------------------------------------------------------------------------- */

/* Gives the call staging memory: afterwards its buffers and its scalar lie there, or pass through
 * it in portions. A failure is the communicator's. In and out: bytes of this rank's buffers; own:
 * bytes before this rank's block in a buffer that holds all. */
TT_NODISCARD tt_status tt_comm_stage_collective(struct tt_pending_call *pending,
                                                const struct tt_request *request, size_t in,
                                                size_t out, size_t own);
/* The same with a count and a place for each rank (displs NULL: packed), in elements. The call is
 * bound to these places if the blocks pass through staging memory in portions, else they are packed
 * there. */
bool tt_comm_stage_packs(const struct tuttiComm *comm, size_t nbytes);
TT_NODISCARD tt_status tt_comm_stage_uneven(struct tt_pending_call *pending,
                                            const struct tt_request *request, const size_t *counts,
                                            const size_t *displs, size_t element);
TT_NODISCARD tt_status tt_comm_stage_message(struct tt_pending_call *pending);

/* Before the calls of a group begin: finds the collectives that use the output of an earlier one of
 * the group; their copies are made when the earlier one's have been. */
void tt_comm_staged_link(const struct tt_pending_call *calls, int ncalls);
/* The CUDA stream of a staged call: the user's, or the rank's own. */
void *tt_staged_stream(const struct tt_pending_call *pending);
/* If the driver refused what was to be queued for the call (status), the communicator fails. */
void tt_staged_check_call(const struct tt_pending_call *pending, tt_status status);
/* Calls of a rank in a group that are on several streams: before any of them, all these streams
 * come to the group; afterwards all follow all of the calls. */
void tt_comm_staged_join(const struct tt_pending_call *calls, int ncalls, bool before);
/* Connects the work of a call with its staging memory; before any call is launched. */
void tt_comm_staged_begin(const struct tt_pending_call *pending, struct tt_work *work);
/* Queues what the streams do before these calls (those that are staged), after they have begun.
 * Failures are the communicators'. Enters the calls without a stream. */
void tt_comm_staged_launch(const struct tt_pending_call *calls, int ncalls);
/* Queues what they do afterwards: when all have got what they do before, so that calls of several
 * ranks on one stream do not wait for one another, and the workers have the calls, so that a stream
 * that is full gets room. */
void tt_comm_staged_follow(const struct tt_pending_call *calls, int ncalls);
/* Leaves a call without a stream that is done, and whose communicator has failed, which it returns.
 */
TT_NODISCARD tt_status tt_comm_staged_give_up(const struct tt_pending_call *pending);
/* Copies the output of those without a stream, which have run, and leaves them. status: what the
 * run gave; returns it, or the first failure here. */
TT_NODISCARD tt_status tt_comm_staged_finish(const struct tt_pending_call *calls, int ncalls,
                                             tt_status status);

#endif
