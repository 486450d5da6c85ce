/* Makes the operations of an activation from two functions of 16 floats, `function` and
 * `derivative`: TR_ACTIVATION(relu, function, derivative) defines what activation_table.h names.
 * Included by ops/ files only. */
#ifndef TR_ACTIVATE_H
#define TR_ACTIVATE_H

#include "pool.h"
#include "table.h"

/* One call: y = function(x), or y = dy * derivative(x). */
struct tr_activation_call {
    float *y;
    const float *dy, *x;
    long n;
};

#define TR_ACTIVATION(name, function, derivative)                                                  \
    static void forward_piece(const void *arg, long index)                                         \
    {                                                                                              \
        const struct tr_activation_call *c = arg;                                                  \
        const struct tr_range part = tr_range_at(c->n, TR_PIECE_FLOATS, index);                    \
        float *y = c->y + part.first;                                                              \
        const float *x = c->x + part.first;                                                        \
        long i = 0;                                                                                \
        for (; i + LANES <= part.n; i += LANES) store(y + i, function(load(x + i)));               \
        if (i < part.n) store_part(y + i, function(load_part(x + i, part.n - i, 0)), part.n - i);  \
    }                                                                                              \
    static void backward_piece(const void *arg, long index)                                        \
    {                                                                                              \
        const struct tr_activation_call *c = arg;                                                  \
        const struct tr_range part = tr_range_at(c->n, TR_PIECE_FLOATS, index);                    \
        float *dx = c->y + part.first;                                                             \
        const float *dy = c->dy + part.first, *x = c->x + part.first;                              \
        long i = 0;                                                                                \
        for (; i + LANES <= part.n; i += LANES)                                                    \
            store(dx + i, load(dy + i) * derivative(load(x + i)));                                 \
        if (i == part.n) return;                                                                   \
        const lanes last = load_part(x + i, part.n - i, 0), d = load_part(dy + i, part.n - i, 0);  \
        store_part(dx + i, d * derivative(last), part.n - i);                                      \
    }                                                                                              \
    void TR_OP(name##_forward)(float *y, const float *x, long n)                                   \
    {                                                                                              \
        const struct tr_activation_call call = {.y = y, .x = x, .n = n};                           \
        tr_pool_run(forward_piece, &call, tr_ranges(n, TR_PIECE_FLOATS));                          \
    }                                                                                              \
    void TR_OP(name##_backward)(float *dx, const float *dy, const float *x, long n)                \
    {                                                                                              \
        const struct tr_activation_call call = {.y = dx, .dy = dy, .x = x, .n = n};                \
        tr_pool_run(backward_piece, &call, tr_ranges(n, TR_PIECE_FLOATS));                         \
    }

#endif
