/* Stream-ordered memory: cuMemAllocAsync and cuMemFreeAsync as plain allocation, and pools as
 * handles without memory of their own. Memory can be used from the call on; it is freed in the
 * stream's order. Memory of an allocation node is freed and made again by each launch of its graph.
 */
#include "memory_internal.h"

#include <stdlib.h>
#include <string.h>

struct CUmemPoolHandle_st {
    int device;
    uint64_t threshold;
    bool reuse[3]; /* CU_MEMPOOL_ATTR_REUSE_*: kept, without meaning */
    bool live;
    uint32_t access; /* a bit each other device that may address its memory */
    struct CUmemPoolHandle_st *next;
};

static struct CUmemPoolHandle_st defaults[VD_DEVICES];
static struct CUmemPoolHandle_st *created; /* never given back: handles are told from garbage */
static CUmemoryPool current[VD_DEVICES];

static bool is_device(CUdevice device)
{
    return device >= 0 && device < vd.ndevices;
}

static CUmemoryPool default_pool(int device)
{
    struct CUmemPoolHandle_st *pool = &defaults[device];
    if (!pool->live)
        *pool = (struct CUmemPoolHandle_st){
            .device = device, .live = true, .reuse = {true, true, true}};
    return pool;
}

static bool is_pool(CUmemoryPool pool)
{
    for (int d = 0; d < VD_DEVICES; d++)
        if (pool == &defaults[d]) return defaults[d].live;
    for (const struct CUmemPoolHandle_st *p = created; p != NULL; p = p->next)
        if (p == pool) return p->live;
    return false;
}

static CUmemoryPool pool_of(int device)
{
    return is_pool(current[device]) ? current[device] : default_pool(device);
}

/* ---- allocation ---- */

static CUresult allocate(CUdeviceptr *dptr, size_t nbytes, CUmemoryPool pool, CUstream handle,
                         bool per_thread)
{
    struct CUstream_st *stream;
    struct vd_memory *memory;
    CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    const int device = stream->context->device->gpu.number;
    if (pool == NULL) pool = pool_of(device);
    if (dptr == NULL || nbytes == 0 || !is_pool(pool)) return CUDA_ERROR_INVALID_VALUE;
    result = vd_memory_make_async(pool->device, nbytes, &memory);
    if (result != CUDA_SUCCESS) return result;
    memory->owner = pool;
    for (int d = 0; d < vd.ndevices; d++)
        if ((pool->access >> d & 1) != 0) (void)vd_memory_add_device(memory, d);
    if (stream->capture != NULL) {
        struct vd_op op = {.what = VD_ALLOC, .address = memory->address};
        memory->graph = true;
        memory->region.freed = true; /* until the graph is launched */
        result = vd_stream_enqueue(stream, &op, NULL);
    }
    if (result == CUDA_SUCCESS)
        *dptr = memory->address;
    else
        vd_memory_release(memory);
    return result;
}

static CUresult free_async(CUdeviceptr dptr, CUstream handle, bool per_thread)
{
    struct CUstream_st *stream;
    CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS || dptr == 0) return result;
    struct vd_memory *memory = vd_memory_find(dptr);
    if (memory == NULL || memory->address != dptr || memory->kind != VD_MEMORY_DEVICE ||
        memory->backing == NULL || memory->freeing)
        return CUDA_ERROR_INVALID_VALUE;
    struct vd_op op = {.what = VD_FREE, .address = dptr};
    if (stream->capture == NULL && memory->graph && !vd_graph_memory_free(dptr))
        return CUDA_ERROR_INVALID_VALUE;
    memory->freeing = stream->capture == NULL && !memory->graph;
    result = vd_stream_enqueue(stream, &op, NULL);
    if (result != CUDA_SUCCESS) memory->freeing = false;
    return result;
}

static CUresult nothing_begin(struct vd_item *item, char error[512])
{
    (void)item;
    (void)error;
    return CUDA_SUCCESS;
}

static enum vg_progress nothing_step(struct vd_item *item, CUresult *fault, const char **text)
{
    (void)item;
    (void)fault;
    (void)text;
    return VG_DONE;
}

static void end_alloc(struct vd_item *item)
{
    struct vd_memory *memory = vd_memory_find(item->op.address);
    if (memory != NULL) memory->region.freed = false;
}

static void end_free(struct vd_item *item)
{
    struct vd_memory *memory = vd_memory_find(item->op.address);
    if (memory == NULL) return; /* another stream freed it first */
    if (memory->graph && !memory->freeing)
        vd_memory_rest(memory);
    else
        vd_memory_release(memory);
}

const struct vd_runner vd_alloc_runner = {nothing_begin, nothing_step, end_alloc};
const struct vd_runner vd_free_runner = {nothing_begin, nothing_step, end_free};

