/* Opens the closed ones, and looks at stdout when the program ends. */
#include "programs/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *name; /* immutable after streams_begin */

void streams_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) < 0) return;
}

/* Runs last: it was registered first. A buffer that could not be written is still there, so that
 * the reason is found out once more. */
static void check_output(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return;
    fprintf(stderr,
            "%s: standard output cannot be written (%s): what was printed is lost in part\n", name,
            errno ? strerror(errno) : "a write has failed");
    _exit(EXIT_FAILURE);
}

void streams_begin(const char *program)
{
    streams_open();
    name = program;
    (void)atexit(check_output);
}
