/* Every algorithm there is; table.c orders them. */
#ifndef TT_ALGORITHMS_LIST_H
#define TT_ALGORITHMS_LIST_H

#include "schedule/schedule.h"

extern const struct tt_algorithm tt_all_reduce_naive;
extern const struct tt_algorithm tt_all_reduce_ring;
extern const struct tt_algorithm tt_all_reduce_meet;
extern const struct tt_algorithm tt_all_reduce_meet_two_shot;

extern const struct tt_algorithm tt_broadcast_direct;
extern const struct tt_algorithm tt_broadcast_meet;

extern const struct tt_algorithm tt_reduce_direct;
extern const struct tt_algorithm tt_reduce_meet;

extern const struct tt_algorithm tt_all_gather_ring;
extern const struct tt_algorithm tt_all_gather_meet;

extern const struct tt_algorithm tt_reduce_scatter_ring;
extern const struct tt_algorithm tt_reduce_scatter_meet;

extern const struct tt_algorithm tt_all_to_all_direct;
extern const struct tt_algorithm tt_all_to_all_pairwise;
extern const struct tt_algorithm tt_all_to_all_meet;

extern const struct tt_algorithm tt_scatter_direct;
extern const struct tt_algorithm tt_scatter_meet;

extern const struct tt_algorithm tt_gather_direct;
extern const struct tt_algorithm tt_gather_meet;

extern const struct tt_algorithm tt_barrier_dissemination;
extern const struct tt_algorithm tt_barrier_meet;

#endif
