/* The attendant: the one thread of a process that looks after what GPUs do without the host: calls
 * that kernels carry out (work.h), and replays of CUDA graphs (replays.c). It
 * never waits for one of them, so each has its own deadline and none delays the others by more than
 * a look.
 *
 * It begins with its first user, which is a communicator on a GPU, and ends with the last one.
 * While there is nothing to look at, it sleeps. */
#ifndef TT_CARRIER_KERNEL_ATTENDANT_H
#define TT_CARRIER_KERNEL_ATTENDANT_H

#include <stdint.h>

#include "executor/work.h"

struct tt_attendant;

/* What it looks at. Part of a struct of the owner. Guarded by the attendant's lock. */
struct tt_attended {
    /* Looks, without waiting, in the attendant's thread; called without its lock. Returns after how
     * many ns to look again; INT64_MAX: when it is told. */
    int64_t (*look)(struct tt_attended *attended);
    int64_t next_ns; /* when to look again */
    struct tt_attended *next;
};

/* One more user. In a child made by fork() the parent's is none. SYSTEM: no thread can be started.
 */
TT_NODISCARD tt_status tt_attendant_get(struct tt_attendant **attendant);
/* One user less, which has nothing attended any more. NULL is allowed. */
void tt_attendant_put(struct tt_attendant *attendant);

/* Begins to look, at once. */
void tt_attend(struct tt_attendant *attendant, struct tt_attended *attended);
/* Looks again, at once. */
void tt_attendant_tell(struct tt_attendant *attendant, struct tt_attended *attended);
/* Afterwards nobody looks. By another thread than the attendant's, without a lock that look takes.
 */
void tt_unattend(struct tt_attendant *attendant, struct tt_attended *attended);

/* ---- Works ---------------------------------------------------------------------------------- */

/* Works that run together. Part of a struct of the owner, who frees it in `done`. */
struct tt_attended_works {
    struct tt_work *works; /* linked by next */
    void (*done)(struct tt_attended_works *works);
    struct tt_attended_works *next;
};

/* Works of a communicator, which run one after the other, in the order in which they came. */
struct tt_attended_queue {
    /* immutable after open */
    struct tt_attended attended; /* first: its address is the queue's */
    struct tt_attendant *attendant;
    /* guarded by the attendant's lock */
    struct tt_attended_works *first, **last;
    /* owner: the attendant: of the first works */
    uint64_t progress;
    int64_t moved_ns, examined_ns;
};

/* With an attendant. SYSTEM: no thread can be started. */
TT_NODISCARD tt_status tt_attended_open(struct tt_attended_queue *queue);
/* Waits until the queue is empty. One that is zero is allowed. */
void tt_attended_close(struct tt_attended_queue *queue);
/* Whether all that was pushed has ended, as far as can be seen without a wait: another thread, or
 * what this one was interrupted in, may look or push. Any thread. */
bool tt_attended_is_seen_empty(struct tt_attended_queue *queue);
/* Any thread; cannot fail. */
void tt_attended_push(struct tt_attended_queue *queue, struct tt_attended_works *works);

#endif
