/* Memory, registrations, pre-multiplied sums, counters. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "base/output.h"
#include "communicator/communicator.h"
#include "communicator/staged.h"
#include "driver/driver.h"

tuttiResult_t tuttiMemAlloc(void **memory, size_t nbytes)
{
    if (!memory)
        return tt_result(__func__, tt_fail(TT_ERR_ARGUMENT, "tuttiMemAlloc: memory is NULL"));
    return tt_result(__func__, tt_window_create(memory, nbytes));
}

tuttiResult_t tuttiMemFree(void *memory)
{
    struct tt_window window;
    tt_status status = TT_OK;
    if (tt_in_group() && memory && tt_window_find(memory, 1, &window))
        status = tt_group_check_memory("tuttiMemFree", memory, window.nbytes);
    if (!status) status = tt_window_free(memory);
    return tt_result(__func__, status);
}

/* What tuttiCommRegister hands out. Owned by the communicator, until deregistered or freed with it.
 */
struct tt_registration {
    const void *memory;
    size_t nbytes;
    void *adopted;   /* pages that became a window; NULL: none */
    const char *gpu; /* the memory is of the rank's GPU, and devices of the network use it in place;
                      * NULL: not so */
    struct tt_wires_gpu pages;
    struct tt_registration *next;
};

/* Lets devices of the network use memory of the rank's GPU. An error: its bytes are copied, as
 * those of other memory. */
static tt_status register_gpu(tuttiComm_t comm, char *memory, size_t nbytes,
                              struct tt_registration *made)
{
    struct tt_dmabuf exported;
    char *base;
    TT_TRY(tt_context_export(comm->staged->context, memory, nbytes, &exported.fd, &base,
                             &exported.nbytes));
    exported.base = base;
    tt_engine_enter(&comm->engine);
    const tt_status status = tt_wires_register_gpu(comm->fabric->wires, &exported, &made->pages);
    tt_engine_leave(&comm->engine);
    close(exported.fd);
    if (status) return status;
    made->gpu = memory;
    return TT_OK;
}

/* Where calls on the memory of this rank's GPU may leave the host. */
static bool may_register(const struct tuttiComm *comm, const struct tt_pointer *pointer)
{
    return pointer->kind == TT_POINTER_DEVICE && comm->staged && pointer->gpu == comm->gpu &&
           !comm->copies_gpus && comm->fabric->wires &&
           tt_wires_may_use_gpus(comm->fabric->wires) && tt_config_int(TT_CONFIG_RDMA_GPU);
}

/* Why it cannot be was logged. */
static void try_to_register_gpu(tuttiComm_t comm, void *memory, size_t nbytes,
                                struct tt_registration *made)
{
    const tt_status status = register_gpu(comm, memory, nbytes, made);
    if (status)
        TT_INFO("rank %d: %zu bytes of GPU %d are copied through memory of the host", comm->rank,
                nbytes, comm->gpu);
    else
        TT_INFO("rank %d: devices of the network use %zu bytes of GPU %d in place", comm->rank,
                nbytes, comm->gpu);
    comm->copies_gpus = status == TT_ERR_USAGE;
}

bool tt_comm_devices_use(const struct tuttiComm *comm, const void *data, size_t nbytes)
{
    const uintptr_t first = (uintptr_t)data;
    for (const struct tt_registration *made = comm->registrations; made; made = made->next) {
        const uintptr_t base = (uintptr_t)made->gpu;
        if (made->gpu && first >= base && first - base <= made->nbytes &&
            nbytes <= made->nbytes - (first - base))
            return true;
    }
    return false;
}

