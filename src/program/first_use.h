/* Proving programs that ./check does not cover, when they are first used. */
#ifndef TT_PROGRAM_FIRST_USE_H
#define TT_PROGRAM_FIRST_USE_H

#include "base/status.h"
#include "schedule/schedule.h"

/* Proves the programs of all ranks for `count` elements, unless ./check covers them (covered.h),
 * this process has proved them before, or there are more ranks than TT_PROOF_MOST_RANKS. Threads
 * that ask for the same proof wait for one of them to run it. Communicates with nobody.
 * TT_ERR_INTERNAL: refuted; the text says what is wrong. *any_count: it holds for every count, so
 * another count need not be asked for. */
TT_NODISCARD tt_status tt_prove_first_use(const struct tt_algorithm *algorithm,
                                          const struct tt_shape *shape, size_t count,
                                          bool *any_count);
/* How many proofs this process has run here. */
uint64_t tt_first_use_proofs(void);

#endif
