/* SwiGLU: silu(gate) * up with silu(x) = x / (1 + exp(-x)), forward and backward. */
#include "simd.h"
#include "table.h"

void TR_OP(swiglu_forward)(float *y, const float *gate, const float *up, long n)
{
    for (long i = 0; i < n; i += LANES) {
        const lanes g = load_at(gate, i, n);
        store_at(y, i, n, g * sigmoid_lanes(g) * load_at(up, i, n));
    }
}

void TR_OP(swiglu_backward)(float *dgate, float *dup, const float *dy, const float *gate,
                            const float *up, long n)
{
    for (long i = 0; i < n; i += LANES) {
        const lanes g = load_at(gate, i, n), s = sigmoid_lanes(g), d = load_at(dy, i, n);
        const lanes slope = s * (splat(1) + g * (splat(1) - s));
        store_at(dgate, i, n, d * load_at(up, i, n) * slope);
        store_at(dup, i, n, d * g * s);
    }
}
