/* cuGetProcAddress, and which symbols the library has. */
#include <cuda.h>
#include <dlfcn.h>
#include <shim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const rows[] = {
#include "proc_table.h"
};

static void *library(void)
{
    return dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
}

TEST(vgpu_proc, every_function_of_cuda_h_is_there)
{
    unsigned n = 0;
    REQUIRE(library());
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[128], symbol[160];
        const char *rest = rows[i] + strcspn(rows[i], " ");
        snprintf(name, sizeof name, "%.*s", (int)(rest - rows[i]), rows[i]);
        while (*rest) {
            char *suffix;
            strtol(rest + 1, &suffix, 10);
            const int length = (int)strcspn(suffix, " ");
            if (*suffix == '=')
                snprintf(symbol, sizeof symbol, "%.*s", length - 1, suffix + 1);
            else
                snprintf(symbol, sizeof symbol, "%s%.*s", name, length, suffix);
            CHECK_MESSAGE(dlsym(library(), symbol), "libcuda.so.1 has no %s", symbol);
            rest = suffix + length;
            n++;
        }
    }
    CHECK_MESSAGE(n > 600, "%u symbols were looked up", n);
}

static void *address_of(const char *name, int version, cuuint64_t flags)
{
    void *address = NULL;
    CUdriverProcAddressQueryResult found;
    CHECK_EQ(cuGetProcAddress(name, &address, version, flags, &found), CUDA_SUCCESS);
    CHECK_EQ(address != NULL, found == CU_GET_PROC_ADDRESS_SUCCESS);
    return address;
}

TEST(vgpu_proc, a_version_chooses_the_symbol)
{
    REQUIRE(library());
#define SYMBOL(name) dlsym(library(), name)
    CHECK(address_of("cuCtxCreate", 13000, 0) == SYMBOL("cuCtxCreate_v4"));
    CHECK(address_of("cuCtxCreate", 12040, 0) == SYMBOL("cuCtxCreate_v3"));
    CHECK(address_of("cuCtxCreate", 11000, 0) == SYMBOL("cuCtxCreate_v2"));
    CHECK(address_of("cuGraphInstantiate", 13000, 0) == SYMBOL("cuGraphInstantiateWithFlags"));
    CHECK(address_of("cuGraphInstantiate", 11040, 0) == SYMBOL("cuGraphInstantiate_v2"));
    CHECK(address_of("cuMemcpyHtoD", 13000, 0) == SYMBOL("cuMemcpyHtoD_v2"));
    CHECK(address_of("cuCtxGetDevice", 12000, 0) == SYMBOL("cuCtxGetDevice"));
    CHECK(address_of("cuLibraryLoadData", 11080, 0) == NULL);
}

TEST(vgpu_proc, a_flag_chooses_the_stream_of_the_thread)
{
    const cuuint64_t thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    REQUIRE(library());
    CHECK(address_of("cuMemcpyHtoD", 13000, thread) == SYMBOL("cuMemcpyHtoD_v2_ptds"));
    CHECK(address_of("cuLaunchKernel", 13000, thread) == SYMBOL("cuLaunchKernel_ptsz"));
    CHECK(address_of("cuMemAlloc", 13000, thread) == SYMBOL("cuMemAlloc_v2"));
    CHECK(address_of("cuLaunchKernel", 6000, thread) == SYMBOL("cuLaunchKernel"));
}

TEST(vgpu_proc, only_the_driver_api_is_exported)
{
    REQUIRE(library());
    CHECK(SYMBOL("vd_enter") == NULL);
    CHECK(SYMBOL("vg_ptx_read") == NULL);
    CHECK(SYMBOL("cuInit") != NULL);
}

TEST(vgpu_proc, a_function_that_is_refused_says_so)
{
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR what = {.Width = 4};
    CHECK_EQ(cuArrayCreate(&array, &what), CUDA_ERROR_NOT_SUPPORTED);
}
