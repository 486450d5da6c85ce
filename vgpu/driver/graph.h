/* What the files of graphs share: graphs, their nodes, and executable graphs.
 *
 * A graph owns its nodes and the graphs of its child nodes. An executable graph is a clone of a
 * graph that no handle names: each clone remembers the number of the node that it was made from,
 * so a change through the original node's handle finds it. All functions need the driver's lock. */
#ifndef VGPU_GRAPH_H
#define VGPU_GRAPH_H

#include <vgpu/driver/driver.h>

/* References that a graph holds to a user object. */
struct vd_use {
    struct CUuserObject_st *object;
    uint32_t count;
    struct vd_use *next;
};

struct CUgraph_st {
    struct vd_object object;
    struct CUgraphNode_st **nodes;  /* in the order in which they were added */
    struct CUgraphNode_st **sorted; /* of an executable graph: every node after those before it */
    uint32_t nnodes, room;
    struct CUgraphNode_st *owner; /* the child graph node that owns it, or NULL */
    uint64_t origin;              /* number of the graph that it was cloned from, or 0 */
    uint32_t captures;            /* that add nodes to it now */
    struct vd_use *uses;
};

struct vd_nodes {
    struct CUgraphNode_st **at;
    uint32_t n, room;
};

/* Memory of an allocation node. The address is taken when the node is captured and given back with
 * the last node that names it; each launch makes the memory usable (VD_ALLOC). What frees it
 * (VD_FREE) is a node of the same graph, of another graph, or the program. */
struct vd_graph_memory {
    uint32_t refs;
    struct CUctx_st *context;
    uint64_t address, nbytes;
    bool freed; /* a free node stands for it */
    bool live;  /* by the order of calls: a launch has allocated it, nothing has freed it since */
    struct vd_graph_memory *next;
};

/* ---- graphmemory.c ---- */

/* Of the address, if an allocation node made it; NULL. */
struct vd_graph_memory *vd_graph_memory_find(uint64_t address);
struct vd_graph_memory *vd_graph_memory_new(struct CUctx_st *context, uint64_t address);
/* Drops a reference; the address is given back when `running` (or NULL) has ended. */
void vd_graph_memory_put(struct vd_graph_memory *memory, struct vd_item *running);
/* The graph is about to be launched in the stream: memory that an earlier launch has allocated is
 * freed first, or an error. */
CUresult vd_graph_memory_check(const struct CUgraph_st *graph, bool frees_first,
                               struct CUstream_st *stream);
/* The graph was launched. */
void vd_graph_memory_launched(const struct CUgraph_st *graph);

/* What a node does. Everything that pointers name is the node's, but for context and event. */
struct vd_work {
    struct CUctx_st *context; /* NULL: that of the stream in which the graph is launched */
    struct vd_op *ops;        /* run one after another; none: the node only joins edges */
    uint32_t nops;
    CUDA_MEMCPY3D copy;               /* of a memcpy node: what its operations were made from */
    CUstreamBatchMemOpParams *memops; /* of a batch memory operation node: a copy of its array */
    uint32_t nmemops;
    struct CUgraph_st *child;
    struct CUevent_st *event;
    struct vd_graph_memory *memory; /* of an allocation or free node: a reference */
    void **pointers;                /* to a kernel's parameters, for cuGraphKernelNodeGetParams */
    int priority;
};

struct CUgraphNode_st {
    struct vd_object object;
    struct CUgraph_st *graph;
    CUgraphNodeType type;
    uint64_t origin; /* number of the node that it was cloned from, or 0 */
    struct vd_nodes before, after;
    struct vd_work work;
    bool disabled; /* of an executable graph's node */
    /* while a function walks over the graph */
    uint64_t mark;
    uint32_t waits;
    struct vd_item *item;          /* its last, during a launch */
    struct CUgraphNode_st *paired; /* in a clone, or during an update */
};

struct CUgraphExec_st {
    struct vd_object object;
    struct CUgraph_st *graph;
    uint64_t flags;
    struct vd_item *last; /* of the last launch, or NULL */
};

/* ---- graph.c ---- */

struct CUgraph_st *vd_graph_new(void);
/* Frees the graph, its nodes and their child graphs. References to user objects and memory are
 * released when `running` has ended (NULL: now). */
