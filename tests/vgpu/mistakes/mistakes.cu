/* Kernels with one planted mistake each, and their correct twins: with -DWRONG=1 the mistake is in, with -DWRONG=0 it is not.
 *
 * Above each kernel: "//: blocks threads dynamic-shared-bytes kind". The kind is what must be reported: race, or the name of a
 * fault, or wait (threads wait for ever), or wrong (the twin writes 1 to good[0], the mistake does not always). The report must
 * name a line that is marked with "@" and the kernel's name; of kind wrong and wait no line is asked for.
 *
 * Each kernel gets: out, 16384 words; flags, 1024 words, all zero; in, n = 1000 words, in[i] = i; good, one word. */
#include <stdint.h>

#if WRONG
#define RIGHT(...)
#define EITHER(wrong, right) wrong
#else
#define RIGHT(...) __VA_ARGS__
#define EITHER(wrong, right) right
#endif

#define KERNEL(name) extern "C" __global__ void name(int *out, int *flags, const int *in, int n, int *good)

#define STORE(name, how)                                                                                                    \
    static __device__ __forceinline__ void name(int *p, int v) { asm volatile("st." how ".s32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
#define LOAD(name, how)                                                                                                     \
    static __device__ __forceinline__ int name(const int *p)                                                                \
    {                                                                                                                       \
        int v;                                                                                                              \
        asm volatile("ld." how ".s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");                                             \
        return v;                                                                                                           \
    }
STORE(st_weak, "weak.global")
STORE(st_relaxed, "relaxed.gpu.global")
STORE(st_release, "release.gpu.global")
STORE(st_release_cta, "release.cta.global")
LOAD(ld_weak, "weak.global")
LOAD(ld_relaxed, "relaxed.gpu.global")
LOAD(ld_acquire, "acquire.gpu.global")
LOAD(ld_acquire_cta, "acquire.cta.global")
#define FENCE() asm volatile("fence.acq_rel.gpu;" ::: "memory")
#define FENCE_SC() asm volatile("fence.sc.gpu;" ::: "memory")

/* ---- one block, shared memory ---- */

//: 1 256 0 race
KERNEL(missing_barrier)
{
    __shared__ int s[256];
    s[threadIdx.x] = threadIdx.x;
    RIGHT(__syncthreads());
    out[threadIdx.x] = s[threadIdx.x ^ 33]; // @missing_barrier
}

//: 1 128 0 race
KERNEL(reused_too_early)
{
    __shared__ int s[128];
    int sum = 0;
    for (int k = 0; k < 4; k++) {
        s[threadIdx.x] = in[k * 128 + threadIdx.x]; // @reused_too_early
        __syncthreads();
        sum += s[127 - threadIdx.x]; // @reused_too_early
        RIGHT(__syncthreads());
    }
    out[threadIdx.x] = sum;
}

//: 1 32 0 race
KERNEL(warp_without_syncwarp)
{
    __shared__ int s[32];
    s[threadIdx.x] = in[threadIdx.x];
    RIGHT(__syncwarp());
    out[threadIdx.x] = s[threadIdx.x ^ 1]; // @warp_without_syncwarp
}

//: 1 64 0 race
KERNEL(tree_assumes_lockstep)
{
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for (int half = 32; half > 0; half /= 2) {
        int mine = 0;
        if (threadIdx.x < half) mine = s[threadIdx.x] + s[threadIdx.x + half]; // @tree_assumes_lockstep
        EITHER(if (half > 32) __syncthreads(), __syncthreads());
        if (threadIdx.x < half) s[threadIdx.x] = mine; // @tree_assumes_lockstep
        EITHER(if (half > 32) __syncthreads(), __syncthreads());
    }
    if (threadIdx.x == 0) out[0] = s[0];
}

//: 1 128 0 race
KERNEL(scan_in_one_buffer)
{
    __shared__ int s[128];
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for (int step = 1; step < 128; step *= 2) {
        int add = threadIdx.x >= step ? s[threadIdx.x - step] : 0; // @scan_in_one_buffer
        RIGHT(__syncthreads());
        s[threadIdx.x] += add; // @scan_in_one_buffer
        __syncthreads();
    }
    out[threadIdx.x] = s[threadIdx.x];
}

//: 1 96 0 race
KERNEL(shift_in_place)
{
    __shared__ int s[97];
    s[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x == 0) s[96] = 7;
    __syncthreads();
    int next = s[threadIdx.x + 1]; // @shift_in_place
    RIGHT(__syncthreads());
    s[threadIdx.x] = next; // @shift_in_place
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}

//: 1 128 0 race
KERNEL(histogram_without_atomics)
{
    __shared__ int bins[8];
    if (threadIdx.x < 8) bins[threadIdx.x] = 0;
    __syncthreads();
    EITHER(bins[in[threadIdx.x] % 8]++, atomicAdd(&bins[in[threadIdx.x] % 8], 1)); // @histogram_without_atomics
    __syncthreads();
    if (threadIdx.x < 8) out[threadIdx.x] = bins[threadIdx.x];
}

//: 1 128 0 race
KERNEL(leader_not_awaited)
{
    __shared__ int leader;
    if (threadIdx.x == 0) leader = in[5]; // @leader_not_awaited
    RIGHT(__syncthreads());
    out[threadIdx.x] = leader; // @leader_not_awaited
}

//: 1 64 0 race
KERNEL(arrives_instead_of_waiting)
{
    __shared__ int s[32];
    if (threadIdx.x < 32) {
        s[threadIdx.x] = in[threadIdx.x]; // @arrives_instead_of_waiting
        asm volatile("barrier.cta.arrive 1, 64;" ::: "memory");
    } else {
        EITHER(asm volatile("barrier.cta.arrive 1, 64;" ::: "memory"), asm volatile("barrier.cta.sync 1, 64;" ::: "memory"));
        out[threadIdx.x] = s[threadIdx.x - 32]; // @arrives_instead_of_waiting
    }
}

//: 1 64 0 wait
KERNEL(two_barriers_for_one)
{
    if (threadIdx.x < 32) asm volatile("barrier.cta.sync 1, 64;" ::: "memory");
    else asm volatile("barrier.cta.sync %0, 64;" ::"n"(EITHER(2, 1)) : "memory");
    out[threadIdx.x] = 1;
}

//: 1 64 0 wait
KERNEL(barrier_count_too_large)
{
    asm volatile("barrier.cta.sync 1, %0;" ::"n"(EITHER(96, 64)) : "memory");
    out[threadIdx.x] = 1;
}

//: 1 128 0 race
KERNEL(prefetch_overwrites)
{
    __shared__ int s[2][128];
    int sum = 0;
    s[0][threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for (int k = 0; k < 4; k++) {
        int next = EITHER(0, k + 1) & 1;
        s[next][threadIdx.x] = in[(k + 1) * 128 + threadIdx.x]; // @prefetch_overwrites
        sum += s[EITHER(0, k & 1)][127 - threadIdx.x]; // @prefetch_overwrites
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}

/* ---- between blocks: flags ---- */

//: 2 32 0 race
KERNEL(flag_without_fence)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        st_weak(out, 42); // @flag_without_fence
        RIGHT(FENCE());
        st_relaxed(flags, 1);
    } else {
        while (ld_acquire(flags) == 0) {}
        out[1] = ld_weak(out); // @flag_without_fence
    }
}

//: 2 32 0 race
KERNEL(fence_behind_the_flag)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        st_weak(out, 42); // @fence_behind_the_flag
        RIGHT(FENCE());
        st_relaxed(flags, 1);
        FENCE();
    } else {
        while (ld_acquire(flags) == 0) {}
        out[1] = ld_weak(out); // @fence_behind_the_flag
    }
}

