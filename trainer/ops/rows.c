/* Adding, copying and clearing: whole tensors, and rows that lie apart. */
#include "pool.h"
#include "simd.h"
#include "table.h"

INLINE void add_range(float *y, const float *x, long n)
{
    for (long i = 0; i < n; ++i) y[i] += x[i];
}

struct sum {
    float *y;
    const float *x;
    size_t n;
};

static void add_piece(const void *arg, long index)
{
    const struct sum *a = arg;
    const struct tr_range part = tr_range_at((long)a->n, TR_PIECE_FLOATS, index);
    add_range(a->y + part.first, a->x + part.first, part.n);
}

void TR_OP(add)(float *y, const float *x, size_t n)
{
    const struct sum sum = {y, x, n};
    tr_pool_run(add_piece, &sum, tr_ranges((long)n, TR_PIECE_FLOATS));
}

static void run(void *arg)
{
    const struct tr_addition *a = arg;
    add_range((float *)a->y, (const float *)a->x, (long)a->n);
}

tuttiResult_t TR_OP(add_on)(tuttiStream_t stream, const struct tr_addition *addition)
{
    return tuttiStreamLaunch(stream, run, (void *)(uintptr_t)addition);
}

/* Rows of `to` and `from`; b is one row, or NULL. */
struct call {
    float *to;
    long to_stride;
    const float *from;
    long from_stride;
    const float *b;
    long rows, width;
};

static struct tr_range rows_of(const struct call *c, long index)
{
    return tr_range_at(c->rows, tr_piece_rows(c->width), index);
}

static void run_rows(tr_piece *piece, const struct call *c)
{
    tr_pool_run(piece, c, tr_ranges(c->rows, tr_piece_rows(c->width)));
}

static void residual_piece(const void *arg, long index)
{
    const struct call *c = arg;
    const struct tr_range part = rows_of(c, index);
    const float *b = c->b;
    for (long row = part.first; row < part.first + part.n; ++row) {
        float *y = c->to + row * c->width;
        const float *residual = c->from + row * c->width;
        for (long i = 0; i < c->width; ++i) y[i] += residual[i] + (b ? b[i] : 0);
    }
}

void TR_OP(add_residual)(float *y, const float *residual, const float *b, long rows, long n)
{
    run_rows(residual_piece,
             &(struct call){.to = y, .from = residual, .b = b, .rows = rows, .width = n});
}

static void copy_piece(const void *arg, long index)
{
    const struct call *c = arg;
    const struct tr_range part = rows_of(c, index);
    for (long row = part.first; row < part.first + part.n; ++row)
        memcpy(c->to + row * c->to_stride, c->from + row * c->from_stride,
               (size_t)c->width * sizeof *c->to);
}

void TR_OP(copy_rows)(float *to, long to_stride, const float *from, long from_stride, long rows,
                      long width)
{
    run_rows(copy_piece, &(struct call){to, to_stride, from, from_stride, NULL, rows, width});
}

static void add_rows_piece(const void *arg, long index)
{
    const struct call *c = arg;
    const struct tr_range part = rows_of(c, index);
    for (long row = part.first; row < part.first + part.n; ++row)
        add_range(c->to + row * c->to_stride, c->from + row * c->from_stride, c->width);
}

void TR_OP(add_rows)(float *to, long to_stride, const float *from, long from_stride, long rows,
                     long width)
{
    run_rows(add_rows_piece, &(struct call){to, to_stride, from, from_stride, NULL, rows, width});
}

static void clear_piece(const void *arg, long index)
{
    const struct call *c = arg;
    const struct tr_range part = rows_of(c, index);
    for (long row = part.first; row < part.first + part.n; ++row)
        memset(c->to + row * c->to_stride, 0, (size_t)c->width * sizeof *c->to);
}

void TR_OP(clear_rows)(float *x, long stride, long rows, long width)
{
    run_rows(clear_piece,
             &(struct call){.to = x, .to_stride = stride, .rows = rows, .width = width});
}
