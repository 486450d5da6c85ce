/* Matrices whose rows lie apart: `width` floats of every `stride`. */
#ifndef TR_ROWS_H
#define TR_ROWS_H

#include <string.h>

/* to = from */
static inline void tr_rows_copy(float *to, long to_stride, const float *from, long from_stride,
                                long rows, long width)
{
    for (long row = 0; row < rows; ++row)
        memcpy(to + row * to_stride, from + row * from_stride, (size_t)width * sizeof *to);
}

/* to += from */
static inline void tr_rows_add(float *to, long to_stride, const float *from, long from_stride,
                               long rows, long width)
{
    for (long row = 0; row < rows; ++row, to += to_stride, from += from_stride)
        for (long i = 0; i < width; ++i) to[i] += from[i];
}

/* x = 0 */
static inline void tr_rows_clear(float *x, long stride, long rows, long width)
{
    for (long row = 0; row < rows; ++row) memset(x + row * stride, 0, (size_t)width * sizeof *x);
}

#endif
