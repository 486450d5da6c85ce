/* The exported functions about graphs as wholes and about their edges. */
#define __CUDA_API_VERSION_INTERNAL /* all versions of each function */
#include <vgpu/driver/graph.h>

#include <stdlib.h>
#include <string.h>

CUresult CUDAAPI cuGraphCreate(CUgraph *graph, unsigned flags)
{
    VD_ENTER();
    if (!graph || flags) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    struct CUgraph_st *new = vd_graph_new();
    if (new) *graph = new;
    return vd_leave(new ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

/* A graph that a node owns goes with the node. One to which captures add nodes is theirs. */
CUresult CUDAAPI cuGraphDestroy(CUgraph graph)
{
    VD_ENTER();
    if (!vd_graph_is(graph) || graph->owner || vd_graph_captures(graph))
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    vd_graph_free(graph, NULL);
    return vd_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphClone(CUgraph *clone, CUgraph graph)
{
    VD_ENTER();
    if (!clone || !vd_graph_is(graph)) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    return vd_leave(vd_graph_clone(graph, clone));
}

CUresult CUDAAPI cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original, CUgraph clone)
{
    VD_ENTER();
    if (!node || !vd_node_is(original) || !vd_graph_is(clone))
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    struct CUgraphNode_st *found = vd_graph_find_clone(clone, original);
    if (found) *node = found;
    return vd_leave(found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    VD_ENTER();
    if (!type || !vd_node_is(node)) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *type = node->type;
    return vd_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphDestroyNode(CUgraphNode node)
{
    VD_ENTER();
    if (!vd_node_is(node) || node->graph->captures ||
        (node->work.child && vd_graph_captures(node->work.child)))
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    struct CUgraph_st *graph = node->graph;
    while (node->before.n) vd_edge_remove(node->before.at[0], node);
    while (node->after.n) vd_edge_remove(node, node->after.at[0]);
    uint32_t i = 0;
    while (graph->nodes[i] != node) i++;
    graph->nnodes--;
    memmove(graph->nodes + i, graph->nodes + i + 1, (graph->nnodes - i) * sizeof(CUgraphNode));
    vd_node_free(node, NULL);
    return vd_leave(CUDA_SUCCESS);
}

/* Copies n nodes to an array of *room places. Without an array only the number is asked for. Places
 * that stay empty are NULL. */
static CUresult give(struct CUgraphNode_st *const *from, uint32_t n, CUgraphNode *to, size_t *room)
{
    if (!to) {
        *room = n;
        return CUDA_SUCCESS;
    }
    for (size_t i = 0; i < *room; i++) to[i] = i < n ? from[i] : NULL;
    if (*room > n) *room = n;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
    VD_ENTER();
    if (!n || !vd_graph_is(graph)) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    return vd_leave(give(graph->nodes, graph->nnodes, nodes, n));
}

CUresult CUDAAPI cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
    VD_ENTER();
    if (!n || !vd_graph_is(graph)) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    struct vd_nodes roots = {0};
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < graph->nnodes && result == CUDA_SUCCESS; i++)
        if (!graph->nodes[i]->before.n) result = vd_nodes_add(&roots, graph->nodes[i]);
    if (result == CUDA_SUCCESS) result = give(roots.at, roots.n, nodes, n);
    free(roots.at);
    return vd_leave(result);
}

static CUresult get_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                          size_t *n)
{
    if (!n || !vd_graph_is(graph) || !from != !to) return CUDA_ERROR_INVALID_VALUE;
    size_t count = 0;
    for (uint32_t i = 0; i < graph->nnodes; i++)
        for (uint32_t k = 0; k < graph->nodes[i]->before.n; k++, count++)
            if (from && count < *n) {
                from[count] = graph->nodes[i]->before.at[k];
                to[count] = graph->nodes[i];
            }
    if (from) {
        for (size_t i = count; i < *n; i++) from[i] = to[i] = NULL;
        if (data) memset(data, 0, *n * sizeof *data);
    }
    if (!from || *n > count) *n = count;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n)
{
    VD_ENTER();
    return vd_leave(get_edges(graph, from, to, NULL, n));
}

CUresult CUDAAPI cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                                    CUgraphEdgeData *data, size_t *n)
{
    VD_ENTER();
    return vd_leave(get_edges(graph, from, to, data, n));
}

static CUresult get_neighbours(CUgraphNode node, bool after, CUgraphNode *to, CUgraphEdgeData *data,
                               size_t *n)
{
    if (!n || !vd_node_is(node)) return CUDA_ERROR_INVALID_VALUE;
    const struct vd_nodes *nodes = after ? &node->after : &node->before;
    if (to && data) memset(data, 0, *n * sizeof *data);
    return give(nodes->at, nodes->n, to, n);
}

CUresult CUDAAPI cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *n)
{
    VD_ENTER();
    return vd_leave(get_neighbours(node, false, nodes, NULL, n));
}

CUresult CUDAAPI cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes,
                                               CUgraphEdgeData *data, size_t *n)
{
    VD_ENTER();
    return vd_leave(get_neighbours(node, false, nodes, data, n));
}

CUresult CUDAAPI cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *n)
{
    VD_ENTER();
    return vd_leave(get_neighbours(node, true, nodes, NULL, n));
}

CUresult CUDAAPI cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes,
                                                 CUgraphEdgeData *data, size_t *n)
{
    VD_ENTER();
    return vd_leave(get_neighbours(node, true, nodes, data, n));
}

struct edges {
    const CUgraphNode *from, *to;
    const CUgraphEdgeData *data; /* may be NULL */
    size_t n;
    const char *function;
};

/* All edges, or none of them. */
static CUresult change_edges(CUgraph graph, const struct edges *edges,
                             CUresult change(struct CUgraphNode_st *, struct CUgraphNode_st *),
                             CUresult undo(struct CUgraphNode_st *, struct CUgraphNode_st *))
{
    const CUgraphNode *from = edges->from, *to = edges->to;
    if (!vd_graph_is(graph) || !vd_ends_are_of(graph, from, edges->n) ||
        !vd_ends_are_of(graph, to, edges->n))
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult refused = vd_edge_data_check(edges->data, edges->n, edges->function);
    if (refused != CUDA_SUCCESS) return refused;
    for (size_t i = 0; i < edges->n; i++) {
        const CUresult result = change(from[i], to[i]);
        if (result == CUDA_SUCCESS) continue;
        while (i--) undo(from[i], to[i]);
        return result;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from,
                                        const CUgraphNode *to, size_t n)
{
    VD_ENTER();
    const struct edges edges = {from, to, NULL, n, __func__};
    return vd_leave(change_edges(graph, &edges, vd_edge_add, vd_edge_remove));
}

CUresult CUDAAPI cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from,
                                           const CUgraphNode *to, const CUgraphEdgeData *data,
                                           size_t n)
{
    VD_ENTER();
    const struct edges edges = {from, to, data, n, __func__};
    return vd_leave(change_edges(graph, &edges, vd_edge_add, vd_edge_remove));
}

CUresult CUDAAPI cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from,
                                           const CUgraphNode *to, size_t n)
{
    VD_ENTER();
    const struct edges edges = {from, to, NULL, n, __func__};
    return vd_leave(change_edges(graph, &edges, vd_edge_remove, vd_edge_add));
}

CUresult CUDAAPI cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from,
                                              const CUgraphNode *to, const CUgraphEdgeData *data,
                                              size_t n)
{
    VD_ENTER();
    const struct edges edges = {from, to, data, n, __func__};
    return vd_leave(change_edges(graph, &edges, vd_edge_remove, vd_edge_add));
}
