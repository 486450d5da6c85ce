/* The engine: the execution state of one communicator: the turns of its calls, scratch memory. */
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
#include "transport/host/meeting.h"

struct tt_stream;

/* What a step of one channel works with: pointers, one for each peer of the step. */
struct tt_step_pointers {
    const void **messages; /* [nranks + 1]: where the messages, or the parts of a meeting, lie */
    const void **inputs;   /* [nranks + 1]: what is folded, in order */
    bool *raw;             /* [nranks + 1]: which of the inputs are raw (struct tt_sources) */
    bool *raw_messages;    /* [nranks]: which of the messages are */
    char **slots;          /* [nranks]: the slots to fill; NULL: the message is a reference */
    bool *claimed;         /* [nranks]: that slot is memory of the receiver */
    bool *nontemporal;     /* [nranks]: which the receiver wants stored past the caches */
    struct tt_target *targets; /* [nranks + 1]: where a piece of the result goes */
};

/* How long a collective has waited in which nothing moves. Time in which its process did not run
 * does not count. */
struct tt_long_wait {
    uint64_t turn, progress; /* of the work */
    int64_t looked_ns, waited_ns;
    bool seeks; /* ranks that are gone: an attempt is under way, or one was refused */
};

/* Owned by the communicator. Calls are issued by one thread at a time. Each is advanced by the
 * issuing thread, by a thread of a stream or of a carrier (such as the attendant), or by any thread
 * that waits for a task or an event of a stream: by one at a time, which holds `busy`. */
struct tt_engine {
    /* immutable after init */
    struct tt_fabric *fabric;
    int64_t late_ms;  /* after how long a wait is logged (late.h); 0: never */
    bool lacks_core;  /* counted by tt_streams_count_lacking */
    const char *name; /* of the communicator, for messages; the communicator's */
    /* The name of an algorithm, for messages; NULL, or returns NULL: unknown. */
    const char *(*algorithm_name)(enum tt_collective collective, uint64_t id);

    /* owner: the issuing thread; where others issue replays of graphs, the thread that has entered
     * the engine */
    uint64_t collectives_issued;
    /* Of the last collective of the host that was issued, which covers all before: ranks that
     * disagreed on a call in which neither took a message of the other learn it by the next one. 0:
     * there was none */
    uint64_t last_signature;
    uint64_t *sends_issued, *recvs_issued; /* [nranks] */

    /* atomic: turns; a call runs when all earlier ones of its kind (and peer) are done */
    _Atomic uint64_t collectives_done;
    _Atomic uint64_t *sends_done, *recvs_done; /* [nranks] */
    _Atomic int outstanding;                   /* calls issued and not done */
    _Atomic int64_t timeout_ms;                /* tt_engine_timeout */
    /* atomic: whether other programs use the cores; of all threads that wait (run.c) */
    _Atomic int64_t crowded_until_ns; /* until when waits sleep and do not yield; 0: they yield */
    _Atomic int64_t crowded_ns;       /* how long that is; 0: yields are quick */
    _Atomic int64_t slow_yield_ns;    /* when the last slow yield ended */
    _Atomic int nquick;               /* quick yields since the last slow one */
    /* A thread advances a call of this communicator. Set (acquire) after the last thread has left
     * (release). */
    _Atomic bool busy;
    /* Another thread drives the wires as long as the communicator lives: a thread that waits does
     * not hold the engine while it sleeps */
    _Atomic bool is_driven;

    /* owner: the thread that holds busy. Channels: those of collectives */
    struct tt_meeting *meetings; /* [channels]: of the ranks of this host */
    unsigned still;              /* turns in which nothing moved */
    int nbegun;                  /* works that have begun and are not done */
    int64_t report_ns;        /* when other hosts are told where this rank is; 0: not decided yet */
    int64_t quiet_ns;         /* until when no wait is logged: another one was */
    struct tt_stream *teller; /* whose thread tells other hosts of a failure; NULL: none does */
    struct tt_long_wait long_wait;
    char *scratch;
    size_t scratch_bytes;
    struct tt_step_pointers *pointers; /* [channels] */
    struct tt_position *positions;     /* [channels]: of the collective that is running */
    char **bounce; /* [channels x nranks], slot_bytes each, made at first use: messages that must be
                      fetched */