static tt_status register_memory(tuttiComm_t comm, void *memory, size_t nbytes, void **handle)
{
    TT_TRY(tt_comm_check(comm));
    if (!memory || !nbytes || !handle)
        return tt_fail(TT_ERR_ARGUMENT,
                       "tuttiCommRegister: memory %p, %zu bytes, handle %p: none may be 0", memory,
                       nbytes, (void *)handle);
    struct tt_registration *made = calloc(1, sizeof *made);
    if (!made) return tt_fail(TT_ERR_SYSTEM, "out of memory for a registration");
    made->memory = memory;
    made->nbytes = nbytes;
    /* The pages that a GPU uses stay where they are. */
    struct tt_pointer found = {.kind = TT_POINTER_HOST};
    tt_status status = tt_driver_is_in_use() ? tt_driver_pointer(memory, &found) : TT_OK;
    if (!status && found.kind == TT_POINTER_HOST)
        status = tt_window_adopt(memory, nbytes, &made->adopted);
    if (status) {
        free(made);
        return status;
    }
    if (may_register(comm, &found)) try_to_register_gpu(comm, memory, nbytes, made);
    made->next = comm->registrations;
    comm->registrations = made;
    *handle = made;
    return TT_OK;
}

tuttiResult_t tuttiCommRegister(tuttiComm_t comm, void *memory, size_t nbytes, void **handle)
{
    return tt_result(__func__, register_memory(comm, memory, nbytes, handle));
}

static void free_registration(tuttiComm_t comm, struct tt_registration *made)
{
    if (made->gpu) {
        tt_engine_enter(&comm->engine);
        tt_wires_forget_gpu(comm->fabric->wires, &made->pages);
        tt_engine_leave(&comm->engine);
    }
    tt_window_release(made->adopted);
    free(made);
}

tuttiResult_t tuttiCommDeregister(tuttiComm_t comm, void *handle)
{
    tt_status status = tt_comm_check_handle(comm);
    if (status) return tt_result(__func__, status);
    struct tt_registration **link = &comm->registrations;
    while (*link && *link != handle) link = &(*link)->next;
    struct tt_registration *made = *link;
    if (!made)
        return tt_result(__func__,
                         tt_fail(TT_ERR_ARGUMENT, "%p is no registration of communicator %s",
                                 handle, comm->name));
    status = tt_group_check_memory("tuttiCommDeregister", made->memory, made->nbytes);
    if (status) return tt_result(__func__, status);
    *link = made->next;
    free_registration(comm, made);
    return tuttiSuccess;
}

void tt_comm_deregister_all(tuttiComm_t comm)
{
    while (comm->registrations) {
        struct tt_registration *next = comm->registrations->next;
        free_registration(comm, comm->registrations);
        comm->registrations = next;
    }
}

static tt_status create_op(tuttiRedOp_t *op, const void *scalar, tuttiDataType_t type,
                           tuttiScalarResidence_t residence, tuttiComm_t comm)
{
    TT_TRY(tt_comm_check(comm));
    if (!op || !scalar)
        return tt_fail(TT_ERR_ARGUMENT,
                       "tuttiRedOpCreatePreMulSum: op %p, scalar %p: neither may be NULL",
                       (void *)op, scalar);
    if ((int)type < 0 || type >= tuttiNumTypes)
        return tt_fail(TT_ERR_ARGUMENT, "type %d is none of 0 to %d", (int)type, tuttiNumTypes - 1);
    if (residence != tuttiScalarDevice && residence != tuttiScalarHostImmediate)
        return tt_fail(TT_ERR_ARGUMENT, "scalar residence %d is neither 0 (device) nor 1 (host)",
                       (int)residence);
    int slot = 0;
    while (slot < TT_MAX_DYNAMIC_OPS && comm->dynamic_ops[slot].used) slot++;
    if (slot == TT_MAX_DYNAMIC_OPS)
        return tt_fail(TT_ERR_USAGE, "communicator %s has %d operations already: destroy some",
                       comm->name, TT_MAX_DYNAMIC_OPS);
    struct tt_dynamic_op *made = &comm->dynamic_ops[slot];
    *made = (struct tt_dynamic_op){.used = true, .type = (enum tt_type)type};
    if (residence == tuttiScalarDevice)
        made->pointer = scalar;
    else
        memcpy(made->scalar, scalar, tt_type_size(made->type));
    *op = (tuttiRedOp_t)(tuttiFirstDynamicRedOp + slot);
    return TT_OK;
}

tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t *op, void *scalar, tuttiDataType_t type,
                                        tuttiScalarResidence_t residence, tuttiComm_t comm)
{
    return tt_result(__func__, create_op(op, scalar, type, residence, comm));
}

tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm)
{
    const tt_status status = tt_comm_check_handle(comm);
    if (status) return tt_result(__func__, status);
    const int slot = (int)op - tuttiFirstDynamicRedOp;
    if (slot < 0 || slot >= TT_MAX_DYNAMIC_OPS || !comm->dynamic_ops[slot].used)
        return tt_result(__func__, tt_fail(TT_ERR_ARGUMENT,
                                           "operation %d was not made by tuttiRedOpCreatePreMulSum",
                                           (int)op));
    comm->dynamic_ops[slot].used = false;
    return tuttiSuccess;
}

/* What this rank's end takes: its own structures, and its share of the segment (which takes memory
 * only where touched). */
static uint64_t held_bytes(struct tuttiComm *comm)
{
    uint64_t nbytes = sizeof *comm + tt_engine_bytes(&comm->engine);
    for (const struct tt_cached *c = comm->cache; c; c = c->next)
        nbytes += sizeof *c + c->loaded->nbytes;
    for (const struct tt_registration *r = comm->registrations; r; r = r->next) nbytes += sizeof *r;
    return nbytes + tt_comm_staged_bytes(comm->staged);
}

tuttiResult_t tuttiCommCounters(tuttiComm_t comm, tuttiCounters_t *counters)
{
    const tt_status status = tt_comm_check_handle(comm);
    if (status) return tt_result(__func__, status);
    if (!counters)
        return tt_result(__func__, tt_fail(TT_ERR_ARGUMENT, "tuttiCommCounters: counters is NULL"));
    *counters = (tuttiCounters_t){
        .collectives = atomic_load_explicit(&comm->engine.collectives_done, memory_order_acquire),
        .messages = atomic_load_explicit(&comm->fabric->nmessages, memory_order_relaxed),
        .bytesCopied = atomic_load_explicit(&comm->fabric->nbytes_copied, memory_order_relaxed),
        .bytesDirect = atomic_load_explicit(&comm->fabric->nbytes_direct, memory_order_relaxed),
        .memoryBytes = held_bytes(comm),
        .initConnections = comm->init.bootstrap.connections,
        .initMessages = comm->init.bootstrap.messages,
        .initBytes = comm->init.bootstrap.nbytes,
        .initJoinNs = comm->init.join_ns,
        .initNs = comm->init.total_ns,
    };
    return tuttiSuccess;
}

void tt_comm_describe_links(tuttiComm_t comm, void (*emit)(void *arg, const char *line), void *arg)
{
    const struct tt_segment_header *header = comm->fabric->segment->header;
    const struct tt_output output = {emit, arg};
    char name[128], way[256];
    tt_say(&output,
           "communicator %s: rank %d of %d, %u slots of %u bytes a link, %u bytes a meeting, %s",
           comm->name, comm->rank, comm->nranks, header->nslots, header->slot_bytes,
           header->meet_bytes,
           comm->fabric->oversubscribed ? "yielding (more ranks than cores)"
                                        : "spinning (a core for each rank)");
    if (comm->on_gpu) tt_say(&output, "  calls on memory of GPU %d: by kernels", comm->gpu);
    if (comm->staged)
        tt_say(&output, "  calls on memory of GPU %d: through memory of the host: %s", comm->gpu,
               comm->no_gpu);
    for (int peer = 0; peer < comm->nranks; peer++) {
        tt_fabric_name_rank(comm->fabric, peer, name, sizeof name);
        tt_engine_enter(&comm->engine);
        tt_fabric_describe_peer(comm->fabric, peer, way, sizeof way);
        tt_engine_leave(&comm->engine);
        tt_say(&output, "  to %s: %s", name, way);
    }
}
