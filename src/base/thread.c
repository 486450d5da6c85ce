/* Starts threads with all signals blocked that belong to the application; how many there can be. */
#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/open.h"

/* Signals that a thread's own instructions raise. */
static const int of_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};

/* The thread-local variables of the program lie in the stack: where they leave next to nothing of
 * the default size, the thread has this. */
enum { STACK_BYTES = 256 << 10 };

int tt_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t others, before;
    pthread_attr_t attributes;
    pthread_t detached;
    size_t nbytes;
    pthread_attr_init(&attributes);
    if (!thread) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_attr_getstacksize(&attributes, &nbytes) == 0)
        pthread_attr_setstacksize(&attributes, nbytes + STACK_BYTES);
    sigfillset(&others);
    for (size_t i = 0; i < sizeof of_faults / sizeof *of_faults; i++)
        sigdelset(&others, of_faults[i]);
    pthread_sigmask(SIG_BLOCK, &others, &before);
    const int error = pthread_create(thread ? thread : &detached, &attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

/* A stack has a copy of the thread-local variables of the program and its libraries. */
const char *tt_thread_hint(int error)
{
    switch (error) {
    case EAGAIN:
        return " (ulimit -u?)";
    case EINVAL:
        return " (a stack too small for the program's thread-local variables: ulimit -s?)";
    default:
        return "";
    }
}

/* LONG_MAX where there is no such file. */
static long read_number(const char *path)
{
    char text[32];
    const long number = tt_read_text(path, text, sizeof text) > 0 ? strtol(text, NULL, 10) : 0;
    return number > 0 ? number : LONG_MAX;
}

long tt_thread_limit(const char **limit)
{
    enum { MAPPINGS = 2 }; /* of a thread: its stack, and a page that guards it */
    static const struct {
        const char *path, *name;
        int uses; /* what a thread takes of it */
    } files[] = {{"/proc/sys/kernel/threads-max", "kernel.threads-max", 1},
                 {"/proc/sys/kernel/pid_max", "kernel.pid_max", 1},
                 {"/proc/sys/vm/max_map_count", "vm.max_map_count", MAPPINGS}};
    struct rlimit user;
    long least = LONG_MAX;
    *limit = "no limit";
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const long most = read_number(files[i].path) / files[i].uses;
        if (most >= least) continue;
        least = most;
        *limit = files[i].name;
    }
    if (getrlimit(RLIMIT_NPROC, &user) || user.rlim_cur >= (rlim_t)least) return least;
    *limit = "ulimit -u";
    return (long)user.rlim_cur;
}
