/* The exported functions about kernel nodes. */
#define __CUDA_API_VERSION_INTERNAL /* all versions of each function */
#include <vgpu/driver/graph.h>

#include <string.h>

static CUgraphNodeParams kernel_params(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    memcpy(&params.kernel, p, sizeof *p); /* the later versions add fields at the end */
    return params;
}

static CUgraphNodeParams kernel_params_v2(const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    memcpy(&params.kernel, p, sizeof *p);
    return params;
}

CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                      size_t n, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
    VD_ENTER();
    if (!p) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = kernel_params(p);
    return vd_leave(vd_node_add(node, graph, before, n, &params, __func__));
}

CUresult CUDAAPI cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph,
                                         const CUgraphNode *before, size_t n,
                                         const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
    VD_ENTER();
    if (!p) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = kernel_params_v2(p);
    return vd_leave(vd_node_add(node, graph, before, n, &params, __func__));
}

CUresult CUDAAPI cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
    VD_ENTER();
    CUgraphNodeParams params;
    const CUresult result =
        p ? vd_node_get_params(node, CU_GRAPH_NODE_TYPE_KERNEL, &params) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) memcpy(p, &params.kernel, sizeof *p);
    return vd_leave(result);
}

CUresult CUDAAPI cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
    VD_ENTER();
    CUgraphNodeParams params;
    const CUresult result =
        p ? vd_node_get_params(node, CU_GRAPH_NODE_TYPE_KERNEL, &params) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) memcpy(p, &params.kernel, sizeof *p);
    return vd_leave(result);
}

CUresult CUDAAPI cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
    VD_ENTER();
    if (!p) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = kernel_params(p);
    return vd_leave(vd_node_set_params(node, &params, __func__));
}

CUresult CUDAAPI cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                               const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
    VD_ENTER();
    if (!p) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = kernel_params_v2(p);
    return vd_leave(vd_node_set_params(node, &params, __func__));
}

/* Only attributes that change what a kernel of the virtual GPU does, or that do nothing here. */
static CUresult check_attribute(CUgraphNode node, CUkernelNodeAttrID attribute, const void *value,
                                const char *function)
{
    if (!value || !vd_node_is(node) || node->type != CU_GRAPH_NODE_TYPE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute != CU_LAUNCH_ATTRIBUTE_COOPERATIVE && attribute != CU_LAUNCH_ATTRIBUTE_PRIORITY)
        return vd_unsupported(function, "this attribute of kernel nodes");
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                               CUkernelNodeAttrValue *value)
{
    VD_ENTER();
    const CUresult result = check_attribute(node, attribute, value, __func__);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    memset(value, 0, sizeof *value);
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        value->priority = node->work.priority;
    else
        value->cooperative = node->work.ops[0].launch.cooperative;
    return vd_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                               const CUkernelNodeAttrValue *value)
{
    VD_ENTER();
    const CUresult result = check_attribute(node, attribute, value, __func__);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        node->work.priority = value->priority;
    else
        node->work.ops[0].launch.cooperative = value->cooperative != 0;
    return vd_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
    VD_ENTER();
    if (!vd_node_is(to) || !vd_node_is(from) || to->type != CU_GRAPH_NODE_TYPE_KERNEL ||
        from->type != CU_GRAPH_NODE_TYPE_KERNEL)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    to->work.priority = from->work.priority;
    to->work.ops[0].launch.cooperative = from->work.ops[0].launch.cooperative;
    return vd_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
    VD_ENTER();
    if (!p) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = kernel_params(p);
    return vd_leave(vd_exec_set_params(exec, node, &params, __func__));
}

CUresult CUDAAPI cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                   const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
    VD_ENTER();
    if (!p) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = kernel_params_v2(p);
    return vd_leave(vd_exec_set_params(exec, node, &params, __func__));
}
