/* Condition variables that are waited for until a deadline of base/clock.h. */
#ifndef TT_BASE_CONDITION_H
#define TT_BASE_CONDITION_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

static inline void tt_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* As pthread_cond_wait, but until deadline_ns at most; INT64_MAX: there is none. 0, or ETIMEDOUT.
 */
static inline int tt_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock,
                                    int64_t deadline_ns)
{
    if (deadline_ns == INT64_MAX) return pthread_cond_wait(condition, lock);
    const struct timespec until = {.tv_sec = deadline_ns / 1000000000,
                                   .tv_nsec = deadline_ns % 1000000000};
    return pthread_cond_timedwait(condition, lock, &until);
}

#endif