VD_PER_THREAD(cuMemAllocAsync_ptsz, cuMemAllocAsync);
VD_PER_THREAD(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync);
VD_PER_THREAD(cuMemFreeAsync_ptsz, cuMemFreeAsync);

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    VD_ENTER();
    return vd_leave(allocate(dptr, bytesize, NULL, hStream, false));
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    VD_ENTER();
    return vd_leave(allocate(dptr, bytesize, NULL, hStream, true));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream)
{
    VD_ENTER();
    return vd_leave(pool == NULL ? CUDA_ERROR_INVALID_VALUE
                                 : allocate(dptr, bytesize, pool, hStream, false));
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream)
{
    VD_ENTER();
    return vd_leave(pool == NULL ? CUDA_ERROR_INVALID_VALUE
                                 : allocate(dptr, bytesize, pool, hStream, true));
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    VD_ENTER();
    return vd_leave(free_async(dptr, hStream, false));
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
    VD_ENTER();
    return vd_leave(free_async(dptr, hStream, true));
}

/* ---- pools ---- */

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    VD_ENTER();
    if (pool_out == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (!is_device(dev)) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    *pool_out = default_pool(dev);
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    VD_ENTER();
    if (pool == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (!is_device(dev)) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    *pool = pool_of(dev);
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    VD_ENTER();
    if (!is_device(dev)) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    if (!is_pool(pool) || pool->device != dev) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    current[dev] = pool;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    VD_ENTER();
    if (pool == NULL || poolProps == NULL ||
        poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !is_device(poolProps->location.id))
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return vd_leave(CUDA_ERROR_NOT_SUPPORTED); /* VMM and IPC share memory */
    struct CUmemPoolHandle_st *made = calloc(1, sizeof *made);
    if (made == NULL) return vd_leave(CUDA_ERROR_OUT_OF_MEMORY);
    *made = (struct CUmemPoolHandle_st){.device = poolProps->location.id,
                                        .reuse = {true, true, true},
                                        .live = true,
                                        .next = created};
    created = made;
    *pool = made;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    VD_ENTER();
    if (!is_pool(pool) || pool == &defaults[pool->device])
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    pool->live = false;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    (void)minBytesToKeep;
    VD_ENTER();
    return vd_leave(is_pool(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static bool *reuse_of(CUmemoryPool pool, CUmemPool_attribute attr)
{
    switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        return &pool->reuse[0];
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        return &pool->reuse[1];
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return &pool->reuse[2];
    default:
        return NULL;
    }
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    int on;
    VD_ENTER();
    if (!is_pool(pool) || value == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    bool *reuse = reuse_of(pool, attr);
    if (reuse != NULL) {
        memcpy(&on, value, sizeof on);
        *reuse = on != 0;
    } else if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        memcpy(&pool->threshold, value, sizeof pool->threshold);
    } else if (attr != CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && attr != CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return vd_leave(CUDA_SUCCESS);
}

static uint64_t used_by(CUmemoryPool pool)
{
    uint64_t used = 0;
    for (const struct vd_memory *m = vd.memories; m != NULL; m = m->next)
        if (m->async && m->owner == pool) used += m->nbytes;
    return used;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    VD_ENTER();
    if (!is_pool(pool) || value == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const bool *reuse = reuse_of(pool, attr);
    if (reuse != NULL) {
        const int on = *reuse;
        memcpy(value, &on, sizeof on);
    } else if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        memcpy(value, &pool->threshold, sizeof pool->threshold);
    } else if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
               attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ||
               attr == CU_MEMPOOL_ATTR_USED_MEM_CURRENT || attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
        const uint64_t used = used_by(pool);
        memcpy(value, &used, sizeof used);
    } else {
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    VD_ENTER();
    if (!is_pool(pool) || map == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !is_device(map[i].location.id))
            return vd_leave(CUDA_ERROR_INVALID_VALUE);
        const int device = map[i].location.id;
        const bool on = map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
        if (device == pool->device) {
            if (!on) return vd_leave(CUDA_ERROR_INVALID_VALUE);
            continue;
        }
        if (on && !vd.devices[device].peers[pool->device])
            return vd_leave(CUDA_ERROR_INVALID_DEVICE);
        for (struct vd_memory *m = vd.memories; m != NULL; m = m->next) {
            if (!m->async || m->owner != pool) continue;
            if (on)
                (void)vd_memory_add_device(m, device);
            else
                vd_memory_remove_device(m, device);
        }
        pool->access = on ? pool->access | 1u << device : pool->access & ~(1u << device);
    }
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
    VD_ENTER();
    if (flags == NULL || !is_pool(memPool) || location == NULL ||
        location->type != CU_MEM_LOCATION_TYPE_DEVICE || !is_device(location->id))
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const bool on = location->id == memPool->device || (memPool->access >> location->id & 1) != 0;
    *flags = on ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return vd_leave(CUDA_SUCCESS);
}
