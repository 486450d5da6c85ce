/* Contexts, modules, libraries, functions, occupancy, devices, as a program of a user sees them. */
#include <cuda.h>
#include <malloc.h>
#include <pthread.h>
#include <shim.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vgpu/testing.h>

#define SAMPLES TUTTI_SOURCE_DIR "/vgpu/fat/samples/"

static const char ptx[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .global .align 4 .u32 words[4] = {1, 2, 3, 4};\n"
    ".visible .entry put(.param .u64 at, .param .u32 value)\n"
    "{ .reg .u32 %r<2>; .reg .u64 %rd<2>;\n"
    "  ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [value]; st.global.u32 [%rd1], %r1; ret; }\n"
    ".visible .entry limited(.param .u32 a, .param .align 8 .b8 b[24])\n"
    ".maxntid 128, 1, 1\n"
    "{ .shared .align 16 .b8 block[4096]; .reg .u32 %r<2>; mov.u32 %r1, block; ret; }\n";

static CUcontext begin(void)
{
    CUcontext context = NULL;
    CHECK_EQ(cuInit(0), CUDA_SUCCESS);
    CHECK_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    return context;
}

static CUmodule load(void)
{
    CUmodule module = NULL;
    CHECK_EQ(cuModuleLoadData(&module, ptx), CUDA_SUCCESS);
    return module;
}

/* ---- contexts ---- */

static void *current_of_thread(void *arg)
{
    CHECK_EQ(cuCtxGetCurrent(arg), CUDA_SUCCESS);
    return NULL;
}

TEST(vgpu_objects, each_thread_has_a_current_context_of_its_own)
{
    pthread_t thread;
    CUcontext theirs = (CUcontext)1;
    begin();
    REQUIRE(pthread_create(&thread, NULL, current_of_thread, &theirs) == 0);
    pthread_join(thread, NULL);
    CHECK(theirs == NULL);
}

TEST(vgpu_objects, contexts_are_pushed_and_popped)
{
    CUcontext primary = begin(), made, current;
    CUstream stream;
    unsigned flags;
    CHECK_EQ(cuCtxCreate(&made, NULL, CU_CTX_SCHED_YIELD, 0), CUDA_SUCCESS);
    CHECK_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    CHECK(current == made && made != primary);
    CHECK_EQ(cuCtxGetFlags(&flags), CUDA_SUCCESS);
    CHECK_EQ(flags, CU_CTX_SCHED_YIELD);
    CHECK_EQ(cuCtxPushCurrent(primary), CUDA_SUCCESS);
    CHECK_EQ(cuCtxPopCurrent(&current), CUDA_SUCCESS);
    CHECK(current == primary);
    CHECK_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    CHECK_EQ(cuCtxDestroy(made), CUDA_SUCCESS);
    CHECK_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    CHECK(current == primary);
    CHECK_EQ(cuCtxSetCurrent(made), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cuCtxDestroy(made), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(vgpu_objects, a_context_that_is_destroyed_frees_what_it_held)
{
    CUcontext made;
    CUdeviceptr memory;
    size_t before, during, after, total;
    begin();
    CHECK_EQ(cuMemGetInfo(&before, &total), CUDA_SUCCESS);
    CHECK_EQ(cuCtxCreate(&made, NULL, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(cuMemAlloc(&memory, 64 << 20), CUDA_SUCCESS);
    load();
    CHECK_EQ(cuMemGetInfo(&during, &total), CUDA_SUCCESS);
    CHECK(during < before);
    CHECK_EQ(cuCtxDestroy(made), CUDA_SUCCESS);
    CHECK_EQ(cuMemGetInfo(&after, &total), CUDA_SUCCESS);
    CHECK_EQ(after, before);
}

TEST(vgpu_objects, the_limit_of_the_stack_is_given_back_rounded_up)
{
    size_t value;
    begin();
    CHECK_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4001), CUDA_SUCCESS);
    CHECK_EQ(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
    CHECK_EQ(value, 4016);
    CHECK_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
    CHECK_EQ(cuCtxGetLimit(&value, CU_LIMIT_MAX), CUDA_ERROR_INVALID_VALUE);
}

/* ---- modules ---- */

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *bytes = calloc(1, 1 << 20);
    if (file && bytes && fread(bytes, 1, (1 << 20) - 1, file) == 0) bytes[0] = 0;
    if (file) fclose(file);
    return bytes;
}

TEST(vgpu_objects, a_fat_binary_is_loaded_as_a_file_as_bytes_and_in_its_wrapper)
{
    CUmodule module;
    CUfunction function;
    begin();
    CHECK_EQ(cuModuleLoad(&module, SAMPLES "none.fatbin"), CUDA_SUCCESS);
    CHECK_EQ(cuModuleGetFunction(&function, module, "copy"), CUDA_SUCCESS);
    CHECK_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    char *bytes = read_file(SAMPLES "none.fatbin");
    REQUIRE(bytes);
    const struct {
        uint32_t magic, version;
        const void *fat, *others;
    } wrapper = {0x466243b1, 1, bytes, NULL};
    CHECK_EQ(cuModuleLoadFatBinary(&module, bytes), CUDA_SUCCESS);
    CHECK_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    CHECK_EQ(cuModuleLoadData(&module, &wrapper), CUDA_SUCCESS);
    CHECK_EQ(cuModuleGetFunction(&function, module, "copy"), CUDA_SUCCESS);
    CHECK_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    CHECK_EQ(cuModuleGetFunction(&function, module, "copy"), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuModuleLoad(&module, "/absent.fatbin"), CUDA_ERROR_FILE_NOT_FOUND);
    free(bytes);
}

TEST(vgpu_objects, the_error_log_of_a_load_names_the_line)
{
    char log[512] = "unchanged";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    CUmodule module;
    begin();
    CHECK_EQ(cuModuleLoadDataEx(&module,
                                ".version 8.0\n.target sm_75\n.address_size 64\n"
                                ".visible .entry bad()\n{\n  nonsense.u32 %r1, , 1;\n}\n",
                                2, options, values),
             CUDA_ERROR_INVALID_PTX);
    CHECK_MESSAGE(strstr(log, "line 6"), "the log is: %s", log);
    CHECK_EQ((size_t)(uintptr_t)values[1], strlen(log));
    values[1] = (void *)(uintptr_t)sizeof log;
    CHECK_EQ(cuModuleLoadDataEx(&module, ptx, 2, options, values), CUDA_SUCCESS);
    CHECK_STR(log, "");
}

enum { KERNELS = 256, BYTES = 1024 };

/* Kernels with a constant of their own each. */
static const char *write_many(void)
{
    static char many[KERNELS * BYTES];
    size_t n = (size_t)sprintf(many, ".version 8.0\n.target sm_75\n.address_size 64\n");
    for (int i = 0; i < KERNELS; i++)
        n += (size_t)sprintf(many + n,
                             ".visible .entry k%d(.param .u64 at)\n"
                             "{ .reg .u32 %%r<2>; .reg .u64 %%rd<2>; ld.param.u64 %%rd1, [at];\n"
                             "  mov.u32 %%r1, %d; st.global.u32 [%%rd1], %%r1; ret; }\n",
                             i, i);
    return many;
}

TEST(vgpu_objects, a_module_of_many_kernels_takes_little_memory)
{
    const char *many = write_many();
    CUmodule module = NULL;
    begin();
    const size_t before = resident();
    CHECK_EQ(cuModuleLoadData(&module, many), CUDA_SUCCESS);
    const size_t after = resident();
    CHECK_MESSAGE(after < before + (32u << 20), "%zu KiB more", (after - before) >> 10);
    CHECK_EQ(cuModuleUnload(module), CUDA_SUCCESS);
}

/* Reports name its kernels and variables, of which something stays. A sanitizer's allocator does
 * not say what is used: the test then passes. */
TEST(vgpu_objects, a_module_that_was_unloaded_takes_few_bytes_a_kernel)
{
    enum { ROUNDS = 50, MOST = 128 * KERNELS };
    const char *many = write_many();
    CUmodule module = NULL;
    size_t before = 0;
    begin();
    for (int i = 0; i <= ROUNDS; i++) {
        CHECK_EQ(cuModuleLoadData(&module, many), CUDA_SUCCESS);
        CHECK_EQ(cuModuleUnload(module), CUDA_SUCCESS);
        if (i == 0) before = mallinfo2().uordblks;
    }
    const size_t after = mallinfo2().uordblks;
    const size_t each = after > before ? (after - before) / ROUNDS : 0;
    CHECK_MESSAGE(each < MOST, "%zu bytes stay of each module", each);
    printf("%zu bytes stay of each module of %d kernels\n", each, KERNELS);
}

TEST(vgpu_objects, a_wrapper_around_itself_is_refused)
{
    struct {
        uint32_t magic, version;
        const void *fat, *others;
    } wrapper = {0x466243b1, 1, &wrapper, NULL};
    CUmodule module;
    begin();
    CHECK_EQ(cuModuleLoadData(&module, &wrapper), CUDA_ERROR_INVALID_IMAGE);
    wrapper.fat = NULL;
    CHECK_EQ(cuModuleLoadData(&module, &wrapper), CUDA_ERROR_INVALID_VALUE);
}

TEST(vgpu_objects, a_cubin_is_refused)
{
    CUmodule module;
    begin();
    CHECK_EQ(cuModuleLoadData(&module, "\177ELF\2\1\1"), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

TEST(vgpu_objects, variables_hold_what_the_ptx_says_until_they_are_written)
{
    CUdeviceptr words;
    size_t nbytes;
    uint32_t values[4] = {0}, value = 9;
    CUfunction put;
    begin();
    CUmodule first = load(), second = load();
    CHECK_EQ(cuModuleGetGlobal(&words, &nbytes, first, "words"), CUDA_SUCCESS);
    CHECK_EQ(nbytes, 16);
    CHECK_EQ(cuModuleGetFunction(&put, first, "put"), CUDA_SUCCESS);
    CHECK_EQ(cuLaunchKernel(put, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&words, &value}, NULL),
             CUDA_SUCCESS);
    CHECK_EQ(cuMemcpyDtoH(values, words, 16), CUDA_SUCCESS);
    CHECK(values[0] == 9 && values[3] == 4);
    CHECK_EQ(cuModuleGetGlobal(&words, NULL, second, "words"), CUDA_SUCCESS);
    CHECK_EQ(cuMemcpyDtoH(values, words, 16), CUDA_SUCCESS);
    CHECK_EQ(values[0], 1);
    CHECK_EQ(cuModuleGetGlobal(&words, NULL, first, "absent"), CUDA_ERROR_NOT_FOUND);
    CHECK_EQ(cuModuleUnload(first), CUDA_SUCCESS);
    CHECK_EQ(cuModuleUnload(second), CUDA_SUCCESS);
}

TEST(vgpu_objects, attributes_of_functions_come_from_the_ptx)
{
    CUfunction limited, functions[4] = {NULL};
    const char *name;
    int value;
    unsigned count;
    size_t offset, nbytes;
    begin();
    CUmodule module = load();
    CHECK_EQ(cuModuleGetFunction(&limited, module, "limited"), CUDA_SUCCESS);
#define ATTRIBUTE(which) (cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_##which, limited), value)
    CHECK_EQ(ATTRIBUTE(MAX_THREADS_PER_BLOCK), 128);
    CHECK_EQ(ATTRIBUTE(SHARED_SIZE_BYTES), 4096);
    CHECK_EQ(ATTRIBUTE(MAX_DYNAMIC_SHARED_SIZE_BYTES), (48 << 10) - 4096);
    CHECK_EQ(ATTRIBUTE(PTX_VERSION), 75);
    CHECK_EQ(ATTRIBUTE(BINARY_VERSION), 90);
    CHECK(ATTRIBUTE(NUM_REGS) > 0);
    CHECK_EQ(cuFuncSetAttribute(limited, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                (227 << 10) - 4096),
             CUDA_SUCCESS);
    CHECK_EQ(cuFuncSetAttribute(limited, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                (227 << 10) - 4095),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuFuncGetName(&name, limited), CUDA_SUCCESS);
    CHECK_STR(name, "limited");
    CHECK_EQ(cuFuncGetParamInfo(limited, 1, &offset, &nbytes), CUDA_SUCCESS);
    CHECK(offset == 8 && nbytes == 24);
    CHECK_EQ(cuFuncGetParamInfo(limited, 2, &offset, &nbytes), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuModuleGetFunctionCount(&count, module), CUDA_SUCCESS);
    CHECK_EQ(count, 2);
    CHECK_EQ(cuModuleEnumerateFunctions(functions, 4, module), CUDA_SUCCESS);
    CHECK(functions[1] == limited && functions[2] == NULL);
}

static const char waiting[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry await(.param .u64 at)\n"
    "{ .reg .pred %p<2>; .reg .u32 %r<2>; .reg .u64 %rd<2>;\n"
    "  ld.param.u64 %rd1, [at];\n"
    "again: ld.relaxed.sys.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra again;\n"
    "  ret; }\n";

/* Asks for a function while the first kernel of another module waits, and launches it: whether it
 * ends before that kernel, while another stream does so much work. */
static bool ends_before(const char *loading, int rounds)
{
    CUmodule module;
    CUfunction await, put;
    CUstream first, second, third;
    CUdeviceptr words;
    volatile uint32_t *word;
    uint32_t value = 1;
    CUresult ended = CUDA_ERROR_NOT_READY;
    setenv("CUDA_MODULE_LOADING", loading, 1);
    CHECK_EQ(cuMemHostAlloc((void **)&word, 4, 0), CUDA_SUCCESS);
    *word = 0;
    CUmodule other = load();
    CHECK_EQ(cuModuleLoadData(&module, waiting), CUDA_SUCCESS);
    CHECK_EQ(cuModuleGetGlobal(&words, NULL, other, "words"), CUDA_SUCCESS);
    CHECK_EQ(cuModuleGetFunction(&await, module, "await"), CUDA_SUCCESS);
    CHECK_EQ(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQ(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQ(cuStreamCreate(&third, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQ(cuLaunchKernel(await, 1, 1, 1, 1, 1, 1, 0, first, (void *[]){&word}, NULL),
             CUDA_SUCCESS);
    CHECK_EQ(cuModuleGetFunction(&put, other, "put"), CUDA_SUCCESS);
    CHECK_EQ(cuLaunchKernel(put, 1, 1, 1, 1, 1, 1, 0, second, (void *[]){&words, &value}, NULL),
             CUDA_SUCCESS);
    for (int i = 0; i < rounds && ended == CUDA_ERROR_NOT_READY; i++) {
        CHECK_EQ(cuMemsetD8Async(words + 8, 0, 1, third), CUDA_SUCCESS);
        CHECK_EQ(cuStreamSynchronize(third), CUDA_SUCCESS);
        ended = cuStreamQuery(second);
    }
    *word = 1;
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    CHECK_EQ(cuStreamQuery(second), CUDA_SUCCESS);
    CHECK_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    CHECK_EQ(cuModuleUnload(other), CUDA_SUCCESS);
    unsetenv("CUDA_MODULE_LOADING");
    return ended == CUDA_SUCCESS;
}

TEST(vgpu_objects, lazy_loading_delays_a_kernel_asked_for_while_another_modules_first_one_runs)
{
    begin();
    CHECK(!ends_before("LAZY", 200));
    CHECK(ends_before("EAGER", 100000));
}

/* ---- libraries ---- */

TEST(vgpu_objects, a_kernel_of_a_library_is_launched_in_each_context)
{
    CUlibrary library;
    CUkernel kernel;
    CUfunction first, second;
    CUdeviceptr words, others;
    CUcontext made, primary = begin();
    unsigned count;
    uint32_t value = 7, read = 0;
    REQUIRE(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS);
    CHECK_EQ(cuLibraryGetKernelCount(&count, library), CUDA_SUCCESS);
    CHECK_EQ(count, 2);
    CHECK_EQ(cuLibraryGetKernel(&kernel, library, "absent"), CUDA_ERROR_NOT_FOUND);
    CHECK_EQ(cuLibraryGetKernel(&kernel, library, "put"), CUDA_SUCCESS);
    CHECK_EQ(cuKernelGetFunction(&first, kernel), CUDA_SUCCESS);
    CHECK_EQ(cuLibraryGetGlobal(&words, NULL, library, "words"), CUDA_SUCCESS);
    CHECK_EQ(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL,
                            (void *[]){&words, &value}, NULL),
             CUDA_SUCCESS);
    CHECK_EQ(cuMemcpyDtoH(&read, words, 4), CUDA_SUCCESS);
    CHECK_EQ(read, 7);
    CHECK_EQ(cuCtxCreate(&made, NULL, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(cuKernelGetFunction(&second, kernel), CUDA_SUCCESS);
    CHECK_EQ(cuLibraryGetGlobal(&others, NULL, library, "words"), CUDA_SUCCESS);
    CHECK(first != second && words != others);
    CHECK_EQ(cuCtxDestroy(made), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSetCurrent(primary), CUDA_SUCCESS);
    CHECK_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
    CHECK_EQ(cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuKernelGetFunction(&first, kernel), CUDA_ERROR_INVALID_HANDLE);
}

/* ---- occupancy ---- */

static size_t CUDA_CB two_kib_a_warp(int nthreads)
{
    return (size_t)nthreads / 32 * 2048;
}

TEST(vgpu_objects, occupancy_counts_threads_and_shared_memory)
{
    CUfunction put, limited;
    int blocks, grid, block;
    size_t dynamic;
    begin();
    CUmodule module = load();
    CHECK_EQ(cuModuleGetFunction(&put, module, "put"), CUDA_SUCCESS);
    CHECK_EQ(cuModuleGetFunction(&limited, module, "limited"), CUDA_SUCCESS);
    CHECK_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, put, 512, 0), CUDA_SUCCESS);
    CHECK_EQ(blocks, 4);
    CHECK_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, put, 32, 100 << 10),
             CUDA_SUCCESS);
    CHECK_EQ(blocks, 2);
    CHECK_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, limited, 256, 0), CUDA_SUCCESS);
    CHECK_EQ(blocks, 0);
    CHECK_EQ(cuOccupancyMaxPotentialBlockSize(&grid, &block, limited, NULL, 0, 0), CUDA_SUCCESS);
    CHECK(block == 128 && grid == 16 * 132);
    CHECK_EQ(cuOccupancyMaxPotentialBlockSize(&grid, &block, put, two_kib_a_warp, 0, 256),
             CUDA_SUCCESS);
    CHECK(block == 256);
    CHECK_EQ(cuOccupancyAvailableDynamicSMemPerBlock(&dynamic, put, 4, 128), CUDA_SUCCESS);
    CHECK_EQ(dynamic, (57 << 10) - 1024);
}

/* ---- devices and errors ---- */

TEST(vgpu_objects, a_device_is_found_by_the_address_that_it_gives)
{
    char text[32];
    CUdevice device = 9;
    begin();
    CHECK_EQ(cuDeviceGetPCIBusId(text, sizeof text, 0), CUDA_SUCCESS);
    CHECK_EQ(cuDeviceGetByPCIBusId(&device, text), CUDA_SUCCESS);
    CHECK_EQ(device, 0);
    CHECK_EQ(cuDeviceGetByPCIBusId(&device, "0000:99:00.0"), CUDA_ERROR_INVALID_DEVICE);
}

TEST(vgpu_objects, every_error_has_a_name_and_a_text)
{
    static const int some[] = {0, 1, 2, 3, 100, 201, 209, 218, 400, 700, 702, 709, 716, 801, 999};
    const char *name, *text;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        CHECK_EQ(cuGetErrorName((CUresult)some[i], &name), CUDA_SUCCESS);
        CHECK_EQ(cuGetErrorString((CUresult)some[i], &text), CUDA_SUCCESS);
        CHECK(name && text && !strncmp(name, "CUDA_", 5) && *text);
    }
    CHECK_EQ(cuGetErrorString((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
    CHECK(text == NULL);
}
