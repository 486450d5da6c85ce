/* Output of one rank to ours, whole lines at a time, each with its rank in front. */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_BYTES = 64 * 1024, TAG_BYTES = 16, LAST_READS = 64 };

int run_pump_open(struct pump *pump, int to, int *child_end)
{
    int ends[2];
    pump->buffer = malloc(BUFFER_BYTES);
    if (!pump->buffer) return ENOMEM;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        const int error = errno;
        free(pump->buffer);
        pump->buffer = NULL;
        return error;
    }
    /* Ours alone: the child's end stays blocking, as programs expect. */
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    pump->from = ends[0];
    pump->to = to;
    *child_end = ends[1];
    return 0;
}

int run_pump_input(const struct pump *pump)
{
    return pump->from >= 0 && run_output_room(pump->to) ? pump->from : -1;
}

static void end(struct pump *pump)
{
    close(pump->from);
    pump->from = -1;
    free(pump->buffer);
    pump->buffer = NULL;
}

/* Writes the first nbytes of the buffer as tagged lines, in one write as far as they fit. */
static bool put_lines(struct pump *pump, int rank, size_t nbytes)
{
    char out[BUFFER_BYTES];
    char tag[TAG_BYTES];
    size_t used = 0;
    const size_t tag_bytes = rank < 0 ? 0 : (size_t)snprintf(tag, sizeof tag, "[%d] ", rank);
    const char *from = pump->buffer, *stop = pump->buffer + nbytes;
    while (from < stop) {
        const char *newline = memchr(from, '\n', (size_t)(stop - from));
        const size_t length = (size_t)((newline ? newline + 1 : stop) - from);
        if (used + tag_bytes + length > sizeof out) {
            if (!run_output_put(pump->to, out, used)) return false;
            used = 0;
        }
        if (!pump->midline) {
            memcpy(out + used, tag, tag_bytes);
            used += tag_bytes;
        }
        const size_t room = sizeof out - used; /* a line as long as the buffer comes in two */
        const size_t now = length < room ? length : room;
        memcpy(out + used, from, now);
        used += now;
        from += now;
        pump->midline = from[-1] != '\n';
    }
    return run_output_put(pump->to, out, used);
}

/* Writes what is left, and ends the line. */
static void finish(struct pump *pump, int rank)
{
    if (put_lines(pump, rank, pump->nbytes) && pump->midline)
        (void)run_output_put(pump->to, "\n", 1);
    end(pump);
}

/* One read, and what it has made ready to go out. */
static void move_once(struct pump *pump, int rank, bool last)
{
    ssize_t n;
    do n = read(pump->from, pump->buffer + pump->nbytes, BUFFER_BYTES - pump->nbytes);
    while (n < 0 && errno == EINTR);
    const bool empty = n < 0 && errno == EAGAIN;
    const bool over = n == 0 || (n < 0 && (!empty || last));
    if (n > 0) pump->nbytes += (size_t)n;
    const char *newline = memrchr(pump->buffer, '\n', pump->nbytes);
    size_t ready = newline ? (size_t)(newline + 1 - pump->buffer) : 0;
    if (pump->nbytes == BUFFER_BYTES && !newline) ready = pump->nbytes;
    if (over) {
        finish(pump, rank);
        return;
    }
    if (!put_lines(pump, rank, ready)) {
        end(pump); /* the rank gets SIGPIPE, as without us */
        return;
    }
    memmove(pump->buffer, pump->buffer + ready, pump->nbytes - ready);
    pump->nbytes -= ready;
}

void run_pump_move(struct pump *pump, int rank, bool last)
{
    /* A rank that writes faster than we do must not keep us from signals and timeouts, nor what it
     * has left behind from ending. */
    const int most = last ? LAST_READS : 1;
    for (int i = 0; i < most && pump->from >= 0; i++) move_once(pump, rank, last);
    if (last && pump->from >= 0) finish(pump, rank);
}
