/* Names and texts of errors. */
#include <stddef.h>

#include "driver.h"

static const struct {
    CUresult result;
    const char *name, *text;
} errors[] = {
#define ERROR(name, text)                                                                          \
    {                                                                                              \
        name, #name, text                                                                          \
    }
    ERROR(CUDA_SUCCESS, "no error"),
    ERROR(CUDA_ERROR_INVALID_VALUE, "an argument has a value that the call does not take"),
    ERROR(CUDA_ERROR_OUT_OF_MEMORY, "there is not enough memory"),
    ERROR(CUDA_ERROR_NOT_INITIALIZED, "cuInit was not called, or failed"),
    ERROR(CUDA_ERROR_DEINITIALIZED, "the driver is shutting down"),
    ERROR(CUDA_ERROR_PROFILER_DISABLED, "profiler disabled"),
    ERROR(CUDA_ERROR_PROFILER_NOT_INITIALIZED, "profiler not initialized"),
    ERROR(CUDA_ERROR_PROFILER_ALREADY_STARTED, "profiler already started"),
    ERROR(CUDA_ERROR_PROFILER_ALREADY_STOPPED, "profiler already stopped"),
    ERROR(CUDA_ERROR_STUB_LIBRARY, "the library that was loaded is a stub"),
    ERROR(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, "call requires newer driver"),
    ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE, "device unavailable"),
    ERROR(CUDA_ERROR_NO_DEVICE, "there is no GPU"),
    ERROR(CUDA_ERROR_INVALID_DEVICE, "no GPU has this number"),
    ERROR(CUDA_ERROR_DEVICE_NOT_LICENSED, "device not licensed"),
    ERROR(CUDA_ERROR_INVALID_IMAGE, "the module is neither PTX nor a fat binary"),
    ERROR(CUDA_ERROR_INVALID_CONTEXT, "the context does not exist, or the thread has none"),
    ERROR(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "context already current"),
    ERROR(CUDA_ERROR_MAP_FAILED, "map failed"),
    ERROR(CUDA_ERROR_UNMAP_FAILED, "unmap failed"),
    ERROR(CUDA_ERROR_ARRAY_IS_MAPPED, "array is mapped"),
    ERROR(CUDA_ERROR_ALREADY_MAPPED, "already mapped"),
    ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "the module holds no PTX for this GPU"),
    ERROR(CUDA_ERROR_ALREADY_ACQUIRED, "already acquired"),
    ERROR(CUDA_ERROR_NOT_MAPPED, "not mapped"),
    ERROR(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "not mapped as array"),
    ERROR(CUDA_ERROR_NOT_MAPPED_AS_POINTER, "not mapped as pointer"),
    ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "ecc uncorrectable"),
    ERROR(CUDA_ERROR_UNSUPPORTED_LIMIT, "unsupported limit"),
    ERROR(CUDA_ERROR_CONTEXT_ALREADY_IN_USE, "context already in use"),
    ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access unsupported"),
    ERROR(CUDA_ERROR_INVALID_PTX, "the PTX could not be read"),
    ERROR(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "invalid graphics context"),
    ERROR(CUDA_ERROR_NVLINK_UNCORRECTABLE, "nvlink uncorrectable"),
    ERROR(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "PTX cannot be compiled, the compiler is not there"),
    ERROR(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
          "the PTX is of a later version than this driver knows"),
    ERROR(CUDA_ERROR_JIT_COMPILATION_DISABLED, "jit compilation disabled"),
    ERROR(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "unsupported exec affinity"),
    ERROR(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC, "unsupported devside sync"),
    ERROR(CUDA_ERROR_CONTAINED, "contained"),
    ERROR(CUDA_ERROR_INVALID_SOURCE, "invalid source"),
    ERROR(CUDA_ERROR_FILE_NOT_FOUND, "the file is not there"),
    ERROR(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found"),
    ERROR(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object init failed"),
    ERROR(CUDA_ERROR_OPERATING_SYSTEM, "operating system"),
    ERROR(CUDA_ERROR_INVALID_HANDLE, "the handle names no object"),
    ERROR(CUDA_ERROR_ILLEGAL_STATE, "illegal state"),
    ERROR(CUDA_ERROR_LOSSY_QUERY, "lossy query"),
    ERROR(CUDA_ERROR_NOT_FOUND, "nothing has this name"),
    ERROR(CUDA_ERROR_NOT_READY, "work that was asked about has not ended"),
    ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "a kernel accessed memory that it cannot address"),
    ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
          "a kernel asked for more threads, registers or shared memory than a block can have"),
    ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "a kernel did not end"),
    ERROR(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, "launch incompatible texturing"),
    ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is enabled already"),
    ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access was not enabled"),
    ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "the primary context is in use"),
    ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context was destroyed"),
    ERROR(CUDA_ERROR_ASSERT, "an assertion in a kernel failed"),
    ERROR(CUDA_ERROR_TOO_MANY_PEERS, "too many peers"),
    ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "the host memory is registered already"),
    ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "the host memory was not registered"),
    ERROR(CUDA_ERROR_HARDWARE_STACK_ERROR, "the stack of a kernel overflowed or was damaged"),
    ERROR(CUDA_ERROR_ILLEGAL_INSTRUCTION, "a kernel came to an instruction that cannot run"),
    ERROR(CUDA_ERROR_MISALIGNED_ADDRESS,
          "a kernel accessed an address that is no multiple of the size"),
    ERROR(CUDA_ERROR_INVALID_ADDRESS_SPACE, "a kernel used an address of another state space"),
    ERROR(CUDA_ERROR_INVALID_PC, "a kernel jumped to no instruction"),
    ERROR(CUDA_ERROR_LAUNCH_FAILED, "a kernel failed"),
    ERROR(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
          "the blocks of a cooperative launch cannot all run at once"),
    ERROR(CUDA_ERROR_TENSOR_MEMORY_LEAK, "tensor memory leak"),
    ERROR(CUDA_ERROR_NOT_PERMITTED, "the call is not permitted here"),
    ERROR(CUDA_ERROR_NOT_SUPPORTED, "this driver or GPU does not support the call"),
    ERROR(CUDA_ERROR_SYSTEM_NOT_READY, "system not ready"),
    ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system driver mismatch"),
    ERROR(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "compat not supported on device"),
    ERROR(CUDA_ERROR_MPS_CONNECTION_FAILED, "mps connection failed"),
    ERROR(CUDA_ERROR_MPS_RPC_FAILURE, "mps rpc failure"),
    ERROR(CUDA_ERROR_MPS_SERVER_NOT_READY, "mps server not ready"),
    ERROR(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, "mps max clients reached"),
    ERROR(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, "mps max connections reached"),
    ERROR(CUDA_ERROR_MPS_CLIENT_TERMINATED, "mps client terminated"),
    ERROR(CUDA_ERROR_CDP_NOT_SUPPORTED, "cdp not supported"),
    ERROR(CUDA_ERROR_CDP_VERSION_MISMATCH, "cdp version mismatch"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the call cannot be captured"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "an earlier call has spoilt the capture"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE, "the call would join two captures"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture did not begin in this stream"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
          "a stream that forked from the capture was not joined"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
          "a dependency would cross the border of the capture"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
          "the legacy stream would depend on a stream that captures"),
    ERROR(CUDA_ERROR_CAPTURED_EVENT, "the event was recorded in a capture"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "another thread began the capture"),
    ERROR(CUDA_ERROR_TIMEOUT, "the time is over"),
    ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
          "the graph differs too much from the executable one"),
    ERROR(CUDA_ERROR_EXTERNAL_DEVICE, "external device"),
    ERROR(CUDA_ERROR_INVALID_CLUSTER_SIZE, "invalid cluster size"),
    ERROR(CUDA_ERROR_FUNCTION_NOT_LOADED, "function not loaded"),
    ERROR(CUDA_ERROR_INVALID_RESOURCE_TYPE, "invalid resource type"),
    ERROR(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "invalid resource configuration"),
    ERROR(CUDA_ERROR_KEY_ROTATION, "key rotation"),
    ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
#undef ERROR
};

static size_t find(CUresult result)
{
    size_t i = 0;
    while (i < sizeof errors / sizeof *errors && errors[i].result != result) i++;
    return i;
}

CUresult cuGetErrorName(CUresult result, const char **name)
{
    const size_t i = find(result);
    if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
    *name = i < sizeof errors / sizeof *errors ? errors[i].name : NULL;
    return *name != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult result, const char **text)
{
    const size_t i = find(result);
    if (text == NULL) return CUDA_ERROR_INVALID_VALUE;
    *text = i < sizeof errors / sizeof *errors ? errors[i].text : NULL;
    return *text != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
