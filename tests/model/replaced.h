/* Stands in front of the library's sources that the model runs (CMakeLists.txt): their atomics,
 * fences, locks, system calls and the clock call the machine (machine.h). Each use is a site. */
#ifndef TT_TESTS_MODEL_REPLACED_H
#define TT_TESTS_MODEL_REPLACED_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

enum tt_operation {
    TT_AT_LOAD,
    TT_AT_STORE,
    TT_AT_ADD,
    TT_AT_SUBTRACT,
    TT_AT_OR,
    TT_AT_EXCHANGE,
    TT_AT_COMPARE,
    TT_AT_FENCE,
    TT_AT_COMPILER_FENCE,
    TT_AT_LOCK,
    TT_AT_UNLOCK,
    TT_AT_SYSTEM_CALL,
};

/* One place of the source at which there is an operation. */
struct tt_site {
    const char *file, *function;
    const char *object; /* as the source writes it */
    enum tt_operation operation;
    memory_order order;
    /* Once the machine has met it: */
    struct tt_site *same; /* the first one of the same line, which may be in several programs */
    struct tt_site *next; /* of those that are the first */
    uint64_t scenarios;   /* bit s: scenario s comes here */
};

uint64_t tt_machine_load(struct tt_site *site, const volatile void *object, size_t size);
void tt_machine_store(struct tt_site *site, volatile void *object, size_t size, uint64_t value);
/* TT_AT_ADD, TT_AT_SUBTRACT, TT_AT_OR, TT_AT_EXCHANGE; the value before. */
uint64_t tt_machine_change(struct tt_site *site, volatile void *object, size_t size,
                           uint64_t operand);
bool tt_machine_compare(struct tt_site *site, volatile void *object, size_t size, void *expected,
                        uint64_t desired);
void tt_machine_fence(struct tt_site *site);
int tt_machine_lock(struct tt_site *site, pthread_mutex_t *lock);
int tt_machine_unlock(struct tt_site *site, pthread_mutex_t *lock);
long tt_machine_system_call(struct tt_site *site, long number, ...);
int tt_machine_once(void (*function)(void)); /* each rank is a process of its own */
int tt_machine_pause(void);
int tt_machine_clock(struct timespec *now);

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_or_explicit
#undef atomic_exchange_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_thread_fence
#undef atomic_signal_fence
#undef pthread_once

#define TT_SITE(number, operation_, object_, order_)                                               \
    static struct tt_site TT_SITE_NAME(number) = {.file = __FILE__,                                \
                                                  .function = __func__,                            \
                                                  .object = object_,                               \
                                                  .operation = operation_,                         \
                                                  .order = order_}
#define TT_SITE_NAME(number) TT_JOIN(tt_site_, number)
#define TT_JOIN(a, b) a##b
/* The type of the value in an atomic. */
#define TT_PLAIN(object) __typeof__((void)0, *(object))

#define atomic_load_explicit(object, order) TT_LOAD(__COUNTER__, object, order)
#define TT_LOAD(number, object, order)                                                             \
    __extension__({                                                                                \
        TT_SITE(number, TT_AT_LOAD, #object, order);                                               \
        (TT_PLAIN(object)) tt_machine_load(&TT_SITE_NAME(number), object, sizeof *(object));       \
    })
#define atomic_store_explicit(object, value, order) TT_STORE(__COUNTER__, object, value, order)
#define TT_STORE(number, object, value, order)                                                     \
    __extension__({                                                                                \
        TT_SITE(number, TT_AT_STORE, #object, order);                                              \
        tt_machine_store(&TT_SITE_NAME(number), object, sizeof *(object), (uint64_t)(value));      \
    })
#define TT_CHANGE(number, operation, object, operand, order)                                       \
    __extension__({                                                                                \
        TT_SITE(number, operation, #object, order);                                                \
        (TT_PLAIN(object))                                                                         \
            tt_machine_change(&TT_SITE_NAME(number), object, sizeof *(object), operand);           \
    })
#define atomic_fetch_add_explicit(object, more, order)                                             \
    TT_CHANGE(__COUNTER__, TT_AT_ADD, object, (uint64_t)(more), order)
#define atomic_fetch_sub_explicit(object, less, order)                                             \
    TT_CHANGE(__COUNTER__, TT_AT_SUBTRACT, object, (uint64_t)(less), order)
#define atomic_fetch_or_explicit(object, bits, order)                                              \
    TT_CHANGE(__COUNTER__, TT_AT_OR, object, (uint64_t)(bits), order)
#define atomic_exchange_explicit(object, value, order)                                             \
    TT_CHANGE(__COUNTER__, TT_AT_EXCHANGE, object, (uint64_t)(value), order)
#define atomic_compare_exchange_strong_explicit(object, expected, desired, order, failure)         \
    TT_COMPARE(__COUNTER__, object, expected, desired, order)
#define TT_COMPARE(number, object, expected, desired, order)                                       \
    __extension__({                                                                                \
        TT_SITE(number, TT_AT_COMPARE, #object, order);                                            \
        tt_machine_compare(&TT_SITE_NAME(number), object, sizeof *(object), expected,              \
                           (uint64_t)(desired));                                                   \
    })
#define TT_CALL(number, function, operation, object, order, ...)                                   \
    __extension__({                                                                                \
        TT_SITE(number, operation, object, order);                                                 \
        function(&TT_SITE_NAME(number) __VA_ARGS__);                                               \
    })
#define atomic_thread_fence(order) TT_CALL(__COUNTER__, tt_machine_fence, TT_AT_FENCE, "", order, )
#define atomic_signal_fence(order)                                                                 \
    TT_CALL(__COUNTER__, tt_machine_fence, TT_AT_COMPILER_FENCE, "", order, )
#define TT_COMMA ,
#define pthread_mutex_lock(lock)                                                                   \
    TT_CALL(__COUNTER__, tt_machine_lock, TT_AT_LOCK, #lock, memory_order_acquire, TT_COMMA lock)
#define pthread_mutex_unlock(lock)                                                                 \
    TT_CALL(__COUNTER__, tt_machine_unlock, TT_AT_UNLOCK, #lock, memory_order_release,             \
            TT_COMMA lock)
#define syscall(...)                                                                               \
    TT_CALL(__COUNTER__, tt_machine_system_call, TT_AT_SYSTEM_CALL, "", memory_order_relaxed,      \
            TT_COMMA __VA_ARGS__)
#define pthread_once(once, function) ((void)(once), tt_machine_once(function))
#define sched_yield() tt_machine_pause()
#define nanosleep(time, left) ((void)(time), (void)(left), tt_machine_pause())
#define clock_gettime(clock, now) ((void)(clock), tt_machine_clock(now))

/* A rank retires after few messages that found nobody asleep. */
#define TT_SLEEP_PASSES TT_SLEEP_PASSES_OF_THE_LIBRARY
#include "transport/host/sleep.h"
#undef TT_SLEEP_PASSES
#define TT_SLEEP_PASSES 1

#endif
