/* Monotonic time, deadlines, and giving up the core. */
#ifndef TT_BASE_CLOCK_H
#define TT_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

static inline int64_t tt_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A deadline `timeout_ms` from now; 0 means none (INT64_MAX). */
static inline int64_t tt_deadline_ns(int64_t timeout_ms)
{
    return timeout_ms <= 0 || timeout_ms > INT64_MAX / 2000000 ? INT64_MAX
                                                               : tt_now_ns() + timeout_ms * 1000000;
}

static inline bool tt_expired(int64_t deadline_ns)
{
    return deadline_ns != INT64_MAX && tt_now_ns() >= deadline_ns;
}

/* Milliseconds left, for poll(2): -1 when there is no deadline, 0 when it has passed. */
static inline int tt_left_ms(int64_t deadline_ns)
{
    if (deadline_ns == INT64_MAX) return -1;
    const int64_t left = (deadline_ns - tt_now_ns() + 999999) / 1000000;
    return left < 0 ? 0 : left > 1000000000 ? 1000000000 : (int)left;
}

/* Of two deadlines. */
static inline int64_t tt_earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline void tt_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

#endif
