/* Pipes whose reader may stand still. */
#ifndef TR_PIPE_H
#define TR_PIPE_H

#include <errno.h>
#include <poll.h>
#include <stdbool.h>

/* Whether bytes can be written there within `ms`, or nobody reads it any more. For handlers of
 * signals, too. */
static inline bool tr_pipe_has_room(int fd, int ms)
{
    struct pollfd pipe = {.fd = fd, .events = POLLOUT};
    int ready;
    do {
        ready = poll(&pipe, 1, ms);
    } while (ready < 0 && errno == EINTR);
    return ready;
}

#endif
