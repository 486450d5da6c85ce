/* Streams and events. */
#include "runtime.h"

_Static_assert(sizeof(cudaStreamAttrValue) == sizeof(CUstreamAttrValue),
               "attributes of streams are passed on as they are");

VR_SAME(cudaStreamCreate, (cudaStream_t * stream), cuStreamCreate(stream, CU_STREAM_DEFAULT))
VR_SAME(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned int flags),
        cuStreamCreate(stream, flags))
VR_SAME(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned int flags, int priority),
        cuStreamCreateWithPriority(stream, flags, priority))
VR_SAME(cudaStreamDestroy, (cudaStream_t stream), cuStreamDestroy(stream))
VR_SAME(cudaStreamQuery, (cudaStream_t stream), cuStreamQuery(stream))
VR_SAME(cudaStreamSynchronize, (cudaStream_t stream), cuStreamSynchronize(stream))
VR_SAME(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
        cuStreamWaitEvent(stream, event, flags))
VR_SAME(cudaStreamGetPriority, (cudaStream_t stream, int *priority),
        cuStreamGetPriority(stream, priority))
VR_SAME(cudaStreamGetFlags, (cudaStream_t stream, unsigned int *flags),
        cuStreamGetFlags(stream, flags))
VR_SAME(cudaStreamGetId, (cudaStream_t stream, unsigned long long *id), cuStreamGetId(stream, id))
VR_SAME(cudaStreamGetDevice, (cudaStream_t stream, int *device), cuStreamGetDevice(stream, device))
VR_SAME(cudaStreamCopyAttributes, (cudaStream_t to, cudaStream_t from),
        cuStreamCopyAttributes(to, from))
VR_SAME(cudaStreamGetAttribute,
        (cudaStream_t stream, cudaStreamAttrID attribute, cudaStreamAttrValue *value),
        cuStreamGetAttribute(stream, (CUstreamAttrID)attribute, (CUstreamAttrValue *)(void *)value))
VR_SAME(cudaStreamSetAttribute,
        (cudaStream_t stream, cudaStreamAttrID attribute, const cudaStreamAttrValue *value),
        cuStreamSetAttribute(stream, (CUstreamAttrID)attribute,
                             (const CUstreamAttrValue *)(const void *)value))

/* The callback's second argument has the driver's numbers. */
VR_SAME(cudaStreamAddCallback,
        (cudaStream_t stream, cudaStreamCallback_t callback, void *argument, unsigned int flags),
        cuStreamAddCallback(stream, (CUstreamCallback)(void (*)(void))callback, argument, flags))

/* ---- capture ---- */

VR_SAME(cudaStreamBeginCapture, (cudaStream_t stream, enum cudaStreamCaptureMode mode),
        cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode))
VR_SAME(cudaStreamBeginCaptureToGraph,
        (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *nodes,
         const cudaGraphEdgeData *data, size_t nnodes, enum cudaStreamCaptureMode mode),
        cuStreamBeginCaptureToGraph(stream, graph, nodes,
                                    (const CUgraphEdgeData *)(const void *)data, nnodes,
                                    (CUstreamCaptureMode)mode))
VR_SAME(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *graph),
        cuStreamEndCapture(stream, graph))
VR_SAME(cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status),
        cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)status))
VR_SAME(cudaStreamGetCaptureInfo,
        (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
         cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **data,
         size_t *nnodes),
        cuStreamGetCaptureInfo(stream, (CUstreamCaptureStatus *)status, (cuuint64_t *)(void *)id,
                               graph, nodes, (const CUgraphEdgeData **)(void *)data, nnodes))
VR_SAME(cudaStreamUpdateCaptureDependencies,
        (cudaStream_t stream, cudaGraphNode_t *nodes, const cudaGraphEdgeData *data, size_t nnodes,
         unsigned int flags),
        cuStreamUpdateCaptureDependencies(stream, nodes,
                                          (const CUgraphEdgeData *)(const void *)data, nnodes,
                                          flags))
VR_SAME(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode * mode),
        cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode))

/* ---- events ---- */

VR_SAME(cudaEventCreate, (cudaEvent_t * event), cuEventCreate(event, CU_EVENT_DEFAULT))
VR_SAME(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned int flags),
        cuEventCreate(event, flags))
VR_SAME(cudaEventDestroy, (cudaEvent_t event), cuEventDestroy(event))
VR_SAME(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), cuEventRecord(event, stream))
VR_SAME(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned int flags),
        cuEventRecordWithFlags(event, stream, flags))
VR_SAME(cudaEventQuery, (cudaEvent_t event), cuEventQuery(event))
VR_SAME(cudaEventSynchronize, (cudaEvent_t event), cuEventSynchronize(event))
VR_SAME(cudaEventElapsedTime, (float *ms, cudaEvent_t begin, cudaEvent_t end),
        cuEventElapsedTime(ms, begin, end))
