/* What the proofs of ./check cover: `tutti-plan verify --all --ranks 1-33` and the tests go through
 * what this file says, and a program that it leaves out is proved at its first use. */
#ifndef TT_PROGRAM_COVERED_H
#define TT_PROGRAM_COVERED_H

#include "schedule/schedule.h"

/* Algorithms that are not made of two others are proved for 1 to this number of ranks, every root.
 */
enum { TT_COVERED_RANKS = 33 };

/* The index-th placement of ranks on hosts on which every algorithm X/Y is proved, for every root:
 * a letter a rank, equal letters being one host. NULL past the end. */
const char *tt_covered_placement(int index);

/* Whether the programs of this algorithm and shape are among what ./check proves, for any count. */
bool tt_proof_covers(const struct tt_algorithm *algorithm, const struct tt_shape *shape);

#endif
