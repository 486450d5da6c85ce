/* Device memory, host memory, pools, peers, and what mistakes are told. */
#include "testing.h"

#include <shim.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs the role to its end. */
static int play(const char *role, char text[8192])
{
    struct vt_peer peer;
    if (!vt_start(&peer, role)) return -1;
    return vt_finish(&peer, text, 8192);
}

static void expect(const char *role, int status, const char *const *says)
{
    char text[8192] = "";
    const int got = play(role, text);
    CHECK_MESSAGE(got == status, "%s ended with status 0x%x, expected 0x%x: %s", role, got, status,
                  text);
    for (; *says != NULL; says++)
        CHECK_MESSAGE(strstr(text, *says) != NULL, "%s does not say \"%s\": %s", role, *says, text);
}

enum { REPORTED = 86 << 8 };

/* Under AddressSanitizer its handler, which is called after the driver's, ends the process. */
static bool died_of_segv(int status)
{
    return (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) ||
           (WIFEXITED(status) && WEXITSTATUS(status) != 0);
}

TEST(host_access, of_device_memory_names_the_allocation)
{
    char text[8192] = "";
    CHECK(died_of_segv(play("touch", text)));
    CHECK_MESSAGE(strstr(text, "vgpu: the host writes address 0x") != NULL, "%s", text);
    CHECK_MESSAGE(strstr(text, "offset 5 of cuMemAlloc (allocation ") != NULL, "%s", text);
    CHECK_MESSAGE(strstr(text, "2097152 bytes on GPU 0)") != NULL, "%s", text);
}

TEST(host_access, of_freed_memory_says_freed)
{
    char text[8192] = "";
    CHECK(died_of_segv(play("touch_freed", text)));
    CHECK_MESSAGE(strstr(text, "on GPU 0, freed)") != NULL, "%s", text);
}

TEST(host_access, is_given_to_the_programs_own_handler)
{
    expect("touch_with_handler", 0, (const char *[]){"offset 5 of cuMemAlloc (allocation ", NULL});
}

TEST(host_access, is_given_to_a_handler_that_takes_the_address)
{
    expect("touch_with_siginfo", 0, (const char *[]){"offset 5 of cuMemAlloc (allocation ", NULL});
}

TEST(host_access, to_memory_that_was_unmapped_while_registered_says_so)
{
    char text[8192] = "";
    CHECK(died_of_segv(play("unregistered_too_late", text)));
    CHECK_MESSAGE(strstr(text, "of cuMemHostRegister") != NULL, "%s", text);
}

TEST(kernel, that_uses_freed_memory_fails_and_names_it)
{
    expect("kernel_after_free", REPORTED,
           (const char *[]){"after they were freed", "offset 8 of cuMemAlloc", NULL});
    expect("kernel_after_free_async", REPORTED,
           (const char *[]){"after they were freed", "of cuMemAllocAsync", NULL});
}

TEST(kernel, fails_when_its_memory_is_unmapped_under_it)
{
    expect("unmap_under_kernel", REPORTED,
           (const char *[]){"after they were freed", "of a VMM mapping", NULL});
}

TEST(kernel, needs_peer_access_for_the_memory_of_another_gpu)
{
    expect("kernel_without_peer_access", REPORTED, (const char *[]){"GPU 1 has no memory", NULL});
}

TEST(copy, beside_a_kernel_of_another_stream_is_a_race)
{
    expect("copy_races", REPORTED, (const char *[]){"race at 0x", "by copy", NULL});
    expect("awaited_copy_races", REPORTED, (const char *[]){"race at 0x", "by copy", NULL});
    expect("fill_races", REPORTED, (const char *[]){"race at 0x", "by copy", NULL});
}

TEST(copy, that_is_ordered_with_the_kernel_is_none)
{
    expect("copy_ordered", 0, (const char *[]){NULL});
    expect("awaited_copy_ordered", 0, (const char *[]){NULL});
    expect("copies_before_kernels", 0, (const char *[]){NULL});
}

TEST(copy, carries_whether_its_bytes_were_written)
{
    setenv("VGPU_UNDEFINED", "1", 1);
    expect("reads_of_copies", REPORTED,
           (const char *[]){"which nobody has written: offset 4 of cuMemAlloc", NULL});
    unsetenv("VGPU_UNDEFINED");
}

/* Standard error of what runs between begin and end. */
static int begin_errors(int *saved)
{
    const int file = memfd_create("errors", MFD_CLOEXEC);
    fflush(stderr);
    *saved = dup(STDERR_FILENO);
    dup2(file, STDERR_FILENO);
    return file;
}

static void end_errors(int file, int saved, char text[8192])
{
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    const ssize_t n = pread(file, text, 8191, 0);
    text[n < 0 ? 0 : n] = 0;
    close(file);
}

