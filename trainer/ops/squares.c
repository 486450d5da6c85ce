/* Sums of squares of fixed blocks, and the sum of these, for the norm of the gradient. */
#include "simd.h"
#include "table.h"

enum { SUMS = 8, PART = 256 };

/* Squares of floats are exact in double, so each build gives the same bits. */
INLINE double part_squares(const float *x, size_t n)
{
    double sums[SUMS] = {0};
    size_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (size_t j = 0; j < SUMS; ++j) sums[j] += (double)x[i + j] * (double)x[i + j];
    for (size_t j = 0; i + j < n; ++j) sums[j] += (double)x[i + j] * (double)x[i + j];
    for (size_t step = SUMS / 2; step; step /= 2)
        for (size_t j = 0; j < step; ++j) sums[j] += sums[j + step];
    return sums[0];
}

/* The parts of a block, one after the other. */
INLINE double block_squares(const float *x, size_t n)
{
    double sum = 0;
    for (size_t at = 0; at < n; at += PART)
        sum += part_squares(x + at, n - at < PART ? n - at : PART);
    return sum;
}

void TR_OP(sum_of_squares_blocks)(double *out, const float *x, size_t n)
{
    const size_t whole = n / TR_SQUARES_BLOCK;
    for (size_t b = 0; b < whole; ++b)
        out[b] = block_squares(x + b * TR_SQUARES_BLOCK, TR_SQUARES_BLOCK);
    if (n % TR_SQUARES_BLOCK)
        out[whole] = block_squares(x + whole * TR_SQUARES_BLOCK, n % TR_SQUARES_BLOCK);
}

void TR_OP(sum)(double *out, const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += x[i];
    *out = sum;
}
