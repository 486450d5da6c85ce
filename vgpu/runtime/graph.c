/* Graphs: made, instantiated, launched. */
#include "runtime.h"

_Static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData) &&
                   sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS) &&
                   sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo),
               "data about graphs are passed on as they are");

#define EDGES(data) ((CUgraphEdgeData *)(void *)(data))
#define CONST_EDGES(data) ((const CUgraphEdgeData *)(const void *)(data))

VR_SAME(cudaGraphCreate, (cudaGraph_t * graph, unsigned int flags), cuGraphCreate(graph, flags))
VR_SAME(cudaGraphDestroy, (cudaGraph_t graph), cuGraphDestroy(graph))
VR_SAME(cudaGraphClone, (cudaGraph_t * clone, cudaGraph_t graph), cuGraphClone(clone, graph))
VR_SAME(cudaGraphDebugDotPrint, (cudaGraph_t graph, const char *path, unsigned int flags),
        cuGraphDebugDotPrint(graph, path, flags))

/* ---- nodes and edges ---- */

VR_SAME(cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *nnodes),
        cuGraphGetNodes(graph, nodes, nnodes))
VR_SAME(cudaGraphGetRootNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *nnodes),
        cuGraphGetRootNodes(graph, nodes, nnodes))
VR_SAME(cudaGraphGetEdges,
        (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *data,
         size_t *nedges),
        cuGraphGetEdges(graph, from, to, EDGES(data), nedges))
VR_SAME(cudaGraphAddDependencies,
        (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
         const cudaGraphEdgeData *data, size_t nedges),
        cuGraphAddDependencies(graph, from, to, CONST_EDGES(data), nedges))
VR_SAME(cudaGraphRemoveDependencies,
        (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
         const cudaGraphEdgeData *data, size_t nedges),
        cuGraphRemoveDependencies(graph, from, to, CONST_EDGES(data), nedges))
VR_SAME(cudaGraphNodeGetDependencies,
        (cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *data, size_t *nnodes),
        cuGraphNodeGetDependencies(node, nodes, EDGES(data), nnodes))
VR_SAME(cudaGraphNodeGetDependentNodes,
        (cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *data, size_t *nnodes),
        cuGraphNodeGetDependentNodes(node, nodes, EDGES(data), nnodes))
VR_SAME(cudaGraphNodeGetType, (cudaGraphNode_t node, enum cudaGraphNodeType *type),
        cuGraphNodeGetType(node, (CUgraphNodeType *)type))
VR_SAME(cudaGraphNodeFindInClone,
        (cudaGraphNode_t * node, cudaGraphNode_t original, cudaGraph_t clone),
        cuGraphNodeFindInClone(node, original, clone))
VR_SAME(cudaGraphDestroyNode, (cudaGraphNode_t node), cuGraphDestroyNode(node))
VR_SAME(cudaGraphNodeSetEnabled, (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int enabled),
        cuGraphNodeSetEnabled(exec, node, enabled))
VR_SAME(cudaGraphNodeGetEnabled,
        (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int *enabled),
        cuGraphNodeGetEnabled(exec, node, enabled))

/* ---- executable graphs ---- */

VR_SAME(cudaGraphInstantiate, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
        cuGraphInstantiate(exec, graph, flags))
VR_SAME(cudaGraphInstantiateWithFlags,
        (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
        cuGraphInstantiate(exec, graph, flags))
VR_SAME(cudaGraphInstantiateWithParams,
        (cudaGraphExec_t * exec, cudaGraph_t graph, cudaGraphInstantiateParams *params),
        cuGraphInstantiateWithParams(exec, graph, (CUDA_GRAPH_INSTANTIATE_PARAMS *)(void *)params))
VR_SAME(cudaGraphExecGetFlags, (cudaGraphExec_t exec, unsigned long long *flags),
        cuGraphExecGetFlags(exec, (cuuint64_t *)(void *)flags))
VR_SAME(cudaGraphExecUpdate,
        (cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info),
        cuGraphExecUpdate(exec, graph, (CUgraphExecUpdateResultInfo *)(void *)info))
VR_SAME(cudaGraphExecDestroy, (cudaGraphExec_t exec), cuGraphExecDestroy(exec))
VR_SAME(cudaGraphUpload, (cudaGraphExec_t exec, cudaStream_t stream), cuGraphUpload(exec, stream))
VR_SAME(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream), cuGraphLaunch(exec, stream))

/* ---- objects that graphs keep ---- */

VR_SAME(cudaUserObjectCreate,
        (cudaUserObject_t * object, void *pointer, cudaHostFn_t destroy, unsigned int count,
         unsigned int flags),
        cuUserObjectCreate(object, pointer, destroy, count, flags))
VR_SAME(cudaUserObjectRetain, (cudaUserObject_t object, unsigned int count),
        cuUserObjectRetain(object, count))
VR_SAME(cudaUserObjectRelease, (cudaUserObject_t object, unsigned int count),
        cuUserObjectRelease(object, count))
VR_SAME(cudaGraphRetainUserObject,
        (cudaGraph_t graph, cudaUserObject_t object, unsigned int count, unsigned int flags),
        cuGraphRetainUserObject(graph, object, count, flags))
VR_SAME(cudaGraphReleaseUserObject,
        (cudaGraph_t graph, cudaUserObject_t object, unsigned int count),
        cuGraphReleaseUserObject(graph, object, count))
