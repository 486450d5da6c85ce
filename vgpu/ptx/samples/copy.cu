// Copies and saxpy: loads, stores, loops.
extern "C" __global__ void copy(int *to, const int *from, unsigned n)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) to[i] = from[i];
}
extern "C" __global__ void copy16(int4 *to, const int4 *__restrict__ from, unsigned n)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) to[i] = from[i];
}
extern "C" __global__ void saxpy(float *y, const float *x, float a, unsigned n)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
