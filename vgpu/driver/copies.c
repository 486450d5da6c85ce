/* cuMemcpy and its relatives: checks of the arguments, and the way into a stream. */
#include "copies.h"

#include <stdlib.h>
#include <string.h>

/* Whether the address is host memory that CUDA does not know: pageable. */
static bool is_pageable(uint64_t address)
{
    return vd_memory_find(address) == NULL;
}

static uint64_t slices(const struct vd_copy *copy)
{
    return copy->depth == 0 ? 1 : copy->depth;
}

/* From the first byte to behind the last one; UINT64_MAX: more than addresses can have. */
static uint64_t extent(const struct vd_copy *copy, uint64_t pitch, uint64_t slice)
{
    uint64_t of_slices, of_rows, bytes;
    if (__builtin_mul_overflow(slices(copy) - 1, slice, &of_slices) ||
        __builtin_mul_overflow(copy->height - 1, pitch, &of_rows) ||
        __builtin_add_overflow(of_slices, of_rows, &bytes) ||
        __builtin_add_overflow(bytes, copy->width, &bytes))
        return UINT64_MAX;
    return bytes;
}

/* The rows as they are now, one behind another: the caller may change its memory at once. */
static bool take_snapshot(struct vd_copy *copy)
{
    unsigned char *to = malloc(copy->width * copy->height * slices(copy));
    if (to == NULL) return false;
    copy->snapshot = to;
    for (uint64_t z = 0; z < slices(copy); z++)
        for (uint64_t y = 0; y < copy->height; y++, to += copy->width)
            memcpy(
                to,
                (const void *)(uintptr_t)(copy->from + z * copy->from_slice + y * copy->from_pitch),
                copy->width);
    return true;
}

