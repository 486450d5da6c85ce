/* Memory of tuttiDeviceMemAlloc, on two virtual GPUs with 64 MiB each. */
#include <cuda.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/calls.h"
#include "driver/context_internal.h"
#include "driver/driver.h"
#include "shim.h"
#include "tutti.h"

enum { MIB = 1 << 20 };

static CUcontext use_gpu(int gpu)
{
    CUcontext context = NULL;
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, gpu);
    CALL(cuCtxSetCurrent, context);
    return context;
}

static size_t available(void)
{
    size_t nbytes = 0, total;
    CALL(cuMemGetInfo_v2, &nbytes, &total);
    return nbytes;
}

static void *allocate(size_t nbytes, int device)
{
    void *memory = NULL;
    CHECK_MESSAGE(tuttiDeviceMemAlloc(&memory, nbytes, device) == tuttiSuccess, "%s",
                  tuttiGetLastError(NULL));
    return memory;
}

static void check_error(tuttiResult_t result, tuttiResult_t expected, const char *text)
{
    CHECK_EQ(result, expected);
    CHECK_MESSAGE(strstr(tuttiGetLastError(NULL), text), "'%s' is not in '%s'", text,
                  tuttiGetLastError(NULL));
}

static bool is_mapped;

static CUresult CUDAAPI open_once(CUdeviceptr *memory, CUipcMemHandle handle, unsigned flags)
{
    if (is_mapped) return CUDA_ERROR_ALREADY_MAPPED;
    return RESULT(cuIpcOpenMemHandle_v2, memory, handle, flags);
}

static CUresult CUDAAPI unmap(CUdeviceptr memory)
{
    is_mapped = false;
    return RESULT(cuIpcCloseMemHandle, memory);
}

/* Memory that was closed, but is still mapped, by a driver that maps nothing twice. */
static void open_again(struct tt_context *context, const uint8_t handle[TT_CONTEXT_HANDLE],
                       void **opened)
{
    const struct tt_cuda *cu = context->cu;
    struct tt_cuda strict = *cu;
    strict.IpcOpenMemHandle = open_once;
    strict.IpcCloseMemHandle = unmap;
    is_mapped = true;
    context->cu = &strict;
    CHECK_EQ(tt_context_open_shared(context, handle, true, opened), TT_OK);
    context->cu = cu;
}

/* First: the child must not have used CUDA before it was made. */
TEST(device_memory, another_process_can_use_it)
{
    uint8_t handle[TT_CONTEXT_HANDLE] = {0};
    struct tt_context *context = NULL;
    int pipes[2], status = -1;
    char byte = 0;
    REQUIRE(!tt_driver_is_in_use());
    REQUIRE(pipe(pipes) == 0);
    const pid_t child = fork();
    if (child == 0) {
        void *opened = NULL;
        close(pipes[1]);
        CHECK_EQ(read(pipes[0], handle, sizeof handle), sizeof handle);
        CHECK_EQ(tt_context_open(1, &context), TT_OK); /* its kernels are another GPU's */
        CHECK_EQ(tt_context_open_shared(context, handle, true, &opened), TT_OK);
        tt_context_close_shared(context, opened);
        open_again(context, handle, &opened);
        if (!tt_test_failed()) {
            use_gpu(1);
            CALL(cuMemsetD8_v2, (CUdeviceptr)(uintptr_t)opened + 999, 7, 1);
            CALL(cuCtxSynchronize);
        }
        _exit(tt_test_failed());
    }
    REQUIRE(child > 0);
    use_gpu(0);
    void *memory = allocate(1000, 0);
    REQUIRE(memory && tt_context_open(0, &context) == TT_OK);
    CHECK_EQ(tt_context_share(context, memory, handle), TT_OK);
    CHECK_EQ(write(pipes[1], handle, sizeof handle), sizeof handle);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CALL(cuMemcpyDtoH_v2, &byte, (CUdeviceptr)(uintptr_t)memory + 999, 1);
    CHECK_EQ(byte, 7);
    tt_context_close(context);
    CHECK_EQ(tuttiMemFree(memory), tuttiSuccess);
    close(pipes[0]);
    close(pipes[1]);
}

static const char ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
                          ".visible .entry put(.param .u64 word, .param .u32 value)\n"
                          "{ .reg .u32 %r<2>; .reg .u64 %rd<2>;\n"
                          "  ld.param.u64 %rd1, [word]; ld.param.u32 %r1, [value];\n"
                          "  st.global.u32 [%rd1], %r1; ret; }\n";

