/* Carriers: the ways to carry a call out. The host carries calls on its memory; kernels carry calls
 * on the memory of GPUs; where kernels cannot, the host carries those too, on staging memory with
 * copies in and out (staged). Which carrier a call has is decided once, when the call is issued
 * (tt_carrier_select); from then on the call has a pointer to the carrier's table.
 *
 * `prepare` gives each call what it needs of its own, when it is made; it may wait until earlier
 * calls have ended. At its end the calls of a group go through these phases; each phase takes all
 * calls of a carrier at once:
 *
 *     gather    sends and receives that are carried out together become one call, calls of one
 *               communicator may move together; calls that may not be in one group are refused
 *     capture   calls on CUDA streams that are being captured become nodes of a graph
 *     reserve   takes the rest of the memory that the calls need: the last phase that can fail
 *     captured  what was captured holds, of all carriers, or, after a failure, nothing
 *     begin     one call after the other, in the order of the group, gets its turn; calls that were
 *               gathered get theirs in launch, but for those that have turns among the host's
 *     launch    what must stand in a queue before anything waits
 *     follow    the rest: the thread that runs the calls gets them
 *     wait      for calls without a stream, when the calling thread has run what it runs
 *
 * Most carriers need only some phases; the others are NULL. Few calls of the host without streams
 * need `begin` at most, and skip the rest (issue_few of communicator/issue.c); one of them alone,
 * which is like an earlier one, is no pending call at all (communicator/call.c). */
#ifndef TT_CARRIER_CARRIER_H
#define TT_CARRIER_CARRIER_H

#include "executor/stream.h"
#include "executor/work.h"

enum { TT_COMM_NAME = 64, TT_BINDINGS_KEPT = 4 };

struct tt_algorithm;
struct tt_carrier;
struct tt_context;
struct tt_copies;
struct tt_device_program;
struct tt_group_exchange;
struct tt_kernel_part;
struct tt_stage;
struct tt_staged_part;

/* ---- What carriers know of a communicator --------------------------------------------------- */

/* This rank of a communicator. The first member of struct tuttiComm. */
struct tt_comm_core {
    /* immutable after init */
    int rank, nranks;
    int gpu;                    /* of this rank; -1: none */
    struct tt_context *context; /* the GPU's, where calls on its memory are carried; else NULL */
    char name[TT_COMM_NAME];
    struct tt_fabric *fabric;
    /* Which carry calls on the memory of this rank's GPU; both NULL: calls there are refused. The
     * parts belong to the carriers. */
    struct tt_kernel_part *kernel;
    struct tt_staged_part *staged;
    char no_kernels[512];    /* why `kernel` is NULL */
    struct tt_hosts *groups; /* of ranks whose GPUs are near to one another, owned; NULL: all are
                              * alike, or there are no kernels */
    /* owner: the issuing thread */
    struct tt_engine engine;
    /* atomic */
    _Atomic int calls; /* between tt_core_enter_call and tt_core_leave_call */
};

/* Between these an end by another thread does not free the communicator: for functions that use it
 * without calls of their own, and for calls that use it again after waiting in it. */
static inline void tt_core_enter_call(struct tt_comm_core *core)
{
    atomic_fetch_add(&core->calls, 1); /* before what follows: communicator/calling.c */
}

static inline void tt_core_leave_call(struct tt_comm_core *core)
{
    /* acquire: tt_comm_await_calls */
    atomic_fetch_sub_explicit(&core->calls, 1, memory_order_release);
}

/* Fails the communicator with the last error, because the other ranks would wait for a call that
 * this rank cannot make. They get the same text, so it names this rank; one about a remote rank
 * names that. */
TT_NODISCARD tt_status tt_core_fail_call(struct tt_comm_core *core, tt_status status);
/* tt_core_fail_call where this rank has no memory, thread or descriptor for the call, or its driver
 * has failed (TT_ERR_SYSTEM, TT_ERR_DEVICE), and there are other ranks. Other failures stay this
 * rank's: what the caller passed is an error on the other ranks too, or for the caller to mend.
 * Returns the status. By the issuing thread. */
