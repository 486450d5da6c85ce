/* Sums of squares of fixed blocks, and the sum of these, for the norm of the gradient. */
#include "pool.h"
#include "simd.h"
#include "table.h"

#include <assert.h>

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

struct call {
    double *out;
    const float *x;
    size_t n;
};

static void piece(const void *arg, long index)
{
    static_assert(TR_PIECE_FLOATS % TR_SQUARES_BLOCK == 0, "whole blocks");
    const struct call *c = arg;
    const struct tr_range part = tr_range_at((long)c->n, TR_PIECE_FLOATS, index);
    const size_t end = (size_t)(part.first + part.n);
    for (size_t at = (size_t)part.first; at < end; at += TR_SQUARES_BLOCK)
        c->out[at / TR_SQUARES_BLOCK] =
            block_squares(c->x + at, end - at < TR_SQUARES_BLOCK ? end - at : TR_SQUARES_BLOCK);
}

void TR_OP(sum_of_squares_blocks)(double *out, const float *x, size_t n)
{
    const struct call call = {out, x, n};
    tr_pool_run(piece, &call, tr_ranges((long)n, TR_PIECE_FLOATS));
}

void TR_OP(sum)(double *out, const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += x[i];
    *out = sum;
}
