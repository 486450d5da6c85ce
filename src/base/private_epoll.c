/* Stamps what epoll instances of the library report, so that nothing else is taken for it. */
#include "base/private_epoll.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/private_fd.h"

/* Stamps have the highest bit, which addresses of the program's memory do not have. */
enum { MARK_BITS = 48, FIRST_STAMP = 1 << 15 };

/* Drawn, because another copy of the library in this process counts, too. */
static atomic_uint nstamps;
static pthread_once_t nstamps_once = PTHREAD_ONCE_INIT;

static void draw_first_stamp(void)
{
    unsigned first;
    if (getrandom(&first, sizeof first, 0) != sizeof first) first = (unsigned)tt_now_ns();
    atomic_store_explicit(&nstamps, first, memory_order_relaxed);
}

int tt_epoll_open(struct tt_epoll *epoll)
{
    pthread_once(&nstamps_once, draw_first_stamp);
    const unsigned n = atomic_fetch_add_explicit(&nstamps, 1, memory_order_relaxed);
    *epoll = (struct tt_epoll){.stamp = (uint16_t)(FIRST_STAMP | n % FIRST_STAMP)};
    tt_private_fd_begin();
    epoll->fd = tt_private_fd_end(epoll_create1(EPOLL_CLOEXEC));
    return epoll->fd < 0 ? -1 : 0;
}

void tt_epoll_close(struct tt_epoll *epoll)
{
    if (epoll->fd >= 0 && !epoll->is_lost) tt_private_fd_close(epoll->fd);
    epoll->fd = -1;
}

bool tt_epoll_is_lost(const struct tt_epoll *epoll)
{
    return epoll->is_lost || tt_private_fd_is_lost(epoll->fd);
}

uint64_t tt_epoll_data(const struct tt_epoll *epoll, uint64_t mark)
{
    return (uint64_t)epoll->stamp << MARK_BITS | mark;
}

static bool is_lost(const struct tt_epoll *epoll)
{
    if (epoll->is_lost) errno = EBADF;
    return epoll->is_lost;
}

int tt_epoll_set(struct tt_epoll *epoll, int operation, int fd, uint32_t events, uint64_t mark)
{
    struct epoll_event event = {.events = events, .data.u64 = tt_epoll_data(epoll, mark)};
    return is_lost(epoll) ? -1 : epoll_ctl(epoll->fd, operation, fd, &event);
}

/* The number is not the library's any more: nothing closes it, and no child gets /dev/null there.
 */
static void lose(struct tt_epoll *epoll)
{
    epoll->is_lost = true;
    tt_private_fd_remove(epoll->fd);
}

int tt_epoll_take(struct tt_epoll *epoll, struct epoll_event *ready, int n)
{
    for (int i = 0; i < n && !epoll->is_lost; i++) {
        if (ready[i].data.u64 >> MARK_BITS != epoll->stamp) lose(epoll);
        ready[i].data.u64 &= (UINT64_C(1) << MARK_BITS) - 1;
    }
    return is_lost(epoll) ? -1 : n;
}

int tt_epoll_wait(struct tt_epoll *epoll, struct epoll_event *ready, int most, int timeout_ms)
{
    if (is_lost(epoll)) return -1;
    return tt_epoll_take(epoll, ready, epoll_wait(epoll->fd, ready, most, timeout_ms));
}