static CUresult check(const struct vd_copy *copy, enum vd_side to, enum vd_side from)
{
    const uint64_t longest = UINT64_C(1) << 47;
    if (copy->width > longest || copy->height > longest || slices(copy) > longest ||
        copy->to_pitch > longest || copy->from_pitch > longest ||
        (copy->height > 1 && copy->width > copy->to_pitch) ||
        (copy->height > 1 && copy->width > copy->from_pitch) ||
        !vd_range_valid(copy->to, extent(copy, copy->to_pitch, copy->to_slice), to != VD_DEVICE) ||
        !vd_range_valid(copy->from, extent(copy, copy->from_pitch, copy->from_slice),
                        from != VD_DEVICE))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* The host waits for a copy to pageable memory, and for every copy of a call without a stream that
 * the host could see: not from device to device. */
static bool is_awaited(const struct vd_copy *copy, bool async)
{
    if (is_pageable(copy->to)) return true;
    if (async) return false;
    const struct vd_memory *to = vd_memory_find(copy->to), *from = vd_memory_find(copy->from);
    return from == NULL || from->kind >= VD_MEMORY_HOST || to->kind >= VD_MEMORY_HOST;
}

/* Between contexts and without a stream: serialized with all work of the contexts. */
static bool is_alone(const struct vd_way *way)
{
    return !way->async && vd_object_is(way->to_context, VD_CONTEXT) &&
           vd_object_is(way->from_context, VD_CONTEXT);
}

static CUresult run(const struct vd_copy *copy, enum vd_side to, enum vd_side from,
                    const struct vd_way *way)
{
    struct CUstream_st *stream;
    struct vd_item *item = NULL;
    struct vd_op op = {.what = VD_COPY, .copy = *copy};
    CUresult result = vd_stream_resolve(way->stream, way->per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (copy->width == 0 || copy->height == 0) return CUDA_SUCCESS;
    result = check(copy, to, from);
    if (result != CUDA_SUCCESS) return result;
    const bool captured = stream->capture != NULL;
    const bool awaited = !captured && is_awaited(copy, way->async);
    if (!captured && !awaited && is_pageable(copy->from) && !take_snapshot(&op.copy))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!captured && is_alone(way)) {
        struct CUctx_st *const contexts[] = {way->to_context, way->from_context};
        return vd_stream_enqueue_alone(stream, &op, contexts);
    }
    result = vd_stream_enqueue(stream, &op, &item);
    if (result == CUDA_SUCCESS && item != NULL && awaited) result = vd_item_wait(item);
    vd_item_put(item);
    return result;
}

CUresult vd_copy_run(const struct vd_copy *copy, enum vd_side to, enum vd_side from,
                     const struct vd_way *way)
{
    const CUresult entered = vd_enter();
    return vd_leave(entered != CUDA_SUCCESS ? entered : run(copy, to, from, way));
}

static CUresult line(uint64_t to, uint64_t from, size_t nbytes, enum vd_side to_side,
                     enum vd_side from_side, struct vd_way way)
{
    const struct vd_copy copy = {.to = to, .from = from, .width = nbytes, .height = 1, .depth = 1};
    return vd_copy_run(&copy, to_side, from_side, &way);
}

#define AT(pointer) ((uint64_t)(uintptr_t)(pointer))

/* A function, its form without a stream and its form with one, each twice: with the legacy stream
 * and with the thread's own one for NULL. */
#define COPIES(name, suffix, to_type, from_type, to_address, from_address, to_side, from_side)     \
    VD_PER_THREAD(name##suffix##_ptds, name##suffix);                                              \
    VD_PER_THREAD(name##Async##suffix##_ptsz, name##Async##suffix);                                \
    CUresult name##suffix(to_type to, from_type from, size_t nbytes)                               \
    {                                                                                              \
        return line(to_address, from_address, nbytes, to_side, from_side,                          \
                    (struct vd_way){.async = false});                                              \
    }                                                                                              \
    CUresult name##suffix##_ptds(to_type to, from_type from, size_t nbytes)                        \
    {                                                                                              \
        return line(to_address, from_address, nbytes, to_side, from_side,                          \
                    (struct vd_way){.per_thread = true});                                          \
    }                                                                                              \
    CUresult name##Async##suffix(to_type to, from_type from, size_t nbytes, CUstream stream)       \
    {                                                                                              \
        return line(to_address, from_address, nbytes, to_side, from_side,                          \
                    (struct vd_way){.stream = stream, .async = true});                             \
    }                                                                                              \
    CUresult name##Async##suffix##_ptsz(to_type to, from_type from, size_t nbytes,                 \
                                        CUstream stream)                                           \
    {                                                                                              \
        return line(to_address, from_address, nbytes, to_side, from_side,                          \
                    (struct vd_way){.stream = stream, .per_thread = true, .async = true});         \
    }

COPIES(cuMemcpy, , CUdeviceptr, CUdeviceptr, to, from, VD_ANY, VD_ANY)
COPIES(cuMemcpyHtoD, _v2, CUdeviceptr, const void *, to, AT(from), VD_DEVICE, VD_ANY)
COPIES(cuMemcpyDtoH, _v2, void *, CUdeviceptr, AT(to), from, VD_ANY, VD_DEVICE)
COPIES(cuMemcpyDtoD, _v2, CUdeviceptr, CUdeviceptr, to, from, VD_DEVICE, VD_DEVICE)

/* Addresses say which GPU they belong to: the contexts only order the copy. */
static CUresult peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                     size_t nbytes, struct vd_way way)
{
    way.to_context = to_context;
    way.from_context = from_context;
    if (!vd_contexts_exist(to_context, from_context)) return CUDA_ERROR_INVALID_CONTEXT;
    return line(to, from, nbytes, VD_DEVICE, VD_DEVICE, way);
}

bool vd_contexts_exist(CUcontext one, CUcontext other)
{
    const CUresult entered = vd_enter();
    const bool both = entered != CUDA_SUCCESS ||
                      (vd_object_is(one, VD_CONTEXT) && vd_object_is(other, VD_CONTEXT));
    vd_leave(entered);
    return both; /* before cuInit: the copy itself fails */
}

VD_PER_THREAD(cuMemcpyPeer_ptds, cuMemcpyPeer);
VD_PER_THREAD(cuMemcpyPeerAsync_ptsz, cuMemcpyPeerAsync);

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t nbytes)
{
    return peer(to, to_context, from, from_context, nbytes, (struct vd_way){0});
}

CUresult cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t nbytes)
{
    return peer(to, to_context, from, from_context, nbytes, (struct vd_way){.per_thread = true});
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t nbytes, CUstream stream)
{
    return peer(to, to_context, from, from_context, nbytes,
                (struct vd_way){.stream = stream, .async = true});
}

CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                CUcontext from_context, size_t nbytes, CUstream stream)
{
    return peer(to, to_context, from, from_context, nbytes,
                (struct vd_way){.stream = stream, .per_thread = true, .async = true});
}

/* ---- batches: copies without an order among them; here one after another ---- */

static CUresult batch(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,
                      const struct vd_way *way)
{
    if (to == NULL || from == NULL || sizes == NULL || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        const CUresult result = line(to[i], from[i], sizes[i], VD_ANY, VD_ANY, *way);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

VD_PER_THREAD(cuMemcpyBatchAsync_v2_ptsz, cuMemcpyBatchAsync_v2);

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                               CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                               CUstream hStream)
{
    const struct vd_way way = {.stream = hStream, .async = true};
    (void)attrs, (void)attrsIdxs, (void)numAttrs;
    return batch(dsts, srcs, sizes, count, &way);
}

CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
                                    size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs,
                                    size_t numAttrs, CUstream hStream)
{
    const struct vd_way way = {.stream = hStream, .per_thread = true, .async = true};
    (void)attrs, (void)attrsIdxs, (void)numAttrs;
    return batch(dsts, srcs, sizes, count, &way);
}
