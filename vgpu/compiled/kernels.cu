// Kernels that use what CUDA programs use: cub, cooperative groups, libcu++, the headers of small
// floats, and the language: printf, recursion, virtual functions, switches, local arrays.
// compiled_test.c has what each must give.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/cub.cuh>
#include <cuda/atomic>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <assert.h>
#include <stdio.h>

namespace cg = cooperative_groups;
typedef unsigned int u32;
#define KERNEL extern "C" __global__ void
#define ID (blockIdx.x * blockDim.x + threadIdx.x)

KERNEL block_reduce(u32 *out, const u32 *in)
{
    typedef cub::BlockReduce<u32, 128> Reduce;
    __shared__ typename Reduce::TempStorage temp;
    const u32 sum = Reduce(temp).Sum(in[ID]);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

KERNEL block_scan(u32 *out, const u32 *in)
{
    typedef cub::BlockScan<u32, 128> Scan;
    __shared__ typename Scan::TempStorage temp;
    u32 before;
    Scan(temp).ExclusiveSum(in[ID], before);
    out[ID] = before;
}

KERNEL block_sort(u32 *out, const u32 *in)
{
    typedef cub::BlockRadixSort<u32, 128, 1> Sort;
    __shared__ typename Sort::TempStorage temp;
    u32 key[1] = {in[ID]};
    Sort(temp).Sort(key);
    out[ID] = key[0];
}

KERNEL warp_scan(u32 *out, const u32 *in)
{
    typedef cub::WarpScan<u32> Scan;
    __shared__ typename Scan::TempStorage temp[4];
    u32 sum;
    Scan(temp[threadIdx.x / 32]).InclusiveSum(in[ID], sum);
    out[ID] = sum;
}

KERNEL block_load_store(u32 *out, const u32 *in)
{
    typedef cub::BlockLoad<u32, 128, 4, cub::BLOCK_LOAD_WARP_TRANSPOSE> Load;
    typedef cub::BlockStore<u32, 128, 4, cub::BLOCK_STORE_VECTORIZE> Store;
    __shared__ union {
        typename Load::TempStorage load;
        typename Store::TempStorage store;
    } temp;
    u32 item[4];
    Load(temp.load).Load(in + blockIdx.x * 512, item);
    __syncthreads();
    for (int i = 0; i < 4; i++) item[i] += i;
    Store(temp.store).Store(out + blockIdx.x * 512, item);
}

KERNEL groups(u32 *out, const u32 *in)
{
    const auto block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<16>(block);
    const u32 sum = cg::reduce(tile, in[ID], cg::plus<u32>());
    const auto odd = cg::binary_partition(cg::tiled_partition<32>(block), threadIdx.x % 2 == 1);
    block.sync();
    out[ID] = sum + odd.size() + tile.shfl(tile.thread_rank(), 3);
    if (threadIdx.x % 3 == 0) {
        const auto active = cg::coalesced_threads();
        if (active.thread_rank() == 0) out[ID] += 1000;
    }
}

KERNEL libcu_atomics(u32 *out, const u32 *in)
{
    cuda::atomic_ref<u32, cuda::thread_scope_device> total(out[0]), most(out[1]), seen(out[2]);
    __shared__ cuda::atomic<u32, cuda::thread_scope_block> count;
    if (threadIdx.x == 0) count.store(0);
    __syncthreads();
    total.fetch_add(in[ID], cuda::memory_order_relaxed);
    most.fetch_max(in[ID], cuda::memory_order_acq_rel);
    u32 old = seen.load(cuda::memory_order_relaxed);
    while (!seen.compare_exchange_weak(old, old + 2)) {
    }
    count.fetch_add(1, cuda::memory_order_release);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&out[3], count.load());
    cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_device);
}

KERNEL halves(u32 *out, const u32 *in)
{
    const float x = (float)(in[ID] % 64) * 0.25f;
    const __half h = __hfma(__float2half(x), __float2half(2.0f), __float2half(0.5f));
    const __half2 pair = __hadd2(__half2half2(h), __floats2half2_rn(1.0f, -1.0f));
    const __nv_bfloat16 b = __hadd(__float2bfloat16(x), __float2bfloat16(1.0f));
    const __nv_fp8_e4m3 e(x);
    out[4 * ID] = __float_as_uint(__half2float(h));
    out[4 * ID + 1] = __float_as_uint(__low2float(pair) * __high2float(pair));
    out[4 * ID + 2] = __float_as_uint(__bfloat162float(b));
    out[4 * ID + 3] = __float_as_uint((float)e);
}

struct shape {
    __device__ virtual u32 area(u32 x) const = 0;
};
struct square : shape {
    __device__ u32 area(u32 x) const override { return x * x; }
};
struct strip : shape {
    u32 height;
    __device__ explicit strip(u32 h) : height(h) {}
    __device__ u32 area(u32 x) const override { return x * height; }
};

