/* Registrations: memory of the user that peers use in place. */
#include <stdlib.h>

#include "communicator/communicator.h"
#include "driver/driver.h"

tt_status tt_comm_register(tuttiComm_t comm, void *memory, size_t nbytes)
{
    struct tt_registration *made = calloc(1, sizeof *made);
    if (!made) return tt_fail(TT_ERR_SYSTEM, "out of memory for a registration");
    made->memory = memory;
    made->nbytes = nbytes;
    /* The pages that a GPU uses stay where they are. */
    struct tt_pointer found = {.kind = TT_POINTER_HOST};
    tt_status status = tt_driver_is_in_use() ? tt_driver_pointer(memory, &found) : TT_OK;
    if (!status && found.kind == TT_POINTER_HOST && !comm->host_pages_stay)
        status = tt_window_adopt(memory, nbytes, &made->adopted);
    if (status) {
        free(made);
        return status;
    }
    made->next = comm->registrations;
    comm->registrations = made;
    return TT_OK;
}

void tt_comm_deregister(struct tt_registration **link)
{
    struct tt_registration *gone = *link;
    *link = gone->next;
    tt_window_release(gone->adopted);
    free(gone);
}

void tt_comm_deregister_all(tuttiComm_t comm)
{
    while (comm->registrations) tt_comm_deregister(&comm->registrations);
}
