/* The end of a communicator: who waits for whom, and what is freed in which order. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/pause.h"
#include "base/thread.h"
#include "carrier/carried.h"
#include "communicator/calling.h"
#include "communicator/handles.h"

void tt_comm_drain(tuttiComm_t comm)
{
    const struct tt_carried *carried = tt_carried_of(&comm->core);
    struct tt_pause pause = {0};
    while (!tt_engine_idle(&comm->core.engine)) tt_pause(&pause);
    if (carried && carried->drain) carried->drain(&comm->core);
}

/* Aborts by other threads that came before are waited for. */
static void go_on_to(tuttiComm_t comm, unsigned end)
{
    atomic_fetch_or(&comm->ends, end);
    tt_comm_await_calls(comm);
}

/* What an abort itself brings about is no failure that it had. */
static void note_failure(tuttiComm_t comm)
{
    const char *text;
    if (atomic_load(&comm->ends) & TT_COMM_ABORTED && !atomic_load(&comm->failed_before_abort))
        return;
    const struct tt_fabric *fabric = comm->core.fabric; /* not whole where init failed */
    if (!fabric || !fabric->segment || !tt_fabric_failure(fabric, &text)) return;
    snprintf(comm->failure, sizeof comm->failure, "%.*s", (int)sizeof comm->failure - 1, text);
}

void tt_comm_free(tuttiComm_t comm)
{
    if (!comm) return;
    TT_CANCELS_WAIT;
    const struct tt_carried *carried = tt_carried_of(&comm->core);
    note_failure(comm);
    tt_comm_shut(comm, TT_COMM_ENDS | TT_COMM_FREES);
    tt_comm_forget(comm);
    if (carried && carried->end_turns) carried->end_turns(&comm->core);
    tt_comm_deregister_all(comm);
    tt_comm_forget_programs(comm);
    if (carried) carried->leave(&comm->core);
    go_on_to(comm, TT_COMM_LEAVES);
    tt_engine_stop_telling(&comm->core.engine);
    tt_fabric_disconnect(comm->core.fabric);
    go_on_to(comm, TT_COMM_GOES);
    if (comm->core.engine.fabric) tt_engine_fini(&comm->core.engine);
    tt_fabric_destroy(comm->core.fabric);
    tt_hosts_destroy(comm->core.groups);
    sodium_memzero(comm->key, sizeof comm->key);
    tt_comm_await_calls(comm);
    tt_handle_remove(comm, TT_HANDLE_COMM);
    tt_comm_retire(comm);
}

/* The struct stays in the list of communicators, and registered windows stay: the locks of both may
 * be held for good, by a thread of the parent that the child does not have. */
void tt_comm_free_inherited(tuttiComm_t comm)
{
    tt_comm_forget_programs(comm);
    tt_engine_stop_telling(&comm->core.engine);
    tt_engine_fini(&comm->core.engine);
    tt_fabric_free_inherited(comm->core.fabric);
    sodium_memzero(comm->key, sizeof comm->key);
    tt_handle_remove(comm, TT_HANDLE_COMM);
}
