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
    if (membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)) refused = errno;
}

void tt_sleep_open(struct tt_sleep *sleep, const struct tt_segment *segment, int own)
{
    pthread_once(&registered, register_process);
    sleep->sleepers = tt_segment_sleepers(segment);
    sleep->nlocal = segment->header->nlocal;
    sleep->own = own;
    sleep->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (!refused) /* acquire: tt_sleep_finish */
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

bool tt_sleep_arm(struct tt_sleep *sleep, uint32_t *word)
{
    _Atomic uint32_t *own = &sleep->sleepers->each[sleep->own].word;
    if (!sleep->is_woken) return false;
    pthread_mutex_lock(&sleep->lock);
    const bool is_counted = count_locked(sleep);
    if (is_counted) *word = 1 | atomic_fetch_or_explicit(own, 1, memory_order_relaxed);
    pthread_mutex_unlock(&sleep->lock);
    if (!is_counted) return false;
    atomic_store_explicit(&sleep->npasses, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    return true;
}

void tt_sleep_wait(struct tt_sleep *sleep, uint32_t word, int64_t timeout_ns)
{
    const struct timespec timeout = {.tv_sec = timeout_ns / 1000000000,
                                     .tv_nsec = timeout_ns % 1000000000};
    atomic_fetch_add_explicit(&sleep->nsleeps, 1, memory_order_relaxed);
    syscall(SYS_futex, &sleep->sleepers->each[sleep->own].word, FUTEX_WAIT, word, &timeout, NULL,
            0);
}

/* P4 and P5. Whether the rank at the place was asleep. */
static bool wake(struct tt_sleep *sleep, int place)
{
    _Atomic uint32_t *word = &sleep->sleepers->each[place].word;
    uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
    if (seen % 2 == 0) return false;
    /* It fails where another publisher has just woken the rank. */
    if (atomic_compare_exchange_strong_explicit(word, &seen, seen + 1, memory_order_relaxed,
                                                memory_order_relaxed))
        syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return true;
}

void tt_sleep_retire(struct tt_sleep *sleep)
{
    pthread_mutex_lock(&sleep->lock);
    const bool was_counted = atomic_load_explicit(&sleep->is_counted, memory_order_relaxed);
    if (was_counted) {
        atomic_store_explicit(&sleep->is_counted, false, memory_order_relaxed);
        atomic_fetch_sub_explicit(&sleep->sleepers->number, 1, memory_order_relaxed);
        wake(sleep, sleep->own);
    }
    pthread_mutex_unlock(&sleep->lock);
}

void tt_sleep_wake(struct tt_sleep *sleep, int first, int nplaces)
{
    bool any = false;
    atomic_thread_fence(memory_order_seq_cst);
    for (int place = first; place < first + nplaces; place++) any = wake(sleep, place) || any;
    const uint32_t npasses = atomic_load_explicit(&sleep->npasses, memory_order_relaxed);
    atomic_store_explicit(&sleep->npasses, any ? 0 : npasses + 1, memory_order_relaxed);
    if (npasses >= TT_SLEEP_PASSES &&
        atomic_load_explicit(&sleep->is_counted, memory_order_relaxed))
        tt_sleep_retire(sleep);
}