TEST(device_memory, a_kernel_of_another_gpu_can_use_it)
{
    CUmodule module = NULL;
    CUfunction put = NULL;
    struct tt_context *context = NULL;
    uint32_t value = 42, got = 0;
    void *memory = allocate(1000, 0);
    REQUIRE(memory && tt_context_open(1, &context) == TT_OK);
    CHECK_EQ(tt_context_reach(context, 0), TT_OK);
    use_gpu(1);
    CALL(cuModuleLoadData, &module, ptx);
    CALL(cuModuleGetFunction, &put, module, "put");
    CALL(cuLaunchKernel, put, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&memory, &value}, NULL);
    CALL(cuCtxSynchronize);
    use_gpu(0);
    CALL(cuMemcpyDtoH_v2, &got, (CUdeviceptr)(uintptr_t)memory, sizeof got);
    CHECK_EQ(got, value);
    CHECK_EQ(tuttiMemFree(memory), tuttiSuccess);
    tt_context_close(context);
}

TEST(device_memory, is_the_gpus_in_whole_units_and_goes_back_when_it_is_freed)
{
    for (int gpu = 0; gpu < 2; gpu++) {
        struct tt_pointer found;
        use_gpu(gpu);
        const size_t before = available();
        void *memory = allocate(2 * MIB + 1, gpu), *other = allocate(1, TUTTI_DEVICE_CURRENT);
        CHECK_EQ(before - available(), 6 * MIB);
        CHECK_EQ(tt_driver_pointer(memory, &found), TT_OK);
        CHECK(found.kind == TT_POINTER_DEVICE && found.gpu == gpu && found.base == memory);
        CHECK_EQ(found.nbytes, 4 * MIB);
        CHECK_EQ(tt_driver_pointer(other, &found), TT_OK);
        CHECK_EQ(found.gpu, gpu);
        CHECK_EQ((uintptr_t)other % 512, 0);
        CHECK_EQ(tuttiMemFree(other), tuttiSuccess);
        CHECK_EQ(tuttiMemFree(memory), tuttiSuccess);
        CHECK_EQ(available(), before);
    }
}

TEST(device_memory, of_no_gpu_is_the_hosts)
{
    char *memory = allocate(100, -1);
    REQUIRE(memory);
    memset(memory, 1, 100);
    CHECK_EQ(tuttiMemFree(memory), tuttiSuccess);
    CHECK_EQ(tuttiMemFree(NULL), tuttiSuccess);
}

TEST(device_memory, what_cannot_be_had_or_freed_is_an_error_that_names_it)
{
    void *memory = NULL;
    use_gpu(0);
    check_error(tuttiDeviceMemAlloc(NULL, 1, 0), tuttiInvalidArgument, "memory is NULL");
    check_error(tuttiDeviceMemAlloc(&memory, 0, 0), tuttiInvalidArgument,
                "0 bytes of memory of GPU 0");
    check_error(tuttiDeviceMemAlloc(&memory, 1, 7), tuttiInvalidArgument, "GPU 7 does not exist");
    check_error(tuttiDeviceMemAlloc(&memory, 0, 7), tuttiInvalidArgument, "GPU 7 does not exist");
    check_error(tuttiDeviceMemAlloc(&memory, 1, -3), tuttiInvalidArgument, "GPU -3 does not exist");
    check_error(tuttiDeviceMemAlloc(&memory, SIZE_MAX, 0), tuttiInvalidArgument,
                "are more than can be had");
    check_error(tuttiDeviceMemAlloc(&memory, 100 * MIB, 0), tuttiSystemError,
                "GPU 0 is out of memory: 104857600 bytes were asked for");
    CHECK(!memory);
    memory = allocate(4 * MIB, 0);
    check_error(tuttiMemFree((char *)memory + 1), tuttiInvalidArgument, "was not given by");
    CHECK_EQ(tuttiMemFree(memory), tuttiSuccess);
    check_error(tuttiMemFree(memory), tuttiInvalidArgument, "was freed already");
}

/* Memory that the library keeps for its own next use. */
TEST(device_memory, what_the_library_keeps_is_no_reason_to_be_out_of_memory)
{
    struct tt_context *context = NULL;
    void *kept = NULL;
    use_gpu(0);
    REQUIRE(tt_context_open(0, &context) == TT_OK);
    CHECK_EQ(tt_context_allocate(context, 40 * MIB, &kept), TT_OK);
    tt_context_free(context, kept);
    CHECK(available() < 40 * MIB);
    void *memory = allocate(40 * MIB, 0);
    CHECK_EQ(tuttiMemFree(memory), tuttiSuccess);
    tt_context_close(context);
}

/* A communicator of one rank, whose group holds a call on the memory. */
TEST(device_memory, a_group_that_uses_it_keeps_it)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiComm_t comm = NULL;
    tuttiUniqueId id;
    config.device = 0;
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    REQUIRE(tuttiCommInitRankConfig(&comm, 1, id, 0, &config) == tuttiSuccess);
    int *memory = allocate(1000, 0);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(memory + 8, memory + 8, 4, tuttiInt, tuttiSum, comm, NULL),
             tuttiSuccess);
    check_error(tuttiMemFree(memory), tuttiInvalidUsage, "the open group holds a call");
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CHECK_EQ(tuttiMemFree(memory), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}
