/* Kernels of visible.c: wide accesses that may tear, and stores that another agent waits for. */
#include <stdint.h>

enum { W_V4, W_V2, W_B128, W_B128_GPU, W_V4_VOLATILE, W_B64, W_WARP128, W_V4_OFF };

static __device__ void store16(int kind, void *to, uint32_t s)
{
    const uint64_t pair = (uint64_t)s << 32 | s;
    switch (kind) {
    case W_V4:
    case W_V4_OFF:
        asm volatile("st.weak.global.v4.b32 [%0], {%1,%1,%1,%1};" ::"l"(to), "r"(s) : "memory");
        break;
    case W_V4_VOLATILE:
        asm volatile("st.volatile.global.v4.b32 [%0], {%1,%1,%1,%1};" ::"l"(to), "r"(s) : "memory");
        break;
    case W_V2:
        asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1,%1};" ::"l"(to), "l"(pair) : "memory");
        break;
    case W_B64:
        asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(to), "l"(pair) : "memory");
        asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"((char *)to + 8), "l"(pair)
                     : "memory");
        break;
    case W_B128_GPU:
        asm volatile("{ .reg .b128 q; mov.b128 q, {%1,%1}; st.relaxed.gpu.global.b128 [%0], q; }" ::"l"(to),
                     "l"(pair)
                     : "memory");
        break;
    default:
        asm volatile("{ .reg .b128 q; mov.b128 q, {%1,%1}; st.relaxed.sys.global.b128 [%0], q; }" ::"l"(to),
                     "l"(pair)
                     : "memory");
    }
}

static __device__ void load16(int kind, const void *from, uint64_t out[2])
{
    switch (kind) {
    case W_V4:
    case W_V4_OFF: /* past the L1 cache, else the line would never change */
        asm volatile("ld.weak.global.cv.v2.b64 {%0,%1}, [%2];" : "=l"(out[0]), "=l"(out[1]) : "l"(from) : "memory");
        break;
    case W_V4_VOLATILE:
        asm volatile("ld.volatile.global.v2.b64 {%0,%1}, [%2];" : "=l"(out[0]), "=l"(out[1]) : "l"(from) : "memory");
        break;
    case W_V2:
    case W_B64:
        asm volatile("ld.relaxed.sys.global.v2.b64 {%0,%1}, [%2];" : "=l"(out[0]), "=l"(out[1]) : "l"(from) : "memory");
        break;
    case W_B128_GPU:
        asm volatile("{ .reg .b128 q; ld.relaxed.gpu.global.b128 q, [%2]; mov.b128 {%0,%1}, q; }"
                     : "=l"(out[0]), "=l"(out[1]) : "l"(from) : "memory");
        break;
    default:
        asm volatile("{ .reg .b128 q; ld.relaxed.sys.global.b128 q, [%2]; mov.b128 {%0,%1}, q; }"
                     : "=l"(out[0]), "=l"(out[1]) : "l"(from) : "memory");
    }
}

/* Even blocks store rising numbers in all words of their lines, odd blocks load those lines.
 * counts: loads, loads whose value differs from the one before, loads with unequal words, and, for
 * lines of 128 bytes that 8 threads store and load together, lines with unequal parts. */
extern "C" __global__ void tear(char *memory, int kind, unsigned nturns, unsigned stride,
                                unsigned offset, unsigned long long *counts)
{
    const unsigned pair = blockIdx.x / 2, thread = threadIdx.x;
    char *line = memory + ((size_t)pair * blockDim.x + thread) * stride + offset;
    if (kind == W_WARP128) line = memory + ((size_t)pair * blockDim.x + thread) * 16;
    if (blockIdx.x % 2 == 0) {
        for (uint32_t s = 1; s <= nturns; s++) store16(kind, line, s);
        return;
    }
    unsigned long long changed = 0, torn = 0, torn_line = 0;
    uint64_t before = 0, got[2];
    for (unsigned turn = 0; turn < nturns; turn++) {
        load16(kind, line, got);
        changed += got[0] != before;
        before = got[0];
        torn += got[0] != got[1] || (uint32_t)got[0] != (uint32_t)(got[0] >> 32) ||
                (uint32_t)got[1] != (uint32_t)(got[1] >> 32);
        if (kind == W_WARP128) {
            const uint64_t first = __shfl_sync(~0u, got[0], (int)(thread & 24));
            torn_line += (__ballot_sync(~0u, first != got[0]) >> (thread & 24) & 255) != 0;
        }
    }
    atomicAdd(&counts[0], (unsigned long long)nturns);
    atomicAdd(&counts[1], changed);
    atomicAdd(&counts[2], torn);
    atomicAdd(&counts[3], torn_line);
}

