/* Locks of process-wide state. A child made by fork() finds them free: a thread of its parent may
 * have held one when the process forked, and that thread does not exist in the child.
 *
 * What such a lock guards must be sound at every moment: whatever part of a change the child sees,
 * it can go on with it. A list is, when each change of it is one store. */
#ifndef TT_BASE_PROCESS_LOCK_H
#define TT_BASE_PROCESS_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Static storage; begins as TT_PROCESS_LOCK. */
struct tt_process_lock {
    pthread_rwlock_t lock;
    _Atomic bool is_listed; /* among those that a child renews */
    struct tt_process_lock *next;
};
#define TT_PROCESS_LOCK                                                                            \
    {                                                                                              \
        .lock = PTHREAD_RWLOCK_INITIALIZER                                                         \
    }

/* Called by the functions below: a child renews the lock from now on. */
void tt_process_lock_list(struct tt_process_lock *lock);

static inline void tt_process_lock(struct tt_process_lock *lock)
{
    if (!atomic_load_explicit(&lock->is_listed, memory_order_acquire)) tt_process_lock_list(lock);
    pthread_rwlock_wrlock(&lock->lock);
}

/* For readers, several of whom may hold it. */
static inline void tt_process_lock_shared(struct tt_process_lock *lock)
{
    if (!atomic_load_explicit(&lock->is_listed, memory_order_acquire)) tt_process_lock_list(lock);
    pthread_rwlock_rdlock(&lock->lock);
}

/* Without waiting; false: somebody holds it. */
static inline bool tt_process_try_lock(struct tt_process_lock *lock)
{
    if (!atomic_load_explicit(&lock->is_listed, memory_order_acquire)) tt_process_lock_list(lock);
    return pthread_rwlock_trywrlock(&lock->lock) == 0;
}

static inline void tt_process_unlock(struct tt_process_lock *lock)
{
    pthread_rwlock_unlock(&lock->lock);
}

#endif
