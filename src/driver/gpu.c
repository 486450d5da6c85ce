/* GPUs as plain data, and whose memory a pointer is. */
#include "driver/driver.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/config.h"
#include "driver/cuda.h"

enum { DEFAULT_CONNECTIONS = 8 }; /* where CUDA_DEVICE_MAX_CONNECTIONS is not set */

tt_status tt_cuda_device(int number, CUdevice *device)
{
    const char *why;
    const int ngpus = tt_driver_ngpus(&why);
    const struct tt_cuda *cu = tt_cuda_load();
    if (ngpus == 0)
        return tt_fail(TT_ERR_ARGUMENT, "there is no GPU %d for this process: %s", number, why);
    if (number < 0 || number >= ngpus)
        return tt_fail(TT_ERR_ARGUMENT,
                       "GPU %d does not exist; this process can use %d (0 is the first)", number,
                       ngpus);
    TT_CUDA_TRY(cu, DeviceGet, device, number);
    return TT_OK;
}

int tt_driver_current(void)
{
    const struct tt_cuda *cu = tt_cuda_load();
    CUdevice current, device;
    if (!cu || cu->CtxGetDevice(&current) != CUDA_SUCCESS) return -1;
    for (int gpu = 0; gpu < tt_driver_ngpus(NULL); gpu++)
        if (cu->DeviceGet(&device, gpu) == CUDA_SUCCESS && device == current) return gpu;
    return -1;
}

int tt_driver_default(void)
{
    if (tt_driver_ngpus(NULL) == 0) return -1;
    const int current = tt_driver_current();
    return current < 0 ? 0 : current;
}

tt_status tt_driver_gpu(int number, struct tt_gpu *gpu)
{
    const struct tt_cuda *cu = tt_cuda_load();
    struct tt_gpu found = {.name = ""};
    CUdevice device;
    CUuuid uuid;
    int major, minor, managed, pageable;
    TT_TRY(tt_cuda_device(number, &device));
    TT_CUDA_TRY(cu, DeviceGetName, found.name, sizeof found.name, device);
    TT_CUDA_TRY(cu, DeviceGetPCIBusId, found.pci, sizeof found.pci, device);
    TT_CUDA_TRY(cu, DeviceGetUuid, &uuid, device);
    TT_CUDA_TRY(cu, DeviceTotalMem, &found.nbytes, device);
    TT_CUDA_TRY(cu, DeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                device);
    TT_CUDA_TRY(cu, DeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                device);
    TT_CUDA_TRY(cu, DeviceGetAttribute, &found.nprocessors,
                CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    TT_CUDA_TRY(cu, DeviceGetAttribute, &managed, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
                device);
    TT_CUDA_TRY(cu, DeviceGetAttribute, &pageable, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
                device);
    memcpy(found.uuid, uuid.bytes, sizeof found.uuid);
    found.capability = 10 * major + minor;
    found.managed = managed != 0;
    found.pageable = pageable != 0;
    *gpu = found;
    return TT_OK;
}

bool tt_driver_peers(int number, int peer)
{
    const struct tt_cuda *cu = tt_cuda_load();
    const int ngpus = tt_driver_ngpus(NULL);
    CUdevice device, other;
    int can = 0;
    if (!cu || number < 0 || number >= ngpus || peer < 0 || peer >= ngpus) return false;
    return cu->DeviceGet(&device, number) == CUDA_SUCCESS &&
           cu->DeviceGet(&other, peer) == CUDA_SUCCESS &&
           cu->DeviceCanAccessPeer(&can, device, other) == CUDA_SUCCESS && can != 0;
}

/* Whether the host can read the byte; also where the kernel does not tell. */
static bool is_readable(const void *pointer)
{
    char byte;
    const struct iovec to = {&byte, 1}, from = {(void *)(uintptr_t)pointer, 1};
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 || errno != EFAULT;
}

tt_status tt_driver_pointer(const void *pointer, struct tt_pointer *result)
{
    const struct tt_cuda *cu = tt_cuda_load();
    CUmemorytype type = 0;
    unsigned managed = 0, legacy = 0;
    int ordinal = -1;
    unsigned long long id = 0;
    CUdeviceptr base = 0, address = 0;
    size_t nbytes = 0;
    CUpointer_attribute what[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_BUFFER_ID,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER,   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
    void *answers[] = {&type, &managed, &ordinal, &id, &base, &nbytes, &address, &legacy};
    /* Succeeds with type 0 for memory that CUDA does not know. */
    const CUresult answer = cu ? cu->PointerGetAttributes(sizeof what / sizeof *what, what, answers,
                                                          (CUdeviceptr)(uintptr_t)pointer)
                               : CUDA_SUCCESS;
    /* In a child of fork the driver, which is its parent's, says so of every pointer. */
    const bool is_inherited = answer == CUDA_ERROR_NOT_INITIALIZED;
    if (answer != CUDA_SUCCESS && !(is_inherited && is_readable(pointer)))
        return tt_cuda_fail(answer, "cuPointerGetAttributes");
    if (type == 0) {
        *result = (struct tt_pointer){.kind = TT_POINTER_HOST, .gpu = -1};
        return TT_OK;
    }
    *result = (struct tt_pointer){.kind = managed                      ? TT_POINTER_MANAGED
                                          : type == CU_MEMORYTYPE_HOST ? TT_POINTER_REGISTERED
                                                                       : TT_POINTER_DEVICE,
                                  .gpu = -1,
                                  .allocation = id,
                                  .base = (void *)(uintptr_t)base,
                                  .nbytes = nbytes,
                                  .device_address = (void *)(uintptr_t)address,
                                  .has_handle = legacy != 0};
    if (result->kind == TT_POINTER_DEVICE) result->gpu = ordinal;
    return TT_OK;
}

int tt_driver_connections(void)
{
    const char *set = tt_environment("CUDA_DEVICE_MAX_CONNECTIONS");
    const int number = set ? atoi(set) : 0;
    if (number < 1) return DEFAULT_CONNECTIONS;
    return number < TT_MOST_CONNECTIONS ? number : TT_MOST_CONNECTIONS;
}
