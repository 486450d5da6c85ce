/* Whole matrices for optimizers whose update depends on all of one (ops/optimizer.h). */
#ifndef TR_WHOLE_H
#define TR_WHOLE_H

#include "store.h"

/* Which rank of the stage owns which matrices. Owner: the store. */
struct tr_whole;

/* Assigns the matrices of this rank's stage that the rule wants whole. NULL in *whole when there
 * are none. */
TR_NODISCARD tr_status tr_whole_create(struct tr_whole **whole, const struct tr_store *store);
void tr_whole_destroy(struct tr_whole *whole);

/* Takes the memory of one matrix and of the rule's scratch; counts while the arena has none. */
void tr_whole_carve(struct tr_whole *whole, struct tr_arena *arena);

/* Lets the rule transform each of these matrices, of which every rank has its part in its
 * gradient_shard, before and after. Collective. */
TR_NODISCARD tr_status tr_whole_transform(struct tr_whole *whole, const struct tr_store *store,
                                          const struct tr_optimizer *how);

/* Deals out matrices of costs above 0 to owners, the most expensive first, each to the owner that
 * has least so far (of equals the first): owner[n], and turn[n], how many of its own an owner has
 * before. Pure. False when out of memory. */
bool tr_whole_assign(const double *costs, int n, int nowners, int *owner, int *turn);

/* What an owner computes for a matrix, up to a factor. */
double tr_whole_cost(long rows, long cols);

#endif
