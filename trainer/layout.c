/* Derives from a layout what each rank holds, as slices, and who holds the same. */
#include "layout.h"

#include <string.h>

struct tr_part tr_layout_part(const struct tr_layout *layout, long extent, int n, int rank)
{
    if (layout->dim < 0) return (struct tr_part){0, extent, extent};
    const long granules = layout->granules, granule = layout->granule;
    if (granules < n && n % granules == 0) /* n / granules ranks share one */
        return (struct tr_part){rank / (n / granules) * granule, granule, granule};
    const long each = (granules + n - 1) / n;
    const long first = rank * each < granules ? rank * each : granules;
    const long count = granules - first < each ? granules - first : each;
    return (struct tr_part){first * granule, count * granule, each * granule};
}

static long smaller(long a, long b)
{
    return a < b ? a : b;
}

/* The slices of elements [first, end) of a matrix of `rows` x `cols` elements that lies at (row,
 * col) of the global tensor: a part of a row, whole rows, a part of a row. */
static int rectangles(struct tr_slice at, size_t first, size_t end, struct tr_slice *slices)
{
    const size_t cols = (size_t)at.cols;
    int n = 0;
    while (first < end) {
        const long row = (long)(first / cols), col = (long)(first % cols);
        long rows = (long)(end / cols) - row, width = at.cols;
        if (col || !rows) { /* a part of one row */
            rows = 1;
            width = smaller(at.cols - col, (long)(end - first));
        }
        slices[n++] = (struct tr_slice){at.row + row, rows, at.col + col, width};
        first += (size_t)(rows * width);
    }
    return n;
}

int tr_layout_slices(const struct tr_layout *layout, const long shape[2], int n, int rank,
                     size_t first, size_t count, struct tr_slice slices[TR_MOST_SLICES])
{
    const struct tr_part part = tr_layout_part(layout, shape[layout->dim > 0], n, rank);
    struct tr_slice at = {0, shape[0], 0, shape[1]};
    if (layout->dim == 0) at = (struct tr_slice){part.first, part.count, 0, shape[1]};
    if (layout->dim == 1) at = (struct tr_slice){0, shape[0], part.first, part.count};
    const size_t all = (size_t)(at.rows * at.cols);
    const size_t end = first + count < all ? first + count : all;
    return first < end ? rectangles(at, first, end, slices) : 0;
}

static bool same(const struct tr_layout *layout, const long shape[2], int n, int a, int b)
{
    struct tr_slice left[TR_MOST_SLICES], right[TR_MOST_SLICES];
    const size_t all = (size_t)(shape[0] * shape[1]);
    const int nleft = tr_layout_slices(layout, shape, n, a, 0, all, left);
    const int nright = tr_layout_slices(layout, shape, n, b, 0, all, right);
    return nleft > 0 && nleft == nright && !memcmp(left, right, (size_t)nleft * sizeof *left);
}

struct tr_replicas tr_layout_replicas(const struct tr_layout *layout, const long shape[2], int n,
                                      int rank)
{
    int first = rank, end = rank + 1;
    while (first > 0 && same(layout, shape, n, first - 1, rank)) --first;
    while (end < n && same(layout, shape, n, end, rank)) ++end;
    return (struct tr_replicas){first, end - first};
}

void tr_layout_slice(long n, int parts, int part, long *first, long *count)
{
    const long each = n / parts, more = n % parts;
    *first = part * each + (part < more ? part : more);
    *count = each + (part < more);
}
