/* A linear layer, forward and backward: products, bias and residual. */
#include "pool.h"
#include "product.h"
#include "simd.h"
#include "table.h"

struct forward {
    struct tr_product product;
    const float *b, *residual;
};

/* For one row of x, reading w row after row, as it lies in memory, is faster than oneDNN, which
 * reads several at once. A core reads rows of 768 floats at 34 GB/s, in oneDNN at 17; rows of 3072
 * at 32 GB/s, in oneDNN at 24. */
enum { AT_ONCE = 4 };

INLINE float dot(const float *x, const float *w, long n)
{
    lanes sums[AT_ONCE] = {{0}};
    long i = 0;
    for (; i + AT_ONCE * LANES <= n; i += AT_ONCE * LANES)
        for (int j = 0; j < AT_ONCE; ++j)
            sums[j] += load(x + i + j * LANES) * load(w + i + j * LANES);
    for (; i < n; i += LANES) sums[0] += load_at(x, i, n) * load_at(w, i, n);
    return sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

static void multiply_row(const struct tr_product *product, const struct tr_tile *tile)
{
    for (long column = tile->column; column < tile->column + tile->columns; ++column) {
        const float value = dot(product->a, product->b + column * product->ldb, product->k);
        product->c[column] = product->beta == 0 ? value : product->c[column] + value;
    }
}

/* What is added goes in first and the product on top: one pass over y less. */
static void forward_piece(const void *arg, long index)
{
    const struct forward *f = arg;
    const struct tr_product *product = &f->product;
    const struct tr_tile tile = tr_product_tile(product, index);
    const float *b = f->b ? f->b + tile.column : NULL;
    for (long row = tile.row; row < tile.row + tile.rows; ++row) {
        const long at = row * product->ldc + tile.column;
        float *to = product->c + at;
        const float *residual = f->residual ? f->residual + at : NULL;
        if (residual && b)
            for (long i = 0; i < tile.columns; ++i) to[i] = residual[i] + b[i];
        else if (b)
            memcpy(to, b, (size_t)tile.columns * sizeof *to);
        else if (residual)
            memcpy(to, residual, (size_t)tile.columns * sizeof *to);
    }
    if (product->m == 1)
        multiply_row(product, &tile);
    else
        tr_product_compute(product, &tile);
}

void TR_OP(linear_forward)(float *y, const float *x, const float *w, const float *b,
                           const float *residual, long rows, long in, long out)
{
    const struct forward f = {
        .product = {'N', 'T', rows, out, in, 1, x, in, w, in, b || residual ? 1 : 0, y, out},
        .b = b,
        .residual = residual};
    tr_pool_run(forward_piece, &f, tr_product_tiles(&f.product));
}

/* The tiles of dw, then those of dx, then db by columns: fewer and larger tiles first, so that no
 * thread begins a large one when the others are about to end. */
struct backward {
    struct tr_product dw, dx;
    long ndw, ndx;
    float *db;
    const float *dy;
    long rows, out;
};

static void add_columns(const struct backward *b, long index)
{
    const struct tr_range columns = tr_range_at(b->out, TR_PIECE_COLUMNS, index);
    float *db = b->db + columns.first;
    for (long row = 0; row < b->rows; ++row) {
        const float *dy = b->dy + row * b->out + columns.first;
        for (long i = 0; i < columns.n; ++i) db[i] += dy[i];
    }
}

static void backward_piece(const void *arg, long index)
{
    const struct backward *b = arg;
    const struct tr_product *product = &b->dw;
    if (index >= b->ndw) {
        product = &b->dx;
        index -= b->ndw;
        if (index >= b->ndx) {
            add_columns(b, index - b->ndx);
            return;
        }
    }
    const struct tr_tile tile = tr_product_tile(product, index);
    tr_product_compute(product, &tile);
}

void TR_OP(linear_backward)(float *dx, float *dw, float *db, const float *dy, const float *x,
                            const float *w, long rows, long in, long out)
{
    struct backward b = {.dw = {'T', 'N', out, in, rows, 1, dy, out, x, in, 1, dw, in},
                         .dx = {'N', 'N', rows, in, out, 1, dy, out, w, in, 0, dx, in},
                         .db = db,
                         .dy = dy,
                         .rows = rows,
                         .out = out};
    b.ndw = dw ? tr_product_tiles(&b.dw) : 0;
    b.ndx = dx ? tr_product_tiles(&b.dx) : 0;
    tr_pool_run(backward_piece, &b, b.ndw + b.ndx + (db ? tr_ranges(out, TR_PIECE_COLUMNS) : 0));
}
