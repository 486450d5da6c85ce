/* In a build without nvcc or CUDA's header there are no kernels. */
#include "device/device.h"

tt_status tt_device_open(int gpu, struct tt_device **device)
{
    (void)device;
    return tt_fail(
        TT_ERR_USAGE,
        "GPU %d cannot run collectives: this build of tutti has no CUDA kernels, because "
        "nvcc or cuda.h of CUDA 13 was not found when it was built (install the CUDA "
        "Toolkit 13, or give CMake -DTUTTI_NVCC=PATH, and build again)",
        gpu);
}

void tt_device_close(struct tt_device *device)
{
    (void)device;
}

/* No device exists that could be given to these. */
struct tt_context *tt_device_context(const struct tt_device *device)
{
    (void)device;
    return NULL;
}

int tt_device_capacity(const struct tt_device *device)
{
    (void)device;
    return 0;
}

struct tt_shares *tt_device_shares(struct tt_device *device)
{
    (void)device;
    return NULL;
}

tt_status tt_device_launch(struct tt_device *device, void *stream,
                           const struct tt_device_batch *batch)
{
    (void)device;
    (void)stream;
    (void)batch;
    return tt_fail(TT_ERR_USAGE, "this build of tutti has no CUDA kernels");
}

tt_status tt_device_launch_probes(struct tt_device *device, void *stream,
                                  struct tt_device_probe *probes, size_t nprobes, bool loads)
{
    (void)probes, (void)nprobes, (void)loads;
    return tt_device_launch(device, stream, NULL);
}

tt_status tt_device_add_node(struct tt_device *device, void *graph, void *const *after,
                             size_t nafter, const struct tt_device_batch *batch, void **node)
{
    (void)graph, (void)after, (void)nafter, (void)node;
    return tt_device_launch(device, NULL, batch);
}

tt_status tt_device_empty_node(struct tt_device *device, void *node)
{
    (void)node;
    return tt_device_launch(device, NULL, NULL);
}
