/* Calls that are captured into CUDA graphs.
 *
 * A captured call is a kernel node between nodes that wait for and record an event, by which the
 * replays and the other calls of a rank follow one another. It has no turn and no work: the host
 * does not know when a graph is launched. The attendant looks at the report and watches the replay
 * that runs. User objects of the driver tell when the graphs are gone; until
 * then the kernel, the state and the report stay, so that a replay after the communicator's end
 * finds the word that ends it. */
#ifndef TT_CARRIER_KERNEL_GRAPHS_H
#define TT_CARRIER_KERNEL_GRAPHS_H

#include <pthread.h>

#include "carrier/kernel/exchange.h"
#include "carrier/kernel/kernel.h"
#include "executor/late.h"

/* In the numbers of captured exchanges. */
#define TT_GRAPH_EXCHANGE_BIT (1ull << 63)

/* What a captured call has beside its node. Owned by its graph. */
struct tt_graph_call {
    uint64_t number;                    /* as struct tt_device_call has it as `captured` */
    struct tt_group_exchange *exchange; /* sends and receives; NULL: a collective */
    void *table;                        /* pinned, of tt_device_ring_keep; NULL: none */
    struct tt_graph_call *next;
};

/* A graph that captured calls of the communicator. Freed by the owner of the list when it is gone;
 * if the list goes first, by the driver's thread that says so. */
struct tt_graph {
    uint64_t capture;            /* struct tt_capture */
    void *last;                  /* the node of its last call; NULL: none yet */
    struct tt_graph_call *calls; /* those with a table */
    _Atomic bool gone;           /* the driver has no copy of it any more */
    _Atomic bool is_left;        /* the driver has it, or the list: the other one is gone */
    struct tt_graph *next;
};

/* Of a communicator that has captured a call. Owned by struct tt_kernel_part. */
struct tt_graphs {
    struct tt_attended attended; /* first: its address is the graphs' */
    /* immutable once made */
    struct tt_comm_core *comm; /* until tt_graphs_end */
    struct tt_context *context;
    struct tt_kernel_life *life; /* of the rank */
    pthread_mutex_t lock;
    /* guarded by lock; list and calls of the graphs: changed by the issuing thread only */
    struct tt_graph *list;
    uint64_t nexchanges; /* that were captured */
    bool closed;         /* all replays end at once from now on, and none runs */
    uint32_t nleft;      /* ranks that have left: calls with them end at once */
    bool *left;          /* [nranks]: which; behind them as many, for the attendant */
    uint64_t running;    /* nbegun of the replay that was seen to run; 0: none */
    int64_t deadline_ns, grace_ns;
    struct tt_late late;                      /* the wait in that replay */
    const struct tt_group_exchange *exchange; /* of the replay that was seen to run; NULL: it has
                                               * none */
    struct tt_exchange_grace gone;            /* in that one */
    int64_t lost_ns; /* until when the kernel of a collective (`running`) may see what a rank of
                      * another host did before its connection ended; 0: none has */
    uint64_t told;   /* what other hosts were told last: tt_fabric_told_replays */
    int64_t told_ns; /* when */
    struct tt_call_entry *calls; /* [ncalls]: captured collectives that differ */
    uint32_t ncalls, room;
};

/* The graphs of the communicator, made at the first captured call; they may use memory of all
 * ranks, or of the peers of the exchange. */
TT_NODISCARD tt_status tt_graphs_get(struct tt_comm_core *comm,
                                     const struct tt_group_exchange *exchange,
                                     struct tt_graphs **graphs);
/* NULL: it has captured no call. */
static inline struct tt_graphs *tt_graphs_of(const struct tt_comm_core *comm)
{
    return comm->kernel ? atomic_load_explicit(&comm->kernel->graphs, memory_order_acquire) : NULL;
}
/* The graph of the capture, listed now if it is a new one. */
TT_NODISCARD tt_status tt_graphs_find(struct tt_graphs *graphs, uint64_t capture, void *handle,
                                      struct tt_graph **graph);
/* Makes what the call has beside its node: with a number, without a table. */
TT_NODISCARD tt_status tt_graphs_make_call(struct tt_graphs *graphs,
                                           const struct tt_pending_call *pending,
                                           struct tt_graph_call **call);
/* The call, and its exchange, is the graph's from now on. */
void tt_graphs_add_call(struct tt_graphs *graphs, struct tt_graph *graph,
                        struct tt_graph_call *call);
/* Frees a call that was not added. Its exchange stays the caller's. call may be NULL. */
void tt_graphs_drop_call(struct tt_graphs *graphs, struct tt_graph_call *call);
/* A captured exchange; NULL: the number is a collective's, or the graph is gone. */
struct tt_group_exchange *tt_graphs_exchange_locked(const struct tt_graphs *graphs,
                                                    uint64_t number);
/* Whether the call, of this number, needs a rank that graphs->left has. */
bool tt_graphs_needs_left_locked(const struct tt_graphs *graphs, uint64_t number);

/* What a report says of replays. */
struct tt_seen_replays {
    uint64_t nbegun;   /* calls, also those that are none of a graph */
    uint64_t replays;  /* as in the report */
    uint64_t captured; /* of the call that began last */
    bool is_exchange;  /* that call: sends and receives */
    bool runs;         /* that call is of a graph, and has not done its part */
};
struct tt_seen_replays tt_graphs_read(const struct tt_device_report *report);

/* For ranks that leave (part.c): struct tt_rank_record's `captured`. */
void tt_graphs_publish_use(const struct tt_graphs *graphs, uint32_t captured);
/* As the attendant does. */
int64_t tt_graphs_watch(struct tt_attended *attended);
/* Looks now, not only when the attendant does, at what became of the replays. */
void tt_graphs_look(struct tt_comm_core *comm);
void tt_graphs_look_locked(struct tt_graphs *graphs);
/* Tells the other ranks of the replays that have ended. Waits for no lock for long. */
void tt_graphs_tell(struct tt_comm_core *comm);
/* Whether this rank has ended as many collectives of replays as `comm`'s own. */
bool tt_graphs_has_replayed(const struct tt_comm_core *comm, int rank);
/* Waits for the replays that were launched (launched.h), while all that they use is there.
 * on->graphs may be NULL. */
void tt_graphs_await(struct tt_kernel_part *on);
/* Waits for the replay that runs, at most the time of a call; from then on replays end at once.
 * on->graphs may be NULL. */
void tt_graphs_end(struct tt_kernel_part *on);
/* After the end: no replay runs that began before it. Also before: no graph is left. */
bool tt_graphs_have_ended(const struct tt_kernel_part *on);
bool tt_graphs_are_gone(const struct tt_kernel_part *on);
/* Whether a graph that may be replayed has calls of the rank. Any thread. */
bool tt_graphs_are_there(const struct tt_kernel_part *on);
/* Notes that in struct tt_kernel_life. */
void tt_graphs_note_locked(struct tt_graphs *graphs);
void tt_graphs_destroy(struct tt_graphs *graphs);

#endif
