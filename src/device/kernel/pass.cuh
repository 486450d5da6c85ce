/* A pass of all threads of a block over memory: folds sources and stores the result to targets, or
 * copies, with the bits of tt_reduce.
 *
 * All threads take the same part of every source and target, so that a target may be a source. The
 * middle of the data is accessed by 16 bytes, several loads of a thread at once; where addresses
 * differ modulo 16, by words of 4 bytes (8 of 8-byte types), and where they differ in that too, by
 * elements; elements that are not aligned, by bytes. */
#ifndef TT_DEVICE_KERNEL_PASS_CUH
#define TT_DEVICE_KERNEL_PASS_CUH

#include <stdint.h>

#include "device/call.h"
#include "device/kernel/fold.cuh"

/* In shared memory: threads pick pointers out of it in loops. Sources are folded in their order.
 * All is global memory. A target is one of the sources (same address) or overlaps none. */
struct tt_pass {
    const char *sources[TT_DEVICE_MOST_PEERS + 1];
    char *targets[TT_DEVICE_MOST_PEERS + 1];
    bool raw[TT_DEVICE_MOST_PEERS + 1]; /* of the sources, where changes.raw */
    uint32_t nsources, ntargets;        /* either 0: nothing is done */
    tt_fold_changes changes;
    size_t count; /* elements */
};

static __device__ inline bool tt_pass_is_raw(const tt_pass *pass, uint32_t s)
{
    return pass->changes.raw && pass->raw[s];
}

/* How a pass is divided: `head` bytes before the first aligned unit of the first target, then units
 * of `unit` bytes, then less than a unit. unit 0: there is no middle. */
struct tt_pass_parts {
    size_t nbytes;
    uint32_t head, unit;
};

/* ---- Accesses ------------------------------------------------------------------------------- */

template <class T> static __device__ inline const T *tt_source(const char *data, size_t at)
{
    __builtin_assume(__isGlobal(data));
    return (const T *)(data + at);
}

template <class T> static __device__ inline T *tt_target_of(char *data, size_t at)
{
    __builtin_assume(__isGlobal(data));
    return (T *)(data + at);
}

template <class F> static __device__ inline tt_pack<F, 4> tt_pass_load(const uint32_t *from)
{
    return {{*from}};
}
template <class F> static __device__ inline tt_pack<F, 8> tt_pass_load(const uint64_t *from)
{
    return {{*from}};
}
template <class F> static __device__ inline tt_pack<F, 16> tt_pass_load(const uint4 *from)
{
    const uint4 a = *from;
    return {{a.x, a.y, a.z, a.w}};
}
template <class F> static __device__ inline tt_pack<F, 16> tt_pass_load(const ulonglong2 *from)
{
    const ulonglong2 a = *from;
    return {{a.x, a.y}};
}

template <class F> static __device__ inline void tt_pass_store(uint32_t *to, tt_pack<F, 4> a)
{
    *to = a.words[0];
}
template <class F> static __device__ inline void tt_pass_store(uint64_t *to, tt_pack<F, 8> a)
{
    *to = a.words[0];
}
template <class F> static __device__ inline void tt_pass_store(uint4 *to, tt_pack<F, 16> a)
{
    *to = make_uint4(a.words[0], a.words[1], a.words[2], a.words[3]);
}
template <class F> static __device__ inline void tt_pass_store(ulonglong2 *to, tt_pack<F, 16> a)
{
    *to = make_ulonglong2(a.words[0], a.words[1]);
}

/* The types of 16 bytes of words. */
template <class WORD> struct tt_pass_unit;
template <> struct tt_pass_unit<uint32_t> {
    typedef uint4 type;
};
template <> struct tt_pass_unit<uint64_t> {
    typedef ulonglong2 type;
};

/* An element that is not aligned. */
static __device__ __noinline__ uint64_t tt_pass_load_bytes(const char *from, int size)
{
    uint64_t all = 0;
#pragma unroll 1
    for (int i = 0; i < size; i++) all |= (uint64_t)*tt_source<uint8_t>(from, i) << (8 * i);
    return all;
}

