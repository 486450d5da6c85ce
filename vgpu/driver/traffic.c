/* What the virtual GPU counts, for programs that ask. */
#include <vgpu/traffic.h>

#include "driver.h"

static CUresult count(int gpu, struct vgpu_traffic *traffic)
{
    VD_ENTER();
    if (gpu < 0 || gpu >= vd.ndevices) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    vg_machine_traffic(vd.machine, gpu, traffic);
    traffic->flushes = vd.devices[gpu].flushes;
    return vd_leave(CUDA_SUCCESS);
}

__attribute__((visibility("default"))) int vgpu_traffic(int gpu, struct vgpu_traffic *traffic)
{
    return (int)count(gpu, traffic);
}
