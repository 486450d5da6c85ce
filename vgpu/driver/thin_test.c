/* The thin line: a kernel from PTX text writes memory that was copied to the device, and the result
 * comes back. */
#include <cuda.h>
#include <shim.h>
#include <stdint.h>

static const char ptx[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry add(.param .u64 at, .param .u32 value)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [value];\n"
    "  mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2;\n"
    "  ld.global.u32 %r3, [%rd1]; add.u32 %r3, %r3, %r1; st.global.u32 [%rd1], %r3; ret; }\n";

TEST(thin_line, a_kernel_adds_to_copied_memory)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction add;
    CUdeviceptr memory;
    CUstream stream;
    uint32_t values[64], value = 5;
    CHECK_EQ(cuInit(0), CUDA_SUCCESS);
    CHECK_EQ(cuDeviceGet(&device, 0), CUDA_SUCCESS);
    CHECK_EQ(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    CHECK_EQ(cuModuleLoadData(&module, ptx), CUDA_SUCCESS);
    CHECK_EQ(cuModuleGetFunction(&add, module, "add"), CUDA_SUCCESS);
    CHECK_EQ(cuMemAlloc(&memory, sizeof values), CUDA_SUCCESS);
    CHECK_EQ(cuStreamCreate(&stream, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    for (uint32_t i = 0; i < 64; i++) values[i] = i;
    CHECK_EQ(cuMemcpyHtoD(memory, values, sizeof values), CUDA_SUCCESS);
    CHECK_EQ(cuLaunchKernel(add, 1, 1, 1, 64, 1, 1, 0, stream, (void *[]){&memory, &value}, NULL),
             CUDA_SUCCESS);
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    CHECK_EQ(cuMemcpyDtoH(values, memory, sizeof values), CUDA_SUCCESS);
    for (uint32_t i = 0; i < 64; i++) CHECK_EQ(values[i], i + 5);
    CHECK_EQ(cuMemFree(memory), CUDA_SUCCESS);
    CHECK_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
}
