/* The engine: one communicator's execution state: turns, scratch memory, and the operations that
 * run over its fabric. */
#ifndef TT_EXECUTOR_ENGINE_H
#define TT_EXECUTOR_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "datatype/datatype.h"
#include "device/device.h"
#include "executor/loaded.h"
#include "program/program.h"
#include "schedule/schedule.h"
#include "transport/fabric.h"
#include "transport/host/meeting.h"

/* What a step of one channel works with: pointers, one for each peer of the step. */
struct tt_step_pointers {
    const void **messages; /* [nranks + 1]: where the messages, or the parts of a meeting, lie */
    const void **inputs;   /* [nranks + 1]: what is folded, in order */
    bool *raw;             /* [nranks + 1]: which of the inputs are raw (struct tt_sources) */
    char **slots;          /* [nranks]: the slots to fill; NULL: the message is a reference */
    bool *claimed;         /* [nranks]: that slot is memory of the receiver */
    bool *nontemporal;     /* [nranks]: which the receiver wants stored past the caches */
    struct tt_target *targets; /* [nranks + 1]: where a piece of the result goes */
};

/* Owned by the communicator. Calls are issued by one thread at a time; they run in the issuing
 * thread or in stream workers. */
struct tt_engine {
    /* immutable after init */
    struct tt_fabric *fabric;
    int64_t timeout_ms;
    const char *name; /* of the communicator, for messages; the communicator's */
    /* The name of an algorithm, for messages; NULL, or returns NULL: unknown. */
    const char *(*algorithm_name)(enum tt_collective collective, uint64_t id);

    /* owner: the issuing thread */
    uint64_t collectives_issued;
    uint64_t exchanges_issued;
    uint64_t *sends_issued, *recvs_issued; /* [nranks] */

    /* atomic: turns; a call runs when all earlier ones of its kind (and peer) are done */
    _Atomic uint64_t collectives_done, exchanges_done;
    _Atomic uint64_t *sends_done, *recvs_done; /* [nranks] */
    _Atomic int outstanding;                   /* calls issued and not done */
    /* Calls whose kernels may use memory of other ranks (tt_fabric_borrow); those that failed,
     * until no kernel of the rank can. */
    _Atomic int nborrowed;
    /* A thread advances an operation of this communicator. Set (acquire) after the last thread has
     * left (release). */
    _Atomic bool busy;

    /* owner: the thread that holds busy. Channels: those of collectives */
    struct tt_meeting *meetings; /* [channels]: of the ranks of this host */
    unsigned still;              /* turns in which nothing moved */
    int64_t report_ns; /* when other hosts are told where this rank is; 0: not decided yet */
    char *scratch;
    size_t scratch_bytes;
    struct tt_step_pointers *pointers; /* [channels] */
    struct tt_position *positions;     /* [channels]: of the collective that is running */
    char **bounce; /* [channels x nranks], slot_bytes each, made at first use: messages that must be
                      fetched */
};

/* EXCHANGE: sends and receives that a kernel carries out (executor/exchange.h). */
enum tt_work_kind { TT_WORK_COLLECTIVE, TT_WORK_SEND, TT_WORK_RECV, TT_WORK_EXCHANGE };

TT_NODISCARD tt_status tt_engine_init(struct tt_engine *engine, struct tt_fabric *fabric,
                                      int64_t timeout_ms, const char *name);
void tt_engine_fini(struct tt_engine *engine);
/* Until leave, no other thread advances an operation or uses the wires. Waits until the thread that
 * advances one has left. */
void tt_engine_enter(struct tt_engine *engine);
void tt_engine_leave(struct tt_engine *engine);
/* The same, without waiting; false: an operation is issued or is being advanced. */
bool tt_engine_enter_if_idle(struct tt_engine *engine);
/* Reads records and failures from other hosts, unless another thread advances an operation: that
 * thread reads them. */
void tt_engine_look(struct tt_engine *engine);
/* While a call waits before it has its turn: says that this rank waits, and looks at the ranks that
 * the call needs (peer: of a message). TT_OK, also where another thread advances an operation; or
 * the communicator's failure. */
