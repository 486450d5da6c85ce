/* Executable graphs: made from graphs, launched, destroyed.
 *
 * A launch makes an item of each operation. The items of a node follow one another, its first one
 * follows the last one of each node before it. Two items without operations stand before and
 * behind all: the stream's work is ordered with these. The items own copies of all parameters, so
 * the executable graph may be changed or destroyed while they wait or run. */
#define __CUDA_API_VERSION_INTERNAL /* all versions of each function */
#include <vgpu/driver/graph.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool vd_exec_is(CUgraphExec exec)
{
    return vd_object_is(exec, VD_EXEC);
}

static CUresult make(CUgraphExec *exec, CUgraph graph, uint64_t flags,
                     struct CUgraphNode_st **cyclic)
{
    struct CUgraphExec_st *new = calloc(1, sizeof *new);
    if (!new) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = CUDA_SUCCESS;
    *cyclic = vd_graph_sort(graph, &result);
    if (*cyclic) result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) result = vd_graph_clone(graph, &new->graph);
    if (result == CUDA_SUCCESS) vd_graph_sort(new->graph, &result);
    if (result != CUDA_SUCCESS) {
        vd_graph_free(new->graph, NULL);
        free(new);
        return result;
    }
    new->flags = flags & ~(uint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    vd_object_add(new, VD_EXEC);
    *exec = new;
    return CUDA_SUCCESS;
}

/* The flags that instantiation without a structure takes lack UPLOAD: there is no stream for it. */
static CUresult instantiate(CUgraphExec *exec, CUgraph graph, uint64_t flags, uint64_t known,
                            struct CUgraphNode_st **cyclic, const char *function)
{
    *cyclic = NULL;
    if (!exec || !vd_graph_is(graph) || vd_graph_captures(graph) || graph->owner ||
        (flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return vd_unsupported(function, "graphs that kernels launch");
    const CUresult unsafe = vd_capture_unsafe();
    if (unsafe != CUDA_SUCCESS) return unsafe;
    return make(exec, graph, flags, cyclic);
}

static const uint64_t known_flags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                                    CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                             unsigned long long flags)
{
    VD_ENTER();
    struct CUgraphNode_st *cyclic;
    return vd_leave(instantiate(exec, graph, flags, known_flags, &cyclic, __func__));
}

static CUresult instantiate_with_log(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log,
                                     size_t nbytes, const char *function)
{
    struct CUgraphNode_st *cyclic;
    const CUresult result = instantiate(exec, graph, 0, 0, &cyclic, function);
    if (node) *node = cyclic;
    if (log && nbytes)
        snprintf(log, nbytes, "%s", cyclic ? "the node is part of a cycle of dependencies" : "");
    return result;
}

CUresult CUDAAPI cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log,
                                    size_t nbytes)
{
    VD_ENTER();
    return vd_leave(instantiate_with_log(exec, graph, node, log, nbytes, __func__));
}

CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node,
                                       char *log, size_t nbytes)
{
    VD_ENTER();
    return vd_leave(instantiate_with_log(exec, graph, node, log, nbytes, __func__));
}

/* Nothing is to be copied to a device; the stream must be one that takes work. */
static CUresult upload(CUstream handle, bool per_thread)
{
    struct CUstream_st *stream;
    const CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    return stream->capture ? vd_capture_waited(stream) : CUDA_SUCCESS;
}

static CUresult instantiate_with_params(CUgraphExec *exec, CUgraph graph,
                                        CUDA_GRAPH_INSTANTIATE_PARAMS *params, bool per_thread,
                                        const char *function)
{
    struct CUgraphNode_st *cyclic = NULL;
    CUresult result = CUDA_SUCCESS;
    if (!params) return CUDA_ERROR_INVALID_VALUE;
    if (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
        result = upload(params->hUploadStream, per_thread);
    if (result == CUDA_SUCCESS)
        result = instantiate(exec, graph, params->flags,
                             known_flags | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD, &cyclic, function);
    params->hErrNode_out = cyclic;
    params->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                         : cyclic               ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
                                                : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                              CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    VD_ENTER();
    return vd_leave(instantiate_with_params(exec, graph, params, false, __func__));
}

CUresult CUDAAPI cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                   CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    VD_ENTER();
    return vd_leave(instantiate_with_params(exec, graph, params, true, __func__));
}

CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
    VD_ENTER();
    if (!flags || !vd_exec_is(exec)) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *flags = exec->flags;
    return vd_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec)
{
    VD_ENTER();
    if (!vd_exec_is(exec)) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUresult unsafe = vd_capture_unsafe();
    if (unsafe != CUDA_SUCCESS) return vd_leave(unsafe);
    vd_object_remove(exec);
    vd_graph_free(exec->graph, exec->last);
    vd_item_put(exec->last);
    free(exec);
    return vd_leave(CUDA_SUCCESS);
}

/* The items of a launch, but for the first and the last, each with a reference. */
struct launch {
    struct CUctx_st *context; /* of the stream */
    struct vd_item **items;
    uint32_t n, room;
};

static struct vd_item *add_item(struct launch *launch, struct CUctx_st *context, struct vd_op *op)
{
    if (launch->n == launch->room) {
        const uint32_t room = launch->room ? 2 * launch->room : 16;
        struct vd_item **items = realloc(launch->items, room * sizeof *items);
        if (!items) {
            vd_op_clear(op);
            return NULL;
        }
        launch->items = items;
        launch->room = room;
    }
    struct vd_item *item = vd_item_new(context ? context : launch->context, op);
    if (item) launch->items[launch->n++] = item;
    return item;
}

static CUresult add_graph(struct launch *launch, struct CUgraph_st *graph, struct vd_item *first,
                          struct vd_item *last);

/* Events are recorded and waited for in the order of the sorted nodes, when the graph is launched.
 */
static CUresult add_event(struct launch *launch, const struct CUgraphNode_st *node,
                          struct vd_item **item)
{
    struct CUevent_st *event = node->work.event;
    const bool waits = node->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    struct vd_op op = {.what = VD_NOTHING};
    if (event->shared && waits) vd_shared_event_wait(event, &op);
    if (event->shared && !waits) vd_shared_event_record(event, &op);
    *item = add_item(launch, node->work.context, &op);
    if (!*item) return CUDA_ERROR_OUT_OF_MEMORY;
    if (waits)
        return !event->shared && vd_item_after(*item, event->record) ? CUDA_ERROR_OUT_OF_MEMORY
                                                                     : CUDA_SUCCESS;
    vd_capture_forget(event);
    vd_item_put(event->record);
    event->record = vd_item_get(*item);
    return CUDA_SUCCESS;
}

