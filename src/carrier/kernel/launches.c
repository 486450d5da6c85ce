/* Room for the launches of a rank: waits until there is some, and refuses groups that would wait
 * for themselves. */
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "carrier/gpu_watch.h"
#include "carrier/kernel/kernel.h"

/* Of a thread that waits for room. */
enum {
    PAUSE_US = 20,
    LOOK_NS = 1000000,       /* between two looks at the other ranks */
    WARN_NS = 1000000000,    /* before it says that it waits */
    ABORTED_NS = 1000000000, /* for room for a launch, where another communicator was aborted */
};

/* ---- Groups that would wait for themselves -------------------------------------------------- */

/* Launches of a rank in one group that wait for none of these: behind the last one, too, the place
 * of the next is waited for. */
enum { MOST_OF_GROUP = TT_MOST_LAUNCHES - 1 };

bool tt_launches_fit(uint64_t ncalls, int nranks)
{
    return ncalls <= MOST_OF_GROUP * (uint64_t)tt_calls_in_launch(nranks);
}

/* Whether launches of the group may wait for what comes behind all of them: for calls of other
 * carriers; for messages that relays move, which is when their calls have begun; or for the end of
 * another communicator's calls, which is looked after when the group has begun, and for which a
 * rank that leaves that communicator waits before it comes to the other calls. */
static bool has_later(const struct tt_calls *calls)
{
    const struct tt_pending_call *call = calls->first;
    while (call && !call->comm->fabric->mixed.is_mixed &&
           tt_fabric_is_same(call->comm->fabric, calls->first->comm->fabric))
        call = call->next;
    return call || calls->has_others;
}

/* Captured calls are not launched here; messages are one call, of all their streams. */
static bool is_launched(const struct tt_pending_call *call)
{
    return !call->capture && (!call->exchange || call->is_first);
}

/* Launches of earlier groups are not counted, though they take room: all that they need of this
 * rank has begun, so they end when the other ranks come to them. These must not wait for a call of
 * this group first (docs/cuda.md). */
tt_status tt_launches_check(const struct tt_calls *calls)
{
    if (!has_later(calls)) return TT_OK;
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        call->comm->kernel->launches.ncalls = 0;
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        call->comm->kernel->launches.ncalls += is_launched(call);
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        const struct tt_comm_core *comm = call->comm;
        const uint64_t ncalls = comm->kernel->launches.ncalls;
        if (tt_launches_fit(ncalls, 1)) continue;
        return tt_fail(
            TT_ERR_USAGE,
            "communicator %s: a group has %llu calls of rank %d on GPU %d (all sends and "
            "receives are one); at most %d, because the group has calls of another communicator, "
            "or in which the host takes part (on its memory or through it, or of a communicator in "
            "which some ranks have no GPU), and such calls begin when all kernels are launched: "
            "make several groups of them",
            comm->name, (unsigned long long)ncalls, comm->rank, comm->gpu,
            MOST_OF_GROUP * TT_DEVICE_MOST_CALLS);
    }
    return TT_OK;
}

/* ---- Waiting -------------------------------------------------------------------------------- */

/* The launch whose place the next one takes has not ended. */
static bool is_full(const struct tt_kernel_part *on)
{
    const struct tt_launches *launches = &on->launches;
    return launches->number >= TT_MOST_LAUNCHES &&
           __atomic_load_n(&on->life.report->ended, __ATOMIC_ACQUIRE) <
               launches->ends[launches->number % TT_MOST_LAUNCHES];
}

static void warn_of_room(struct tt_comm_core *comm)
{
    struct tt_launches *launches = &comm->kernel->launches;
    if (!launches->has_warned)
        TT_WARN(
            "communicator %s: rank %d has %d launches on GPU %d that have not ended: calls wait "
            "until some have. The streams of these calls may wait for something else",
            comm->name, comm->rank, TT_MOST_LAUNCHES, comm->gpu);
    launches->has_warned = true;
}

/* A call of another communicator of the group, if that was aborted; NULL: there is none. */
static const struct tt_pending_call *aborted_beside(const struct tt_comm_core *comm,
                                                    const struct tt_calls *calls)
{
    const struct tt_pending_call *call = calls->first;
    while (call && (!atomic_load(&call->comm->fabric->aborted) ||
                    tt_fabric_is_same(call->comm->fabric, comm->fabric)))
        call = call->next;
    return call;
}

/* The abort waits for the group, and the same thread may be about to abort this communicator. */
static void give_up(struct tt_comm_core *comm, const struct tt_comm_core *aborted)
{
    tt_engine_enter(&comm->engine);
    tt_ignore(tt_fabric_fail(comm->fabric, TT_ERR_REMOTE,
                             "communicator %s: rank %d waited for room for its launches on GPU "
                             "%d, in a group with calls of communicator %s, which was aborted",
                             comm->name, comm->rank, comm->gpu, aborted->name));
    tt_engine_tell_failure(&comm->engine);
    tt_engine_leave(&comm->engine);
}

/* Not for ever where a rank is gone or a communicator of the group is aborted: kernels end then.
 * There is no deadline: the user's own work may lie in front. Nothing here calls the driver. */
void tt_launches_await_room(struct tt_comm_core *comm, const struct tt_calls *calls)
{
    const struct tt_needs needs = tt_launching_needs(&comm->kernel->launching);
    const int64_t since_ns = tt_now_ns();
    int64_t looked_ns = since_ns;
    int64_t whole_ns = since_ns; /* the last look that found no communicator of the group aborted */
    while (is_full(comm->kernel) && !tt_fabric_failure_text(comm->fabric)[0]) {
        usleep(PAUSE_US);
        if (tt_now_ns() - looked_ns < LOOK_NS) continue;
        looked_ns = tt_now_ns();
        if (looked_ns - since_ns > WARN_NS) warn_of_room(comm);
        const struct tt_pending_call *aborted = aborted_beside(comm, calls);
        if (!aborted) {
            whole_ns = looked_ns;
        } else if (looked_ns - whole_ns > ABORTED_NS) {
            give_up(comm, aborted->comm);
            return;
        }
        if (tt_engine_check(&comm->engine, &needs)) return;
        if (tt_gpu_watch_check_outside(comm->kernel->life.watch, &comm->engine, "a launch")) return;
    }
}
