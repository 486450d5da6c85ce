/* What nodes that are made by hand do: checks of their parameters, and operations from them. */
#include <vgpu/driver/graph.h>

#include <stdlib.h>
#include <string.h>

bool vd_context_is(const struct CUctx_st *context)
{
    return vd_object_is(context, VD_CONTEXT) && !context->destroyed;
}

static CUresult one_op(struct vd_work *work, const struct vd_op *op)
{
    work->ops = malloc(sizeof *work->ops);
    if (!work->ops) return CUDA_ERROR_OUT_OF_MEMORY;
    work->ops[0] = *op;
    work->nops = 1;
    return CUDA_SUCCESS;
}

static CUresult make_kernel(struct vd_work *work, const CUDA_KERNEL_NODE_PARAMS_v3 *p)
{
    const struct vd_shape shape = {.grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
                                   .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
                                   .dynamic_shared = p->sharedMemBytes};
    const CUfunction function = p->func ? p->func : (CUfunction)p->kern;
    struct vd_op op = {.what = VD_NOTHING};
    CUresult result = CUDA_SUCCESS;
    work->context = p->ctx;
    if (vd_object_is(function, VD_FUNCTION))
        work->context = function->module->context;
    else if (!work->context)
        result = vd_context(&work->context);
    else if (!vd_context_is(work->context))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        result = vd_launch_make(&op, work->context, function, &shape, p->kernelParams, p->extra);
    if (result == CUDA_SUCCESS) result = one_op(work, &op);
    if (result != CUDA_SUCCESS) vd_op_clear(&op);
    return result;
}

struct end { /* of a copy */
    CUmemorytype type;
    uint64_t address, x, y, z, pitch, height;
};

