/* Changes of executable graphs: of one node, or of all by another graph of the same shape. */
#define __CUDA_API_VERSION_INTERNAL /* all versions of each function */
#include <vgpu/driver/graph.h>

#include <stdlib.h>
#include <string.h>

/* A node of the executable graph, and the one that it is to be like. */
struct pair {
    struct CUgraphNode_st *mine, *theirs;
};

struct pairs {
    struct pair *at;
    uint32_t n, room;
    CUgraphExecUpdateResultInfo info; /* why two graphs do not match */
};

static CUgraphExecUpdateResult differ(struct pairs *pairs, CUgraphExecUpdateResult result,
                                      CUgraphNode node, CUgraphNode from)
{
    pairs->info = (CUgraphExecUpdateResultInfo){result, node, from};
    return result;
}

static CUgraphExecUpdateResult add_pair(struct pairs *pairs, struct CUgraphNode_st *mine,
                                        struct CUgraphNode_st *theirs)
{
    if (pairs->n == pairs->room) {
        const uint32_t room = pairs->room ? 2 * pairs->room : 16;
        struct pair *at = realloc(pairs->at, room * sizeof *at);
        if (!at) return differ(pairs, CU_GRAPH_EXEC_UPDATE_ERROR, NULL, NULL);
        pairs->at = at;
        pairs->room = room;
    }
    pairs->at[pairs->n++] = (struct pair){mine, theirs};
    mine->paired = theirs;
    theirs->paired = mine;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* Nodes without any behind them, in the order in which they were added. */
static struct CUgraphNode_st *next_exit(const struct CUgraph_st *graph, uint32_t *i)
{
    while (*i < graph->nnodes && graph->nodes[*i]->after.n) ++*i;
    return *i < graph->nnodes ? graph->nodes[(*i)++] : NULL;
}

static CUgraphExecUpdateResult pair_exits(struct pairs *pairs, struct CUgraph_st *mine,
                                          struct CUgraph_st *theirs)
{
    uint32_t i = 0, k = 0;
    for (;;) {
        struct CUgraphNode_st *a = next_exit(mine, &i), *b = next_exit(theirs, &k);
        if (!a && !b) return CU_GRAPH_EXEC_UPDATE_SUCCESS;
        if (!a || !b) return differ(pairs, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, b, NULL);
        const CUgraphExecUpdateResult result = add_pair(pairs, a, b);
        if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
    }
}

static CUgraphExecUpdateResult pair_before(struct pairs *pairs, struct pair of)
{
    const struct vd_nodes *mine = &of.mine->before, *theirs = &of.theirs->before;
    if (of.mine->type != of.theirs->type)
        return differ(pairs, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, of.theirs, NULL);
    if (mine->n != theirs->n)
        return differ(pairs, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, of.theirs, NULL);
    for (uint32_t k = 0; k < mine->n; k++) {
        struct CUgraphNode_st *a = mine->at[k], *b = theirs->at[k];
        if (a->paired == b && b->paired == a) continue;
        if (a->paired || b->paired)
            return differ(pairs, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, of.theirs, b);
        const CUgraphExecUpdateResult result = add_pair(pairs, a, b);
        if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* Pairs the nodes of two graphs, from their ends backwards, and those of their child graphs. */
static CUgraphExecUpdateResult pair_graphs(struct pairs *pairs, struct CUgraph_st *mine,
                                           struct CUgraph_st *theirs)
{
    const uint32_t begin = pairs->n;
    if (mine->nnodes != theirs->nnodes)
        return differ(pairs, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
    for (uint32_t i = 0; i < mine->nnodes; i++)
        mine->nodes[i]->paired = theirs->nodes[i]->paired = NULL;
    CUgraphExecUpdateResult result = pair_exits(pairs, mine, theirs);
    for (uint32_t i = begin; i < pairs->n && result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++)
        result = pair_before(pairs, pairs->at[i]);
    if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
    const uint32_t end = pairs->n;
    if (end - begin != mine->nnodes)
        return differ(pairs, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
    for (uint32_t i = begin; i < end && result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++) {
        const struct pair pair = pairs->at[i];
        if (pair.mine->work.child)
            result = pair_graphs(pairs, pair.mine->work.child, pair.theirs->work.child);
    }
    return result;
}

/* The memory on which a copy's end lies: its device, -1 for the host. */
static int device_of(uint64_t address)
{
    const struct vd_memory *memory = vd_memory_find(address);
    return memory && memory->kind != VD_MEMORY_HOST && memory->kind != VD_MEMORY_REGISTERED
               ? memory->device
               : -1;
}

static bool copy_may_change(const struct vd_work *from, const struct vd_work *to)
{
    if (from->nops != 1 || to->nops != 1) return false;
    const struct vd_copy *a = &from->ops[0].copy, *b = &to->ops[0].copy;
    return a->height == 1 && b->height == 1 && device_of(a->to) == device_of(b->to) &&
           device_of(a->from) == device_of(b->from);
}

static bool fill_may_change(const struct vd_work *from, const struct vd_work *to)
{
    const struct vd_fill *a = &from->ops[0].fill, *b = &to->ops[0].fill;
    if (a->height != b->height || device_of(a->to) != device_of(b->to)) return false;
    return a->height == 1 ||
           (a->width == b->width && a->pitch == b->pitch && a->nbytes == b->nbytes);
}

static bool memops_may_change(const struct vd_work *from, const struct vd_work *to)
{
    if (from->nops != to->nops) return false;
    for (uint32_t i = 0; i < from->nops; i++)
        if (from->ops[i].what != to->ops[i].what) return false;
    return true;
}

/* What an executable graph's node may do instead, as the manual of cuGraphExecUpdate lists it. */
static CUgraphExecUpdateResult may_change(CUgraphNodeType type, const struct vd_work *from,
                                          const struct vd_work *to)
{
    bool may = true;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        if (from->context != to->context)
            return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
        if (from->ops[0].launch.cooperative != to->ops[0].launch.cooperative)
            return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        may = copy_may_change(from, to);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        may = fill_may_change(from, to);
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        may = memops_may_change(from, to);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    default:
        break;
    }
    return may ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

static CUgraphExecUpdateResult check_pairs(struct pairs *pairs)
{
    for (uint32_t i = 0; i < pairs->n; i++) {
        const struct pair pair = pairs->at[i];
        const CUgraphExecUpdateResult result =
            may_change(pair.mine->type, &pair.mine->work, &pair.theirs->work);
        if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return differ(pairs, result, pair.theirs, NULL);
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* All nodes, or none of them. A child graph stays: its nodes are pairs of their own. */
static CUresult apply(const struct pairs *pairs)
{
    struct vd_work *works = calloc(pairs->n + 1u, sizeof *works);
    CUresult result = works ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < pairs->n && result == CUDA_SUCCESS; i++)
        if (!pairs->at[i].mine->work.child)
            result = vd_work_clone(&works[i], &pairs->at[i].theirs->work);
    for (uint32_t i = 0; i < pairs->n && works; i++) {
        if (result != CUDA_SUCCESS)
            vd_work_clear(&works[i], NULL);
        else if (!pairs->at[i].mine->work.child)
            vd_node_set(pairs->at[i].mine, &works[i]);
    }
    free(works);
    return result;
}

static CUresult update_graph(struct CUgraph_st *mine, struct CUgraph_st *theirs,
                             CUgraphExecUpdateResultInfo *info)
{
    struct pairs pairs = {0};
    CUgraphExecUpdateResult matched = pair_graphs(&pairs, mine, theirs);
    if (matched == CU_GRAPH_EXEC_UPDATE_SUCCESS) matched = check_pairs(&pairs);
    CUresult result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    if (matched == CU_GRAPH_EXEC_UPDATE_SUCCESS) result = apply(&pairs);
    *info = pairs.info;
    free(pairs.at);
    return result;
}

static CUresult update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    if (!vd_exec_is(exec) || !vd_graph_is(graph) || graph->owner || vd_graph_captures(graph))
        return CUDA_ERROR_INVALID_VALUE;
    struct vd_use *uses = NULL;
    CUresult result = vd_uses_clone(graph->uses, &uses);
    if (result == CUDA_SUCCESS) result = update_graph(exec->graph, graph, info);
    if (result != CUDA_SUCCESS) {
        vd_uses_free(uses, NULL);
        return result;
    }
    vd_uses_free(exec->graph->uses, exec->last);
    exec->graph->uses = uses;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                      CUgraphExecUpdateResultInfo *info)
{
    VD_ENTER();
    return vd_leave(info ? update(exec, graph, info) : CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node,
                                   CUgraphExecUpdateResult *why)
{
    VD_ENTER();
    CUgraphExecUpdateResultInfo info;
    const CUresult result = update(exec, graph, &info);
    if (node) *node = info.errorNode;
    if (why) *why = info.result;
    return vd_leave(result);
}

CUresult vd_exec_set_params(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params,
                            const char *function)
{
    if (!vd_exec_is(exec) || !vd_node_is(node) || node->type != params->type)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUgraphNode_st *mine = vd_graph_find_clone(exec->graph, node);
    if (!mine) return CUDA_ERROR_INVALID_VALUE;
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        CUgraphExecUpdateResultInfo info;
        if (!vd_graph_is(params->graph.graph)) return CUDA_ERROR_INVALID_VALUE;
        return update_graph(mine->work.child, params->graph.graph, &info);
    }
    struct vd_work work;
    CUresult result = vd_work_make(&work, params, function);
    if (result != CUDA_SUCCESS) return result;
    /* Attributes are not among the parameters: those of the node stay. */
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        work.priority = mine->work.priority;
        work.ops[0].launch.cooperative = mine->work.ops[0].launch.cooperative;
    }
    if (may_change(node->type, &mine->work, &work) != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        vd_work_clear(&work, NULL);
        return CUDA_ERROR_INVALID_VALUE;
    }
    vd_node_set(mine, &work);
    return CUDA_SUCCESS;
}

/* The executable graph's node for this one, if it is of a kind that can be disabled. */
static struct CUgraphNode_st *find_for_enabling(CUgraphExec exec, CUgraphNode node)
{
    if (!vd_exec_is(exec) || !vd_node_is(node)) return NULL;
    if (node->type != CU_GRAPH_NODE_TYPE_KERNEL && node->type != CU_GRAPH_NODE_TYPE_MEMCPY &&
        node->type != CU_GRAPH_NODE_TYPE_MEMSET)
        return NULL;
    return vd_graph_find_clone(exec->graph, node);
}

CUresult CUDAAPI cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled)
{
    VD_ENTER();
    struct CUgraphNode_st *mine = find_for_enabling(exec, node);
    if (!mine) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    mine->disabled = !enabled;
    return vd_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned *enabled)
{
    VD_ENTER();
    const struct CUgraphNode_st *mine = find_for_enabling(exec, node);
    if (!mine || !enabled) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *enabled = !mine->disabled;
    return vd_leave(CUDA_SUCCESS);
}
