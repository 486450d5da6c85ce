/* cuLaunchKernelEx: attributes of launches. */
#include "run.h"

#include <string.h>

VD_PER_THREAD(cuLaunchKernelEx_ptsz, cuLaunchKernelEx);

enum { CLUSTER = 8, CLUSTER_NOT_PORTABLE = 16 };

/* Blocks of a cluster are ordinary blocks here: a kernel that uses more of clusters is refused for
 * its instructions. */
static CUresult check_cluster(const CUlaunchConfig *config, const CUlaunchAttributeValue *value)
{
    const uint64_t x = value->clusterDim.x, y = value->clusterDim.y, z = value->clusterDim.z;
    if (x == 0 || y == 0 || z == 0) return CUDA_ERROR_INVALID_VALUE;
    if (x > CLUSTER_NOT_PORTABLE || y > CLUSTER_NOT_PORTABLE || z > CLUSTER_NOT_PORTABLE ||
        x * y * z > CLUSTER_NOT_PORTABLE)
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    return config->gridDimX % x == 0 && config->gridDimY % y == 0 && config->gridDimZ % z == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

/* What attributes ask of the launch. */
struct asked {
    bool cooperative;
    CUevent started, ended; /* recorded when all blocks have begun, when the kernel has ended */
};

static CUresult check(const CUlaunchConfig *config, const CUlaunchAttribute *attribute,
                      struct asked *asked)
{
    const CUlaunchAttributeValue *value = &attribute->value;
    switch ((int)attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        asked->cooperative = value->cooperative != 0;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        return check_cluster(config, value);
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        asked->started = value->launchCompletionEvent.event;
        return vd_object_is(asked->started, VD_EVENT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        /* A kernel may let go of the event before it ends; nobody may rely on it. */
        asked->ended = value->programmaticEvent.event;
        return vd_object_is(asked->ended, VD_EVENT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        return value->deviceUpdatableKernelNode.deviceUpdatable == 0 ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_NOT_SUPPORTED;
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
        return CUDA_SUCCESS; /* hints, and permissions that are not used */
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* The item that ends when the launch's blocks have all begun. Capture knows no such edge. */
static CUresult started_of(CUevent event, CUstream handle, bool per_thread, struct vd_item **item)
{
    struct CUstream_st *stream;
    struct vd_op nothing = {.what = VD_NOTHING};
    const CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (stream->capture != NULL) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
    *item = vd_item_new(stream->context, &nothing);
    return *item != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult launch(const CUlaunchConfig *config, CUfunction function, void **params,
                       void **extra, bool per_thread)
{
    struct asked asked = {.cooperative = false};
    struct vd_item *started = NULL;
    CUresult result = CUDA_SUCCESS;
    if (config == NULL || (config->numAttrs != 0 && config->attrs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < config->numAttrs && result == CUDA_SUCCESS; i++)
        result = check(config, &config->attrs[i], &asked);
    if (result == CUDA_SUCCESS && asked.started != NULL)
        result = started_of(asked.started, config->hStream, per_thread, &started);
    if (result != CUDA_SUCCESS) return result;
    const struct vd_shape shape = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                                   {config->blockDimX, config->blockDimY, config->blockDimZ},
                                   config->sharedMemBytes,
                                   asked.cooperative};
    result =
        vd_launch_submit(&shape, function, config->hStream, per_thread, params, extra, started);
    if (result == CUDA_SUCCESS && started != NULL) {
        vd_capture_forget(asked.started);
        vd_item_put(asked.started->record);
        asked.started->record = vd_item_get(started);
    }
    vd_item_put(started);
    if (result == CUDA_SUCCESS && asked.ended != NULL)
        result = vd_event_record(asked.ended, config->hStream, 0, per_thread);
    return result;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                          void **extra)
{
    VD_ENTER();
    return vd_leave(launch(config, function, params, extra, false));
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params,
                               void **extra)
{
    VD_ENTER();
    return vd_leave(launch(config, function, params, extra, true));
}
