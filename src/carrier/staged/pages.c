/* Memory of the rank's GPU that devices of the network use in place: it is registered with the
 * communicator, and exported to them as a dma-buf. */
#include <stdlib.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "carrier/staged/staged.h"

/* Owned by the communicator's part, until deregistered. */
struct tt_gpu_pages {
    const char *memory;
    size_t nbytes;
    struct tt_wires_gpu registered;
    struct tt_gpu_pages *next;
};

static tt_status export_pages(struct tt_comm_core *comm, struct tt_gpu_pages *pages)
{
    struct tt_dmabuf exported;
    char *base;
    TT_TRY(tt_context_export(comm->staged->context, (void *)(uintptr_t)pages->memory, pages->nbytes,
                             &exported.fd, &base, &exported.nbytes));
    exported.base = base;
    tt_engine_enter(&comm->engine);
    const tt_status status =
        tt_wires_register_gpu(comm->fabric->wires, &exported, &pages->registered);
    tt_engine_leave(&comm->engine);
    close(exported.fd);
    return status;
}

static bool may_register(const struct tt_comm_core *comm)
{
    return !comm->staged->copies_gpus && comm->fabric->wires &&
           tt_wires_may_use_gpus(comm->fabric->wires) && tt_config_int(TT_CONFIG_RDMA_GPU);
}

void tt_staged_register(struct tt_comm_core *comm, void *memory, size_t nbytes, void **handle)
{
    *handle = NULL;
    struct tt_gpu_pages *pages = may_register(comm) ? calloc(1, sizeof *pages) : NULL;
    if (!pages) return;
    pages->memory = memory;
    pages->nbytes = nbytes;
    const tt_status status = export_pages(comm, pages);
    comm->staged->copies_gpus = status == TT_ERR_USAGE;
    if (status) { /* why was logged */
        TT_INFO("rank %d: %zu bytes of GPU %d are copied through memory of the host", comm->rank,
                nbytes, comm->gpu);
        free(pages);
        return;
    }
    TT_INFO("rank %d: devices of the network use %zu bytes of GPU %d in place", comm->rank, nbytes,
            comm->gpu);
    pages->next = comm->staged->pages;
    comm->staged->pages = pages;
    *handle = pages;
}

tt_status tt_staged_deregister(struct tt_comm_core *comm, void *handle, bool waits)
{
    (void)waits;
    struct tt_gpu_pages *pages = handle, **at = &comm->staged->pages;
    while (*at != pages) at = &(*at)->next;
    *at = pages->next;
    tt_engine_enter(&comm->engine);
    tt_wires_forget_gpu(comm->fabric->wires, &pages->registered);
    tt_engine_leave(&comm->engine);
    free(pages);
    return TT_OK;
}

bool tt_staged_is_registered(const struct tt_comm_core *comm, const void *data, size_t nbytes)
{
    const uintptr_t first = (uintptr_t)data;
    for (const struct tt_gpu_pages *pages = comm->staged->pages; pages; pages = pages->next) {
        const uintptr_t base = (uintptr_t)pages->memory;
        if (first >= base && first - base <= pages->nbytes &&
            nbytes <= pages->nbytes - (first - base))
            return true;
    }
    return false;
}
