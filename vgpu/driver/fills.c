/* cuMemset: elements of 1, 2 and 4 bytes, in a line or in rows. */
#include "copies.h"

static CUresult check(const struct vd_fill *fill)
{
    const uint64_t longest = UINT64_C(1) << 47, width = fill->width * fill->nbytes;
    uint64_t rows;
    if (fill->width > longest || fill->height > longest || fill->pitch > longest ||
        fill->to % fill->nbytes != 0 ||
        (fill->height > 1 && (width > fill->pitch || fill->pitch % fill->nbytes != 0)) ||
        __builtin_mul_overflow(fill->height - 1, fill->pitch, &rows) || rows > longest ||
        !vd_range_valid(fill->to, rows + width, false))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult enqueue(const struct vd_fill *fill, const struct vd_way *way)
{
    struct CUstream_st *stream;
    struct vd_item *item = NULL;
    struct vd_op op = {.what = VD_FILL, .fill = *fill};
    CUresult result = vd_stream_resolve(way->stream, way->per_thread, &stream);
    if (result != CUDA_SUCCESS || fill->width == 0 || fill->height == 0) return result;
    result = check(fill);
    if (result != CUDA_SUCCESS) return result;
    /* The host waits for its own memory, but not for a device's. */
    const struct vd_memory *memory = vd_memory_find(fill->to);
    const bool awaited = !way->async && stream->capture == NULL && memory->kind >= VD_MEMORY_HOST;
    result = vd_stream_enqueue(stream, &op, &item);
    if (result == CUDA_SUCCESS && item != NULL && awaited) result = vd_item_wait(item);
    vd_item_put(item);
    return result;
}

static CUresult run(const struct vd_fill *fill, struct vd_way way)
{
    const CUresult entered = vd_enter();
    return vd_leave(entered != CUDA_SUCCESS ? entered : enqueue(fill, &way));
}

/* Of one size of elements: in a line and in rows, without a stream and with one, each twice, with
 * the legacy stream and with the thread's own one for NULL. */
#define FILLS(bits, type)                                                                          \
    VD_PER_THREAD(cuMemsetD##bits##_v2_ptds, cuMemsetD##bits##_v2);                                \
    VD_PER_THREAD(cuMemsetD##bits##Async_ptsz, cuMemsetD##bits##Async);                            \
    VD_PER_THREAD(cuMemsetD2D##bits##_v2_ptds, cuMemsetD2D##bits##_v2);                            \
    VD_PER_THREAD(cuMemsetD2D##bits##Async_ptsz, cuMemsetD2D##bits##Async);                        \
    static CUresult line##bits(CUdeviceptr to, type value, size_t n, struct vd_way way)            \
    {                                                                                              \
        const struct vd_fill fill = {                                                              \
            .to = to, .width = n, .height = 1, .value = value, .nbytes = bits / 8};                \
        return run(&fill, way);                                                                    \
    }                                                                                              \
    static CUresult rows##bits(CUdeviceptr to, size_t pitch, type value, size_t width,             \
                               size_t height, struct vd_way way)                                   \
    {                                                                                              \
        const struct vd_fill fill = {.to = to,                                                     \
                                     .width = width,                                               \
                                     .height = height,                                             \
                                     .pitch = pitch,                                               \
                                     .value = value,                                               \
                                     .nbytes = bits / 8};                                          \
        return run(&fill, way);                                                                    \
    }                                                                                              \
    CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t n)                            \
    {                                                                                              \
        return line##bits(to, value, n, (struct vd_way){0});                                       \
    }                                                                                              \
    CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr to, type value, size_t n)                       \
    {                                                                                              \
        return line##bits(to, value, n, (struct vd_way){.per_thread = true});                      \
    }                                                                                              \
    CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t n, CUstream stream)         \
    {                                                                                              \
        return line##bits(to, value, n, (struct vd_way){.stream = stream, .async = true});         \
    }                                                                                              \
    CUresult cuMemsetD##bits##Async_ptsz(CUdeviceptr to, type value, size_t n, CUstream stream)    \
    {                                                                                              \
        return line##bits(to, value, n,                                                            \
                          (struct vd_way){.stream = stream, .per_thread = true, .async = true});   \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width,        \
                                    size_t height)                                                 \
    {                                                                                              \
        return rows##bits(to, pitch, value, width, height, (struct vd_way){0});                    \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr to, size_t pitch, type value, size_t width,   \
                                         size_t height)                                            \
    {                                                                                              \
        return rows##bits(to, pitch, value, width, height, (struct vd_way){.per_thread = true});   \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width,      \
                                      size_t height, CUstream stream)                              \
    {                                                                                              \
        return rows##bits(to, pitch, value, width, height,                                         \
                          (struct vd_way){.stream = stream, .async = true});                       \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr to, size_t pitch, type value, size_t width, \
                                           size_t height, CUstream stream)                         \
    {                                                                                              \
        return rows##bits(to, pitch, value, width, height,                                         \
                          (struct vd_way){.stream = stream, .per_thread = true, .async = true});   \
    }

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)
