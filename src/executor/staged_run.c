/* What a call on staging memory has in common with the CUDA stream that copies for it. */
#include "executor/staged_run.h"

#include <stdio.h>
#include <string.h>

void tt_staged_begin(const struct tt_work *work)
{
    const struct tt_stage_copy *copy = work->staged.words ? work->staged.before : NULL;
    for (; copy; copy = copy->next) memcpy(copy->to, copy->from, copy->nbytes);
}

tt_status tt_staged_check(const struct tt_work *work)
{
    const struct tt_staged_run *staged = &work->staged;
    if (!staged->words || tt_context_stream_query(staged->context, staged->stream) >= 0)
        return TT_OK;
    char cause[TT_ERROR_TEXT];
    snprintf(cause, sizeof cause, "%s", tt_last_error());
    return tt_fabric_fail(work->engine->fabric, TT_ERR_DEVICE, "GPU %d is lost: %s",
                          tt_context_gpu(staged->context), cause);
}

void tt_staged_end(const struct tt_work *work)
{
    /* acquire: the stream's wait (tt_comm_staged_launch) */
    if (work->staged.words)
        __atomic_store_n(&work->staged.words->done, work->staged.number, __ATOMIC_RELEASE);
}
