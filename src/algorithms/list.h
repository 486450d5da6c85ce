/* Every algorithm that is not made of others; table.c orders them. */
#ifndef TT_ALGORITHMS_LIST_H
#define TT_ALGORITHMS_LIST_H

#include "schedule/schedule.h"

/* table.c: the index-th algorithm of a collective, and the one of that name. NULL past the end, for
 * an unknown name, and for a number that is no collective. */
const struct tt_algorithm *tt_basic_at(int collective, int index);
const struct tt_algorithm *tt_basic_find(int collective, const char *name);

extern const struct tt_algorithm tt_all_reduce_naive;
extern const struct tt_algorithm tt_all_reduce_ring;
extern const struct tt_algorithm tt_all_reduce_parallel;
extern const struct tt_algorithm tt_all_reduce_two_shot;
extern const struct tt_algorithm tt_all_reduce_recursive_halving;
extern const struct tt_algorithm tt_all_reduce_recursive_doubling;
extern const struct tt_algorithm tt_all_reduce_tree;
extern const struct tt_algorithm tt_all_reduce_pat;
extern const struct tt_algorithm tt_all_reduce_parameter_server;
extern const struct tt_algorithm tt_all_reduce_meet;
extern const struct tt_algorithm tt_all_reduce_meet_two_shot;

extern const struct tt_algorithm tt_broadcast_direct;
extern const struct tt_algorithm tt_broadcast_binomial;
extern const struct tt_algorithm tt_broadcast_chain;
extern const struct tt_algorithm tt_broadcast_scatter_allgather;
extern const struct tt_algorithm tt_broadcast_meet;

extern const struct tt_algorithm tt_reduce_direct;
extern const struct tt_algorithm tt_reduce_binomial;
extern const struct tt_algorithm tt_reduce_chain;
extern const struct tt_algorithm tt_reduce_reduce_scatter_gather;
extern const struct tt_algorithm tt_reduce_two_shot;
extern const struct tt_algorithm tt_reduce_meet;

extern const struct tt_algorithm tt_all_gather_ring;
extern const struct tt_algorithm tt_all_gather_parallel;
extern const struct tt_algorithm tt_all_gather_recursive;
extern const struct tt_algorithm tt_all_gather_bruck;
extern const struct tt_algorithm tt_all_gather_pat;
extern const struct tt_algorithm tt_all_gather_meet;

extern const struct tt_algorithm tt_reduce_scatter_ring;
extern const struct tt_algorithm tt_reduce_scatter_parallel;
extern const struct tt_algorithm tt_reduce_scatter_recursive;
extern const struct tt_algorithm tt_reduce_scatter_bruck;
extern const struct tt_algorithm tt_reduce_scatter_pat;
extern const struct tt_algorithm tt_reduce_scatter_meet;

extern const struct tt_algorithm tt_all_to_all_direct;
extern const struct tt_algorithm tt_all_to_all_pairwise;
extern const struct tt_algorithm tt_all_to_all_bruck;
extern const struct tt_algorithm tt_all_to_all_meet;

extern const struct tt_algorithm tt_scatter_direct;
extern const struct tt_algorithm tt_scatter_binomial;
extern const struct tt_algorithm tt_scatter_meet;

extern const struct tt_algorithm tt_gather_direct;
extern const struct tt_algorithm tt_gather_binomial;
extern const struct tt_algorithm tt_gather_meet;

extern const struct tt_algorithm tt_barrier_dissemination;
extern const struct tt_algorithm tt_barrier_meet;

#endif
