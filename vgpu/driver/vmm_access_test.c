/* cuMemSetAccess: which GPU may read or write a mapping, and whether the host may. */
#include "testing.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 2 << 20 };

static CUmemAccessDesc access_of(int device, CUmemAccess_flags flags)
{
    return (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                             .flags = flags};
}

static CUmemAccessDesc access_of_host(CUmemAccess_flags flags)
{
    return (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}, .flags = flags};
}

static unsigned long long flags_of(CUmemAccessDesc access, CUdeviceptr at)
{
    unsigned long long flags = 99;
    OK(cuMemGetAccess(&flags, &access.location, at));
    return flags;
}

static CUdeviceptr map(CUmemLocationType type, const CUmemAccessDesc *access, size_t n)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = type}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at = 0;
    OK(cuMemCreate(&handle, SIZE, &prop, 0));
    OK(cuMemAddressReserve(&at, SIZE, 0, 0, 0));
    OK(cuMemMap(at, SIZE, 0, handle, 0));
    for (size_t i = 0; i < n; i++) OK(cuMemSetAccess(at, SIZE, &access[i], 1));
    return at;
}

/* The first GPU writes and the second one reads; whichever of the two rights was set last. */
static void one_writes_one_reads(void)
{
    CHECK(vt_open(2));
    const CUmemAccessDesc writes = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                          reads = access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READ);
    for (int order = 0; order < 2; order++) {
        const CUmemAccessDesc access[] = {order ? writes : reads, order ? reads : writes};
        const CUdeviceptr at = map(CU_MEM_LOCATION_TYPE_DEVICE, access, 2);
        CHECK_EQ(flags_of(writes, at), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        CHECK_EQ(flags_of(reads, at), CU_MEM_ACCESS_FLAGS_PROT_READ);
        OK(vt_put(at, 17, NULL));
        OK(cuCtxSynchronize());
        vt_current(1);
        const CUdeviceptr own = vt_device(64);
        OK(vt_move(own, at, NULL));
        CHECK_EQ(vt_read(own, 0), 17);
        unsigned flags = 99;
        OK(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at));
        CHECK_EQ(flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ);
        vt_current(0);
        OK(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at));
        CHECK_EQ(flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
        OK(cuMemSetAccess(at, SIZE, &(CUmemAccessDesc){.location = reads.location}, 1));
        CHECK_EQ(flags_of(reads, at), CU_MEM_ACCESS_FLAGS_PROT_NONE);
        CHECK_EQ(flags_of(writes, at), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
}

TEST(vmm_access, is_of_each_gpu_by_itself)
{
    char text[4096];
    CHECK_MESSAGE(vt_run_unopened(NULL, one_writes_one_reads, text, sizeof text) == 0, "%s", text);
}

static void reader_writes(void)
{
    CHECK(vt_open(2));
    const CUmemAccessDesc access[] = {access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READ),
                                      access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
    const CUdeviceptr at = map(CU_MEM_LOCATION_TYPE_DEVICE, access, 2);
    vt_current(1);
    OK(vt_put(at, 17, NULL));
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(vmm_access, of_a_gpu_that_may_only_read_fails_a_kernel_that_writes)
{
    char text[4096];
    CHECK_EQ(vt_run_unopened(NULL, reader_writes, text, sizeof text), 86);
    CHECK_MESSAGE(strstr(text, "which is read-only: a VMM mapping") != NULL, "%s", text);
}

static bool fills;

static void reader_is_copied_to(void)
{
    CHECK(vt_open(2));
    const CUmemAccessDesc access[] = {access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READ),
                                      access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
    const CUdeviceptr at = map(CU_MEM_LOCATION_TYPE_DEVICE, access, 2);
    OK(fills ? cuMemsetD32(at, 3, 8) : cuMemcpyDtoD(at, at + 64, 32));
    OK(cuCtxSynchronize());
    vt_current(1);
    OK(cuMemcpyDtoD(vt_device(64), at, 32));
    OK(fills ? cuMemsetD32(at, 3, 8) : cuMemcpyDtoD(at, at + 64, 32));
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(vmm_access, of_a_gpu_that_may_only_read_fails_copies_and_fills)
{
    char text[4096];
    for (int i = 0; i < 2; i++) {
        fills = i == 1;
        CHECK_EQ(vt_run_unopened(NULL, reader_is_copied_to, text, sizeof text), 86);
        CHECK_MESSAGE(strstr(text, "that its GPU may only read") != NULL, "%s", text);
    }
}

static void two_in_turn(void)
{
    CHECK(vt_open(2));
    const CUmemAccessDesc access[] = {access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                                      access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READ)};
    const CUdeviceptr at = map(CU_MEM_LOCATION_TYPE_DEVICE, access, 2);
    CUstream first, second;
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(vt_put(at, 17, first));
    vt_current(1);
    const CUdeviceptr own = vt_device(64);
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(vt_move(own, at, second));
    OK(cuCtxSynchronize());
    vt_current(0);
    OK(cuCtxSynchronize());
}

TEST(vmm_access, of_a_gpu_that_may_only_read_still_races_with_a_gpu_that_writes)
{
    char text[4096];
    CHECK_EQ(vt_run_unopened(NULL, two_in_turn, text, sizeof text), 86);
    CHECK_MESSAGE(strstr(text, "vgpu: race: ") != NULL, "%s", text);
}

/* The kernel copies to a buffer of the process, or says EFAULT. */
static bool host_may_write(CUdeviceptr at)
{
    const int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    const ssize_t n = read(zeros, (void *)(uintptr_t)at, 4);
    close(zeros);
    return n == 4;
}

static void host_reads(void)
{
    const CUmemAccessDesc access[] = {access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                                      access_of_host(CU_MEM_ACCESS_FLAGS_PROT_READ)};
    const CUmemAccessDesc more = access_of_host(CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                          less = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    const CUdeviceptr at = map(CU_MEM_LOCATION_TYPE_HOST_NUMA, access, 2);
    CHECK_EQ(flags_of(access[0], at), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_EQ(flags_of(access[1], at), CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK(vt_put(at, 17, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQ(*(volatile uint32_t *)(uintptr_t)at, 17);
    CHECK(!host_may_write(at));
    OK(cuMemSetAccess(at, SIZE, &more, 1));
    OK(cuMemSetAccess(at, SIZE, &less, 1));
    CHECK_EQ(flags_of(access[0], at), CU_MEM_ACCESS_FLAGS_PROT_READ);
    CHECK_EQ(flags_of(access[1], at), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(host_may_write(at));
    OK(cuMemUnmap(at, SIZE));
}

TEST(vmm_access, of_the_host_is_apart_from_that_of_gpus)
{
    vt_quiet(NULL, host_reads);
}

static void unmap_nothing(void)
{
    const CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    const CUdeviceptr at = map(CU_MEM_LOCATION_TYPE_DEVICE, &access, 1);
    CHECK_EQ(cuMemUnmap(at, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemUnmap(0, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(at, SIZE));
    CHECK_EQ(cuMemUnmap(at, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(vmm, no_bytes_cannot_be_unmapped)
{
    vt_quiet(NULL, unmap_nothing);
}
