/* A program of a user of the driver API: runs the kernel of pass.cu. `pass` is right, `pass wrong`
 * leaves the fences out. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

static void check(CUresult result, const char *call)
{
    const char *text = "?";
    if (result == CUDA_SUCCESS) return;
    cuGetErrorString(result, &text);
    fprintf(stderr, "%s: %s\n", call, text);
    exit(1);
}
#define CHECK(call) check(call, #call)

int main(int argc, char **argv)
{
    CUcontext context;
    CUmodule module;
    CUfunction pass;
    CUdeviceptr memory;
    int fences = argc == 1, value = 0;
    (void)argv;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoad(&module, "pass.ptx"));
    CHECK(cuModuleGetFunction(&pass, module, "pass"));
    CHECK(cuMemAlloc(&memory, 12));
    CHECK(cuMemsetD32(memory, 0, 3));
    CUdeviceptr data = memory, flag = memory + 4, result = memory + 8;
    void *arguments[] = {&data, &flag, &result, &fences};
    CHECK(cuLaunchKernel(pass, 2, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    CHECK(cuMemcpyDtoH(&value, result, sizeof value));
    printf("block 1 got %d\n", value);
    return 0;
}