/* The node's items, *begin to *end, which follow one another. */
static CUresult add_work(struct launch *launch, struct CUgraphNode_st *node, struct vd_item **begin,
                         struct vd_item **end)
{
    const struct vd_work *work = &node->work;
    struct vd_op op = {.what = VD_NOTHING};
    if (work->event) {
        const CUresult result = add_event(launch, node, end);
        *begin = *end;
        return result;
    }
    if (!work->nops || node->disabled) {
        *begin = *end = add_item(launch, work->context, &op);
        if (!*begin) return CUDA_ERROR_OUT_OF_MEMORY;
        if (!work->child) return CUDA_SUCCESS;
        *end = add_item(launch, work->context, &op);
        return *end ? add_graph(launch, work->child, *begin, *end) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    *begin = *end = NULL;
    for (uint32_t i = 0; i < work->nops; i++) {
        if (!vd_op_clone(&op, &work->ops[i])) return CUDA_ERROR_OUT_OF_MEMORY;
        struct vd_item *item = add_item(launch, work->context, &op);
        if (!item || vd_item_after(item, *end)) return CUDA_ERROR_OUT_OF_MEMORY;
        if (!*begin) *begin = item;
        *end = item;
    }
    return CUDA_SUCCESS;
}

static CUresult add_graph(struct launch *launch, struct CUgraph_st *graph, struct vd_item *first,
                          struct vd_item *last)
{
    int status = vd_item_after(last, first);
    for (uint32_t i = 0; i < graph->nnodes; i++) {
        struct CUgraphNode_st *node = graph->sorted[i];
        struct vd_item *begin;
        const CUresult result = add_work(launch, node, &begin, &node->item);
        if (result != CUDA_SUCCESS) return result;
        if (!node->before.n) status |= vd_item_after(begin, first);
        for (uint32_t k = 0; k < node->before.n; k++)
            status |= vd_item_after(begin, node->before.at[k]->item);
        if (!node->after.n) status |= vd_item_after(last, node->item);
    }
    return status ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* What nodes name may have been destroyed since. */
static CUresult check(const struct CUgraph_st *graph)
{
    for (uint32_t i = 0; i < graph->nnodes; i++) {
        const struct CUgraphNode_st *node = graph->nodes[i];
        const struct vd_work *work = &node->work;
        CUresult result = CUDA_SUCCESS;
        if (node->type == CU_GRAPH_NODE_TYPE_KERNEL &&
            !vd_object_is(work->ops[0].launch.function, VD_FUNCTION))
            result = CUDA_ERROR_INVALID_HANDLE;
        else if (work->context && !vd_context_is(work->context))
            result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
        else if (work->event && !vd_object_is(work->event, VD_EVENT))
            result = CUDA_ERROR_INVALID_HANDLE;
        else if (work->context && work->context->sticky != CUDA_SUCCESS)
            result = work->context->sticky;
        else if (work->child)
            result = check(work->child);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

static CUresult submit(struct CUgraphExec_st *exec, struct CUstream_st *stream,
                       struct launch *launch, struct vd_item *first, struct vd_item *last)
{
    CUresult result = add_graph(launch, exec->graph, first, last);
    if (result == CUDA_SUCCESS && vd_item_after(first, exec->last))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) result = vd_stream_append(stream, first, last);
    if (result != CUDA_SUCCESS) return result;
    for (uint32_t i = 0; i < launch->n; i++) vd_item_submit(launch->items[i]);
    vd_item_put(exec->last);
    exec->last = vd_item_get(last);
    return CUDA_SUCCESS;
}

static CUresult launch(CUgraphExec exec, CUstream handle, bool per_thread)
{
    struct CUstream_st *stream;
    struct vd_op nothing = {.what = VD_NOTHING};
    CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (!vd_exec_is(exec)) return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture) return vd_capture_waited(stream); /* measured: not a child graph */
    if (stream == &stream->context->legacy) result = vd_capture_implicit(stream->context);
    if (result == CUDA_SUCCESS) result = check(exec->graph);
    if (result == CUDA_SUCCESS)
        result = vd_graph_memory_check(
            exec->graph, exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, stream);
    if (result != CUDA_SUCCESS) return result;
    struct launch launch = {.context = stream->context};
    struct vd_item *first = vd_item_new(stream->context, &nothing);
    struct vd_item *last = vd_item_new(stream->context, &nothing);
    result = first && last ? submit(exec, stream, &launch, first, last) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) vd_graph_memory_launched(exec->graph);
    for (uint32_t i = 0; i < launch.n; i++) vd_item_put(launch.items[i]);
    free(launch.items);
    vd_item_put(first);
    vd_item_put(last);
    return result;
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    VD_ENTER();
    return vd_leave(launch(exec, stream, false));
}

CUresult CUDAAPI cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    VD_ENTER();
    return vd_leave(launch(exec, stream, true));
}

CUresult CUDAAPI cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    VD_ENTER();
    return vd_leave(vd_exec_is(exec) ? upload(stream, false) : CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    VD_ENTER();
    return vd_leave(vd_exec_is(exec) ? upload(stream, true) : CUDA_ERROR_INVALID_VALUE);
}
