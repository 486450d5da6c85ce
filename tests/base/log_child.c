/* Logs one line a level, the second one twice through the same "once"; says its pid on stdout. With
 * "nccl" NCCL's variables count; with "between" the program writes lines of its own too. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "base/status.h"

static int kept; /* the program's own file */

static void check_own(void)
{
    struct stat file;
    if (fstat(kept, &file) != 0 || file.st_size != 0) _exit(2);
}

/* Standard error becomes a pipe that nobody reads. */
static void lose_reader(void)
{
    int ends[2];
    if (pipe(ends) != 0) return;
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
}

/* Closes all that is open, as closefrom(3), and has a file of its own under each number. */
static bool take_over_log(void)
{
    TT_WARN("into the file");
    char path[] = "/tmp/tutti-log-child-XXXXXX";
    const int own = mkstemp(path);
    unlink(path);
    for (int fd = 3; fd < 20; fd++)
        if (fd != own && dup2(own, fd) != fd) return false;
    atexit(check_own);
    kept = own;
    return true;
}

/* On both standard streams, unbuffered. */
static bool write_own_line(void)
{
    static const char line[] = "a line of the program's own, between those of the log\n";
    bool is_written = true;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        is_written = write(fd, line, sizeof line - 1) == (ssize_t)sizeof line - 1 && is_written;
    return is_written;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "nccl") == 0 && !tt_config_use_nccl()) return 1;
    printf("%d\n", (int)getpid());
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "long") == 0) {
        char text[4000];
        memset(text, 'x', sizeof text);
        text[sizeof text - 1] = '\0';
        TT_WARN("%s", text);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "control") == 0) {
        TT_WARN("a line\nforged, and %s", "\x1b[2J");
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "gone") == 0) lose_reader();
    if (argc > 1 && strcmp(argv[1], "closed") == 0 && !take_over_log()) return 1;
    tt_log_version("2.30.7+test");
    tt_log_version("2.30.7+test"); /* once a process */
    const bool writes = argc > 1 && strcmp(argv[1], "between") == 0;
    if (writes && !write_own_line()) return 1;
    TT_WARN("a warning of %d", 42);
    if (writes && !write_own_line()) return 1;
    errno = 17;
    for (int i = 0; i < 2; i++) TT_INFO_ONCE("some information");
    return tt_fail(TT_ERR_USAGE, "a failure") == TT_ERR_USAGE && errno == 17 ? 0 : 1;
}
