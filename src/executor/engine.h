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
#include "schedule/schedule.h"
#include "transport/fabric.h"

/* Owned by the communicator. Calls are issued by one thread at a time; they run in the issuing
 * thread or in stream workers. */
struct tt_engine {
    /* immutable after init */
    struct tt_fabric *fabric;
    int64_t timeout_ms;
    const char *name; /* of the communicator, for messages; the communicator's */

    /* owner: the issuing thread */
    uint64_t collectives_issued;
    uint64_t *sends_issued, *recvs_issued; /* [nranks] */

    /* atomic: turns; a call runs when all earlier ones of its kind (and peer) are done */
    _Atomic uint64_t collectives_done;
    _Atomic uint64_t *sends_done, *recvs_done; /* [nranks] */
    _Atomic int outstanding;                   /* calls issued and not done */
    _Atomic bool busy; /* somebody advances an operation of this communicator (R7/A7) */

    /* owner: who holds busy */
    uint64_t meetings; /* taken part in so far */
    unsigned still;    /* turns in which nothing moved */
    int64_t report_ns; /* when other hosts are told where this rank is; 0: not decided yet */
    char *scratch;
    size_t scratch_bytes;
    const void **sources[TT_COLLECTIVE_CHANNELS]; /* [nranks + 1] each */
    const void *
        *inputs[TT_COLLECTIVE_CHANNELS];  /* [nranks + 1] each: sources in the order of reduction */
    char **slots[TT_COLLECTIVE_CHANNELS]; /* [nranks] each */
    char **bounce; /* [channels x nranks], slot_bytes each, made at first use: messages that must be
                      fetched */
};

TT_NODISCARD tt_status tt_engine_init(struct tt_engine *engine, struct tt_fabric *fabric,
                                      int64_t timeout_ms, const char *name);
void tt_engine_fini(struct tt_engine *engine);
/* Until leave, nobody else advances an operation or touches the wires. Waits for a step that is
 * under way. */
void tt_engine_enter(struct tt_engine *engine);
void tt_engine_leave(struct tt_engine *engine);
/* The same when nothing is issued or under way; false: it is. */
bool tt_engine_enter_if_idle(struct tt_engine *engine);
/* Learns what other hosts say about the communicator, unless an operation is under way, which
 * learns it. */
void tt_engine_look(struct tt_engine *engine);
/* Bytes that the engine and its wires hold. */
size_t tt_engine_bytes(struct tt_engine *engine);
/* Whether everything issued is done. */
bool tt_engine_idle(const struct tt_engine *engine);

/* How a schedule's blocks become elements for one count. Plain data; the same for every call with
 * that count. */
struct tt_binding {
    size_t count, element; /* what it is for; element 0: nothing yet */
    struct tt_geometry geometry;
    size_t total; /* elements of all blocks together */
    size_t piece; /* elements of a block's part per round */
    size_t nrounds;
    size_t skipped[2]; /* bytes of the global naming before INPUT's and OUTPUT's first block */
    bool merged;       /* whole blocks in one round: contiguous names are contiguous memory */
    bool nontemporal;  /* results go past the caches */
};

/* What a collective call asks for. Plain data. */
struct tt_call {
    const struct tt_schedule *schedule; /* borrowed until the operation is done */
    const void *input;
    void *output;
    size_t count;                  /* as the collective defines it */
    struct tt_reduction reduction; /* its type is the data's type also where nothing is reduced */
    uint32_t algorithm;            /* index in the collective's table */
    const void *scalar;      /* read into the reduction when the call starts; NULL: it is there */
    struct tt_binding *memo; /* kept by the caller: equal counts are bound once; or NULL */
};

enum tt_work_kind { TT_WORK_COLLECTIVE, TT_WORK_SEND, TT_WORK_RECV };

/* Where one channel of a collective stands. */
struct tt_work_channel {
    size_t round;
    int step;
    int ready;    /* messages or members of the present step seen so far */
    int nslots;   /* slots of the present step got so far */
    bool entered; /* meeting: own part is in */
    bool asked;   /* the message of the present step may be delivered in place */
    bool done;
};

/* One call being carried out. Owned by the caller or a batch; must stay until done. */
struct tt_work {
    struct tt_engine *engine;
    enum tt_work_kind kind;
    uint64_t turn; /* number among the calls it is ordered with, from 1 */
    uint64_t signature;
    bool started, done;
    bool finished; /* nothing is left to do but that what it published leaves this rank */
    tt_status status;
    int64_t deadline_ns; /* 0: not set yet */
    int64_t mismatch_ns; /* until when a peer of another host may explain itself; 0: no need */
    uint64_t progress;   /* grows whenever something moved */

    /* collective */
    struct tt_call call;
    struct tt_binding bound;
    uintptr_t
        origin[2];  /* address that element 0 of the global naming would have in INPUT, OUTPUT */
    bool direct[2]; /* INPUT, OUTPUT may be sent by reference */
    struct tt_work_channel channels[TT_COLLECTIVE_CHANNELS];

    /* point to point */
    int peer;
    char *data;
    size_t nbytes, offset;
    size_t taken;         /* bytes of the link's first message copied so far */
    bool published;       /* all of it is in the link */
    bool waits_for_drain; /* for some of it is a reference */
};

/* Issues a call: gives it its turn. The operation then runs when advanced. */
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

/* Runs operations together until all are done; the first error is returned after the rest has
 * ended. `polite`: never spins (for worker threads beside a computing one). */
TT_NODISCARD tt_status tt_run(struct tt_work *works, int nworks, bool polite);

#endif
