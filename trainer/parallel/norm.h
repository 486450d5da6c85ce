/* clang-format off */
/* The norm of the gradient over every axis of the mesh.
 *
 * Definition   the square root of the sum of squares of every element of every tensor, each once:
 *              fixed blocks of TR_BLOCK floats of a unit are summed in double by one rank each, the
 *              first of those that hold the block, and the blocks' sums are added in one fixed order.
 *              So the norm has the same bits however units are sharded over the data axes.
 * Collectives  one all-reduce of 8 bytes a block over all ranks, together with the step's losses.
 * Volume       2 (n-1)/n * (8 tp P / 1024 + 32) bytes a rank and step.
 * Test         tests/trainer/grid_*: the norm of every layout. */
/* clang-format on */
#ifndef TR_NORM_H
#define TR_NORM_H

#include "store.h"

/* Blocks of all units of the model, those of every rank of tp apart. */
size_t tr_norm_blocks(const struct tr_params *params);

/* Writes the sums of squares of the blocks that this rank answers for into sums[tr_norm_blocks] of
 * the backend's memory, and 0 for the others. */
void tr_norm_fill(const struct tr_store *store, double *sums);

#endif
