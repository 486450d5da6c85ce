/* Issues calls: takes those of a group, or one, through the phases of their carriers (carrier.h).
 */
#ifndef TT_COMMUNICATOR_ISSUE_H
#define TT_COMMUNICATOR_ISSUE_H

#include "carrier/carrier.h"

/* The calls that fit memory which the caller has anyway. */
enum { TT_FEW_CALLS = 4 };

/* Runs the calls, or queues them in their streams. are_entered: the caller has entered them
 * (tt_core_enter_call). They are left once they have their turns. Tables of blocks are the calls'
 * from here on, also when it fails. */
TT_NODISCARD tt_status tt_issue_calls(struct tt_pending_call *calls, int ncalls, bool are_entered);
/* Of calls that will not be issued, frees what they have. */
void tt_drop_calls(struct tt_pending_call *calls, int ncalls);
void tt_enter_calls(const struct tt_pending_call *calls, int ncalls);
void tt_leave_calls(const struct tt_pending_call *calls, int ncalls);

#endif
