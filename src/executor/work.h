/* Works: calls that are being carried out, and what the kinds of calls have in common. A kind is a
 * table of functions: collectives and messages of the host are here, those of GPUs are in
 * src/carrier. */
#ifndef TT_EXECUTOR_WORK_H
#define TT_EXECUTOR_WORK_H

#include "executor/engine.h"
#include "executor/late.h"
#include "executor/loaded.h"
#include "program/resolve.h"

struct tt_stream;
struct tt_work;

/* ---- Calls ---------------------------------------------------------------------------------- */

/* Added to the type of an entry whose call kernels carry: the ranks of a call must agree on that.
 */
enum { TT_ENTRY_ON_DEVICE = 0x100 };

/* What a rank says of a collective in its record, but for the turn (struct tt_entry). Plain data,
 * made once for all calls that are alike. */
struct tt_call_entry {
    uint64_t count, algorithm;
    uint32_t collective, type, op; /* of their enums */
    int32_t root;
};

/* What a collective call asks for. Plain data but for the caller's pointers. */
struct tt_call {
    const struct tt_loaded *loaded; /* borrowed until the call is done */
    /* Of the count and the type; copied when the call is issued. With a table of blocks it is made
     * by malloc() and becomes the work's, which frees it when done. */
    const struct tt_binding *binding;
    /* The steps for this binding, borrowed until the call is done; NULL: their spans are walked */
    const struct tt_step_table *resolved;
    const void *input;
    void *output;
    struct tt_reduction reduction; /* its type is the data's type also where nothing is reduced */
    const void *scalar; /* read into the reduction when the call starts; NULL: it is there */
    uint64_t signature; /* tt_call_signature */
    struct tt_call_entry entry;
};

/* What every rank that makes this call has the same. */
uint64_t tt_call_signature(const struct tt_program *program, size_t count,
                           const struct tt_reduction *reduction);
/* For a count for each rank, in place of the count. */
uint64_t tt_counts_signature(const size_t *counts, int nranks);
/* The signature of a call behind others, of which the last one had the signature `before`; 0: it is
 * the first one. */
uint64_t tt_chained_signature(uint64_t call_signature, uint64_t before);

/* The signature of a call that kernels may carry out, on the links of kernels, and, where ranks are
 * mixed, on all: without the calls before. 31 bits. */
uint32_t tt_signature_alone(uint64_t call_signature);
/* The signature of the messages of a send: its length, the only thing that both ranks must agree
 * on. */
#define TT_SIGNATURE_OF_SEND (1ull << 63)
static inline uint64_t tt_signature_of_send(size_t nbytes)
{
    return (uint64_t)nbytes | TT_SIGNATURE_OF_SEND;
}

/* The entry of calls of `count` elements. Where each rank has a count of its own, `count` is the
 * sum of all of them. */
struct tt_call_entry tt_call_entry_make(const struct tt_program *program, size_t count,
                                        const struct tt_reduction *reduction);
/* Whether the result is there already: in place, of a rank alone, unless the operation changes it.
 */
bool tt_call_is_done_already(const struct tt_call *call);
/* "all_reduce (count 5, float, sum) on a GPU". */
void tt_call_describe(const struct tt_call_entry *call, char *text, size_t size);

/* ---- Works ---------------------------------------------------------------------------------- */

enum tt_work_state {
    TT_WORK_ISSUED, /* waits for its turn */
    TT_WORK_RUNNING,
    TT_WORK_LEAVING,     /* done, but what it published or released has not all left this rank */
    TT_WORK_WITHDRAWING, /* failed (status), but somebody still uses the caller's memory */
    TT_WORK_DONE,        /* `status` is the result */
};

/* How a kind of call is carried out. All are called by the thread that has entered the engine. An
 * error is the communicator's; functions of failures only add to its text. */