TT_NODISCARD tt_status tt_core_tell_failure(struct tt_comm_core *core, tt_status status);
/* Fails the communicator, where there are other ranks, with this status and "rank 0 (host ...)
 * <does>: <the last error>". Where it has failed already, the ranks that wait for this one learn
 * why. Keeps the last error. By the issuing thread. */
void tt_core_tell_others(struct tt_comm_core *core, tt_status status, const char *does);

/* ---- Calls ---------------------------------------------------------------------------------- */

/* A binding of a program, and its steps. */
struct tt_bound {
    struct tt_binding binding;
    struct tt_step_table *resolved; /* NULL: none were made */
    size_t resolved_bytes;
    bool is_resolved; /* these are the binding's; false: of an earlier binding, whose calls may not
                       * be done */
};

/* A program made once and kept for the next call like it, and its last bindings. Owned by the
 * communicator's cache. */
struct tt_cached {
    const struct tt_algorithm *algorithm;
    const struct tt_carrier *carrier; /* whose call it was made for; unloads it */
    struct tt_loaded *loaded;
    bool any_count;           /* its proof holds for every count */
    struct tt_copies *copies; /* of the program, by the bytes of a call, at most; owned. NULL: as
                               * many as it is loaded for */
    _Atomic int nheld;        /* calls in open groups that will use it */
    uint64_t last_turn;       /* of the last call that uses it and did not go express */
    struct tt_bound bound[TT_BINDINGS_KEPT];
    int oldest; /* index of the binding that the next one takes the place of */
    struct tt_cached *next;
    /* of kernels */
    void *device_memory;                      /* where kernels read the program; NULL: not yet */
    void *device_upload;                      /* its bytes; NULL: their copy is queued */
    struct tt_device_program *device_program; /* how they find it; NULL: not yet */
    bool is_captured;                         /* calls of CUDA graphs use its device memory */
    int nbridged;                             /* copies of the program whose bridges are bound */
};

/* EXCHANGE: sends and receives that a kernel carries out together. */
enum tt_call_kind { TT_CALL_COLLECTIVE, TT_CALL_SEND, TT_CALL_RECV, TT_CALL_EXCHANGE };

/* One call as the user made it, arguments checked. */
struct tt_pending_call {
    struct tt_comm_core *comm;
    const struct tt_carrier *carrier;
    struct tt_stream *stream; /* NULL: the calling thread runs the call */
    enum tt_call_kind kind;
    int peer; /* of sends and receives, as data and nbytes */
    void *data;
    size_t nbytes;
    const void *users[2]; /* the buffers as the user gave them */
    /* of its group */
    struct tt_pending_call *next; /* of the carrier's calls */
    struct tt_work *work;         /* reserved; NULL: the carrier has its memory */
    uint64_t number;              /* of the communicator, where the call is held back */
    int to_itself;                /* of messages to the rank itself: see check_may_wait */
    bool is_gone;                 /* gathered into another call, or captured */
    uint64_t capture;             /* of its stream into a CUDA graph (struct tt_capture); 0: none */
    /* of kernels */
    struct tt_group_exchange *exchange; /* kind EXCHANGE, or gathered into it; else NULL */
    bool is_first;   /* of the calls with the same exchange, one for each stream */
    bool uses_peers; /* its kernel does */
    struct tt_pending_call *next_of_run; /* of the rank's run (struct tt_launch_run) */
    /* of staged calls */
    struct tt_stage *stage; /* its copies, until they are done; owned, by malloc */
    uint32_t bounce;        /* the number of its bounce */
    /* Of collectives, and last: sends and receives leave all of this uninitialised */
    struct tt_call call;
    struct tt_cached *cached; /* whose program the call uses */
    struct tt_binding kept;   /* where the call is held back; else uninitialised */
};

/* The calls of one carrier in a group, in the order of the group, or that of its `gather`. */
struct tt_calls {
    struct tt_pending_call *first, **last;
    void *memory;    /* of calls that took the place of others; freed by free() with the list */
    bool has_others; /* the group has calls of other carriers too */
    /* The first failure of a call that was left before the others ended (look) */
    tt_status left;
    char left_text[TT_ERROR_TEXT];
};

