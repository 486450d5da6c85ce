/* Kernels of speed.c: what an operation costs on the device, and how fast memory is. */
#include <stdint.h>

extern "C" __global__ void empty() {}

/* Clock ticks of `n` repetitions of one operation by each warp's first thread. */
enum { T_FENCE_CTA, T_FENCE_GPU, T_FENCE_SYS, T_SC_CTA, T_SC_GPU, T_SC_SYS, T_ATOM_GPU, T_ATOM_SYS, T_LD_WEAK, T_LD_RELAXED, T_LD_ACQUIRE_GPU, T_LD_ACQUIRE_SYS, T_ST_RELAXED, T_ST_RELEASE_GPU, T_ST_RELEASE_SYS, T_ATOM_CAS, T_BAR, T_LD_SYS };

static __device__ unsigned operation(int which, unsigned *word)
{
    unsigned value = 0;
    switch (which) {
    case T_FENCE_CTA: asm volatile("fence.acq_rel.cta;" ::: "memory"); break;
    case T_FENCE_GPU: asm volatile("fence.acq_rel.gpu;" ::: "memory"); break;
    case T_FENCE_SYS: asm volatile("fence.acq_rel.sys;" ::: "memory"); break;
    case T_SC_CTA: asm volatile("fence.sc.cta;" ::: "memory"); break;
    case T_SC_GPU: asm volatile("fence.sc.gpu;" ::: "memory"); break;
    case T_SC_SYS: asm volatile("fence.sc.sys;" ::: "memory"); break;
    case T_ATOM_GPU: asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(value) : "l"(word) : "memory"); break;
    case T_ATOM_SYS: asm volatile("atom.relaxed.sys.global.add.u32 %0, [%1], 1;" : "=r"(value) : "l"(word) : "memory"); break;
    case T_ATOM_CAS: asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], 0, 1;" : "=r"(value) : "l"(word) : "memory"); break;
    case T_LD_WEAK: asm volatile("ld.weak.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory"); break;
    case T_LD_RELAXED: asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory"); break;
    case T_LD_SYS: asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory"); break;
    case T_LD_ACQUIRE_GPU: asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory"); break;
    case T_LD_ACQUIRE_SYS: asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory"); break;
    case T_ST_RELAXED: asm volatile("st.relaxed.gpu.global.u32 [%0], 1;" ::"l"(word) : "memory"); break;
    case T_ST_RELEASE_GPU: asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(word) : "memory"); break;
    case T_ST_RELEASE_SYS: asm volatile("st.release.sys.global.u32 [%0], 1;" ::"l"(word) : "memory"); break;
    default: __syncthreads();
    }
    return value;
}

/* dirty: before each operation a store to another line is in flight, else the fence has nothing to wait for. */
template <int WHICH> static __device__ void timed(unsigned *word, unsigned *other, int n, int dirty,
                                                  long long *ticks)
{
    unsigned sum = 0;
    if (WHICH != T_BAR && threadIdx.x) return;
    const long long begin = clock64();
    for (int i = 0; i < n; i++) {
        if (dirty) asm volatile("st.weak.global.u32 [%0], %1;" ::"l"(other + (i & 31) * 32), "r"(i) : "memory");
        sum += operation(WHICH, word + (sum & 0x80000000u)); /* the next waits for the last */
    }
    const long long end = clock64();
    if (threadIdx.x == 0) ticks[blockIdx.x] = end - begin + (sum == 0x7fffffff);
}

#define CASE(which) case which: timed<which>(word, other, n, dirty, ticks); break;
extern "C" __global__ void latency(int which, unsigned *word, unsigned *other, int n, int dirty, long long *ticks)
{
    switch (which) {
    CASE(T_FENCE_CTA) CASE(T_FENCE_GPU) CASE(T_FENCE_SYS) CASE(T_SC_CTA) CASE(T_SC_GPU) CASE(T_SC_SYS)
    CASE(T_ATOM_GPU) CASE(T_ATOM_SYS) CASE(T_LD_WEAK) CASE(T_LD_RELAXED) CASE(T_LD_ACQUIRE_GPU)
    CASE(T_LD_ACQUIRE_SYS) CASE(T_ST_RELAXED) CASE(T_ST_RELEASE_GPU) CASE(T_ST_RELEASE_SYS)
    CASE(T_ATOM_CAS) CASE(T_BAR) CASE(T_LD_SYS)
    }
}

