// Types: half, bf16, fp8, 64 bits, 128-bit vectors, conversions, asynchronous copies.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_pipeline.h>
extern "C" __global__ void halves(__half2 *h, __nv_bfloat162 *b, float *f)
{
    h[threadIdx.x] = __hfma2(h[threadIdx.x], h[0], h[1]);
    b[threadIdx.x] = __hmax2(b[threadIdx.x], b[0]);
    f[threadIdx.x] = __half2float(h[2].x) + __bfloat162float(b[2].y);
}
extern "C" __global__ void eights(__nv_fp8_e4m3 *to, const __nv_fp8_e5m2 *from)
{
    to[threadIdx.x] = __nv_fp8_e4m3((float)from[threadIdx.x] * 2.0f);
}
extern "C" __global__ void longs(long long *to, const signed char *from, double *d, unsigned short *s)
{
    to[threadIdx.x] = from[threadIdx.x] + (long long)d[threadIdx.x] % (s[threadIdx.x] + 1);
    d[threadIdx.x] = sqrt(d[threadIdx.x]) / to[threadIdx.x];
}
extern "C" __global__ void asynchronous(float4 *out, const float4 *in)
{
    __shared__ float4 stage[64];
    __pipeline_memcpy_async(&stage[threadIdx.x], &in[threadIdx.x], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[threadIdx.x] = stage[threadIdx.x ^ 1];
}
