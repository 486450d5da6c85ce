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

#include "block.cuh"
#include "flags.cuh"
#include "grid.cuh"
#include "addresses.cuh"