struct tt_work_ops {
    /* In the call's turn: TT_OK when the call may begin; TT_IN_PROGRESS. */
    tt_status (*ready)(struct tt_work *work);
    /* Once, after that. */
    tt_status (*start)(struct tt_work *work);
    /* Does what can be done without waiting. TT_OK: all of it; TT_IN_PROGRESS. */
    tt_status (*advance)(struct tt_work *work);
    /* After that: TT_OK when all that it published or released leaves this rank, even if this rank
     * never calls again; TT_IN_PROGRESS. */
    tt_status (*flush)(struct tt_work *work);
    /* During a long wait: fails where what the call waits for cannot come. Also before `start`. */
    tt_status (*check)(struct tt_work *work);
    /* After a failure: TT_OK when nobody uses the caller's buffers any more, or when the work's
     * deadline has passed; TT_IN_PROGRESS. */
    tt_status (*stop)(struct tt_work *work);
    /* The call is done, with this status: gives back what it has. The next call has no turn yet. */
    void (*end)(struct tt_work *work, tt_status status);
    /* "all_reduce number 12 (count 5, float, sum)". */
    void (*describe)(const struct tt_work *work, char *text, size_t size);
    /* For whom the call waits, for the text of its deadline: "; rank 3 did not answer". */
    void (*missing)(const struct tt_work *work, char *text, size_t size);
    /* What the call waits for is published by a rank of this host, which wakes a rank that sleeps.
     */
    bool is_woken;
    /* At the deadline: whether this rank knows whom the call waits for. Else other ranks may know
     * better, those for which that rank is the peer, and this one waits a little for their failure.
     */
    bool (*knows)(const struct tt_work *work);
};

/* A collective. An express call sets only the first part, until it must wait. */
struct tt_collective_work {
    /* what short steps use */
    const struct tt_call *call;       /* kept.call; in an express call the caller's */
    const struct tt_binding *binding; /* kept.binding; in an express call the caller's. Without its
                                       * table of blocks, if any: that is call->binding's */
    uint64_t signature;               /* tt_chained_signature */
    uintptr_t
        origin[3]; /* INPUT, OUTPUT: where element 0 of the global naming would lie; SCRATCH */
    struct tt_link *const *links; /* of the copy that is being advanced, by the program's table */
    const struct tt_resolved_step *resolved; /* of the channel that is being advanced; NULL: all its
                                              * spans are walked */
    struct tt_position *channels;            /* the engine's; NULL: not started */
    bool changes_raw;                        /* the operation changes raw sources */
    bool express; /* the caller waits for nothing else: looks longer at each link */
    /* the rest */
    int64_t mismatch_ns; /* until when a peer of another host may explain itself; 0: no need */
    bool is_long;        /* some messages may be sent by reference, or posted */
    bool references; /* a message was sent by reference: its receivers must take it before the call
                        is done */
    bool posts;      /* peers may write messages to the caller's output */
    bool direct[3];  /* may be sent by reference */
    struct tt_memory memory[3]; /* these buffers, as links address them */
    struct {
        struct tt_call call;
        struct tt_binding binding;
    } kept; /* what the work has a copy of, because the caller's may change */
};

/* A message between two ranks. */
struct tt_p2p_work {
    int peer;
    bool sends;
    struct tt_link *link;    /* NULL: not started */
    struct tt_memory memory; /* the buffer, as links address it */
    char *data;
    size_t nbytes, offset;
    size_t piece; /* bytes of a piece of a long message, at most */
    size_t taken; /* bytes of the link's first message copied so far */
    bool nontemporal;
    bool published;  /* all of it is in the link */
    bool references; /* some of it is a reference */
};

/* One call being carried out. Owned by the caller or a batch; must stay until done. */
struct tt_work {
    const struct tt_work_ops *ops;
    struct tt_engine *engine; /* may be gone when the work is done */
    struct tt_work *next;     /* of the works that run together */
    _Atomic uint64_t *turns;  /* of the engine: the last turn that is done */
    enum tt_work_state state;
    tt_status status;
    uint64_t turn;       /* number among the calls it is ordered with, from 1 */
    int64_t timeout_ms;  /* tt_engine_timeout when the call was issued */
    int64_t deadline_ns; /* 0: not set yet: when the work starts, or `ready` before that */
    uint64_t progress;   /* grows whenever something moved */
    struct tt_late late; /* its wait */
    bool passed_over;    /* tt_work_advance did nothing, because another thread had the engine */
    bool has_begun;      /* it is counted in the engine's nbegun */
    struct tt_stream *stream; /* which is told the end (executor/stream.h); NULL: none */
    union {
        struct tt_collective_work collective;
        struct tt_p2p_work p2p;
    };
};

static inline bool tt_work_is_done(const struct tt_work *work)
{
    return work->state == TT_WORK_DONE;
}