static __device__ __noinline__ void tt_pass_store_bytes(char *to, uint64_t value, int size)
{
#pragma unroll 1
    for (int i = 0; i < size; i++) *tt_target_of<uint8_t>(to, i) = (uint8_t)(value >> (8 * i));
}

/* One element as the lowest of a word. */
template <int SIZE> static __device__ inline uint64_t tt_pass_load_one(const char *from)
{
    if (SIZE == 1) return *tt_source<uint8_t>(from, 0);
    if ((uintptr_t)from % SIZE) return tt_pass_load_bytes(from, SIZE);
    if (SIZE == 2) return *tt_source<uint16_t>(from, 0);
    return SIZE == 4 ? *tt_source<uint32_t>(from, 0) : *tt_source<uint64_t>(from, 0);
}

template <int SIZE> static __device__ inline void tt_pass_store_one(char *to, uint64_t value)
{
    if ((uintptr_t)to % SIZE) return tt_pass_store_bytes(to, value, SIZE);
    if (SIZE == 1) *tt_target_of<uint8_t>(to, 0) = (uint8_t)value;
    if (SIZE == 2) *tt_target_of<uint16_t>(to, 0) = (uint16_t)value;
    if (SIZE == 4) *tt_target_of<uint32_t>(to, 0) = (uint32_t)value;
    if (SIZE == 8) *tt_target_of<uint64_t>(to, 0) = value;
}

/* With several units a thread, a warp's units are one stretch, so that offsets from one address
 * reach them. The end of the whole stretches from `at` on, and the thread's first byte after `at`.
 */
template <class UNIT, int UNROLL>
static __device__ inline size_t tt_pass_whole(size_t at, size_t end)
{
    constexpr size_t STRETCH = UNROLL * TT_WARP * sizeof(UNIT);
    return end - (end - at) % STRETCH;
}
template <class UNIT, int UNROLL> static __device__ inline size_t tt_pass_first(uint32_t thread)
{
    const uint32_t warp = thread / TT_WARP, lane = thread % TT_WARP;
    return (warp * UNROLL * TT_WARP + lane) * sizeof(UNIT);
}

/* ---- Folds ---------------------------------------------------------------------------------- */

/* A thread's UNROLL units, TT_WARP units apart from byte `at` on, of N sources from `first` on: all
 * are loaded before they are folded. BEGIN: the first one begins the fold. */
template <int N, bool BEGIN, class F, class UNIT, int UNROLL>
static __device__ inline void tt_pass_group(const F &f, const tt_pass *pass, uint32_t first,
                                            size_t at, tt_pack_acc<F, sizeof(UNIT)> (&acc)[UNROLL])
{
    tt_pack<F, sizeof(UNIT)> in[N][UNROLL];
#pragma unroll
    for (int k = 0; k < N; k++) {
        const UNIT *from = tt_source<UNIT>(pass->sources[first + k], at);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) in[k][u] = tt_pass_load<F>(from + u * TT_WARP);
    }
    if (UNROLL > 1) __syncwarp(); /* else the compiler would fold some before it loads others */
#pragma unroll
    for (int k = 0; k < N; k++) {
        const bool raw = tt_pass_is_raw(pass, first + k);
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            acc[u] = BEGIN && k == 0 ? tt_pack_begin(f, in[k][u], raw)
                                     : tt_pack_add(f, acc[u], in[k][u], raw);
    }
}

/* Folds a thread's UNROLL units. MOST: sources of a group; the first group is the rest. WHOLE:
 * there are MOST sources. */
