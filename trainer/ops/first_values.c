/* The first values of a tensor: normal numbers by Box and Muller, each from Philox's four words at
 * its own counter.
 *
 * Logarithm, sine and cosine are polynomials in double. Each operation is rounded by itself
 * (CMakeLists.txt compiles this file with -ffp-contract=off), so every build gives the same bits.
 * Before the last rounding, to float, a number is off by some 1e-15 of the radius. */
#include "pool.h"
#include "simd.h"
#include "table.h"

#include <math.h>

#include "../random.h"

enum { NUMBERS = 8 }; /* at a time */
typedef double doubles __attribute__((vector_size(64)));
typedef int64_t longs __attribute__((vector_size(64)));
typedef uint64_t words __attribute__((vector_size(64))); /* of 32 bits, in lanes of 64 */

static const uint64_t WORD = 0xffffffffu;

INLINE doubles all(double x)
{
    return (doubles){x, x, x, x, x, x, x, x};
}

INLINE doubles where(longs condition, doubles yes, doubles no)
{
    return (doubles)((condition & (longs)yes) | (~condition & (longs)no));
}

/* tr_random_words for the counters first .. first + 7. */
INLINE void draw_words(const struct tr_first_values *v, uint64_t first, words c[4])
{
    uint64_t key[2] = {v->seed & WORD, v->seed >> 32};
    const words counter = first + (words){0, 1, 2, 3, 4, 5, 6, 7}, none = {0};
    c[0] = counter & WORD;
    c[1] = counter >> 32;
    c[2] = none + v->stream;
    c[3] = none + (uint64_t)TR_RANDOM_WEIGHTS;
    for (int round = 0; round < 10; ++round) {
        const words p0 = c[0] * 0xD2511F53u, p1 = c[2] * 0xCD9E8D57u;
        const words second = c[1], fourth = c[3];
        c[0] = p1 >> 32 ^ second ^ key[0];
        c[1] = p1 & WORD;
        c[2] = p0 >> 32 ^ fourth ^ key[1];
        c[3] = p0 & WORD;
        key[0] = (key[0] + 0x9E3779B9u) & WORD;
        key[1] = (key[1] + 0xBB67AE85u) & WORD;
    }
}

/* An integer below 2^52 as a double: the bits of 2^52 + x, less 2^52. */
INLINE doubles from_integer(words x)
{
    return (doubles)(x | 0x4330000000000000u) - 0x1p52;
}

/* 53 bits of two words, in [0, 1). */
INLINE doubles unit(words high, words low)
{
    return from_integer(high) * 0x1p-32 + from_integer(low >> 11) * 0x1p-53;
}

/* The natural logarithm of x, which is normal and positive: x = 2^k m with m between the roots of
 * 1/2 and 2, and log m = 2 atanh s with s = (m - 1) / (m + 1), at most 0.172. */
INLINE doubles logarithm(doubles x)
{
    const longs root = (longs)all(0x1.6a09e667f3bcdp-1);
    const longs k = ((longs)x - root) >> 52;
    const doubles m = (doubles)((longs)x - (k << 52));
    const doubles exponent = (doubles)(k + 0x4338000000000000) - 0x1.8p52;
    const doubles s = (m - 1) / (m + 1), z = s * s;
    doubles series = all(1.0 / 21);
    for (int odd = 19; odd > 1; odd -= 2) series = series * z + 1.0 / odd;
    return exponent * 0x1.62e42fefa39efp-1 + (2 * s + 2 * s * z * series);
}

/* cos(2 pi x) for x in [0, 1): by quarters of the circle, to the nearest of which the angle is at
 * most pi/4. */
INLINE doubles cosine(doubles x)
{
    const doubles quarters = 4 * x, nearest = quarters + 0x1.8p52;
    const doubles angle = (quarters - (nearest - 0x1.8p52)) * 0x1.921fb54442d18p0;
    const doubles square = angle * angle;
    doubles sine = all(1), cosine = all(1);
    for (int i = 16; i > 0; i -= 2) {
        cosine = 1 - cosine * (square * (1.0 / (i * (i - 1))));
        sine = 1 - sine * (square * (1.0 / (i * (i + 1))));
    }
    sine *= angle;
    const longs quarter = (longs)nearest & 3;
    const doubles size = where((quarter & 1) != 0, sine, cosine);
    return where(((quarter + 1) & 2) != 0, -size, size);
}

INLINE doubles root(doubles x)
{
    double values[NUMBERS];
    memcpy(values, &x, sizeof x);
    for (int i = 0; i < NUMBERS; ++i) values[i] = sqrt(values[i]);
    memcpy(&x, values, sizeof x);
    return x;
}

struct call {
    float *x;
    size_t n;
    const struct tr_first_values *values;
    uint64_t first;
};

static void piece(const void *arg, long index)
{
    const struct call *c = arg;
    const struct tr_first_values *v = c->values;
    const struct tr_range part = tr_range_at((long)c->n, TR_PIECE_FLOATS, index);
    for (long i = 0; i < part.n; i += NUMBERS) {
        doubles noise = all(0);
        if (v->deviation != 0) {
            words w[4];
            draw_words(v, c->first + (uint64_t)(part.first + i), w);
            noise = root(-2 * logarithm(1 - unit(w[0], w[1]))) * cosine(unit(w[2], w[3]));
        }
        noise = v->mean + v->deviation * noise;
        for (long j = 0; j < NUMBERS && i + j < part.n; ++j)
            c->x[part.first + i + j] = (float)noise[j];
    }
}

void TR_OP(initialize)(float *x, size_t n, const struct tr_first_values *values, uint64_t first)
{
    const struct call call = {x, n, values, first};
    tr_pool_run(piece, &call, tr_ranges((long)n, TR_PIECE_FLOATS));
}
