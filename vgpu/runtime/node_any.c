/* Nodes of any kind, whose parameters are one struct, and those of memory. The driver's struct has
 * the same members but for contexts and for what is behind kernels and copies. */
#include "runtime.h"

#include <string.h>

_Static_assert(sizeof(struct cudaGraphNodeParams) == sizeof(CUgraphNodeParams) &&
                   offsetof(struct cudaGraphNodeParams, alloc.dptr) ==
                       offsetof(CUgraphNodeParams, alloc.dptr) &&
                   sizeof(struct cudaMemsetParamsV2) == offsetof(CUDA_MEMSET_NODE_PARAMS_v2, ctx),
               "what the structs have in common lies at the same place");

static cudaError_t kernel(const struct cudaKernelNodeParamsV2 *from, CUDA_KERNEL_NODE_PARAMS_v3 *to)
{
    CUfunction handle;
    const cudaError_t error = vr_function(from->func, &handle);
    if (error != cudaSuccess) return error;
    *to = (CUDA_KERNEL_NODE_PARAMS_v3){.func = handle,
                                       .gridDimX = from->gridDim.x,
                                       .gridDimY = from->gridDim.y,
                                       .gridDimZ = from->gridDim.z,
                                       .blockDimX = from->blockDim.x,
                                       .blockDimY = from->blockDim.y,
                                       .blockDimZ = from->blockDim.z,
                                       .sharedMemBytes = from->sharedMemBytes,
                                       .kernelParams = from->kernelParams,
                                       .extra = from->extra};
    return cudaSuccess;
}

static cudaError_t convert(const struct cudaGraphNodeParams *from, CUgraphNodeParams *to)
{
    CUcontext context = NULL;
    if (from == NULL) return cudaErrorInvalidValue;
    memcpy(to, from, sizeof *to);
    const CUresult result = cuCtxGetCurrent(&context);
    if (result != CUDA_SUCCESS) return (cudaError_t)result;
    switch (from->type) {
    case cudaGraphNodeTypeKernel:
        memset(&to->kernel, 0, sizeof to->reserved1);
        return kernel(&from->kernel, &to->kernel);
    case cudaGraphNodeTypeMemcpy:
        memset(&to->memcpy, 0, sizeof to->reserved1);
        to->memcpy.flags = from->memcpy.flags;
        to->memcpy.copyCtx = context;
        return vr_copy_3d(&from->memcpy.copyParams, &to->memcpy.copyParams);
    case cudaGraphNodeTypeMemset:
        to->memset.ctx = context;
        return cudaSuccess;
    default:
        return cudaSuccess;
    }
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
                             const cudaGraphEdgeData *data, size_t nafter,
                             struct cudaGraphNodeParams *params)
{
    CUgraphNodeParams made;
    VR_ENTER();
    const cudaError_t error = convert(params, &made);
    if (error != cudaSuccess) return vr_done(error);
    const CUresult result = cuGraphAddNode(
        node, graph, after, (const CUgraphEdgeData *)(const void *)data, nafter, &made);
    if (result == CUDA_SUCCESS && params->type == cudaGraphNodeTypeMemAlloc)
        params->alloc.dptr = vr_pointer(made.alloc.dptr);
    return vr_driver_done(result);
}

cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, struct cudaGraphNodeParams *params)
{
    CUgraphNodeParams made;
    VR_ENTER();
    const cudaError_t error = convert(params, &made);
    return error != cudaSuccess ? vr_done(error)
                                : vr_driver_done(cuGraphNodeSetParams(node, &made));
}

cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                       struct cudaGraphNodeParams *params)
{
    CUgraphNodeParams made;
    VR_ENTER();
    const cudaError_t error = convert(params, &made);
    return error != cudaSuccess ? vr_done(error)
                                : vr_driver_done(cuGraphExecNodeSetParams(exec, node, &made));
}

/* ---- memory ---- */

_Static_assert(sizeof(struct cudaMemAllocNodeParams) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS),
               "parameters of allocations are passed on as they are");

VR_SAME(cudaGraphAddMemAllocNode,
        (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t nafter,
         struct cudaMemAllocNodeParams *params),
        cuGraphAddMemAllocNode(node, graph, after, nafter,
                               (CUDA_MEM_ALLOC_NODE_PARAMS *)(void *)params))
VR_SAME(cudaGraphMemAllocNodeGetParams,
        (cudaGraphNode_t node, struct cudaMemAllocNodeParams *params),
        cuGraphMemAllocNodeGetParams(node, (CUDA_MEM_ALLOC_NODE_PARAMS *)(void *)params))
VR_SAME(cudaGraphAddMemFreeNode,
        (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t nafter,
         void *memory),
        cuGraphAddMemFreeNode(node, graph, after, nafter, vr_address(memory)))
VR_SAME(cudaGraphMemFreeNodeGetParams, (cudaGraphNode_t node, void *memory),
        cuGraphMemFreeNodeGetParams(node, (CUdeviceptr *)memory))
