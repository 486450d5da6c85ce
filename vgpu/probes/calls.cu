/* Kernels that calls.c and shared.c launch: one that waits, and one for each way to fail. */
#include <assert.h>

extern "C" __global__ void nothing() {}

struct wide {
    char bytes[4000];
};
extern "C" __global__ void nothing_wide(struct wide) {}

/* Stores `value` once. */
extern "C" __global__ void put(unsigned *word, unsigned value)
{
    *word = value;
}

/* Waits until *word is `value`; says in *started that the kernel runs. */
extern "C" __global__ void await(volatile unsigned *word, unsigned value, volatile unsigned *started)
{
    *started = 1;
    __threadfence_system();
    while (*word != value) {}
}

/* Counts in *word until *stop is not zero. */
extern "C" __global__ void count(volatile unsigned *word, volatile unsigned *stop)
{
    while (!*stop) *word = *word + 1;
}

extern "C" __global__ void fault_trap()
{
    __trap();
}

extern "C" __global__ void fault_assert(int zero)
{
    assert(zero);
}

extern "C" __global__ void fault_exit()
{
    asm volatile("exit;");
}

extern "C" __global__ void fault_address(unsigned *word)
{
    *word = 1;
}

extern "C" __global__ void fault_local(unsigned *word, int index)
{
    __shared__ unsigned shared[4];
    shared[index] = 1;
    *word = shared[index / 2];
}

/* A word of 4 bytes at an address that is no multiple of 4, in memory that is ours. */
extern "C" __global__ void fault_misaligned(char *memory)
{
    *(volatile unsigned *)(memory + 1) = 1;
}

static __device__ __noinline__ int deep(int depth, volatile int *out)
{
    volatile int frame[64];
    frame[depth & 63] = depth;
    if (depth == 0) return *out;
    return deep(depth - 1, out) + frame[(depth * 7) & 63];
}

extern "C" __global__ void fault_stack(int *out, int depth)
{
    *out = deep(depth, out);
}

extern "C" __global__ void large_shared(unsigned *out)
{
    extern __shared__ unsigned words[];
    words[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = words[threadIdx.x ^ 1];
}

extern "C" __global__ void __launch_bounds__(1024) threads1024(unsigned *out)
{
    out[threadIdx.x] = blockIdx.x;
}
