/* The exported functions about nodes of any kind, and those for host functions, child
 * graphs, events and batches of memory operations. */
#define __CUDA_API_VERSION_INTERNAL /* all versions of each function */
#include <vgpu/driver/graph.h>

#include <string.h>

static bool is_move(const CUgraphNodeParams *params)
{
    return params->type == CU_GRAPH_NODE_TYPE_GRAPH &&
           params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
}

/* A graph cannot be moved into itself, nor into one of its child graphs. */
static bool is_within(const struct CUgraph_st *graph, const struct CUgraph_st *outer)
{
    while (graph != outer && graph->owner) graph = graph->owner->graph;
    return graph == outer;
}

/* Either the node with all its edges, or nothing. */
CUresult vd_node_add(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t n,
                     const CUgraphNodeParams *params, const char *function)
{
    struct vd_work work;
    if (!node || !vd_graph_is(graph) || !vd_nodes_are_of(graph, before, n))
        return CUDA_ERROR_INVALID_VALUE;
    if (is_move(params) && is_within(graph, params->graph.graph)) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vd_work_make(&work, params, function);
    if (result != CUDA_SUCCESS) return result;
    struct CUgraphNode_st *new = vd_node_new(graph, params->type);
    if (!new) {
        if (is_move(params)) work.child = NULL; /* still the program's */
        vd_work_clear(&work, NULL);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    vd_node_set(new, &work);
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++) result = vd_edge_add(before[i], new);
    if (result != CUDA_SUCCESS) {
        while (new->before.n) vd_edge_remove(new->before.at[0], new);
        if (is_move(params)) {
            new->work.child->owner = NULL;
            new->work.child = NULL;
        }
        graph->nnodes--;
        vd_node_free(new, NULL);
        return result;
    }
    *node = new;
    return CUDA_SUCCESS;
}

CUresult vd_node_set_params(CUgraphNode node, const CUgraphNodeParams *params, const char *function)
{
    struct vd_work work;
    if (!vd_node_is(node) || node->type != params->type || is_move(params))
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = vd_work_make(&work, params, function);
    if (result == CUDA_SUCCESS) vd_node_set(node, &work);
    return result;
}

CUresult vd_node_get_params(CUgraphNode node, CUgraphNodeType type, CUgraphNodeParams *params)
{
    if (!vd_node_is(node) || node->type != type) return CUDA_ERROR_INVALID_VALUE;
    return vd_node_get(node, params);
}

CUresult CUDAAPI cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                size_t n, CUgraphNodeParams *params)
{
    VD_ENTER();
    if (!params) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    return vd_leave(vd_node_add(node, graph, before, n, params, __func__));
}

CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                   const CUgraphEdgeData *data, size_t n, CUgraphNodeParams *params)
{
    VD_ENTER();
    if (!params || !vd_graph_is(graph) || !vd_nodes_are_of(graph, before, n))
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUresult result = vd_edge_data_check(data, n, __func__);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    return vd_leave(vd_node_add(node, graph, before, n, params, __func__));
}

CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
    VD_ENTER();
    if (!params) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    return vd_leave(vd_node_set_params(node, params, __func__));
}

CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                          CUgraphNodeParams *params)
{
    VD_ENTER();
    if (!params) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    return vd_leave(vd_exec_set_params(exec, node, params, __func__));
}

/* ---- host functions, child graphs, empty nodes ---- */

CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                    size_t n, const CUDA_HOST_NODE_PARAMS *p)
{
    VD_ENTER();
    if (!p) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST,
                                      .host = {.fn = p->fn, .userData = p->userData}};
    return vd_leave(vd_node_add(node, graph, before, n, &params, __func__));
}

CUresult CUDAAPI cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *p)
{
    VD_ENTER();
    CUgraphNodeParams params;
    const CUresult result =
        p ? vd_node_get_params(node, CU_GRAPH_NODE_TYPE_HOST, &params) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) *p = (CUDA_HOST_NODE_PARAMS){params.host.fn, params.host.userData};
    return vd_leave(result);
}

CUresult CUDAAPI cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p)
{
    VD_ENTER();
    if (!p) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST,
                                      .host = {.fn = p->fn, .userData = p->userData}};
    return vd_leave(vd_node_set_params(node, &params, __func__));
}

CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph,
                                          const CUgraphNode *before, size_t n, CUgraph child)
{
    VD_ENTER();
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = child}};
    return vd_leave(vd_node_add(node, graph, before, n, &params, __func__));
}

CUresult CUDAAPI cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *child)
{
    VD_ENTER();
    CUgraphNodeParams params;
    const CUresult result = child ? vd_node_get_params(node, CU_GRAPH_NODE_TYPE_GRAPH, &params)
                                  : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) *child = params.graph.graph;
    return vd_leave(result);
}

CUresult CUDAAPI cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                     size_t n)
{
    VD_ENTER();
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return vd_leave(vd_node_add(node, graph, before, n, &params, __func__));
}

CUresult CUDAAPI cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                              const CUDA_HOST_NODE_PARAMS *p)
{
    VD_ENTER();
    if (!p) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST,
                                      .host = {.fn = p->fn, .userData = p->userData}};
    return vd_leave(vd_exec_set_params(exec, node, &params, __func__));
}

CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    CUgraph child)
{
    VD_ENTER();
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = child}};
    return vd_leave(vd_exec_set_params(exec, node, &params, __func__));
}
