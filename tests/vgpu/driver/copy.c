/* Copies and fills. (Minimal: its owner replaces it.) */
#include "driver.h"

#include <string.h>

static unsigned char *bytes_of(uint64_t address)
{
    struct vd_memory *memory = vd_memory_find(address);
    if (memory == NULL) return (unsigned char *)(uintptr_t)address;
    return memory->region.bytes + (address - memory->region.address);
}

static CUresult begin(struct vd_item *item, char error[512])
{
    (void)item;
    (void)error;
    return CUDA_SUCCESS;
}

static enum vg_progress copy_step(struct vd_item *item, CUresult *fault, const char **text)
{
    const struct vd_copy *copy = &item->op.copy;
    (void)fault;
    (void)text;
    memmove(bytes_of(copy->to), bytes_of(copy->from), copy->width);
    return VG_DONE;
}

static enum vg_progress fill_step(struct vd_item *item, CUresult *fault, const char **text)
{
    const struct vd_fill *fill = &item->op.fill;
    (void)fault;
    (void)text;
    for (uint64_t i = 0; i < fill->width; i++)
        memcpy(bytes_of(fill->to) + i * fill->nbytes, &fill->value, fill->nbytes);
    return VG_DONE;
}

static void end(struct vd_item *item)
{
    (void)item;
}

const struct vd_runner vd_copy_runner = {begin, copy_step, end};
const struct vd_runner vd_fill_runner = {begin, fill_step, end};

static CUresult enqueue(uint64_t to, uint64_t from, size_t nbytes, CUstream handle, bool wait)
{
    struct CUstream_st *stream;
    struct vd_item *item = NULL;
    struct vd_op op = {.what = VD_COPY,
                       .copy = {.to = to, .from = from, .width = nbytes, .height = 1}};
    CUresult result = vd_stream_resolve(handle, false, &stream);
    if (result == CUDA_SUCCESS) result = vd_stream_enqueue(stream, &op, &item);
    if (result == CUDA_SUCCESS && wait) result = vd_item_wait(item);
    vd_item_put(item);
    return result;
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t nbytes)
{
    VD_ENTER();
    return vd_leave(enqueue(to, (uint64_t)(uintptr_t)from, nbytes, NULL, true));
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t nbytes)
{
    VD_ENTER();
    return vd_leave(enqueue((uint64_t)(uintptr_t)to, from, nbytes, NULL, true));
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t nbytes, CUstream stream)
{
    VD_ENTER();
    return vd_leave(enqueue(to, (uint64_t)(uintptr_t)from, nbytes, stream, false));
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t nbytes, CUstream stream)
{
    VD_ENTER();
    return vd_leave(enqueue((uint64_t)(uintptr_t)to, from, nbytes, stream, false));
}
