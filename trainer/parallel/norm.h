/* clang-format off */
/* The norm of the gradient over every axis of the mesh.
 *
 * Definition   the square root of the sum of squares of every element of every tensor, each once:
 *              fixed blocks of TR_BLOCK floats of a unit are summed in double by one rank each, the
 *              first of those that hold the block, and the blocks' sums are added without rounding.
 *              So the norm has the same bits however units are sharded over the data axes.
 * Collectives  one all-reduce of TR_SUM_DIGITS doubles over all ranks, together with the step's losses.
 * Volume       2 (n-1)/n * 168 bytes a rank and step, however large the model is.
 * Limits       2^21 ranks.
 * Test         tests/trainer/grid_*: the norm of every layout; ops_test.c: the sum is exact. */
/* clang-format on */
#ifndef TR_NORM_H
#define TR_NORM_H

#include "store.h"

/* Adds the squares that this rank answers for to sum, in the backend's memory. */
void tr_norm_add(const struct tr_store *store, double sum[TR_SUM_DIGITS]);

/* The sum of squares, from digits that were added over the ranks, in the host's memory. Infinite or
 * NaN where a square is. */
double tr_norm_squares(const double sum[TR_SUM_DIGITS]);

#endif
