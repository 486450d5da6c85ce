/* The kernels of one instruction set, and the list of sets. For this folder and its tests; other
 * code calls tt_reduce. */
#ifndef TT_DATATYPE_KERNELS_H
#define TT_DATATYPE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "datatype/datatype.h"

/* dst[i] = fold over s of the sources' element first + i, for i < count. AVG of integers always
 * divides; the caller takes the kernel of SUM where it must not. */
typedef void tt_fold_fn(void *dst, const struct tt_sources *sources, size_t first, size_t count,
                        const struct tt_reduction *reduction);

/* Folds two sources, to dst and other. */
typedef void tt_fold_to_two_fn(void *dst, void *other, const struct tt_sources *sources,
                               size_t first, size_t count, const struct tt_reduction *reduction);

static inline bool tt_source_is_raw(const struct tt_sources *sources, int s)
{
    return sources->raw && sources->raw[s];
}

struct tt_kernels {
    const char *name;
    /* NULL where the pair is not defined */
    tt_fold_fn *fold[TT_NTYPES][TT_NOPS];
    tt_fold_to_two_fn *fold_to_two[TT_NTYPES][TT_NOPS];
    void (*copy)(void *dst, const void *src, size_t nbytes);
    /* Copies past the caches; weakly ordered until fence(). */
    void (*stream)(void *dst, const void *src, size_t nbytes);
    void (*fence)(void);
};

extern const struct tt_kernels tt_kernels_scalar;
#if defined(__x86_64__)
extern const struct tt_kernels tt_kernels_avx2;
extern const struct tt_kernels tt_kernels_avx512;
#endif

/* The index-th set of this build, best last; NULL past the end. *runs: whether this CPU runs it. */
const struct tt_kernels *tt_kernels_get(int index, bool *runs);

/* The best set that this CPU runs and that is no better than `mask` ("scalar", "avx2", "avx512"; ""
 * is no mask). An unknown mask is logged at WARN and ignored. */
const struct tt_kernels *tt_kernels_choose(const char *mask);

/* The set in use: tt_kernels_choose with TUTTI_CPU, at the first call. */
const struct tt_kernels *tt_kernels_in_use(void);

/* Whether copies of REP_MOVSB_MIN_BYTES and more are one instruction of the CPU (rep movsb). Set
 * before the kernels in use are; else false. */
extern _Atomic bool tt_copies_by_rep_movsb;
enum { REP_MOVSB_MIN_BYTES = 1024 };

/* tt_reduce and tt_reduce_to with a given set. */
void tt_reduce_with(const struct tt_kernels *kernels, const struct tt_reduction *reduction,
                    void *dst, const void *const *src, int nsrc, size_t count, unsigned flags);
void tt_reduce_to_with(const struct tt_kernels *kernels, const struct tt_reduction *reduction,
                       const struct tt_target *targets, int ntargets,
                       const struct tt_sources *sources, size_t count, unsigned flags);

#endif
