/* Counters of a communicator: its messages, what its making took, the memory that it holds; the
 * calls that were made on it, and their payload. */
#include <string.h>

#include "base/thread.h"
#include "carrier/carried.h"
#include "communicator/calling.h"

_Static_assert((int)TT_NCOLLECTIVES <= TUTTI_CALL_COUNTERS_COLLECTIVES, "each has a counter");

static tt_status check_counters(const tuttiCallCounters_t *counters)
{
    const size_t least = offsetof(tuttiCallCounters_t, collectives);
    if (!counters) return tt_fail(TT_ERR_ARGUMENT, "counters is NULL");
    if (counters->magic == TUTTI_CALL_COUNTERS_MAGIC && counters->size >= least) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT,
                   "counters is not from TUTTI_CALL_COUNTERS_INITIALIZER (size %zu, magic %#llx)",
                   counters->size, (unsigned long long)counters->magic);
}

tuttiResult_t tuttiCommCallCounters(tuttiComm_t comm, tuttiCallCounters_t *counters)
{
    TT_CANCELS_WAIT;
    tt_status status = check_counters(counters);
    if (!status) status = tt_comm_enter_to_ask(comm);
    if (status) return tt_result(__func__, status);
    const struct tt_call_counts *counts = &comm->counts;
    tuttiCallCounters_t all = {.size = counters->size,
                               .magic = counters->magic,
                               .version = counters->version,
                               .send = counts->send,
                               .recv = counts->recv,
                               .groups = counts->groups};
    memcpy(all.collectives, counts->collectives, sizeof counts->collectives);
    tt_core_leave_call(&comm->core);
    memcpy(counters, &all, counters->size < sizeof all ? counters->size : sizeof all);
    return tuttiSuccess;
}

/* What this rank's end takes: its own structures, and its share of the segment (which takes memory
 * only where touched). 0 in a child made by fork: a thread that the child does not have may hold
 * the engine for good. */
static uint64_t held_bytes(struct tuttiComm *comm)
{
    if (tt_comm_is_inherited(comm)) return 0;
    uint64_t nbytes = sizeof *comm + tt_engine_bytes(&comm->core.engine);
    for (const struct tt_cached *c = comm->cache; c; c = c->next) {
        nbytes += sizeof *c + c->loaded->nbytes;
        for (int i = 0; i < TT_BINDINGS_KEPT; i++) nbytes += c->bound[i].resolved_bytes;
    }
    for (const struct tt_registration *r = comm->registrations; r; r = r->next) nbytes += sizeof *r;
    const struct tt_carried *carried = tt_carried_of(&comm->core);
    return nbytes + (carried ? carried->bytes(&comm->core) : 0);
}

tuttiResult_t tuttiCommCounters(tuttiComm_t comm, tuttiCounters_t *counters)
{
    TT_CANCELS_WAIT;
    if (!counters)
        return tt_result(__func__, tt_fail(TT_ERR_ARGUMENT, "tuttiCommCounters: counters is NULL"));
    const tt_status status = tt_comm_enter_to_ask(comm);
    if (status) return tt_result(__func__, status);
    *counters = (tuttiCounters_t){
        .collectives =
            atomic_load_explicit(&comm->core.engine.collectives_done, memory_order_acquire),
        .messages = atomic_load_explicit(&comm->core.fabric->nmessages, memory_order_relaxed),
        .bytesCopied =
            atomic_load_explicit(&comm->core.fabric->nbytes_copied, memory_order_relaxed),
        .bytesDirect =
            atomic_load_explicit(&comm->core.fabric->nbytes_direct, memory_order_relaxed),
        .memoryBytes = held_bytes(comm),
        .initConnections = comm->init.bootstrap.connections,
        .initMessages = comm->init.bootstrap.messages,
        .initBytes = comm->init.bootstrap.nbytes,
        .initJoinNs = comm->init.join_ns,
        .initNs = comm->init.total_ns,
    };
    tt_core_leave_call(&comm->core);
    return tuttiSuccess;
}
