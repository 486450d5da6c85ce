// A sum over a block: shared memory, barriers, shuffles; flags with acquire and release.
extern "C" __global__ void fold(float *sum, const float *x, unsigned n)
{
    __shared__ float part[256];
    float mine = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mine += x[i];
    part[threadIdx.x] = mine;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sum[blockIdx.x] = part[0];
}
extern "C" __global__ void fold_warp(unsigned *sum, const unsigned *x)
{
    unsigned mine = x[threadIdx.x];
    for (unsigned step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(0xffffffff, mine, step);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}
extern "C" __global__ void dynamic(int *out)
{
    extern __shared__ int words[];
    words[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = words[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void flags(unsigned *flag, int *data, int *out)
{
    if (blockIdx.x == 0) {
        *data = 42;
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory");
    } else {
        unsigned seen;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        while (!seen);
        *out = *data;
        __threadfence_system();
    }
}
