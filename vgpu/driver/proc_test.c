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

/* Calls what(symbol, version) for every version of every function. */
static void each_symbol(void (*what)(const char *symbol, int version))
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char symbol[160];
        const int nname = (int)strcspn(rows[i], " ");
        const char *rest = rows[i] + nname;
        while (*rest) {
            char *suffix;
            const int version = (int)strtol(rest + 1, &suffix, 10);
            const int length = (int)strcspn(suffix, " ");
            if (*suffix == '=')
                snprintf(symbol, sizeof symbol, "%.*s", length - 1, suffix + 1);
            else
                snprintf(symbol, sizeof symbol, "%.*s%.*s", nname, rows[i], length, suffix);
            what(symbol, version);
            rest = suffix + length;
        }
    }
}

static int driver_version(void)
{
    int version = 0;
    CHECK_EQ(cuDriverGetVersion(&version), CUDA_SUCCESS);
    return version;
}

static unsigned nolder, nnewer;
static void check_symbol(const char *symbol, int version)
{
    /* What an earlier version of another name had already. */
    const bool earlier = !strcmp(symbol, "cuGraphInstantiateWithFlags");
    if (version <= driver_version()) {
        CHECK_MESSAGE(dlsym(library(), symbol), "libcuda.so.1 has no %s", symbol);
        nolder++;
    } else if (!earlier) {
        CHECK_MESSAGE(!dlsym(library(), symbol), "a driver of %d has %s, which is of %d",
                      driver_version(), symbol, version);
        nnewer++;
    }
}

/* Runs also with VGPU_DRIVER_VERSION=12040. */
TEST(vgpu_proc, every_function_of_the_drivers_version_is_there_and_no_later_one)
{
    REQUIRE(library());
    nolder = nnewer = 0;
    each_symbol(check_symbol);
    if (driver_version() == 13000)
        CHECK_MESSAGE(nolder > 600 && nnewer == 0, "%u symbols, %u later ones", nolder, nnewer);
    else
        CHECK_MESSAGE(nolder > 500 && nnewer > 20, "%u symbols, %u later ones", nolder, nnewer);
}

TEST(vgpu_proc, a_driver_gives_no_function_of_a_later_version)
{
    void *address = &address;
    CUdriverProcAddressQueryResult found;
    REQUIRE(library());
    CHECK_EQ(cuGetProcAddress("cuInit", &address, driver_version() + 10, 0, &found),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGetProcAddress("cuInit", &address, driver_version(), 0, &found), CUDA_SUCCESS);
    CHECK_EQ(cuGetProcAddress("cuMemcpyBatchAsync", &address, driver_version(), 0, &found),
             CUDA_SUCCESS);
    CHECK_EQ(found, driver_version() >= 12080 ? CU_GET_PROC_ADDRESS_SUCCESS
                                              : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

#define PTX(version)                                                                               \
    ".version " version "\n.target sm_75\n.address_size 64\n.visible .entry "                      \
    "nothing()\n{\nret;\n}\n"

TEST(vgpu_proc, ptx_of_a_later_version_than_the_drivers_is_refused)
{
    static const struct {
        const char *text;
        int driver;
    } cases[] = {{PTX("8.2"), 12020}, {PTX("8.4"), 12040}, {PTX("8.5"), 12050},
                 {PTX("8.7"), 12080}, {PTX("9.0"), 13000}, {PTX("9.9"), 99990}};
    CUcontext context;
    CUmodule module;
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxPushCurrent(context) == CUDA_SUCCESS);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const CUresult result = cuModuleLoadData(&module, cases[i].text);
        CHECK_EQ(result, cases[i].driver <= driver_version() ? CUDA_SUCCESS
                                                             : CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
        if (result == CUDA_SUCCESS) CHECK_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    }
    CHECK_EQ(cuCtxPopCurrent(&context), CUDA_SUCCESS);
    CHECK_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
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
    if (driver_version() < 13000) SKIP("this driver is older than the functions");
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
    if (driver_version() < 13000) SKIP("this driver is older than the functions");
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
