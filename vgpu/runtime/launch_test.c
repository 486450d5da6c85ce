/* Kernels and variables of the program: registered, loaded, launched, asked about. */
#include "testing.h"

#include <string.h>

static void launch_thin(void)
{
    uint32_t values[64], value = 5;
    void *memory = NULL;
    for (uint32_t i = 0; i < 64; i++) values[i] = i;
    FINE(cudaMalloc(&memory, sizeof values));
    FINE(cudaMemcpy(memory, values, sizeof values, cudaMemcpyHostToDevice));
    FINE(rt_launch(&rt_add, 1, 64, NULL, (void *[]){&memory, &value}));
    FINE(cudaGetLastError());
    FINE(cudaMemcpy(values, memory, sizeof values, cudaMemcpyDeviceToHost));
    for (uint32_t i = 0; i < 64; i++) CHECK_EQ(values[i], i + 5);
    FINE(cudaFree(memory));
}

TEST(vgpu_runtime, a_kernel_of_the_program_adds_to_copied_memory)
{
    rt_run(launch_thin);
}

static void configurations(void)
{
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    CHECK_EQ(__cudaPushCallConfiguration((dim3){1, 1, 1}, (dim3){2, 1, 1}, 3, NULL), 0);
    CHECK_EQ(__cudaPushCallConfiguration((dim3){4, 1, 1}, (dim3){5, 1, 1}, 6, NULL), 0);
    FINE(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
    CHECK(grid.x == 4 && block.x == 5 && shared == 6);
    FINE(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
    CHECK(grid.x == 1 && block.x == 2 && shared == 3);
    CHECK_EQ(__cudaPopCallConfiguration(&grid, &block, &shared, &stream),
             cudaErrorMissingConfiguration);
}

TEST(vgpu_runtime, configurations_of_launches_are_a_stack)
{
    rt_run(configurations);
}

static void wrong_launches(void)
{
    uint32_t *memory = rt_words(1), value = 1;
    void *args[] = {&memory, &value};
    char unknown;
    CHECK_EQ(rt_launch(&unknown, 1, 1, NULL, args), cudaErrorInvalidDeviceFunction);
    CHECK_EQ(rt_launch(&rt_absent, 1, 1, NULL, args), cudaErrorInvalidDeviceFunction);
    CHECK_EQ(rt_launch(&rt_variable, 1, 1, NULL, args), cudaErrorInvalidDeviceFunction);
    CHECK_EQ(cudaLaunchKernel(NULL, (dim3){1, 1, 1}, (dim3){1, 1, 1}, args, 0, NULL),
             cudaErrorInvalidDeviceFunction);
    CHECK_EQ(rt_launch(&rt_add, 0, 1, NULL, args), cudaErrorInvalidConfiguration);
    CHECK_EQ(rt_launch(&rt_add, 1, 1025, NULL, args), cudaErrorInvalidConfiguration);
    CHECK_EQ(cudaLaunchKernel(&rt_add, (dim3){1, 1, 1}, (dim3){1, 1, 1}, args, 49 << 10, NULL),
             cudaErrorInvalidValue);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
    FINE(cudaGetLastError());
    CHECK_EQ(rt_word(memory), 0);
}

TEST(vgpu_runtime, a_wrong_launch_is_the_error_that_programs_expect)
{
    rt_run(wrong_launches);
}

static void variables(void)
{
    uint32_t *out = rt_words(1), values[4] = {0}, value = 41;
    void *address = NULL;
    size_t nbytes = 0;
    FINE(cudaGetSymbolSize(&nbytes, &rt_variable));
    CHECK_EQ(nbytes, 16);
    FINE(cudaMemcpyFromSymbol(values, &rt_variable, 16, 0, cudaMemcpyDeviceToHost));
    CHECK(values[0] == 7 && values[3] == 10);
    FINE(cudaMemcpyToSymbol(&rt_variable, &value, 4, 0, cudaMemcpyHostToDevice));
    FINE(rt_launch(&rt_counter, 1, 1, NULL, (void *[]){&out}));
    CHECK_EQ(rt_word(out), 41);
    FINE(cudaGetSymbolAddress(&address, &rt_variable));
    CHECK_EQ(rt_word(address), 42);
    FINE(cudaMemcpyFromSymbolAsync(&value, &rt_variable, 4, 8, cudaMemcpyDefault, NULL));
    FINE(cudaStreamSynchronize(NULL));
    CHECK_EQ(value, 9);
    CHECK_EQ(cudaMemcpyToSymbol(&rt_variable, values, 12, 8, cudaMemcpyHostToDevice),
             cudaErrorInvalidValue);
    CHECK_EQ(cudaMemcpyToSymbol(&rt_variable, values, 4, 0, cudaMemcpyDeviceToHost),
             cudaErrorInvalidMemcpyDirection);
    CHECK_EQ(cudaGetSymbolSize(&nbytes, &rt_add), cudaErrorInvalidSymbol);
    /* the other device has its own */
    FINE(cudaSetDevice(1));
    FINE(cudaMemcpyFromSymbol(values, &rt_variable, 16, 0, cudaMemcpyDeviceToHost));
    CHECK_EQ(values[0], 7);
}

TEST(vgpu_runtime, a_variable_of_the_program_is_read_and_written)
{
    rt_run(variables);
}

static void cooperative(void)
{
    enum { BLOCKS = 6 };
    uint32_t *out = rt_words(BLOCKS);
    void *args[] = {&out};
    int most = 0, processors = 0;
    for (int again = 0; again < 2; again++) { /* the second grid's workspace is of zeros too */
        FINE(cudaLaunchCooperativeKernel(&rt_meet, (dim3){BLOCKS, 1, 1}, (dim3){1, 1, 1}, args, 0,
                                         NULL));
        for (int i = 0; i < BLOCKS; i++) CHECK_EQ(rt_word(out + i), BLOCKS);
    }
    cudaLaunchAttribute attribute = {.id = cudaLaunchAttributeCooperative};
    attribute.val.cooperative = 1;
    cudaLaunchConfig_t config = {
        .gridDim = {2, 1, 1}, .blockDim = {1, 1, 1}, .attrs = &attribute, .numAttrs = 1};
    FINE(cudaLaunchKernelExC(&config, &rt_meet, args));
    CHECK_EQ(rt_word(out), 2);
    FINE(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    FINE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&most, &rt_meet, 1024, 0));
    config.gridDim.x = (unsigned)(most * processors) + 1;
    config.blockDim.x = 1024;
    CHECK_EQ(cudaLaunchKernelExC(&config, &rt_meet, args), cudaErrorCooperativeLaunchTooLarge);
}

TEST(vgpu_runtime, blocks_of_a_cooperative_launch_meet_in_its_workspace)
{
    rt_run(cooperative);
}

static void kernels(void)
{
    struct cudaFuncAttributes attributes;
    cudaKernel_t kernel = NULL;
    uint32_t *memory = rt_words(1), value = 3;
    const char *name = "";
    size_t offset = 0, nbytes = 0;
    FINE(cudaFuncGetAttributes(&attributes, &rt_big));
    CHECK(attributes.sharedSizeBytes == 1000 && attributes.maxThreadsPerBlock == 1024);
    CHECK_EQ(attributes.ptxVersion, 75);
    FINE(cudaFuncSetAttribute(&rt_add, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
    FINE(cudaLaunchKernel(&rt_add, (dim3){1, 1, 1}, (dim3){1, 1, 1}, (void *[]){&memory, &value},
                          64 << 10, NULL));
    FINE(cudaGetKernel(&kernel, &rt_add));
    FINE(cudaLaunchKernel(kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, (void *[]){&memory, &value}, 0,
                          NULL));
    CHECK_EQ(rt_word(memory), 6);
    FINE(cudaFuncGetName(&name, kernel));
    CHECK_STR(name, "add");
    FINE(cudaFuncGetParamInfo(&rt_add, 1, &offset, &nbytes));
    CHECK(offset == 8 && nbytes == 4);
    CHECK_EQ(cudaFuncGetAttributes(&attributes, &value), cudaErrorInvalidDeviceFunction);
}

TEST(vgpu_runtime, attributes_of_a_kernel_are_told_and_set)
{
    rt_run(kernels);
}

static void unregistered(void)
{
    static const struct {
        uint32_t magic, version;
        const void *fat, *others;
    } none = {0x466243b1, 1, "\x50\xed\x55\xba\x01\x00\x10\x00\0\0\0\0\0\0\0\0", NULL};
    char host;
    void **fat = __cudaRegisterFatBinary((void *)(uintptr_t)&none);
    __cudaRegisterFunction(fat, &host, &host, "host", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(fat);
    CHECK_EQ(rt_launch(&host, 1, 1, NULL, NULL), cudaErrorNoKernelImageForDevice);
    CHECK_EQ(rt_launch(&host, 1, 1, NULL, NULL), cudaErrorNoKernelImageForDevice);
    __cudaUnregisterFatBinary(fat);
    CHECK_EQ(rt_launch(&host, 1, 1, NULL, NULL), cudaErrorInvalidDeviceFunction);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidDeviceFunction);
    launch_thin();
}

TEST(vgpu_runtime, a_binary_without_ptx_is_refused_and_names_the_option_of_nvcc)
{
    char text[4096];
    CHECK_EQ(rt_run_text(unregistered, text, sizeof text), 0);
    const char *option = "nvcc -gencode arch=compute_75,code=compute_75\n", *at;
    at = strstr(text, option);
    CHECK_MESSAGE(at != NULL && strstr(at + 1, option) == NULL, "%s", text);
}

static void libraries(void)
{
    static const char text[] =
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .global .u32 mine = 5;\n"
        ".visible .entry nothing() { ret; }\n";
    cudaLibrary_t library = NULL;
    cudaKernel_t kernel = NULL;
    void *address = NULL;
    size_t nbytes = 0;
    unsigned count = 0;
    FINE(cudaLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
    FINE(cudaLibraryGetKernelCount(&count, library));
    CHECK_EQ(count, 1);
    FINE(cudaLibraryGetKernel(&kernel, library, "nothing"));
    FINE(cudaLaunchKernel(kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL));
    FINE(cudaLibraryGetGlobal(&address, &nbytes, library, "mine"));
    CHECK(nbytes == 4 && rt_word(address) == 5);
    CHECK_EQ(cudaLibraryGetKernel(&kernel, library, "other"), cudaErrorSymbolNotFound);
    FINE(cudaLibraryUnload(library));
}

TEST(vgpu_runtime, a_library_of_the_program_has_kernels_and_variables)
{
    rt_run(libraries);
}
