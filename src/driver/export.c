/* Memory of GPUs that other devices use in place: its pages as a dma-buf. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#include "base/private_fd.h"
#include "driver/context_internal.h"
#include "driver/driver.h"

bool tt_context_ask_exports(const struct tt_cuda *cu, CUdevice device)
{
    int value;
    return cu->DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device) ==
               CUDA_SUCCESS &&
           value;
}

/* ---- What can be exported -------------------------------------------------------------------- */

static tt_status check_gpu(const struct tt_context *context)
{
    if (!context->cu->MemGetHandleForAddressRange)
        return tt_fail(TT_ERR_USAGE,
                       "memory of GPU %d cannot be exported to other devices: its driver has no "
                       "cuMemGetHandleForAddressRange",
                       context->gpu);
    if (!context->exports)
        return tt_fail(TT_ERR_USAGE,
                       "memory of GPU %d cannot be exported to other devices: its driver has no "
                       "dma-buf for it (CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0; NVIDIA's open "
                       "kernel modules on Linux 5.12 or later have it)",
                       context->gpu);
    return TT_OK;
}

static tt_status check_memory(const struct tt_context *context, const void *memory, size_t nbytes)
{
    static const char *const kinds[] = {[TT_POINTER_HOST] = "memory of the host",
                                        [TT_POINTER_REGISTERED] = "pinned memory of the host",
                                        [TT_POINTER_MANAGED] = "managed memory"};
    struct tt_pointer found;
    TT_TRY(tt_driver_pointer(memory, &found));
    if (found.kind != TT_POINTER_DEVICE)
        return tt_fail(TT_ERR_ARGUMENT,
                       "%p is %s: only device memory of GPU %d can be exported to other devices",
                       memory, kinds[found.kind], context->gpu);
    if (found.gpu != context->gpu)
        return tt_fail(TT_ERR_ARGUMENT,
                       "%p is memory of GPU %d: only that of GPU %d can be exported here", memory,
                       found.gpu, context->gpu);
    const size_t offset = (size_t)((const char *)memory - (const char *)found.base);
    if (nbytes == 0 || nbytes > found.nbytes - offset)
        return tt_fail(TT_ERR_ARGUMENT,
                       "%zu bytes from %p cannot be exported: the allocation of %zu bytes at %p "
                       "has %zu bytes from there, and at least 1 is needed",
                       nbytes, memory, found.nbytes, found.base, found.nbytes - offset);
    return TT_OK;
}

/* ---- Export ---------------------------------------------------------------------------------- */

static tt_status fail_export(const struct tt_context *context, CUresult result, const void *pages,
                             size_t nbytes)
{
    const char *name = NULL, *text = NULL;
    if (result != CUDA_ERROR_INVALID_VALUE && result != CUDA_ERROR_NOT_SUPPORTED &&
        result != CUDA_ERROR_NOT_PERMITTED)
        return tt_cuda_fail(result, "cuMemGetHandleForAddressRange");
    context->cu->GetErrorName(result, &name);
    context->cu->GetErrorString(result, &text);
    return tt_fail(TT_ERR_ARGUMENT,
                   "the driver does not export the %zu bytes of pages at %p of GPU %d to other "
                   "devices: cuMemGetHandleForAddressRange failed: %s (%s)",
                   nbytes, pages, context->gpu, name ? name : "an unknown error",
                   text ? text : "no text");
}

static tt_status export_pages(struct tt_context *context, CUdeviceptr pages, size_t nbytes, int *fd)
{
    CUstreamCaptureMode mode;
    int made = -1;
    TT_TRY(tt_context_enter_aside(context, &mode));
    tt_low_fd_hold();
    const CUresult result = context->cu->MemGetHandleForAddressRange(
        &made, pages, nbytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    made = tt_low_fd_release(result == CUDA_SUCCESS ? made : -1);
    const int error = errno;
    tt_context_leave_aside(context, mode);
    if (result != CUDA_SUCCESS)
        return fail_export(context, result, (const void *)(uintptr_t)pages, nbytes);
    if (made < 0) return tt_fail_errno(error, "no descriptor for memory of GPU %d", context->gpu);
    (void)fcntl(made, F_SETFD, FD_CLOEXEC); /* CUDA does not promise it */
    *fd = made;
    return TT_OK;
}

tt_status tt_context_export(struct tt_context *context, const void *memory, size_t nbytes, int *fd,
                            char **base, size_t *exported)
{
    TT_TRY(check_gpu(context));
    TT_TRY(check_memory(context, memory, nbytes));
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)memory;
    const uintptr_t begin = first / page * page, end = (first + nbytes + page - 1) / page * page;
    TT_TRY(export_pages(context, begin, end - begin, fd));
    *base = (char *)begin;
    *exported = end - begin;
    return TT_OK;
}
