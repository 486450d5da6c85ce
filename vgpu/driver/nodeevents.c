/* The exported functions about nodes that record or wait for events, that hold batches of memory
 * operations, and of the kinds that are not supported. */
#include <vgpu/driver/graph.h>

CUresult CUDAAPI cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph,
                                           const CUgraphNode *before, size_t n, CUevent event)
{
    VD_ENTER();
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                                      .eventRecord = {.event = event}};
    return vd_leave(vd_node_add(node, graph, before, n, &params, __func__));
}

CUresult CUDAAPI cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
    VD_ENTER();
    CUgraphNodeParams params;
    const CUresult result = event
                                ? vd_node_get_params(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &params)
                                : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) *event = params.eventRecord.event;
    return vd_leave(result);
}

CUresult CUDAAPI cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    VD_ENTER();
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                                      .eventRecord = {.event = event}};
    return vd_leave(vd_node_set_params(node, &params, __func__));
}

CUresult CUDAAPI cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                                    CUevent event)
{
    VD_ENTER();
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                                      .eventRecord = {.event = event}};
    return vd_leave(vd_exec_set_params(exec, node, &params, __func__));
}

CUresult CUDAAPI cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph,
                                         const CUgraphNode *before, size_t n, CUevent event)
{
    VD_ENTER();
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                                      .eventWait = {.event = event}};
    return vd_leave(vd_node_add(node, graph, before, n, &params, __func__));
}

CUresult CUDAAPI cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
    VD_ENTER();
    CUgraphNodeParams params;
    const CUresult result = event ? vd_node_get_params(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &params)
                                  : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) *event = params.eventWait.event;
    return vd_leave(result);
}

CUresult CUDAAPI cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
    VD_ENTER();
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                                      .eventWait = {.event = event}};
    return vd_leave(vd_node_set_params(node, &params, __func__));
}

CUresult CUDAAPI cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    VD_ENTER();
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                                      .eventWait = {.event = event}};
    return vd_leave(vd_exec_set_params(exec, node, &params, __func__));
}

static CUgraphNodeParams memop_params(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
    return (CUgraphNodeParams){
        .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        .memOp = {
            .ctx = p->ctx, .count = p->count, .paramArray = p->paramArray, .flags = p->flags}};
}

CUresult CUDAAPI cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph,
                                          const CUgraphNode *before, size_t n,
                                          const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
    VD_ENTER();
    if (!p) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = memop_params(p);
    return vd_leave(vd_node_add(node, graph, before, n, &params, __func__));
}

CUresult CUDAAPI cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
    VD_ENTER();
    CUgraphNodeParams params;
    const CUresult result = p ? vd_node_get_params(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &params)
                              : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *p = (CUDA_BATCH_MEM_OP_NODE_PARAMS){
            .ctx = params.memOp.ctx,
            .count = params.memOp.count,
            .paramArray = params.memOp.paramArray,
        };
    return vd_leave(result);
}

CUresult CUDAAPI cuGraphBatchMemOpNodeSetParams(CUgraphNode node,
                                                const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
    VD_ENTER();
    if (!p) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = memop_params(p);
    return vd_leave(vd_node_set_params(node, &params, __func__));
}

CUresult CUDAAPI cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
    VD_ENTER();
    if (!p) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = memop_params(p);
    return vd_leave(vd_exec_set_params(exec, node, &params, __func__));
}

/* ---- memory: such nodes come from captures only ---- */

CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                        size_t n, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
    VD_ENTER();
    if (!p) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    return vd_leave(vd_node_add(node, graph, before, n, &params, __func__));
}

CUresult CUDAAPI cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
    VD_ENTER();
    CUgraphNodeParams params;
    const CUresult result = p ? vd_node_get_params(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &params)
                              : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *p = (CUDA_MEM_ALLOC_NODE_PARAMS){.poolProps = params.alloc.poolProps,
                                          .bytesize = params.alloc.bytesize,
                                          .dptr = params.alloc.dptr};
    return vd_leave(result);
}

CUresult CUDAAPI cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                       size_t n, CUdeviceptr address)
{
    VD_ENTER();
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE,
                                      .free = {.dptr = address}};
    return vd_leave(vd_node_add(node, graph, before, n, &params, __func__));
}

CUresult CUDAAPI cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address)
{
    VD_ENTER();
    CUgraphNodeParams params;
    const CUresult result = address ? vd_node_get_params(node, CU_GRAPH_NODE_TYPE_MEM_FREE, &params)
                                    : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) *address = params.free.dptr;
    return vd_leave(result);
}

/* ---- not supported ---- */

CUresult CUDAAPI cuGraphAddExternalSemaphoresSignalNode(CUgraphNode *node, CUgraph graph,
                                                        const CUgraphNode *before, size_t n,
                                                        const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *p)
{
    VD_ENTER();
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL};
    (void)p;
    return vd_leave(vd_node_add(node, graph, before, n, &params, __func__));
}

CUresult CUDAAPI cuGraphAddExternalSemaphoresWaitNode(CUgraphNode *node, CUgraph graph,
                                                      const CUgraphNode *before, size_t n,
                                                      const CUDA_EXT_SEM_WAIT_NODE_PARAMS *p)
{
    VD_ENTER();
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT};
    (void)p;
    return vd_leave(vd_node_add(node, graph, before, n, &params, __func__));
}

CUresult CUDAAPI cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph,
                                                CUcontext context, unsigned value, unsigned flags)
{
    VD_ENTER();
    (void)handle;
    (void)graph;
    (void)context;
    (void)value;
    (void)flags;
    return vd_leave(vd_unsupported(__func__, "conditional nodes"));
}
