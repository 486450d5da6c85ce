/* Lets ranks of a host sleep, and wakes them. */
#include "transport/host/sleep.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

static pthread_once_t registered = PTHREAD_ONCE_INIT;
static int refused; /* errno of the registration; 0: this process is registered */

static long membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0);
}

static void register_process(void)
{
    refused = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) ? errno : 0;
}

bool tt_sleep_register_process(void)
{
    pthread_once(&registered, register_process);
    return !refused;
}

bool tt_sleep_fence_processes(void)
{
    return tt_sleep_register_process() && !membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

void tt_sleep_open(struct tt_sleep *sleep, const struct tt_segment *segment, int own)
{
    const bool wakes = tt_sleep_register_process();
    sleep->sleepers = tt_segment_sleepers(segment);
    sleep->nlocal = segment->header->nlocal;
    sleep->own = own;
    sleep->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (wakes) /* acquire: tt_sleep_finish */
        atomic_store_explicit(&sleep->sleepers->each[own].wakes, 1, memory_order_release);
    errno = refused;
    if (refused)
        TT_INFO_ONCE("the kernel gives no memory barriers to other processes (membarrier: %m): "
                     "ranks of this host that wait for long look again every 50 us");
}

void tt_sleep_finish(struct tt_sleep *sleep)
{
    int place = 0;
    while (place < sleep->nlocal &&
           /* release: tt_sleep_open */
           atomic_load_explicit(&sleep->sleepers->each[place].wakes, memory_order_acquire))
        place++;
    sleep->is_woken = place == sleep->nlocal;
}

/* S1 and S2. */
static bool count_locked(struct tt_sleep *sleep)
{
    if (atomic_load_explicit(&sleep->is_counted, memory_order_relaxed)) return true;
    atomic_fetch_add_explicit(&sleep->sleepers->number, 1, memory_order_relaxed);
    if (membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)) {
        atomic_fetch_sub_explicit(&sleep->sleepers->number, 1, memory_order_relaxed);
        return false;
    }
    atomic_fetch_add_explicit(&sleep->nbarriers, 1, memory_order_relaxed);
    atomic_store_explicit(&sleep->is_counted, true, memory_order_relaxed);
    return true;
}

/* A rank's bit among the waiters of the futex. */
static uint32_t bit_of(int place)
{
    return UINT32_C(1) << (place % 32);
}

bool tt_sleep_arm(struct tt_sleep *sleep, uint32_t *nwakes)
{
    if (!sleep->is_woken) return false;
    pthread_mutex_lock(&sleep->lock);
    const bool is_counted = count_locked(sleep);
    if (is_counted) {
        /* Who clears `asleep` from here on changes this number later. release: wake */
        *nwakes = atomic_load_explicit(&sleep->sleepers->nwakes, memory_order_acquire);
        atomic_store_explicit(&sleep->sleepers->each[sleep->own].asleep, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&sleep->lock);
    if (!is_counted) return false;
    atomic_store_explicit(&sleep->npasses, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    return true;
}

void tt_sleep_wait(struct tt_sleep *sleep, uint32_t nwakes, int64_t timeout_ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t until_ns = until.tv_nsec + timeout_ns;
    until.tv_sec += until_ns / 1000000000;
    until.tv_nsec = until_ns % 1000000000;
    atomic_fetch_add_explicit(&sleep->nsleeps, 1, memory_order_relaxed);
    syscall(SYS_futex, &sleep->sleepers->nwakes, FUTEX_WAIT_BITSET, nwakes, &until, NULL,
            bit_of(sleep->own));
}

/* P4 and P5. Whether any of the ranks was asleep. */
static bool wake(struct tt_sleepers *sleepers, int first, int nplaces)
{
    uint32_t bits = 0;
    for (int place = first; place < first + nplaces; place++) {
        _Atomic uint32_t *asleep = &sleepers->each[place].asleep;
        /* Of several publishers one wakes the rank. */
        if (atomic_load_explicit(asleep, memory_order_relaxed) &&
            atomic_exchange_explicit(asleep, 0, memory_order_relaxed))
            bits |= bit_of(place);
    }
    if (!bits) return false;
    /* acquire: tt_sleep_arm */
    atomic_fetch_add_explicit(&sleepers->nwakes, 1, memory_order_release);
    syscall(SYS_futex, &sleepers->nwakes, FUTEX_WAKE_BITSET, INT_MAX, NULL, NULL, bits);
    return true;
}

void tt_sleep_retire(struct tt_sleep *sleep)
{
    pthread_mutex_lock(&sleep->lock);
    if (atomic_load_explicit(&sleep->is_counted, memory_order_relaxed)) {
        atomic_store_explicit(&sleep->is_counted, false, memory_order_relaxed);
        atomic_fetch_sub_explicit(&sleep->sleepers->number, 1, memory_order_relaxed);
        wake(sleep->sleepers, sleep->own, 1);
    }
    pthread_mutex_unlock(&sleep->lock);
}

void tt_sleep_wake(struct tt_sleep *sleep, int first, int nplaces)
{
    atomic_thread_fence(memory_order_seq_cst);
    const bool any = wake(sleep->sleepers, first, nplaces);
    const uint32_t npasses = atomic_load_explicit(&sleep->npasses, memory_order_relaxed);
    atomic_store_explicit(&sleep->npasses, any ? 0 : npasses + 1, memory_order_relaxed);
    if (!any && npasses >= TT_SLEEP_PASSES &&
        atomic_load_explicit(&sleep->is_counted, memory_order_relaxed))
        tt_sleep_retire(sleep);
}
