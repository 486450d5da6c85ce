/* Staged calls (staged.h) that are captured into CUDA graphs.
 *
 * The calls of a group that a communicator captures are two nodes, between nodes that wait for and
 * record the event by which all calls of the rank on its GPU follow one another:
 *
 *     the graph               words of each call     the staging thread (of the host)
 *     store BEGUN      ---->  ready           ---->  gives the calls their turns, runs them, with
 *     wait             <----  ready, closed   <----  copies as for calls in portions; stores ENDED
 *
 * So the graph has no staging memory, and a replay of a communicator that is gone, which finds
 * `closed`, writes nothing. The other ranks see calls of the host.
 *
 * The host learns of a replay when its CUDA stream has come to it, but the turns of all ranks must
 * be those of the launches. From the first captured call on, a call on a CUDA stream gets its turn
 * when its stream has come to it, too: the event makes these moments follow one another. Any other
 * call of the host waits first until the event has happened. */
#ifndef TT_CARRIER_STAGED_GRAPHS_H
#define TT_CARRIER_STAGED_GRAPHS_H

#include <pthread.h>

#include "carrier/staged/staged.h"

struct tt_replay;

/* Calls of one communicator that run together, and get their turns when their CUDA streams have
 * come to them. */
struct tt_stage_run {
    int ncalls;
    struct tt_staged_work *works; /* [ncalls] */
    struct tt_pending_call calls[];
};

/* A graph that captured calls of the communicator. Freed by the owner of the list when the driver
 * has no copy of it any more. */
struct tt_stage_graph {
    uint64_t capture;          /* struct tt_capture */
    void *last;                /* the node of its last call; NULL: none yet */
    struct tt_replay *replays; /* groups of calls that it has captured */
    _Atomic bool gone;
    struct tt_stage_graph *next;
};

/* Of a communicator that has captured a staged call. Owned by struct tt_staged_part. */
struct tt_stage_graphs {
    struct tt_comm_core *comm; /* until tt_stage_graphs_end */
    pthread_mutex_t lock;
    /* guarded by lock; the list: changed by the issuing thread only */
    struct tt_stage_graph *list;
    const struct tt_replay *running;
    bool closing;        /* replays end at once when none has begun */
    _Atomic bool closed; /* all replays end at once */
    int64_t moved_ns;    /* owner: the staging thread: when a replay has run */
    /* atomic */
    _Atomic unsigned nruns; /* replays and deferred calls that have begun and that have ended: odd
                             * while one runs */
};

/* Of a communicator that has captured a staged call: which calls of a group get their turns later,
 * and when the others may. A failure is the communicator's; TIMEOUT: for as long as a call may
 * take, a CUDA stream has not come to the replays that were launched before. */
extern const struct tt_gate tt_staged_gate;

/* Calls of a group that run together. */
static inline bool tt_are_one_run(const struct tt_pending_call *a, const struct tt_pending_call *b)
{
    return a->comm == b->comm && a->capture == b->capture;
}

/* Of the first call and those that follow it in its list and run together with it. NULL: out of
 * memory. */
struct tt_stage_run *tt_stage_run_make(const struct tt_pending_call *first);
/* Calls that are deferred: they count as outstanding, and hold their programs, until they have run.
 */
void tt_stage_run_hold(const struct tt_stage_run *run);
/* By the staging thread: waits until the calls may have their turns, while it runs replays; then
 * runs and frees them. */
TT_NODISCARD tt_status tt_stage_run(struct tt_stage_run *run);
void tt_stage_run_free(struct tt_stage_run *run);

/* Runs the replays that were launched (launched.h); from then on replays end at once. comm->staged
 * and its graphs may be NULL. */
void tt_stage_graphs_end(struct tt_comm_core *comm);
/* No graph is left. */
bool tt_stage_graphs_are_gone(struct tt_stage_graphs *graphs);
void tt_stage_graphs_destroy(struct tt_stage_graphs *graphs);

#endif
