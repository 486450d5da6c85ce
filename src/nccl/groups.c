/* Groups, and the end of communicators, which tutti's group holds until its calls are issued. */
#include <stdio.h>

#include "nccl/face.h"

/* Of this thread. */
static _Thread_local struct {
    int depth;
    ncclResult_t refused; /* the first refusal by the face: the group issues nothing */
    char text[512];       /* its sentence */
} group;

void tt_face_fail_group(ncclResult_t result)
{
    if (!group.depth || group.refused) return;
    group.refused = result;
    snprintf(group.text, sizeof group.text, "%s", pncclGetLastError(NULL));
    (void)tuttiBarrier(NULL, NULL); /* is refused, so tutti's group fails */
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
    const ncclResult_t refused = group.refused;
    group.refused = ncclSuccess;
    return refused ? tt_face_refuse(refused, "%s", group.text) : tt_face_end(result);
}

ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
    return tt_face_end(tuttiCommDestroy(tt_face_comm(comm)));
}

ncclResult_t pncclCommAbort(ncclComm_t comm)
{
    return tt_face_end(tuttiCommAbort(tt_face_comm(comm)));
}

#define TT_IN_GROUPS TT_FACE_TWIN
#include "nccl/names_table.h"
