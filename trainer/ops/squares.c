/* The sum of squares, for the norm of the gradient: rounded within fixed blocks, exact over these.
 *
 * An exact sum is TR_SUM_DIGITS numbers to the base 2^32, the lowest counting 2^-384, each a double
 * that holds an integer. The square of a float is a multiple of 2^-298 and below 2^256, and so is a
 * sum of squares in double, but for what it rounds away. Digits below 2^32 of up to 2^21 ranks add
 * up without rounding, so the sum has the same bits whoever adds which blocks, in whatever order.
 */
#include "pool.h"
#include "simd.h"
#include "table.h"

#include <assert.h>
#include <math.h>

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

/* out[ceil(n / TR_SQUARES_BLOCK)] = the blocks' sums */
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

enum { LOWEST = TR_SUM_LOWEST, MANTISSA = 53, LAST = TR_SUM_DIGITS - 1 };

/* Adds a number that is finite and not negative. */
static void add_number(uint64_t *digits, double number)
{
    int exponent;
    const uint64_t whole = (uint64_t)ldexp(frexp(number, &exponent), MANTISSA);
    if (!whole) return;
    const int at = exponent - MANTISSA - LOWEST; /* place of the lowest bit of `whole` */
    const int digit = at / 32;
    const unsigned __int128 shifted = (unsigned __int128)whole << at % 32;
    digits[digit] += (uint32_t)shifted;
    digits[digit + 1] += (uint32_t)(shifted >> 32);
    digits[digit + 2] += (uint32_t)(shifted >> 64);
}

/* Makes each digit but the last smaller than 2^32. */
static void carry_over(uint64_t *digits)
{
    for (int d = 0; d < LAST; ++d) {
        digits[d + 1] += digits[d] >> 32;
        digits[d] = (uint32_t)digits[d];
    }
}

/* Sums that are not finite go to the last digit alone, where they stay. */
static void add_numbers(double *sum, const double *numbers, size_t n)
{
    uint64_t digits[TR_SUM_DIGITS];
    double odd = isfinite(sum[LAST]) ? 0 : sum[LAST];
    for (int d = 0; d < TR_SUM_DIGITS; ++d) digits[d] = isfinite(sum[d]) ? (uint64_t)sum[d] : 0;
    for (size_t i = 0; i < n; ++i) {
        if (isfinite(numbers[i]))
            add_number(digits, numbers[i]);
        else
            odd += numbers[i];
    }
    carry_over(digits);
    for (int d = 0; d < TR_SUM_DIGITS; ++d) sum[d] = (double)digits[d];
    sum[LAST] += odd;
}

void TR_OP(add_squares)(double sum[TR_SUM_DIGITS], const float *x, size_t n)
{
    enum { BLOCKS = 2048, FLOATS = BLOCKS * TR_SQUARES_BLOCK };
    double blocks[BLOCKS];
    for (size_t at = 0; at < n; at += FLOATS) {
        const struct call call = {blocks, x + at, n - at < FLOATS ? n - at : FLOATS};
        tr_pool_run(piece, &call, tr_ranges((long)call.n, TR_PIECE_FLOATS));
        add_numbers(sum, blocks, (call.n + TR_SQUARES_BLOCK - 1) / TR_SQUARES_BLOCK);
    }
}
