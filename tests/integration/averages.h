/* Averages of floats near the ends of their types, compared with sums in a wider type. */
#ifndef TT_TESTS_INTEGRATION_AVERAGES_H
#define TT_TESTS_INTEGRATION_AVERAGES_H

#include "tutti.h"

/* Runs averages of every float type on comm through every reduction and one of `share` of its
 * algorithms that can run there, in and out of place, in ordinary memory and in tuttiMemAlloc's.
 * Where the ranks' values are finite, the result must be finite and near their average; where one
 * is infinite or no number, the result must be that. Returns how many calls failed or came out
 * wrong; the first few are said on stderr. */
int average_calls(tuttiComm_t comm, int share);

#endif
