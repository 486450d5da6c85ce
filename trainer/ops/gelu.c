/* GELU by its tanh approximation: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
#include "activate.h"

static const float root = 0.7978845608f; /* sqrt(2 / pi) */
static const float cubic = 0.044715f;

/* tanh(u) = 1 - 2 / (exp(2u) + 1): absolute error below 3e-7. */
INLINE lanes tanh_lanes(lanes u)
{
    return splat(1) - splat(2) / (exp_lanes(u + u) + splat(1));
}

INLINE lanes gelu(lanes x)
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

TR_ACTIVATION(gelu, gelu, derivative)

void TR_OP(exponential)(float *y, const float *x, long n)
{
    long i = 0;
    for (; i + LANES <= n; i += LANES) store(y + i, exp_lanes(load(x + i)));
    if (i < n) store_part(y + i, exp_lanes(load_part(x + i, n - i, 0)), n - i);
}
