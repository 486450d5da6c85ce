/* Lists the private descriptors of this process; a forked child gets /dev/null for each. */
#include "base/private_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static void before_fork(void)
{
    locked_by_fork = pthread_mutex_lock(&lock) == 0;
}

static void after_fork(void)
{
    if (locked_by_fork) pthread_mutex_unlock(&lock);
    locked_by_fork = false;
}

static bool is_same(int fd, const struct entry *entry)
{
    struct stat now;
    return fstat(fd, &now) == 0 && now.st_dev == entry->device && now.st_ino == entry->inode;
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
    /* Anew, not unlocked: its owner is the thread that forked, which has another id here. */
    lock = (pthread_mutex_t)PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    locked_by_fork = false;
    errno = error;
}

static void install(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}

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
    if (fd >= 0 && fd < nentries) entries[fd].entered = false;
}

void tt_private_fd_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
    pthread_mutex_lock(&lock);
}

int tt_private_fd_end(int fd)
{
    const int error = errno;
    enter_locked(fd);
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}

void tt_private_fd_add(int fd)
{
    tt_private_fd_begin();
    tt_private_fd_end(fd);
}

void tt_private_fd_remove(int fd)
{
    pthread_mutex_lock(&lock);
    forget_locked(fd);
    pthread_mutex_unlock(&lock);
}

void tt_private_fd_close(int fd)
{
    const int error = errno;
    pthread_mutex_lock(&lock);
    forget_locked(fd);
    close(fd);
    pthread_mutex_unlock(&lock);
    errno = error;
}
