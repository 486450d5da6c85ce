/* Communicators on several hosts that are alive: other hosts are answered while no call is made;
 * and at the end of the process, as many programs never destroy theirs. What they have sent may
 * still be on its way then, and closing a socket on which something lies unread throws that away.
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/pause.h"
#include "base/process_lock.h"
#include "carrier/carried.h"
#include "communicator/communicator.h"

static struct tt_process_lock lock = TT_PROCESS_LOCK;
static struct tuttiComm *alive;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* How long all engines that are busy are waited for: besides calls, two threads of the library
 * enter an engine, for microseconds mostly: one answers other hosts while no call runs
 * (executor/answer.c), one tells them of a failure (executor/tell.c). */
enum { BUSY_MS = 20 };

static bool enter(struct tt_engine *engine, int64_t deadline_ns)
{
    struct tt_pause pause = {0};
    while (!tt_engine_enter_if_idle(engine)) {
        if (tt_expired(deadline_ns)) return false;
        tt_pause(&pause);
    }
    return true;
}

/* Calls on CUDA streams whose kernels have ended may not have given their last messages to the
 * network yet. */
static void settle(struct tt_comm_core *core)
{
    const struct tt_carried *carried = core->kernel ? tt_carried_of(core) : NULL;
    if (carried && carried->settle) carried->settle(core);
}

/* Only for idle ones: who ends in the middle of a call has not done its part. Whoever holds the
 * lock or the engine may have been interrupted for good, by a signal whose handler ends the
 * process. */
static void leave_all(void)
{
    if (!tt_process_try_lock(&lock)) return;
    const int64_t deadline_ns = tt_deadline_ns(BUSY_MS);
    for (struct tuttiComm *comm = alive; comm; comm = comm->alive_next) {
        if (tt_comm_is_inherited(comm)) continue;
        settle(&comm->core);
        if (!enter(&comm->core.engine, deadline_ns)) continue;
        tt_fabric_exit(comm->core.fabric);
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
    tt_engine_answer(&comm->core.engine);
    tt_process_lock(&lock);
    comm->alive_next = alive;
    alive = comm;
    tt_process_unlock(&lock);
}

void tt_comm_forget(tuttiComm_t comm)
{
    tt_engine_answer_no_more(&comm->core.engine);
    tt_process_lock(&lock);
    struct tuttiComm **at = &alive;
    while (*at && *at != comm) at = &(*at)->alive_next;
    if (*at) *at = comm->alive_next;
    tt_process_unlock(&lock);
}