void vd_graph_free(struct CUgraph_st *graph, struct vd_item *running);
/* A node without edges and operations, last in its graph. NULL: no memory. */
struct CUgraphNode_st *vd_node_new(struct CUgraph_st *graph, CUgraphNodeType type);
void vd_node_free(struct CUgraphNode_st *node, struct vd_item *running);
CUresult vd_nodes_add(struct vd_nodes *nodes, struct CUgraphNode_st *node);
bool vd_nodes_has(const struct vd_nodes *nodes, const struct CUgraphNode_st *node);
/* to after from. INVALID_VALUE: the edge exists, or from is to, or they are not of one graph. */
CUresult vd_edge_add(struct CUgraphNode_st *from, struct CUgraphNode_st *to);
CUresult vd_edge_remove(struct CUgraphNode_st *from, struct CUgraphNode_st *to);
/* A deep copy; *clone has no owner. */
CUresult vd_graph_clone(const struct CUgraph_st *graph, struct CUgraph_st **clone);
/* The node of the graph, or of its child graphs, that was cloned from this one, or NULL. */
struct CUgraphNode_st *vd_graph_find_clone(struct CUgraph_st *graph,
                                           const struct CUgraphNode_st *original);
/* Marks the nodes and all before them with a number that no other walk has, and returns it. */
uint64_t vd_graph_mark(const struct vd_nodes *nodes);
/* Orders the nodes of the graph and its child graphs. NULL, or a node of a cycle; *result: no
 * memory. */
struct CUgraphNode_st *vd_graph_sort(struct CUgraph_st *graph, CUresult *result);
bool vd_graph_is(CUgraph graph);
/* A capture adds nodes to the graph, or to a child graph of its. */
bool vd_graph_captures(const struct CUgraph_st *graph);
bool vd_node_is(CUgraphNode node);
/* n nodes of the graph, or n ends of its edges. A count that no graph of this size has is refused
 * before the array is read. */
bool vd_nodes_are_of(const struct CUgraph_st *graph, const CUgraphNode *nodes, size_t n);
bool vd_ends_are_of(const struct CUgraph_st *graph, const CUgraphNode *nodes, size_t n);
/* Edge data other than zero (programmatic launches) is not supported. n was checked. */
CUresult vd_edge_data_check(const CUgraphEdgeData *data, size_t n, const char *function);

/* ---- node.c, nodeparams.c: parameters to operations, and back ---- */

/* What a node of this type and with these parameters does; a child graph is cloned. `function` is
 * the exported one, for messages. */
CUresult vd_work_make(struct vd_work *work, const CUgraphNodeParams *params, const char *function);
/* There is such a context, and it was not destroyed. */
bool vd_context_is(const struct CUctx_st *context);
/* Pointers in *params are the node's. */
CUresult vd_node_get(struct CUgraphNode_st *node, CUgraphNodeParams *params);
CUresult vd_work_clone(struct vd_work *to, const struct vd_work *from);
void vd_work_clear(struct vd_work *work, struct vd_item *running);
/* The node does this from now on; *work is moved into it. */
void vd_node_set(struct CUgraphNode_st *node, struct vd_work *work);
/* A new node with the operation, which is moved into it. */
CUresult vd_node_of_op(struct CUgraph_st *graph, struct CUctx_st *context, struct vd_op *op,
                       struct CUgraphNode_st **node);

/* ---- nodecalls.c ---- */

/* A node with the parameters behind the n nodes before it, or nothing and the error. */
CUresult vd_node_add(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t n,
                     const CUgraphNodeParams *params, const char *function);
CUresult vd_node_set_params(CUgraphNode node, const CUgraphNodeParams *params,
                            const char *function);
CUresult vd_node_get_params(CUgraphNode node, CUgraphNodeType type, CUgraphNodeParams *params);

/* ---- execupdate.c ---- */

/* Changes what later launches do for the node from which the executable graph's was cloned. */
CUresult vd_exec_set_params(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params,
                            const char *function);
bool vd_exec_is(CUgraphExec exec);

/* ---- userobject.c ---- */

void vd_uses_free(struct vd_use *uses, struct vd_item *running);
CUresult vd_uses_clone(const struct vd_use *uses, struct vd_use **clone);

#endif