template <int MOST, bool WHOLE, class F, class UNIT, int UNROLL>
static __device__ inline void tt_pass_units(const F &f, const tt_pass *pass, size_t at)
{
    tt_pack_acc<F, sizeof(UNIT)> acc[UNROLL];
    tt_pack<F, sizeof(UNIT)> result[UNROLL];
    const uint32_t nsources = WHOLE ? MOST : pass->nsources;
    uint32_t done = (nsources - 1) % MOST + 1;
    if (WHOLE || done == MOST)
        tt_pass_group<MOST, true, F, UNIT, UNROLL>(f, pass, 0, at, acc);
    else if (done == 1)
        tt_pass_group<1, true, F, UNIT, UNROLL>(f, pass, 0, at, acc);
    else if (done == 2)
        tt_pass_group<2, true, F, UNIT, UNROLL>(f, pass, 0, at, acc);
    else
        tt_pass_group<3, true, F, UNIT, UNROLL>(f, pass, 0, at, acc);
#pragma unroll 1
    for (; done < nsources; done += MOST)
        tt_pass_group<MOST, false, F, UNIT, UNROLL>(f, pass, done, at, acc);
#pragma unroll
    for (int u = 0; u < UNROLL; u++) result[u] = tt_pack_end(f, acc[u]);
    const uint32_t ntargets = pass->ntargets;
#pragma unroll 1
    for (uint32_t t = 0; t < ntargets; t++) {
        UNIT *to = tt_target_of<UNIT>(pass->targets[t], at);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) tt_pass_store(to + u * TT_WARP, result[u]);
    }
}

/* The middle of a pass, from byte `at` to byte `end`. */
template <int MOST, bool WHOLE, class F, class UNIT, int UNROLL>
static __device__ inline void tt_pass_middle(const F &f, const tt_pass *pass, size_t at, size_t end)
{
    if (UNROLL > 1) {
        const size_t stride = blockDim.x * (UNROLL * sizeof(UNIT));
        const size_t whole = tt_pass_whole<UNIT, UNROLL>(at, end);
#pragma unroll 1
        for (size_t i = at + tt_pass_first<UNIT, UNROLL>(threadIdx.x); i < whole; i += stride)
            tt_pass_units<MOST, WHOLE, F, UNIT, UNROLL>(f, pass, i);
        at = whole;
    }
#pragma unroll 1
    for (at += threadIdx.x * sizeof(UNIT); at < end; at += blockDim.x * sizeof(UNIT))
        tt_pass_units<MOST, WHOLE, F, UNIT, 1>(f, pass, at);
}

/* The middle of a pass by 16 bytes, with 128 bytes a thread or more on their way: of two, three or
 * four sources at once where that is worth the code, else of two. Fewer where a fold takes many
 * registers itself, and where raw sources are divided, which is a call. */
template <class F, class UNIT>
static __device__ inline void tt_pass_wide(const F &f, const tt_pass *pass, size_t at, size_t end)
{
    if constexpr (F::OFTEN && F::CALLS) {
        const tt_multiplied<F> multiplied(f);
        if (!f.divides() || !pass->changes.raw)
            return tt_pass_wide<tt_multiplied<F>, UNIT>(multiplied, pass, at, end);
        if (pass->nsources == 2) return tt_pass_middle<2, true, F, UNIT, 2>(f, pass, at, end);
    }
    if constexpr (F::CALLS)
        tt_pass_middle<1, false, F, UNIT, 1>(f, pass, at, end);
    else if constexpr (F::HEAVY)
        tt_pass_middle<4, false, F, UNIT, 1>(f, pass, at, end);
    else if constexpr (!F::OFTEN)
        tt_pass_middle<2, false, F, UNIT, 4>(f, pass, at, end);
    else if (pass->nsources == 2)
        tt_pass_middle<2, true, F, UNIT, 4>(f, pass, at, end);
    else if (pass->nsources == 3)
        tt_pass_middle<3, true, F, UNIT, 3>(f, pass, at, end);
    else
        tt_pass_middle<4, false, F, UNIT, 2>(f, pass, at, end);
}

