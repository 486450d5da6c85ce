/* What all probes share: the driver API through dlopen, rows of results in JSON, clocks, memory.
 *
 * A probe prints one JSON object a line on standard output: {"probe": ..., "name": ..., ...}. */
#ifndef GPU_PROBES_DRIVER_H
#define GPU_PROBES_DRIVER_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The member of `struct driver`, and the symbol of libcuda.so.1 behind it. */
#define DRIVER_CALLS(X)                                                                            \
    X(Init, cuInit)                                                                                \
    X(DriverGetVersion, cuDriverGetVersion)                                                        \
    X(GetErrorName, cuGetErrorName)                                                                \
    X(GetProcAddress, cuGetProcAddress_v2)                                                         \
    X(DeviceGet, cuDeviceGet)                                                                      \
    X(DeviceGetCount, cuDeviceGetCount)                                                            \
    X(DeviceGetName, cuDeviceGetName)                                                              \
    X(DeviceGetAttribute, cuDeviceGetAttribute)                                                    \
    X(DeviceTotalMem, cuDeviceTotalMem_v2)                                                         \
    X(DeviceGetUuid, cuDeviceGetUuid_v2)                                                           \
    X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)                                            \
    X(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)                                       \
    X(DevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2)                                           \
    X(DevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState)                                        \
    X(CtxSetCurrent, cuCtxSetCurrent)                                                              \
    X(CtxGetCurrent, cuCtxGetCurrent)                                                              \
    X(CtxPushCurrent, cuCtxPushCurrent_v2)                                                         \
    X(CtxPopCurrent, cuCtxPopCurrent_v2)                                                           \
    X(CtxGetDevice, cuCtxGetDevice)                                                                \
    X(CtxSynchronize, cuCtxSynchronize)                                                            \
    X(CtxDestroy, cuCtxDestroy_v2)                                                                 \
    X(CtxEnablePeerAccess, cuCtxEnablePeerAccess)                                                  \
    X(CtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange)                                      \
    X(ModuleLoadDataEx, cuModuleLoadDataEx)                                                        \
    X(ModuleUnload, cuModuleUnload)                                                                \
    X(ModuleGetFunction, cuModuleGetFunction)                                                      \
    X(ModuleGetGlobal, cuModuleGetGlobal_v2)                                                       \
    X(ModuleGetLoadingMode, cuModuleGetLoadingMode)                                                \
    X(FuncGetAttribute, cuFuncGetAttribute)                                                        \
    X(FuncSetAttribute, cuFuncSetAttribute)                                                        \
    X(LaunchKernel, cuLaunchKernel)                                                                \
    X(LaunchCooperativeKernel, cuLaunchCooperativeKernel)                                          \
    X(LaunchHostFunc, cuLaunchHostFunc)                                                            \
    X(OccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor)      \
    X(MemAlloc, cuMemAlloc_v2)                                                                     \
    X(MemFree, cuMemFree_v2)                                                                       \
    X(MemAllocAsync, cuMemAllocAsync)                                                              \
    X(MemFreeAsync, cuMemFreeAsync)                                                                \
    X(MemAllocManaged, cuMemAllocManaged)                                                          \
    X(MemGetInfo, cuMemGetInfo_v2)                                                                 \
    X(MemGetAddressRange, cuMemGetAddressRange_v2)                                                 \
    X(MemHostAlloc, cuMemHostAlloc)                                                                \
    X(MemFreeHost, cuMemFreeHost)                                                                  \
    X(MemHostRegister, cuMemHostRegister_v2)                                                       \
    X(MemHostUnregister, cuMemHostUnregister)                                                      \
    X(MemHostGetDevicePointer, cuMemHostGetDevicePointer_v2)                                       \
    X(MemHostGetFlags, cuMemHostGetFlags)                                                          \
    X(Memcpy, cuMemcpy)                                                                            \
    X(MemcpyAsync, cuMemcpyAsync)                                                                  \
    X(MemcpyHtoD, cuMemcpyHtoD_v2)                                                                 \
    X(MemcpyDtoH, cuMemcpyDtoH_v2)                                                                 \
    X(MemcpyDtoD, cuMemcpyDtoD_v2)                                                                 \
    X(MemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)                                                       \
    X(MemcpyDtoHAsync, cuMemcpyDtoHAsync_v2)                                                       \
    X(MemcpyDtoDAsync, cuMemcpyDtoDAsync_v2)                                                       \
    X(MemsetD8, cuMemsetD8_v2)                                                                     \
    X(MemsetD32, cuMemsetD32_v2)                                                                   \
    X(MemsetD32Async, cuMemsetD32Async)                                                            \
    X(PointerGetAttribute, cuPointerGetAttribute)                                                  \
    X(PointerGetAttributes, cuPointerGetAttributes)                                                \
    X(PointerSetAttribute, cuPointerSetAttribute)                                                  \
    X(StreamCreate, cuStreamCreate)                                                                \
    X(StreamCreateWithPriority, cuStreamCreateWithPriority)                                        \
    X(StreamDestroy, cuStreamDestroy_v2)                                                           \
    X(StreamQuery, cuStreamQuery)                                                                  \
    X(StreamSynchronize, cuStreamSynchronize)                                                      \
    X(StreamWaitEvent, cuStreamWaitEvent)                                                          \
    X(StreamGetCtx, cuStreamGetCtx)                                                                \
    X(StreamBeginCapture, cuStreamBeginCapture_v2)                                                 \
    X(StreamEndCapture, cuStreamEndCapture)                                                        \
    X(StreamIsCapturing, cuStreamIsCapturing)                                                      \
    X(ThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode)                          \
    X(StreamWaitValue32, cuStreamWaitValue32_v2)                                                   \
    X(StreamWriteValue32, cuStreamWriteValue32_v2)                                                 \
    X(EventCreate, cuEventCreate)                                                                  \
    X(EventDestroy, cuEventDestroy_v2)                                                             \
    X(EventRecord, cuEventRecord)                                                                  \
    X(EventQuery, cuEventQuery)                                                                    \
    X(EventSynchronize, cuEventSynchronize)                                                        \
    X(EventElapsedTime, cuEventElapsedTime)                                                        \
    X(GraphInstantiate, cuGraphInstantiateWithFlags)                                               \
    X(GraphLaunch, cuGraphLaunch)                                                                  \
    X(GraphExecDestroy, cuGraphExecDestroy)                                                        \
    X(GraphDestroy, cuGraphDestroy)                                                                \
    X(GraphGetNodes, cuGraphGetNodes)                                                              \
    X(GraphNodeGetType, cuGraphNodeGetType)                                                        \
    X(IpcGetMemHandle, cuIpcGetMemHandle)                                                          \
    X(IpcOpenMemHandle, cuIpcOpenMemHandle_v2)                                                     \
    X(IpcCloseMemHandle, cuIpcCloseMemHandle)                                                      \
    X(IpcGetEventHandle, cuIpcGetEventHandle)                                                      \
    X(MemCreate, cuMemCreate)                                                                      \
    X(MemRelease, cuMemRelease)                                                                    \
    X(MemAddressReserve, cuMemAddressReserve)                                                      \
    X(MemAddressFree, cuMemAddressFree)                                                            \
    X(MemMap, cuMemMap)                                                                            \
    X(MemUnmap, cuMemUnmap)                                                                        \
    X(MemSetAccess, cuMemSetAccess)                                                                \
    X(MemGetAllocationGranularity, cuMemGetAllocationGranularity)                                  \
    X(MemExportToShareableHandle, cuMemExportToShareableHandle)                                    \
    X(MemImportFromShareableHandle, cuMemImportFromShareableHandle)                                \
    X(MemRetainAllocationHandle, cuMemRetainAllocationHandle)                                      \
    X(MemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle)                \
    X(MemGetHandleForAddressRange, cuMemGetHandleForAddressRange)                                  \
    X(DeviceCanAccessPeer, cuDeviceCanAccessPeer)