//: 2 32 0 race
KERNEL(reader_without_acquire)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        st_weak(out, 42); // @reader_without_acquire
        st_release(flags, 1);
    } else {
        while (EITHER(ld_relaxed(flags), ld_acquire(flags)) == 0) {}
        out[1] = ld_weak(out); // @reader_without_acquire
    }
}

//: 2 32 0 race
KERNEL(flag_is_weak)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        st_weak(out, 42);
        FENCE();
        EITHER(st_weak(flags, 1), st_relaxed(flags, 1)); // @flag_is_weak
    } else {
        while (ld_acquire(flags) == 0) {} // @flag_is_weak
        out[1] = ld_weak(out);
    }
}

//: 2 32 0 race
KERNEL(flag_is_read_weakly)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        st_weak(out, 42);
        st_release(flags, 1); // @flag_is_read_weakly
    } else {
        while (EITHER(ld_weak(flags), ld_acquire(flags)) == 0) {} // @flag_is_read_weakly
        FENCE();
        out[1] = ld_weak(out);
    }
}

//: 2 32 0 race
KERNEL(release_of_the_block)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        st_weak(out, 42); // @release_of_the_block
        EITHER(st_release_cta(flags, 1), st_release(flags, 1)); // @release_of_the_block
    } else {
        while (ld_acquire(flags) == 0) {} // @release_of_the_block
        out[1] = ld_weak(out); // @release_of_the_block
    }
}

