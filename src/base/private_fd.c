/* Keeps the numbers 0 to 2 free of the library's descriptors, and lists the private ones: a forked
 * child gets /dev/null for each. */
#include "base/private_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/stderr.h"
#include "base/thread.h"

enum { LOWEST = 3 };

/* Which file the descriptor stood for when it was entered: the program may have closed it behind
 * our back and have opened another one under the same number. */
struct entry {
    bool entered;
    dev_t device;
    ino_t inode;
};

/* The forking thread may hold it: a signal's handler may fork. */
static pthread_mutex_t lock = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static _Thread_local bool locked_by_fork;
static struct entry *entries; /* [nentries], by descriptor; guarded by lock, freed never */
static int nentries;          /* guarded by lock */

/* Free numbers below LOWEST are taken while somebody opens a descriptor. Reads and writes of such a
 * placeholder fail with EBADF, as those of a closed descriptor do. */
static struct entry placeholders[LOWEST]; /* guarded by lock */
static int nholds;                        /* guarded by lock */
static int cancels; /* whether the thread that has the lock could be cancelled; guarded by lock */

static bool is_same(int fd, const struct entry *entry)
{
    struct stat now;
    return fstat(fd, &now) == 0 && now.st_dev == entry->device && now.st_ino == entry->inode;
}

static bool is_entered_locked(int fd)
{
    return fd >= 0 && fd < nentries && entries[fd].entered;
}

/* ---- Numbers below 3 ------------------------------------------------------------------------ */

static void take_low_numbers_locked(void)
{
    for (int fd = 0; fd < LOWEST; fd++) {
        struct stat file;
        if (fcntl(fd, F_GETFD) >= 0) continue;
        const int taken = open("/", O_PATH | O_CLOEXEC);
        if (taken >= 0 && taken < LOWEST && fstat(taken, &file) == 0)
            placeholders[taken] = (struct entry){true, file.st_dev, file.st_ino};
        else if (taken >= 0) /* the program has opened a file under the number just now */
            close(taken);
    }
}

/* The program may have put a file of its own under a number meanwhile (dup2). */
static void free_low_numbers_locked(void)
{
    for (int fd = 0; fd < LOWEST; fd++) {
        if (placeholders[fd].entered && is_same(fd, &placeholders[fd]) &&
            fcntl(fd, F_GETFL) & O_PATH)
            close(fd);
        placeholders[fd].entered = false;
    }
}

static void hold_locked(void)
{
    nholds++;
    take_low_numbers_locked();
}

static void release_locked(void)
{
    if (nholds > 0 && --nholds == 0) free_low_numbers_locked();
}

/* fd under a number of at least LOWEST: where the program has closed a low number while it was
 * held, or no placeholder was to be had. */
static int lift(int fd)
{
    if (fd < 0 || fd >= LOWEST) return fd;
    const int lifted = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST);
    const int error = errno;
    close(fd);
    errno = error;
    return lifted;
}

/* ---- Forks ---------------------------------------------------------------------------------- */

static void before_fork(void)
{
    locked_by_fork = pthread_mutex_lock(&lock) == 0;
}

static void after_fork(void)
{
    if (locked_by_fork) pthread_mutex_unlock(&lock);
    locked_by_fork = false;
}

/* Only what is async-signal-safe. The numbers stay taken: what the child opens is then never
 * mistaken for one of them, whatever the child does with what it has inherited. */
static void in_child(void)
{
    const int error = errno;
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < nentries; fd++) {
        if (entries[fd].entered && is_same(fd, &entries[fd]) &&
            (null < 0 || dup3(null, fd, O_CLOEXEC) < 0))
            close(fd);
        entries[fd].entered = false;
    }
    if (null >= 0) close(null);
    nholds = 0; /* of threads that the child does not have */
    free_low_numbers_locked();
    /* Anew: its owner is the thread that forked, which has another id here, so it stays locked. But
     * ThreadSanitizer takes that for the same thread, and must see that the lock is free. */
    if (locked_by_fork) pthread_mutex_unlock(&lock);
    lock = (pthread_mutex_t)PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    locked_by_fork = false;
    errno = error;
}

static void install(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}

/* open and close are where a thread can be cancelled; it would keep the lock. */
static void take_lock(void)
{
    const int before = tt_cancel_put_off();
    pthread_mutex_lock(&lock);
    cancels = before;
}

static void leave_lock(void)
{
    const int before = cancels;
    pthread_mutex_unlock(&lock);
    tt_cancel_allow(before);
}

/* Standard error is looked at first: a placeholder must not be taken for it. */
static void enter_lock(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
    tt_stderr_remember();
    take_lock();
}

/* ---- The list ------------------------------------------------------------------------------- */

static bool make_room_locked(int fd)
{
    if (fd < nentries) return true;
    const int more = fd < 512 ? 1024 : 2 * fd;
    struct entry *grown = realloc(entries, (size_t)more * sizeof *grown);
    if (!grown) return false;
    memset(grown + nentries, 0, (size_t)(more - nentries) * sizeof *grown);
    entries = grown;
    nentries = more;
    return true;
}

/* Without memory the descriptor stays the child's too. */
static void enter_locked(int fd)
{
    struct stat now;
    if (fd < 0 || !make_room_locked(fd) || fstat(fd, &now)) return;
    entries[fd] = (struct entry){.entered = true, .device = now.st_dev, .inode = now.st_ino};
}

static void forget_locked(int fd)
{
    if (is_entered_locked(fd)) entries[fd].entered = false;
}

void tt_private_fd_begin(void)
{
    const int error = errno;
    enter_lock();
    hold_locked();
    errno = error;
}

int tt_private_fd_end(int fd)
{
    fd = lift(fd);
    const int error = errno;
    enter_locked(fd);
    release_locked();
    leave_lock();
    errno = error;
    return fd;
}

void tt_private_fd_add(int fd)
{
    enter_lock();
    enter_locked(fd);
    leave_lock();
}

void tt_private_fd_remove(int fd)
{
    take_lock();
    forget_locked(fd);
    leave_lock();
}

bool tt_private_fd_is_lost(int fd)
{
    const int error = errno;
    take_lock();
    const bool lost = is_entered_locked(fd) && !is_same(fd, &entries[fd]);
    leave_lock();
    errno = error;
    return lost;
}

void tt_private_fd_close(int fd)
{
    const int error = errno;
    take_lock();
    const bool lost = is_entered_locked(fd) && !is_same(fd, &entries[fd]);
    forget_locked(fd);
    if (!lost) close(fd);
    leave_lock();
    errno = error;
}

void tt_low_fd_hold(void)
{
    tt_private_fd_begin();
    leave_lock();
}

int tt_low_fd_release(int fd)
{
    fd = lift(fd);
    const int error = errno;
    take_lock();
    release_locked();
    leave_lock();
    errno = error;
    return fd;
}
