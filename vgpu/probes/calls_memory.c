/* The conformance table: memory, pointers, virtual memory management. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "calls.h"

struct number_attribute {
    const char *name;
    CUpointer_attribute which;
};

static const struct number_attribute numbers[] = {
    {"MEMORY_TYPE", CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
    {"IS_MANAGED", CU_POINTER_ATTRIBUTE_IS_MANAGED},
    {"DEVICE_ORDINAL", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
    {"MAPPED", CU_POINTER_ATTRIBUTE_MAPPED},
    {"SYNC_MEMOPS", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS},
    {"IS_LEGACY_CUDA_IPC_CAPABLE", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE},
    {"ALLOWED_HANDLE_TYPES", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES},
    {"IS_GPU_DIRECT_RDMA_CAPABLE", CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE},
    {"ACCESS_FLAGS", CU_POINTER_ATTRIBUTE_ACCESS_FLAGS},
    {"RANGE_SIZE", CU_POINTER_ATTRIBUTE_RANGE_SIZE},
    {"MAPPING_SIZE", CU_POINTER_ATTRIBUTE_MAPPING_SIZE},
};

/* All attributes of one pointer, which lies `offset` bytes into memory that begins at `base`. */
static void attributes_of(const char *kind, CUdeviceptr base, size_t offset)
{
    char call[96];
    const CUdeviceptr pointer = base + offset;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        unsigned long long value = 0;
        const CUresult result = cu.PointerGetAttribute(&value, numbers[i].which, pointer);
        snprintf(call, sizeof call, "cuPointerGetAttribute(%s)", numbers[i].name);
        say(kind, call, result);
        if (result != CUDA_SUCCESS) continue;
        if (numbers[i].which == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) value = (unsigned)value;
        snprintf(call, sizeof call, "%s", numbers[i].name);
        say_value(kind, call,
                  numbers[i].which == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? (int)value
                                                                          : (long long)value);
    }
    CUcontext context = (CUcontext)1;
    const CUresult owner = cu.PointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, pointer);
    say(kind, "cuPointerGetAttribute(CONTEXT)", owner);
    if (owner == CUDA_SUCCESS)
        say_text(kind, "CONTEXT",
                 !context                    ? "NULL"
                 : context == driver_context ? "the primary context"
                                             : "another");
    static const struct number_attribute pointers[] = {
        {"DEVICE_POINTER", CU_POINTER_ATTRIBUTE_DEVICE_POINTER},
        {"HOST_POINTER", CU_POINTER_ATTRIBUTE_HOST_POINTER},
        {"RANGE_START_ADDR", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR},
        {"MAPPING_BASE_ADDR", CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR},
    };
    for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++) {
        CUdeviceptr value = 0;
        const CUresult result = cu.PointerGetAttribute(&value, pointers[i].which, pointer);
        snprintf(call, sizeof call, "cuPointerGetAttribute(%s)", pointers[i].name);
        say(kind, call, result);
        if (result == CUDA_SUCCESS)
            say_text(kind, pointers[i].name,
                     value == pointer ? "the pointer"
                     : value == base  ? "the beginning"
                     : value == 0     ? "0"
                                      : "another address");
    }
    unsigned long long first = 0, second = 0;
    const CUresult result = cu.PointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer);
    say(kind, "cuPointerGetAttribute(BUFFER_ID)", result);
    if (cu.PointerGetAttribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, base) == CUDA_SUCCESS)
        say_value(kind, "BUFFER_ID is the same at the beginning", first == second);
    /* The call that asks for several gives 0 instead of failing. */
    unsigned type = 77;
    void *values[] = {&type};
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    say(kind, "cuPointerGetAttributes(MEMORY_TYPE)",
        cu.PointerGetAttributes(1, which, values, pointer));
    say_value(kind, "MEMORY_TYPE of cuPointerGetAttributes", type);
    CUdeviceptr start;
    size_t size;
    say(kind, "cuMemGetAddressRange", cu.MemGetAddressRange(&start, &size, pointer));
}

static CUdeviceptr vmm_alloc(size_t size, CUmemLocationType where,
                             CUmemGenericAllocationHandle *handle)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = where, .id = 0}};
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address;
    if (SAY("VMM allocation", cu.MemCreate(handle, size, &prop, 0)) != CUDA_SUCCESS) return 0;
    CHECK(cu.MemAddressReserve(&address, size, 0, 0, 0));
    CHECK(cu.MemMap(address, size, 0, *handle, 0));
    CHECK(cu.MemSetAccess(address, size, &access, 1));
    return address;
}

