/* The public face of memory and registrations. */
#include "base/thread.h"
#include "communicator/calling.h"
#include "communicator/group.h"
#include "communicator/request.h"
#include "driver/device_memory.h"
#include "driver/driver.h"

tuttiResult_t tuttiMemAlloc(void **memory, size_t nbytes)
{
    TT_CANCELS_WAIT;
    if (!memory)
        return tt_result(__func__, tt_fail(TT_ERR_ARGUMENT, "tuttiMemAlloc: memory is NULL"));
    return tt_result(__func__, tt_window_create(memory, nbytes));
}

/* device: -1: none, so the memory is the host's. */
static tt_status allocate_on(int device, size_t nbytes, void **memory)
{
    if (!memory) return tt_fail(TT_ERR_ARGUMENT, "tuttiDeviceMemAlloc: memory is NULL");
    if (device == TUTTI_DEVICE_CURRENT) device = tt_driver_default();
    return device == -1 ? tt_window_create(memory, nbytes)
                        : tt_driver_allocate(device, nbytes, memory);
}

tuttiResult_t tuttiDeviceMemAlloc(void **memory, size_t nbytes, int device)
{
    TT_CANCELS_WAIT;
    return tt_result(__func__, allocate_on(device, nbytes, memory));
}

static tt_status free_memory(void *memory)
{
    struct tt_window window;
    size_t nbytes = 0;
    const bool on_device = memory && tt_driver_find_memory(memory, &nbytes);
    if (!on_device && tt_in_group() && memory && tt_window_find(memory, 1, &window))
        nbytes = window.nbytes;
    if (nbytes) TT_TRY(tt_group_check_memory("tuttiMemFree", memory, nbytes));
    return on_device ? tt_driver_free(memory) : tt_window_free(memory);
}

tuttiResult_t tuttiMemFree(void *memory)
{
    TT_CANCELS_WAIT;
    return tt_result(__func__, free_memory(memory));
}

tuttiResult_t tuttiCommRegister(tuttiComm_t comm, void *memory, size_t nbytes, void **handle)
{
    TT_CANCELS_WAIT;
    tt_status status = tt_comm_enter(comm);
    if (status) return tt_result(__func__, status);
    if (!memory || !nbytes || !handle)
        status = tt_fail(TT_ERR_ARGUMENT,
                         "tuttiCommRegister: memory %p, %zu bytes, handle %p: none may be 0",
                         memory, nbytes, (void *)handle);
    if (!status) status = tt_request_buffer(__func__, "memory", memory, nbytes);
    if (!status) status = tt_comm_register(comm, memory, nbytes);
    if (!status) *handle = comm->registrations;
    tt_core_leave_call(&comm->core);
    return tt_result(__func__, status);
}

static tt_status deregister(tuttiComm_t comm, void *handle)
{
    struct tt_registration **link = &comm->registrations;
    while (*link && *link != handle) link = &(*link)->next;
    struct tt_registration *made = *link;
    if (!made)
        return tt_fail(TT_ERR_ARGUMENT, "%p is no registration of communicator %s", handle,
                       comm->core.name);
    TT_TRY(tt_group_check_memory("tuttiCommDeregister", made->memory, made->nbytes));
    return tt_comm_deregister(comm, link);
}

tuttiResult_t tuttiCommDeregister(tuttiComm_t comm, void *handle)
{
    TT_CANCELS_WAIT;
    tt_status status = tt_comm_enter_to_ask(comm);
    if (status) return tt_result(__func__, status);
    status = deregister(comm, handle);
    tt_core_leave_call(&comm->core);
    return tt_result(__func__, status);
}
