/* Token and position embeddings, forward and backward. */
#include "simd.h"
#include "table.h"

/* The row of the table [first, first + count) that holds `id`, or -1. */
static inline long row_of(int32_t id, long first, long count)
{
    return id >= first && id < first + count ? id - first : -1;
}

void TR_OP(embed_forward)(float *x, const int32_t *ids, const float *table, long first, long count,
                          long rows, long n)
{
    for (long row = 0; row < rows; ++row, x += n) {
        const long at = row_of(ids[row], first, count);
        if (at < 0)
            memset(x, 0, (size_t)n * sizeof *x);
        else
            memcpy(x, table + at * n, (size_t)n * sizeof *x);
    }
}

void TR_OP(embed_backward)(float *dtable, const float *dx, const int32_t *ids, long first,
                           long count, long rows, long n)
{
    for (long row = 0; row < rows; ++row, dx += n) {
        const long at = row_of(ids[row], first, count);
        if (at < 0) continue;
        for (long i = 0; i < n; ++i) dtable[at * n + i] += dx[i];
    }
}

void TR_OP(place_forward)(float *x, const int32_t *positions, const float *table, long rows, long n)
{
    for (long row = 0; row < rows; ++row, x += n) {
        const float *place = table + positions[row] * n;
        for (long i = 0; i < n; ++i) x[i] += place[i];
    }
}

void TR_OP(place_backward)(float *dtable, const float *dx, const int32_t *positions, long rows,
                           long n)
{
    for (long row = 0; row < rows; ++row, dx += n) {
        float *place = dtable + positions[row] * n;
        for (long i = 0; i < n; ++i) place[i] += dx[i];
    }
}
