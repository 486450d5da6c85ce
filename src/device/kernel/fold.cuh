/* Folds in kernels: every type and operation of datatype/datatype.h with the bits of the host's
 * tt_reduce.
 *
 * A fold is a class F that works on words, registers that hold one or more elements:
 *   F::word, F::SIZE          uint32_t or uint64_t; bytes of an element of the word
 *   F(fold)                   the call's constants: scalar, divisor
 *   F::acc begin(word)        the first source
 *   F::acc add(acc, word)     the next one
 *   F::word end(acc)          the result
 *   F::SCALES, word scale(word)   whether raw sources are changed; a word of one, as it is folded
 *   F::HEAVY                  whether it takes many registers, and does not often run
 *   F::CALLS                  whether scale is long, and no part of the code around it
 *   F::OFTEN                  a sum, or an average of floats, but of fp8, as most passes are: worth
 *                             more code. If it calls too: bool divides(), whether raw sources are
 *                             divided, and word multiply(word), which is scale if they are not
 * Types and operations whose results have the same bits share a class: all bitwise ones
 * SIZE 1. tt_fold_choose calls a template with the class of a type and operation. Which operation a
 * pass is depends on its changes: tt_fold_op_of_pass says it first. */
#ifndef TT_DEVICE_KERNEL_FOLD_CUH
#define TT_DEVICE_KERNEL_FOLD_CUH

#include <stdint.h>

#include "datatype/datatype.h"
#include "device/kernel/fold.h"
#include "device/kernel/fold_float.cuh"
#include "device/kernel/fold_integer.cuh"

/* The bytes of a scalar in memory of any alignment, as struct tt_fold has them. */
static __device__ inline uint64_t tt_fold_load_scalar(const void *scalar, uint32_t element)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < element; i++) all |= (uint64_t)((const uint8_t *)scalar)[i] << (8 * i);
    return all;
}

/* The operation that a pass of so many sources with these changes is. */
static __device__ inline uint32_t tt_fold_op_of_pass(const tt_fold *fold, tt_fold_changes changes,
                                                     uint32_t nsources)
{
    const bool integer = fold->type < TT_FLOAT16 || fold->type >= TT_INT16;
    if (fold->op == TT_PREMUL_SUM) return changes.raw ? TT_PREMUL_SUM : TT_SUM;
    if (fold->op != TT_AVG) return fold->op;
    if (fold->nranks == 1) return TT_SUM;
    if (integer) return changes.finish ? TT_AVG : TT_SUM;
    return changes.raw || nsources > 1 ? TT_AVG : TT_SUM;
}

/* Whether a pass of one source is more than a copy; op: of the pass. */
static __device__ inline bool tt_fold_changes_single(uint32_t op)
{
    return op == TT_AVG || op == TT_PREMUL_SUM || op >= TT_LOGICAL_AND;
}

static __device__ inline bool tt_fold_is_bitwise(uint32_t op)
{
    return op >= TT_BIT_AND && op <= TT_BIT_XOR;
}

/* Calls BODY<F>::run(fold, more...) with the class of the type and operation; op: of the pass. Let
 * run be a __noinline__ function: there are 87 of each BODY. */
template <template <class> class BODY, class... MORE>
static __device__ inline void tt_fold_choose(const tt_fold *fold, uint32_t op, MORE... more)
{
    switch (fold->type * TT_NOPS + op) {
#define X(type, op, kernel)                                                                        \
    case TT_##type *TT_NOPS + TT_##op:                                                             \
        return BODY<tt_fold_##kernel>::run(fold, more...);
#include "datatype/kernel_table.h"
#undef X
    default:
        return;
    }
}

/* ---- Several words at once: a line's 8 bytes, an access of 16 ------------------------------- */

template <class F, int NBYTES> struct tt_pack {
    enum { N = NBYTES / (int)sizeof(typename F::word) };
    typename F::word words[N];
};

template <class F, int NBYTES> struct tt_pack_acc {
    typename F::acc accs[tt_pack<F, NBYTES>::N];
};

template <class F, int NBYTES>
static __device__ inline tt_pack<F, NBYTES> tt_pack_end(const F &f, tt_pack_acc<F, NBYTES> acc)
{
    tt_pack<F, NBYTES> out;
#pragma unroll
    for (int i = 0; i < tt_pack<F, NBYTES>::N; i++) out.words[i] = f.end(acc.accs[i]);
    return out;
}

