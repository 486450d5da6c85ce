/* VGPU_DRIVER_LOCK: a lock of the driver that some calls hold while they wait for kernels, so that
 * calls of other threads wait too. Without the setting nobody holds it: this library's own lock
 * (state.c) is given back by who waits.
 *
 * The call that holds it waits inside; the others wait here, before they have done anything. */
#include "run.h"

#include <semaphore.h>

/* A thread that waits for the lock. */
struct waiter {
    sem_t free;
    struct waiter *next;
};

static uint64_t holder; /* the thread; 0: nobody */
static struct waiter *waiters;

void vd_driver_await(void)
{
    while (holder != 0 && holder != vd_this_thread()) {
        struct waiter self = {.next = waiters};
        sem_init(&self.free, 0, 0);
        waiters = &self;
        pthread_mutex_unlock(&vd.lock);
        while (sem_wait(&self.free) != 0) {
        }
        vd_lock();
        sem_destroy(&self.free);
    }
}

void vd_driver_hold(void)
{
    if (vd.settings.driver_lock == VD_LOCK_OFF) return;
    vd_driver_await();
    holder = vd_this_thread();
}

void vd_driver_release(void)
{
    if (vd.settings.driver_lock == VD_LOCK_OFF) return;
    holder = 0;
    for (struct waiter *waiter = waiters; waiter != NULL;) {
        struct waiter *next = waiter->next;
        sem_post(&waiter->free);
        waiter = next;
    }
    waiters = NULL;
}

CUresult vd_context_wait_alone(struct CUctx_st *context)
{
    vd_driver_hold();
    const CUresult result = vd_context_wait(context);
    vd_driver_release();
    return result;
}
