/* Nodes of graphs. Those with parameters in the runtime's form are made in the driver's. */
#include "runtime.h"

_Static_assert(sizeof(struct cudaHostNodeParams) == sizeof(CUDA_HOST_NODE_PARAMS) &&
                   sizeof(cudaKernelNodeAttrValue) == sizeof(CUkernelNodeAttrValue),
               "parameters of host nodes and attributes of kernels are passed on as they are");

/* ---- kernels ---- */

static cudaError_t kernel_params(const struct cudaKernelNodeParams *params,
                                 CUDA_KERNEL_NODE_PARAMS *made)
{
    CUfunction handle;
    if (params == NULL) return cudaErrorInvalidValue;
    const cudaError_t error = vr_function(params->func, &handle);
    *made = (CUDA_KERNEL_NODE_PARAMS){.func = handle,
                                      .gridDimX = params->gridDim.x,
                                      .gridDimY = params->gridDim.y,
                                      .gridDimZ = params->gridDim.z,
                                      .blockDimX = params->blockDim.x,
                                      .blockDimY = params->blockDim.y,
                                      .blockDimZ = params->blockDim.z,
                                      .sharedMemBytes = params->sharedMemBytes,
                                      .kernelParams = params->kernelParams,
                                      .extra = params->extra};
    return error;
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *after, size_t nafter,
                                   const struct cudaKernelNodeParams *params)
{
    CUDA_KERNEL_NODE_PARAMS made;
    VR_ENTER();
    const cudaError_t error = kernel_params(params, &made);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(cuGraphAddKernelNode(node, graph, after, nafter, &made));
}

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node,
                                         const struct cudaKernelNodeParams *params)
{
    CUDA_KERNEL_NODE_PARAMS made;
    VR_ENTER();
    const cudaError_t error = kernel_params(params, &made);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(cuGraphKernelNodeSetParams(node, &made));
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const struct cudaKernelNodeParams *params)
{
    CUDA_KERNEL_NODE_PARAMS made;
    VR_ENTER();
    const cudaError_t error = kernel_params(params, &made);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(cuGraphExecKernelNodeSetParams(exec, node, &made));
}

/* `func` is the driver's function, which the calls above take too. */
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, struct cudaKernelNodeParams *params)
{
    CUDA_KERNEL_NODE_PARAMS found;
    VR_ENTER();
    if (params == NULL) return vr_done(cudaErrorInvalidValue);
    const CUresult result = cuGraphKernelNodeGetParams(node, &found);
    if (result != CUDA_SUCCESS) return vr_driver_done(result);
    *params = (struct cudaKernelNodeParams){
        .func = found.func != NULL ? (void *)found.func : (void *)found.kern,
        .gridDim = {found.gridDimX, found.gridDimY, found.gridDimZ},
        .blockDim = {found.blockDimX, found.blockDimY, found.blockDimZ},
        .sharedMemBytes = found.sharedMemBytes,
        .kernelParams = found.kernelParams,
        .extra = found.extra};
    return cudaSuccess;
}

VR_SAME(cudaGraphKernelNodeCopyAttributes, (cudaGraphNode_t to, cudaGraphNode_t from),
        cuGraphKernelNodeCopyAttributes(to, from))
VR_SAME(cudaGraphKernelNodeGetAttribute,
        (cudaGraphNode_t node, cudaKernelNodeAttrID attribute, cudaKernelNodeAttrValue *value),
        cuGraphKernelNodeGetAttribute(node, (CUkernelNodeAttrID)attribute,
                                      (CUkernelNodeAttrValue *)(void *)value))
VR_SAME(cudaGraphKernelNodeSetAttribute,
        (cudaGraphNode_t node, cudaKernelNodeAttrID attribute,
         const cudaKernelNodeAttrValue *value),
        cuGraphKernelNodeSetAttribute(node, (CUkernelNodeAttrID)attribute,
                                      (const CUkernelNodeAttrValue *)(const void *)value))

/* ---- copies ---- */

/* Copies and fills of nodes belong to the current context. */
static CUcontext current(void)
{
    CUcontext context = NULL;
    return cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : NULL;
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *after, size_t nafter,
                                   const struct cudaMemcpy3DParms *copy)
{
    CUDA_MEMCPY3D made;
    VR_ENTER();
    const cudaError_t error = vr_copy_3d(copy, &made);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(cuGraphAddMemcpyNode(node, graph, after, nafter, &made, current()));
}

cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const struct cudaMemcpy3DParms *copy)
{
    CUDA_MEMCPY3D made;
    VR_ENTER();
    const cudaError_t error = vr_copy_3d(copy, &made);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(cuGraphMemcpyNodeSetParams(node, &made));
}

cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const struct cudaMemcpy3DParms *copy)
{
    CUDA_MEMCPY3D made;
    VR_ENTER();
    const cudaError_t error = vr_copy_3d(copy, &made);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(cuGraphExecMemcpyNodeSetParams(exec, node, &made, current()));
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t graph,
                                     const cudaGraphNode_t *after, size_t nafter, void *to,
                                     const void *from, size_t nbytes, enum cudaMemcpyKind kind)
{
    VR_ENTER();
    const cudaError_t error = vr_copy_kind(kind);
    if (error != cudaSuccess) return vr_done(error);
    const CUDA_MEMCPY3D made = vr_copy_line(to, from, nbytes);
    return vr_driver_done(cuGraphAddMemcpyNode(node, graph, after, nafter, &made, current()));
}

cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void *to, const void *from,
                                           size_t nbytes, enum cudaMemcpyKind kind)
{
    VR_ENTER();
    const cudaError_t error = vr_copy_kind(kind);
    if (error != cudaSuccess) return vr_done(error);
    const CUDA_MEMCPY3D made = vr_copy_line(to, from, nbytes);
    return vr_driver_done(cuGraphMemcpyNodeSetParams(node, &made));
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void *to,
                                               const void *from, size_t nbytes,
                                               enum cudaMemcpyKind kind)
{
    VR_ENTER();
    const cudaError_t error = vr_copy_kind(kind);
    if (error != cudaSuccess) return vr_done(error);
    const CUDA_MEMCPY3D made = vr_copy_line(to, from, nbytes);
    return vr_driver_done(cuGraphExecMemcpyNodeSetParams(exec, node, &made, current()));
}

/* ---- fills ---- */

static CUDA_MEMSET_NODE_PARAMS fill_params(const struct cudaMemsetParams *params)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = vr_address(params->dst),
                                     .pitch = params->pitch,
                                     .value = params->value,
                                     .elementSize = params->elementSize,
                                     .width = params->width,
                                     .height = params->height};
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *after, size_t nafter,
                                   const struct cudaMemsetParams *params)
{
    VR_ENTER();
    if (params == NULL) return vr_done(cudaErrorInvalidValue);
    const CUDA_MEMSET_NODE_PARAMS made = fill_params(params);
    return vr_driver_done(cuGraphAddMemsetNode(node, graph, after, nafter, &made, current()));
}

cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node,
                                         const struct cudaMemsetParams *params)
{
    VR_ENTER();
    if (params == NULL) return vr_done(cudaErrorInvalidValue);
    const CUDA_MEMSET_NODE_PARAMS made = fill_params(params);
    return vr_driver_done(cuGraphMemsetNodeSetParams(node, &made));
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, struct cudaMemsetParams *params)
{
    CUDA_MEMSET_NODE_PARAMS found;
    VR_ENTER();
    if (params == NULL) return vr_done(cudaErrorInvalidValue);
    const CUresult result = cuGraphMemsetNodeGetParams(node, &found);
    if (result != CUDA_SUCCESS) return vr_driver_done(result);
    *params = (struct cudaMemsetParams){.dst = vr_pointer(found.dst),
                                        .pitch = found.pitch,
                                        .value = found.value,
                                        .elementSize = found.elementSize,
                                        .width = found.width,
                                        .height = found.height};
    return cudaSuccess;
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const struct cudaMemsetParams *params)
{
    VR_ENTER();
    if (params == NULL) return vr_done(cudaErrorInvalidValue);
    const CUDA_MEMSET_NODE_PARAMS made = fill_params(params);
    return vr_driver_done(cuGraphExecMemsetNodeSetParams(exec, node, &made, current()));
}

/* ---- host functions ---- */

VR_SAME(cudaGraphAddHostNode,
        (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t nafter,
         const struct cudaHostNodeParams *params),
        cuGraphAddHostNode(node, graph, after, nafter,
                           (const CUDA_HOST_NODE_PARAMS *)(const void *)params))
VR_SAME(cudaGraphHostNodeGetParams, (cudaGraphNode_t node, struct cudaHostNodeParams *params),
        cuGraphHostNodeGetParams(node, (CUDA_HOST_NODE_PARAMS *)(void *)params))
VR_SAME(cudaGraphHostNodeSetParams, (cudaGraphNode_t node, const struct cudaHostNodeParams *params),
        cuGraphHostNodeSetParams(node, (const CUDA_HOST_NODE_PARAMS *)(const void *)params))
VR_SAME(cudaGraphExecHostNodeSetParams,
        (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaHostNodeParams *params),
        cuGraphExecHostNodeSetParams(exec, node,
                                     (const CUDA_HOST_NODE_PARAMS *)(const void *)params))

/* ---- nothing, graphs, events ---- */

VR_SAME(cudaGraphAddEmptyNode,
        (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t nafter),
        cuGraphAddEmptyNode(node, graph, after, nafter))
VR_SAME(cudaGraphAddChildGraphNode,
        (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t nafter,
         cudaGraph_t child),
        cuGraphAddChildGraphNode(node, graph, after, nafter, child))
VR_SAME(cudaGraphChildGraphNodeGetGraph, (cudaGraphNode_t node, cudaGraph_t *graph),
        cuGraphChildGraphNodeGetGraph(node, graph))
VR_SAME(cudaGraphExecChildGraphNodeSetParams,
        (cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraph_t child),
        cuGraphExecChildGraphNodeSetParams(exec, node, child))
VR_SAME(cudaGraphAddEventRecordNode,
        (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t nafter,
         cudaEvent_t event),
        cuGraphAddEventRecordNode(node, graph, after, nafter, event))
VR_SAME(cudaGraphEventRecordNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t *event),
        cuGraphEventRecordNodeGetEvent(node, event))
VR_SAME(cudaGraphEventRecordNodeSetEvent, (cudaGraphNode_t node, cudaEvent_t event),
        cuGraphEventRecordNodeSetEvent(node, event))
VR_SAME(cudaGraphExecEventRecordNodeSetEvent,
        (cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event),
        cuGraphExecEventRecordNodeSetEvent(exec, node, event))
VR_SAME(cudaGraphAddEventWaitNode,
        (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t nafter,
         cudaEvent_t event),
        cuGraphAddEventWaitNode(node, graph, after, nafter, event))
VR_SAME(cudaGraphEventWaitNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t *event),
        cuGraphEventWaitNodeGetEvent(node, event))
VR_SAME(cudaGraphEventWaitNodeSetEvent, (cudaGraphNode_t node, cudaEvent_t event),
        cuGraphEventWaitNodeSetEvent(node, event))
VR_SAME(cudaGraphExecEventWaitNodeSetEvent,
        (cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event),
        cuGraphExecEventWaitNodeSetEvent(exec, node, event))