static __device__ unsigned long long nanoseconds()
{
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

static __device__ unsigned load(int sys, const unsigned *word)
{
    unsigned value;
    if (sys == 2) asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    else if (sys) asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    else asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

static __device__ void store(int sys, unsigned *word, unsigned value)
{
    if (sys == 2) asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
    else if (sys) asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
    else asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

/* Two players count in turn: side s waits for 2 * i + s in *theirs and stores 2 * i + s + 1 in
 * *mine. Ends after `stay` ns without a turn. Records when each turn came, if `times` is not NULL. */
static __device__ void play(unsigned *mine, const unsigned *theirs, unsigned side, unsigned nturns, int sys,
                            unsigned long long stay, unsigned *done, unsigned long long *times)
{
    unsigned i = 0;
    for (; i < nturns; i++) {
        const unsigned long long begin = nanoseconds();
        unsigned n = 0;
        while (load(sys, theirs) != 2 * i + side) {
            if ((++n & 1023) == 0 && nanoseconds() - begin > stay) {
                *done = i;
                return;
            }
        }
        if (times) times[i] = nanoseconds();
        store(sys, mine, 2 * i + side + 1);
    }
    *done = i;
}

extern "C" __global__ void ping_pong(unsigned *words, unsigned nturns, int sys, unsigned apart, unsigned *done)
{
    if (blockIdx.x == 0) play(words, words + 64, 0, nturns, sys, 2000000000ull, done, 0);
    else if (blockIdx.x == apart) play(words + 64, words, 1, nturns, sys, 2000000000ull, done + 1, 0);
}

extern "C" __global__ void one_side(unsigned *mine, const unsigned *theirs, unsigned side, unsigned nturns,
                                    unsigned long long stay, unsigned *done, unsigned long long *times)
{
    play(mine, theirs, side, nturns, 1, stay, done, times);
}

/* dst = a, or a + b, n elements of 16 bytes; UNROLL loads in flight a thread. */
template <int UNROLL, bool FOLD> static __device__ void move(float4 *dst, const float4 *a, const float4 *b, size_t n)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + (UNROLL - 1) * stride < n; i += UNROLL * stride) {
        float4 x[UNROLL], y[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) x[u] = a[i + u * stride];
        if (FOLD) {
#pragma unroll
            for (int u = 0; u < UNROLL; u++) y[u] = b[i + u * stride];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) x[u] = make_float4(x[u].x + y[u].x, x[u].y + y[u].y, x[u].z + y[u].z, x[u].w + y[u].w);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) dst[i + u * stride] = x[u];
    }
    for (; i < n; i += stride) {
        float4 x = a[i];
        if (FOLD) x = make_float4(x.x + b[i].x, x.y + b[i].y, x.z + b[i].z, x.w + b[i].w);
        dst[i] = x;
    }
}

extern "C" __global__ void __launch_bounds__(1024) copy1(float4 *dst, const float4 *a, const float4 *b, size_t n) { move<1, false>(dst, a, b, n); }
extern "C" __global__ void __launch_bounds__(1024) copy4(float4 *dst, const float4 *a, const float4 *b, size_t n) { move<4, false>(dst, a, b, n); }
extern "C" __global__ void __launch_bounds__(512) copy8(float4 *dst, const float4 *a, const float4 *b, size_t n) { move<8, false>(dst, a, b, n); }
extern "C" __global__ void __launch_bounds__(1024) fold1(float4 *dst, const float4 *a, const float4 *b, size_t n) { move<1, true>(dst, a, b, n); }
extern "C" __global__ void __launch_bounds__(512) fold4(float4 *dst, const float4 *a, const float4 *b, size_t n) { move<4, true>(dst, a, b, n); }

/* Copies in words of 4 bytes, `offset` bytes from 16-byte alignment: what an unaligned piece costs. */
extern "C" __global__ void __launch_bounds__(1024) copy_words(float *dst, const float *a, size_t n)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) dst[i] = a[i];
}

/* For `stay` ns: records when the kernel did not run for more than `least` ns: beginning, length. */
extern "C" __global__ void gaps(unsigned long long stay, unsigned long long least, unsigned most,
                                unsigned *ngaps, unsigned long long *out)
{
    const unsigned long long begin = nanoseconds();
    unsigned long long before = begin;
    unsigned n = 0;
    while (before - begin < stay) {
        const unsigned long long now = nanoseconds();
        if (now - before > least && n < most) {
            out[2 * n] = before - begin;
            out[2 * n++ + 1] = now - before;
        }
        before = now;
    }
    *ngaps = n;
}

/* order[block] = how many blocks had begun before. */
extern "C" __global__ void start_order(unsigned *counter, unsigned *order)
{
    if (threadIdx.x == 0) order[blockIdx.x] = atomicAdd(counter, 1u);
}
