// Kernels for test_ptx.c. kernels.ptx is made of them: nvcc -arch=compute_90 -lineinfo -ptx kernels.cu
#include <cstdio>

extern "C" __global__ void fold(float *out, const float *a, const float *b, unsigned long long n)
{
    for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += gridDim.x * blockDim.x) {
        const float4 x = ((const float4 *)a)[i], y = ((const float4 *)b)[i];
        ((float4 *)out)[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
    }
}

extern "C" __global__ void reduce(int *out, const int *a, const int *, unsigned long long n)
{
    __shared__ int sums[32];
    int sum = 0;
    for (unsigned long long i = threadIdx.x; i < n; i += blockDim.x) sum += a[i];
    for (int k = 16; k > 0; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0;
        for (unsigned i = 0; i < blockDim.x / 32; i++) sum += sums[i];
        out[blockIdx.x] = sum;
    }
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ int twice(int x) { return 2 * x; }
__device__ int minus(int x) { return -x; }
__device__ int (*table[2])(int) = {twice, minus};

extern "C" __global__ void calls(int *out, const int *, const int *, unsigned long long)
{
    out[2 * threadIdx.x] = fibonacci(threadIdx.x % 10);
    out[2 * threadIdx.x + 1] = table[threadIdx.x & 1](threadIdx.x);
}

__device__ int lock, counter;

extern "C" __global__ void spin(int *out, const int *, const int *, unsigned long long)
{
    for (bool done = false; !done;)
        if (atomicCAS(&lock, 0, 1) == 0) {
            __threadfence();
            *(volatile int *)&counter = *(volatile int *)&counter + 1;
            __threadfence();
            atomicExch(&lock, 0);
            done = true;
        }
    atomicMax(out, *(volatile int *)&counter);
}

extern "C" __global__ void hello(int *out, const int *, const int *, unsigned long long n)
{
    printf("thread %d of %s: %.2f %llu\n", (int)threadIdx.x, "hello", 1.5 * threadIdx.x, n);
    out[threadIdx.x] = 1;
}
