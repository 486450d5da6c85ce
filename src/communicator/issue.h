/* Issues calls: takes those of a group, or one, through the phases of their carriers (carrier.h).
 */
#ifndef TT_COMMUNICATOR_ISSUE_H
#define TT_COMMUNICATOR_ISSUE_H

#include "carrier/carrier.h"

/* The calls that fit memory which the caller has anyway. */
enum { TT_FEW_CALLS = 4 };

/* What keeps another thread from freeing the communicators of calls until these have their turns:
 * the mark of the one call that the user makes, which outlasts it; the marks of a group's calls
 * (tt_comm_mark_call); or counts (tt_core_enter_call), one for each call. */
enum tt_call_hold { TT_HOLD_CALL, TT_HOLD_MARK, TT_HOLD_COUNT };

/* Runs the calls, or queues them in their streams. Lets go of the communicators once the calls have
 * their turns. Tables of blocks are the calls' from here on, also when it fails. */
TT_NODISCARD tt_status tt_issue_calls(struct tt_pending_call *calls, int ncalls,
                                      enum tt_call_hold hold);
/* may_wait.c. USAGE: this thread would wait for ever for a call with these turns (struct tt_work).
 * A call before it is queued in a stream, behind the function that this thread runs. */
TT_NODISCARD tt_status tt_check_may_wait(const struct tt_comm_core *core,
                                         const _Atomic uint64_t *turns);
/* USAGE: a call of the group, which has no stream, would so wait, for a call before the group or
 * for one of the group. */
TT_NODISCARD tt_status tt_check_calls_may_wait(struct tt_pending_call *calls, int ncalls);
/* USAGE: a message of a rank to itself has no partner among the calls. It would be waited for,
 * since the thread that waits is the one that would make the other call. */
TT_NODISCARD tt_status tt_check_own_messages(const struct tt_pending_call *calls, int ncalls);
/* Other ranks wait for these calls, which this rank will not issue: tells them (carrier.h:
 * tt_core_tell_failure). Keeps the last error. */
void tt_tell_failure(const struct tt_pending_call *calls, int ncalls, tt_status status);
/* Of calls that will not be issued, frees what they have. */
void tt_drop_calls(struct tt_pending_call *calls, int ncalls);
void tt_enter_calls(const struct tt_pending_call *calls, int ncalls);
void tt_let_go(const struct tt_pending_call *calls, int ncalls, enum tt_call_hold hold);

#endif
