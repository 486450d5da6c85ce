/* The forms of calls that nvcc --default-stream per-thread makes: _ptsz takes the thread's own
 * default stream for stream 0, _ptds uses it instead of the legacy one. */
#include "runtime.h"

static cudaStream_t own(cudaStream_t stream)
{
    return stream == NULL ? cudaStreamPerThread : stream;
}

/* call_ptsz(parameters) calls `call` with these arguments. */
#define OF_STREAM(call, parameters, arguments)                                                     \
    extern __attribute__((visibility("default"))) __typeof__(call) call##_ptsz;                    \
    cudaError_t call##_ptsz parameters                                                             \
    {                                                                                              \
        return call arguments;                                                                     \
    }

/* A call without a stream: its asynchronous form in the thread's stream, and a wait. */
static cudaError_t await(cudaError_t error)
{
    return error != cudaSuccess ? error : cudaStreamSynchronize(cudaStreamPerThread);
}
#define AWAITED(call, parameters, async_call)                                                      \
    extern __attribute__((visibility("default"))) __typeof__(call) call##_ptds;                    \
    cudaError_t call##_ptds parameters                                                             \
    {                                                                                              \
        return await(async_call);                                                                  \
    }

AWAITED(cudaMemcpy, (void *to, const void *from, size_t nbytes, enum cudaMemcpyKind kind),
        cudaMemcpyAsync(to, from, nbytes, kind, cudaStreamPerThread))
AWAITED(cudaMemcpyToSymbol,
        (const void *symbol, const void *from, size_t nbytes, size_t offset,
         enum cudaMemcpyKind kind),
        cudaMemcpyToSymbolAsync(symbol, from, nbytes, offset, kind, cudaStreamPerThread))
AWAITED(cudaMemcpyFromSymbol,
        (void *to, const void *symbol, size_t nbytes, size_t offset, enum cudaMemcpyKind kind),
        cudaMemcpyFromSymbolAsync(to, symbol, nbytes, offset, kind, cudaStreamPerThread))
AWAITED(cudaMemcpy2D,
        (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
         size_t height, enum cudaMemcpyKind kind),
        cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, cudaStreamPerThread))
AWAITED(cudaMemcpy3D, (const struct cudaMemcpy3DParms *copy),
        cudaMemcpy3DAsync(copy, cudaStreamPerThread))
AWAITED(cudaMemcpy3DPeer, (const struct cudaMemcpy3DPeerParms *copy),
        cudaMemcpy3DPeerAsync(copy, cudaStreamPerThread))
AWAITED(cudaMemset, (void *to, int value, size_t nbytes),
        cudaMemsetAsync(to, value, nbytes, cudaStreamPerThread))
AWAITED(cudaMemset2D, (void *to, size_t pitch, int value, size_t width, size_t height),
        cudaMemset2DAsync(to, pitch, value, width, height, cudaStreamPerThread))
AWAITED(cudaMemset3D, (struct cudaPitchedPtr to, int value, struct cudaExtent extent),
        cudaMemset3DAsync(to, value, extent, cudaStreamPerThread))

OF_STREAM(cudaMemcpyAsync,
          (void *to, const void *from, size_t nbytes, enum cudaMemcpyKind kind,
           cudaStream_t stream),
          (to, from, nbytes, kind, own(stream)))
OF_STREAM(cudaMemcpyToSymbolAsync,
          (const void *symbol, const void *from, size_t nbytes, size_t offset,
           enum cudaMemcpyKind kind, cudaStream_t stream),
          (symbol, from, nbytes, offset, kind, own(stream)))
OF_STREAM(cudaMemcpyFromSymbolAsync,
          (void *to, const void *symbol, size_t nbytes, size_t offset, enum cudaMemcpyKind kind,
           cudaStream_t stream),
          (to, symbol, nbytes, offset, kind, own(stream)))
OF_STREAM(cudaMemcpy2DAsync,
          (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
           size_t height, enum cudaMemcpyKind kind, cudaStream_t stream),
          (to, to_pitch, from, from_pitch, width, height, kind, own(stream)))
OF_STREAM(cudaMemcpy3DAsync, (const struct cudaMemcpy3DParms *copy, cudaStream_t stream),
          (copy, own(stream)))
OF_STREAM(cudaMemcpy3DPeerAsync, (const struct cudaMemcpy3DPeerParms *copy, cudaStream_t stream),
          (copy, own(stream)))
OF_STREAM(cudaMemsetAsync, (void *to, int value, size_t nbytes, cudaStream_t stream),
          (to, value, nbytes, own(stream)))