TEST(memory, that_runs_out_says_who_holds_it)
{
    CUdeviceptr big, more = 5;
    size_t left = 0, total = 0, after = 0;
    char text[8192];
    int saved;
    REQUIRE(vt_open(2));
    OK(cuMemGetInfo(&left, &total));
    OK(cuMemAlloc(&big, left / 2));
    OK(cuMemGetInfo(&after, &total));
    CHECK_EQ(left - after, left / 2);
    const int file = begin_errors(&saved);
    CHECK_EQ(cuMemAlloc(&more, left / 2 + 4096), CUDA_ERROR_OUT_OF_MEMORY);
    end_errors(file, saved, text);
    CHECK_EQ(more, 5);
    CHECK_MESSAGE(strstr(text, "GPU 0 is out of memory") != NULL, "%s", text);
    CHECK_MESSAGE(strstr(text, "cuMemAlloc: ") != NULL, "%s", text);
    OK(cuMemFree(big));
    OK(cuMemGetInfo(&after, &total));
    CHECK_EQ(after, left);
}

TEST(memory, keeps_a_freed_address_unused_for_a_while)
{
    CUdeviceptr first, next;
    REQUIRE(vt_open(2));
    OK(cuMemAlloc(&first, 4096));
    OK(cuMemFree(first));
    for (int i = 0; i < 900; i++) {
        OK(cuMemAlloc(&next, 4096));
        CHECK(next != first);
        CHECK_EQ(next % 512, 0);
        OK(cuMemFree(next));
    }
}

TEST(memory, of_a_variable_is_found_and_copied)
{
    CUmodule module;
    CUdeviceptr at, base;
    size_t nbytes = 0;
    uint32_t words[4] = {1, 2, 3, 4}, back[4] = {0};
    CUcontext context = NULL;
    REQUIRE(vt_open(2));
    OK(cuModuleLoadData(&module, ".version 8.0\n.target sm_75\n.address_size 64\n"
                                 ".visible .global .u32 word[4];\n"));
    OK(cuModuleGetGlobal(&at, &nbytes, module, "word"));
    CHECK_EQ(nbytes, sizeof words);
    OK(cuMemcpyHtoD(at, words, sizeof words));
    OK(cuMemcpyDtoH(back, at, sizeof words));
    CHECK_EQ(memcmp(words, back, sizeof words), 0);
    OK(cuMemGetAddressRange(&base, &nbytes, at + 5));
    CHECK_EQ(base, at);
    OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, at));
    CHECK(context == vt.contexts[0]);
    CHECK_EQ(cuMemFree(at), CUDA_ERROR_INVALID_VALUE);
    OK(cuModuleUnload(module));
    CHECK_EQ(cuMemcpyDtoH(back, at, sizeof words), CUDA_ERROR_INVALID_VALUE);
}

