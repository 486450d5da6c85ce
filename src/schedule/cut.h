/* Cutting elements into balanced parts. Compiles as C17, C++17 and CUDA; finding a part takes no
 * division. */
#ifndef TT_SCHEDULE_CUT_H
#define TT_SCHEDULE_CUT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define TT_INLINE static __host__ __device__ inline
#else
#define TT_INLINE static inline
#endif

/* The first `longer` of `nparts` parts have least + 1 units, the others have `least`, and the last
 * part ends where the elements end. Plain data. */
struct tt_cut {
    size_t length; /* elements of all parts */
    size_t unit;   /* elements; bounds of parts are multiples of it */
    size_t least;
    uint32_t longer, nparts;
};

/* Cuts `length` elements into nparts >= 1 parts. Bounds are multiples of `align` >= 1. Where that
 * leaves a part without a unit, `align` is halved until every part has one. */
TT_INLINE struct tt_cut tt_cut_make(size_t length, size_t align, uint32_t nparts)
{
    struct tt_cut cut;
    while (align > 1 && length / align < nparts) align /= 2;
    cut.length = length;
    cut.unit = align;
    cut.least = length / align / nparts;
    cut.longer = (uint32_t)(length / align % nparts);
    cut.nparts = nparts;
    return cut;
}

/* Returns the number of elements of part `index`; *begin is its first element. */
TT_INLINE size_t tt_cut_part(const struct tt_cut *cut, uint32_t index, size_t *begin)
{
    const uint32_t before = index < cut->longer ? index : cut->longer;
    *begin = cut->unit * (index * cut->least + before);
    if (index + 1 == cut->nparts) return cut->length - *begin;
    return cut->unit * (cut->least + (index < cut->longer ? 1 : 0));
}

#endif
