/* What the virtual GPU counts, for programs that ask. */
#include <vgpu/traffic.h>

#include "driver.h"

static CUresult count(int gpu, struct vgpu_traffic *traffic)
{
    CUresult result = vd_enter();
    if (result == CUDA_SUCCESS && (gpu < 0 || gpu >= vd.ndevices))
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS) vg_machine_traffic(vd.machine, gpu, traffic);
    return (int)vd_leave(result);
}

__attribute__((visibility("default"))) int vgpu_traffic(int gpu, struct vgpu_traffic *traffic)
{
    return (int)count(gpu, traffic);
}
