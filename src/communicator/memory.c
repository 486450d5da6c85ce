/* The public face of memory and registrations; pre-multiplied sums, counters. */
#include <inttypes.h>
#include <string.h>

#include "base/output.h"
#include "base/thread.h"
#include "carrier/carried.h"
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
    tt_comm_deregister(comm, link);
    return TT_OK;
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

/* Whether the host can read a scalar. Where no driver answers, no memory is a GPU's. */
static tt_status check_readable(const void *scalar)
{
    struct tt_pointer found;
    if (!tt_driver_is_in_use() || tt_driver_pointer(scalar, &found)) return TT_OK;
    if (found.kind != TT_POINTER_DEVICE) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT,
                   "tuttiRedOpCreatePreMulSum: the scalar %p is memory of GPU %d, which the host "
                   "cannot read: pass tuttiScalarDevice, or a scalar in memory of the host",
                   scalar, found.gpu);
}

/* The handles of a communicator's operations. Another communicator of the process has others, but
 * for those that are OP_RANGES apart. */
static int first_op(const struct tuttiComm *comm)
{
    enum { OP_RANGES = (tuttiMaxRedOp - tuttiFirstDynamicRedOp) / TT_MAX_DYNAMIC_OPS };
    const int range = (int)((comm->number - 1) % OP_RANGES);
    return tuttiFirstDynamicRedOp + range * TT_MAX_DYNAMIC_OPS;
}

struct tt_dynamic_op *tt_comm_find_op(tuttiComm_t comm, int op)
{
    const int64_t slot = (int64_t)op - first_op(comm);
    const bool is_own = slot >= 0 && slot < TT_MAX_DYNAMIC_OPS;
    return is_own && comm->dynamic_ops[slot].used ? &comm->dynamic_ops[slot] : NULL;
}

static tt_status create_op(tuttiRedOp_t *op, const void *scalar, tuttiDataType_t type,
                           tuttiScalarResidence_t residence, tuttiComm_t comm)
{
    if (!op || !scalar)
        return tt_fail(TT_ERR_ARGUMENT,
                       "tuttiRedOpCreatePreMulSum: op %p, scalar %p: neither may be NULL",
                       (void *)op, scalar);
    if ((int)type < 0 || type >= tuttiNumTypes)
        return tt_fail(TT_ERR_ARGUMENT, "type %d is none of 0 to %d", (int)type, tuttiNumTypes - 1);
    if (residence != tuttiScalarDevice && residence != tuttiScalarHostImmediate)
        return tt_fail(TT_ERR_ARGUMENT, "scalar residence %d is neither 0 (device) nor 1 (host)",
                       (int)residence);
    if (residence == tuttiScalarHostImmediate) TT_TRY(check_readable(scalar));
    int slot = 0;
    while (slot < TT_MAX_DYNAMIC_OPS && comm->dynamic_ops[slot].used) slot++;
    if (slot == TT_MAX_DYNAMIC_OPS)
        return tt_fail(TT_ERR_USAGE, "communicator %s has %d operations already: destroy some",
                       comm->core.name, TT_MAX_DYNAMIC_OPS);
    struct tt_dynamic_op *made = &comm->dynamic_ops[slot];
    *made = (struct tt_dynamic_op){.used = true, .type = (enum tt_type)type};
    if (residence == tuttiScalarDevice)
        made->pointer = scalar;
    else
        memcpy(made->scalar, scalar, tt_type_size(made->type));
    *op = (tuttiRedOp_t)(first_op(comm) + slot);
    return TT_OK;
}

tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t *op, void *scalar, tuttiDataType_t type,
                                        tuttiScalarResidence_t residence, tuttiComm_t comm)
{
    TT_CANCELS_WAIT;
    tt_status status = tt_comm_enter(comm);
    if (status) return tt_result(__func__, status);
    status = create_op(op, scalar, type, residence, comm);
    tt_core_leave_call(&comm->core);
    return tt_result(__func__, status);
}

static tt_status destroy_op(int op, tuttiComm_t comm)
{
    struct tt_dynamic_op *made = tt_comm_find_op(comm, op);
    if (!made)
        return tt_fail(TT_ERR_ARGUMENT,
                       "operation %d was not made on communicator %s, or destroyed", op,
                       comm->core.name);
    made->used = false;
    return TT_OK;
}

tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm)
{
    TT_CANCELS_WAIT;
    tt_status status = tt_comm_enter_to_ask(comm);
    if (status) return tt_result(__func__, status);
    status = destroy_op((int)op, comm);
    tt_core_leave_call(&comm->core);
    return tt_result(__func__, status);
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

void tt_comm_describe_links(tuttiComm_t comm, void (*emit)(void *arg, const char *line), void *arg)
{
    const struct tt_segment_header *header = comm->core.fabric->segment->header;
    const struct tt_output output = {emit, arg};
    char name[128], way[256];
    tt_say(&output,
           "communicator %s: rank %d of %d, %u slots of %u bytes a link, %u bytes a meeting, %s",
           comm->core.name, comm->core.rank, comm->core.nranks, header->nslots, header->slot_bytes,
           header->meet_bytes,
           comm->core.fabric->oversubscribed ? "yielding (more ranks than cores)"
                                             : "spinning (a core for each rank)");
    const struct tt_sleep *sleep = &comm->core.fabric->host.sleep;
    tt_say(&output,
           "  a rank that waits for long %s; so far %" PRIu64 " sleeps, %" PRIu64
           " memory barriers for other processes",
           sleep->is_woken ? "sleeps until another rank of its host wakes it"
                           : "sleeps for 50 us at a time (other ranks cannot wake it)",
           atomic_load_explicit(&sleep->nsleeps, memory_order_relaxed),
           atomic_load_explicit(&sleep->nbarriers, memory_order_relaxed));
    const struct tt_carried *carried = tt_carried_of(&comm->core);
    if (carried) {
        char how[TT_ERROR_TEXT];
        carried->describe(&comm->core, how, sizeof how);
        tt_say(&output, "  calls on memory of GPU %d: %s", comm->core.gpu, how);
    }
    for (int peer = 0; peer < comm->core.nranks; peer++) {
        tt_fabric_name_rank(comm->core.fabric, peer, name, sizeof name);
        tt_engine_enter(&comm->core.engine);
        tt_fabric_describe_peer(comm->core.fabric, peer, way, sizeof way);
        tt_engine_leave(&comm->core.engine);
        tt_say(&output, "  to %s: %s", name, way);
    }
}
