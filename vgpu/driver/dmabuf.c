/* Memory of GPUs that other devices use: descriptors of its pages, and the flush of their writes.
 *
 * A memfd stands for the dma-buf that a real driver gives. It holds all pages of the allocation;
 * the descriptor's file position is where the range begins in it. */
#include "vmm.h"

/* The memory with a byte in the page: no page is of two, and what begins within a page begins at a
 * multiple of 512. */
static struct vd_memory *find_in_page(uint64_t page)
{
    for (uint64_t at = page; at < page + VD_PAGE; at += 512) {
        struct vd_memory *memory = vd_memory_find(at);
        if (memory != NULL) return memory;
    }
    return NULL;
}

/* As CUDA's manual: memory of cuMemAlloc, and mappings of a device's memory. */
static bool is_exportable(const struct vd_memory *memory)
{
    if (memory == NULL || memory->backing == NULL || memory->backing->device < 0 ||
        memory->freeing || memory->async)
        return false;
    return memory->kind == VD_MEMORY_DEVICE || memory->kind == VD_MEMORY_VMM;
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
                                       CUmemRangeHandleType handleType, unsigned long long flags)
{
    VD_ENTER();
    if (handle == NULL || handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0 ||
        size == 0 || dptr % VD_PAGE != 0 || size % VD_PAGE != 0)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (vd.settings.dmabuf == VD_DMABUF_OFF) return vd_leave(CUDA_ERROR_NOT_SUPPORTED);
    struct vd_memory *memory = find_in_page(dptr);
    if (!is_exportable(memory)) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const uint64_t position = dptr - memory->address / VD_PAGE * VD_PAGE;
    if (size > memory->backing->room - position) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const bool mapping = memory->kind == VD_MEMORY_VMM;
    const CUresult result =
        vd_backing_share(memory->backing, mapping ? VD_SHARE_VMM : VD_SHARE_IPC);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (mapping)
        vd_vmm_reachable(memory->owner);
    else
        vd_memory_reachable(memory);
    return vd_leave(vd_backing_descriptor_at(memory->backing, position, handle));
}

/* Who writes through a descriptor writes the very bytes that the GPUs read: there is nothing to
 * wait for. */
CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                    CUflushGPUDirectRDMAWritesScope scope)
{
    struct CUctx_st *context;
    VD_ENTER();
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (target != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX ||
        (scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER &&
         scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES))
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (vd.settings.dmabuf == VD_DMABUF_UNFLUSHED) return vd_leave(CUDA_ERROR_NOT_SUPPORTED);
    context->device->flushes++;
    return vd_leave(CUDA_SUCCESS);
}
