/* Epoll instances of the library. A program may close the descriptor of one behind the library's
 * back, and have an instance of its own under the number. All epoll instances are one inode, so
 * tt_private_fd_is_lost does not tell two of them apart. So what an instance of the library reports
 * carries a stamp of the instance, and what another one reports is never taken for the library's.
 * One thread at a time. */
#ifndef TT_BASE_PRIVATE_EPOLL_H
#define TT_BASE_PRIVATE_EPOLL_H

#include <stdbool.h>
#include <stdint.h>

struct epoll_event;

struct tt_epoll {
    int fd;         /* -1: not open */
    uint16_t stamp; /* unlike that of any other instance of late; no pointer begins with it */
    bool is_lost;   /* the number is the program's */
};

/* 0, or -1 with errno. */
int tt_epoll_open(struct tt_epoll *epoll);
/* Closes the descriptor, unless it is the program's. */
void tt_epoll_close(struct tt_epoll *epoll);

/* Whether the descriptor is known to be the library's no more. */
bool tt_epoll_is_lost(const struct tt_epoll *epoll);

/* The data (u64) of an event that reports this mark, which is a number below 2^48 or an address of
 * the program's memory. */
uint64_t tt_epoll_data(const struct tt_epoll *epoll, uint64_t mark);
static inline uint64_t tt_epoll_mark_of(const void *address)
{
    return (uint64_t)(uintptr_t)address;
}
/* As epoll_ctl, for an event with a mark. 0, or -1 with errno; EBADF: the instance is lost. */
int tt_epoll_set(struct tt_epoll *epoll, int operation, int fd, uint32_t events, uint64_t mark);
/* After epoll_wait on epoll->fd has returned n: makes the data of the n events their marks, and
 * returns n. -1 with errno: n was -1; EBADF: the events are of the program, and the instance is
 * lost from now on. */
int tt_epoll_take(struct tt_epoll *epoll, struct epoll_event *ready, int n);
/* epoll_wait and tt_epoll_take. */
int tt_epoll_wait(struct tt_epoll *epoll, struct epoll_event *ready, int most, int timeout_ms);

#endif
