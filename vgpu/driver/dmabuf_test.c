/* Memory of GPUs that other devices use, for which the host's mappings of its descriptors stand. */
#include "testing.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <shim.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vgpu/traffic.h>

enum { PAGE = 4096, WORDS = PAGE / 4, NPAGES = 4, LATER = 50000 };
#define DMABUF CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD

static CUresult range_of(CUdeviceptr at, size_t nbytes, int *fd)
{
    return cuMemGetHandleForAddressRange(fd, at, nbytes, DMABUF, 0);
}

static CUresult refused(CUdeviceptr at, size_t nbytes)
{
    int fd = -1;
    const CUresult result = range_of(at, nbytes, &fd);
    CHECK_EQ(fd, -1);
    return result;
}

/* The range as another device sees it. */
static uint32_t *see(int fd, size_t nbytes)
{
    const off_t position = lseek(fd, 0, SEEK_CUR);
    void *seen = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, position);
    CHECK(seen != MAP_FAILED);
    return seen;
}

/* Memory whose first byte lies within a page. */
static CUdeviceptr within_a_page(size_t nbytes)
{
    vt_device(512);
    const CUdeviceptr memory = vt_device(nbytes);
    CHECK(memory % PAGE != 0);
    return memory;
}

/* ---- What a descriptor holds ---------------------------------------------------------------- */