static inline void tt_calls_init(struct tt_calls *calls)
{
    calls->first = NULL;
    calls->last = &calls->first;
    calls->memory = NULL;
    calls->has_others = false;
    calls->left = TT_OK;
}

static inline void tt_calls_add(struct tt_calls *calls, struct tt_pending_call *call)
{
    call->next = NULL;
    *calls->last = call;
    calls->last = &call->next;
}

/* Takes calls that are gone out of the list. */
void tt_calls_drop_gone(struct tt_calls *calls);

/* A table of blocks that is memory of the call's own. */
static inline bool tt_call_has_table(const struct tt_pending_call *call)
{
    return call->kind == TT_CALL_COLLECTIVE && call->call.binding->table_at;
}

/* Frees what is memory of the call's own, where it will not begin: its table of blocks, its stage.
 * Its communicator may be gone. */
void tt_call_free_own(struct tt_pending_call *call);

/* ---- Arguments ------------------------------------------------------------------------------ */

/* Bytes [first, first + nbytes) of a buffer. */
struct tt_extent {
    uintptr_t first;
    size_t nbytes;
};

static inline bool tt_extents_overlap(struct tt_extent a, struct tt_extent b)
{
    return a.nbytes && b.nbytes && a.first < b.first + b.nbytes && b.first < a.first + a.nbytes;
}

/* Where a call's data is. */
struct tt_where {
    const char *function; /* for messages */
    const void *input;    /* as the caller gave them, also where nothing of them is used */
    void *output;
    struct tt_extent in, out; /* what this rank uses */
    const void *scalar;       /* of a pre-multiplied sum, to be read when the call runs; or NULL */
    struct tt_stream *stream;
    /* Where this rank may have no data though others have: a count for each rank, a message */
    bool may_be_empty;
};

/* How the blocks of a collective lie in the caller's buffers. */
struct tt_call_blocks {
    enum tt_collective collective;
    int root;
    size_t before_own;     /* bytes before this rank's block in a buffer that holds all */
    size_t element, total; /* bytes of an element; elements of all blocks */
    /* A count and a place for each rank, in elements. counts NULL: one count for all; displs NULL:
     * packed */
    const size_t *counts, *displs;
};

/* What limits programs and bindings where the carrier runs them. */
struct tt_carrier_limits {
    size_t slot_bytes, meet_bytes, line_bytes; /* line_bytes: 0: there are no lines */
    size_t slot_setting;                       /* the setting of slot_bytes */
    int nparts;                                /* parts that run side by side; 0: the fabric says */
    enum tt_bridge_way bridges; /* how kernels reach other hosts, the same on every rank */
    bool of_gpus;               /* kernels move the data: other costs, longer pieces */
    bool no_meetings;           /* only programs without meetings */
    const struct tt_hosts
        *groups; /* the placement of ranks for these programs; NULL: the fabric's */
};

/* Who runs programs: calls whose carriers have the same of these share choices, programs, memos. */
enum tt_program_kind { TT_PROGRAMS_OF_HOST, TT_PROGRAMS_OF_KERNELS, TT_NPROGRAM_KINDS };

/* ---- The tables ----------------------------------------------------------------------------- */

struct tt_carrier {
    const char *name;
    enum tt_program_kind programs;
    bool orders_messages; /* sends and receives have turns of its own, not those of the engine */
    size_t work_bytes;    /* of the work of a call; a struct tt_work is its first member */
    void (*limits)(const struct tt_comm_core *core, struct tt_carrier_limits *limits);
    /* Takes the program over, also when it fails. Errors as tt_loaded_create. */
    tt_status (*load)(const struct tt_comm_core *core, struct tt_program *program,
                      struct tt_loaded **loaded);
    /* Its launches wait for no other rank: they come before those of other carriers in a group. */
    bool launches_first;
    bool packs; /* a call with a count for each rank is bound to packed blocks, wherever the
                 * caller's lie */
    /* Gives a call that was bound what it needs. blocks: of collectives, else NULL. */
    tt_status (*prepare)(struct tt_pending_call *call, const struct tt_where *where,
                         const struct tt_call_blocks *blocks);
    /* The program will not be used any more: frees what the carrier has of it. */
    void (*unload)(struct tt_comm_core *core, struct tt_cached *cached);
    /* Whether a call of the carrier that was issued waits for one of the host that is queued behind
     * the function which this thread runs in a stream, and calls of the carrier that are issued now
     * would wait for that one. turns: whether a call of the host with these would. NULL: never. */
    bool (*is_held_here)(const struct tt_comm_core *core, const _Atomic uint64_t *turns);

