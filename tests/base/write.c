/* Writes that the kernel answers with a signal fail with an errno value and nothing else. */
#include "base/write.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim.h"

enum { LIMIT = 65536 };

static volatile sig_atomic_t nhandled;

static void handle(int signal)
{
    (void)signal;
    nhandled++;
}

static bool is_pending(int signal)
{
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, signal) == 1;
}

/* A pipe that nobody reads. */
static int open_pipe(void)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    close(ends[0]);
    return ends[1];
}

static int limit_files(void)
{
    const struct rlimit limit = {LIMIT, LIMIT};
    return setrlimit(RLIMIT_FSIZE, &limit) == 0 ? memfd_create("limited", MFD_CLOEXEC) : -1;
}

/* Each in a child: 0, or what went wrong. */
static int write_to_nobody(void)
{
    if (tt_write(open_pipe(), "x", 1) != -1 || errno != EPIPE) return 1;
    return is_pending(SIGPIPE) ? 2 : 0;
}

static int write_beyond_the_limit(void)
{
    const int fd = limit_files();
    if (tt_truncate(fd, LIMIT) != 0) return 1;
    if (tt_truncate(fd, LIMIT + 1) != -1 || errno != EFBIG) return 2;
    if (tt_pwrite(fd, "x", 1, LIMIT) != -1 || errno != EFBIG) return 3;
    if (lseek(fd, LIMIT, SEEK_SET) != LIMIT) return 4;
    if (tt_write(fd, "x", 1) != -1 || errno != EFBIG) return 5;
    return is_pending(SIGXFSZ) ? 6 : 0;
}

static int write_with_handlers(void)
{
    signal(SIGPIPE, handle);
    signal(SIGXFSZ, handle);
    if (write_to_nobody() || write_beyond_the_limit()) return 1;
    if (nhandled) return 2;
    if (write(open_pipe(), "x", 1) != -1 || errno != EPIPE) return 3; /* the program's own */
    return nhandled == 1 ? 0 : 4;
}

static int write_with_a_signal_pending(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGPIPE);
    if (tt_write(open_pipe(), "x", 1) != -1 || errno != EPIPE) return 1;
    if (!is_pending(SIGPIPE)) return 2;
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    return sigismember(&now, SIGPIPE) == 1 && sigismember(&now, SIGXFSZ) == 0 ? 0 : 3;
}

static void check_in_child(const char *what, int (*body)(void))
{
    int status = -1;
    const pid_t pid = fork();
    if (pid == 0) _exit(body());
    waitpid(pid, &status, 0);
    CHECK_MESSAGE(status == 0, "%s: %s %d", what,
                  WIFSIGNALED(status) ? "ended by signal" : "ended with",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

TEST(write, to_a_pipe_that_nobody_reads_fails)
{
    check_in_child("a pipe", write_to_nobody);
}

TEST(write, beyond_the_limit_of_file_sizes_fails)
{
    check_in_child("RLIMIT_FSIZE", write_beyond_the_limit);
    CHECK(strstr(tt_write_limit(EFBIG), "ulimit -f"));
    CHECK_STR(tt_write_limit(ENOSPC), "");
}

TEST(write, the_programs_handlers_do_not_run)
{
    check_in_child("handlers", write_with_handlers);
}

TEST(write, a_signal_of_the_program_stays_pending)
{
    check_in_child("a pending signal", write_with_a_signal_pending);
}
