/* Between blocks: data behind flags. See mistakes.cu. */

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
