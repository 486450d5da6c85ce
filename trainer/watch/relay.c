/* Carries the standard output or error to a terminal. */
#include "relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "pipe.h"
#include "stop.h"
#include "thread.h"

static bool write_all(int fd, const char *bytes, ssize_t n)
{
    while (n > 0) {
        const ssize_t written = write(fd, bytes, (size_t)n);
        struct pollfd terminal = {.fd = fd, .events = POLLOUT};
        if (written < 0 && errno == EAGAIN) /* its other users do not wait */
            poll(&terminal, 1, -1);
        else if (written < 0 && errno != EINTR)
            return false;
        if (written > 0) bytes += written, n -= written;
    }
    return true;
}

/* Waits for bytes in the pipe. False: there are none, and nothing more comes. The end of the pipe
 * is no sign of that: others may have it open, as /dev/stdout. */
static bool await_bytes(const struct tr_relay *relay)
{
    struct pollfd both[] = {{.fd = relay->from, .events = POLLIN},
                            {.fd = relay->end, .events = POLLIN}};
    while (poll(both, 2, -1) < 0 && errno == EINTR) {
    }
    return both[0].revents & POLLIN;
}

/* Who prints learns of an error by the pipe, which has no reader then. */
static void *carry(void *arg)
{
    struct tr_relay *relay = arg;
    char bytes[4096];
    sigset_t stops; /* a process in the background, where the terminal is set so */
    sigemptyset(&stops);
    sigaddset(&stops, SIGTTOU);
    pthread_sigmask(SIG_UNBLOCK, &stops, NULL);
    while (await_bytes(relay)) {
        const ssize_t n = read(relay->from, bytes, sizeof bytes);
        if (n > 0 && write_all(relay->terminal, bytes, n)) continue;
        if (n > 0) relay->error = errno;
        if (n >= 0 || errno != EINTR) break;
    }
    close(relay->from);
    return NULL;
}

/* Another user's terminal cannot be opened anew, which tr_say needs. */
static bool needs_relay(int fd)
{
    const int terminal = fd == STDERR_FILENO ? tr_terminal_open(fd) : -1;
    if (terminal >= 0) close(terminal);
    return terminal < 0 && isatty(fd);
}

void tr_relay_begin(struct tr_relay *relay, FILE *file)
{
    const int fd = fileno(file);
    int ends[2];
    *relay = (struct tr_relay){.file = file};
    if (!needs_relay(fd) || pipe2(ends, O_CLOEXEC) < 0) return;
    relay->from = ends[0];
    relay->terminal = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    relay->end = eventfd(0, EFD_CLOEXEC);
    fflush(file);
    relay->runs =
        relay->terminal >= 0 && relay->end >= 0 && tr_thread_start(&relay->thread, carry, relay);
    if (relay->runs) {
        dup2(ends[1], fd);
        if (file == stdout) setvbuf(stdout, NULL, _IOLBF, 0); /* as for a terminal */
    } else {
        close(ends[0]);
        if (relay->terminal >= 0) close(relay->terminal);
        if (relay->end >= 0) close(relay->end);
    }
    close(ends[1]);
}

/* False: the thread has not ended after so long. */
static bool join(const struct tr_relay *relay, int ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
    return pthread_clockjoin_np(relay->thread, NULL, CLOCK_MONOTONIC, &until) == 0;
}

void tr_relay_end(struct tr_relay *relay, bool waits)
{
    enum { LOOK_MS = 100, MOST_MS = 1000 };
    if (!relay->runs) return;
    relay->runs = false;
    fflush(relay->file);
    dup2(relay->terminal, fileno(relay->file));
    eventfd_write(relay->end, 1);
    bool ended = join(relay, waits ? LOOK_MS : MOST_MS);
    while (!ended && waits && tr_stop_heard() < 0) ended = join(relay, LOOK_MS);
    if (ended) {
        close(relay->terminal);
        close(relay->end);
        return;
    }
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) dup2(nowhere, fileno(relay->file));
    if (nowhere >= 0) close(nowhere);
}
