/* Memory. (Minimal: its owner replaces it.) */
#include "run.h"

#include <stdlib.h>
#include <sys/mman.h>

uint64_t vd_address_take(uint64_t nbytes, uint64_t align)
{
    static uint64_t next;
    (void)align;
    if (next == 0)
        next = (uint64_t)(uintptr_t)mmap(NULL, UINT64_C(1) << 40, PROT_NONE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const uint64_t address = next;
    next += (nbytes / (2 << 20) + 2) * (2 << 20);
    return address;
}

static CUresult add(struct vd_memory *memory)
{
    for (int i = 0; i < vd.ndevices; i++)
        if ((memory->kind == VD_MEMORY_HOST || memory->device == i) &&
            vg_regions_add(&vd.devices[i].regions, &memory->region) != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
    memory->next = vd.memories;
    vd.memories = memory;
    return CUDA_SUCCESS;
}

struct vd_memory *vd_memory_find(uint64_t address)
{
    struct vd_memory *m = vd.memories;
    while (m != NULL && address - m->region.address >= m->region.nbytes) m = m->next;
    return m;
}

static CUresult make(size_t nbytes, bool host, uint64_t *address)
{
    struct CUctx_st *context;
    void *bytes;
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (nbytes == 0) return CUDA_ERROR_INVALID_VALUE;
    struct vd_memory *made = calloc(1, sizeof *made);
    if (made == NULL || posix_memalign(&bytes, 4096, (nbytes + 15) & ~(size_t)15) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (struct vd_memory){.kind = host ? VD_MEMORY_HOST : VD_MEMORY_DEVICE,
                               .context = context,
                               .device = context->device->gpu.number,
                               .region = {.nbytes = nbytes,
                                          .bytes = bytes,
                                          .device = host ? -1 : context->device->gpu.number,
                                          .reachable = host,
                                          .what = host ? "cuMemHostAlloc" : "cuMemAlloc",
                                          .number = ++vd.allocations}};
    made->region.address = host ? (uint64_t)(uintptr_t)bytes : vd_address_take(nbytes, 256);
    *address = made->region.address;
    return add(made);
}

CUresult cuMemAlloc(CUdeviceptr *address, size_t nbytes)
{
    VD_ENTER();
    uint64_t made = 0;
    const CUresult result = make(nbytes, false, &made);
    if (result == CUDA_SUCCESS) *address = made;
    return vd_leave(result);
}

CUresult cuMemHostAlloc(void **bytes, size_t nbytes, unsigned flags)
{
    VD_ENTER();
    (void)flags;
    uint64_t made = 0;
    const CUresult result = make(nbytes, true, &made);
    if (result == CUDA_SUCCESS) *bytes = (void *)(uintptr_t)made;
    return vd_leave(result);
}

CUresult cuMemFree(CUdeviceptr address)
{
    VD_ENTER();
    struct CUctx_st *context;
    CUresult result = vd_context(&context);
    if (result == CUDA_SUCCESS) result = vd_context_wait(context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    for (struct vd_memory **at = &vd.memories; *at != NULL; at = &(*at)->next) {
        struct vd_memory *memory = *at;
        if (memory->region.address != address) continue;
        *at = memory->next;
        for (int i = 0; i < vd.ndevices; i++)
            vg_regions_remove(&vd.devices[i].regions, &memory->region);
        vg_model_forget(vg_machine_model(vd.machine), &memory->region);
        free(memory->region.bytes);
        free(memory);
        return vd_leave(CUDA_SUCCESS);
    }
    return vd_leave(CUDA_ERROR_INVALID_VALUE);
}

static CUresult free_begin(struct vd_item *item, char error[512])
{
    (void)item;
    (void)error;
    return CUDA_SUCCESS;
}

static enum vg_progress free_step(struct vd_item *item, CUresult *fault, const char **text)
{
    (void)item;
    (void)fault;
    (void)text;
    return VG_DONE;
}

static void free_end(struct vd_item *item)
{
    (void)item;
}

const struct vd_runner vd_free_runner = {free_begin, free_step, free_end};