TEST(host_memory, at_an_odd_address_is_registered_and_written_by_a_kernel)
{
    char *host = malloc(8192);
    CUdeviceptr device = 0;
    uint32_t word;
    REQUIRE(vt_open(2));
    memset(host, 0, 8192);
    OK(cuMemHostRegister(host + 1028, 1000, 0));
    OK(cuMemHostGetDevicePointer(&device, host + 1032, 0));
    CHECK_EQ(device, (uintptr_t)(host + 1032));
    CHECK_EQ(cuMemHostGetDevicePointer(&device, host + 1024, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemHostRegister(host + 2000, 1000, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(vt_put((uintptr_t)(host + 1028), 77, NULL));
    OK(cuCtxSynchronize());
    memcpy(&word, host + 1028, 4);
    CHECK_EQ(word, 77);
    OK(cuMemHostUnregister(host + 1028));
    free(host);
}

TEST(host_memory, that_is_managed_is_both)
{
    CUdeviceptr memory = 0;
    REQUIRE(vt_open(2));
    CHECK_EQ(cuMemAllocManaged(&memory, 4096, 77), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAllocManaged(&memory, 4096, CU_MEM_ATTACH_GLOBAL));
    *(volatile uint32_t *)(uintptr_t)memory = 5;
    OK(vt_move(memory + 64, memory, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQ(*(volatile uint32_t *)(uintptr_t)(memory + 64), 5);
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    OK(cuMemPrefetchAsync(memory, 4096, here, 0, NULL));
    OK(cuMemAdvise(memory, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
    CHECK_EQ(cuMemPrefetchAsync(memory, 4097, here, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(memory));
    CHECK_EQ(cuMemAdvise(memory, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, here),
             CUDA_ERROR_INVALID_VALUE);
}

/* __managed__ int word = 9; */
TEST(host_memory, of_a_managed_variable_is_both)
{
    CUmodule module;
    CUdeviceptr at, here;
    unsigned is = 0;
    REQUIRE(vt_open(2));
    OK(cuModuleLoadData(&module, ".version 8.0\n.target sm_75\n.address_size 64\n"
                                 ".visible .global .u32 plain = 3;\n"
                                 ".visible .global .attribute(.managed) .u32 word = 9;\n"));
    OK(cuModuleGetGlobal(&at, NULL, module, "word"));
    volatile uint32_t *word = (volatile uint32_t *)(uintptr_t)at;
    CHECK_EQ(*word, 9);
    OK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_IS_MANAGED, at));
    CHECK_EQ(is, 1);
    for (int device = 0; device < 2; device++) { /* all GPUs address it */
        vt_current(device);
        here = vt_device(64);
        *word = 40 + (uint32_t)device;
        OK(vt_move(here, at, NULL));
        OK(vt_put(at, 50 + (uint32_t)device, NULL));
        OK(cuCtxSynchronize());
        CHECK_EQ(vt_read(here, 0), 40 + (uint32_t)device);
        CHECK_EQ(*word, 50 + (uint32_t)device);
        OK(cuMemFree(here));
    }
    vt_current(0);
    CHECK_EQ(cuMemFree(at), CUDA_ERROR_INVALID_VALUE);
    OK(cuModuleUnload(module));
}

TEST(pool, frees_in_the_streams_order)
{
    CUdeviceptr memory = 0;
    CUstream stream;
    CUmemoryPool pool = NULL, found = NULL;
    uint64_t used = 1;
    uint32_t word = 0;
    REQUIRE(vt_open(2));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemAllocAsync(&memory, 4096, stream));
    OK(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory));
    CHECK(found == pool);
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    CHECK_EQ(used, 4096);
    OK(vt_put(memory, 9, stream));
    OK(cuMemcpyDtoHAsync(&word, memory, 4, stream));
    OK(cuMemFreeAsync(memory, stream));
    CHECK_EQ(cuMemFreeAsync(memory, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamSynchronize(stream));
    CHECK_EQ(word, 9);
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    CHECK_EQ(used, 0);
    CHECK_EQ(cuMemcpyDtoH(&word, memory, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemPoolTrimTo((CUmemoryPool)&word, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamDestroy(stream));
}

TEST(peer, access_lets_kernels_use_the_other_gpus_memory)
{
    CUdeviceptr there, late, here;
    uint32_t word = 0;
    int can = 0;
    REQUIRE(vt_open(2));
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    CHECK_EQ(can, 1);
    OK(cuMemAlloc(&here, 4096));
    vt_current(1);
    OK(cuMemAlloc(&there, 4096));
    vt_current(0);
    CHECK_EQ(cuCtxDisablePeerAccess(vt.contexts[1]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    OK(cuCtxEnablePeerAccess(vt.contexts[1], 0));
    CHECK_EQ(cuCtxEnablePeerAccess(vt.contexts[1], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    vt_current(1);
    OK(cuMemAlloc(&late, 4096));
    vt_current(0);
    OK(vt_put(there, 11, NULL));
    OK(vt_put(late, 12, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(&word, there, 4));
    CHECK_EQ(word, 11);
    OK(cuMemcpyPeer(here, vt.contexts[0], late, vt.contexts[1], 4));
    OK(cuMemcpyDtoH(&word, here, 4));
    CHECK_EQ(word, 12);
    OK(cuCtxDisablePeerAccess(vt.contexts[1]));
    OK(cuMemcpyPeer(here, vt.contexts[0], there, vt.contexts[1], 4)); /* needs no access */
    OK(cuMemcpyDtoH(&word, here, 4));
    CHECK_EQ(word, 11);
    OK(cuMemFree(here));
    OK(cuMemFree(there));
    OK(cuMemFree(late));
}

/* The variables of modules too: of one that is loaded before, and of one that is loaded later. */
TEST(peer, access_lets_kernels_use_the_variables_of_the_other_gpus_modules)
{
    static const char text[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
                               ".visible .global .u32 word[4];\n";
    CUmodule modules[2];
    CUdeviceptr words[2];
    CUcontext context = NULL;
    REQUIRE(vt_open(2));
    vt_current(1);
    OK(cuModuleLoadData(&modules[0], text));
    vt_current(0);
    OK(cuCtxEnablePeerAccess(vt.contexts[1], 0));
    vt_current(1);
    OK(cuModuleLoadData(&modules[1], text));
    for (int i = 0; i < 2; i++) OK(cuModuleGetGlobal(&words[i], NULL, modules[i], "word"));
    vt_current(0);
    for (uint32_t i = 0; i < 2; i++) OK(vt_put(words[i] + 4, 21 + i, NULL));
    OK(cuCtxSynchronize());
    for (uint32_t i = 0; i < 2; i++) CHECK_EQ(vt_read(words[i], 1), 21 + i);
    OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, words[0]));
    CHECK(context == vt.contexts[1]);
    OK(cuCtxDisablePeerAccess(vt.contexts[1]));
    vt_current(1);
    for (int i = 0; i < 2; i++) OK(cuModuleUnload(modules[i]));
    vt_current(0);
}
