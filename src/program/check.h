/* Checks a program's tables, before its steps are raised. */
#ifndef TT_PROGRAM_CHECK_H
#define TT_PROGRAM_CHECK_H

#include "base/status.h"
#include "program/program.h"

/* Whether the program, of at most TT_PROOF_MOST_RANKS ranks, is well-formed: its tables' entries
 * are in range; what a walk and a link need but raised steps do not show (flags of spans, channels
 * and directions of links) agrees with the rest. TT_ERR_USAGE: it is not; text says what is wrong.
 */
TT_NODISCARD tt_status tt_program_check(const struct tt_program *program, char *text, size_t size);

#endif