TT_NODISCARD tt_status tt_engine_check(struct tt_engine *engine, enum tt_work_kind kind, int peer);
/* Bytes that the engine and its fabric hold, without the struct. */
size_t tt_engine_bytes(struct tt_engine *engine);
/* Whether all issued operations are done. */
bool tt_engine_idle(const struct tt_engine *engine);

/* Added to the type of an entry whose call runs on a GPU: the ranks of a call must agree on that.
 */
enum { TT_ENTRY_ON_DEVICE = 0x100 };

/* What a rank says of a call in its record, but for the turn (struct tt_entry). Plain data, made
 * once for all calls that are alike. */
struct tt_call_entry {
    uint64_t count, algorithm;
    uint32_t collective, type, op; /* of their enums */
    int32_t root;
};

/* A call that a kernel carries out (executor/kernel_run.h). Zero: the host does. */
struct tt_kernel_run {
    struct tt_device_report *report; /* of the rank */
    struct tt_context *context;
    void *stream;    /* the rank's own, on which the kernel was launched */
    uint64_t number; /* struct tt_device_call */
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
    uint32_t in;                /* by the stream of portions (staged_portions.h): those copied in */
    uint32_t out;               /* and those copied out */
    char scalar[8];             /* of a pre-multiplied sum */
};

/* A call whose buffers are staging memory, for the memory of a GPU (communicator/staged.h). Zero:
 * they are the caller's. */
struct tt_staged_run {
    struct tt_stage_words *words;
    uint32_t number;                    /* that the words get */
    bool replayed;                      /* from a CUDA graph: ready gets TT_REPLAY_... */
    struct tt_context *context;         /* of the rank's GPU */
    void *stream;                       /* of the rank, to ask whether the GPU is lost */
    struct tt_stage_portions *portions; /* copied by who runs the call; NULL: the user's stream
                                         * copies */
    char *gpu; /* of a message: the caller's memory, where a device of the network may use it in
                * place of staging memory; NULL: it does not, or no more */
};

/* What a collective call asks for. Plain data but for the caller's pointers. */
struct tt_call {
    const struct tt_loaded *loaded; /* borrowed until the operation is done */
    /* Of the count and the type; copied when the call is issued. With a table of blocks it is made
     * by malloc() and becomes the operation's, which frees it when done. */
    const struct tt_binding *binding;
    const void *input;
    void *output;
    struct tt_reduction reduction; /* its type is the data's type also where nothing is reduced */
    const void *scalar; /* read into the reduction when the call starts; NULL: it is there */
    struct tt_kernel_run kernel;
    uint64_t signature; /* tt_call_signature, without the turn */
    struct tt_call_entry entry;
};

/* What every rank that makes this call has the same. */
uint64_t tt_call_signature(const struct tt_program *program, size_t count,
                           const struct tt_reduction *reduction);

/* The entry of calls of `count` elements. Where each rank has a count of its own, `count` is the
 * sum of all of them. */
struct tt_call_entry tt_call_entry_make(const struct tt_program *program, size_t count,
                                        const struct tt_reduction *reduction);

/* "all_reduce (count 5, float, sum) on a GPU". */
void tt_call_describe(const struct tt_call_entry *call, char *text, size_t size);

/* For a count for each rank, in place of the count. */
uint64_t tt_counts_signature(const size_t *counts, int nranks);

enum tt_work_state {
    TT_WORK_ISSUED, /* waits for its turn */
    TT_WORK_RUNNING,
    TT_WORK_LEAVING,     /* done, but what it published or released has not all left this rank */
    TT_WORK_WITHDRAWING, /* failed (status), but a peer still uses the caller's memory */
    TT_WORK_DONE,        /* `status` is the result */
};

