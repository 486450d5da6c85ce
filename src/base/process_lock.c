/* Renews the locks of process-wide state in a child made by fork(). */
#include "base/process_lock.h"

#include <stddef.h>

static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;
static struct tt_process_lock *locks; /* guarded by listing; each change is one store */

static void renew_in_child(void)
{
    listing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (struct tt_process_lock *lock = locks; lock; lock = lock->next)
        lock->lock = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
}

static void install_fork_handler(void)
{
    pthread_atfork(NULL, NULL, renew_in_child);
}

void tt_process_lock_list(struct tt_process_lock *lock)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_fork_handler);
    pthread_mutex_lock(&listing);
    const struct tt_process_lock *found = locks;
    while (found && found != lock) found = found->next;
    if (!found) { /* a process that forked here may have left a lock that is in the list already */
        lock->next = locks;
        locks = lock;
    }
    atomic_store_explicit(&lock->is_listed, true, memory_order_release);
    pthread_mutex_unlock(&listing);
}
