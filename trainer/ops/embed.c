/* Token and position embeddings, forward and backward. */
#include "pool.h"
#include "simd.h"
#include "table.h"

/* One call: rows of x, the row of the table that each uses, and the part of the table. */
struct call {
    float *x;
    const float *table;
    float *dtable;
    const float *dx;
    const int32_t *ids;
    long first, count, rows, n;
};

/* The row of the table [first, first + count) that holds `id`, or -1. */
static inline long row_of(int32_t id, long first, long count)
{
    return id >= first && id < first + count ? id - first : -1;
}

static void embed_piece(const void *arg, long index)
{
    const struct call *c = arg;
    const struct tr_range part = tr_range_at(c->rows, tr_piece_rows(c->n), index);
    float *x = c->x + part.first * c->n;
    for (long row = part.first; row < part.first + part.n; ++row, x += c->n) {
        const long at = row_of(c->ids[row], c->first, c->count);
        if (at < 0)
            memset(x, 0, (size_t)c->n * sizeof *x);
        else
            memcpy(x, c->table + at * c->n, (size_t)c->n * sizeof *x);
    }
}

void TR_OP(embed_forward)(float *x, const int32_t *ids, const float *table, long first, long count,
                          long rows, long n)
{
    const struct call call = {
        .x = x, .table = table, .ids = ids, .first = first, .count = count, .rows = rows, .n = n};
    tr_pool_run(embed_piece, &call, tr_ranges(rows, tr_piece_rows(n)));
}

/* Some columns: the rows that use one row of the table are added up in their order. */
static void add_piece(const void *arg, long index)
{
    const struct call *c = arg;
    const struct tr_range part = tr_range_at(c->n, TR_PIECE_COLUMNS, index);
    const float *dx = c->dx + part.first;
    for (long row = 0; row < c->rows; ++row, dx += c->n) {
        const long at = row_of(c->ids[row], c->first, c->count);
        if (at < 0) continue;
        float *sum = c->dtable + at * c->n + part.first;
        for (long i = 0; i < part.n; ++i) sum[i] += dx[i];
    }
}

void TR_OP(embed_backward)(float *dtable, const float *dx, const int32_t *ids, long first,
                           long count, long rows, long n)
{
    const struct call call = {.dtable = dtable,
                              .dx = dx,
                              .ids = ids,
                              .first = first,
                              .count = count,
                              .rows = rows,
                              .n = n};
    tr_pool_run(add_piece, &call, tr_ranges(n, TR_PIECE_COLUMNS));
}

static void place_piece(const void *arg, long index)
{
    const struct call *c = arg;
    const struct tr_range part = tr_range_at(c->rows, tr_piece_rows(c->n), index);
    float *x = c->x + part.first * c->n;
    for (long row = part.first; row < part.first + part.n; ++row, x += c->n) {
        const float *place = c->table + c->ids[row] * c->n;
        for (long i = 0; i < c->n; ++i) x[i] += place[i];
    }
}

void TR_OP(place_forward)(float *x, const int32_t *positions, const float *table, long rows, long n)
{
    const struct call call = {.x = x, .table = table, .ids = positions, .rows = rows, .n = n};
    tr_pool_run(place_piece, &call, tr_ranges(rows, tr_piece_rows(n)));
}

void TR_OP(place_backward)(float *dtable, const float *dx, const int32_t *positions, long rows,
                           long n)
{
    TR_OP(embed_backward)(dtable, dx, positions, 0, INT32_MAX, rows, n);
}
