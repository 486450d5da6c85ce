/* Keeps a curve: each point is the mean of as many values; where all points are taken, pairs of
 * them become one. */
#include "curve.h"

#include <assert.h>
#include <math.h>

static_assert(TR_CURVE_POINTS % 2 == 0, "points are merged in pairs");

static void merge(struct tr_curve *curve)
{
    for (int i = 0; i < TR_CURVE_POINTS / 2; ++i) {
        const struct tr_point a = curve->points[2 * i], b = curve->points[2 * i + 1];
        curve->points[i] = (struct tr_point){a.step / 2 + b.step / 2, a.value / 2 + b.value / 2};
    }
    curve->npoints = TR_CURVE_POINTS / 2;
    curve->each *= 2;
}

void tr_curve_go_back(struct tr_curve *curve, int64_t step)
{
    const int n = tr_curve_count(curve);
    if (!n || tr_curve_at(curve, n - 1).step < (double)step) return;
    curve->sum = (struct tr_point){0, 0};
    curve->nsum = 0;
    while (curve->npoints && curve->points[curve->npoints - 1].step >= (double)step)
        curve->npoints--;
}

void tr_curve_add(struct tr_curve *curve, int64_t step, double value)
{
    if (!(fabs(value) <= 1e300)) return;
    if (!curve->each) curve->each = 1;
    tr_curve_go_back(curve, step);
    /* Shares of the mean, which cannot overflow as a sum of values could. */
    curve->sum.step += (double)step / (double)curve->each;
    curve->sum.value += value / (double)curve->each;
    if (++curve->nsum < curve->each) return;
    curve->points[curve->npoints++] = curve->sum;
    curve->sum = (struct tr_point){0, 0};
    curve->nsum = 0;
    /* One place stays free for the values that make no whole point yet. */
    if (curve->npoints == TR_CURVE_POINTS) merge(curve);
}

int tr_curve_count(const struct tr_curve *curve)
{
    return curve->npoints + (curve->nsum > 0);
}

struct tr_point tr_curve_at(const struct tr_curve *curve, int i)
{
    if (i < curve->npoints) return curve->points[i];
    const double whole = (double)curve->each / (double)curve->nsum;
    return (struct tr_point){curve->sum.step * whole, curve->sum.value * whole};
}
