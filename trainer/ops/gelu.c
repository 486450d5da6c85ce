/* GELU by its tanh approximation, forward and backward. */
#include "pool.h"
#include "simd.h"
#include "table.h"

static const float root = 0.7978845608f; /* sqrt(2 / pi) */
static const float cubic = 0.044715f;

/* tanh(u) = 1 - 2 / (exp(2u) + 1): absolute error below 3e-7. */
INLINE lanes tanh_lanes(lanes u)
{
    return splat(1) - splat(2) / (exp_lanes(u + u) + splat(1));
}

INLINE lanes forward(lanes x)
{
    const lanes u = splat(root) * (x + splat(cubic) * x * x * x);
    return splat(0.5f) * x * (splat(1) + tanh_lanes(u));
}

INLINE lanes derivative(lanes x)
{
    const lanes u = splat(root) * (x + splat(cubic) * x * x * x), t = tanh_lanes(u);
    const lanes du = splat(root) * (splat(1) + splat(3 * cubic) * x * x);
    return splat(0.5f) * (splat(1) + t) + splat(0.5f) * x * (splat(1) - t * t) * du;
}

/* One call: y = forward(x), or y = dy * derivative(x). */
struct call {
    float *y;
    const float *dy, *x;
    long n;
};

static void forward_piece(const void *arg, long index)
{
    const struct call *c = arg;
    const struct tr_range part = tr_range_at(c->n, TR_PIECE_FLOATS, index);
    float *y = c->y + part.first;
    const float *x = c->x + part.first;
    long i = 0;
    for (; i + LANES <= part.n; i += LANES) store(y + i, forward(load(x + i)));
    if (i < part.n) store_part(y + i, forward(load_part(x + i, part.n - i, 0)), part.n - i);
}

static void backward_piece(const void *arg, long index)
{
    const struct call *c = arg;
    const struct tr_range part = tr_range_at(c->n, TR_PIECE_FLOATS, index);
    float *dx = c->y + part.first;
    const float *dy = c->dy + part.first, *x = c->x + part.first;
    long i = 0;
    for (; i + LANES <= part.n; i += LANES) store(dx + i, load(dy + i) * derivative(load(x + i)));
    if (i == part.n) return;
    const lanes d = load_part(dy + i, part.n - i, 0) * derivative(load_part(x + i, part.n - i, 0));
    store_part(dx + i, d, part.n - i);
}

void TR_OP(gelu_forward)(float *y, const float *x, long n)
{
    const struct call call = {.y = y, .x = x, .n = n};
    tr_pool_run(forward_piece, &call, tr_ranges(n, TR_PIECE_FLOATS));
}

void TR_OP(gelu_backward)(float *dx, const float *dy, const float *x, long n)
{
    const struct call call = {.y = dx, .dy = dy, .x = x, .n = n};
    tr_pool_run(backward_piece, &call, tr_ranges(n, TR_PIECE_FLOATS));
}

void TR_OP(exponential)(float *y, const float *x, long n)
{
    long i = 0;
    for (; i + LANES <= n; i += LANES) store(y + i, exp_lanes(load(x + i)));
    if (i < n) store_part(y + i, exp_lanes(load_part(x + i, n - i, 0)), n - i);
}