/* One block stores rising numbers in a line that the host reads, or loads what the host stores. */
extern "C" __global__ void tear_with_host(char *line, int kind, int stores, unsigned nturns,
                                          volatile unsigned *stop, unsigned long long *counts)
{
    unsigned long long changed = 0, torn = 0;
    uint64_t before = 0, got[2];
    uint32_t turn = 1;
    for (; turn <= nturns && !(turn % 64 == 0 && *stop); turn++) {
        if (stores) {
            store16(kind, line, turn);
            continue;
        }
        load16(kind, line, got);
        changed += got[0] != before;
        before = got[0];
        torn += got[0] != got[1];
    }
    if (threadIdx.x) return;
    counts[0] = turn;
    counts[1] = changed;
    counts[2] = torn;
}

enum { S_WEAK, S_RELAXED_CTA, S_RELAXED_GPU, S_RELAXED_SYS, S_VOLATILE, S_FENCE_GPU, S_FENCE_SYS, S_RELEASE_SYS, S_RELEASE_GPU, S_WT, S_COUNT };

static __device__ void store_as(int kind, unsigned *word, unsigned value)
{
    switch (kind) {
    case S_RELAXED_CTA: asm volatile("st.relaxed.cta.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory"); break;
    case S_RELAXED_GPU: asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory"); break;
    case S_RELAXED_SYS: asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory"); break;
    case S_VOLATILE: asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory"); break;
    case S_RELEASE_SYS: asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory"); break;
    case S_RELEASE_GPU: asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory"); break;
    case S_WT: asm volatile("st.weak.global.wt.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory"); break;
    default: asm volatile("st.weak.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
    }
    if (kind == S_FENCE_GPU) asm volatile("fence.acq_rel.gpu;" ::: "memory");
    if (kind == S_FENCE_SYS) asm volatile("fence.acq_rel.sys;" ::: "memory");
}

static __device__ unsigned load_as(int kind, const unsigned *word)
{
    unsigned value;
    switch (kind) {
    case S_RELAXED_CTA: asm volatile("ld.relaxed.cta.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory"); break;
    case S_RELAXED_GPU: asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory"); break;
    case S_RELAXED_SYS: asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory"); break;
    case S_VOLATILE: asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory"); break;
    case S_RELEASE_SYS: asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory"); break;
    case S_RELEASE_GPU: asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory"); break;
    default: asm volatile("ld.weak.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    }
    return value;
}

static __device__ unsigned long long nanoseconds()
{
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

/* Stores once, then stays for `stay` ns, or until the host sets *stop, without a further fence. */
extern "C" __global__ void store_and_stay(unsigned *word, int kind, unsigned long long stay,
                                          unsigned *stop)
{
    store_as(kind, word, 1);
    const unsigned long long begin = nanoseconds();
    while (nanoseconds() - begin < stay && !load_as(S_RELAXED_CTA, stop)) {}
}

/* Waits for the word to change, at most `stay` ns; says after how many loads it did, or 0. */
extern "C" __global__ void wait_for_change(const unsigned *word, int kind, unsigned long long stay,
                                           volatile unsigned *started, unsigned *turns)
{
    unsigned n = 0;
    *started = 1;
    __threadfence_system();
    const unsigned long long begin = nanoseconds();
    while (load_as(kind, word) == 0) {
        n++;
        if ((n & 255) == 0 && nanoseconds() - begin > stay) {
            *turns = 0;
            return;
        }
    }
    *turns = n + 1;
}

/* Block 0 waits for a word that block 1 stores after a while. */
extern "C" __global__ void wait_for_block(unsigned *word, int kind, unsigned long long stay,
                                          unsigned *turns)
{
    const unsigned long long begin = nanoseconds();
    if (blockIdx.x == 1) {
        while (nanoseconds() - begin < 20000) {}
        store_as(S_RELAXED_GPU, word, 1);
        return;
    }
    unsigned n = 0;
    while (load_as(kind, word) == 0) {
        n++;
        if ((n & 255) == 0 && nanoseconds() - begin > stay) {
            *turns = 0;
            return;
        }
    }
    *turns = n + 1;
}

/* Stores rising numbers in `first`, then in `second`, which lie in different pages. */
extern "C" __global__ void store_in_order(unsigned *first, unsigned *second, int kind,
                                          unsigned nturns)
{
    for (unsigned s = 1; s <= nturns; s++) {
        store_as(kind, first, s);
        store_as(kind, second, s);
    }
}

/* Loads `second`, then `first`, while the host stores first, then second: counts the loads, the
 * changes, and those where the second word is ahead of the first. */
extern "C" __global__ void load_in_order(const unsigned *first, const unsigned *second, int kind,
                                         volatile unsigned *stop, unsigned long long *counts)
{
    unsigned long long loads = 0, changed = 0, ahead = 0;
    unsigned before = 0;
    while (loads < 1000 || (loads & 63) || !*stop) {
        const unsigned late = load_as(kind, second);
        if (kind == S_FENCE_SYS) asm volatile("fence.acq_rel.sys;" ::: "memory");
        const unsigned early = load_as(kind, first);
        loads++;
        changed += late != before;
        before = late;
        ahead += (int)(late - early) > 0;
        if (loads > 4000000) break;
    }
    counts[0] = loads;
    counts[1] = changed;
    counts[2] = ahead;
}