/* Of a collective. */
static inline const struct tt_program *tt_work_program(const struct tt_work *work)
{
    return work->collective.call->loaded->program;
}

/* Issues a call of the host: gives it its turn. The call then runs when advanced. Where its data is
 * staged, the carrier then puts operations of its own around those of the host. */
void tt_work_collective(struct tt_work *work, struct tt_engine *engine, const struct tt_call *call);
void tt_work_send(struct tt_work *work, struct tt_engine *engine, const void *data, size_t nbytes,
                  int peer);
void tt_work_recv(struct tt_work *work, struct tt_engine *engine, void *data, size_t nbytes,
                  int peer);

/* Does what can be done without waiting. TT_OK done, TT_IN_PROGRESS, or the error (also left in
 * work->status). */
TT_NODISCARD tt_status tt_work_advance(struct tt_work *work);

/* For long waits: looks at the deadline, the dead and disagreeing peers, and ends the work if there
 * is no hope. */
void tt_work_examine(struct tt_work *work);

/* Runs works, linked by `next`, together until all are done; the first error is returned, with its
 * text, after the rest has ended. `polite`: never spins (for threads beside a computing one). */
TT_NODISCARD tt_status tt_run(struct tt_work *first, bool polite);
/* tt_run(first, false), with look(arg) called about every millisecond while it waits. */
TT_NODISCARD tt_status tt_run_and_look(struct tt_work *first, void (*look)(void *arg), void *arg);

/* Whom a call needs that has no turn yet. */
struct tt_needs {
    bool collective; /* all ranks; else `peer` */
    bool sends;
    int peer;
};

/* While a call waits before it has its turn: says that this rank waits, and looks at the ranks that
 * the call needs. TT_OK, also where another thread advances a call; or the communicator's failure.
 */
TT_NODISCARD tt_status tt_engine_check(struct tt_engine *engine, const struct tt_needs *needs);

/* ---- For other kinds of works --------------------------------------------------------------- */

/* Of works on the host, and the parts of them that works elsewhere share. */
extern const struct tt_work_ops tt_collective_ops, tt_p2p_ops;

/* Ends a turn of a work, which has come to `status`: fails the communicator, or completes the work,
 * unless it is TT_IN_PROGRESS; leaves the engine. */
TT_NODISCARD tt_status tt_work_settle(struct tt_work *work, tt_status status);
/* The work runs from now on. */
void tt_work_note_begin(struct tt_work *work);
/* Issues a collective whose steps the host does not do: gives it its turn. ops->start records its
 * entry. Of work->collective only `call`, `binding`, `kept`, and what the functions below use are
 * set. */
void tt_collective_issue(struct tt_work *work, struct tt_engine *engine, const struct tt_call *call,
                         const struct tt_work_ops *ops);
/* Writes a collective into this rank's record. */
void tt_record_entry(const struct tt_engine *engine, const struct tt_call *call, uint64_t turn);
/* Checks the ranks of a collective: gone, or, once it has started, in another call. */
TT_NODISCARD tt_status tt_collective_check(struct tt_work *work);
/* Frees the table of blocks; publishes the end, where status is TT_OK. */
void tt_collective_end(struct tt_work *work, tt_status status);
/* How errors name a collective, and the ranks that it waits for: one text for all carriers. */
void tt_collective_describe(const struct tt_work *work, char *text, size_t size);
void tt_collective_missing(const struct tt_work *work, char *text, size_t size);
bool tt_collective_knows(const struct tt_work *work);
/* Fails the communicator because a peer's call differs. */
TT_NODISCARD tt_status tt_collective_mismatch(struct tt_work *work, int peer);
/* Whether nothing has been heard of a rank of another host. */
bool tt_is_unheard(const struct tt_fabric *fabric, int rank);
/* Whether a rank gives no sign of waiting: it is stopped, or does something else. Nothing is known
 * of one that is unheard. */
bool tt_is_silent(const struct tt_fabric *fabric, int rank);
/* Waits, after a failure, for ranks of this process that read the caller's buffers, or whose
 * kernels may. */
TT_NODISCARD tt_status tt_await_readers(struct tt_work *work);
TT_NODISCARD tt_status tt_await_kernels(struct tt_work *work);

/* How long a call waits, at its deadline, for peers that use its buffers. */
enum { TT_GRACE_MS = 50 };

#endif
