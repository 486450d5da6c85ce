/* An all-reduce on the memory of GPUs: tutti-run -n 2 gpu_allreduce
 *
 * Each rank is a process and takes a GPU of its host; with more ranks than GPUs several share one.
 * The program uses CUDA's driver API (cc gpu_allreduce.c -ltutti -lcuda). With CUDA's runtime the
 * same is cudaSetDevice, cudaMalloc, cudaStreamCreateWithFlags, cudaMemcpyAsync, cudaFree; a
 * cudaStream_t and a CUstream are the same thing. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti.h>

enum { COUNT = 1000 };

static void try(tuttiResult_t result, const char *what)
{
    if (result == tuttiSuccess) return;
    fprintf(stderr, "%s: %s: %s\n", what, tuttiGetErrorString(result), tuttiGetLastError(NULL));
    exit(1);
}

static void cuda(CUresult result, const char *what)
{
    const char *text = "unknown error";
    if (result == CUDA_SUCCESS) return;
    cuGetErrorString(result, &text);
    fprintf(stderr, "%s: %s\n", what, text);
    exit(1);
}

int main(void)
{
    /* 1. The GPU: the first process of a host takes GPU 0, the next one GPU 1, .. */
    int rank, nranks, local, ngpus;
    CUcontext context;
    CUstream stream;
    try(tuttiGetLauncher(&rank, &nranks, &local), "launcher");
    cuda(cuInit(0), "cuInit");
    cuda(cuDeviceGetCount(&ngpus), "cuDeviceGetCount");
    const int gpu = local % ngpus;
    cuda(cuDevicePrimaryCtxRetain(&context, gpu), "cuDevicePrimaryCtxRetain");
    cuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");

    /* 2. The communicator is told the GPU; all its ranks have one. */
    tuttiComm_t comm;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = gpu;
    try(tuttiCommInitEnv(&comm, NULL, &config), "init");

    /* 3. Calls on GPU memory take a stream made of a CUDA stream. */
    tuttiStream_t tutti_stream;
    try(tuttiStreamFromDevice(&tutti_stream, gpu, stream), "stream");

    /* 4. Data on the GPU, here copied from the host. */
    float data[COUNT];
    CUdeviceptr memory;
    for (int i = 0; i < COUNT; i++) data[i] = (float)(rank + 1);
    cuda(cuMemAlloc(&memory, sizeof data), "cuMemAlloc");
    cuda(cuMemcpyHtoDAsync(memory, data, sizeof data, stream), "cuMemcpyHtoDAsync");

    /* 5. The call returns at once. It follows the copy above and comes before the copy below,
     * because all three are on the same CUDA stream. */
    try(tuttiAllReduce((void *)memory, (void *)memory, COUNT, tuttiFloat32, tuttiSum, comm,
                       tutti_stream),
        "all-reduce");
    cuda(cuMemcpyDtoHAsync(data, memory, sizeof data, stream), "cuMemcpyDtoHAsync");

    /* 6. Waits for the stream. cuStreamSynchronize would do too, but this one also returns the
     * error of a call that failed, for example because another rank died. */
    try(tuttiStreamSynchronize(tutti_stream), "all-reduce");
    for (int i = 0; i < COUNT; i++)
        if (data[i] != (float)(nranks * (nranks + 1) / 2)) return 1;
    printf("rank %d of %d on GPU %d has %g everywhere\n", rank, nranks, gpu,
           (double)data[COUNT - 1]);

    /* 7. The communicator goes before the memory that its calls used. */
    try(tuttiStreamDestroy(tutti_stream), "stream");
    try(tuttiCommDestroy(comm), "destroy");
    cuda(cuMemFree(memory), "cuMemFree");
    cuda(cuStreamDestroy(stream), "cuStreamDestroy");
    cuda(cuDevicePrimaryCtxRelease(gpu), "cuDevicePrimaryCtxRelease");
    return fflush(stdout) == 0 ? 0 : 1; /* a full disk */
}
