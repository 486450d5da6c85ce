/* tuttiCommCallCounters: the calls that were made on a communicator, and their payload. */
#include <string.h>

#include "base/thread.h"
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
