/* Devices. (Minimal: its owner replaces it.) */
#include "driver.h"

CUresult vd_devices_start(void)
{
    vd.ndevices = vd.settings.devices < VD_DEVICES ? vd.settings.devices : VD_DEVICES;
    for (int i = 0; i < vd.ndevices; i++) {
        struct vd_device *device = &vd.devices[i];
        device->memory = vd.settings.memory;
        device->gpu = (struct vg_gpu){.number = i,
                                      .nsms = vd.settings.sms,
                                      .threads_per_sm = 2048,
                                      .blocks_per_sm = 32,
                                      .shared_per_sm = 233472,
                                      .shared_per_block = 49152,
                                      .registers_per_sm = 65536,
                                      .capability = vd.settings.capability,
                                      .regions = &device->regions};
    }
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags)
{
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&vd.lock);
    return vd_leave(vd_start());
}

CUresult cuDeviceGetCount(int *count)
{
    VD_ENTER();
    *count = vd.ndevices;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    VD_ENTER();
    if (ordinal < 0 || ordinal >= vd.ndevices) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return vd_leave(CUDA_SUCCESS);
}
