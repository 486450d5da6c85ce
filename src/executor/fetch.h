/* Fetches memory into the cache before a fold needs them, while the rank looks things up and waits
 * for messages. */
#ifndef TT_EXECUTOR_FETCH_H
#define TT_EXECUTOR_FETCH_H

#include "executor/work.h"

/* Cache lines of each page, before and after the step in front of the fold. A few make the hardware
 * fetch those behind them. With more, what is looked up meanwhile waits: a core has room for about
 * 16 cache lines that are on their way. */
enum { TT_FETCH_EARLY = 4, TT_FETCH_LATE = 8 };

/* Fetches the first cache lines of the first pages of a long message, which is going to be read. */
void tt_fetch_to_read(const char *data, size_t nbytes, int nlines);
/* Fetches the first cache lines of the first pages of memory that is going to be written, and whose
 * contents nobody needs any more. */
void tt_fetch_to_write(const char *data, size_t nbytes, int nlines);

/* If the step, number `index` of its channel, folds long messages: fetches the first cache lines of
 * this rank's operand of the fold, and of the memory in which the step stores the result. */
void tt_fetch_for_step(const struct tt_work *work, int channel, const struct tt_program_step *step,
                       uint32_t index, int nlines);

#endif
