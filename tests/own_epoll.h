/* A program that has an epoll instance of its own under the number of one of the library's, whose
 * descriptor it has closed. */
#ifndef TT_TESTS_OWN_EPOLL_H
#define TT_TESTS_OWN_EPOLL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The instance reports an event with this data again and again. False: it cannot be made. */
static inline bool own_epoll_put(int number, uint64_t data)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = data};
    const int epoll = epoll_create1(EPOLL_CLOEXEC), ready = eventfd(1, EFD_CLOEXEC);
    return epoll >= 0 && ready >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, ready, &event) == 0 &&
           dup2(epoll, number) == number && close(epoll) == 0;
}

/* Whether it is there still, untouched. Closes it. */
static inline bool own_epoll_take(int number, uint64_t data)
{
    struct epoll_event events[4];
    const bool same = epoll_wait(number, events, 4, 0) == 1 && events[0].data.u64 == data;
    return close(number) == 0 && same;
}

#endif