//: 2 32 0 race
KERNEL(acquire_of_the_block)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        st_weak(out, 42); // @acquire_of_the_block
        st_release(flags, 1); // @acquire_of_the_block
    } else {
        while (EITHER(ld_acquire_cta(flags), ld_acquire(flags)) == 0) {} // @acquire_of_the_block
        out[1] = ld_weak(out); // @acquire_of_the_block
    }
}

//: 2 32 0 race
KERNEL(fence_of_the_block)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        out[0] = 42; // @fence_of_the_block
        EITHER(__threadfence_block(), __threadfence());
        st_relaxed(flags, 1);
    } else {
        while (ld_relaxed(flags) == 0) {}
        __threadfence();
        out[1] = out[0]; // @fence_of_the_block
    }
}

//: 2 32 0 race
KERNEL(volatile_is_no_fence)
{
    if (threadIdx.x) return;
    volatile int *flag = flags;
    if (blockIdx.x == 0) {
        out[0] = 42; // @volatile_is_no_fence
        RIGHT(__threadfence());
        *flag = 1;
    } else {
        while (*flag == 0) {}
        RIGHT(__threadfence());
        out[1] = ((volatile int *)out)[0]; // @volatile_is_no_fence
    }
}

//: 2 32 0 race
KERNEL(exchange_is_no_release)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        out[0] = 42; // @exchange_is_no_release
        RIGHT(__threadfence());
        atomicExch(flags, 1);
    } else {
        while (atomicAdd(flags, 0) == 0) {}
        __threadfence();
        out[1] = out[0]; // @exchange_is_no_release
    }
}

//: 2 64 0 race
KERNEL(released_by_another_thread)
{
    if (blockIdx.x == 0) {
        if (threadIdx.x == 32) out[0] = 42; // @released_by_another_thread
        RIGHT(__syncthreads());
        if (threadIdx.x == 0) st_release(flags, 1);
    } else if (threadIdx.x == 0) {
        while (ld_acquire(flags) == 0) {}
        out[1] = out[0]; // @released_by_another_thread
    }
}

//: 2 64 0 race
KERNEL(acquired_by_another_thread)
{
    if (blockIdx.x == 0) {
        out[threadIdx.x] = 42; // @acquired_by_another_thread
        __syncthreads();
        if (threadIdx.x == 0) st_release(flags, 1);
    } else {
        if (threadIdx.x == 0)
            while (ld_acquire(flags) == 0) {}
        RIGHT(__syncthreads());
        out[64 + threadIdx.x] = ((volatile int *)out)[threadIdx.x]; // @acquired_by_another_thread
    }
}

