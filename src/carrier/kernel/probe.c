/* The test of the mappings of other ranks' memory, and how far their GPUs are, when a communicator
 * is made. */
#include "carrier/kernel/kernel.h"
#include "device/device.h"

static tt_status run_probes(const struct tt_kernel_part *on, size_t most, bool loads)
{
    struct tt_context *context = tt_device_context(on->device);
    void *probes;
    TT_TRY(tt_context_allocate_host(context, most * sizeof(struct tt_device_probe), &probes));
    const size_t n = tt_device_room_probes(on->room, loads, probes);
    tt_status status = tt_device_launch_probes(on->device, on->stream, probes, n, loads);
    if (!status) status = tt_context_stream_synchronize(context, on->stream);
    if (!status && loads) status = tt_device_room_check_probes(on->room, probes);
    tt_context_free_host(context, probes);
    return status;
}

/* A rank whose init fails meanwhile waits, before it frees its memory, for ranks whose kernels use
 * that. */
tt_status tt_kernel_probe(struct tt_comm_core *comm, bool loads)
{
    const size_t most = tt_device_room_most_probes(comm->kernel->room);
    if (!most) return TT_OK;
    if (!tt_kernel_may_use_peers(comm, NULL, TT_NO_TURN))
        return tt_kernel_fail_alone(comm, NULL, TT_NO_TURN);
    const tt_status status = run_probes(comm->kernel, most, loads);
    tt_fabric_end_kernel(comm->fabric);
    return status;
}

tt_status tt_kernel_examine(struct tt_comm_core *comm)
{
    return tt_kernel_probe(comm, true);
}

void tt_kernel_measure(const struct tt_comm_core *comm, uint8_t *distances)
{
    for (int r = 0; r < comm->nranks; r++)
        distances[r] = (uint8_t)tt_device_room_distance(comm->kernel->room, r);
}