/* A collective that is being carried out. */
struct tt_collective_work {
    struct tt_call call;
    struct tt_binding binding; /* without its table of blocks, if any, which is call.binding's */
    uint64_t signature;        /* with the turn */
    uintptr_t
        origin[3]; /* INPUT, OUTPUT: where element 0 of the global naming would lie; SCRATCH */
    struct tt_memory memory[3];   /* these buffers, as links address them */
    bool direct[3];               /* may be sent by reference */
    struct tt_link *const *links; /* of the copy that is being advanced, by the program's table */
    bool references; /* a message was sent by reference: its receivers must take it before the call
                        is done */
    bool posts;      /* peers may write messages to the caller's output */
    int64_t mismatch_ns; /* until when a peer of another host may explain itself; 0: no need */
    struct tt_position *channels; /* the engine's; NULL: not started */
};

/* A message between two ranks that is being carried out. */
struct tt_p2p_work {
    int peer;
    struct tt_link *link;
    struct tt_memory memory; /* the buffer, as links address it */
    char *data;
    size_t nbytes, offset;
    size_t taken; /* bytes of the link's first message copied so far */
    bool nontemporal;
    bool published;  /* all of it is in the link */
    bool references; /* some of it is a reference */
    bool in_place;   /* of a receive: a device moves it to the memory of the GPU */
};

struct tt_exchange_work {
    struct tt_group_exchange *exchange;
    struct tt_kernel_run kernel;
    int64_t gone_ns; /* until when the kernel may see what a rank did that is gone; 0: none is */
};

/* One call being carried out. Owned by the caller or a batch; must stay until done. */
struct tt_work {
    struct tt_engine *engine; /* may be gone when the work is done */
    enum tt_work_kind kind;
    enum tt_work_state state;
    tt_status status;
    uint64_t turn;            /* number among the calls it is ordered with, from 1 */
    int64_t deadline_ns;      /* 0: not set yet */
    uint64_t progress;        /* grows whenever something moved */
    struct tt_stream *stream; /* of a GPU, which is told the end (executor/stream.h); NULL: none */
    struct tt_staged_run staged;
    /* Of a call that a kernel carries out */
    bool uses_peers;  /* it may use memory of other ranks of this process (tt_fabric_borrow) */
    int64_t grace_ns; /* after a failure: until when the kernel may wait for ranks that read what it
                       * has sent by reference; 0: none yet */
    union {
        struct tt_collective_work collective;
        struct tt_p2p_work p2p;
        struct tt_exchange_work exchange;
    };
};

static inline bool tt_work_is_done(const struct tt_work *work)
{
    return work->state == TT_WORK_DONE;
}

/* Issues a call: gives it its turn. The operation then runs when advanced. */
void tt_work_collective(struct tt_work *work, struct tt_engine *engine, const struct tt_call *call);
void tt_work_send(struct tt_work *work, struct tt_engine *engine, const void *data, size_t nbytes,
                  int peer);
void tt_work_recv(struct tt_work *work, struct tt_engine *engine, void *data, size_t nbytes,
                  int peer);

/* Sends or receives a small message at once, as the next call between the two ranks. The caller has
 * entered the engine while it was idle. False: it cannot be done without waiting, or something is
 * wrong; then nothing has happened. */
bool tt_p2p_express(struct tt_engine *engine, enum tt_work_kind kind, void *data, size_t nbytes,
                    int peer);

/* Does what can be done without waiting. TT_OK done, TT_IN_PROGRESS, or the error (also left in
 * work->status). */
TT_NODISCARD tt_status tt_work_advance(struct tt_work *work);

/* For long waits: looks at the deadline, the dead and disagreeing peers, and ends the work if there
 * is no hope. */
void tt_work_examine(struct tt_work *work);

/* Runs operations together until all are done; the first error is returned, with its text, after
 * the rest has ended. `polite`: never spins (for worker threads beside a computing one). */
TT_NODISCARD tt_status tt_run(struct tt_work *works, int nworks, bool polite);
/* The same; look(arg) is called about every millisecond while it waits. */
TT_NODISCARD tt_status tt_run_and_look(struct tt_work *works, int nworks, void (*look)(void *arg),
                                       void *arg);

#endif