#define DRIVER_MEMBER(member, symbol) __typeof__(&symbol) member;
struct driver {
    DRIVER_CALLS(DRIVER_MEMBER)
};
#undef DRIVER_MEMBER
extern struct driver cu;

/* Loads libcuda.so.1 into `cu`. */
void driver_load(void);
/* driver_load, and calls cuInit; with a context, retains the primary context of
 * device 0 and makes it current. Ends the process with a message on failure. */
void driver_open(bool with_context);
extern CUcontext driver_context;

/* "CUDA_SUCCESS" and so on; a number where the driver has no name. */
const char *result_name(CUresult result);
/* Ends the process with the call's text when it failed. */
void check(CUresult result, const char *text, const char *file, int line);
#define CHECK(call) check(call, #call, __FILE__, __LINE__)
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* A fat binary or PTX file beside the program's own file. */
CUmodule load_module(const char *name);
/* PTX text; prints the assembler's log and ends the process on failure. */
CUmodule load_ptx(const char *text);
CUfunction get_function(CUmodule module, const char *name);
CUdeviceptr device_alloc(size_t nbytes); /* zeroed */
void *mapped_alloc(size_t nbytes);       /* pinned host memory, mapped, zeroed */
int attribute(CUdevice_attribute which); /* of device 0 */
int nprocessors(void);                   /* multiprocessors of device 0 */

double now_us(void);
uint64_t mix64(uint64_t value); /* the finaliser of splitmix64 */
int compare_doubles(const void *left, const void *right);
double median(double *values, int count); /* sorts them */

/* One row of results. Quotes and backslashes in texts become single quotes. */
void row_begin(const char *probe, const char *name);
void row_text(const char *key, const char *value);
void row_number(const char *key, double value);
void row_result(const char *key, CUresult result);
void row_end(void);

#endif
