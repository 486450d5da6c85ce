/* Reductions compared bit for bit with a loop over the ranks. */
#ifndef TT_TESTS_INTEGRATION_RANK_ORDER_H
#define TT_TESTS_INTEGRATION_RANK_ORDER_H

#include <stddef.h>

#include "tutti.h"

/* Runs reductions of fp32, fp64 and bf16 on comm, of 1 to `most` elements, at several offsets of
 * the same values, in and out of place, in ordinary memory and in tuttiMemAlloc's. Every result
 * must have the bits of a loop over the ranks in rank order. Returns how many calls failed or came
 * out wrong; the first few are said on stderr. */
int rank_order_calls(tuttiComm_t comm, size_t most);

#endif
