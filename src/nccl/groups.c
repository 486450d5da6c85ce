/* Groups, and the end of communicators, which tutti's group holds until its calls are issued. */
#include <stdio.h>

#include "nccl/face.h"

/* Of this thread. */
static _Thread_local struct {
    int depth;
    ncclResult_t failed; /* of the first call that failed: the group issues nothing */
    char text[1024];     /* its sentence */
} group;

void tt_face_note_failure(ncclResult_t result)
{
    if (!group.depth || group.failed) return;
    group.failed = result;
    snprintf(group.text, sizeof group.text, "%s", pncclGetLastError(NULL));
}

void tt_face_fail_group(ncclResult_t result)
{
    if (!group.depth || group.failed) return;
    tt_face_note_failure(result);
    (void)tuttiGroupFail(group.text);
    (void)tt_face_refuse(result, "%s", group.text);
}

ncclResult_t pncclGroupStart(void)
{
    group.depth++;
    return tt_face_end(tuttiGroupStart());
}

ncclResult_t pncclGroupEnd(void)
{
    const tuttiResult_t result = tuttiGroupEnd();
    if (group.depth == 0 || --group.depth > 0) return tt_face_end(result);
    const ncclResult_t failed = group.failed;
    group.failed = ncclSuccess;
    return failed ? tt_face_refuse(failed, "%s", group.text) : tt_face_end(result);
}

/* Ends the group like ncclGroupEnd, but its calls are not issued. */
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *info)
{
    (void)info;
    const ncclResult_t refused = tt_face_refuse(
        ncclInvalidUsage, "ncclGroupSimulateEnd: estimating the time of a group is not there yet "
                          "in tutti's libnccl.so.2 (docs/nccl.md); nothing of it is issued");
    if (group.depth) (void)pncclGroupEnd();
    return refused;
}

ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
    return tt_face_end_call(tuttiCommDestroy(tt_face_comm(comm)));
}

ncclResult_t pncclCommAbort(ncclComm_t comm)
{
    return tt_face_end_call(tuttiCommAbort(tt_face_comm(comm)));
}

#define TT_IN_GROUPS TT_FACE_TWIN
#include "nccl/names_table.h"
