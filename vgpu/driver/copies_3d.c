/* cuMemcpy2D and cuMemcpy3D: rows and slices of memory. Arrays are not supported. */
#include "copies.h"

#include <stdlib.h>

/* One end of a copy of rows. */
struct side {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    size_t x, y, z, pitch, height;
};

struct box {
    struct side to, from;
    size_t width, height, depth;
};

static CUresult resolve(const struct side *side, const struct box *box, uint64_t *address,
                        uint64_t *pitch, enum vd_side *kind)
{
    *pitch = side->pitch != 0 ? side->pitch : side->x + box->width;
    const uint64_t rows = side->height != 0 ? side->height : side->y + box->height;
    if (side->type == CU_MEMORYTYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
    if (side->type != CU_MEMORYTYPE_HOST && side->type != CU_MEMORYTYPE_DEVICE &&
        side->type != CU_MEMORYTYPE_UNIFIED)
        return CUDA_ERROR_INVALID_VALUE;
    if (side->pitch != 0 && side->pitch < side->x + box->width && box->height > 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (box->depth > 1 && rows < side->y + box->height) return CUDA_ERROR_INVALID_VALUE;
    const uint64_t base =
        side->type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)side->host : side->device;
    if (base == 0) return CUDA_ERROR_INVALID_VALUE;
    *address = base + (side->z * rows + side->y) * *pitch + side->x;
    *kind = side->type == CU_MEMORYTYPE_DEVICE ? VD_DEVICE : VD_ANY;
    return CUDA_SUCCESS;
}

static CUresult run(const struct box *box, struct vd_way way)
{
    enum vd_side to, from;
    struct vd_copy copy = {.width = box->width, .height = box->height, .depth = box->depth};
    if (box->width == 0 || box->height == 0 || box->depth == 0) {
        const struct vd_copy nothing = {.width = 0};
        return vd_copy_run(&nothing, VD_ANY, VD_ANY, &way);
    }
    CUresult result = resolve(&box->to, box, &copy.to, &copy.to_pitch, &to);
    if (result == CUDA_SUCCESS)
        result = resolve(&box->from, box, &copy.from, &copy.from_pitch, &from);
    if (result != CUDA_SUCCESS) return result;
    copy.to_slice =
        copy.to_pitch * (box->to.height != 0 ? box->to.height : box->to.y + box->height);
    copy.from_slice =
        copy.from_pitch * (box->from.height != 0 ? box->from.height : box->from.y + box->height);
    return vd_copy_run(&copy, to, from, &way);
}

#define SIDE_2D(p, side)                                                                           \
    {                                                                                              \
        .type = p->side##MemoryType, .host = p->side##Host, .device = p->side##Device,             \
        .x = p->side##XInBytes, .y = p->side##Y, .pitch = p->side##Pitch                           \
    }
#define SIDE_3D(p, side)                                                                           \
    {                                                                                              \
        .type = p->side##MemoryType, .host = p->side##Host, .device = p->side##Device,             \
        .x = p->side##XInBytes, .y = p->side##Y, .z = p->side##Z, .pitch = p->side##Pitch,         \
        .height = p->side##Height                                                                  \
    }

static CUresult rows(const CUDA_MEMCPY2D *p, struct vd_way way)
{
    if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
    const struct box box = {.to = SIDE_2D(p, dst),
                            .from = SIDE_2D(p, src),
                            .width = p->WidthInBytes,
                            .height = p->Height,
                            .depth = 1};
    return run(&box, way);
}

static CUresult slices(const CUDA_MEMCPY3D *p, struct vd_way way)
{
    if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
    const struct box box = {.to = SIDE_3D(p, dst),
                            .from = SIDE_3D(p, src),
                            .width = p->WidthInBytes,
                            .height = p->Height,
                            .depth = p->Depth};
    return run(&box, way);
}

static CUresult peer_slices(const CUDA_MEMCPY3D_PEER *p, struct vd_way way)
{
    if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
    way.to_context = p->dstContext;
    way.from_context = p->srcContext;
    const struct box box = {.to = SIDE_3D(p, dst),
                            .from = SIDE_3D(p, src),
                            .width = p->WidthInBytes,
                            .height = p->Height,
                            .depth = p->Depth};
    return run(&box, way);
}

/* Each function without a stream and with one, with the legacy stream and with the thread's own one
 * for NULL. */
#define VARIANTS(name, suffix, type, body)                                                         \
    VD_PER_THREAD(name##suffix##_ptds, name##suffix);                                              \
    VD_PER_THREAD(name##Async##suffix##_ptsz, name##Async##suffix);                                \
    CUresult name##suffix(const type *p)                                                           \
    {                                                                                              \
        return body(p, (struct vd_way){0});                                                        \
    }                                                                                              \
    CUresult name##suffix##_ptds(const type *p)                                                    \
    {                                                                                              \
        return body(p, (struct vd_way){.per_thread = true});                                       \
    }                                                                                              \
    CUresult name##Async##suffix(const type *p, CUstream stream)                                   \
    {                                                                                              \
        return body(p, (struct vd_way){.stream = stream, .async = true});                          \
    }                                                                                              \
    CUresult name##Async##suffix##_ptsz(const type *p, CUstream stream)                            \
    {                                                                                              \
        return body(p, (struct vd_way){.stream = stream, .per_thread = true, .async = true});      \
    }

VARIANTS(cuMemcpy2D, _v2, CUDA_MEMCPY2D, rows)
VARIANTS(cuMemcpy3D, _v2, CUDA_MEMCPY3D, slices)
VARIANTS(cuMemcpy3DPeer, , CUDA_MEMCPY3D_PEER, peer_slices)

VD_PER_THREAD(cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2DUnaligned_v2);

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *p)
{
    return rows(p, (struct vd_way){0});
}

CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *p)
{
    return rows(p, (struct vd_way){.per_thread = true});
}
