/* Blocks the two signals in this thread while it writes, and takes one that has come. */
#include "base/write.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"

/* The kernel sends both to the thread that writes. */
static const int signals[] = {SIGPIPE, SIGXFSZ};
enum { NSIGNALS = sizeof signals / sizeof *signals };

struct blocked {
    sigset_t before;
    int cancels;
    bool pending[NSIGNALS]; /* before the write: that one is the program's */
};

static void block(struct blocked *blocked)
{
    sigset_t both, pending;
    blocked->cancels = tt_cancel_put_off();
    sigemptyset(&both);
    for (int i = 0; i < NSIGNALS; i++) sigaddset(&both, signals[i]);
    pthread_sigmask(SIG_BLOCK, &both, &blocked->before);
    const bool known = sigpending(&pending) == 0;
    for (int i = 0; i < NSIGNALS; i++)
        blocked->pending[i] = known && sigismember(&pending, signals[i]) == 1;
}

static void unblock(const struct blocked *blocked, bool failed)
{
    const int error = errno;
    for (int i = 0; i < NSIGNALS && failed; i++) {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, signals[i]);
        if (!blocked->pending[i]) (void)sigtimedwait(&one, NULL, &(struct timespec){0});
    }
    pthread_sigmask(SIG_SETMASK, &blocked->before, NULL);
    tt_cancel_allow(blocked->cancels);
    errno = error;
}

ssize_t tt_write(int fd, const void *bytes, size_t nbytes)
{
    struct blocked blocked;
    block(&blocked);
    const ssize_t n = write(fd, bytes, nbytes);
    unblock(&blocked, n < 0);
    return n;
}

ssize_t tt_pwrite(int fd, const void *bytes, size_t nbytes, off_t at)
{
    struct blocked blocked;
    block(&blocked);
    const ssize_t n = pwrite(fd, bytes, nbytes, at);
    unblock(&blocked, n < 0);
    return n;
}

int tt_truncate(int fd, off_t nbytes)
{
    struct blocked blocked;
    block(&blocked);
    const int result = ftruncate(fd, nbytes);
    unblock(&blocked, result < 0);
    return result;
}

const char *tt_write_limit(int error)
{
    return error == EFBIG ? " (raise the limit of file sizes: ulimit -f)" : "";
}
