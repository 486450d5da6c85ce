/* What a call on staging memory has in common with the CUDA stream that copies for it. */
#include "executor/staged_run.h"

#include <string.h>

#include "executor/kernel_run.h"

void tt_staged_begin(const struct tt_work *work)
{
    const struct tt_stage_copy *copy = work->staged.words ? work->staged.before : NULL;
    for (; copy; copy = copy->next) memcpy(copy->to, copy->from, copy->nbytes);
}

tt_status tt_staged_check(const struct tt_work *work)
{
    const struct tt_staged_run *staged = &work->staged;
    if (!staged->words) return TT_OK;
    return tt_check_gpu(work->engine->fabric, staged->context, staged->stream);
}

void tt_staged_end(const struct tt_work *work)
{
    /* acquire: the stream's wait (tt_comm_staged_launch) */
    if (work->staged.words)
        __atomic_store_n(&work->staged.words->done, work->staged.number, __ATOMIC_RELEASE);
}
