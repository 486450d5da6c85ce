/* Calls on staging memory: a CUDA stream copies the input there and sets a word, the call runs on
 * the host as any other, and sets a word for which the stream waits. A call begins when its input
 * is there, so that what the stream does before takes nothing of its time. */
#ifndef TT_EXECUTOR_STAGED_RUN_H
#define TT_EXECUTOR_STAGED_RUN_H

#include "executor/internal.h"

/* Queues the first copies of a call in portions, in its turn. TT_OK when those have been made that
 * the call needs to begin; and for a message that may be moved in place, as long as it may. */
TT_NODISCARD tt_status tt_staged_begin(struct tt_work *work);

/* TT_OK when the call's input is there, or its first portion; and for calls that are not on staging
 * memory. */
TT_NODISCARD static inline tt_status tt_staged_await(struct tt_work *work)
{
    const struct tt_staged_run *staged = &work->staged;
    if (!staged->words) return TT_OK;
    /* release: the stream's store (tt_comm_staged_launch) */
    if (__atomic_load_n(&staged->words->ready, __ATOMIC_ACQUIRE) != staged->number)
        return TT_IN_PROGRESS;
    return staged->portions ? tt_staged_begin(work) : TT_OK;
}

/* Whether the place of a portion in staging memory is the running call's: what was there before was
 * copied out, its input is there. */
bool tt_staged_has(const struct tt_work *work, uint64_t portion);
static inline bool tt_staged_has_round(const struct tt_work *work, uint64_t round)
{
    return !tt_work_is_divided(work) || tt_staged_has(work, round / work->staged.portions->rounds);
}
/* Where the next bytes of a message lie in staging memory, and how many follow there. */
char *tt_staged_message(const struct tt_work *work, size_t *nbytes);

/* Queues the copies for which there is room now that the call has come so far. ran: to its end. */
TT_NODISCARD tt_status tt_staged_pass(struct tt_work *work, bool ran);
/* TT_OK when all copies that were queued have been made. */
TT_NODISCARD tt_status tt_staged_copied(const struct tt_work *work);
/* The same, after a failure: TT_OK also when the deadline has passed, which the failure's text then
 * says. */
TT_NODISCARD tt_status tt_staged_stop(struct tt_work *work);
/* A system call, while copies are waited for: fails the communicator where the GPU is lost. */
TT_NODISCARD tt_status tt_staged_check(const struct tt_work *work);
/* The call has ended, also by a failure: the stream goes on. */
void tt_staged_end(const struct tt_work *work);

#endif