KERNEL virtuals(u32 *out, const u32 *in)
{
    square a;
    strip b(7);
    const shape *s = in[ID] % 3 == 0 ? (const shape *)&a : (const shape *)&b;
    out[ID] = s->area(in[ID] % 100);
}

__device__ __noinline__ u32 ackermann(u32 m, u32 n)
{
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

KERNEL recursion(u32 *out, const u32 *in)
{
    out[ID] = ackermann(ID % 3, in[ID] % 4);
}

__device__ __noinline__ u32 twice(u32 x) { return 2 * x; }
__device__ __noinline__ u32 minus(u32 x) { return 0u - x; }
__device__ u32 (*const table[2])(u32) = {twice, minus};

KERNEL pointers(u32 *out, const u32 *in)
{
    out[ID] = table[in[ID] & 1](in[ID]);
}

KERNEL switches(u32 *out, const u32 *in)
{
    u32 x = in[ID];
    for (int i = 0; i < 4; i++) switch (x % 9) {
        case 0: x = x / 2 + 1; break;
        case 1: x ^= 0x55; break;
        case 2: x = x * 3 + 1; break;
        case 3: x = __brev(x); break;
        case 4: x -= 11; break;
        case 5: x += x >> 3; break;
        case 6: x = __popc(x) + 77; break;
        case 7: x = ~x; break;
        default: x = x << 1 | 1; break;
        }
    out[ID] = x;
}

struct big {
    u32 word[37];
};

__device__ __noinline__ big turned(big b, int by)
{
    big r;
    for (int i = 0; i < 37; i++) r.word[(i + by) % 37] = b.word[i];
    return r;
}

KERNEL structs(u32 *out, const u32 *in)
{
    big b;
    for (int i = 0; i < 37; i++) b.word[i] = in[ID] + i;
    b = turned(b, in[ID] % 37);
    u32 sum = 0;
    for (int i = 0; i < 37; i++) sum = sum * 31 + b.word[i];
    out[ID] = sum;
}

KERNEL math(float *out, const u32 *in)
{
    const float x = 0.1f + (float)(in[ID] % 1000) * 0.01f;
    const double d = 0.1 + (double)(in[ID] % 1000) * 0.01;
    float *o = out + 24 * ID;
    o[0] = sinf(x), o[1] = cosf(x), o[2] = expf(x), o[3] = logf(x), o[4] = powf(x, 1.7f), o[5] = tanhf(x);
    o[6] = erff(x), o[7] = atan2f(x, 2.0f), o[8] = cbrtf(x), o[9] = sqrtf(x), o[10] = fmodf(x, 0.3f), o[11] = lgammaf(x);
    o[12] = (float)sin(d), o[13] = (float)exp(d), o[14] = (float)log(d), o[15] = (float)pow(d, 1.7);
    o[16] = (float)tanh(d), o[17] = (float)erf(d), o[18] = (float)atan2(d, 2.0), o[19] = (float)cbrt(d);
    o[20] = (float)fmod(d, 0.3), o[21] = (float)sqrt(d), o[22] = (float)(1.0 / d), o[23] = (float)tgamma(d);
}

KERNEL prints(u32 *out, const u32 *in)
{
    assert(in[0] != 0xffffffffu);
    if (ID < 2) printf("%u: %s %5.2f %lld %%\n", ID, ID ? "one" : "nil", 1.5 * ID, -5ll * ID);
    out[ID] = 1;
}

KERNEL heap(u32 *out, const u32 *in)
{
    u32 *p = (u32 *)malloc(16);
    p[0] = in[ID];
    out[ID] = p[0];
    free(p);
}

KERNEL wide_integers(u32 *out, const u32 *in)
{
    const unsigned long long x = (unsigned long long)in[ID] << 29 | in[ID];
    const __int128 y = (__int128)x * x + 12345;
    out[2 * ID] = (u32)(y >> 64) + (u32)(x / (in[ID] | 1)) + __umulhi(in[ID], 77) + __clzll(x);
    out[2 * ID + 1] = (u32)(y / 1000003) + (u32)(x % 1009) + __ffs(in[ID]) + __byte_perm(in[ID], 7, 0x6152);
}

KERNEL votes(u32 *out, const u32 *in)
{
    const u32 some = __ballot_sync(~0u, in[ID] % 3 == 0), same = __match_any_sync(~0u, in[ID] % 4);
    u32 x = __shfl_xor_sync(~0u, in[ID], 5) + __popc(some) + __popc(same);
    x += __any_sync(~0u, in[ID] == 7) + 2 * __all_sync(~0u, in[ID] < 5000);
#if __CUDA_ARCH__ >= 800
    x += __reduce_add_sync(~0u, in[ID]);
#else
    u32 sum = in[ID];
    for (int i = 16; i; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
    x += sum;
#endif
    out[ID] = x;
}
