/* Adding, copying and clearing: whole tensors, and rows that lie apart. */
#include "simd.h"
#include "table.h"

void TR_OP(add)(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; ++i) y[i] += x[i];
}

static void run(void *arg)
{
    const struct tr_addition *a = arg;
    TR_OP(add)(a->y, a->x, a->n);
}

tuttiResult_t TR_OP(add_on)(tuttiStream_t stream, const struct tr_addition *addition)
{
    return tuttiStreamLaunch(stream, run, (void *)(uintptr_t)addition);
}

void TR_OP(add_residual)(float *y, const float *residual, const float *b, long rows, long n)
{
    for (long row = 0; row < rows; ++row, y += n, residual += n)
        for (long i = 0; i < n; ++i) y[i] += residual[i] + (b ? b[i] : 0);
}

void TR_OP(copy_rows)(float *to, long to_stride, const float *from, long from_stride, long rows,
                      long width)
{
    for (long row = 0; row < rows; ++row)
        memcpy(to + row * to_stride, from + row * from_stride, (size_t)width * sizeof *to);
}

void TR_OP(add_rows)(float *to, long to_stride, const float *from, long from_stride, long rows,
                     long width)
{
    for (long row = 0; row < rows; ++row)
        TR_OP(add)(to + row * to_stride, from + row * from_stride, (size_t)width);
}

void TR_OP(clear_rows)(float *x, long stride, long rows, long width)
{
    for (long row = 0; row < rows; ++row) memset(x + row * stride, 0, (size_t)width * sizeof *x);
}
