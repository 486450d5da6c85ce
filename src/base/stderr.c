/* Remembers device and inode of the standard streams, and writes only to these files. */
#include "base/stderr.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/write.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Immutable after once, but for tt_stderr_forget. */
static struct stream {
    const int fd;
    _Atomic bool was_open;
    _Atomic dev_t device;
    _Atomic ino_t inode;
} out = {.fd = STDOUT_FILENO}, err = {.fd = STDERR_FILENO};

static void look(struct stream *stream)
{
    struct stat file;
    stream->was_open = fstat(stream->fd, &file) == 0;
    stream->device = stream->was_open ? file.st_dev : 0;
    stream->inode = stream->was_open ? file.st_ino : 0;
}

static void look_at_both(void)
{
    look(&out);
    look(&err);
}

void tt_stderr_remember(void)
{
    const int error = errno;
    pthread_once(&once, look_at_both);
    errno = error;
}

void tt_stderr_forget(void)
{
    tt_stderr_remember();
    look_at_both();
}

static bool is_same(const struct stream *stream)
{
    struct stat now;
    return stream->was_open && fstat(stream->fd, &now) == 0 && now.st_dev == stream->device &&
           now.st_ino == stream->inode;
}

static void write_to(const struct stream *stream, const char *text, size_t nbytes)
{
    const int error = errno;
    tt_stderr_remember();
    if (is_same(stream)) (void)tt_write(stream->fd, text, nbytes);
    errno = error;
}

void tt_stderr_write(const char *text, size_t nbytes)
{
    write_to(&err, text, nbytes);
}

void tt_stdout_write(const char *text, size_t nbytes)
{
    write_to(&out, text, nbytes);
}

void tt_stderr_say(const char *format, ...)
{
    static const char prefix[] = "tutti: ";
    char text[4096] = "tutti: ";
    const size_t room = sizeof text - sizeof prefix; /* with the newline */
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text + sizeof prefix - 1, room, format, args);
    va_end(args);
    size_t used = sizeof prefix - 1;
    used += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
    text[used++] = '\n';
    tt_stderr_write(text, used);
}