    /* Around all of the following but `drop`, `look` and `wait`, in the thread: what they need of
     * the driver. core: of the first call. */
    tt_status (*enter)(struct tt_comm_core *core);
    void (*leave)(struct tt_comm_core *core);
    tt_status (*gather)(struct tt_calls *calls);
    /* Takes the calls that it has captured out of the list. *captured: NULL: none. */
    tt_status (*capture)(struct tt_calls *calls, void **captured);
    /* After `reserve`: what `capture` gave holds; or, where anything has failed, nothing of it. */
    void (*captured)(void *captured, bool holds);
    /* Of calls without a stream, `work` is set before. */
    tt_status (*reserve)(struct tt_calls *calls);
    /* Calls that will not begin: frees what they have, but for memory of their own. */
    void (*drop)(struct tt_calls *calls);
    void (*begin)(struct tt_pending_call *call);
    /* In the place of `begin`, of a call that was gathered, or captured. NULL: nothing is to do. */
    void (*begin_gathered)(struct tt_pending_call *call);
    void (*launch)(struct tt_calls *calls);
    void (*follow)(struct tt_calls *calls);
    /* After `follow`: the error of a call that has begun, but needs a rank that is gone. */
    tt_status (*find_refused)(const struct tt_calls *calls);
    /* Before calls without a stream run, and then about every millisecond. */
    void (*look)(struct tt_calls *calls);
    /* status: of the run; returns it, or the first failure here. */
    tt_status (*wait)(struct tt_calls *calls, tt_status status);
};

/* The limits of all calls where ranks are mixed (transport/fabric.h). False: they are not. */
bool tt_carrier_limits_of_mixed(const struct tt_comm_core *core, struct tt_carrier_limits *limits);

/* `limits` and `load` of carriers whose calls the host runs. */
void tt_carrier_limits_of_host(const struct tt_comm_core *core, struct tt_carrier_limits *limits);
TT_NODISCARD tt_status tt_carrier_load(const struct tt_comm_core *core, struct tt_program *program,
                                       struct tt_loaded **loaded);
/* `enter` and `leave` of carriers of calls on a GPU's memory. */
TT_NODISCARD tt_status tt_carrier_enter(struct tt_comm_core *core);
void tt_carrier_leave(struct tt_comm_core *core);

/* All carriers, and how many there are. */
extern const struct tt_carrier tt_carrier_host, tt_carrier_kernel, tt_carrier_staged;
enum { TT_NCARRIERS = 3 };

/* Whether where a call's data is must be looked at: else the host carries it. */
static inline bool tt_may_be_on_gpu(const struct tt_comm_core *core, const struct tt_stream *stream)
{
    return core->gpu >= 0 || (stream && !tt_stream_is_hosts(stream));
}

/* Which carries calls on the memory of this rank's GPU; the host's, where there is none. */
const struct tt_carrier *tt_carrier_of_gpu(const struct tt_comm_core *core);

/* The carrier of the call; asks the driver whose memory the buffers are. where->stream becomes NULL
 * where the host carries the call and the stream stands for none then. Fails for buffers and
 * streams that do not fit one another or this rank. The choice of an algorithm comes after that,
 * and is the communicator's. */
TT_NODISCARD tt_status tt_carrier_select(const struct tt_comm_core *core, struct tt_where *where,
                                         const struct tt_carrier **carrier);

#endif
