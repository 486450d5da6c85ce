/* Layer norm, forward and backward. */
#include "pool.h"
#include "simd.h"
#include "table.h"

#include <math.h>

struct forward {
    float *y, *mean, *rstd;
    const float *x, *gamma, *beta;
    float epsilon;
    long rows, n;
};

INLINE void forward_row(const struct forward *f, long row)
{
    const long n = f->n;
    const float *x = f->x + row * n;
    float *y = f->y + row * n;
    lanes sum = splat(0), squares = splat(0);
    for (long i = 0; i < n; i += LANES) sum += load_at(x, i, n);
    const float m = sum_lanes(sum) / (float)n;
    for (long i = 0; i < n; i += LANES) {
        /* Missing lanes are filled with the mean, so that they add nothing. */
        const lanes d =
            n - i >= LANES ? load(x + i) - splat(m) : load_part(x + i, n - i, m) - splat(m);
        squares += d * d;
    }
    const float r = 1 / sqrtf(sum_lanes(squares) / (float)n + f->epsilon);
    for (long i = 0; i < n; i += LANES)
        store_at(y, i, n,
                 (load_at(x, i, n) - splat(m)) * splat(r) * load_at(f->gamma, i, n) +
                     load_at(f->beta, i, n));
    f->mean[row] = m;
    f->rstd[row] = r;
}

static void forward_piece(const void *arg, long index)
{
    const struct forward *f = arg;
    const struct tr_range part = tr_range_at(f->rows, tr_piece_rows(f->n), index);
    for (long row = part.first; row < part.first + part.n; ++row) forward_row(f, row);
}

void TR_OP(norm_forward)(float *y, float *mean, float *rstd, const float *x, const float *gamma,
                         const float *beta, double epsilon, long rows, long n)
{
    const struct forward f = {y, mean, rstd, x, gamma, beta, (float)epsilon, rows, n};
    tr_pool_run(forward_piece, &f, tr_ranges(rows, tr_piece_rows(n)));
}

/* One row of the input half: dx += ... */
INLINE void input_half(float *dx, const float *dy, const float *x, lanes m, lanes r,
                       const float *gamma, long n)
{
    lanes sum = splat(0), product = splat(0);
    for (long i = 0; i < n; i += LANES) {
        const lanes scaled = load_at(dy, i, n) * load_at(gamma, i, n);
        sum += scaled;
        product += scaled * ((load_at(x, i, n) - m) * r);
    }
    const lanes mean_d = splat(sum_lanes(sum) / (float)n);
    const lanes mean_p = splat(sum_lanes(product) / (float)n);
    for (long i = 0; i < n; i += LANES) {
        const lanes hat = (load_at(x, i, n) - m) * r,
                    scaled = load_at(dy, i, n) * load_at(gamma, i, n);
        store_at(dx, i, n, load_at(dx, i, n) + r * (scaled - mean_d - hat * mean_p));
    }
}

/* One row of the weight half: dgamma += ..., dbeta += ... */
INLINE void weight_half(float *dgamma, float *dbeta, const float *dy, const float *x, lanes m,
                        lanes r, long n)
{
    for (long i = 0; i < n; i += LANES) {
        const lanes hat = (load_at(x, i, n) - m) * r, d = load_at(dy, i, n);
        store_at(dgamma, i, n, load_at(dgamma, i, n) + d * hat);
        store_at(dbeta, i, n, load_at(dbeta, i, n) + d);
    }
}

/* The weight half by columns, then the input half by rows. */
struct backward {
    float *dx, *dgamma, *dbeta;
    const float *dy, *x, *mean, *rstd, *gamma;
    long rows, n, nweights; /* pieces of the weight half */
};

static void weight_piece(const struct backward *b, long index)
{
    const struct tr_range part = tr_range_at(b->n, TR_PIECE_COLUMNS, index);
    const float *dy = b->dy + part.first, *x = b->x + part.first;
    for (long row = 0; row < b->rows; ++row, dy += b->n, x += b->n)
        weight_half(b->dgamma + part.first, b->dbeta + part.first, dy, x, splat(b->mean[row]),
                    splat(b->rstd[row]), part.n);
}

static void input_piece(const struct backward *b, long index)
{
    const struct tr_range part = tr_range_at(b->rows, tr_piece_rows(b->n), index);
    for (long row = part.first; row < part.first + part.n; ++row)
        input_half(b->dx + row * b->n, b->dy + row * b->n, b->x + row * b->n, splat(b->mean[row]),
                   splat(b->rstd[row]), b->gamma, b->n);
}

static void backward_piece(const void *arg, long index)
{
    const struct backward *b = arg;
    if (index < b->nweights)
        weight_piece(b, index);
    else
        input_piece(b, index - b->nweights);
}

void TR_OP(norm_backward)(float *dx, float *dgamma, float *dbeta, const float *dy, const float *x,
                          const float *mean, const float *rstd, const float *gamma, long rows,
                          long n)
{
    const struct backward b = {dx,
                               dgamma,
                               dbeta,
                               dy,
                               x,
                               mean,
                               rstd,
                               gamma,
                               rows,
                               n,
                               dgamma ? tr_ranges(n, TR_PIECE_COLUMNS) : 0};
    tr_pool_run(backward_piece, &b, b.nweights + (dx ? tr_ranges(rows, tr_piece_rows(n)) : 0));
}
