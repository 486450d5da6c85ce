/* Device memory that other devices use in place, for which the host's mappings of its descriptors
 * stand. Each body runs in a process of its own, with its own settings of the virtual GPU. */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vgpu/driver/testing.h>

#include "driver/context.h"
#include "driver/context_internal.h"

enum { NBYTES = 10000 };

static const char *const plain[] = {"VGPU_DEVICES=2", NULL};
static const char *const off[] = {"VGPU_DMABUF=off", NULL};

struct export
{
    int fd;
    char *base;
    size_t nbytes;
    char *seen; /* its pages as another device sees them */
};

static struct tt_context *open_context(int gpu)
{
    struct tt_context *context = NULL;
    CHECK_EQ(tt_context_open(gpu, &context), TT_OK);
    return context;
}

/* Memory that neither begins nor ends with a page. */
static char *allocate(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    vt_device(512);
    const CUdeviceptr memory = vt_device(NBYTES);
    CHECK(memory % page != 0 && (memory + NBYTES) % page != 0);
    return (char *)(uintptr_t)memory;
}

static CUdeviceptr address_of(const void *memory)
{
    return (uintptr_t)memory;
}

/* The whole pages of the range, mapped. The virtual GPU says by the file position where they begin.
 */
static struct export export_range(struct tt_context *context, const char *memory, size_t nbytes)
{
    struct export made = {.fd = -1};
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)memory;
    CHECK_EQ(tt_context_export(context, memory, nbytes, &made.fd, &made.base, &made.nbytes), TT_OK);
    CHECK(made.base == (const char *)(first / page * page));
    CHECK_EQ(made.nbytes, (first % page + nbytes + page - 1) / page * page);
    CHECK(fcntl(made.fd, F_GETFD) & FD_CLOEXEC);
    made.seen = mmap(NULL, made.nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd,
                     lseek(made.fd, 0, SEEK_CUR));
    CHECK(made.seen != MAP_FAILED);
    return made;
}

static char *at(const struct export *export, const char *memory)
{
    return export->seen + (memory - export->base);
}

static void drop(const struct export *export)
{
    munmap(export->seen, export->nbytes);
    close(export->fd);
}

static void fill(char bytes[NBYTES], int seed)
{
    for (int i = 0; i < NBYTES; i++) bytes[i] = (char)(seed + i * 7 + i / 256);
}

/* ---- What the descriptor holds --------------------------------------------------------------- */

static void write_both_ways(void)
{
    static char mine[NBYTES], theirs[NBYTES], back[NBYTES];
    struct tt_context *context = open_context(0);
    char *memory = allocate();
    fill(mine, 1);
    fill(theirs, 2);
    const struct export whole = export_range(context, memory, NBYTES);
    OK(cuMemcpyHtoD(address_of(memory), mine, NBYTES));
    CHECK(memcmp(at(&whole, memory), mine, NBYTES) == 0);
    memcpy(at(&whole, memory), theirs, NBYTES);
    OK(cuMemcpyDtoH(back, address_of(memory), NBYTES));
    CHECK(memcmp(back, theirs, NBYTES) == 0);
    drop(&whole);
    tt_context_close(context);
}

TEST(export, copies_and_other_devices_see_the_same_bytes)
{
    vt_quiet(plain, write_both_ways);
}

/* One page and a byte of the next, and from the middle to the last byte. */
static void export_overlapping(void)
{
    struct tt_context *context = open_context(0);
    char *memory = allocate(), *middle = memory + NBYTES / 2, word = 0;
    const struct export front = export_range(context, memory + 1, NBYTES / 2);
    const struct export back = export_range(context, middle, NBYTES - NBYTES / 2);
    CHECK(front.fd != back.fd && front.base + front.nbytes > back.base && back.base > front.base);
    *at(&front, middle) = 5;
    CHECK_EQ(*at(&back, middle), 5);
    OK(cuMemsetD8(address_of(middle), 6, 1));
    OK(cuCtxSynchronize());
    CHECK_EQ(*at(&front, middle), 6);
    CHECK_EQ(*at(&back, middle), 6);
    drop(&front);
    *at(&back, memory + NBYTES - 1) = 7;
    OK(cuMemcpyDtoH(&word, address_of(memory + NBYTES - 1), 1));
    CHECK_EQ(word, 7);
    drop(&back);
    tt_context_close(context);
}

