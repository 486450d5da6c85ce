/* Checks communicators that the user passes. */
#include "communicator/communicator.h"

tt_status tt_comm_check_handle(tuttiComm_t comm)
{
    if (!comm) return tt_fail(TT_ERR_ARGUMENT, "the communicator is NULL");
    if (comm->magic != TT_COMM_MAGIC)
        return tt_fail(TT_ERR_ARGUMENT, "%p is no communicator: never made, or destroyed already",
                       (void *)comm);
    return TT_OK;
}

tt_status tt_comm_check(tuttiComm_t comm)
{
    TT_TRY(tt_comm_check_handle(comm));
    if (comm->finalized)
        return tt_fail(TT_ERR_USAGE, "communicator %s was finalized: only destroy may follow",
                       comm->core.name);
    return tt_fabric_check(comm->core.fabric);
}
