/* Calls on GPU memory in a communicator that cannot run them by kernels. Such a call runs on the
 * host, on staging memory, which is pinned memory of the communicator. The calls of a group on one
 * communicator are a *bounce*, which is copied as one:
 *
 *     a CUDA stream               staging memory     the staging thread (of the host)
 *     copies of the inputs ---->  inputs
 *     store                ---->  in           ---->  waits for it, then runs the calls on staging
 *     wait                 <----  done         <----  memory as any calls of the host
 *     copies of the outputs <---  outputs
 *     store                ---->  ended: nothing uses the staging memory any more
 *
 * The other ranks see calls of the host. The calling thread only queues; the staging thread makes
 * no call of the driver, which may wait for the end of these calls. All copies are in the user's
 * stream: a stream that waits holds up a hardware queue, which other streams share, so that copies
 * on another stream might come never. Where the calls of a bounce have several streams, or some
 * have none, it is on the rank's own stream, which follows these, and is followed by them.
 *
 * On the GPU an event makes each bounce follow the one before, so all use the same staging memory.
 * Where a collective may be in place, it is so there, whatever the caller's buffers are. */
#ifndef TT_CARRIER_STAGED_STAGED_H
#define TT_CARRIER_STAGED_STAGED_H

#include "carrier/carried.h"
#include "carrier/left.h"
#include "driver/context.h"

struct tt_bounce;

/* Each area of staging memory is at least twice as large as the one before: fewer fill the
 * address space. */
enum { TT_STAGE_AREAS = 64 };

/* Words in pinned memory with which CUDA streams and the host wait for one another: each is the
 * number of the last bounce that has come so far. Bounces are numbered modulo 2^32. */
struct tt_stage_words {
    uint32_t in;    /* by the streams: the inputs are in staging memory */
    uint32_t done;  /* by the host: the calls have ended */
    uint32_t ended; /* by the streams: the outputs were copied */
};

/* A piece of the caller's memory, and its place in the call's staging memory. */
struct tt_stage_piece {
    char *users;
    size_t at, nbytes;
};

/* The copies of one call, until they are done. Owned by the call. */
struct tt_stage {
    struct tt_stream *stream;         /* of the call; NULL: it has none */
    struct tt_extent in, out, scalar; /* of the caller's memory */
    char *memory;                     /* staging memory; NULL: not yet */
    size_t nbytes;                    /* of it, aligned */
    size_t in_at, out_at, scalar_at;  /* where the call's buffers lie in it; a message's: 0 */
    int nin, nout;                    /* pieces of the input, then those of the output */
    struct tt_stage_piece pieces[];
};

/* What a communicator has for such calls. Owned by the communicator. */
struct tt_staged_part {
    struct tt_context_user user; /* of the GPU's context; first: its address is the part's */
    /* immutable after init */
    const struct tt_engine *engine; /* of the communicator */
    struct tt_context *context;     /* of the rank's GPU */
    struct tt_gpu_watch *watch;     /* whether it is lost */
    void *stream;                   /* of the rank */
    void *order;                    /* the event of the last bounce: the next one follows it */
    struct tt_stream *thread;       /* the staging thread */
    struct tt_stage_words *words;
    /* owner: the issuing thread */
    uint32_t last;               /* bounce that may use staging memory on the GPU: its number */
    void *areas[TT_STAGE_AREAS]; /* of staging memory. The last one is in use; earlier bounces may
                                  * use the others */
    int nareas;
    size_t area_bytes, held_bytes; /* of the last one; of all */
    bool has_failed;               /* a bounce has; by the staging thread, before words->done */
    struct tt_left_part left;      /* where the communicator is gone */
    /* of the bounce that is being issued */
    struct tt_bounce *bounce; /* NULL: the staging thread has it */
    uint32_t number;
    void *queue;      /* the CUDA stream of its copies */
    bool has_streams; /* some of its calls have one */
    bool failed;      /* the driver refused what was to be queued: nothing more is */
    bool must_tell;   /* the store to words->ended is to be queued */
};

/* Lists the call's copies: where its buffers and its scalar will lie in its staging memory, those
 * of a call with a count for each rank packed. */
TT_NODISCARD tt_status tt_stage_prepare(struct tt_pending_call *pending,
                                        const struct tt_where *where,
                                        const struct tt_call_blocks *blocks);
/* Gives the call its staging memory: afterwards its buffers and its scalar lie there. */
void tt_stage_place(struct tt_pending_call *pending, char *memory);
/* The staging memory of the next bounce. SYSTEM: out of memory. */
TT_NODISCARD tt_status tt_stage_memory(struct tt_staged_part *staged, size_t nbytes, char **memory);

#endif
