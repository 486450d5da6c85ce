/* Calls on staging memory: a CUDA stream copies the input there and sets a word, the call runs on
 * the host as any other, and sets a word for which the stream waits. A call begins when its input
 * is there, so that what the stream does before takes nothing of its time. */
#ifndef TT_EXECUTOR_STAGED_RUN_H
#define TT_EXECUTOR_STAGED_RUN_H

#include "executor/internal.h"

/* Whether the call's input is there; true for calls that are not on staging memory. */
static inline bool tt_staged_is_ready(const struct tt_work *work)
{
    const struct tt_staged_run *staged = &work->staged;
    /* release: the stream's store (tt_comm_staged_launch) */
    return !staged->words ||
           __atomic_load_n(&staged->words->ready, __ATOMIC_ACQUIRE) == staged->number;
}

/* The call begins: takes from earlier calls what its input had not got yet. */
void tt_staged_begin(const struct tt_work *work);
/* A system call, while the input is waited for: fails the communicator where the GPU is lost. */
TT_NODISCARD tt_status tt_staged_check(const struct tt_work *work);
/* The call has ended, also by a failure: the stream goes on. */
void tt_staged_end(const struct tt_work *work);

#endif
