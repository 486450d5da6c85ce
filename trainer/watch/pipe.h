/* Pipes whose reader may stand still: a run does not wait for one. */
#ifndef TR_PIPE_H
#define TR_PIPE_H

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>

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

/* Whether a reader may stand still there: a pipe, a socket, or a terminal, which Ctrl-S stops. */
bool tr_pipe_is(int fd);

/* A descriptor of the terminal that `fd` (at most 2) is, with which no write waits; poll says that
 * there is room where a line has none. -1: it is none, or cannot be had. For handlers of signals,
 * too. */
int tr_terminal_open(int fd);

/* Prints a line of a run on its standard output or error, unless that is a pipe that has no room
 * for it: then returns false. For any thread. */
bool tr_say(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