TEST(export, pages_are_exported_more_than_once)
{
    vt_quiet(plain, export_overlapping);
}

static void free_exported(void)
{
    static char mine[NBYTES];
    struct tt_context *context = open_context(0);
    char *memory = allocate();
    fill(mine, 3);
    OK(cuMemcpyHtoD(address_of(memory), mine, NBYTES));
    const struct export whole = export_range(context, memory, NBYTES);
    OK(cuMemFree(address_of(memory)));
    const CUdeviceptr next = vt_device(NBYTES); /* not in these pages */
    OK(cuMemsetD8(next, 0xff, NBYTES));
    OK(cuCtxSynchronize());
    tt_context_close(context);
    CHECK(memcmp(at(&whole, memory), mine, NBYTES) == 0);
    drop(&whole);
}

TEST(export, pages_outlive_their_memory)
{
    vt_quiet(plain, free_exported);
}

/* The context's own memory, beside that of the user. */
static void export_own_memory(void)
{
    struct tt_context *context = open_context(1);
    void *memory = NULL;
    const char byte = 9;
    CHECK_EQ(tt_context_allocate(context, NBYTES, &memory), TT_OK);
    const struct export one = export_range(context, memory, 1);
    CHECK_EQ(tt_context_upload(context, memory, &byte, 1), TT_OK);
    CHECK_EQ(*at(&one, memory), 9);
    drop(&one);
    tt_context_free(context, memory);
    tt_context_close(context);
}

TEST(export, memory_of_contexts_is_exported_too)
{
    vt_quiet(plain, export_own_memory);
}

/* ---- What is not exported ---------------------------------------------------------------------
 */

static void check_fails(struct tt_context *context, const void *memory, size_t nbytes, int code,
                        const char *text)
{
    int fd = -5;
    char *base = NULL;
    size_t exported = 3;
    CHECK_EQ(tt_context_export(context, memory, nbytes, &fd, &base, &exported), code);
    CHECK_MESSAGE(strstr(tt_last_error(), text) != NULL, "no \"%s\" in: %s", text, tt_last_error());
    CHECK(fd == -5 && base == NULL && exported == 3);
}

static void check_refused(struct tt_context *context, const void *memory, size_t nbytes,
                          const char *text)
{
    check_fails(context, memory, nbytes, TT_ERR_ARGUMENT, text);
}

static void refuse_memory(void)
{
    static char host[NBYTES];
    CUdeviceptr managed;
    void *pinned = NULL, *others = NULL;
    struct tt_context *context = open_context(0), *other = open_context(1);
    char *memory = allocate();
    OK(cuMemAllocManaged(&managed, NBYTES, CU_MEM_ATTACH_GLOBAL));
    CHECK_EQ(tt_context_allocate_host(context, NBYTES, &pinned), TT_OK);
    CHECK_EQ(tt_context_allocate(other, NBYTES, &others), TT_OK);
    check_refused(context, host, 1, "is memory of the host: only device memory of GPU 0 can");
    check_refused(context, NULL, 1, "is memory of the host: only device memory of GPU 0 can");
    check_refused(context, pinned, 1, "is pinned memory of the host: only device memory of GPU 0");
    check_refused(context, (void *)(uintptr_t)managed, 1,
                  "is managed memory: only device memory of GPU 0 can");
    check_refused(context, others, 1, "is memory of GPU 1: only that of GPU 0 can be exported");
    check_refused(other, memory, 1, "is memory of GPU 0: only that of GPU 1 can be exported");
    check_refused(context, memory, 0, "0 bytes from ");
    check_refused(context, memory + 1, NBYTES, "10000 bytes from ");
    check_refused(context, memory + 1, NBYTES, "has 9999 bytes from there");
    check_refused(context, memory, SIZE_MAX, "has 10000 bytes from there");
    OK(cuMemFree(address_of(memory)));
    check_refused(context, memory, 1, "is memory of the host");
    tt_context_free(other, others);
    tt_context_free_host(context, pinned);
    OK(cuMemFree(managed));
    tt_context_close(context);
    tt_context_close(other);
}

TEST(export, only_device_memory_of_the_context_is_exported)
{
    vt_quiet(plain, refuse_memory);
}

static void refuse_without_dmabuf(void)
{
    struct tt_context *context = open_context(0);
    check_fails(context, allocate(), 1, TT_ERR_USAGE, "CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0");
    tt_context_close(context);
}