static void see_both_ways(void)
{
    int whole = -1, part = -1;
    const CUdeviceptr memory = within_a_page(NPAGES * PAGE), base = memory / PAGE * PAGE;
    const size_t first = (memory - base) / 4; /* word */
    OK(cuMemsetD32(memory, 7, NPAGES * WORDS));
    OK(cuCtxSynchronize());
    OK(range_of(base, (NPAGES + 1) * PAGE, &whole));
    OK(range_of(base + 2 * PAGE, PAGE, &part));
    CHECK(fcntl(whole, F_GETFD) & FD_CLOEXEC);
    CHECK(fcntl(part, F_GETFD) & FD_CLOEXEC);
    uint32_t *all = see(whole, (NPAGES + 1) * PAGE), *some = see(part, PAGE);
    CHECK_EQ(all[first], 7);
    CHECK_EQ(all[first + NPAGES * WORDS - 1], 7);
    CHECK_EQ(all[first - 1], 0);
    OK(vt_put(base + 2 * PAGE + 12, 1234, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQ(some[3], 1234);
    CHECK_EQ(all[2 * WORDS + 3], 1234);
    some[5] = 4321; /* a kernel reads it, and then a copy */
    OK(vt_move(memory, base + 2 * PAGE + 20, NULL));
    CHECK_EQ(vt_read(memory, 0), 4321);
    CHECK_EQ(all[first], 4321);
    munmap(all, (NPAGES + 1) * PAGE);
    munmap(some, PAGE);
    close(whole);
    close(part);
}

TEST(vgpu_dmabuf, other_devices_and_kernels_see_each_others_writes)
{
    vt_quiet(NULL, see_both_ways);
}

/* Waits for the kernel, and sets the word for which the kernel waits, when the kernel has looked in
 * vain for a while. */
static void *answer(void *seen)
{
    uint32_t *words = seen;
    while (__atomic_load_n(&words[1], __ATOMIC_ACQUIRE) == 0) sched_yield();
    for (int i = 0; i < LATER; i++) sched_yield();
    __atomic_store_n(&words[0], 99, __ATOMIC_RELEASE);
    return NULL;
}

/* For work that only a GPU could wake, this would be a deadlock. */
static void wait_for_another_device(CUdeviceptr page)
{
    pthread_t other;
    int fd = -1;
    uint32_t value = 99;
    OK(range_of(page, PAGE, &fd));
    uint32_t *seen = see(fd, PAGE);
    CHECK_EQ(pthread_create(&other, NULL, answer, seen), 0);
    OK(vt_launch(vt.meet, 1, NULL, (void *[]){&page, &value}));
    OK(cuCtxSynchronize());
    pthread_join(other, NULL);
    munmap(seen, PAGE);
    close(fd);
}

static void wait_in_an_allocation(void)
{
    wait_for_another_device((vt_device(2 * PAGE) + PAGE - 1) / PAGE * PAGE);
}

static void wait_in_a_mapping(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr memory;
    OK(vt_map(0, 2 << 20, &handle, &memory));
    OK(cuMemsetD32(memory, 0, 2));
    OK(cuCtxSynchronize());
    wait_for_another_device(memory);
}

TEST(vgpu_dmabuf, a_kernel_may_wait_for_another_device)
{
    vt_quiet(NULL, wait_in_an_allocation);
    vt_quiet(NULL, wait_in_a_mapping);
}

static void outlive(void)
{
    int fd = -1, later = -1;
    const CUdeviceptr memory = vt_device(PAGE);
    OK(cuMemsetD32(memory, 9, WORDS));
    OK(cuCtxSynchronize());
    OK(range_of(memory / PAGE * PAGE, PAGE, &fd));
    uint32_t *seen = see(fd, PAGE);
    OK(cuMemFree(memory));
    CHECK_EQ(seen[memory % PAGE / 4], 9);
    CHECK_EQ(refused(memory / PAGE * PAGE, PAGE), CUDA_ERROR_INVALID_VALUE);
    const CUdeviceptr other = vt_device(PAGE); /* its bytes are others */
    OK(cuMemsetD32(other, 5, WORDS));
    OK(cuCtxSynchronize());
    OK(range_of(other / PAGE * PAGE, PAGE, &later));
    CHECK_EQ(seen[memory % PAGE / 4], 9);
    munmap(seen, PAGE);
    close(fd);
    close(later);
}

TEST(vgpu_dmabuf, pages_stay_when_their_memory_is_freed)
{
    vt_quiet(NULL, outlive);
}

/* It has one memfd for both. */
static void export_a_mapping_twice(void)
{
    enum { SIZE = 2 << 20 };
    CUmemGenericAllocationHandle handle, imported;
    CUdeviceptr memory;
    int range = -1, fd = -1;
    OK(vt_map(0, SIZE, &handle, &memory));
    OK(range_of(memory + PAGE, PAGE, &range));
    uint32_t *seen = see(range, PAGE);
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    OK(cuMemsetD32(memory + PAGE, 3, 1));
    OK(cuCtxSynchronize());
    CHECK_EQ(seen[0], 3);
    OK(cuMemRelease(imported));
    OK(cuMemUnmap(memory, SIZE));
    OK(cuMemAddressFree(memory, SIZE));
    OK(cuMemRelease(handle));
    munmap(seen, PAGE);
    close(range);
    close(fd);
}

TEST(vgpu_dmabuf, a_mapping_is_shared_with_devices_and_processes)
{
    vt_quiet(NULL, export_a_mapping_twice);
}

/* ---- What has none -------------------------------------------------------------------------- */

static void refuse_ranges(void)
{
    static char plain[2 * PAGE] __attribute__((aligned(PAGE)));
    int fd = -1;
    CUdeviceptr async, managed;
    void *pinned;
    const CUdeviceptr memory = within_a_page(PAGE), page = memory / PAGE * PAGE;
    OK(range_of(page, 2 * PAGE, &fd)); /* its first and its last page */
    close(fd);
    CHECK_EQ(refused(page, 3 * PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(refused(page + PAGE, 2 * PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(refused(page + 2 * PAGE, PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(refused(page - PAGE, 2 * PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(refused(page, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(refused(page, SIZE_MAX / PAGE * PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(refused(memory, PAGE), CUDA_ERROR_INVALID_VALUE); /* no page begins there */
    CHECK_EQ(refused(page, PAGE + 512), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemGetHandleForAddressRange(NULL, page, PAGE, DMABUF, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemGetHandleForAddressRange(&fd, page, PAGE, DMABUF, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemGetHandleForAddressRange(&fd, page, PAGE, DMABUF + 1, 0),
             CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAllocAsync(&async, 2 * PAGE, NULL));
    OK(cuMemAllocManaged(&managed, 2 * PAGE, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemHostAlloc(&pinned, 2 * PAGE, 0));
    CHECK_EQ(refused(async / PAGE * PAGE, PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(refused(managed, PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(refused((uintptr_t)pinned, PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(refused((uintptr_t)plain, PAGE), CUDA_ERROR_INVALID_VALUE);
}

TEST(vgpu_dmabuf, only_whole_pages_of_one_allocation_have_a_descriptor)
{
    vt_quiet(NULL, refuse_ranges);
}

/* ---- Settings and the flush ------------------------------------------------------------------ */

static int attribute(CUdevice_attribute which)
{
    int value = -1;
    OK(cuDeviceGetAttribute(&value, which, 0));
    return value;
}

static void check_attributes(int exports, int order, int flushes)
{
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED), exports);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING), order);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS), flushes);
}

static CUresult flush(int target, int scope)
{
    return cuFlushGPUDirectRDMAWrites((CUflushGPUDirectRDMAWritesTarget)target,
                                      (CUflushGPUDirectRDMAWritesScope)scope);
}

static uint64_t count_flushes(int gpu)
{
    struct vgpu_traffic traffic = {0};
    CHECK_EQ(vgpu_traffic(gpu, &traffic), 0);
    CHECK_EQ(traffic.launches, 0);
    return traffic.flushes;
}

static void flush_when_on(void)
{
    check_attributes(1, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER, 1);
    CHECK(vt_open(2));
    OK(flush(0, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
    OK(flush(0, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES));
    vt_current(1);
    OK(flush(0, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
    CHECK_EQ(count_flushes(0), 2);
    CHECK_EQ(count_flushes(1), 1);
    CHECK_EQ(flush(1, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(flush(0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(flush(0, 150), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSetCurrent(NULL));
    CHECK_EQ(flush(0, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(count_flushes(0) + count_flushes(1), 3);
}

static void flush_unordered(void)
{
    int fd = -1;
    check_attributes(1, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE, 1);
    OK(range_of(vt_device(PAGE) / PAGE * PAGE, PAGE, &fd));
    OK(flush(0, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
    CHECK_EQ(count_flushes(0), 1);
    close(fd);
}

static void flush_nothing(void)
{
    check_attributes(1, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE, 0);
    CHECK_EQ(flush(0, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(count_flushes(0), 0);
}

static void export_nothing(void)
{
    check_attributes(0, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER, 1);
    CHECK_EQ(refused(vt_device(PAGE) / PAGE * PAGE, PAGE), CUDA_ERROR_NOT_SUPPORTED);
}

TEST(vgpu_dmabuf, settings_say_what_the_devices_can)
{
    vt_quiet((const char *[]){"VGPU_DEVICES=2", NULL}, flush_when_on);
    vt_quiet((const char *[]){"VGPU_DMABUF=unordered", NULL}, flush_unordered);
    vt_quiet((const char *[]){"VGPU_DMABUF=unflushed", NULL}, flush_nothing);
    vt_quiet((const char *[]){"VGPU_DMABUF=off", NULL}, export_nothing);
}