/* The elements of bytes [0, head) and [tail, nbytes). */
template <class F>
static __device__ inline void tt_pass_ends(const F &f, const tt_pass *pass, size_t head,
                                           size_t tail, size_t nbytes)
{
    constexpr int SIZE = F::SIZE;
    typedef typename F::word word;
#pragma unroll 1
    for (size_t i = threadIdx.x * (size_t)SIZE;; i += blockDim.x * (size_t)SIZE) {
        const size_t at = i < head ? i : i - head + tail;
        if (at >= nbytes) return;
        constexpr int WORD = sizeof(word);
        tt_pack<F, WORD> one = {{(word)tt_pass_load_one<SIZE>(pass->sources[0] + at)}};
        tt_pack_acc<F, WORD> acc = tt_pack_begin(f, one, tt_pass_is_raw(pass, 0));
#pragma unroll 1
        for (uint32_t s = 1; s < pass->nsources; s++) {
            one.words[0] = (word)tt_pass_load_one<SIZE>(pass->sources[s] + at);
            acc = tt_pack_add(f, acc, one, tt_pass_is_raw(pass, s));
        }
        const word result = tt_pack_end(f, acc).words[0];
#pragma unroll 1
        for (uint32_t t = 0; t < pass->ntargets; t++)
            tt_pass_store_one<SIZE>(pass->targets[t] + at, result);
    }
}

template <class F> struct tt_pass_fold {
    static __device__ __noinline__ void run(const tt_fold *fold, const tt_pass *pass,
                                            tt_pass_parts parts)
    {
        __builtin_assume(__isShared(fold));
        __builtin_assume(__isShared(pass));
        typedef typename F::word word;
        typedef typename tt_pass_unit<word>::type unit;
        const F f(*fold);
        const bool middle = parts.unit == 16 || (F::OFTEN && !F::SCALES && parts.unit);
        const size_t end =
            middle ? parts.nbytes - ((parts.nbytes - parts.head) & (parts.unit - 1)) : parts.head;
        if (parts.unit == 16)
            tt_pass_wide<F, unit>(f, pass, parts.head, end);
        else if (F::OFTEN && !F::SCALES && parts.unit)
            tt_pass_middle<1, false, F, word, 4>(f, pass, parts.head, end);
        tt_pass_ends(f, pass, parts.head, end, parts.nbytes);
    }
};

/* ---- Copies --------------------------------------------------------------------------------- */

/* What is copied. thread: which part of it the calling thread takes, of a block's parts: that of
 * the thread of this number. */
struct tt_copying {
    const char *source;
    char *const *targets; /* in shared memory */
    uint32_t ntargets, thread;
};

enum { TT_COPY_UNROLL = 8 };

/* Copies UNROLL units of a thread; not to a target that is the source. */
template <class UNIT, int UNROLL>
static __device__ inline void tt_pass_copy_some(const tt_copying &copying, size_t at)
{
    UNIT all[UNROLL];
    const UNIT *from = tt_source<UNIT>(copying.source, at);
#pragma unroll
    for (int u = 0; u < UNROLL; u++) all[u] = from[u * TT_WARP];
#pragma unroll 1
    for (uint32_t t = 0; t < copying.ntargets; t++) {
        char *target = copying.targets[t];
        UNIT *to = tt_target_of<UNIT>(target, at);
        if (target == copying.source) continue;
#pragma unroll
        for (int u = 0; u < UNROLL; u++) to[u * TT_WARP] = all[u];
    }
}

/* Copies bytes [at, end) by UNITs. */
template <class UNIT, int UNROLL>
static __device__ inline void tt_pass_copy_units(const tt_copying &copying, size_t at, size_t end)
{
    const size_t stride = blockDim.x * (UNROLL * sizeof(UNIT));
    const size_t whole = tt_pass_whole<UNIT, UNROLL>(at, end);
#pragma unroll 1
    for (size_t i = at + tt_pass_first<UNIT, UNROLL>(copying.thread); i < whole; i += stride)
        tt_pass_copy_some<UNIT, UNROLL>(copying, i);
#pragma unroll 1
    for (at = whole + copying.thread * sizeof(UNIT); at < end; at += blockDim.x * sizeof(UNIT))
        tt_pass_copy_some<UNIT, 1>(copying, at);
}

