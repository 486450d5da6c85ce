/* Earlier forms of calls under their own symbols, for programs that were linked with, or look up,
 * these. Forms for addresses of 32 bits are refused (refused_table.h). */
#define __CUDA_API_VERSION_INTERNAL
#include "driver.h"

CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device)
{
    return cuCtxCreate_v4(context, NULL, flags, device);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    return cuCtxCreate_v4(context, NULL, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int nparams,
                        unsigned flags, CUdevice device)
{
    CUctxCreateParams all = {.execAffinityParams = params, .numExecAffinityParams = nparams};
    return cuCtxCreate_v4(context, &all, flags, device);
}

CUresult cuCtxDestroy(CUcontext context)
{
    return cuCtxDestroy_v2(context);
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    return cuCtxPushCurrent_v2(context);
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    return cuCtxPopCurrent_v2(context);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return cuDevicePrimaryCtxReset_v2(device);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags)
{
    return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

CUresult cuGetProcAddress(const char *name, void **address, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status;
    const CUresult result = cuGetProcAddress_v2(name, address, version, flags, &status);
    if (result != CUDA_SUCCESS) return result;
    return *address != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuStreamDestroy(CUstream stream)
{
    return cuStreamDestroy_v2(stream);
}

CUresult cuEventDestroy(CUevent event)
{
    return cuEventDestroy_v2(event);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags)
{
    return cuIpcOpenMemHandle_v2(address, handle, flags);
}

CUresult cuMemHostRegister(void *bytes, size_t nbytes, unsigned flags)
{
    return cuMemHostRegister_v2(bytes, nbytes, flags);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                              unsigned flags)
{
    return cuStreamWriteValue32_v2(stream, address, value, flags);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                              unsigned flags)
{
    return cuStreamWriteValue64_v2(stream, address, value, flags);
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    return cuStreamWaitValue32_v2(stream, address, value, flags);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags)
{
    return cuStreamWaitValue64_v2(stream, address, value, flags);
}
