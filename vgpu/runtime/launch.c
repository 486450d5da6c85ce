/* Launches of kernels and host functions. */
#include "runtime.h"

#include <stdlib.h>

enum { MAX_THREADS = 1024, MAX_DEPTH = 64, MAX_SIDE = 65535 };

_Static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute) &&
                   offsetof(cudaLaunchAttribute, val) == offsetof(CUlaunchAttribute, value),
               "attributes of launches are passed on as they are");

/* What <<<...>>> says, until the call in nvcc's code takes it: the innermost one first, as an
 * argument of a launch may launch too. */
struct configuration {
    struct configuration *outer;
    dim3 grid, block;
    size_t shared;
    void *stream;
};
static _Thread_local struct configuration *configurations;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
    struct configuration *made = malloc(sizeof *made);
    if (made == NULL) return (unsigned)vr_done(cudaErrorMemoryAllocation);
    *made = (struct configuration){configurations, grid, block, shared, stream};
    configurations = made;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    struct configuration *top = configurations;
    if (top == NULL) return vr_done(cudaErrorMissingConfiguration);
    *grid = top->grid;
    *block = top->block;
    *shared = top->shared;
    *(void **)stream = top->stream;
    configurations = top->outer;
    free(top);
    return cudaSuccess;
}

static bool is_shape(dim3 grid, dim3 block)
{
    return grid.x != 0 && grid.x <= INT32_MAX && grid.y != 0 && grid.y <= MAX_SIDE && grid.z != 0 &&
           grid.z <= MAX_SIDE && block.x != 0 && block.x <= MAX_THREADS && block.y != 0 &&
           block.y <= MAX_THREADS && block.z != 0 && block.z <= MAX_DEPTH &&
           (uint64_t)block.x * block.y * block.z <= MAX_THREADS;
}

/* A launch as the driver takes it. */
static cudaError_t launch(const void *function, const cudaLaunchConfig_t *config, void **args)
{
    CUfunction handle;
    if (config == NULL || config->dynamicSmemBytes > UINT32_MAX) return cudaErrorInvalidValue;
    const cudaError_t error = vr_function(function, &handle);
    if (error != cudaSuccess) return error;
    if (!is_shape(config->gridDim, config->blockDim)) return cudaErrorInvalidConfiguration;
    const CUlaunchConfig made = {.gridDimX = config->gridDim.x,
                                 .gridDimY = config->gridDim.y,
                                 .gridDimZ = config->gridDim.z,
                                 .blockDimX = config->blockDim.x,
                                 .blockDimY = config->blockDim.y,
                                 .blockDimZ = config->blockDim.z,
                                 .sharedMemBytes = (unsigned)config->dynamicSmemBytes,
                                 .hStream = config->stream,
                                 .attrs = (CUlaunchAttribute *)(void *)config->attrs,
                                 .numAttrs = config->numAttrs};
    return (cudaError_t)cuLaunchKernelEx(&made, handle, args, NULL);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **args)
{
    VR_ENTER();
    return vr_done(launch(function, config, args));
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args,
                             size_t shared, cudaStream_t stream)
{
    VR_ENTER();
    const cudaLaunchConfig_t config = {
        .gridDim = grid, .blockDim = block, .dynamicSmemBytes = shared, .stream = stream};
    return vr_done(launch(function, &config, args));
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                               size_t shared, cudaStream_t stream)
{
    return cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **args,
                                        size_t shared, cudaStream_t stream)
{
    VR_ENTER();
    cudaLaunchAttribute cooperative = {.id = cudaLaunchAttributeCooperative};
    cooperative.val.cooperative = 1;
    const cudaLaunchConfig_t config = {.gridDim = grid,
                                       .blockDim = block,
                                       .dynamicSmemBytes = shared,
                                       .stream = stream,
                                       .attrs = &cooperative,
                                       .numAttrs = 1};
    return vr_done(launch(function, &config, args));
}

VR_SAME(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t function, void *argument),
        cuLaunchHostFunc(stream, function, argument))
