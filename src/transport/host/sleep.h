/* Sleep: a rank that waits gives up its core until another rank of its host wakes it.
 *
 * The sleeper and the publisher write and read each other's variables, in opposite order:
 *
 *     sleeper                                  publisher
 *     S1 adds 1 to `number` of sleepers        P1 stores what it publishes (release)
 *     S2 membarrier                            P2 keeps the compiler from moving P3 before P1
 *     S3 loads `nwakes` (acquire); sets        P3 loads `number`; 0: done
 *        its `asleep`; full fence              P4 full fence; loads and clears the sleeper's
 *     S4 looks again; finds something: done       `asleep`; it was 0: done
 *     S5 FUTEX_WAIT while `nwakes` is the same P5 adds 1 to `nwakes` (release); FUTEX_WAKE
 *
 * Why no wake is lost. S2 puts a full fence into every other thread that publishes, at some time
 * between its begin and its end. A publisher whose P1 comes before that fence has stored what S4
 * sees. A publisher whose P1 comes after that fence sees S1 in P3, and so goes on to P4: then
 * either P4 sees S3, or S4 sees P1, because each thread has a full fence between its store and its
 * load. A publisher that clears the `asleep` of S3 comes to P5 after the load of `nwakes` in S3,
 * whatever it has published: then S5 returns at once, or is woken. So `asleep` is still set while
 * S5 waits, and S3 has to load `nwakes` first. While nobody sleeps a publisher loads one word, with
 * neither a fence nor a system call. tests/model runs this code in all orders.
 *
 * There is one futex for all ranks, so that one system call wakes several. The rank that is woken
 * first may take the waker's core: with a system call for each rank the others would go on
 * sleeping. The bits of a futex's waiters tell the ranks apart, so a call for one rank wakes no
 * others.
 *
 * S1 and S2 are not repeated for each sleep: on a crowded machine a rank stays counted in `number`
 * until it has published more than TT_SLEEP_PASSES messages and found nobody asleep; elsewhere
 * until the call ends in which it slept (executor/work.c), which has taken a millisecond. So there
 * are at most so many of the barriers, which interrupt other cores. A rank that is counted no more
 * (retires) wakes its own threads that sleep; they arm their sleep again.
 *
 * The kernel sends the barrier to processes that have registered for it. Where the process of any
 * rank of the host could not register, no rank of that host is woken: tt_sleep_arm says so, and its
 * caller sleeps for a short time of its own. */
#ifndef TT_TRANSPORT_HOST_SLEEP_H
#define TT_TRANSPORT_HOST_SLEEP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "transport/host/segment.h"

enum { TT_SLEEP_PASSES = 256 };

/* One rank's sleep. Several threads of the rank may sleep at the same time. */
struct tt_sleep {
    /* immutable after open */
    struct tt_sleepers *sleepers; /* of the segment */
    int nlocal, own;              /* the ranks of this host; place of this one */
    /* immutable after tt_sleep_finish */
    bool is_woken; /* every rank of the host wakes this one */
    /* atomic; writers hold the lock */
    _Atomic bool is_counted; /* in sleepers->number */
    pthread_mutex_t lock;
    /* atomic */
    _Atomic uint32_t npasses;            /* messages since the last one that found a sleeper */
    _Atomic uint64_t nbarriers, nsleeps; /* made so far */
};

/* Registers this process for the barrier, once. That takes some microseconds while the process has
 * one thread, later some milliseconds: so an init does this before it starts threads. False: the
 * kernel refuses. */
bool tt_sleep_register_process(void);
/* Puts a full fence into every thread of this process, and of all others that are registered.
 * False: the kernel refuses. */
bool tt_sleep_fence_processes(void);
/* Registers this process, and says in the segment whether that succeeded. */
void tt_sleep_open(struct tt_sleep *sleep, const struct tt_segment *segment, int own);
/* After all ranks of the host have opened theirs. */
void tt_sleep_finish(struct tt_sleep *sleep);

/* S1 to S3. Then the caller looks again at all that it waits for; if there is nothing, it calls
 * tt_sleep_wait. False: nobody would wake this rank. */
bool tt_sleep_arm(struct tt_sleep *sleep, uint32_t *nwakes);
/* S5, for at most timeout_ns. nwakes: as tt_sleep_arm has set it. */
void tt_sleep_wait(struct tt_sleep *sleep, uint32_t nwakes, int64_t timeout_ns);
/* Publishers need not look whether this rank is asleep any more. */
void tt_sleep_retire(struct tt_sleep *sleep);

/* P4 and P5, for the ranks at the places [first, first + nplaces). */
void tt_sleep_wake(struct tt_sleep *sleep, int first, int nplaces);

/* P2 to P5: after this rank has published something that the rank at a place may wait for. */
static inline void tt_wake(struct tt_sleep *sleep, int place)
{
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&sleep->sleepers->number, memory_order_relaxed))
        tt_sleep_wake(sleep, place, 1);
}

/* P2 to P5: after this rank has published something that any rank of the host may wait for. */
static inline void tt_wake_all(struct tt_sleep *sleep)
{
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&sleep->sleepers->number, memory_order_relaxed))
        tt_sleep_wake(sleep, 0, sleep->nlocal);
}

#endif
