/* The functions of libcuda.so.1 that the library calls: X(member of struct tt_cuda, symbol). Where
 * CUDA's header has several versions of a function, its plain name is a macro for the symbol here.
 */
X(Init, cuInit)
X(DriverGetVersion, cuDriverGetVersion)
X(GetErrorName, cuGetErrorName)
X(GetErrorString, cuGetErrorString)
X(DeviceGet, cuDeviceGet)
X(DeviceGetCount, cuDeviceGetCount)
X(DeviceGetName, cuDeviceGetName)
X(DeviceGetPCIBusId, cuDeviceGetPCIBusId)
X(DeviceGetAttribute, cuDeviceGetAttribute)
X(DeviceTotalMem, cuDeviceTotalMem_v2)
X(DeviceCanAccessPeer, cuDeviceCanAccessPeer)
X(PointerGetAttributes, cuPointerGetAttributes)