/* The address of the copy's first byte at this end, its pitch and its bytes from slice to slice. */
static CUresult resolve(const struct end *end, const CUDA_MEMCPY3D *p, uint64_t *first,
                        uint64_t *pitch, uint64_t *slice)
{
    const bool rows = p->Height > 1 || p->Depth > 1;
    if (rows && end->pitch && end->pitch < p->WidthInBytes + end->x)
        return CUDA_ERROR_INVALID_VALUE;
    if (p->Depth > 1 && end->height && end->height < p->Height + end->y)
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = end->pitch ? end->pitch : p->WidthInBytes + end->x;
    *slice = *pitch * (end->height ? end->height : p->Height + end->y);
    *first = end->address + end->z * *slice + end->y * *pitch + end->x;
    if (end->type == CU_MEMORYTYPE_HOST) return CUDA_SUCCESS;
    const struct vd_memory *memory = vd_memory_find(*first);
    if (!memory)
        return end->type == CU_MEMORYTYPE_UNIFIED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    const uint64_t nbytes = (p->Depth - 1) * *slice + (p->Height - 1) * *pitch + p->WidthInBytes;
    const uint64_t room = memory->region.address + memory->region.nbytes - *first;
    return nbytes > room ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static bool copy_is_supported(const CUDA_MEMCPY3D *p)
{
    return p->srcMemoryType != CU_MEMORYTYPE_ARRAY && p->dstMemoryType != CU_MEMORYTYPE_ARRAY;
}

static CUresult make_memcpy(struct vd_work *work, const CUDA_MEMCPY_NODE_PARAMS *params,
                            const char *function)
{
    const CUDA_MEMCPY3D *p = &params->copyParams;
    uint64_t from, to, from_pitch, to_pitch, from_slice, to_slice;
    if (!vd_context_is(params->copyCtx)) return CUDA_ERROR_INVALID_CONTEXT;
    if (!copy_is_supported(p)) return vd_unsupported(function, "arrays of textures");
    if (!p->WidthInBytes || !p->Height || !p->Depth) return CUDA_ERROR_INVALID_VALUE;
    const bool from_host = p->srcMemoryType == CU_MEMORYTYPE_HOST;
    const bool to_host = p->dstMemoryType == CU_MEMORYTYPE_HOST;
    const struct end source = {p->srcMemoryType, from_host ? (uintptr_t)p->srcHost : p->srcDevice,
                               p->srcXInBytes,   p->srcY,
                               p->srcZ,          p->srcPitch,
                               p->srcHeight};
    const struct end target = {p->dstMemoryType, to_host ? (uintptr_t)p->dstHost : p->dstDevice,
                               p->dstXInBytes,   p->dstY,
                               p->dstZ,          p->dstPitch,
                               p->dstHeight};
    if (!source.address || !target.address) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = resolve(&source, p, &from, &from_pitch, &from_slice);
    if (result == CUDA_SUCCESS) result = resolve(&target, p, &to, &to_pitch, &to_slice);
    if (result != CUDA_SUCCESS) return result;
    const struct vd_op op = {.what = VD_COPY,
                             .copy = {.to = to,
                                      .from = from,
                                      .width = p->WidthInBytes,
                                      .height = p->Height,
                                      .to_pitch = to_pitch,
                                      .from_pitch = from_pitch,
                                      .depth = p->Depth,
                                      .to_slice = to_slice,
                                      .from_slice = from_slice}};
    work->context = params->copyCtx;
    work->copy = *p;
    return one_op(work, &op);
}

static CUresult make_memset(struct vd_work *work, const CUDA_MEMSET_NODE_PARAMS_v2 *p)
{
    const struct vd_memory *memory = vd_memory_find(p->dst);
    if (!vd_context_is(p->ctx)) return CUDA_ERROR_INVALID_CONTEXT;
    if (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4)
        return CUDA_ERROR_INVALID_VALUE;
    const uint64_t row = p->width * p->elementSize;
    if (!memory || p->dst % p->elementSize || !p->width || !p->height ||
        (p->height > 1 && p->pitch < row))
        return CUDA_ERROR_INVALID_VALUE;
    const uint64_t room = memory->region.address + memory->region.nbytes - p->dst;
    const uint64_t pitch = p->height > 1 ? p->pitch : row;
    if ((p->height - 1) * pitch + row > room) return CUDA_ERROR_INVALID_VALUE;
    const struct vd_op op = {.what = VD_FILL,
                             .fill = {.to = p->dst,
                                      .width = p->width,
                                      .height = p->height,
                                      .pitch = pitch,
                                      .value = p->value,
                                      .nbytes = (uint8_t)p->elementSize}};
    work->context = p->ctx;
    return one_op(work, &op);
}

static CUresult make_host(struct vd_work *work, const CUDA_HOST_NODE_PARAMS_v2 *p)
{
    const struct vd_op op = {.what = VD_HOST, .host = {.function = p->fn, .arg = p->userData}};
    return p->fn ? one_op(work, &op) : CUDA_ERROR_INVALID_VALUE;
}

/* Memory nodes in a child graph would give one address to several clones. */
static bool has_memory_nodes(const struct CUgraph_st *graph)
{
    for (uint32_t i = 0; i < graph->nnodes; i++) {
        const struct vd_work *work = &graph->nodes[i]->work;
        if (work->memory || (work->child && has_memory_nodes(work->child))) return true;
    }
    return false;
}

static CUresult make_child(struct vd_work *work, const CUDA_CHILD_GRAPH_NODE_PARAMS *p)
{
    if (!vd_graph_is(p->graph) || vd_graph_captures(p->graph)) return CUDA_ERROR_INVALID_VALUE;
    if (p->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
        if (p->graph->owner) return CUDA_ERROR_INVALID_VALUE;
        work->child = p->graph;
        return CUDA_SUCCESS;
    }
    if (p->ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE || has_memory_nodes(p->graph))
        return CUDA_ERROR_INVALID_VALUE;
    return vd_graph_clone(p->graph, &work->child);
}

static CUresult make_event(struct vd_work *work, CUevent event)
{
    if (!vd_object_is(event, VD_EVENT)) return CUDA_ERROR_INVALID_VALUE;
    work->event = event;
    work->context = event->context;
    return CUDA_SUCCESS;
}

/* One of cuStreamBatchMemOp's operations. */
static CUresult memop(struct vd_op *op, const CUstreamBatchMemOpParams *p)
{
    bool wide = false;
    switch (p->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        wide = true; /* fall through */
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        op->what = VD_AWAIT;
        op->value = (struct vd_value){.address = p->waitValue.address,
                                      .value = wide ? p->waitValue.value64 : p->waitValue.value,
                                      .flags = p->waitValue.flags};
        break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        wide = true; /* fall through */
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        op->what = VD_WRITE;
        op->value = (struct vd_value){.address = p->writeValue.address,
                                      .value = wide ? p->writeValue.value64 : p->writeValue.value,
                                      .flags = p->writeValue.flags};
        break;
    case CU_STREAM_MEM_OP_BARRIER:
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        op->what = VD_NOTHING; /* operations of a node are ordered anyway */
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    op->value.nbytes = wide ? 8 : 4;
    return op->value.address % op->value.nbytes || !vd_memory_find(op->value.address)
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

static CUresult make_memops(struct vd_work *work, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *p)
{
    enum { MOST = 255 };
    if (!vd_context_is(p->ctx)) return CUDA_ERROR_INVALID_CONTEXT;
    if (!p->count || p->count > MOST || !p->paramArray || p->flags) return CUDA_ERROR_INVALID_VALUE;
    work->context = p->ctx;
    work->ops = calloc(p->count, sizeof *work->ops);
    work->memops = calloc(p->count, sizeof *work->memops);
    if (!work->ops || !work->memops) return CUDA_ERROR_OUT_OF_MEMORY;
    work->nops = work->nmemops = p->count;
    memcpy(work->memops, p->paramArray, p->count * sizeof *work->memops);
    for (uint32_t i = 0; i < p->count; i++) {
        const CUresult result = memop(&work->ops[i], &p->paramArray[i]);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

static CUresult make(struct vd_work *work, const CUgraphNodeParams *params, const char *function)
{
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return make_kernel(work, &params->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return make_memcpy(work, &params->memcpy, function);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return make_memset(work, &params->memset);
    case CU_GRAPH_NODE_TYPE_HOST:
        return make_host(work, &params->host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return make_child(work, &params->graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return make_event(work, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return make_event(work, params->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return make_memops(work, &params->memOp);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return vd_unsupported(function, "allocation nodes");
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return vd_unsupported(function, "free nodes");
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        return vd_unsupported(function, "external semaphores");
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return vd_unsupported(function, "conditional nodes");
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult vd_work_make(struct vd_work *work, const CUgraphNodeParams *params, const char *function)
{
    memset(work, 0, sizeof *work);
    const CUresult result = make(work, params, function);
    if (result != CUDA_SUCCESS) vd_work_clear(work, NULL);
    return result;
}
