/* What the two halves of the machine share: threads, and the execution that runs (machine.h). */
#ifndef TT_TESTS_MODEL_INSIDE_H
#define TT_TESTS_MODEL_INSIDE_H

#include <setjmp.h>

#include "machine.h"
#include "memory.h"

enum status { READY, LOCKS, BLOCKED, AWAITS_BARRIER, AWAITS_MEETING, PAUSED, DONE };

struct thread {
    const struct tt_machine_thread *what;
    jmp_buf begin, here;
    bool exists; /* as a coroutine */
    enum status status;
    const volatile void *on; /* LOCKS, BLOCKED: the lock, the word */
    uint32_t bits;           /* BLOCKED: which calls of FUTEX_WAKE wake it */
    unsigned barriers;       /* bit t: thread t waits until a fence is put into this one */
    uint64_t told;           /* hash of the results of all operations so far */
    bool armed;
    unsigned system_calls, fences, waits, nbarriers, arms, wakes;
    struct { /* TT_LATE */
        struct tt_site *site;
        volatile void *object;
        size_t size;
        uint64_t operand, expected;
    } late;
    char *stack;
};

enum outcome { BEGUN, ENDED, SEEN, FAILED, MORE_SHARED };

extern struct memory tt_memory;
extern struct thread tt_threads[TT_MACHINE_THREADS];
/* current: the running thread; NOBODY: set_up, or end. nmet: threads in tt_machine_meet. */
extern int tt_nthreads, tt_current, tt_nmet;
extern const struct tt_scenario *tt_scenario;

/* Ends the execution. */
void tt_leave(enum outcome outcome) __attribute__((noreturn));
/* The running thread is about to do something that others may see, or cannot go on: one of the
 * threads goes on. */
void tt_schedule(void);
/* Adds to what the running thread was told. */
void tt_tell(uint64_t value);
void tt_take_note(int thread, const struct tt_site *site, const char *text, uint64_t value);
/* Does the store that the mutant does late. */
void tt_store_late(void);

/* At the begin of an exploration; its sites are noted as of this scenario, but of no mutant. */
void tt_forget_objects(int number);

#endif
