/* Communicators on several hosts that are alive when the process ends: many programs never destroy
 * theirs. What they have sent may still be on its way then, and closing a socket on which something
 * lies unread throws that away. */
#include <pthread.h>
#include <stdlib.h>

#include "base/process_lock.h"
#include "communicator/communicator.h"

static struct tt_process_lock lock = TT_PROCESS_LOCK;
static struct tuttiComm *alive;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Only for idle ones: who ends in the middle of a call has not done its part. Whoever holds the
 * lock or the engine may have been interrupted for good, by a signal whose handler ends the
 * process. */
static void leave_all(void)
{
    if (!tt_process_try_lock(&lock)) return;
    for (struct tuttiComm *comm = alive; comm; comm = comm->alive_next) {
        if (tt_comm_is_inherited(comm) || !tt_engine_enter_if_idle(&comm->core.engine)) continue;
        tt_wires_leave(comm->core.fabric->wires);
        tt_engine_leave(&comm->core.engine);
    }
    tt_process_unlock(&lock);
}

static void register_leaving(void)
{
    (void)atexit(leave_all);
}

void tt_comm_remember(tuttiComm_t comm)
{
    if (!comm->core.fabric->wires) return;
    pthread_once(&once, register_leaving);
    tt_process_lock(&lock);
    comm->alive_next = alive;
    alive = comm;
    tt_process_unlock(&lock);
}

void tt_comm_forget(tuttiComm_t comm)
{
    tt_process_lock(&lock);
    struct tuttiComm **at = &alive;
    while (*at && *at != comm) at = &(*at)->alive_next;
    if (*at) *at = comm->alive_next;
    tt_process_unlock(&lock);
}
