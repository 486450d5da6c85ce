/* Lines that hold no thread up. */
#include "pipe.h"

#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

bool tr_pipe_is(int fd)
{
    struct stat st;
    return isatty(fd) || (fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)));
}

void tr_say(FILE *file, const char *format, ...)
{
    const int fd = fileno(file);
    va_list args;
    if (tr_pipe_is(fd) && !tr_pipe_has_room(fd, 0)) return;
    va_start(args, format);
    vfprintf(file, format, args);
    va_end(args);
    fflush(file);
}