TEST(export, a_gpu_that_cannot_export_says_why)
{
    vt_quiet(off, refuse_without_dmabuf);
}

/* ---- Other drivers ----------------------------------------------------------------------------
 */

/* The context, with a driver that differs. */
static struct tt_context with(const struct tt_context *context, const struct tt_cuda *cu)
{
    struct tt_context other = *context;
    other.cu = cu;
    return other;
}

static void use_older_driver(void)
{
    struct tt_context *context = open_context(0);
    struct tt_cuda without_ranges = *context->cu;
    struct tt_context older = with(context, &without_ranges);
    without_ranges.MemGetHandleForAddressRange = NULL;
    check_fails(&older, allocate(), 1, TT_ERR_USAGE,
                "its driver has no cuMemGetHandleForAddressRange");
    tt_context_close(context);
}

TEST(export, a_driver_without_the_function_exports_nothing)
{
    vt_quiet(plain, use_older_driver);
}

static CUresult answer;
static int given; /* with CUDA_SUCCESS */

static CUresult answer_range(void *handle, CUdeviceptr address, size_t nbytes,
                             CUmemRangeHandleType type, unsigned long long flags)
{
    (void)address, (void)nbytes, (void)type, (void)flags;
    if (answer == CUDA_SUCCESS) memcpy(handle, &given, sizeof given);
    return answer;
}

static void pass_on_errors(void)
{
    int fd = -1;
    char *base;
    size_t exported;
    CUcontext current = NULL;
    struct tt_context *context = open_context(0);
    struct tt_cuda cu = *context->cu;
    struct tt_context refusing = with(context, &cu);
    char *memory = allocate();
    cu.MemGetHandleForAddressRange = answer_range;
    OK(cuCtxSetCurrent(NULL));
    answer = CUDA_ERROR_NOT_SUPPORTED;
    check_refused(&refusing, memory, 1,
                  "cuMemGetHandleForAddressRange failed: CUDA_ERROR_NOT_SUPPORTED (");
    answer = CUDA_ERROR_INVALID_VALUE;
    check_refused(&refusing, memory, 1, "CUDA_ERROR_INVALID_VALUE (");
    answer = CUDA_ERROR_OPERATING_SYSTEM;
    CHECK_EQ(tt_context_export(&refusing, memory, 1, &fd, &base, &exported), TT_ERR_DEVICE);
    CHECK(strstr(tt_last_error(), "CUDA_ERROR_OPERATING_SYSTEM (") != NULL);
    CHECK_EQ(fd, -1);
    OK(cuCtxGetCurrent(&current));
    CHECK(current == NULL);
    tt_context_close(context);
}

TEST(export, what_the_driver_says_is_passed_on)
{
    vt_quiet(plain, pass_on_errors);
}

static void take_an_inherited_descriptor(void)
{
    int fd = -1;
    char *base;
    size_t exported;
    struct tt_context *context = open_context(0);
    struct tt_cuda cu = *context->cu;
    struct tt_context other = with(context, &cu);
    cu.MemGetHandleForAddressRange = answer_range;
    answer = CUDA_SUCCESS;
    given = dup(STDERR_FILENO);
    CHECK_EQ(tt_context_export(&other, allocate(), 1, &fd, &base, &exported), TT_OK);
    CHECK_EQ(fd, given);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    tt_context_close(context);
}

TEST(export, programs_that_are_started_do_not_inherit_the_descriptor)
{
    vt_quiet(plain, take_an_inherited_descriptor);
}

/* ---- What stays behind ------------------------------------------------------------------------
 */

static int count_descriptors(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (folder && readdir(folder)) n++;
    if (folder) closedir(folder);
    return n;
}

static void export_often(void)
{
    struct tt_context *context = open_context(0);
    char *memory = allocate();
    const int before = count_descriptors();
    for (int i = 0; i < 20; i++) {
        const struct export whole = export_range(context, memory, NBYTES);
        check_refused(context, memory, NBYTES + 1, "cannot be exported");
        drop(&whole);
    }
    OK(cuMemFree(address_of(memory)));
    CHECK_EQ(count_descriptors(), before);
    tt_context_close(context);
}

TEST(export, a_closed_descriptor_was_the_only_one)
{
    vt_quiet(plain, export_often);
}
