/* What ranges.c, offered.c and opened.c share: a rank's ranges, and those of its peers that it has
 * open. */
#ifndef TT_CARRIER_KERNEL_RANGES_INTERNAL_H
#define TT_CARRIER_KERNEL_RANGES_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "carrier/gpu_watch.h"
#include "carrier/kernel/kernel.h"
#include "device/call.h"
#include "driver/device_memory.h"
#include "driver/driver.h"

/* Of this rank. */
struct tt_own_range {
    struct tt_own_range *next;
    char *base;
    size_t nbytes;
    uint64_t allocation; /* struct tt_pointer's */
    uint64_t seq;
    int place;                   /* on the board */
    int nregistered;             /* 0: of tuttiDeviceMemAlloc only */
    struct tt_lent_memory *lent; /* NULL: not of tuttiDeviceMemAlloc */
    uint64_t last;               /* the last call that has a row of it; 0: none */
    bool is_gone;                /* calls get no rows of it any more */
    bool is_offered;             /* else peers close it */
    bool is_awaited;             /* by a thread that deregisters it, which frees it */
    uint64_t seen;               /* changes of the board when `opened` was made */
    int nopened;
    uint64_t opened[]; /* [nranks]: a call's row */
};

/* Memory of a peer. A zeroed one is none. */
struct tt_opened {
    uint64_t seq;    /* of its offer */
    void *memory;    /* to be closed; NULL: not of another process, or it cannot be opened */
    bool is_closing; /* nobody uses it: a tt_context_let_go that begins from now on closes it */
    bool is_given;   /* the task's tt_context_let_go does */
};

struct tt_ranges {
    struct tt_gpu_task task; /* first: its address is this one's */
    /* immutable after creation */
    const struct tt_comm_core *comm;
    bool has_others; /* ranks of the host are in other processes */
    bool opens_all;  /* these may open registered memory, which the user frees; else only memory of
                      * tuttiDeviceMemAlloc, which the library frees when they have closed it */
    size_t nplaces;  /* nlocal * TT_MOST_RANGES */
    /* owner: the task */
    int nbusy; /* looks in a row that found something closing */
    /* owner: the issuing thread */
    uint64_t seen;        /* changes of the board when the thread last looked for offers */
    bool looks_again;     /* an offer was left for later */
    uint64_t memory_seen; /* tt_driver_memory_changes() when ranges were looked at */
    bool has_warned;
    /* atomic; changed with the lock held */
    _Atomic int nown;
    /* guarded by lock: the issuing thread, one that deregisters, and the task */
    pthread_mutex_t lock;
    struct tt_own_range *own, *gone;
    uint64_t nmade;      /* of this rank, also those that are gone */
    bool is_watched;     /* the task has begun */
    uint64_t refused_at; /* 1 + changes of memory when that of a call could not be offered; 0: it
                          * could */
    bool is_taken[TT_MOST_RANGES];
    bool gives;                /* memory that was lent goes back to the driver */
    struct tt_opened opened[]; /* [nplaces] */
};

static inline struct tt_segment_header *tt_ranges_board(const struct tt_ranges *ranges)
{
    return ranges->comm->fabric->segment->header;
}

/* Looked at after what has changed. Pairs with the acquire of whoever looks at the board. */
static inline void tt_ranges_tell_change(const struct tt_ranges *ranges)
{
    atomic_fetch_add_explicit(&tt_ranges_board(ranges)->nranges, 1, memory_order_release);
}

static inline uint64_t tt_ranges_changes(const struct tt_ranges *ranges)
{
    return atomic_load_explicit(&tt_ranges_board(ranges)->nranges, memory_order_acquire);
}

/* Whether the rank may read this one's memory, and this one its: it has a GPU here. */
static inline bool tt_ranges_is_peer(const struct tt_ranges *ranges, int rank)
{
    const struct tt_comm_core *comm = ranges->comm;
    return rank != comm->rank && tt_fabric_is_local(comm->fabric, rank) &&
           !tt_fabric_is_relayed(comm->fabric, rank);
}

/* Whether it is of another process, which opens what it reads. */
static inline bool tt_ranges_is_other(const struct tt_ranges *ranges, int rank)
{
    const struct tt_peer_info *peers = ranges->comm->fabric->peers;
    return tt_ranges_is_peer(ranges, rank) &&
           peers[rank].process_id != peers[ranges->comm->rank].process_id;
}

/* Runs the task, if other processes may have something open. */
static inline void tt_ranges_watch_locked(struct tt_ranges *ranges)
{
    struct tt_gpu_watch *watch = ranges->comm->kernel->life.watch;
    if (!ranges->has_others) return;
    if (ranges->is_watched)
        tt_gpu_watch_tell(watch, &ranges->task);
    else
        tt_gpu_watch_begin_task(watch, &ranges->task);
    ranges->is_watched = true;
}

/* ---- Memory of this rank: offered.c ---------------------------------------------------------- */

/* Whether the rank can offer one more allocation. */
bool tt_offered_has_room_locked(const struct tt_ranges *ranges);
/* Offers it. NULL: it cannot be offered. */
struct tt_own_range *tt_offered_add_locked(struct tt_ranges *ranges,
                                           const struct tt_pointer *found);
/* The range is gone: its offer is taken back now, or when the calls under way that have a row of it
 * have ended. */
void tt_offered_drop_locked(struct tt_ranges *ranges, struct tt_own_range *range);
/* Takes the offer back, whatever calls there are. */
void tt_offered_take_back_locked(struct tt_ranges *ranges, struct tt_own_range *range);
/* Takes the offer of a range that is gone back, if it can. A rank of another process that has the
 * range open; -1: none, and none will. */
int tt_offered_reader_locked(struct tt_ranges *ranges, struct tt_own_range *range);
/* The range is gone, and no other process has it any more. */
void tt_offered_end_locked(struct tt_ranges *ranges, struct tt_own_range *range);
/* All that are gone, as far as they can be, and nobody waits for them. */
void tt_offered_end_gone_locked(struct tt_ranges *ranges);

/* What a rank of the host offers at a place of the board. */
static inline struct tt_range_offer *tt_range_offer_of(const struct tt_ranges *ranges, int rank,
                                                       int place)
{
    const struct tt_fabric *fabric = ranges->comm->fabric;
    return tt_segment_offer(fabric->segment, fabric->hosts->local_of[rank], place);
}

/* ---- Memory of peers: opened.c --------------------------------------------------------------- */

/* Opens what peers offer, and closes what they have taken back, as far as that waits for nothing.
 */
void tt_opened_look_locked(struct tt_ranges *ranges);
/* Closes what peers have taken back, or all. Whether some is closing: tt_context_let_go, without
 * the lock, gives it to the driver. */
bool tt_opened_close_locked(struct tt_ranges *ranges, bool all);
/* A tt_context_let_go that has begun since tt_opened_close_locked has given all to the driver that
 * was closing then: says so on the board. */
void tt_opened_closed_locked(struct tt_ranges *ranges);
bool tt_opened_any_locked(const struct tt_ranges *ranges);

/* Of a range of this rank: what a peer says of it. */
struct tt_range_answer *tt_range_answer_at(const struct tt_ranges *ranges,
                                           const struct tt_own_range *range, int rank);
/* A rank of another process that has the range open; -1: none, and none will if its offer was taken
 * back. A rank that is dead or has aborted does not count. */
int tt_range_reader(const struct tt_ranges *ranges, const struct tt_own_range *range);

#endif