//: 2 32 0 wrong
KERNEL(flag_beside_data)
{
    if (threadIdx.x) return;
    int data, flag;
    if (blockIdx.x == 0) {
#if WRONG
        asm volatile("st.relaxed.gpu.global.v2.s32 [%0], {%1, %2};" ::"l"(flags), "r"(42), "r"(1) : "memory");
#else
        asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(flags), "l"(42ll | 1ll << 32) : "memory");
#endif
    } else {
        do {
#if WRONG
            asm volatile("ld.relaxed.gpu.global.v2.s32 {%0, %1}, [%2];" : "=r"(data), "=r"(flag) : "l"(flags) : "memory");
#else
            long long both;
            asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(both) : "l"(flags) : "memory");
            data = (int)both, flag = (int)(both >> 32);
#endif
        } while (flag == 0);
        good[0] = data == 42;
    }
}

//: 2 32 0 race
KERNEL(flag_of_another_size)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        st_weak(out, 42);
        FENCE();
        EITHER(asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" ::"l"(flags), "h"((short)1) : "memory"), st_relaxed(flags, 1)); // @flag_of_another_size
    } else {
        while (ld_acquire(flags) == 0) {} // @flag_of_another_size
        out[1] = ld_weak(out); // @flag_of_another_size
    }
}

//: 2 32 0 race
KERNEL(read_only_path)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        out[0] = 42; // @read_only_path
        st_release(flags, 1);
    } else {
        while (ld_acquire(flags) == 0) {}
        out[1] = EITHER(__ldg(out), ld_weak(out)); // @read_only_path
    }
}

//: 2 32 0 race
KERNEL(neighbour_in_the_same_kernel)
{
    const int i = blockIdx.x * 32 + threadIdx.x;
    out[i] = in[i]; // @neighbour_in_the_same_kernel
    __syncthreads();
    out[128 + i] = EITHER(out[(i + 32) % 64], in[(i + 32) % 64]); // @neighbour_in_the_same_kernel
}

//: 2 32 0 race
KERNEL(ring_is_overrun)
{
    if (threadIdx.x) return;
    for (int k = 0; k < 6; k++) {
        int *slot = &out[k % 2];
        if (blockIdx.x == 0) {
            RIGHT(while (ld_acquire(flags + 1) < k - 1) {});
            st_weak(slot, k); // @ring_is_overrun
            st_release(flags, k + 1);
        } else {
            while (ld_acquire(flags) < k + 1) {}
            out[100 + k] = ld_weak(slot); // @ring_is_overrun
            st_release(flags + 1, k + 1);
        }
    }
}

//: 2 32 0 race
KERNEL(slot_is_freed_too_early)
{
    if (threadIdx.x) return;
    for (int k = 0; k < 4; k++) {
        if (blockIdx.x == 0) {
            while (ld_acquire(flags + 1) < k) {}
            st_weak(out, k); // @slot_is_freed_too_early
            st_release(flags, k + 1);
        } else {
            while (ld_acquire(flags) < k + 1) {}
            EITHER(st_release(flags + 1, k + 1), );
            out[100 + k] = ld_weak(out); // @slot_is_freed_too_early
            RIGHT(st_release(flags + 1, k + 1));
        }
    }
}

//: 2 32 0 race
KERNEL(tail_before_data)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        EITHER(st_release(flags, 1), );
        st_weak(out, 42); // @tail_before_data
        RIGHT(st_release(flags, 1));
    } else {
        while (ld_acquire(flags) == 0) {}
        out[1] = ld_weak(out); // @tail_before_data
    }
}

/* ---- between blocks: counters, locks, barriers of the grid ---- */

//: 4 64 0 race
KERNEL(counter_without_atomics)
{
    if (threadIdx.x == 0) EITHER(out[0]++, atomicAdd(out, 1)); // @counter_without_atomics
}

//: 4 32 0 race
KERNEL(counter_reset_plainly)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 3) EITHER(st_weak(flags, 0), atomicExch(flags, 0)); // @counter_reset_plainly
    else atomicAdd(flags, 1); // @counter_reset_plainly
}

//: 4 64 0 race
KERNEL(last_block_without_fence)
{
    __shared__ int last;
    out[blockIdx.x * 64 + threadIdx.x] = in[threadIdx.x]; // @last_block_without_fence
    __syncthreads();
    if (threadIdx.x == 0) {
        RIGHT(__threadfence());
        last = atomicAdd(flags, 1) == 3;
        FENCE();
    }
    __syncthreads();
    if (!last) return;
    int sum = 0;
    for (int b = 0; b < 4; b++) sum += ((volatile int *)out)[b * 64 + threadIdx.x]; // @last_block_without_fence
    out[1000 + threadIdx.x] = sum;
}