static __device__ __noinline__ void tt_pass_copy(tt_copying copying, tt_pass_parts parts)
{
    __builtin_assume(__isShared(copying.targets));
    const size_t end = parts.nbytes - ((parts.nbytes - parts.head) & (parts.unit - 1));
    if (parts.unit == 16)
        tt_pass_copy_units<uint4, TT_COPY_UNROLL>(copying, parts.head, end);
    else if (parts.unit == 8)
        tt_pass_copy_units<uint2, TT_COPY_UNROLL>(copying, parts.head, end);
    else if (parts.unit == 4)
        tt_pass_copy_units<uint32_t, TT_COPY_UNROLL>(copying, parts.head, end);
    else if (parts.unit == 2)
        tt_pass_copy_units<uint16_t, TT_COPY_UNROLL>(copying, parts.head, end);
    else
        tt_pass_copy_units<uint8_t, TT_COPY_UNROLL>(copying, 0, parts.nbytes);
    if (parts.unit == 1) return;
    tt_pass_copy_units<uint8_t, 1>(copying, 0, parts.head);
    tt_pass_copy_units<uint8_t, 1>(copying, end, parts.nbytes);
}

/* ---- A pass --------------------------------------------------------------------------------- */

/* The low bits in which the addresses of the pass differ. */
static __device__ inline uint32_t tt_pass_difference(const tt_pass *pass)
{
    const uint32_t first = (uint32_t)(uintptr_t)pass->targets[0];
    uint32_t difference = 0;
    for (uint32_t s = 0; s < pass->nsources; s++)
        difference |= (uint32_t)(uintptr_t)pass->sources[s] ^ first;
    for (uint32_t t = 1; t < pass->ntargets; t++)
        difference |= (uint32_t)(uintptr_t)pass->targets[t] ^ first;
    return difference;
}

/* How addresses that differ in these low bits, of which `first` is one, are copied. */
static __device__ inline tt_pass_parts tt_copy_parts(size_t nbytes, uint32_t first,
                                                     uint32_t difference)
{
    tt_pass_parts parts = {nbytes, 0, 16};
    if (difference % 16) parts.unit = difference & (0 - difference) & 15;
    parts.head = (0 - first) & (parts.unit - 1);
    if (parts.head > nbytes) parts.head = (uint32_t)nbytes;
    return parts;
}

/* Copies nbytes from one address to another; to: in shared memory. thread: as in tt_copying. */
static __device__ inline void tt_copy_bytes(const char *from, char *const *to, size_t nbytes,
                                            uint32_t thread)
{
    const uint32_t first = (uint32_t)(uintptr_t)*to;
    tt_pass_copy({from, to, 1, thread},
                 tt_copy_parts(nbytes, first, (uint32_t)(uintptr_t)from ^ first));
}

/* Folds, or copies. Called by all threads of the block with the same values. No thread waits for
 * another: the caller orders the accesses before and after. */
static __device__ __noinline__ void tt_fold_pass(const tt_fold *fold, const tt_pass *pass)
{
    __builtin_assume(__isShared(fold));
    __builtin_assume(__isShared(pass));
    if (!pass->nsources || !pass->ntargets) return;
    const uint32_t op = tt_fold_op_of_pass(fold, pass->changes, pass->nsources);
    const bool copies = pass->nsources == 1 && !tt_fold_changes_single(op);
    const uint32_t difference = tt_pass_difference(pass);
    const uint32_t first = (uint32_t)(uintptr_t)pass->targets[0];
    const size_t nbytes = pass->count * fold->element;
    if (copies)
        return tt_pass_copy({pass->sources[0], pass->targets, pass->ntargets, threadIdx.x},
                            tt_copy_parts(nbytes, first, difference));
    const uint32_t size = tt_fold_is_bitwise(op) ? 1 : fold->element, word = size == 8 ? 8 : 4;
    tt_pass_parts parts = {nbytes, 0, 16};
    if (difference % 16) parts.unit = difference & (word - 1) ? 0 : word;
    if (parts.unit) parts.head = (0 - first) & (parts.unit - 1);
    if (parts.head & (size - 1)) parts.unit = parts.head = 0;
    if (parts.head > parts.nbytes) parts.head = (uint32_t)parts.nbytes;
    tt_fold_choose<tt_pass_fold>(fold, op, pass, parts);
}

#endif
