/* A machine that runs a few threads in all orders, with all values that C11 lets their loads see.
 *
 * Memory is the view machine of the "promising semantics" without promises: a location is the list
 * of its stores in modification order; a thread has a view, which says for each location the oldest
 * store that it may still read. A load reads any store from its view on; which one is a choice. A
 * release puts the thread's view into the store, an acquire takes it from there; fences of seq_cst
 * also go through one view of all such fences. A store may take a place before stores of other
 * threads that its thread has not seen. A read-modify-write reads the store just before its own.
 * The machine has no load buffering (a load that sees a store because of what its thread does
 * later): no hardware on which the library runs, and no compiler, does that across the dependences
 * and read-modify-writes here.
 *
 * A store is seen by loads of another thread late or at once: what a store buffer does is among the
 * choices. atomic_signal_fence does nothing here.
 *
 * membarrier is a fence of seq_cst in the caller, then one in each other thread of a registered
 * process, each at a moment of its own between two operations of that thread, then one in the
 * caller. FUTEX_WAIT compares with the newest value and blocks in one step. Its time never passes:
 * a thread that stays blocked in it has lost a wake. Futexes order nothing.
 *
 * A location that one thread alone uses needs neither orders nor choices. Which these are is found
 * out: when a second thread comes, the exploration starts again and takes the location as shared.
 *
 * States that were seen before are not entered again. A state is known by 64 bits of a hash over
 * memory, views, and what each thread has been told so far, on which alone its code depends. */
#ifndef TT_TESTS_MODEL_MACHINE_H
#define TT_TESTS_MODEL_MACHINE_H

#include "replaced.h"

enum { TT_MACHINE_THREADS = 4 };

struct tt_machine_thread {
    void (*body)(void);
    int rank; /* whose thread it is */
};

struct tt_scenario {
    int number;
    const char *name;
    const char *says; /* what must hold */
    void (*set_up)(void);
    struct tt_machine_thread threads[TT_MACHINE_THREADS]; /* up to one without a body */
    void (*end)(void); /* what must hold at the end; NULL: nothing more */
    /* What a thread that ends leaves in memory of its rank that `end` looks at; NULL: nothing. */
    uint64_t (*left)(void);
    bool is_large;           /* mutants are not tried with it */
    bool nobody_sleeps;      /* in FUTEX_WAIT */
    unsigned not_registered; /* bit r: the process of rank r could not register for the barrier */
    bool refuses_barrier;    /* the kernel gives no barrier any more */
};

/* What is changed at a site. */
enum tt_mutation {
    TT_AS_WRITTEN,
    TT_RELAXED,         /* its order is relaxed */
    TT_ACQUIRE,         /* its order is acquire */
    TT_RELEASE,         /* its order is release */
    TT_ACQ_REL,         /* its order is acquire and release */
    TT_LEFT_OUT,        /* it does nothing; a load finds 0 */
    TT_LEFT_OUT_LOCKED, /* the load finds 0 where its thread holds a lock */
    TT_TORN,            /* a read-modify-write is a load and a store */
    TT_LATE,            /* the store comes after its thread's next load, fence, or system call */
    TT_BLIND,           /* FUTEX_WAIT does not compare */
    TT_MUTATIONS
};

struct tt_exploration {
    uint64_t executions, states;
    int longest;      /* operations on shared locations of an execution */
    bool ended;       /* these are all */
    bool failed;      /* then: */
    char error[8192]; /* what went wrong, and the order that leads to it */
};

/* All executions of a scenario, but at most so many, up to the first that fails. */
void tt_machine_explore(const struct tt_scenario *scenario, uint64_t most,
                        struct tt_exploration *exploration);
/* From now on; NULL: the source as it is written. */
void tt_machine_mutate(const struct tt_site *site, enum tt_mutation mutation);
/* The sites that were met so far, in any order. */
struct tt_site *tt_machine_sites(void);

/* ---- For scenarios -------------------------------------------------------------------------- */

/* The execution fails. */
void tt_machine_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Plain memory behind a flag: fails where this thread need not see the last write. */
void tt_machine_write(uint64_t *data, uint64_t value);
uint64_t tt_machine_read(uint64_t *data);
/* The rank of the running thread, or the one that set_up is about. */
extern int tt_machine_rank;
/* Made by the running thread. */
unsigned tt_machine_system_calls(void), tt_machine_fences(void);
/* Of a rank so far; rank < 0: of all. arms: tt_sleep_arm that did not fail. */
struct tt_machine_counts {
    unsigned waits, barriers, arms, wakes;
};
struct tt_machine_counts tt_machine_count(int rank);
/* Whether the running thread has made the word of its rank odd since it last waited. */
bool tt_machine_is_armed(void);
/* All threads of the scenario come here before any goes on, as by messages of the bootstrap. */
void tt_machine_meet(void);

#endif