void pointer_attributes(void)
{
    enum { SIZE = 8 << 20 };
    CUdeviceptr memory, device;
    CUmemGenericAllocationHandle handle;
    driver_open(true);
    memory = device_alloc(SIZE);
    attributes_of("cuMemAlloc", memory, 0);
    attributes_of("cuMemAlloc, interior", memory, 4097);
    attributes_of("cuMemAlloc, one past the end", memory, SIZE);
    CHECK(cu.MemFree(memory));
    attributes_of("cuMemAlloc, freed", memory, 0);
    if (SAY("cuMemAllocAsync", cu.MemAllocAsync(&memory, SIZE, NULL)) == CUDA_SUCCESS) {
        attributes_of("cuMemAllocAsync", memory, 16);
        SAY("cuMemAllocAsync", cu.MemFree(memory));
    }
    if (SAY("cuMemAllocManaged", cu.MemAllocManaged(&memory, 1 << 20, CU_MEM_ATTACH_GLOBAL)) ==
        CUDA_SUCCESS)
        attributes_of("cuMemAllocManaged", memory, 16);
    char *host = mapped_alloc(SIZE);
    attributes_of("cuMemHostAlloc, mapped", (uintptr_t)host, 16);
    SAY("cuMemHostAlloc, mapped", cu.MemHostGetDevicePointer(&device, host, 0));
    say_value("cuMemHostAlloc, mapped", "device pointer is the host pointer",
              device == (uintptr_t)host);
    void *plain;
    CHECK(cu.MemHostAlloc(&plain, SIZE, 0));
    attributes_of("cuMemHostAlloc, flags 0", (uintptr_t)plain, 16);
    SAY("cuMemHostAlloc, flags 0", cu.MemHostGetDevicePointer(&device, plain, 0));
    host = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    attributes_of("plain host memory", (uintptr_t)host, 16);
    CHECK(cu.MemHostRegister(host, SIZE, CU_MEMHOSTREGISTER_DEVICEMAP));
    attributes_of("cuMemHostRegister", (uintptr_t)host, 16);
    SAY("cuMemHostRegister", cu.MemHostGetDevicePointer(&device, host + 16, 0));
    say_value("cuMemHostRegister", "device pointer is the host pointer",
              device == (uintptr_t)(host + 16));
    SAY("cuMemHostRegister", cu.MemHostUnregister(host));
    attributes_of("cuMemHostUnregister", (uintptr_t)host, 16);
    memory = vmm_alloc(SIZE, CU_MEM_LOCATION_TYPE_DEVICE, &handle);
    if (memory) attributes_of("VMM, device", memory, 4096);
    memory = vmm_alloc(SIZE, CU_MEM_LOCATION_TYPE_HOST_NUMA, &handle);
    if (memory) attributes_of("VMM, host NUMA", memory, 4096);
    CHECK(cu.MemAddressReserve(&memory, SIZE, 0, 0, 0));
    attributes_of("VMM, reserved and not mapped", memory, 4096);
    attributes_of("NULL", 0, 0);
    static char global[64];
    attributes_of("static memory of the program", (uintptr_t)global, 0);
    size_t size;
    CUmodule module = load_ptx(".version 8.0\n.target sm_75\n.address_size 64\n"
                               ".visible .global .u32 word[4];\n");
    CHECK(cu.ModuleGetGlobal(&memory, &size, module, "word"));
    attributes_of("global variable of a module", memory, 0);
}

