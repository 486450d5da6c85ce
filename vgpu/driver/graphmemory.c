/* Memory of allocation nodes: the addresses that cuMemAllocAsync gave while it was captured. */
#include <vgpu/driver/graph.h>
#include <vgpu/driver/memory_internal.h>

#include <stdlib.h>

static struct vd_graph_memory *memories;

struct vd_graph_memory *vd_graph_memory_find(uint64_t address)
{
    struct vd_graph_memory *memory = memories;
    while (memory && memory->address != address) memory = memory->next;
    return memory;
}

struct vd_graph_memory *vd_graph_memory_new(struct CUctx_st *context, uint64_t address)
{
    const struct vd_memory *there = vd_memory_find(address);
    struct vd_graph_memory *memory = malloc(sizeof *memory);
    if (!memory) return NULL;
    *memory = (struct vd_graph_memory){.refs = 1,
                                       .context = context,
                                       .address = address,
                                       .nbytes = there ? there->nbytes : 0,
                                       .next = memories};
    memories = memory;
    return memory;
}

/* Memory that is allocated stays until the program frees it. */
static void give_back(const struct vd_graph_memory *memory, struct vd_item *running)
{
    struct vd_memory *there = vd_memory_find(memory->address);
    struct vd_op op = {.what = VD_FREE, .address = memory->address};
    if (!there || there->freeing || !vd_context_is(memory->context)) return;
    if (memory->live) {
        there->graph = false;
        return;
    }
    struct vd_item *item = vd_item_new(memory->context, &op);
    if (!item) return;
    there->freeing = true; /* not for the next launch only */
    vd_item_after(item, running);
    vd_item_submit(item);
    vd_item_put(item);
}

void vd_graph_memory_put(struct vd_graph_memory *memory, struct vd_item *running)
{
    if (!memory || --memory->refs) return;
    struct vd_graph_memory **at = &memories;
    while (*at != memory) at = &(*at)->next;
    *at = memory->next;
    give_back(memory, running);
    free(memory);
}

bool vd_graph_memory_free(uint64_t address)
{
    struct vd_graph_memory *memory = vd_graph_memory_find(address);
    if (!memory || !memory->live) return false;
    memory->live = false;
    return true;
}

CUresult vd_graph_memory_check(const struct CUgraph_st *graph, bool frees_first,
                               struct CUstream_st *stream)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < graph->nnodes && result == CUDA_SUCCESS; i++) {
        const struct CUgraphNode_st *node = graph->nodes[i];
        struct vd_graph_memory *memory = node->work.memory;
        if (node->work.child) result = vd_graph_memory_check(node->work.child, frees_first, stream);
        if (node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || !memory->live) continue;
        if (!frees_first) return CUDA_ERROR_INVALID_VALUE;
        struct vd_op op = {.what = VD_FREE, .address = memory->address};
        result = vd_stream_enqueue(stream, &op, NULL);
        if (result == CUDA_SUCCESS) memory->live = false;
    }
    return result;
}

static void set_live(const struct CUgraph_st *graph, CUgraphNodeType type, bool live)
{
    for (uint32_t i = 0; i < graph->nnodes; i++) {
        const struct CUgraphNode_st *node = graph->nodes[i];
        if (node->type == type) node->work.memory->live = live;
        if (node->work.child) set_live(node->work.child, type, live);
    }
}

void vd_graph_memory_launched(const struct CUgraph_st *graph)
{
    set_live(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, true);
    set_live(graph, CU_GRAPH_NODE_TYPE_MEM_FREE, false);
}

CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice device)
{
    VD_ENTER();
    return vd_leave(device < 0 || device >= vd.ndevices ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                              void *value)
{
    VD_ENTER();
    if (device < 0 || device >= vd.ndevices) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    if (!value || (unsigned)attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    cuuint64_t nbytes = 0;
    for (const struct vd_graph_memory *memory = memories; memory; memory = memory->next)
        if (memory->context->device == &vd.devices[device]) nbytes += memory->nbytes;
    *(cuuint64_t *)value = nbytes;
    return vd_leave(CUDA_SUCCESS);
}

/* Only the high watermarks can be set, to 0; they are not kept apart from the present values. */
CUresult CUDAAPI cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                              void *value)
{
    VD_ENTER();
    if (device < 0 || device >= vd.ndevices) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    const bool high = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
                      attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    if (!value || !high || *(const cuuint64_t *)value) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    return vd_leave(CUDA_SUCCESS);
}