    /* guarded by the lock of answer.c */
    struct tt_engine *answered_next; /* of those that it looks at */
    uint64_t answered;               /* what had ended at its last look */
    bool is_looked_at;
};

/* How long a call may take that is issued from now on, and what has no issue of its own: replays of
 * CUDA graphs. 0: for ever. Any thread. */
static inline int64_t tt_engine_timeout(const struct tt_engine *engine)
{
    return atomic_load_explicit(&engine->timeout_ms, memory_order_relaxed);
}

/* Who has set this deadline, for texts about it. */
const char *tt_timeout_source(int64_t timeout_ms);
TT_NODISCARD tt_status tt_engine_init(struct tt_engine *engine, struct tt_fabric *fabric,
                                      int64_t timeout_ms, const char *name);
void tt_engine_fini(struct tt_engine *engine);
/* Until leave, no other thread advances a call or uses the wires. Waits until the thread that
 * advances one has left. */
void tt_engine_enter(struct tt_engine *engine);
static inline void tt_engine_leave(struct tt_engine *engine)
{
    atomic_store_explicit(&engine->busy, false, memory_order_release);
}
/* Whether all issued calls are done. */
static inline bool tt_engine_idle(const struct tt_engine *engine)
{
    /* An operation that ends is counted out before its thread leaves; an express call
     * that must wait is counted in before that. */
    return atomic_load_explicit(&engine->outstanding, memory_order_acquire) == 0 &&
           !atomic_load_explicit(&engine->busy, memory_order_acquire) &&
           atomic_load_explicit(&engine->outstanding, memory_order_acquire) == 0;
}
/* tt_engine_enter without waiting; false: another thread has entered. */
static inline bool tt_engine_try_enter(struct tt_engine *engine)
{
    return !atomic_exchange_explicit(&engine->busy, true, memory_order_acquire);
}
/* tt_engine_try_enter; false: a call is issued or is being advanced. */
static inline bool tt_engine_enter_if_idle(struct tt_engine *engine)
{
    return tt_engine_idle(engine) && tt_engine_try_enter(engine);
}
/* Reads records and failures from other hosts, unless another thread advances a call: that thread
 * reads them. */
void tt_engine_look(struct tt_engine *engine);
/* This rank has failed the communicator, without a call that runs: other hosts learn that at once,
 * also those with which it has no connection yet. Waits for none of them; keeps the last error. The
 * caller has entered the engine. */
void tt_engine_tell_failure(struct tt_engine *engine);
/* Before the wires go. The caller has not entered the engine. */
void tt_engine_stop_telling(struct tt_engine *engine);
/* From now on, until answer_no_more, a thread of this process answers other hosts while this rank
 * makes no call. Nothing, where there are none. */
void tt_engine_answer(struct tt_engine *engine);
/* The caller has not entered the engine, which may never have been answered for, or be
 * inherited. */
void tt_engine_answer_no_more(struct tt_engine *engine);
/* Fails the communicator where a call that some rank has entered needs all ranks, one of which is
 * known to be gone, while a rank of this host has not entered it: so the one that is gone was not
 * done with it, as nobody is before all have entered, and never will be. The caller has entered the
 * engine. */
TT_NODISCARD tt_status tt_engine_check_gone(struct tt_engine *engine);
/* tt_fabric_check_rank, also of ranks of other hosts whose connection has ended, unless another
 * thread advances a call. */
TT_NODISCARD tt_status tt_engine_check_rank(struct tt_engine *engine, int rank);
/* Bytes that the engine and its fabric hold, without the struct. */
size_t tt_engine_bytes(struct tt_engine *engine);

#endif
