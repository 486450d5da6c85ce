/* SwiGLU: silu(gate) * up with silu(x) = x / (1 + exp(-x)), forward and backward. */
#include "pool.h"
#include "simd.h"
#include "table.h"

struct forward {
    float *y;
    const float *gate, *up;
    long n;
};

static void forward_piece(const void *arg, long index)
{
    const struct forward *f = arg;
    const struct tr_range part = tr_range_at(f->n, TR_PIECE_FLOATS, index);
    float *y = f->y + part.first;
    const float *gate = f->gate + part.first, *up = f->up + part.first;
    for (long i = 0; i < part.n; i += LANES) {
        const lanes g = load_at(gate, i, part.n);
        store_at(y, i, part.n, g * sigmoid_lanes(g) * load_at(up, i, part.n));
    }
}

void TR_OP(swiglu_forward)(float *y, const float *gate, const float *up, long n)
{
    const struct forward f = {y, gate, up, n};
    tr_pool_run(forward_piece, &f, tr_ranges(n, TR_PIECE_FLOATS));
}

struct backward {
    float *dgate, *dup;
    const float *dy, *gate, *up;
    long n;
};

static void backward_piece(const void *arg, long index)
{
    const struct backward *b = arg;
    const struct tr_range part = tr_range_at(b->n, TR_PIECE_FLOATS, index);
    float *dgate = b->dgate + part.first, *dup = b->dup + part.first;
    const float *dy = b->dy + part.first, *gate = b->gate + part.first, *up = b->up + part.first;
    for (long i = 0; i < part.n; i += LANES) {
        const lanes g = load_at(gate, i, part.n), s = sigmoid_lanes(g), d = load_at(dy, i, part.n);
        const lanes slope = s * (splat(1) + g * (splat(1) - s));
        store_at(dgate, i, part.n, d * load_at(up, i, part.n) * slope);
        store_at(dup, i, part.n, d * g * s);
    }
}

void TR_OP(swiglu_backward)(float *dgate, float *dup, const float *dy, const float *gate,
                            const float *up, long n)
{
    const struct backward b = {dgate, dup, dy, gate, up, n};
    tr_pool_run(backward_piece, &b, tr_ranges(n, TR_PIECE_FLOATS));
}
