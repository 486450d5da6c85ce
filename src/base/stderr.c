/* Remembers device and inode of standard error, and writes only to that file. */
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
static _Atomic bool was_open;
static _Atomic dev_t device;
static _Atomic ino_t inode;

static void look(void)
{
    struct stat file;
    was_open = fstat(STDERR_FILENO, &file) == 0;
    device = was_open ? file.st_dev : 0;
    inode = was_open ? file.st_ino : 0;
}

void tt_stderr_remember(void)
{
    const int error = errno;
    pthread_once(&once, look);
    errno = error;
}

void tt_stderr_forget(void)
{
    tt_stderr_remember();
    look();
}

static bool is_same(void)
{
    struct stat now;
    return was_open && fstat(STDERR_FILENO, &now) == 0 && now.st_dev == device &&
           now.st_ino == inode;
}

void tt_stderr_write(const char *text, size_t nbytes)
{
    const int error = errno;
    tt_stderr_remember();
    if (is_same()) (void)tt_write(STDERR_FILENO, text, nbytes);
    errno = error;
}

void tt_stderr_say(const char *format, ...)
{
    static const char prefix[] = "tutti: ";
    char text[4096] = "tutti: ";
    const size_t room = sizeof text - sizeof prefix; /* and the newline */
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text + sizeof prefix - 1, room, format, args);
    va_end(args);
    size_t used = sizeof prefix - 1;
    used += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
    text[used++] = '\n';
    tt_stderr_write(text, used);
}
