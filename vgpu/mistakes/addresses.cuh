/* Addresses, values and lanes. See mistakes.cu. */

//: 4 256 0 address
KERNEL(one_past_the_end)
{
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i EITHER(<=, <) n) out[i] = in[i]; // @one_past_the_end
}

//: 4 256 0 address
KERNEL(tail_without_guard)
{
    const int i = blockIdx.x * 256 + threadIdx.x;
    RIGHT(if (i < n))
    out[i] = in[i]; // @tail_without_guard
}

//: 1 32 0 misaligned
KERNEL(vector_from_an_odd_word)
{
    const int4 *from = (const int4 *)(in + EITHER(1, 4));
    const int4 four = from[threadIdx.x]; // @vector_from_an_odd_word
    out[threadIdx.x] = four.x + four.w;
}

//: 1 128 256 address
KERNEL(dynamic_shared_memory_too_small)
{
    extern __shared__ int dynamic[];
    RIGHT(if (threadIdx.x < 64))
    dynamic[threadIdx.x] = 1; // @dynamic_shared_memory_too_small
}

//: 1 64 0 address
KERNEL(null_pointer)
{
    int *p = EITHER((int *)(uintptr_t)flags[threadIdx.x], flags);
    out[threadIdx.x] = *(volatile int *)p; // @null_pointer
}

//: 1 64 0 undefined
KERNEL(half_is_not_written)
{
    __shared__ int s[64];
    if (threadIdx.x < EITHER(32, 64)) s[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x]; // @half_is_not_written
}

//: 1 64 0 wait
KERNEL(shuffle_of_lanes_that_never_come)
{
    if (threadIdx.x % 2 == 0) out[threadIdx.x] = __shfl_xor_sync(EITHER(0xffffffff, 0x55555555), in[threadIdx.x], 2);
    __syncthreads();
}

//: 1 64 0 race
KERNEL(writes_behind_its_arrival)
{
    __shared__ int s[32];
    if (threadIdx.x < 32) {
        EITHER(, s[threadIdx.x] = in[threadIdx.x]);
        asm volatile("barrier.cta.arrive 1, 64;" ::: "memory");
        EITHER(s[threadIdx.x] = in[threadIdx.x], ); // @writes_behind_its_arrival
    } else {
        asm volatile("barrier.cta.sync 1, 64;" ::: "memory");
        out[threadIdx.x] = s[threadIdx.x - 32]; // @writes_behind_its_arrival
    }
}
