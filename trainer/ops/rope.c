/* Rotary position embedding (Su et al., RoFormer, 2021): turns the pair of elements i and
 * i + size/2 of a head by the angle position * theta^(-2i/size). The backward pass turns back. */
#include "pool.h"
#include "simd.h"
#include "table.h"

#include <math.h>

typedef double wide __attribute__((vector_size(LANES * sizeof(double))));
typedef int64_t wide_int __attribute__((vector_size(LANES * sizeof(int64_t))));

struct turn {
    lanes cosine, sine;
};

/* The cosine and sine of an angle: what is left of the angle after the nearest multiple of pi/2,
 * taken in double so that large positions lose nothing, goes into polynomials (the Taylor series,
 * whose first missing term is below 3e-9 for |r| <= pi/4); the quadrant swaps them and sets the
 * signs. */
INLINE struct turn turn_of(wide angle)
{
    const double magic = 6755399441055744.; /* 1.5 * 2^52: adding it rounds to a whole number */
    const wide shifted = angle * 0.63661977236758134308 + magic;
    const wide rest = angle - (shifted - magic) * 1.57079632679489661923;
    const lanes_int quadrant = __builtin_convertvector((wide_int)shifted & 3, lanes_int);
    const lanes r = __builtin_convertvector(rest, lanes), square = r * r;
    lanes s = splat(1.f / 362880) * square - splat(1.f / 5040);
    s = s * square + splat(1.f / 120);
    s = s * square - splat(1.f / 6);
    s = s * square * r + r;
    lanes c = splat(1.f / 40320) * square - splat(1.f / 720);
    c = c * square + splat(1.f / 24);
    c = c * square - splat(0.5f);
    c = c * square + splat(1);
    const lanes_int swap = (quadrant & 1) != 0;
    const lanes cosine = choose(swap, s, c), sine = choose(swap, c, s);
    const lanes_int low = ((quadrant + 1) & 2) != 0, left = (quadrant & 2) != 0;
    return (struct turn){.cosine = choose(low, -cosine, cosine), .sine = choose(left, -sine, sine)};
}

/* Turns up to 16 pairs of one head: a[0 .. n-1] with b[0 .. n-1]. */
INLINE void turn_pairs(float *a, float *b, long n, const struct turn *turn)
{
    if (n == LANES) {
        const lanes x = load(a), y = load(b);
        store(a, x * turn->cosine - y * turn->sine);
        store(b, x * turn->sine + y * turn->cosine);
        return;
    }
    for (long j = 0; j < n; ++j) {
        const float x = a[j], y = b[j];
        a[j] = x * turn->cosine[j] - y * turn->sine[j];
        b[j] = x * turn->sine[j] + y * turn->cosine[j];
    }
}

struct call {
    float *x;
    const int32_t *positions;
    long rows, heads, size, stride;
    double theta;
    int direction;
};

/* Rows of a piece: the powers of theta are worked out once for them. */
enum { ROWS = 128 };

static void piece(const void *arg, long index)
{
    const struct call *c = arg;
    const struct tr_range part = tr_range_at(c->rows, ROWS, index);
    const long pairs = c->size / 2;
    for (long i = 0; i < pairs; i += LANES) {
        const long n = pairs - i < LANES ? pairs - i : LANES;
        wide frequency;
        for (long j = 0; j < LANES; ++j)
            frequency[j] = c->direction * pow(c->theta, -2. * (double)(i + j) / (double)c->size);
        for (long row = part.first; row < part.first + part.n; ++row) {
            const struct turn turn = turn_of(frequency * (double)c->positions[row]);
            for (long head = 0; head < c->heads; ++head) {
                float *at = c->x + row * c->stride + head * c->size + i;
                turn_pairs(at, at + pairs, n, &turn);
            }
        }
    }
}

void TR_OP(rope)(float *x, const int32_t *positions, long rows, long heads, long size, long stride,
                 double theta, int direction)
{
    const struct call call = {x, positions, rows, heads, size, stride, theta, direction};
    tr_pool_run(piece, &call, tr_ranges(rows, ROWS));
}
