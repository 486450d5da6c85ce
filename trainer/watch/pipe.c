/* Lines that hold no thread up. */
#include "pipe.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

bool tr_pipe_is(int fd)
{
    struct stat st;
    return isatty(fd) || (fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)));
}

int tr_terminal_open(int fd)
{
    char path[] = "/proc/self/fd/0";
    path[sizeof path - 2] = (char)('0' + fd);
    if (fd > STDERR_FILENO || !isatty(fd)) return -1;
    return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

bool tr_say(FILE *file, const char *format, ...)
{
    const int fd = fileno(file), terminal = tr_terminal_open(fd);
    bool is_said = true;
    va_list args;
    if (terminal < 0 && tr_pipe_is(fd) && !tr_pipe_has_room(fd, 0)) return false;
    va_start(args, format);
    if (terminal >= 0) {
        fflush(file);
        is_said = vdprintf(terminal, format, args) >= 0;
        close(terminal);
    } else {
        vfprintf(file, format, args);
        fflush(file);
    }
    va_end(args);
    return is_said;
}
