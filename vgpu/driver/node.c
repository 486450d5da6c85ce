/* What nodes do: operations from parameters and from captured calls. */
#include <vgpu/driver/graph.h>

#include <stdlib.h>
#include <string.h>

CUresult vd_edge_data_check(const CUgraphEdgeData *data, size_t n, const char *function)
{
    static const CUgraphEdgeData none;
    for (size_t i = 0; data && i < n; i++)
        if (memcmp(&data[i], &none, sizeof none) != 0)
            return vd_unsupported(function, "edges of programmatic launches");
    return CUDA_SUCCESS;
}

void vd_work_clear(struct vd_work *work, struct vd_item *running)
{
    for (uint32_t i = 0; i < work->nops; i++) vd_op_clear(&work->ops[i]);
    free(work->ops);
    free(work->memops);
    free(work->pointers);
    vd_graph_free(work->child, running);
    vd_graph_memory_put(work->memory, running);
    memset(work, 0, sizeof *work);
}

static void *copy_of(const void *bytes, size_t nbytes)
{
    void *copy = malloc(nbytes + 1);
    if (copy) memcpy(copy, bytes, nbytes);
    return copy;
}

CUresult vd_work_clone(struct vd_work *to, const struct vd_work *from)
{
    CUresult result = CUDA_SUCCESS;
    memset(to, 0, sizeof *to);
    if (from->nops && from->ops[0].what == VD_LAUNCH &&
        !vd_object_is(from->ops[0].launch.function, VD_FUNCTION))
        return CUDA_ERROR_INVALID_HANDLE; /* its module was unloaded */
    *to = *from;
    to->ops = NULL;
    to->memops = NULL;
    to->pointers = NULL;
    to->child = NULL;
    to->nops = 0;
    if (to->memory) to->memory->refs++;
    if (from->nops) {
        to->ops = calloc(from->nops, sizeof *to->ops);
        if (!to->ops) result = CUDA_ERROR_OUT_OF_MEMORY;
        for (; result == CUDA_SUCCESS && to->nops < from->nops; to->nops++)
            if (!vd_op_clone(&to->ops[to->nops], &from->ops[to->nops]))
                result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (from->nmemops) {
        to->memops = copy_of(from->memops, from->nmemops * sizeof *to->memops);
        if (!to->memops) result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (from->child && result == CUDA_SUCCESS) result = vd_graph_clone(from->child, &to->child);
    if (result != CUDA_SUCCESS) vd_work_clear(to, NULL);
    return result;
}

void vd_node_set(struct CUgraphNode_st *node, struct vd_work *work)
{
    vd_work_clear(&node->work, NULL);
    node->work = *work;
    memset(work, 0, sizeof *work);
    if (node->work.child) node->work.child->owner = node;
}

static CUgraphNodeType type_of(enum vd_what what)
{
    switch (what) {
    case VD_LAUNCH:
        return CU_GRAPH_NODE_TYPE_KERNEL;
    case VD_COPY:
        return CU_GRAPH_NODE_TYPE_MEMCPY;
    case VD_FILL:
        return CU_GRAPH_NODE_TYPE_MEMSET;
    case VD_HOST:
        return CU_GRAPH_NODE_TYPE_HOST;
    case VD_WRITE:
    case VD_AWAIT:
        return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    case VD_ALLOC:
        return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    case VD_FREE:
        return CU_GRAPH_NODE_TYPE_MEM_FREE;
    default:
        return CU_GRAPH_NODE_TYPE_EMPTY;
    }
}

/* The copy as cuGraphMemcpyNodeGetParams gives it. */
static CUDA_MEMCPY3D copy_params(const struct vd_copy *copy)
{
    CUDA_MEMCPY3D p = {.WidthInBytes = copy->width,
                       .Height = copy->height,
                       .Depth = copy->depth ? copy->depth : 1,
                       .srcPitch = copy->from_pitch,
                       .dstPitch = copy->to_pitch};
    if (copy->depth > 1) {
        p.srcHeight = copy->from_slice / copy->from_pitch;
        p.dstHeight = copy->to_slice / copy->to_pitch;
    }
    const bool from_host = !vd_memory_find(copy->from), to_host = !vd_memory_find(copy->to);
    p.srcMemoryType = from_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    p.dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    if (from_host)
        p.srcHost = (const void *)(uintptr_t)copy->from;
    else
        p.srcDevice = copy->from;
    if (to_host)
        p.dstHost = (void *)(uintptr_t)copy->to;
    else
        p.dstDevice = copy->to;
    return p;
}

static CUstreamBatchMemOpParams memop_params(const struct vd_op *op)
{
    CUstreamBatchMemOpParams p;
    const bool wide = op->value.nbytes == 8;
    memset(&p, 0, sizeof p);
    if (op->what == VD_AWAIT) {
        p.operation = wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
        p.waitValue.address = op->value.address;
        p.waitValue.value64 = op->value.value;
        p.waitValue.flags = op->value.flags;
    } else {
        p.operation = wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
        p.writeValue.address = op->value.address;
        p.writeValue.value64 = op->value.value;
        p.writeValue.flags = op->value.flags;
    }
    return p;
}

/* What belongs to the node besides the operation itself. */
static CUresult describe(struct vd_work *work, struct vd_op *op)
{
    switch (op->what) {
    case VD_COPY:
        /* Each launch of the graph reads the source as it is then. */
        free(op->copy.snapshot);
        op->copy.snapshot = NULL;
        work->copy = copy_params(&op->copy);
        return CUDA_SUCCESS;
    case VD_WRITE:
    case VD_AWAIT:
        work->memops = malloc(sizeof *work->memops);
        if (!work->memops) return CUDA_ERROR_OUT_OF_MEMORY;
        work->memops[0] = memop_params(op);
        work->nmemops = 1;
        return CUDA_SUCCESS;
    case VD_ALLOC:
        work->memory = vd_graph_memory_new(work->context, op->address);
        return work->memory ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    case VD_FREE: { /* of memory that a node of a graph allocated, once */
        struct vd_graph_memory *memory = vd_graph_memory_find(op->address);
        if (!memory || memory->freed) return CUDA_ERROR_INVALID_VALUE;
        memory->freed = true;
        memory->refs++;
        work->memory = memory;
        return CUDA_SUCCESS;
    }
    default:
        return CUDA_SUCCESS;
    }
}

CUresult vd_node_of_op(struct CUgraph_st *graph, struct CUctx_st *context, struct vd_op *op,
                       struct CUgraphNode_st **node)
{
    const CUgraphNodeType type = type_of(op->what);
    struct vd_work work = {.context = context};
    CUresult result = describe(&work, op);
    if (result == CUDA_SUCCESS && op->what != VD_NOTHING) {
        work.ops = malloc(sizeof *work.ops);
        if (!work.ops) result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        *node = vd_node_new(graph, type);
        if (!*node) result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        vd_work_clear(&work, NULL);
        vd_op_clear(op);
        return result;
    }
    if (work.ops) {
        work.ops[0] = *op;
        work.nops = 1;
        memset(op, 0, sizeof *op);
    }
    vd_node_set(*node, &work);
    return CUDA_SUCCESS;
}

static CUresult get_kernel(struct vd_work *work, CUDA_KERNEL_NODE_PARAMS_v3 *p)
{
    const struct vd_launch *launch = &work->ops[0].launch;
    const struct vg_function *kernel = launch->function->kernel;
    if (!work->pointers && kernel->nparams) {
        work->pointers = calloc(kernel->nparams, sizeof *work->pointers);
        if (!work->pointers) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < kernel->nparams; i++)
        work->pointers[i] = (char *)launch->params + kernel->params[i].offset;
    *p = (CUDA_KERNEL_NODE_PARAMS_v3){.func = launch->function,
                                      .gridDimX = launch->grid[0],
                                      .gridDimY = launch->grid[1],
                                      .gridDimZ = launch->grid[2],
                                      .blockDimX = launch->block[0],
                                      .blockDimY = launch->block[1],
                                      .blockDimZ = launch->block[2],
                                      .sharedMemBytes = launch->dynamic_shared,
                                      .kernelParams = work->pointers,
                                      .ctx = work->context};
    return CUDA_SUCCESS;
}

static void get_memset(const struct vd_work *work, CUDA_MEMSET_NODE_PARAMS_v2 *p)
{
    const struct vd_fill *fill = &work->ops[0].fill;
    *p = (CUDA_MEMSET_NODE_PARAMS_v2){.dst = fill->to,
                                      .pitch = fill->pitch,
                                      .value = fill->value,
                                      .elementSize = fill->nbytes,
                                      .width = fill->width,
                                      .height = fill->height,
                                      .ctx = work->context};
}

CUresult vd_node_get(struct CUgraphNode_st *node, CUgraphNodeParams *params)
{
    struct vd_work *work = &node->work;
    memset(params, 0, sizeof *params);
    params->type = node->type;
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        if (!vd_object_is(work->ops[0].launch.function, VD_FUNCTION))
            return CUDA_ERROR_INVALID_HANDLE;
        return get_kernel(work, &params->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        params->memcpy.copyCtx = work->context;
        params->memcpy.copyParams = work->copy;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        get_memset(work, &params->memset);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_HOST:
        params->host.fn = work->ops[0].host.function;
        params->host.userData = work->ops[0].host.arg;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        params->graph.graph = work->child;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        params->eventWait.event = work->event;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        params->eventRecord.event = work->event;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        params->memOp.ctx = work->context;
        params->memOp.count = work->nmemops;
        params->memOp.paramArray = work->memops;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        params->alloc.bytesize = work->memory->nbytes;
        params->alloc.dptr = work->memory->address;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        params->free.dptr = work->memory->address;
        return CUDA_SUCCESS;
    default:
        return CUDA_SUCCESS;
    }
}