//: 4 64 0 race
KERNEL(last_block_without_barrier)
{
    __shared__ int last;
    out[blockIdx.x * 64 + threadIdx.x] = in[threadIdx.x]; // @last_block_without_barrier
    RIGHT(__syncthreads());
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(flags, 1) == 3;
        __threadfence();
    }
    __syncthreads();
    if (!last) return;
    int sum = 0;
    for (int b = 0; b < 4; b++) sum += ((volatile int *)out)[b * 64 + (threadIdx.x ^ 32)]; // @last_block_without_barrier
    out[1000 + threadIdx.x] = sum;
}

//: 3 32 0 race
KERNEL(lock_without_acquire)
{
    if (threadIdx.x) return;
    while (atomicCAS(flags, 0, 1) != 0) {}
    RIGHT(__threadfence());
    out[0] = out[0] + 1; // @lock_without_acquire
    __threadfence();
    atomicExch(flags, 0);
}

//: 3 32 0 race
KERNEL(lock_without_release)
{
    if (threadIdx.x) return;
    while (atomicCAS(flags, 0, 1) != 0) {}
    __threadfence();
    out[0] = out[0] + 1; // @lock_without_release
    RIGHT(__threadfence());
    atomicExch(flags, 0);
}

//: 3 32 0 race
KERNEL(lock_freed_plainly)
{
    if (threadIdx.x) return;
    while (atomicCAS(flags, 0, 1) != 0) {} // @lock_freed_plainly
    __threadfence();
    out[0] = out[0] + 1;
    __threadfence();
    EITHER(st_weak(flags, 0), atomicExch(flags, 0)); // @lock_freed_plainly
}

//: 2 32 0 race
KERNEL(dekker_without_sc)
{
    if (threadIdx.x) return;
    const int me = blockIdx.x;
    st_relaxed(flags + me, 1);
    EITHER(FENCE(), FENCE_SC());
    if (ld_relaxed(flags + 1 - me) == 0) st_weak(out, me); // @dekker_without_sc
}

static __device__ __forceinline__ void grid_barrier(int *count, int goal)
{
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(count, 1);
        while (ld_relaxed(count) < goal) {}
        __threadfence();
    }
}

//: 3 64 0 race
KERNEL(grid_barrier_enters_early)
{
    out[blockIdx.x * 64 + threadIdx.x] = 1; // @grid_barrier_enters_early
    RIGHT(__syncthreads());
    grid_barrier(flags, 3);
    __syncthreads();
    out[500 + blockIdx.x * 64 + threadIdx.x] = ((volatile int *)out)[(blockIdx.x + 1) % 3 * 64 + (threadIdx.x ^ 32)]; // @grid_barrier_enters_early
}

//: 3 64 0 race
KERNEL(grid_barrier_leaves_early)
{
    out[blockIdx.x * 64 + threadIdx.x] = 1; // @grid_barrier_leaves_early
    __syncthreads();
    grid_barrier(flags, 3);
    RIGHT(__syncthreads());
    out[500 + blockIdx.x * 64 + threadIdx.x] = ((volatile int *)out)[(blockIdx.x + 1) % 3 * 64 + (threadIdx.x ^ 32)]; // @grid_barrier_leaves_early
}

//: 3 32 0 wait
KERNEL(grid_barrier_goal_too_high)
{
    grid_barrier(flags, EITHER(4, 3));
    out[blockIdx.x * 32 + threadIdx.x] = 1;
}

//: 100 1024 0 wait
KERNEL(waits_for_a_block_that_is_not_resident)
{
    if (threadIdx.x) return;
    if (blockIdx.x == EITHER(99, 0)) st_release(flags, 1);
    else
        while (ld_acquire(flags) == 0) {}
}

/* ---- addresses ---- */

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
