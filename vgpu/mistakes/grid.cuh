/* Between blocks: counters, locks, barriers of the grid. See mistakes.cu. */

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
