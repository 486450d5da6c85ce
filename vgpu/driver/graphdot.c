/* cuGraphDebugDotPrint: a graph as text for Graphviz. */
#include <vgpu/driver/graph.h>

#include <stdio.h>

static const char *name_of(CUgraphNodeType type)
{
    static const char *const names[] = {"kernel",
                                        "memcpy",
                                        "memset",
                                        "host",
                                        "child graph",
                                        "empty",
                                        "wait for event",
                                        "record event",
                                        "signal",
                                        "wait",
                                        "allocate",
                                        "free",
                                        "memory operations",
                                        "conditional"};
    return (size_t)type < sizeof names / sizeof *names ? names[type] : "unknown";
}

static void print_graph(FILE *file, const struct CUgraph_st *graph)
{
    for (uint32_t i = 0; i < graph->nnodes; i++) {
        const struct CUgraphNode_st *node = graph->nodes[i];
        const unsigned long long number = node->object.number;
        const bool kernel = node->type == CU_GRAPH_NODE_TYPE_KERNEL &&
                            vd_object_is(node->work.ops[0].launch.function, VD_FUNCTION);
        fprintf(file, "n%llu [label=\"%llu: %s %s\"];\n", number, number, name_of(node->type),
                kernel ? node->work.ops[0].launch.function->kernel->name : "");
        for (uint32_t k = 0; k < node->before.n; k++)
            fprintf(file, "n%llu -> n%llu;\n",
                    (unsigned long long)node->before.at[k]->object.number, number);
        if (!node->work.child) continue;
        fprintf(file, "subgraph cluster_%llu {\n", number);
        print_graph(file, node->work.child);
        fprintf(file, "}\n");
    }
}

CUresult CUDAAPI cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned flags)
{
    VD_ENTER();
    (void)flags; /* more or fewer details */
    if (!path || !vd_graph_is(graph)) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    FILE *file = fopen(path, "w");
    if (!file) return vd_leave(CUDA_ERROR_OPERATING_SYSTEM);
    fprintf(file, "digraph graph_%llu {\n", (unsigned long long)graph->object.number);
    print_graph(file, graph);
    fprintf(file, "}\n");
    return vd_leave(fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM);
}
