/* The values of one quantity over the steps of a run, in bounded memory. */
#ifndef TR_CURVE_H
#define TR_CURVE_H

#include <stdint.h>

enum { TR_CURVE_POINTS = 2000 }; /* of a curve; even */

struct tr_point {
    double step, value;
};

/* Owned by whoever holds it; all zeros is an empty curve. */
struct tr_curve {
    struct tr_point
        points[TR_CURVE_POINTS]; /* each the mean of `each` values of successive steps */
    int npoints;
    int64_t each;        /* 0 as 1 */
    struct tr_point sum; /* of the values that make no whole point yet */
    int64_t nsum;
};

/* Adds a value. One that is not finite, or beyond 1e300, is left out. Values from
 * this step on are taken away first. Where the curve is full, neighbours are merged to their mean.
 */
void tr_curve_add(struct tr_curve *curve, int64_t step, double value);

/* Takes the values from this step on away. */
void tr_curve_go_back(struct tr_curve *curve, int64_t step);

/* How many points there are to draw: at most TR_CURVE_POINTS. */
int tr_curve_count(const struct tr_curve *curve);
struct tr_point tr_curve_at(const struct tr_curve *curve, int i);

#endif
