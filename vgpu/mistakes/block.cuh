/* One block and its shared memory. See mistakes.cu. */

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
