/* Embeddings and rotations of rows, in each build that this processor can run, against plain
 * formulas in double. */
#include <math.h>
#include <string.h>

#include "ops_check.h"
#include "shim.h"

enum { ROWS = 9 };
/* Below the range [5, 8), its first and last, twice the same, beyond it, negative, largest. */
static const int32_t ids[ROWS] = {4, 5, 7, 6, 7, 8, -1, 2147483647, 0};
enum { FIRST = 5, COUNT = 3 };

static bool inside(int32_t id)
{
    return id >= 5 && id <= 7;
}

TEST(ops, embedding_takes_rows_of_its_range_and_zeros_elsewhere)
{
    FOR_EACH_BUILD(ops)
    {
        for (const long *n = odd_sizes; *n; ++n) {
            const float *table = some(COUNT * *n, 1, 1), *dx = some(ROWS * *n, 1, 2);
            float *x = some(ROWS * *n, 1, 3), *dtable = some(COUNT * *n, 1, 4);
            double *expected = wide_of(dtable, COUNT * *n);
            ops->embed_forward(data_of(x), ids, data_of(table), FIRST, COUNT, ROWS, *n);
            ops->embed_backward(data_of(dtable), data_of(dx), ids, FIRST, COUNT, ROWS, *n);
            for (long row = 0; row < ROWS; ++row) {
                for (long i = 0; i < *n; ++i) {
                    const bool in = inside(ids[row]);
                    CHECK(x[row * *n + i] == (in ? table[(ids[row] - FIRST) * *n + i] : 0));
                    if (in) expected[(ids[row] - FIRST) * *n + i] += (double)dx[row * *n + i];
                }
            }
            CHECK(difference(dtable, expected, COUNT * *n) < 1e-6);
        }
        free_all();
    }
}

TEST(ops, embedding_of_two_ranges_adds_up_to_the_whole)
{
    enum { N = 17, ALL = 12, CUT = 7 };
    const int32_t some_ids[ROWS] = {0, 11, 6, 7, 7, 3, 11, 1, 0};
    const float *table = some(ALL * N, 1, 1), *dx = some(ROWS * N, 1, 2);
    FOR_EACH_BUILD(ops)
    {
        float *x = zeros(ROWS * N), *low = zeros(ROWS * N), *high = zeros(ROWS * N),
              *dtable = zeros(ALL * N), *parts = zeros(ALL * N);
        ops->embed_forward(data_of(x), some_ids, data_of(table), 0, ALL, ROWS, N);
        ops->embed_forward(data_of(low), some_ids, data_of(table), 0, CUT, ROWS, N);
        ops->embed_forward(data_of(high), some_ids, data_of(table + CUT * N), CUT, ALL - CUT, ROWS,
                           N);
        for (long i = 0; i < ROWS * N; ++i) low[i] += high[i];
        CHECK(same_bits(x, low, ROWS * N));
        ops->embed_backward(data_of(dtable), data_of(dx), some_ids, 0, ALL, ROWS, N);
        ops->embed_backward(data_of(parts), data_of(dx), some_ids, 0, CUT, ROWS, N);
        ops->embed_backward(data_of(parts + CUT * N), data_of(dx), some_ids, CUT, ALL - CUT, ROWS,
                            N);
        CHECK(same_bits(dtable, parts, ALL * N));
    }
    free_all();
}

TEST(ops, places_are_added_at_the_positions_given)
{
    enum { PLACES = 6 };
    const int32_t positions[ROWS] = {5, 0, 1, 1, 4, 5, 5, 2, 0};
    FOR_EACH_BUILD(ops)
    {
        for (const long *n = odd_sizes; *n; ++n) {
            const float *table = some(PLACES * *n, 1, 1), *dx = some(ROWS * *n, 1, 2);
            float *x = some(ROWS * *n, 1, 3), *dtable = some(PLACES * *n, 1, 4);
            double *xx = wide_of(x, ROWS * *n), *dd = wide_of(dtable, PLACES * *n);
            ops->place_forward(data_of(x), positions, data_of(table), ROWS, *n);
            ops->place_backward(data_of(dtable), data_of(dx), positions, ROWS, *n);
            for (long row = 0; row < ROWS; ++row) {
                for (long i = 0; i < *n; ++i) {
                    xx[row * *n + i] += (double)table[positions[row] * *n + i];
                    dd[positions[row] * *n + i] += (double)dx[row * *n + i];
                }
            }
            CHECK(difference(x, xx, ROWS * *n) < 1e-6);
            CHECK(difference(dtable, dd, PLACES * *n) < 1e-6);
        }
        free_all();
    }
}

static const int32_t far[ROWS] = {0, 1, 2, 3, 1023, 100003, 12345678, 2147483647, 7};

static void plain_rope(double *x, long heads, long size, long stride, double theta)
{
    for (long row = 0; row < ROWS; ++row) {
        for (long h = 0; h < heads; ++h) {
            double *at = x + row * stride + h * size;
            for (long i = 0; i < size / 2; ++i) {
                const double angle = far[row] * pow(theta, -2. * (double)i / (double)size);
                const double a = at[i], b = at[i + size / 2];
                at[i] = a * cos(angle) - b * sin(angle);
                at[i + size / 2] = a * sin(angle) + b * cos(angle);
            }
        }
    }
}

static void check_rope(const struct tr_backend *ops, long heads, long size, double theta)
{
    const long stride = heads * size + 5, n = ROWS * stride;
    const float *before = some(n, 1, 1), *dy = some(n, 1, 2);
    float *x = copy_of(before, n), *dx = copy_of(dy, n);
    double *xx = wide_of(before, n);
    ops->rope(data_of(x), far, ROWS, heads, size, stride, theta, 1);
    plain_rope(xx, heads, size, stride, theta);
    CHECK_MESSAGE(difference(x, xx, n) < 1e-6, "%s: %ld heads of %ld: off by %g", ops->name, heads,
                  size, difference(x, xx, n));
    for (long row = 0; row < ROWS; ++row) /* what lies between the rows is not touched */
        CHECK(same_bits(x + row * stride + heads * size, before + row * stride + heads * size, 5));
    /* A rotation is linear and its own backward is its inverse: dx . before = dy . x */
    ops->rope(data_of(dx), far, ROWS, heads, size, stride, theta, -1);
    const double a = weighted_sum(wide_of(dx, n), before, n), b = weighted_sum(xx, dy, n);
    CHECK_MESSAGE(fabs(a - b) < 1e-6 * (double)n, "%g and %g", a, b);
    ops->rope(data_of(x), far, ROWS, heads, size, stride, theta, -1);
    CHECK(difference(x, wide_of(before, n), n) < 1e-6);
    free_all();
}

TEST(ops, rope_turns_pairs_by_their_angles_and_back)
{
    const long sizes[] = {2, 6, 30, 32, 34, 64, 74};
    FOR_EACH_BUILD(ops)
    {
        for (int i = 0; i < 7; ++i) {
            check_rope(ops, 1, sizes[i], 10000);
            check_rope(ops, 3, sizes[i], 500000);
        }
    }
}