void memory_errors(void)
{
    CUdeviceptr memory;
    void *host;
    unsigned word = 0, flags;
    CUdeviceptr device;
    driver_open(true);
    SAY("0 bytes", cu.MemAlloc(&memory, 0));
    SAY("more than there is", cu.MemAlloc(&memory, (size_t)1 << 50));
    SAY("after out of memory", cu.MemAlloc(&memory, 4096));
    say_value("cuMemAlloc", "alignment is 512", memory % 512 == 0);
    SAY("interior", cu.MemFree(memory + 256));
    SAY("allocated", cu.MemFree(memory));
    SAY("freed twice", cu.MemFree(memory));
    SAY("NULL", cu.MemFree(0));
    SAY("host pointer", cu.MemFree((uintptr_t)&word));
    SAY("copy from freed memory", cu.MemcpyDtoH(&word, memory, 4));
    memory = device_alloc(4 << 20);
    SAY("copy past the end", cu.MemcpyDtoH(malloc(8 << 20), memory, 8 << 20));
    SAY("copy of 0 bytes", cu.MemcpyDtoH(&word, memory, 0));
    SAY("copy from NULL", cu.MemcpyDtoH(&word, 0, 4));
    SAY("copy to NULL", cu.MemcpyDtoH(NULL, memory, 4));
    SAY("host pointer as device pointer", cu.MemcpyDtoH(&word, (uintptr_t)&flags, 4));
    SAY("device pointers swapped for host", cu.MemcpyHtoD(memory, (void *)(uintptr_t)memory, 4));
    SAY("unified copy, both host", cu.Memcpy((uintptr_t)&word, (uintptr_t)&flags, 4));
    SAY("unified copy, host and device", cu.Memcpy(memory, (uintptr_t)&flags, 4));
    SAY("memset past the end", cu.MemsetD8(memory, 0, 8 << 20));
    SAY("memset misaligned", cu.MemsetD32(memory + 2, 0, 4));
    SAY("after failed copies", cu.CtxSynchronize());
    SAY("0 bytes", cu.MemHostAlloc(&host, 0, 0));
    host = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SAY("not a page", cu.MemHostRegister((char *)host + 100, 1000, CU_MEMHOSTREGISTER_DEVICEMAP));
    SAY("not a page", cu.MemHostUnregister((char *)host + 100));
    SAY("first time", cu.MemHostRegister(host, 1 << 20, CU_MEMHOSTREGISTER_DEVICEMAP));
    SAY("second time", cu.MemHostRegister(host, 1 << 20, CU_MEMHOSTREGISTER_DEVICEMAP));
    SAY("overlapping", cu.MemHostRegister((char *)host + 4096, 4096, 0));
    SAY("registered", cu.MemHostGetFlags(&flags, host));
    SAY("interior", cu.MemHostUnregister((char *)host + 4096));
    SAY("registered", cu.MemHostUnregister(host));
    SAY("unregistered", cu.MemHostUnregister(host));
    SAY("unregistered", cu.MemHostGetDevicePointer(&device, host, 0));
    SAY("unregistered", cu.MemFreeHost(host));
    SAY("unmapped memory", cu.MemHostRegister((void *)0x10000, 4096, 0));
    SAY("read-only memory", cu.MemHostRegister((void *)((uintptr_t) "text" & ~4095ul), 4096, 0));
    CUipcMemHandle handle;
    SAY("device memory", cu.IpcGetMemHandle(&handle, memory));
    SAY("interior", cu.IpcGetMemHandle(&handle, memory + 512));
    SAY("host memory", cu.IpcGetMemHandle(&handle, (uintptr_t)host));
    SAY("in the process that made the handle",
        cu.IpcOpenMemHandle(&device, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    SAY("not opened", cu.IpcCloseMemHandle(memory));
    int can;
    SAY("itself", cu.DeviceCanAccessPeer(&can, 0, 0));
    say_value("itself", "can access", can);
    SAY("itself", cu.CtxEnablePeerAccess(driver_context, 0));
    int fd = -1;
    SAY("device memory", cu.MemGetHandleForAddressRange(&fd, memory, 4 << 20,
                                                        CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
}

void virtual_memory(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle, again;
    CUdeviceptr at;
    size_t least, recommended;
    int fd = -1;
    driver_open(true);
    CHECK(cu.MemGetAllocationGranularity(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(
        cu.MemGetAllocationGranularity(&recommended, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    say_value("VMM", "granularity, minimum", (long long)least);
    say_value("VMM", "granularity, recommended", (long long)recommended);
    SAY("size no multiple", cu.MemCreate(&handle, least + 4096, &prop, 0));
    SAY("size 0", cu.MemCreate(&handle, 0, &prop, 0));
    SAY("granule", cu.MemCreate(&handle, 2 * least, &prop, 0));
    SAY("size no multiple", cu.MemAddressReserve(&at, least + 1, 0, 0, 0));
    SAY("two granules", cu.MemAddressReserve(&at, 2 * least, 0, 0, 0));
    SAY("not mapped", cu.MemsetD8(at, 0, 16));
    SAY("not mapped", cu.MemSetAccess(at, 2 * least, &access, 1));
    SAY("not mapped", cu.MemUnmap(at, 2 * least));
    SAY("half of it", cu.MemMap(at, least, 0, handle, 0));
    SAY("first map", cu.MemMap(at, 2 * least, 0, handle, 0));
    SAY("mapped already", cu.MemMap(at, 2 * least, 0, handle, 0));
    SAY("mapped, no access", cu.MemsetD8(at, 0, 16));
    SAY("mapped", cu.MemSetAccess(at, 2 * least, &access, 1));
    SAY("mapped, access", cu.MemsetD8(at, 0, 16));
    SAY("mapped", cu.MemFree(at));
    SAY("mapped", cu.MemAddressFree(at, 2 * least));
    SAY("address", cu.MemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + 4096)));
    SAY("handle",
        cu.MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    say_value("handle", "a descriptor is given", fd >= 0);
    SAY("descriptor", cu.MemImportFromShareableHandle(&again, (void *)(intptr_t)fd,
                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    SAY("bad descriptor", cu.MemImportFromShareableHandle(
                              &again, (void *)999, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    SAY("fabric", cu.MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0));
    CUipcMemHandle ipc;
    SAY("VMM memory", cu.IpcGetMemHandle(&ipc, at));
    SAY("mapped", cu.MemRelease(handle));
    SAY("released, still mapped", cu.MemsetD8(at, 0, 16));
    SAY("part", cu.MemUnmap(at, least));
    SAY("whole", cu.MemUnmap(at, 2 * least));
    SAY("unmapped", cu.MemAddressFree(at, 2 * least));
    SAY("freed", cu.MemAddressFree(at, 2 * least));
}

/* Nanoseconds of a call, the median of 9 times 20,000. */
#define COST(what, call)                                                                           \
    do {                                                                                           \
        double times[9];                                                                           \
        for (int t = 0; t < 9; t++) {                                                              \
            const double begin = now_us();                                                         \
            for (int i = 0; i < 20000; i++) (void)(call);                                          \
            times[t] = (now_us() - begin) / 20000 * 1000;                                          \
        }                                                                                          \
        row_begin("cost", what);                                                                   \
        row_number("ns", median(times, 9));                                                        \
        row_end();                                                                                 \
    } while (0)

void pointer_costs(void)
{
    unsigned type;
    CUcontext context;
    CUdeviceptr start, memory;
    size_t size;
    CUdevice device;
    CUstream stream;
    CUstreamCaptureStatus status;
    driver_open(true);
    for (int i = 0; i < 100; i++) memory = device_alloc(4096);
    void *host = mapped_alloc(4096), *plain = malloc(4096);
    CHECK(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    void *values[] = {&type, &context};
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT};
    COST("cuPointerGetAttribute(MEMORY_TYPE), device",
         cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
    COST("cuPointerGetAttribute(MEMORY_TYPE), pinned",
         cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)host));
    COST("cuPointerGetAttribute(MEMORY_TYPE), plain host",
         cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)plain));
    COST("cuPointerGetAttribute(BUFFER_ID), device",
         cu.PointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
    COST("cuPointerGetAttributes(2), device", cu.PointerGetAttributes(2, which, values, memory));
    COST("cuPointerGetAttributes(2), plain host",
         cu.PointerGetAttributes(2, which, values, (uintptr_t)plain));
    COST("cuMemGetAddressRange", cu.MemGetAddressRange(&start, &size, memory));
    COST("cuCtxGetCurrent", cu.CtxGetCurrent(&context));
    COST("cuCtxSetCurrent", cu.CtxSetCurrent(driver_context));
    COST("cuCtxPushCurrent and cuCtxPopCurrent",
         cu.CtxPushCurrent(driver_context) + cu.CtxPopCurrent(&context));
    COST("cuCtxGetDevice", cu.CtxGetDevice(&device));
    COST("cuDevicePrimaryCtxRetain and Release",
         cu.DevicePrimaryCtxRetain(&context, 0) + cu.DevicePrimaryCtxRelease(0));
    COST("cuStreamIsCapturing", cu.StreamIsCapturing(stream, &status));
    COST("cuStreamQuery, idle", cu.StreamQuery(stream));
    COST("cuStreamGetCtx", cu.StreamGetCtx(stream, &context));
    COST("cuDeviceGetAttribute",
         cu.DeviceGetAttribute((int *)&type, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
}
