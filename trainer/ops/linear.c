/* A linear layer, forward and backward: products, bias and residual. */
#include "simd.h"
#include "table.h"

void TR_OP(linear_forward)(float *y, const float *x, const float *w, const float *b,
                           const float *residual, long rows, long in, long out)
{
    /* What is added goes in first and the product on top: one pass over y less. */
    for (long row = 0; row < rows; ++row) {
        float *to = y + row * out;
        if (residual && b)
            for (long i = 0; i < out; ++i) to[i] = residual[row * out + i] + b[i];
        else if (b)
            memcpy(to, b, (size_t)out * sizeof *to);
        else if (residual)
            memcpy(to, residual + row * out, (size_t)out * sizeof *to);
    }
    tr_gemm('N', 'T', rows, out, in, 1, x, in, w, in, b || residual ? 1 : 0, y, out);
}

void TR_OP(linear_backward)(float *dx, float *dw, float *db, const float *dy, const float *x,
                            const float *w, long rows, long in, long out)
{
    if (dx) tr_gemm('N', 'N', rows, in, out, 1, dy, out, w, in, 0, dx, in);
    if (dw) tr_gemm('T', 'N', out, in, rows, 1, dy, out, x, in, 1, dw, in);
    if (!db) return;
    for (long row = 0; row < rows; ++row)
        for (long i = 0; i < out; ++i) db[i] += dy[row * out + i];
}
