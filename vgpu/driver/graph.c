/* Graphs as a structure: nodes, edges, clones. What nodes do is node.c's. */
#include <vgpu/driver/graph.h>

#include <stdlib.h>
#include <string.h>

struct CUgraph_st *vd_graph_new(void)
{
    struct CUgraph_st *graph = calloc(1, sizeof *graph);
    if (!graph) return NULL;
    vd_object_add(graph, VD_GRAPH);
    return graph;
}

void vd_graph_free(struct CUgraph_st *graph, struct vd_item *running)
{
    if (!graph) return;
    vd_object_remove(graph);
    for (uint32_t i = 0; i < graph->nnodes; i++) vd_node_free(graph->nodes[i], running);
    vd_uses_free(graph->uses, running);
    free(graph->nodes);
    free(graph->sorted);
    free(graph);
}

bool vd_graph_is(CUgraph graph)
{
    return vd_object_is(graph, VD_GRAPH);
}

bool vd_graph_captures(const struct CUgraph_st *graph)
{
    if (graph->captures) return true;
    for (uint32_t i = 0; i < graph->nnodes; i++)
        if (graph->nodes[i]->work.child && vd_graph_captures(graph->nodes[i]->work.child))
            return true;
    return false;
}

bool vd_node_is(CUgraphNode node)
{
    return vd_object_is(node, VD_NODE);
}

CUresult vd_nodes_add(struct vd_nodes *nodes, struct CUgraphNode_st *node)
{
    if (nodes->n == nodes->room) {
        const uint32_t room = nodes->room ? 2 * nodes->room : 4;
        struct CUgraphNode_st **at = realloc(nodes->at, room * sizeof *at);
        if (!at) return CUDA_ERROR_OUT_OF_MEMORY;
        nodes->at = at;
        nodes->room = room;
    }
    nodes->at[nodes->n++] = node;
    return CUDA_SUCCESS;
}

bool vd_nodes_has(const struct vd_nodes *nodes, const struct CUgraphNode_st *node)
{
    for (uint32_t i = 0; i < nodes->n; i++)
        if (nodes->at[i] == node) return true;
    return false;
}

static void remove_from(struct vd_nodes *nodes, const struct CUgraphNode_st *node)
{
    for (uint32_t i = 0; i < nodes->n; i++)
        if (nodes->at[i] == node) {
            nodes->n--;
            memmove(nodes->at + i, nodes->at + i + 1, (nodes->n - i) * sizeof(CUgraphNode));
            return;
        }
}

struct CUgraphNode_st *vd_node_new(struct CUgraph_st *graph, CUgraphNodeType type)
{
    if (graph->nnodes == graph->room) {
        const uint32_t room = graph->room ? 2 * graph->room : 8;
        struct CUgraphNode_st **nodes = realloc(graph->nodes, room * sizeof *nodes);
        if (!nodes) return NULL;
        graph->nodes = nodes;
        graph->room = room;
    }
    struct CUgraphNode_st *node = calloc(1, sizeof *node);
    if (!node) return NULL;
    vd_object_add(node, VD_NODE);
    node->graph = graph;
    node->type = type;
    graph->nodes[graph->nnodes++] = node;
    return node;
}

/* Its edges are gone, or go with the graph. */
void vd_node_free(struct CUgraphNode_st *node, struct vd_item *running)
{
    vd_object_remove(node);
    vd_work_clear(&node->work, running);
    free(node->before.at);
    free(node->after.at);
    free(node);
}

CUresult vd_edge_add(struct CUgraphNode_st *from, struct CUgraphNode_st *to)
{
    if (from == to || from->graph != to->graph || vd_nodes_has(&to->before, from))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vd_nodes_add(&to->before, from);
    if (result != CUDA_SUCCESS) return result;
    result = vd_nodes_add(&from->after, to);
    if (result != CUDA_SUCCESS) to->before.n--;
    return result;
}

CUresult vd_edge_remove(struct CUgraphNode_st *from, struct CUgraphNode_st *to)
{
    if (!vd_nodes_has(&to->before, from)) return CUDA_ERROR_INVALID_VALUE;
    remove_from(&to->before, from);
    remove_from(&from->after, to);
    return CUDA_SUCCESS;
}

bool vd_nodes_are_of(const struct CUgraph_st *graph, const CUgraphNode *nodes, size_t n)
{
    if (n > graph->nnodes) return false; /* the array is not as long as its count says */
    return vd_ends_are_of(graph, nodes, n);
}

bool vd_ends_are_of(const struct CUgraph_st *graph, const CUgraphNode *nodes, size_t n)
{
    if (n && !nodes) return false;
    if (n > (uint64_t)graph->nnodes * graph->nnodes) return false; /* more than it can have */
    for (size_t i = 0; i < n; i++)
        if (!vd_node_is(nodes[i]) || nodes[i]->graph != graph) return false;
    return true;
}