OF_STREAM(cudaMemset2DAsync,
          (void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
          (to, pitch, value, width, height, own(stream)))
OF_STREAM(cudaMemset3DAsync,
          (struct cudaPitchedPtr to, int value, struct cudaExtent extent, cudaStream_t stream),
          (to, value, extent, own(stream)))
OF_STREAM(cudaMemPrefetchAsync,
          (const void *memory, size_t nbytes, struct cudaMemLocation location, unsigned int flags,
           cudaStream_t stream),
          (memory, nbytes, location, flags, own(stream)))

OF_STREAM(cudaMallocAsync, (void **memory, size_t nbytes, cudaStream_t stream),
          (memory, nbytes, own(stream)))
OF_STREAM(cudaMallocFromPoolAsync,
          (void **memory, size_t nbytes, cudaMemPool_t pool, cudaStream_t stream),
          (memory, nbytes, pool, own(stream)))
OF_STREAM(cudaFreeAsync, (void *memory, cudaStream_t stream), (memory, own(stream)))

OF_STREAM(cudaStreamQuery, (cudaStream_t stream), (own(stream)))
OF_STREAM(cudaStreamSynchronize, (cudaStream_t stream), (own(stream)))
OF_STREAM(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
          (own(stream), event, flags))
OF_STREAM(cudaStreamGetPriority, (cudaStream_t stream, int *priority), (own(stream), priority))
OF_STREAM(cudaStreamGetFlags, (cudaStream_t stream, unsigned int *flags), (own(stream), flags))
OF_STREAM(cudaStreamGetId, (cudaStream_t stream, unsigned long long *id), (own(stream), id))
OF_STREAM(cudaStreamGetDevice, (cudaStream_t stream, int *device), (own(stream), device))
OF_STREAM(cudaStreamCopyAttributes, (cudaStream_t to, cudaStream_t from), (own(to), own(from)))
OF_STREAM(cudaStreamGetAttribute,
          (cudaStream_t stream, cudaStreamAttrID attribute, cudaStreamAttrValue *value),
          (own(stream), attribute, value))
OF_STREAM(cudaStreamSetAttribute,
          (cudaStream_t stream, cudaStreamAttrID attribute, const cudaStreamAttrValue *value),
          (own(stream), attribute, value))
OF_STREAM(cudaStreamAddCallback,
          (cudaStream_t stream, cudaStreamCallback_t callback, void *argument, unsigned int flags),
          (own(stream), callback, argument, flags))
OF_STREAM(cudaStreamAttachMemAsync,
          (cudaStream_t stream, void *memory, size_t nbytes, unsigned int flags),
          (own(stream), memory, nbytes, flags))
OF_STREAM(cudaStreamBeginCapture, (cudaStream_t stream, enum cudaStreamCaptureMode mode),
          (own(stream), mode))
OF_STREAM(cudaStreamBeginCaptureToGraph,
          (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *nodes,
           const cudaGraphEdgeData *data, size_t nnodes, enum cudaStreamCaptureMode mode),
          (own(stream), graph, nodes, data, nnodes, mode))
OF_STREAM(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *graph), (own(stream), graph))
OF_STREAM(cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status),
          (own(stream), status))
OF_STREAM(cudaStreamGetCaptureInfo,
          (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
           cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **data,
           size_t *nnodes),
          (own(stream), status, id, graph, nodes, data, nnodes))
OF_STREAM(cudaStreamUpdateCaptureDependencies,
          (cudaStream_t stream, cudaGraphNode_t *nodes, const cudaGraphEdgeData *data,
           size_t nnodes, unsigned int flags),
          (own(stream), nodes, data, nnodes, flags))
OF_STREAM(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), (event, own(stream)))
OF_STREAM(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned int flags),
          (event, own(stream), flags))

OF_STREAM(cudaLaunchKernel,
          (const void *function, dim3 grid, dim3 block, void **args, size_t shared,
           cudaStream_t stream),
          (function, grid, block, args, shared, own(stream)))
OF_STREAM(cudaLaunchCooperativeKernel,
          (const void *function, dim3 grid, dim3 block, void **args, size_t shared,
           cudaStream_t stream),
          (function, grid, block, args, shared, own(stream)))
OF_STREAM(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t function, void *argument),
          (own(stream), function, argument))
OF_STREAM(cudaGraphUpload, (cudaGraphExec_t exec, cudaStream_t stream), (exec, own(stream)))
OF_STREAM(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream), (exec, own(stream)))
OF_STREAM(cudaGetDriverEntryPointByVersion,
          (const char *name, void **function, unsigned int version, unsigned long long flags,
           enum cudaDriverEntryPointQueryResult *status),
          (name, function, version, flags | cudaEnablePerThreadDefaultStream, status))

cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                                    size_t shared, cudaStream_t stream)
{
    return __cudaLaunchKernel(kernel, grid, block, args, shared, own(stream));
}

extern
    __attribute__((visibility("default"))) __typeof__(cudaLaunchKernelExC) cudaLaunchKernelExC_ptsz;
cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *config, const void *function,
                                     void **args)
{
    if (config == NULL) return cudaLaunchKernelExC(config, function, args);
    cudaLaunchConfig_t made = *config;
    made.stream = own(config->stream);
    return cudaLaunchKernelExC(&made, function, args);
}

extern __attribute__((visibility(
    "default"))) __typeof__(cudaGraphInstantiateWithParams) cudaGraphInstantiateWithParams_ptsz;
cudaError_t cudaGraphInstantiateWithParams_ptsz(cudaGraphExec_t *exec, cudaGraph_t graph,
                                                cudaGraphInstantiateParams *params)
{
    if (params == NULL) return cudaGraphInstantiateWithParams(exec, graph, params);
    const cudaStream_t stream = params->uploadStream;
    params->uploadStream = own(stream);
    const cudaError_t error = cudaGraphInstantiateWithParams(exec, graph, params);
    params->uploadStream = stream;
    return error;
}
