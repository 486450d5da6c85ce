/* The exported functions about memcpy and memset nodes. */
#include <vgpu/driver/graph.h>

#include <string.h>

CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                      size_t n, const CUDA_MEMCPY3D *p, CUcontext context)
{
    VD_ENTER();
    if (!p) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                                      .memcpy = {.copyCtx = context, .copyParams = *p}};
    return vd_leave(vd_node_add(node, graph, before, n, &params, __func__));
}

CUresult CUDAAPI cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *p)
{
    VD_ENTER();
    CUgraphNodeParams params;
    const CUresult result =
        p ? vd_node_get_params(node, CU_GRAPH_NODE_TYPE_MEMCPY, &params) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) *p = params.memcpy.copyParams;
    return vd_leave(result);
}

CUresult CUDAAPI cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *p)
{
    VD_ENTER();
    if (!p || !vd_node_is(node)) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                                      .memcpy = {.copyCtx = node->work.context, .copyParams = *p}};
    return vd_leave(vd_node_set_params(node, &params, __func__));
}

static CUgraphNodeParams memset_params(const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context)
{
    return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMSET,
                               .memset = {.dst = p->dst,
                                          .pitch = p->pitch,
                                          .value = p->value,
                                          .elementSize = p->elementSize,
                                          .width = p->width,
                                          .height = p->height,
                                          .ctx = context}};
}

CUresult CUDAAPI cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                      size_t n, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context)
{
    VD_ENTER();
    if (!p) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = memset_params(p, context);
    return vd_leave(vd_node_add(node, graph, before, n, &params, __func__));
}

CUresult CUDAAPI cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *p)
{
    VD_ENTER();
    CUgraphNodeParams params;
    const CUresult result =
        p ? vd_node_get_params(node, CU_GRAPH_NODE_TYPE_MEMSET, &params) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) memcpy(p, &params.memset, sizeof *p);
    return vd_leave(result);
}

CUresult CUDAAPI cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p)
{
    VD_ENTER();
    if (!p || !vd_node_is(node)) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = memset_params(p, node->work.context);
    return vd_leave(vd_node_set_params(node, &params, __func__));
}

CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_MEMCPY3D *p, CUcontext context)
{
    VD_ENTER();
    if (!p) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                                      .memcpy = {.copyCtx = context, .copyParams = *p}};
    return vd_leave(vd_exec_set_params(exec, node, &params, __func__));
}

CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context)
{
    VD_ENTER();
    if (!p) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = memset_params(p, context);
    return vd_leave(vd_exec_set_params(exec, node, &params, __func__));
}