/* A function of its own: in the middle of a fold it would need too many registers. */
template <class F>
static __device__ __noinline__ typename F::word tt_scaled_word(F f, typename F::word a)
{
    return f.scale(a);
}

template <class F, int NBYTES>
static __device__ inline void tt_pack_scale(const F &f, tt_pack<F, NBYTES> &a, bool raw)
{
    if constexpr (F::SCALES) {
        if (!raw) return;
#pragma unroll
        for (int i = 0; i < tt_pack<F, NBYTES>::N; i++) {
            if constexpr (F::CALLS)
                a.words[i] = tt_scaled_word(f, a.words[i]);
            else
                a.words[i] = f.scale(a.words[i]);
        }
    }
}

/* An average that divides no source. */
template <class F> struct tt_multiplied : F {
    enum { CALLS = 0 };
    __device__ tt_multiplied(const F &f) : F(f) {}
    __device__ typename F::word scale(typename F::word a) const
    {
        return F::multiply(a);
    }
};

/* The first source. */
template <class F, int NBYTES>
static __device__ inline tt_pack_acc<F, NBYTES> tt_pack_begin(const F &f, tt_pack<F, NBYTES> a,
                                                              bool raw)
{
    tt_pack_acc<F, NBYTES> out;
    tt_pack_scale(f, a, raw);
#pragma unroll
    for (int i = 0; i < tt_pack<F, NBYTES>::N; i++) out.accs[i] = f.begin(a.words[i]);
    return out;
}

/* A source that is not the first. */
template <class F, int NBYTES>
static __device__ inline tt_pack_acc<F, NBYTES> tt_pack_add(const F &f, tt_pack_acc<F, NBYTES> acc,
                                                            tt_pack<F, NBYTES> a, bool raw)
{
    tt_pack_scale(f, a, raw);
#pragma unroll
    for (int i = 0; i < tt_pack<F, NBYTES>::N; i++) acc.accs[i] = f.add(acc.accs[i], a.words[i]);
    return acc;
}

/* ---- Lines ---------------------------------------------------------------------------------- */

/* The 8 bytes of a line as a pack, and back. */
template <class F> static __device__ inline tt_pack<F, 8> tt_pack_of(uint64_t data)
{
    tt_pack<F, 8> out;
    out.words[0] = (typename F::word)data;
    if (tt_pack<F, 8>::N == 2) out.words[tt_pack<F, 8>::N - 1] = (typename F::word)(data >> 32);
    return out;
}

template <class F> static __device__ inline uint64_t tt_pack_bits(tt_pack<F, 8> a)
{
    if (tt_pack<F, 8>::N == 1) return a.words[0];
    return (uint64_t)a.words[tt_pack<F, 8>::N - 1] << 32 | a.words[0];
}

template <class F> struct tt_line_words {
    static __device__ __noinline__ void run(const tt_fold *fold, const uint64_t *words,
                                            uint32_t nwords, int32_t raw, uint64_t *result)
    {
        const F f(*fold);
        tt_pack_acc<F, 8> acc = tt_pack_begin(f, tt_pack_of<F>(words[0]), raw == 0);
#pragma unroll 1
        for (uint32_t s = 1; s < nwords; s++)
            acc = tt_pack_add(f, acc, tt_pack_of<F>(words[s]), raw == (int32_t)s);
        *result = tt_pack_bits<F>(tt_pack_end(f, acc));
    }
};

static __device__ __noinline__ uint64_t tt_fold_words(const tt_fold *fold, uint32_t op,
                                                      const uint64_t *words, uint32_t nwords,
                                                      int32_t raw)
{
    __builtin_assume(__isShared(fold));
    uint64_t result = 0;
    tt_fold_choose<tt_line_words>(fold, op, words, nwords, raw, &result);
    return result;
}

/* One thread: folds the 8 bytes of elements of a line of each source; nwords >= 1. raw: the source
 * that is, -1: none. finish: the result is complete. */
static __device__ inline uint64_t tt_fold_line(const tt_fold *fold, const uint64_t *words,
                                               uint32_t nwords, int32_t raw, bool finish)
{
    const uint32_t op = tt_fold_op_of_pass(fold, {raw >= 0, finish}, nwords);
    if (nwords == 1 && !tt_fold_changes_single(op)) return words[0];
    return tt_fold_words(fold, op, words, nwords, raw);
}

#endif