/* The clone of a node of the same place; edges follow when all nodes are there. */
static CUresult clone_node(struct CUgraph_st *graph, const struct CUgraphNode_st *node)
{
    struct CUgraphNode_st *clone = vd_node_new(graph, node->type);
    if (!clone) return CUDA_ERROR_OUT_OF_MEMORY;
    clone->origin = node->object.number;
    clone->disabled = node->disabled;
    const CUresult result = vd_work_clone(&clone->work, &node->work);
    if (result == CUDA_SUCCESS && clone->work.child) clone->work.child->owner = clone;
    return result;
}

static CUresult clone_edges(struct CUgraph_st *clone, const struct CUgraph_st *graph)
{
    for (uint32_t i = 0; i < graph->nnodes; i++) graph->nodes[i]->paired = clone->nodes[i];
    for (uint32_t i = 0; i < graph->nnodes; i++) {
        const struct vd_nodes *before = &graph->nodes[i]->before, *after = &graph->nodes[i]->after;
        for (uint32_t k = 0; k < before->n; k++)
            if (vd_nodes_add(&clone->nodes[i]->before, before->at[k]->paired) != CUDA_SUCCESS)
                return CUDA_ERROR_OUT_OF_MEMORY;
        for (uint32_t k = 0; k < after->n; k++)
            if (vd_nodes_add(&clone->nodes[i]->after, after->at[k]->paired) != CUDA_SUCCESS)
                return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult vd_graph_clone(const struct CUgraph_st *graph, struct CUgraph_st **clone)
{
    struct CUgraph_st *new = vd_graph_new();
    if (!new) return CUDA_ERROR_OUT_OF_MEMORY;
    new->origin = graph->object.number;
    CUresult result = vd_uses_clone(graph->uses, &new->uses);
    for (uint32_t i = 0; i < graph->nnodes && result == CUDA_SUCCESS; i++)
        result = clone_node(new, graph->nodes[i]);
    if (result == CUDA_SUCCESS) result = clone_edges(new, graph);
    if (result != CUDA_SUCCESS) {
        vd_graph_free(new, NULL);
        return result;
    }
    *clone = new;
    return CUDA_SUCCESS;
}

struct CUgraphNode_st *vd_graph_find_clone(struct CUgraph_st *graph,
                                           const struct CUgraphNode_st *original)
{
    for (uint32_t i = 0; i < graph->nnodes; i++)
        if (graph->nodes[i]->origin == original->object.number) return graph->nodes[i];
    for (uint32_t i = 0; i < graph->nnodes; i++) {
        struct CUgraphNode_st *found =
            graph->nodes[i]->work.child ? vd_graph_find_clone(graph->nodes[i]->work.child, original)
                                        : NULL;
        if (found) return found;
    }
    return NULL;
}

uint64_t vd_graph_mark(const struct vd_nodes *nodes)
{
    static uint64_t walks;
    const uint64_t mark = ++walks;
    struct vd_nodes open = {0};
    for (uint32_t i = 0; i < nodes->n; i++) {
        nodes->at[i]->mark = mark;
        if (vd_nodes_add(&open, nodes->at[i]) != CUDA_SUCCESS) break;
    }
    while (open.n) {
        const struct vd_nodes *before = &open.at[--open.n]->before;
        for (uint32_t k = 0; k < before->n; k++)
            if (before->at[k]->mark != mark) {
                before->at[k]->mark = mark;
                if (vd_nodes_add(&open, before->at[k]) != CUDA_SUCCESS) break;
            }
    }
    free(open.at);
    return mark;
}

/* Kahn's algorithm. Of nodes that may run at the same time, the one that was added first is first.
 */
static struct CUgraphNode_st *sort_one(struct CUgraph_st *graph, CUresult *result)
{
    free(graph->sorted);
    graph->sorted = calloc(graph->nnodes + 1u, sizeof(CUgraphNode));
    if (!graph->sorted) {
        *result = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < graph->nnodes; i++) {
        graph->nodes[i]->waits = graph->nodes[i]->before.n;
        if (!graph->nodes[i]->waits) graph->sorted[n++] = graph->nodes[i];
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < graph->sorted[i]->after.n; k++) {
            struct CUgraphNode_st *next = graph->sorted[i]->after.at[k];
            if (--next->waits == 0) graph->sorted[n++] = next;
        }
    for (uint32_t i = 0; i < graph->nnodes && n < graph->nnodes; i++)
        if (graph->nodes[i]->waits) return graph->nodes[i];
    return NULL;
}

struct CUgraphNode_st *vd_graph_sort(struct CUgraph_st *graph, CUresult *result)
{
    struct CUgraphNode_st *cyclic = sort_one(graph, result);
    for (uint32_t i = 0; i < graph->nnodes && !cyclic && *result == CUDA_SUCCESS; i++)
        if (graph->nodes[i]->work.child)
            cyclic = vd_graph_sort(graph->nodes[i]->work.child, result);
    return cyclic;
}
